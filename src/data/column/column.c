/* SPDX-License-Identifier: Apache-2.0 */
#include "data/column/column.h"

#include <inttypes.h>
#include <string.h>

int64_t manta__column_nulls(struct manta__column *c)
{
  if (c->nulls < 0)
    c->nulls = c->valid ? c->length - manta__bits_count(c->valid, c->offset, c->length) : 0;
  return c->nulls;
}

int64_t manta__column_bytes(const struct manta__column *c)
{
  int64_t bytes = c->valid ? (int64_t)manta__bits_bytes(c->length) : 0;
  if (c->type.kind == MANTA_KIND_BOOL)
    return bytes + (int64_t)manta__bits_bytes(c->length);
  if (!manta__type_varies(&c->type))
    return bytes + c->length * (int64_t)manta__type_width(&c->type);
  return bytes + 4 * (c->length + 1) + c->offsets[c->offset + c->length] - c->offsets[c->offset];
}

void manta__column_copy(struct manta__column *dst, const struct manta__column *src)
{
  *dst = *src;
  for (int i = 0; i < MANTA__BUFFERS; i++)
    manta__memory_ref(dst->held[i]);
}

void manta__column_move(struct manta__column *dst, struct manta__column *src)
{
  *dst = *src;
  *src = (struct manta__column){0};
}

void manta__column_fini(struct manta__column *c)
{
  for (int i = 0; i < MANTA__BUFFERS; i++)
    manta__memory_unref(c->held[i]);
  *c = (struct manta__column){0};
}

void manta__column_slice(struct manta__column *c, int64_t from, int64_t n)
{
  if (from == 0 && n == c->length)
    return;
  c->offset += from;
  c->length = n;
  c->nulls = c->valid && c->nulls != 0 ? -1 : 0;
}

// --- new columns --------------------------------------------------------------------------------

manta_status manta__column_make(struct manta__column *c, const struct manta__type *type, int64_t n,
                                int64_t text, bool nulls, struct manta__pool *pool,
                                manta_error *err)
{
  size_t data = manta__type_varies(type)        ? (size_t)text
                : type->kind == MANTA_KIND_BOOL ? manta__bits_bytes(n)
                                                : (size_t)n * manta__type_width(type);
  if (text > INT32_MAX)
    return manta_error_set(err, MANTA_ETOOBIG,
                           "%" PRId64 " bytes of text in one column; a batch holds less than 2 GiB"
                           "\nhint: smaller batches",
                           text);
  *c = (struct manta__column){.type = *type, .length = n};
  bool ok = (c->held[MANTA__DATA] = manta__memory_create(pool, data)) != NULL;
  if (ok && manta__type_varies(type))
    ok = (c->held[MANTA__OFFSETS] = manta__memory_create(pool, (size_t)(n + 1) * 4)) != NULL;
  if (ok && nulls)
    ok = (c->held[MANTA__VALID] = manta__memory_create(pool, manta__bits_bytes(n))) != NULL;
  if (!ok) {
    manta__column_fini(c);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a column of %" PRId64 " rows", n);
  }
  c->data = c->held[MANTA__DATA]->data;
  c->offsets = c->held[MANTA__OFFSETS] ? c->held[MANTA__OFFSETS]->data : NULL;
  c->valid = c->held[MANTA__VALID] ? c->held[MANTA__VALID]->data : NULL;
  return MANTA_OK;
}

#define TAKE(type)                                                                                 \
  static void take_##type(type *to, const type *from, const uint32_t *rows, int64_t n)             \
  {                                                                                                \
    for (int64_t i = 0; i < n; i++)                                                                \
      to[i] = from[rows[i]];                                                                       \
  }
TAKE(uint8_t)
TAKE(uint16_t)
TAKE(uint32_t)
TAKE(uint64_t)
#undef TAKE

static void take_numbers(void *to, const struct manta__column *in, const uint32_t *rows, int64_t n)
{
  size_t width = manta__type_width(&in->type);
  const void *from = manta__column_at(in, 0);
  bool plain = in->type.ndim == 0; // aligned for its own size
  if (plain && width == 8)
    take_uint64_t(to, from, rows, n);
  else if (plain && width == 4)
    take_uint32_t(to, from, rows, n);
  else if (plain && width == 2)
    take_uint16_t(to, from, rows, n);
  else if (width == 1)
    take_uint8_t(to, from, rows, n);
  else
    for (int64_t i = 0; i < n; i++)
      memcpy((char *)to + (size_t)i * width, (const char *)from + rows[i] * width, width);
}

