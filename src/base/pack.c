/* SPDX-License-Identifier: Apache-2.0
 *
 * base/pack.c - manta_value to MessagePack and back.
 *
 * Writing: into the room at hand if the value fits, else the exact size first, then the bytes. Each
 * number and each length takes its shortest form, reals always 8 bytes.
 * Reading, in two walks over the bytes: `scan` checks everything and adds up what the tree needs,
 * `build` fills one block of that size.
 * (1) Nothing is allocated before all bytes have been seen, so a claimed count costs nothing.
 * (2) Both walks read heads by the same `head`; the second cannot fail where the first did not.
 * (3) Refused: extension types, unsigned integers past INT64_MAX, keys that are no string or hold
 *     a NUL (a manta_pair could not tell where such a key ends).
 */
#include "base/pack.h"

#include <endian.h>

#include "base/alloc.h"
#include "base/value.h"

#define TOO_LONG SIZE_MAX /* in place of a size */

/* --- Writing --------------------------------------------------------------------------------- */

static inline uint8_t *put8(uint8_t *p, uint8_t tag, uint8_t x)
{
  p[0] = tag;
  p[1] = x;
  return p + 2;
}

static inline uint8_t *put16(uint8_t *p, uint8_t tag, uint16_t x)
{
  x = htobe16(x);
  *p = tag;
  memcpy(p + 1, &x, sizeof x);
  return p + 1 + sizeof x;
}

static inline uint8_t *put32(uint8_t *p, uint8_t tag, uint32_t x)
{
  x = htobe32(x);
  *p = tag;
  memcpy(p + 1, &x, sizeof x);
  return p + 1 + sizeof x;
}

static inline uint8_t *put64(uint8_t *p, uint8_t tag, uint64_t x)
{
  x = htobe64(x);
  *p = tag;
  memcpy(p + 1, &x, sizeof x);
  return p + 1 + sizeof x;
}

uint8_t *manta__pack_map(uint8_t *p, uint32_t pairs)
{
  if (pairs < 16) {
    *p = (uint8_t)(0x80 | pairs);
    return p + 1;
  }
  return pairs <= UINT16_MAX ? put16(p, 0xde, (uint16_t)pairs) : put32(p, 0xdf, pairs);
}

uint8_t *manta__pack_list(uint8_t *p, uint32_t items)
{
  if (items < 16) {
    *p = (uint8_t)(0x90 | items);
    return p + 1;
  }
  return items <= UINT16_MAX ? put16(p, 0xdc, (uint16_t)items) : put32(p, 0xdd, items);
}

static uint8_t *pack_negative(uint8_t *p, int64_t i)
{
  if (i >= -32) {
    *p = (uint8_t)i;
    return p + 1;
  }
  if (i >= INT8_MIN)
    return put8(p, 0xd0, (uint8_t)i);
  if (i >= INT16_MIN)
    return put16(p, 0xd1, (uint16_t)i);
  return i >= INT32_MIN ? put32(p, 0xd2, (uint32_t)i) : put64(p, 0xd3, (uint64_t)i);
}

uint8_t *manta__pack_int(uint8_t *p, int64_t i)
{
  if (i < 0)
    return pack_negative(p, i);
  if (i < 128) {
    *p = (uint8_t)i;
    return p + 1;
  }
  if (i <= UINT8_MAX)
    return put8(p, 0xcc, (uint8_t)i);
  if (i <= UINT16_MAX)
    return put16(p, 0xcd, (uint16_t)i);
  return i <= UINT32_MAX ? put32(p, 0xce, (uint32_t)i) : put64(p, 0xcf, (uint64_t)i);
}

uint8_t *manta__pack_real(uint8_t *p, double r)
{
  uint64_t bits;
  memcpy(&bits, &r, sizeof bits);
  return put64(p, 0xcb, bits);
}

static inline uint8_t *put_bytes(uint8_t *p, const void *s, uint32_t n)
{
  if (n)
    memcpy(p, s, n);
  return p + n;
}

