/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/column.h - a column of values, laid out as an Arrow array.
 *
 *   valid    a bit per value, 0: null; NULL where no value is
 *   offsets  of STRING and BYTES: where each begins, and one more
 *   data     numbers one after the other, bits of BOOL, or the bytes that the offsets count in
 *
 * (1) A column is length values from number `offset` on: a slice is the same buffers with other
 *     numbers. It holds a reference on the memory of each buffer, and so does every copy of it.
 * (2) Buffers of a column that somebody else may see are never written again.
 * (3) Offsets rise, begin at 0 or above and count in 32 bits: a column has less than 2 GiB of text.
 * (4) Tensors have no nulls inside: a value is null as a whole or not.
 * (5) data is aligned for its type, and offsets are, whatever was imported.
 */
#ifndef MANTA_DATA_COLUMN_COLUMN_H
#define MANTA_DATA_COLUMN_COLUMN_H

#include "data/column/bits.h"
#include "data/column/memory.h"
#include "data/column/type.h"

enum { MANTA__VALID, MANTA__OFFSETS, MANTA__DATA, MANTA__BUFFERS };

struct manta__column {
  struct manta__type type;
  int64_t length, offset;
  int64_t nulls; /* -1: not counted yet */
  const uint8_t *valid;
  const int32_t *offsets;
  const void *data;
  struct manta__memory *held[MANTA__BUFFERS];
};

static inline bool manta__column_is_null(const struct manta__column *c, int64_t i)
{
  return c->valid && !manta__bit_get(c->valid, c->offset + i);
}

static inline bool manta__column_bit(const struct manta__column *c, int64_t i)
{
  return manta__bit_get(c->data, c->offset + i);
}

/* Value i of a NUMBER. */
static inline const void *manta__column_at(const struct manta__column *c, int64_t i)
{
  return (const char *)c->data + (size_t)(c->offset + i) * manta__type_width(&c->type);
}

/* Value i of a STRING or BYTES, and how many bytes it has. */
static inline const char *manta__column_text(const struct manta__column *c, int64_t i, size_t *n)
{
  const int32_t *at = c->offsets + c->offset + i;
  *n = (size_t)(at[1] - at[0]);
  return (const char *)c->data + at[0];
}

/* Counted once. */
int64_t manta__column_nulls(struct manta__column *c);
/* Bytes of its values, without what lies beside the slice. */
int64_t manta__column_bytes(const struct manta__column *c);

/* dst must be empty; it shares the buffers. */
void manta__column_copy(struct manta__column *dst, const struct manta__column *src);
/* src becomes empty. */
void manta__column_move(struct manta__column *dst, struct manta__column *src);
/* Empties it; twice is harmless. */
void manta__column_fini(struct manta__column *c);
/* Keeps n values from `from` on. 0 <= from <= from + n <= length. */
void manta__column_slice(struct manta__column *c, int64_t from, int64_t n);

/* New columns. `out` must be empty and stays so on failure: MANTA_ENOMEM, or MANTA_ETOOBIG where
 * the text would have 2 GiB or more. `pool` may be NULL. */

/* The values with these numbers, each below in->length, in any order. */
manta_status manta__column_take(struct manta__column *out, const struct manta__column *in,
                                const uint32_t *rows, int64_t n, struct manta__pool *pool,
                                manta_error *err);
/* All of one type, n > 0. */
manta_status manta__column_concat(struct manta__column *out,
                                  const struct manta__column *const *parts, int n,
                                  struct manta__pool *pool, manta_error *err);
/* Value row[i] of part which[i], for all n of them. All of one type, count > 0. */
manta_status manta__column_gather(struct manta__column *out,
                                  const struct manta__column *const *parts, int count,
                                  const uint32_t *which, const uint32_t *row, int64_t n,
                                  struct manta__pool *pool, manta_error *err);
/* An empty column (nulls not counted) with buffers for n values and so many bytes of text, and for
 * nulls if there may be some; and where a buffer is written while nobody else sees it. */
manta_status manta__column_make(struct manta__column *out, const struct manta__type *type,
                                int64_t n, int64_t text, bool nulls, struct manta__pool *pool,
                                manta_error *err);
static inline void *manta__column_buffer(struct manta__column *c, int which)
{
  return c->held[which]->data;
}

#endif