static void take_bits(uint8_t *to, const uint8_t *from, int64_t offset, const uint32_t *rows,
                      int64_t n)
{
  memset(to, 0, manta__bits_bytes(n));
  for (int64_t i = 0; i < n; i++)
    to[i >> 3] |= (uint8_t)(manta__bit_get(from, offset + rows[i]) << (i & 7));
}

static int64_t text_bytes(const struct manta__column *in, const uint32_t *rows, int64_t n)
{
  int64_t bytes = 0;
  if (!manta__type_varies(&in->type))
    return 0;
  for (int64_t i = 0; i < n; i++) {
    const int32_t *at = in->offsets + in->offset + rows[i];
    bytes += at[1] - at[0];
  }
  return bytes;
}

static void take_text(struct manta__column *out, const struct manta__column *in,
                      const uint32_t *rows, int64_t n)
{
  int32_t *offsets = manta__column_buffer(out, MANTA__OFFSETS), at = 0;
  char *to = manta__column_buffer(out, MANTA__DATA);
  for (int64_t i = 0; i < n; i++) {
    size_t len;
    const char *p = manta__column_text(in, rows[i], &len);
    offsets[i] = at;
    if (len)
      memcpy(to + at, p, len);
    at += (int32_t)len;
  }
  offsets[n] = at;
}

manta_status manta__column_take(struct manta__column *out, const struct manta__column *in,
                                const uint32_t *rows, int64_t n, struct manta__pool *pool,
                                manta_error *err)
{
  MANTA_TRY(
      manta__column_make(out, &in->type, n, text_bytes(in, rows, n), in->valid != NULL, pool, err));
  if (in->type.kind == MANTA_KIND_BOOL)
    take_bits(manta__column_buffer(out, MANTA__DATA), in->data, in->offset, rows, n);
  else if (manta__type_varies(&in->type))
    take_text(out, in, rows, n);
  else
    take_numbers(manta__column_buffer(out, MANTA__DATA), in, rows, n);
  if (in->valid)
    take_bits(manta__column_buffer(out, MANTA__VALID), in->valid, in->offset, rows, n);
  out->nulls = in->valid ? -1 : 0;
  return MANTA_OK;
}

// --- several to one -----------------------------------------------------------------------------

static void append_text(struct manta__column *out, const struct manta__column *p, int64_t at,
                        int32_t *text)
{
  int32_t *offsets = (int32_t *)manta__column_buffer(out, MANTA__OFFSETS) + at;
  const int32_t *from = p->offsets + p->offset;
  for (int64_t i = 0; i < p->length; i++)
    offsets[i] = *text + (from[i] - from[0]);
  int32_t bytes = from[p->length] - from[0];
  if (bytes)
    memcpy((char *)manta__column_buffer(out, MANTA__DATA) + *text, (const char *)p->data + from[0],
           (size_t)bytes);
  *text += bytes;
  offsets[p->length] = *text;
}

static void append(struct manta__column *out, const struct manta__column *p, int64_t at,
                   int32_t *text)
{
  size_t width = manta__type_width(&p->type);
  if (p->type.kind == MANTA_KIND_BOOL)
    manta__bits_copy(manta__column_buffer(out, MANTA__DATA), at, p->data, p->offset, p->length);
  else if (manta__type_varies(&p->type))
    append_text(out, p, at, text);
  else if (p->length)
    memcpy((char *)manta__column_buffer(out, MANTA__DATA) + (size_t)at * width,
           manta__column_at(p, 0), (size_t)p->length * width);
  if (out->valid && p->valid)
    manta__bits_copy(manta__column_buffer(out, MANTA__VALID), at, p->valid, p->offset, p->length);
  else if (out->valid)
    manta__bits_fill(manta__column_buffer(out, MANTA__VALID), at, p->length, true);
}

manta_status manta__column_concat(struct manta__column *out,
                                  const struct manta__column *const *parts, int n,
                                  struct manta__pool *pool, manta_error *err)
{
  int64_t rows = 0, bytes = 0;
  bool nulls = false;
  int32_t text = 0;
  for (int i = 0; i < n; i++) {
    const struct manta__column *p = parts[i];
    rows += p->length;
    nulls |= p->valid != NULL;
    if (manta__type_varies(&p->type))
      bytes += p->offsets[p->offset + p->length] - p->offsets[p->offset];
  }
  MANTA_TRY(manta__column_make(out, &parts[0]->type, rows, bytes, nulls, pool, err));
  if (out->offsets)
    *(int32_t *)manta__column_buffer(out, MANTA__OFFSETS) = 0;
  for (int64_t i = 0, at = 0; i < n; at += parts[i++]->length)
    append(out, parts[i], at, &text);
  out->nulls = nulls ? -1 : 0;
  return MANTA_OK;
}