uint8_t *manta__pack_string(uint8_t *p, const char *s, uint32_t n)
{
  if (n < 32)
    *p++ = (uint8_t)(0xa0 | n);
  else if (n <= UINT8_MAX)
    p = put8(p, 0xd9, (uint8_t)n);
  else
    p = n <= UINT16_MAX ? put16(p, 0xda, (uint16_t)n) : put32(p, 0xdb, n);
  return put_bytes(p, s, n);
}

static uint8_t *pack_bytes(uint8_t *p, const char *s, uint32_t n)
{
  if (n <= UINT8_MAX)
    p = put8(p, 0xc4, (uint8_t)n);
  else
    p = n <= UINT16_MAX ? put16(p, 0xc5, (uint16_t)n) : put32(p, 0xc6, n);
  return put_bytes(p, s, n);
}

// Writes v below `end`, or gives NULL when `depth` or the room is used up; may leave the last few
// bytes of room unused, since heads are not measured one by one.
static uint8_t *write_value(uint8_t *p, uintptr_t end, const manta_value *v, int depth)
{
  size_t n, room = end - (uintptr_t)p;
  if (room < 9 || (v->type >= MANTA_LIST && depth == 0))
    return NULL;
  switch (v->type) {
  case MANTA_BOOL:
    *p = v->u.b ? 0xc3 : 0xc2;
    return p + 1;
  case MANTA_INT:
    return manta__pack_int(p, v->u.i);
  case MANTA_REAL:
    return manta__pack_real(p, v->u.r);
  case MANTA_STRING:
    return room - 5 < v->count ? NULL : manta__pack_string(p, v->u.s, v->count);
  case MANTA_BYTES:
    return room - 5 < v->count ? NULL : pack_bytes(p, v->u.s, v->count);
  case MANTA_LIST:
    p = manta__pack_list(p, v->count);
    for (uint32_t i = 0; p && i < v->count; i++)
      p = write_value(p, end, &v->u.items[i], depth - 1);
    return p;
  case MANTA_MAP:
    p = manta__pack_map(p, v->count);
    for (uint32_t i = 0; p && i < v->count; i++) {
      n = strlen(v->u.pairs[i].key);
      if (n > UINT32_MAX || end - (uintptr_t)p < n + 5)
        return NULL;
      p = manta__pack_string(p, v->u.pairs[i].key, (uint32_t)n);
      p = write_value(p, end, &v->u.pairs[i].value, depth - 1);
    }
    return p;
  default:
    *p = 0xc0;
    return p + 1;
  }
}

uint8_t *manta__pack_into(uint8_t *p, const manta_value *v)
{
  return write_value(p, UINTPTR_MAX, v, MANTA_VALUE_MAX_DEPTH);
}

/* --- How much will be written ---------------------------------------------------------------- */

static size_t size_of_int(int64_t i)
{
  if (i < 0)
    return i >= -32 ? 1 : i >= INT8_MIN ? 2 : i >= INT16_MIN ? 3 : i >= INT32_MIN ? 5 : 9;
  return i < 128 ? 1 : i <= UINT8_MAX ? 2 : i <= UINT16_MAX ? 3 : i <= UINT32_MAX ? 5 : 9;
}

static size_t size_of_string(size_t n)
{
  return n + (n < 32 ? 1 : n <= UINT8_MAX ? 2 : n <= UINT16_MAX ? 3 : 5);
}

static size_t size_of_bytes(size_t n)
{
  return n + (n <= UINT8_MAX ? 2 : n <= UINT16_MAX ? 3 : 5);
}

static size_t size_of_head(uint32_t n)
{
  return n < 16 ? 1 : n <= UINT16_MAX ? 3 : 5;
}

static bool add_text(size_t n, size_t packed, size_t *total)
{
  *total = n > MANTA_VALUE_MAX_BYTES ? TOO_LONG : *total + packed;
  return *total != TOO_LONG;
}

