/* SPDX-License-Identifier: Apache-2.0 */
#include "data/column/batch.h"

#include <inttypes.h>

#include "base/alloc.h"

manta_status manta__batch_create(manta_batch **out, struct manta__schema *schema, int64_t rows,
                                 manta_error *err)
{
  manta_batch *b = manta__calloc(1, sizeof *b);
  if (b)
    b->column = manta__calloc((size_t)schema->count + 1, sizeof *b->column);
  if (!b || !b->column) {
    manta__free(b);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a batch of %d columns", schema->count);
  }
  b->schema = manta__schema_ref(schema);
  b->rows = b->source_rows = rows;
  *out = b;
  return MANTA_OK;
}

void manta_batch_destroy(manta_batch *b)
{
  if (!b)
    return;
  for (int i = 0; i < b->schema->count; i++)
    manta__column_fini(&b->column[i]);
  manta__schema_unref(b->schema);
  manta__memory_unref(b->origin);
  manta__free(b->column);
  manta__free(b);
}

int64_t manta_batch_rows(const manta_batch *b)
{
  return b->rows;
}

int manta_batch_columns(const manta_batch *b)
{
  return b->schema->count;
}

manta_status manta_batch_column(const manta_batch *b, int column, manta_column *out,
                                manta_error *err)
{
  if (column < 0 || column >= b->schema->count)
    return manta_error_set(err, MANTA_ENOENT, "there is no column %d; the batch has %d", column,
                           b->schema->count);
  struct manta__column c = b->column[column]; // a view: no reference of its own
  *out = (manta_column){.rows = c.length,
                        .offset = c.offset,
                        .nulls = manta__column_nulls(&c),
                        .data = c.data,
                        .offsets = c.offsets,
                        .valid = c.valid};
  manta__schema_show(b->schema, column, &out->field);
  return MANTA_OK;
}

manta_status manta_batch_column_named(const manta_batch *b, const char *name, manta_column *out,
                                      manta_error *err)
{
  int column;
  MANTA_TRY(manta__schema_need(b->schema, name, &column, err));
  return manta_batch_column(b, column, out, err);
}

size_t manta__batch_bytes(const manta_batch *b)
{
  size_t bytes = sizeof *b;
  for (int i = 0; i < b->schema->count; i++)
    bytes += (size_t)manta__column_bytes(&b->column[i]);
  return bytes + (b->origin ? (size_t)b->rows * sizeof(uint32_t) : 0);
}

// --- new batches --------------------------------------------------------------------------------

manta_status manta__batch_copy(manta_batch **out, const manta_batch *in, manta_error *err)
{
  manta_batch *b = NULL;
  MANTA_TRY(manta__batch_create(&b, in->schema, in->rows, err));
  for (int i = 0; i < in->schema->count; i++)
    manta__column_copy(&b->column[i], &in->column[i]);
  b->first = in->first;
  b->source_rows = in->source_rows;
  b->origin = manta__memory_ref(in->origin);
  *out = b;
  return MANTA_OK;
}

manta_status manta__batch_slice(manta_batch **out, const manta_batch *in, int64_t from, int64_t n,
                                manta_error *err)
{
  manta_batch *b = NULL;
  MANTA_TRY(manta__batch_create(&b, in->schema, n, err));
  for (int i = 0; i < in->schema->count; i++) {
    manta__column_copy(&b->column[i], &in->column[i]);
    if (manta__batch_has(in, i))
      manta__column_slice(&b->column[i], from, n);
  }
  b->first = in->first;
  b->source_rows = in->source_rows;
  if (!in->origin) {
    b->first += from;
    b->source_rows = n;
  } else if (!(b->origin = manta__memory_create(NULL, (size_t)n * sizeof(uint32_t)))) {
    manta_batch_destroy(b);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the origin of %" PRId64 " rows", n);
  }
  for (int64_t i = 0; b->origin && i < n; i++)
    ((uint32_t *)b->origin->data)[i] = ((const uint32_t *)in->origin->data)[from + i];
  *out = b;
  return MANTA_OK;
}

static manta_status take_origin(manta_batch *b, const manta_batch *in, const uint32_t *rows,
                                struct manta__pool *pool, manta_error *err)
{
  b->first = in->first;
  b->source_rows = in->source_rows;
  b->origin = manta__memory_create(pool, (size_t)b->rows * sizeof *rows);
  if (!b->origin)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the origin of %" PRId64 " rows",
                           b->rows);
  uint32_t *to = b->origin->data;
  const uint32_t *from = in->origin ? in->origin->data : NULL;
  for (int64_t i = 0; i < b->rows; i++)
    to[i] = from ? from[rows[i]] : rows[i];
  return MANTA_OK;
}

