/* SPDX-License-Identifier: Apache-2.0 */
#include "data/binary/zip.h"

#include <string.h>

#include "base/alloc.h"

#define END_MAGIC      0x06054b50u
#define END_BYTES      22
#define END64_MAGIC    0x06064b50u
#define END64_BYTES    56
#define LOCATOR_MAGIC  0x07064b50u
#define LOCATOR_BYTES  20
#define ENTRY_MAGIC    0x02014b50u
#define ENTRY_BYTES    46
#define LOCAL_MAGIC    0x04034b50u
#define LOCAL_BYTES    30
#define COMMENT_MAX    65535
#define ENCRYPTED      1
#define EXTRA_ZIP64    1
#define METHOD_STORED  0
#define METHOD_DEFLATE 8

static uint16_t u16(const uint8_t *p)
{
  return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t u32(const uint8_t *p)
{
  return (uint32_t)u16(p) | (uint32_t)u16(p + 2) << 16;
}

static uint64_t u64(const uint8_t *p)
{
  return (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32;
}

static manta_status broken(const struct manta__source *s, manta_error *err, const char *what)
{
  return manta_error_set(err, MANTA_ECORRUPT,
                         "%s: is no whole zip file: %s\nhint: write or fetch it again", s->name,
                         what);
}

// --- where the directory is ---------------------------------------------------------------------

struct zip_end {
  uint64_t entries, bytes, offset;
};

// The record behind the directory; the 64-bit one, if the other says that it is needed.
static manta_status read_end64(struct manta__source *s, int64_t end_at, struct zip_end *e,
                               manta_error *err)
{
  uint8_t p[END64_BYTES];
  if (end_at < LOCATOR_BYTES)
    return broken(s, err, "its end is missing");
  MANTA_TRY(manta__source_read(s, end_at - LOCATOR_BYTES, p, LOCATOR_BYTES, err));
  uint64_t at = u64(p + 8);
  if (u32(p) != LOCATOR_MAGIC || at > (uint64_t)s->size || (uint64_t)s->size - at < END64_BYTES)
    return broken(s, err, "its end is missing");
  MANTA_TRY(manta__source_read(s, (int64_t)at, p, END64_BYTES, err));
  if (u32(p) != END64_MAGIC)
    return broken(s, err, "its end is missing");
  *e = (struct zip_end){u64(p + 32), u64(p + 40), u64(p + 48)};
  return MANTA_OK;
}

static manta_status find_end(struct manta__source *s, struct zip_end *e, manta_error *err)
{
  int64_t most = END_BYTES + COMMENT_MAX, n = s->size < most ? s->size : most, at;
  uint8_t *p = manta__malloc((size_t)n + 1);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", s->name);
  manta_status st = manta__source_read(s, s->size - n, p, (size_t)n, err);
  for (at = n - END_BYTES; st == MANTA_OK && at >= 0; at--)
    if (u32(p + at) == END_MAGIC && u16(p + at + 20) <= n - END_BYTES - at)
      break;
  if (st == MANTA_OK && at < 0)
    st = broken(s, err, "its end is missing");
  if (st == MANTA_OK) {
    *e = (struct zip_end){u16(p + at + 10), u32(p + at + 12), u32(p + at + 16)};
    if (e->entries == 0xffff || e->bytes == 0xffffffff || e->offset == 0xffffffff)
      st = read_end64(s, s->size - n + at, e, err);
  }
  manta__free(p);
  return st;
}

// --- entries ------------------------------------------------------------------------------------

// Sizes that do not fit 32 bits are in a field of the extra data, in this order, each only if its
// place holds all ones.
static bool read_wide(const uint8_t *p, const uint8_t *extra, size_t n, uint64_t *size,
                      uint64_t *packed, uint64_t *offset)
{
  uint64_t *wide[3];
  int count = 0;
  *size = u32(p + 24);
  *packed = u32(p + 20);
  *offset = u32(p + 42);
  if (*size == 0xffffffff)
    wide[count++] = size;
  if (*packed == 0xffffffff)
    wide[count++] = packed;
  if (*offset == 0xffffffff)
    wide[count++] = offset;
  while (count && n >= 4) {
    size_t len = u16(extra + 2);
    if (len > n - 4)
      return false;
    if (u16(extra) == EXTRA_ZIP64) {
      for (int i = 0; i < count; i++) {
        if (len < 8 * (size_t)(i + 1))
          return false;
        *wide[i] = u64(extra + 4 + 8 * i);
      }
      return true;
    }
    extra += 4 + len;
    n -= 4 + len;
  }
  return count == 0;
}

// The local header in front of the bytes has its own lengths of name and extra data.
static manta_status find_data(struct manta__source *s, uint64_t offset, uint64_t packed,
                              struct manta__zip_member *m, manta_error *err)
{
  uint8_t p[LOCAL_BYTES];
  uint64_t size = (uint64_t)s->size;
  if (offset > size || size - offset < LOCAL_BYTES)
    return broken(s, err, "a member lies past its end");
  MANTA_TRY(manta__source_read(s, (int64_t)offset, p, LOCAL_BYTES, err));
  uint64_t from = offset + LOCAL_BYTES + u16(p + 26) + u16(p + 28);
  if (u32(p) != LOCAL_MAGIC || from > size || packed > size - from)
    return broken(s, err, "a member lies past its end");
  m->from = (int64_t)from;
  m->to = (int64_t)(from + packed);
  return MANTA_OK;
}

static manta_status read_entry(struct manta__source *s, const uint8_t *p, size_t n,
                               struct manta__zip_member *m, size_t *used, manta_error *err)
{
  if (n < ENTRY_BYTES || u32(p) != ENTRY_MAGIC)
    return broken(s, err, "its directory ends too early");
  size_t name = u16(p + 28), extra = u16(p + 30), comment = u16(p + 32);
  uint64_t size, packed, offset;
  *used = ENTRY_BYTES + name + extra + comment;
  if (*used > n || !read_wide(p, p + ENTRY_BYTES + name, extra, &size, &packed, &offset) ||
      size > INT64_MAX / 4)
    return broken(s, err, "its directory makes no sense");
  if (!(m->name = manta__strndup((const char *)p + ENTRY_BYTES, name)))
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", s->name);
  uint16_t method = u16(p + 10);
  if (u16(p + 8) & ENCRYPTED || (method != METHOD_STORED && method != METHOD_DEFLATE))
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "%s: member %.64s is encrypted, or compressed by a method (%d) that is "
                           "not read\nhint: numpy.savez_compressed writes one that is",
                           s->name, m->name, method);
  m->form = method == METHOD_STORED ? MANTA__PLAIN : MANTA__DEFLATE;
  m->size = (int64_t)size;
  m->crc = u32(p + 16);
  return find_data(s, offset, packed, m, err);
}

static manta_status read_entries(struct manta__source *s, const struct zip_end *e, const uint8_t *p,
                                 struct manta__zip *out, manta_error *err)
{
  size_t at = 0, used = 0;
  out->member = manta__calloc((size_t)e->entries + 1, sizeof *out->member);
  if (!out->member)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", s->name);
  for (uint64_t i = 0; i < e->entries; i++, at += used) {
    out->count++; // also if it fails half-way: fini frees what is there
    MANTA_TRY(read_entry(s, p + at, (size_t)e->bytes - at, &out->member[i], &used, err));
  }
  return MANTA_OK;
}

manta_status manta__zip_read(struct manta__zip *out, struct manta__source *s, manta_error *err)
{
  struct zip_end e = {0};
  struct manta__zip z = {0};
  MANTA_TRY(find_end(s, &e, err));
  if (e.offset > (uint64_t)s->size || e.bytes > (uint64_t)s->size - e.offset)
    return broken(s, err, "its directory lies past its end");
  if (e.entries > MANTA__ZIP_MEMBERS || e.bytes > MANTA__ZIP_DIRECTORY)
    return manta_error_set(err, MANTA_ETOOBIG, "%s: a zip file with more than %d members", s->name,
                           MANTA__ZIP_MEMBERS);
  uint8_t *p = manta__malloc((size_t)e.bytes + 1);
  manta_status st = p ? manta__source_read(s, (int64_t)e.offset, p, (size_t)e.bytes, err)
                      : manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", s->name);
  if (st == MANTA_OK)
    st = read_entries(s, &e, p, &z, err);
  manta__free(p);
  if (st < 0) {
    manta__zip_fini(&z);
    return st;
  }
  *out = z;
  return MANTA_OK;
}

void manta__zip_fini(struct manta__zip *z)
{
  for (int i = 0; i < z->count; i++)
    manta__free(z->member[i].name);
  manta__free(z->member);
  *z = (struct manta__zip){0};
}