// Adds to *total; false once `depth` is used up, or for a text that is too long.
static bool add_size(const manta_value *v, int depth, size_t *total)
{
  switch (v->type) {
  case MANTA_INT:
    *total += size_of_int(v->u.i);
    break;
  case MANTA_REAL:
    *total += 9;
    break;
  case MANTA_STRING:
    return add_text(v->count, size_of_string(v->count), total);
  case MANTA_BYTES:
    return add_text(v->count, size_of_bytes(v->count), total);
  case MANTA_LIST:
    *total += size_of_head(v->count);
    for (uint32_t i = 0; i < v->count; i++)
      if (depth == 0 || !add_size(&v->u.items[i], depth - 1, total))
        return false;
    return depth > 0;
  case MANTA_MAP:
    *total += size_of_head(v->count);
    for (uint32_t i = 0; i < v->count; i++) {
      *total += size_of_string(strlen(v->u.pairs[i].key));
      if (depth == 0 || !add_size(&v->u.pairs[i].value, depth - 1, total))
        return false;
    }
    return depth > 0;
  default:
    *total += 1;
    break;
  }
  return true;
}

size_t manta__pack_size(const manta_value *v)
{
  size_t total = 0;
  return add_size(v, MANTA_VALUE_MAX_DEPTH, &total) ? total : 0;
}

static manta_status measure(const manta_value *v, size_t *total, manta_error *err)
{
  *total = 0;
  if (add_size(v, MANTA_VALUE_MAX_DEPTH, total))
    return MANTA_OK;
  if (*total == TOO_LONG)
    return manta_error_set(err, MANTA_ETOOBIG, "a string of the value is over %u bytes",
                           MANTA_VALUE_MAX_BYTES);
  return manta_error_set(err, MANTA_ETOOBIG, "value is nested deeper than %d levels",
                         MANTA_VALUE_MAX_DEPTH);
}

// A row of a report fits into the room that is there, so the walk that measures is left out.
static size_t try_into(void *p, size_t room, const manta_value *v)
{
  uint8_t *end = write_value(p, (uintptr_t)p + room, v, MANTA_VALUE_MAX_DEPTH);
  return end ? (size_t)(end - (uint8_t *)p) : 0;
}

manta_status manta_value_pack(const manta_value *v, void **out, size_t *len, manta_error *err)
{
  uint8_t row[512];
  size_t n = try_into(row, sizeof row, v);
  bool small = n > 0;
  if (!small)
    MANTA_TRY(measure(v, &n, err));
  uint8_t *p = manta__malloc(n);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a packed value of %zu bytes", n);
  if (small)
    memcpy(p, row, n);
  else
    manta__pack_into(p, v);
  *out = p;
  *len = n;
  return MANTA_OK;
}

/* --- Reading heads --------------------------------------------------------------------------- */

struct unpacker {
  const uint8_t *p, *end;
  const char *why; /* static text: why reading stopped */
  size_t nodes, text;
};

static bool refuse(struct unpacker *r, const char *why)
{
  r->why = why;
  return false;
}

static const char ends_early[] = "ends early";
static const char too_deep[] = "nested too deeply";

// A big-endian unsigned number of 1, 2, 4 or 8 bytes; the caller has checked that they are there.
static inline uint64_t get(const uint8_t *p, size_t width)
{
  uint16_t a;
  uint32_t b;
  uint64_t c;
  switch (width) {
  case 1:
    return *p;
  case 2:
    memcpy(&a, p, sizeof a);
    return be16toh(a);
  case 4:
    memcpy(&b, p, sizeof b);
    return be32toh(b);
  default:
    memcpy(&c, p, sizeof c);
    return be64toh(c);
  }
}

static double get_real(const uint8_t *p, size_t width)
{
  uint64_t bits = get(p, width);
  if (width == 8) {
    double r;
    memcpy(&r, &bits, sizeof r);
    return r;
  }
  uint32_t half = (uint32_t)bits;
  float f;
  memcpy(&f, &half, sizeof f);
  return (double)f;
}

