/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/range.c - the numbers from 0 on, which are made when they are read.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "data/plan/pack.h"

#define IDLE_BYTES  ((size_t)16 << 20) /* that the pool keeps for the next batches */
#define BATCH_BYTES ((int64_t)4 << 20)
#define BATCH_ROWS  65536
#define ROWS_MAX    ((int64_t)1 << 50)

struct range_data {
  manta_dataset d;
  int64_t rows;
  int64_t block_rows; /* of all blocks but the last */
};

struct range_scan {
  struct manta__scan scan;
  int64_t first, rows; /* 0: they were given */
};

static manta_status range_next(struct manta__scan *scan, manta_batch **out, manta_error *err)
{
  struct range_scan *s = (struct range_scan *)scan;
  const struct manta__type *t = &scan->d->out->field[0].type;
  int64_t elements = manta__type_count(t);
  if (s->rows == 0)
    return 0;
  MANTA_TRY(manta__batch_create(out, scan->d->out, s->rows, err));
  struct manta__column *c = &(*out)->column[0];
  manta_status st = manta__column_make(c, t, s->rows, 0, false, scan->d->pool, err);
  if (st < 0) {
    manta_batch_destroy(*out);
    return st;
  }
  int64_t *to = manta__column_buffer(c, MANTA__DATA);
  for (int64_t i = 0; i < s->rows; i++)
    for (int64_t k = 0; k < elements; k++)
      *to++ = s->first + i;
  s->rows = 0;
  return (manta_status)1;
}

static manta_status scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                         const struct manta__want *want, manta_error *err)
{
  const struct range_data *r = (const struct range_data *)d;
  struct range_scan *s;
  MANTA_TRY(manta__scan_create(&s, sizeof *s, d, want, err));
  s->scan.next = range_next;
  s->first = block * r->block_rows;
  s->rows = r->rows - s->first < r->block_rows ? r->rows - s->first : r->block_rows;
  *out = &s->scan;
  return MANTA_OK;
}

// A filter is applied to what a scan gives.
static bool takes(const manta_dataset *d, const bool *columns)
{
  return false;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  return manta__buf_printf(b, "range: %" PRId64 " rows, %" PRId64 " block%s",
                           ((const struct range_data *)d)->rows, d->blocks,
                           d->blocks == 1 ? "" : "s");
}

static const char *file_of(const manta_dataset *d, int64_t block)
{
  return "range";
}

static void fini(manta_dataset *d)
{
  manta__pool_close(d->pool);
}

static manta_status pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  const struct manta__schema_field *f = &d->out->field[0];
  MANTA_TRY(manta_value_put_string(to, "name", f->name));
  MANTA_TRY(manta_value_put_int(to, "rows", ((const struct range_data *)d)->rows));
  return manta__plan_put_bytes(to, "shape", f->type.shape,
                               (size_t)f->type.ndim * sizeof *f->type.shape);
}

static manta_status unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                           const manta_value *from, manta_error *err)
{
  int64_t shape[MANTA_MAX_DIMS];
  size_t n = 0;
  const void *given = manta__plan_get_bytes(from, "shape", sizeof *shape, &n);
  if (inputs || !given || n > MANTA_MAX_DIMS)
    return manta__plan_malformed(err);
  memcpy(shape, given, n * sizeof *shape);
  return manta_dataset_range(out, manta_value_as_string(manta_value_get(from, "name"), ""),
                             manta_value_as_int(manta_value_get(from, "rows"), -1), shape, (int)n,
                             err);
}

const struct manta__step manta__step_range = {
    .name = "range",
    .takes = takes,
    .scan = scan,
    .explain = explain,
    .file = file_of,
    .fini = fini,
    .pack = pack,
    .unpack = unpack,
};

static manta_status make(struct range_data *r, const char *name, const struct manta__type *t,
                         manta_error *err)
{
  struct manta__schema_field f = {name, *t};
  int64_t fit = BATCH_BYTES / (int64_t)(manta__type_width(t) ? manta__type_width(t) : 1);
  r->block_rows = fit < 1 ? 1 : fit < BATCH_ROWS ? fit : BATCH_ROWS;
  r->d.blocks = (r->rows + r->block_rows - 1) / r->block_rows;
  r->d.mark = manta__hash_seed(&r->rows, sizeof r->rows, (uint64_t)r->block_rows);
  if (!(r->d.pool = manta__pool_create(IDLE_BYTES)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a range");
  return manta__schema_create(&r->d.out, &f, 1, err);
}

manta_status manta_dataset_range(manta_dataset **out, const char *name, int64_t rows,
                                 const int64_t *shape, int ndim, manta_error *err)
{
  struct range_data *r;
  struct manta__type t = manta__type_of(MANTA_I64);
  if (rows < 0 || rows > ROWS_MAX || ndim < 0 || ndim > MANTA_MAX_DIMS)
    return manta_error_set(err, MANTA_EINVAL, "a range of %" PRId64 " rows of %d dimensions", rows,
                           ndim);
  t.ndim = ndim;
  for (int i = 0; i < ndim; i++)
    t.shape[i] = shape[i];
  MANTA_TRY(manta__type_check(&t, err));
  MANTA_TRY(manta__dataset_create(&r, sizeof *r, &manta__step_range, NULL, 0, err));
  r->rows = rows;
  manta_status st = make(r, name, &t, err);
  if (st < 0) {
    manta__dataset_unref(&r->d);
    return st;
  }
  *out = &r->d;
  return MANTA_OK;
}
