/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/safetensors.c - the index of names and the header's writer; the reader is in stread.c.
 *
 * The format allows no holes, so a tensor of odd size shifts those behind it. Therefore
 * (1) tensors whose size is a multiple of 64 bytes come first: each begins 64-byte aligned;
 * (2) then the others by falling element size: each begins at a multiple of its element size;
 * (3) within each group the caller's order stays, and the header lists all in the caller's order.
 * (4) The iteration is written into a field of fixed width, padded with spaces behind the string,
 * so that a header kept from an earlier save needs its digits replaced and nothing else.
 */
#include "ckpt/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/hash.h"

// The header begins with this, behind its length; the iteration's field follows.
static const char META_HEAD[] = "{\"__metadata__\":{\"format\":\"manta\",\"iteration\":";
#define ITERATION_AT    (8 + sizeof META_HEAD - 1)
#define ITERATION_WIDTH 22 /* quotes and the digits of any int64_t */

/* --- Names ------------------------------------------------------------------------------------ */

bool manta__st_utf8(const char *s, size_t n)
{
  const uint8_t *p = (const uint8_t *)s, *end = p + n;
  while (p < end) {
    uint32_t c = *p++;
    int more = c < 0x80 ? 0 : c >> 5 == 6 ? 1 : c >> 4 == 14 ? 2 : c >> 3 == 30 ? 3 : -1;
    if (c == 0 || more < 0 || end - p < more)
      return false;
    if (more == 0)
      continue;
    c &= 0x3fu >> more;
    for (int i = 0; i < more; i++, p++) {
      if (*p >> 6 != 2)
        return false;
      c = c << 6 | (*p & 0x3f);
    }
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
      return false;
  }
  return true;
}

static size_t spot(const struct manta__st_index *x, const manta_tensor *t, const char *name)
{
  size_t i = manta__hash(name, strlen(name)) & x->mask;
  while (x->slot[i] && strcmp(t[x->slot[i] - 1].name, name) != 0)
    i = (i + 1) & x->mask;
  return i;
}

manta_status manta__st_index_make(struct manta__st_index *out, const manta_tensor *t, size_t count,
                                  manta_error *err)
{
  size_t size = 8;
  while (size < 2 * count)
    size *= 2;
  struct manta__st_index x = {manta__calloc(size, sizeof *x.slot), size - 1};
  if (!x.slot)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for an index of %zu tensors", count);
  for (size_t i = 0; i < count; i++) {
    size_t at = spot(&x, t, t[i].name);
    if (x.slot[at]) {
      manta__st_index_fini(&x);
      return manta_error_set(err, MANTA_EINVAL, "tensor \"%s\" appears twice", t[i].name);
    }
    x.slot[at] = (uint32_t)i + 1;
  }
  *out = x;
  return MANTA_OK;
}

void manta__st_index_fini(struct manta__st_index *x)
{
  manta__free(x->slot);
  *x = (struct manta__st_index){0};
}

int64_t manta__st_index_find(const struct manta__st_index *x, const manta_tensor *t,
                             const char *name)
{
  return x->slot ? (int64_t)x->slot[spot(x, t, name)] - 1 : -1;
}

/* --- Checking what is to be written -------------------------------------------------------------
 */

static manta_status check_name(const manta_tensor *t, size_t i, manta_error *err)
{
  size_t n = t->name ? strnlen(t->name, MANTA_TENSOR_NAME_MAX + 1) : 0;
  if (n == 0)
    return manta_error_set(err, MANTA_EINVAL, "tensor %zu has no name", i);
  if (n > MANTA_TENSOR_NAME_MAX)
    return manta_error_set(err, MANTA_EINVAL, "tensor %zu: its name \"%.40s...\" is over %d bytes",
                           i, t->name, MANTA_TENSOR_NAME_MAX);
  if (!manta__st_utf8(t->name, n))
    return manta_error_set(err, MANTA_EINVAL, "tensor %zu: its name is not UTF-8", i);
  if (!strcmp(t->name, "__metadata__"))
    return manta_error_set(err, MANTA_EINVAL, "tensor %zu: safetensors reserves the name \"%s\"", i,
                           t->name);
  return MANTA_OK;
}