static inline bool take_text(struct unpacker *r, manta_value *v, manta_type type, uint32_t n)
{
  if ((size_t)(r->end - r->p) < n)
    return refuse(r, ends_early);
  *v = (manta_value){.type = (uint8_t)type, .count = n, .u.s = (const char *)r->p};
  r->p += n;
  return true;
}

static inline bool take_count(manta_value *v, manta_type type, uint64_t n)
{
  *v = (manta_value){.type = (uint8_t)type, .count = (uint32_t)n};
  return true;
}

static bool take_unsigned(struct unpacker *r, manta_value *v, uint64_t n)
{
  if (n > INT64_MAX)
    return refuse(r, "an integer is over 9223372036854775807");
  *v = manta_value_int((int64_t)n);
  return true;
}

// Bytes that follow tags 0xc0 to 0xdf and belong to the head: a number or a length.
static const uint8_t width_of[32] = {
    0, 0, 0, 0, 1, 2, 4, 0, 0, 0, 4, 8, 1, 2, 4, 8, // nil … bool, bin, ext, float, uint
    1, 2, 4, 8, 0, 0, 0, 0, 0, 1, 2, 4, 2, 4, 2, 4, // int, fixext, str, array, map
};

static bool long_head(struct unpacker *r, uint8_t tag, manta_value *v)
{
  size_t width = width_of[tag - 0xc0];
  if (r->end - r->p < (ptrdiff_t)width)
    return refuse(r, ends_early);
  const uint8_t *p = r->p;
  uint64_t n = width ? get(p, width) : 0;
  r->p += width;
  switch (tag) {
  case 0xc0:
    *v = (manta_value){0};
    return true;
  case 0xc2:
  case 0xc3:
    *v = manta_value_bool(tag == 0xc3);
    return true;
  case 0xc4:
  case 0xc5:
  case 0xc6:
    return take_text(r, v, MANTA_BYTES, (uint32_t)n);
  case 0xca:
  case 0xcb:
    *v = manta_value_real(get_real(p, width));
    return true;
  case 0xcc:
  case 0xcd:
  case 0xce:
  case 0xcf:
    return take_unsigned(r, v, n);
  case 0xd0:
    *v = manta_value_int((int8_t)n);
    return true;
  case 0xd1:
    *v = manta_value_int((int16_t)n);
    return true;
  case 0xd2:
    *v = manta_value_int((int32_t)n);
    return true;
  case 0xd3:
    *v = manta_value_int((int64_t)n);
    return true;
  case 0xd9:
  case 0xda:
  case 0xdb:
    return take_text(r, v, MANTA_STRING, (uint32_t)n);
  case 0xdc:
  case 0xdd:
    return take_count(v, MANTA_LIST, n);
  case 0xde:
  case 0xdf:
    return take_count(v, MANTA_MAP, n);
  case 0xc1:
    return refuse(r, "0xc1 is not a type");
  default:
    return refuse(r, "extension types are not supported");
  }
}

// One scalar or text whole, its text still in the input; of a list or map only the count.
static inline bool head(struct unpacker *r, manta_value *v)
{
  if (r->p == r->end)
    return refuse(r, ends_early);
  uint8_t tag = *r->p++;
  if (tag >= 0xa0 && tag < 0xc0)
    return take_text(r, v, MANTA_STRING, tag & 31);
  if (tag < 0x80 || tag >= 0xe0) {
    *v = manta_value_int((int8_t)tag);
    return true;
  }
  if (tag < 0xa0)
    return take_count(v, tag < 0x90 ? MANTA_MAP : MANTA_LIST, tag & 15);
  return long_head(r, tag, v);
}

/* --- First walk: check and count ------------------------------------------------------------- */

