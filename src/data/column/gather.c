/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/gather.c - values of several columns, in any order.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/column/column.h"

/* Which value of which part. */
struct gather_rows {
  const struct manta__column *const *parts;
  const uint32_t *which, *row;
  int64_t n;
};

#define GATHER(type)                                                                               \
  static void gather_##type(type *to, const void *const *from, const struct gather_rows *g)        \
  {                                                                                                \
    for (int64_t i = 0; i < g->n; i++)                                                             \
      to[i] = ((const type *)from[g->which[i]])[g->row[i]];                                        \
  }
GATHER(uint8_t)
GATHER(uint16_t)
GATHER(uint32_t)
GATHER(uint64_t)
#undef GATHER

static void gather_numbers(struct manta__column *out, const void *const *from,
                           const struct gather_rows *g)
{
  size_t width = manta__type_width(&out->type);
  void *to = manta__column_buffer(out, MANTA__DATA);
  bool plain = out->type.ndim == 0; // aligned for its own size
  if (plain && width == 8)
    gather_uint64_t(to, from, g);
  else if (plain && width == 4)
    gather_uint32_t(to, from, g);
  else if (plain && width == 2)
    gather_uint16_t(to, from, g);
  else if (width == 1)
    gather_uint8_t(to, from, g);
  else
    for (int64_t i = 0; i < g->n; i++)
      memcpy((char *)to + (size_t)i * width, (const char *)from[g->which[i]] + g->row[i] * width,
             width);
}

static void gather_text(struct manta__column *out, const struct gather_rows *g)
{
  int32_t *offsets = manta__column_buffer(out, MANTA__OFFSETS), at = 0;
  char *to = manta__column_buffer(out, MANTA__DATA);
  for (int64_t i = 0; i < g->n; i++) {
    size_t len;
    const char *p = manta__column_text(g->parts[g->which[i]], g->row[i], &len);
    offsets[i] = at;
    if (len)
      memcpy(to + at, p, len);
    at += (int32_t)len;
  }
  offsets[g->n] = at;
}

static void gather_bits(struct manta__column *out, const struct gather_rows *g)
{
  uint8_t *to = manta__column_buffer(out, MANTA__DATA);
  memset(to, 0, manta__bits_bytes(g->n));
  for (int64_t i = 0; i < g->n; i++)
    to[i >> 3] |= (uint8_t)(manta__column_bit(g->parts[g->which[i]], g->row[i]) << (i & 7));
}

static void gather_valid(struct manta__column *out, const struct gather_rows *g)
{
  uint8_t *to = manta__column_buffer(out, MANTA__VALID);
  memset(to, 0, manta__bits_bytes(g->n));
  for (int64_t i = 0; i < g->n; i++)
    to[i >> 3] |= (uint8_t)(!manta__column_is_null(g->parts[g->which[i]], g->row[i]) << (i & 7));
}

static int64_t text_bytes(const struct gather_rows *g)
{
  int64_t bytes = 0;
  size_t len;
  if (!manta__type_varies(&g->parts[0]->type))
    return 0;
  for (int64_t i = 0; i < g->n; i++) {
    manta__column_text(g->parts[g->which[i]], g->row[i], &len);
    bytes += (int64_t)len;
  }
  return bytes;
}

manta_status manta__column_gather(struct manta__column *out,
                                  const struct manta__column *const *parts, int count,
                                  const uint32_t *which, const uint32_t *row, int64_t n,
                                  struct manta__pool *pool, manta_error *err)
{
  struct gather_rows g = {parts, which, row, n};
  bool nulls = false;
  const void **from = manta__calloc((size_t)count, sizeof *from);
  if (!from)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d parts", count);
  for (int k = 0; k < count; k++) {
    from[k] = manta__column_at(parts[k], 0);
    nulls |= parts[k]->valid != NULL;
  }
  manta_status st = manta__column_make(out, &parts[0]->type, n, text_bytes(&g), nulls, pool, err);
  if (st == MANTA_OK) {
    if (out->type.kind == MANTA_KIND_BOOL)
      gather_bits(out, &g);
    else if (manta__type_varies(&out->type))
      gather_text(out, &g);
    else
      gather_numbers(out, from, &g);
    if (nulls)
      gather_valid(out, &g);
    out->nulls = nulls ? -1 : 0;
  }
  manta__free(from);
  return st;
}
