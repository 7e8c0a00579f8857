/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/make.c - batches of values that the user has: plain arrays, or Arrow's.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "data/column/arrow.h"

static struct manta__type type_of(const manta_field *f)
{
  struct manta__type t = {.kind = f->kind};
  if (f->kind == MANTA_KIND_NUMBER) {
    t.dtype = f->dtype;
    t.ndim = f->ndim;
    memcpy(t.shape, f->shape, sizeof t.shape);
  }
  return t;
}

static manta_status check_text(const manta_column *c, manta_error *err)
{
  const int32_t *at = c->offsets + c->offset;
  for (int64_t i = 0; i <= c->rows; i++)
    if (at[i] < 0 || (i && at[i] < at[i - 1]))
      return manta_error_set(err, MANTA_EINVAL, "column \"%.128s\": offset %" PRId64 " falls",
                             c->field.name, i);
  return MANTA_OK;
}

static manta_status check(const manta_column *c, int64_t rows, const struct manta__type *t,
                          manta_error *err)
{
  if (c->rows != rows || rows < 0 || rows > MANTA__ROWS_MAX || c->offset < 0)
    return manta_error_set(err, MANTA_EINVAL,
                           "column \"%.128s\" has %" PRId64 " rows from %" PRId64
                           " on, the first has %" PRId64,
                           c->field.name, c->rows, c->offset, rows);
  if ((unsigned)c->field.ndim > MANTA_MAX_DIMS)
    return manta_error_set(err, MANTA_EINVAL, "column \"%.128s\" has %d dimensions", c->field.name,
                           c->field.ndim);
  if (rows && (!c->data || (manta__type_varies(t) && !c->offsets)))
    return manta_error_set(err, MANTA_EINVAL, "column \"%.128s\" has no values", c->field.name);
  return rows && manta__type_varies(t) ? check_text(c, err) : MANTA_OK;
}

static manta_status copy_column(struct manta__column *out, const manta_column *c,
                                const struct manta__type *t, manta_error *err)
{
  static const int32_t none = 0;
  struct manta__column view = {.type = *t,
                               .length = c->rows,
                               .offset = c->rows ? c->offset : 0,
                               .nulls = -1,
                               .valid = c->valid,
                               .offsets = c->rows ? c->offsets : &none,
                               .data = c->data};
  const struct manta__column *part = &view;
  return manta__column_concat(out, &part, 1, NULL, err);
}

static manta_status make_schema(struct manta__schema **out, const manta_column *columns, int count,
                                manta_error *err)
{
  if (count < 0 || count > MANTA__COLUMNS_MAX)
    return manta_error_set(err, MANTA_EINVAL, "a batch of %d columns", count);
  struct manta__schema_field *fields = manta__calloc((size_t)count + 1, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d columns", count);
  manta_status st = MANTA_OK;
  for (int i = 0; i < count && st == MANTA_OK; i++) {
    fields[i] = (struct manta__schema_field){columns[i].field.name, type_of(&columns[i].field)};
    st = check(&columns[i], columns[0].rows, &fields[i].type, err);
  }
  if (st == MANTA_OK)
    st = manta__schema_create(out, fields, count, err);
  manta__free(fields);
  return st;
}

manta_status manta_batch_create(manta_batch **out, const manta_column *columns, int count,
                                manta_error *err)
{
  struct manta__schema *schema;
  manta_batch *b = NULL;
  MANTA_TRY(make_schema(&schema, columns, count, err));
  manta_status st = manta__batch_create(&b, schema, count ? columns[0].rows : 0, err);
  for (int i = 0; i < count && st == MANTA_OK; i++)
    st = copy_column(&b->column[i], &columns[i], &schema->field[i].type, err);
  manta__schema_unref(schema);
  if (st < 0) {
    manta_batch_destroy(b);
    return st;
  }
  *out = b;
  return MANTA_OK;
}

manta_status manta_batch_import(manta_batch **out, const struct ArrowSchema *schema,
                                struct ArrowArray *array, manta_error *err)
{
  struct manta__schema *ours;
  if (!schema->release || !array->release)
    return manta_error_set(err, MANTA_EINVAL, "an Arrow array that was released already");
  MANTA_TRY(manta__arrow_import_schema(schema, &ours, err));
  manta_status st = manta__arrow_import(out, array, schema, ours, NULL, err);
  manta__schema_unref(ours);
  return st;
}