static bool scan_key(struct unpacker *r)
{
  manta_value key;
  if (!head(r, &key))
    return false;
  if (key.type != MANTA_STRING)
    return refuse(r, "a map key is not a string");
  if (key.count && memchr(key.u.s, 0, key.count))
    return refuse(r, "a map key holds a NUL");
  r->text += (size_t)key.count + 1;
  return true;
}

static bool scan(struct unpacker *r, int depth)
{
  manta_value v;
  if (!head(r, &v))
    return false;
  if (v.type < MANTA_STRING)
    return true;
  if (v.type < MANTA_LIST) {
    r->text += (size_t)v.count + 1;
    return true;
  }
  bool map = v.type == MANTA_MAP;
  if (depth == 0)
    return refuse(r, too_deep);
  // The least that so many entries take: a count that lies is found out before its loop begins.
  if ((uint64_t)v.count * (map ? 2 : 1) > (uint64_t)(r->end - r->p))
    return refuse(r, ends_early);
  r->nodes += v.count * (map ? sizeof(manta_pair) : sizeof(manta_value));
  for (uint32_t i = 0; i < v.count; i++)
    if ((map && !scan_key(r)) || !scan(r, depth - 1))
      return false;
  return true;
}

/* --- Second walk: fill ----------------------------------------------------------------------- */

static const char *build_key(struct unpacker *r, struct manta__flat *f)
{
  manta_value key = {0};
  head(r, &key);
  return manta__flat_text(f, key.u.s, key.count);
}

static void build(struct unpacker *r, struct manta__flat *f, manta_value *v)
{
  head(r, v);
  switch (v->type) {
  case MANTA_STRING:
  case MANTA_BYTES:
    v->u.s = manta__flat_text(f, v->u.s, v->count);
    break;
  case MANTA_LIST:
    v->u.items = manta__flat_nodes(f, v->count * sizeof *v->u.items);
    for (uint32_t i = 0; i < v->count; i++)
      build(r, f, &v->u.items[i]);
    break;
  case MANTA_MAP:
    v->u.pairs = manta__flat_nodes(f, v->count * sizeof *v->u.pairs);
    for (uint32_t i = 0; i < v->count; i++) {
      v->u.pairs[i].key = build_key(r, f);
      build(r, f, &v->u.pairs[i].value);
    }
    break;
  default:
    break;
  }
}

static manta_status refused(const struct unpacker *r, const uint8_t *bytes, manta_error *err)
{
  size_t at = (size_t)(r->p - bytes);
  if (r->why == too_deep)
    return manta_error_set(err, MANTA_ETOOBIG, "messagepack: nested deeper than %d levels",
                           MANTA_VALUE_MAX_DEPTH);
  return manta_error_set(err, MANTA_EPROTO, "messagepack: at byte %zu: %s", at, r->why);
}

manta_status manta__unpack(manta_value *out, const void *bytes, size_t len, size_t *used,
                           manta_error *err)
{
  const uint8_t *start = bytes;
  if (len == 0)
    return manta_error_set(err, MANTA_EPROTO, "messagepack: no bytes");
  struct unpacker r = {.p = start, .end = start + len};
  if (!scan(&r, MANTA_VALUE_MAX_DEPTH))
    return refused(&r, start, err);
  struct manta__flat f;
  if (manta__flat_init(&f, r.nodes, r.text) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a value of %zu bytes",
                           r.nodes + r.text);
  manta_value root = {0};
  r.p = start;
  build(&r, &f, &root);
  manta__flat_finish(out, root);
  if (used)
    *used = (size_t)(r.p - start);
  return MANTA_OK;
}

manta_status manta_value_unpack(manta_value *out, const void *bytes, size_t len, manta_error *err)
{
  size_t used = 0;
  manta_value v = {0};
  MANTA_TRY(manta__unpack(&v, bytes, len, &used, err));
  if (used != len) {
    manta_value_fini(&v);
    return manta_error_set(err, MANTA_EPROTO, "messagepack: %zu bytes behind the value",
                           len - used);
  }
  manta_value_move(out, &v);
  return MANTA_OK;
}