manta_status manta__batch_take(manta_batch **out, const manta_batch *in, const uint32_t *rows,
                               int64_t n, struct manta__pool *pool, manta_error *err)
{
  manta_batch *b = NULL;
  MANTA_TRY(manta__batch_create(&b, in->schema, n, err));
  manta_status st = take_origin(b, in, rows, pool, err);
  for (int i = 0; i < in->schema->count && st == MANTA_OK; i++)
    if (manta__batch_has(in, i))
      st = manta__column_take(&b->column[i], &in->column[i], rows, n, pool, err);
  if (st < 0) {
    manta_batch_destroy(b);
    return st;
  }
  *out = b;
  return MANTA_OK;
}

manta_status manta__batch_select(manta_batch **out, const manta_batch *in,
                                 struct manta__schema *schema, const int *columns, manta_error *err)
{
  manta_batch *b = NULL;
  MANTA_TRY(manta__batch_create(&b, schema, in->rows, err));
  for (int i = 0; i < schema->count; i++)
    manta__column_copy(&b->column[i], &in->column[columns[i]]);
  b->first = in->first;
  b->source_rows = in->source_rows;
  b->origin = manta__memory_ref(in->origin);
  *out = b;
  return MANTA_OK;
}

// Of each part the column of one number; the caller frees it.
static const struct manta__column **columns_of(const manta_batch *const *parts, int n, int column)
{
  const struct manta__column **p = manta__calloc((size_t)n, sizeof *p);
  for (int k = 0; p && k < n; k++)
    p[k] = &parts[k]->column[column];
  return p;
}

manta_status manta__batch_gather(manta_batch **out, const manta_batch *const *parts, int count,
                                 const uint32_t *which, const uint32_t *row, int64_t n,
                                 struct manta__pool *pool, manta_error *err)
{
  manta_batch *b = NULL;
  MANTA_TRY(manta__batch_create(&b, parts[0]->schema, n, err));
  manta_status st = MANTA_OK;
  for (int i = 0; i < b->schema->count && st == MANTA_OK; i++) {
    const struct manta__column **p = columns_of(parts, count, i);
    st = p ? manta__column_gather(&b->column[i], p, count, which, row, n, pool, err)
           : manta_error_set(err, MANTA_ENOMEM, "no memory for %d parts", count);
    manta__free(p);
  }
  if (st < 0) {
    manta_batch_destroy(b);
    return st;
  }
  *out = b;
  return MANTA_OK;
}

static manta_status concat_columns(manta_batch *b, const manta_batch *const *parts, int n,
                                   struct manta__pool *pool, manta_error *err)
{
  const struct manta__column **p = manta__calloc((size_t)n, sizeof *p);
  manta_status st = MANTA_OK;
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d parts", n);
  for (int i = 0; i < b->schema->count && st == MANTA_OK; i++) {
    bool whole = true;
    for (int k = 0; k < n; k++) {
      p[k] = &parts[k]->column[i];
      whole &= manta__batch_has(parts[k], i);
    }
    if (whole)
      st = manta__column_concat(&b->column[i], p, n, pool, err);
  }
  manta__free(p);
  return st;
}

// Rows of later parts count on from the first part's first row.
static manta_status concat_origin(manta_batch *b, const manta_batch *const *parts, int n,
                                  struct manta__pool *pool, manta_error *err)
{
  bool gaps = false;
  int64_t base = 0, at = 0;
  b->first = parts[0]->first;
  b->source_rows = 0;
  for (int k = 0; k < n; k++) {
    gaps |= parts[k]->origin || parts[k]->rows != parts[k]->source_rows;
    b->source_rows += parts[k]->source_rows;
  }
  if (!gaps)
    return MANTA_OK;
  if (!(b->origin = manta__memory_create(pool, (size_t)b->rows * sizeof(uint32_t))))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the origin of %" PRId64 " rows",
                           b->rows);
  for (int k = 0; k < n; base += parts[k++]->source_rows)
    for (int64_t i = 0; i < parts[k]->rows; i++)
      ((uint32_t *)b->origin->data)[at++] =
          (uint32_t)(base + manta__batch_source(parts[k], i) - parts[k]->first);
  return MANTA_OK;
}

manta_status manta__batch_concat(manta_batch **out, const manta_batch *const *parts, int n,
                                 struct manta__pool *pool, manta_error *err)
{
  int64_t rows = 0;
  manta_batch *b = NULL;
  for (int k = 0; k < n; k++)
    rows += parts[k]->rows;
  if (rows > MANTA__ROWS_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "a batch of %" PRId64 " rows; the limit is %d", rows,
                           MANTA__ROWS_MAX);
  MANTA_TRY(manta__batch_create(&b, parts[0]->schema, rows, err));
  manta_status st = concat_columns(b, parts, n, pool, err);
  if (st == MANTA_OK)
    st = concat_origin(b, parts, n, pool, err);
  if (st < 0) {
    manta_batch_destroy(b);
    return st;
  }
  *out = b;
  return MANTA_OK;
}