static manta_status check_tensor(const manta_tensor *t, size_t i, manta_error *err)
{
  MANTA_TRY(check_name(t, i, err));
  if (manta_dtype_bytes(t->dtype) == 0)
    return manta_error_set(err, MANTA_EINVAL, "tensor \"%s\" has the unknown type %d", t->name,
                           (int)t->dtype);
  if (t->ndim < 0 || t->ndim > MANTA_MAX_DIMS)
    return manta_error_set(err, MANTA_EINVAL, "tensor \"%s\" has %d dimensions; the limit is %d",
                           t->name, t->ndim, MANTA_MAX_DIMS);
  if (manta_tensor_bytes(t) < 0)
    return manta_error_set(err, MANTA_EINVAL, "tensor \"%s\" has a negative or impossible shape",
                           t->name);
  return MANTA_OK;
}

static manta_status check_state(const manta_state *state, manta_error *err)
{
  if (state->count > MANTA_STATE_MAX_TENSORS)
    return manta_error_set(err, MANTA_ETOOBIG, "a state of %zu tensors; the limit is %d",
                           state->count, MANTA_STATE_MAX_TENSORS);
  int64_t total = 0;
  for (size_t i = 0; i < state->count; i++) {
    MANTA_TRY(check_tensor(&state->tensors[i], i, err));
    if (__builtin_add_overflow(total, manta_tensor_bytes(&state->tensors[i]), &total) ||
        total > INT64_MAX / 4)
      return manta_error_set(err, MANTA_ETOOBIG, "the state is too big at tensor \"%s\"",
                             state->tensors[i].name);
  }
  return MANTA_OK;
}

/* --- Placing and the header --- */

// Group of a tensor in the order of the data: 0 the aligned ones, then by element size.
static int group_of(const struct manta__layout *l, size_t i)
{
  if (l->bytes[i] % MANTA__ST_ALIGN == 0)
    return 0;
  switch (manta_dtype_bytes(l->tensors[i].dtype)) {
  case 8:
    return 1;
  case 4:
    return 2;
  case 2:
    return 3;
  default:
    return 4;
  }
}

static void place(struct manta__layout *l)
{
  uint64_t at = 0;
  for (int group = 0; group < 5; group++)
    for (size_t i = 0; i < l->count; i++)
      if (group_of(l, i) == group) {
        l->offset[i] = at;
        at += l->bytes[i];
      }
  l->data_len = at;
}

static manta_status put_string(manta__buf *b, const char *s)
{
  MANTA_TRY(manta__buf_putc(b, '"'));
  for (; *s; s++) {
    if (*s == '"' || *s == '\\')
      MANTA_TRY(manta__buf_putc(b, '\\'));
    if ((unsigned char)*s < 0x20)
      MANTA_TRY(manta__buf_printf(b, "\\u%04x", (unsigned)*s));
    else
      MANTA_TRY(manta__buf_putc(b, *s));
  }
  return manta__buf_putc(b, '"');
}

