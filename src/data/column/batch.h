/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/batch.h - columns of equal length under one schema, and where their rows come from.
 *
 * (1) All columns have `rows` values; rows are numbered in 32 bits.
 * (2) A batch of a reader knows its source: it stands for `source_rows` rows of a block, from
 *     number `first` on, of which it has `rows`. Those that are missing were filtered out or could
 *     not be read and were skipped. Row i is number first + origin[i] there; without an origin
 *     it is first + i. Positions count source rows, so that they mean the same whatever the filter.
 * (3) A column that nobody asked for is empty ({0}), and stays so in batches that are made of this
 *     one.
 */
#ifndef MANTA_DATA_COLUMN_BATCH_H
#define MANTA_DATA_COLUMN_BATCH_H

#include "data/column/column.h"
#include "data/column/schema.h"

#define MANTA__ROWS_MAX (INT32_MAX - 64) /* of one batch */

struct manta_batch {
  struct manta__schema *schema;
  int64_t rows;
  int64_t first, source_rows;
  struct manta__memory *origin; /* uint32_t per row, or NULL */
  struct manta__column *column; /* [schema->count] */
};

/* Empty columns; holds a reference on the schema. */
manta_status manta__batch_create(manta_batch **out, struct manta__schema *schema, int64_t rows,
                                 manta_error *err);
/* The number that row i has in its block. */
static inline int64_t manta__batch_source(const manta_batch *b, int64_t i)
{
  return b->first + (b->origin ? ((const uint32_t *)b->origin->data)[i] : i);
}

/* Bytes of its values, without what lies beside them. */
size_t manta__batch_bytes(const manta_batch *b);

/* Whether there are values in column i: it was asked for. */
static inline bool manta__batch_has(const manta_batch *b, int i)
{
  return b->column[i].length == b->rows;
}

/* New batches that share what they can; `in` stays as it was. */

/* All of it. */
manta_status manta__batch_copy(manta_batch **out, const manta_batch *in, manta_error *err);
/* n rows from `from` on. */
manta_status manta__batch_slice(manta_batch **out, const manta_batch *in, int64_t from, int64_t n,
                                manta_error *err);
/* The rows with these numbers, rising. */
manta_status manta__batch_take(manta_batch **out, const manta_batch *in, const uint32_t *rows,
                               int64_t n, struct manta__pool *pool, manta_error *err);
/* The columns that `schema` has, by these numbers. */
manta_status manta__batch_select(manta_batch **out, const manta_batch *in,
                                 struct manta__schema *schema, const int *columns,
                                 manta_error *err);
/* All rows one after the other. Of one schema, n > 0. The source is that of the first, and only
 * right where each part begins where the one before it ended. */
manta_status manta__batch_concat(manta_batch **out, const manta_batch *const *parts, int n,
                                 struct manta__pool *pool, manta_error *err);
/* Row row[i] of part which[i], for all n of them. Of one schema. The batch has no source. */
manta_status manta__batch_gather(manta_batch **out, const manta_batch *const *parts, int count,
                                 const uint32_t *which, const uint32_t *row, int64_t n,
                                 struct manta__pool *pool, manta_error *err);

#endif