static manta_status put_tensor(manta__buf *b, const struct manta__layout *l, size_t i)
{
  const manta_tensor *t = &l->tensors[i];
  MANTA_TRY(manta__buf_putc(b, ','));
  MANTA_TRY(put_string(b, t->name));
  MANTA_TRY(manta__buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", manta_dtype_name(t->dtype)));
  for (int d = 0; d < t->ndim; d++)
    MANTA_TRY(manta__buf_printf(b, "%s%" PRId64, d ? "," : "", t->shape[d]));
  return manta__buf_printf(b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", l->offset[i],
                           l->offset[i] + l->bytes[i]);
}

static manta_status put_header(manta__buf *b, const struct manta__layout *l)
{
  static const uint8_t room[8];
  MANTA_TRY(manta__buf_append(b, room, 8));
  MANTA_TRY(manta__buf_puts(b, META_HEAD));
  MANTA_TRY(manta__buf_printf(b, "%*s}", ITERATION_WIDTH, ""));
  for (size_t i = 0; i < l->count; i++)
    MANTA_TRY(put_tensor(b, l, i));
  MANTA_TRY(manta__buf_putc(b, '}'));
  while (b->len % MANTA__ST_ALIGN)
    MANTA_TRY(manta__buf_putc(b, ' '));
  uint64_t n = b->len - 8;
  for (int i = 0; i < 8; i++)
    b->data[i] = (uint8_t)(n >> 8 * i);
  manta__layout_stamp(b->data, 0);
  return MANTA_OK;
}

void manta__layout_stamp(uint8_t *header, int64_t iteration)
{
  char text[ITERATION_WIDTH + 1];
  int n = snprintf(text, sizeof text, "\"%" PRId64 "\"", iteration);
  memset(header + ITERATION_AT, ' ', ITERATION_WIDTH);
  memcpy(header + ITERATION_AT, text, (size_t)n);
}

/* --- The layout ---------------------------------------------------------------------------------
 */

static manta_status copy_tensors(struct manta__layout *l, const manta_state *state,
                                 manta_error *err)
{
  size_t names = 1;
  for (size_t i = 0; i < state->count; i++)
    names += strlen(state->tensors[i].name) + 1;
  l->count = state->count;
  l->tensors = manta__calloc(l->count, sizeof *l->tensors);
  l->offset = manta__calloc(l->count, sizeof *l->offset);
  l->bytes = manta__calloc(l->count, sizeof *l->bytes);
  l->names = manta__malloc(names);
  if (!l->tensors || !l->offset || !l->bytes || !l->names)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the layout of %zu tensors", l->count);
  char *p = l->names;
  for (size_t i = 0; i < l->count; i++) {
    const manta_tensor *t = &state->tensors[i];
    l->tensors[i] = (manta_tensor){.name = p, .dtype = t->dtype, .ndim = t->ndim};
    for (int d = 0; d < t->ndim; d++)
      l->tensors[i].shape[d] = t->shape[d];
    l->bytes[i] = (uint64_t)manta_tensor_bytes(t);
    p = stpcpy(p, t->name) + 1;
  }
  return MANTA_OK;
}

static manta_status check_twice(const struct manta__layout *l, manta_error *err)
{
  struct manta__st_index x = {0};
  MANTA_TRY(manta__st_index_make(&x, l->tensors, l->count, err));
  manta__st_index_fini(&x);
  return MANTA_OK;
}

static manta_status make_header(struct manta__layout *l, manta_error *err)
{
  manta__buf b;
  manta__buf_init(&b, MANTA__ST_HEADER_MAX);
  manta_status st = put_header(&b, l);
  if (st < 0) {
    manta__buf_fini(&b);
    return manta_error_set(err, st, "the tensors' header: %s",
                           st == MANTA_ETOOBIG ? "over 100 MB; use shorter names"
                                               : manta_status_text(st));
  }
  l->header = manta__buf_release(&b, &l->header_len);
  return MANTA_OK;
}

static manta_status build(struct manta__layout *l, const manta_state *state, manta_error *err)
{
  MANTA_TRY(check_state(state, err));
  MANTA_TRY(copy_tensors(l, state, err));
  MANTA_TRY(check_twice(l, err));
  place(l);
  return make_header(l, err);
}

manta_status manta__layout_make(struct manta__layout *out, const manta_state *state,
                                manta_error *err)
{
  struct manta__layout l = {0};
  manta_status st = build(&l, state, err);
  if (st < 0)
    manta__layout_fini(&l);
  else
    *out = l;
  return st;
}

void manta__layout_fini(struct manta__layout *l)
{
  manta__free(l->tensors);
  manta__free(l->offset);
  manta__free(l->bytes);
  manta__free(l->names);
  manta__free(l->header);
  *l = (struct manta__layout){0};
}

static bool same(const manta_tensor *a, const manta_tensor *b)
{
  return a->dtype == b->dtype && a->ndim == b->ndim && b->name &&
         !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim) &&
         !strcmp(a->name, b->name);
}

bool manta__layout_fits(const struct manta__layout *l, const manta_state *state)
{
  if (!l->header || l->count != state->count)
    return false;
  for (size_t i = 0; i < l->count; i++)
    if (!same(&l->tensors[i], &state->tensors[i]))
      return false;
  return true;
}
