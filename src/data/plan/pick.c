/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/pick.c - which rows: those that an expression is true for, or chance.
 */
#include <math.h>

#include "base/alloc.h"
#include "data/order/order.h"
#include "data/plan/pack.h"

// --- filters ------------------------------------------------------------------------------------

struct filter_data {
  manta_dataset d;
  manta_value tree;
};

// It does nothing itself: it asks its input for what both filters let through.
static manta_status filter_ask(const manta_dataset *d, int input, const struct manta__want *want,
                               bool *columns, manta_value *filter, manta_error *err)
{
  const struct filter_data *f = (const struct filter_data *)d;
  for (int i = 0; i < d->out->count; i++)
    columns[i] = want->columns[i];
  return manta__filter_join(filter, &f->tree, want->filter, err);
}

static manta_status filter_explain(const manta_dataset *d, const struct manta__want *want,
                                   manta__buf *b)
{
  char *text;
  MANTA_TRY(manta__expr_print(&((const struct filter_data *)d)->tree, &text, NULL));
  manta_status st = manta__buf_printf(b, "filter %s", text);
  manta_free(text);
  return st;
}

static void filter_fini(manta_dataset *d)
{
  manta_value_fini(&((struct filter_data *)d)->tree);
}

static manta_status filter_pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  return manta__plan_put_copy(to, "tree", &((const struct filter_data *)d)->tree);
}

static manta_status filter_unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                                  const manta_value *from, manta_error *err)
{
  const manta_value *tree = manta_value_get(from, "tree");
  if (inputs != 1 || !tree)
    return manta__plan_malformed(err);
  return manta_dataset_filter(out, in[0], tree, err);
}

const struct manta__step manta__step_filter = {
    .name = "filter",
    .ask = filter_ask,
    .explain = filter_explain,
    .fini = filter_fini,
    .pack = filter_pack,
    .unpack = filter_unpack,
};

manta_status manta_dataset_filter(manta_dataset **out, manta_dataset *d,
                                  const manta_value *expression, manta_error *err)
{
  struct filter_data *f;
  MANTA_TRY(manta__dataset_unlimited(d, "a filter", err));
  MANTA_TRY(manta__dataset_create(&f, sizeof *f, &manta__step_filter, &d, 1, err));
  manta_status st = manta_value_copy(&f->tree, expression);
  st = st < 0 ? manta_error_set(err, st, "no memory for an expression")
              : manta__filter_check(&f->tree, d->out, err);
  if (st < 0) {
    manta__dataset_unref(&f->d);
    return st;
  }
  *out = &f->d;
  return MANTA_OK;
}

// --- chance -------------------------------------------------------------------------------------

struct sample_data {
  manta_dataset d;
  double fraction;
  uint64_t seed;
};

struct sample_scan {
  struct manta__scan scan;
  uint64_t block;
};

static manta_status sample_rows(struct sample_scan *s, const manta_batch *in, manta_batch **out,
                                manta_error *err)
{
  const struct sample_data *d = (const struct sample_data *)s->scan.d;
  int64_t kept = 0;
  uint32_t *rows = manta__malloc((size_t)(in->rows + 1) * sizeof *rows);
  if (!rows)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a sample");
  for (int64_t i = 0; i < in->rows; i++) {
    uint64_t row = (uint64_t)manta__batch_source(in, i);
    rows[kept] = (uint32_t)i;
    kept += manta__order_chance(d->seed, s->block, row) < d->fraction;
  }
  manta_status st = manta__batch_take(out, in, rows, kept, s->scan.d->pool, err);
  manta__free(rows);
  return st;
}

static manta_status sample_next(struct manta__scan *scan, manta_batch **out, manta_error *err)
{
  manta_batch *in;
  manta_status st = manta__scan_next(scan->inner, &in, err);
  if (st != 1)
    return st;
  st = sample_rows((struct sample_scan *)scan, in, out, err);
  manta_batch_destroy(in);
  return st < 0 ? st : (manta_status)1;
}

static manta_status sample_begin(struct manta__scan **out, manta_dataset *d, int64_t block,
                                 const struct manta__want *want, manta_error *err)
{
  struct sample_scan *s;
  MANTA_TRY(manta__scan_over(&s, sizeof *s, d, block, want, err));
  s->scan.next = sample_next;
  s->block = (uint64_t)block;
  *out = &s->scan;
  return MANTA_OK;
}

static manta_status sample_explain(const manta_dataset *d, const struct manta__want *want,
                                   manta__buf *b)
{
  const struct sample_data *s = (const struct sample_data *)d;
  return manta__buf_printf(b, "sample %g of the rows, seed %llu", s->fraction,
                           (unsigned long long)s->seed);
}

static manta_status sample_pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  const struct sample_data *s = (const struct sample_data *)d;
  MANTA_TRY(manta_value_put_real(to, "fraction", s->fraction));
  return manta_value_put_int(to, "seed", (int64_t)s->seed);
}

static manta_status sample_unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                                  const manta_value *from, manta_error *err)
{
  if (inputs != 1)
    return manta__plan_malformed(err);
  return manta_dataset_sample(out, in[0],
                              manta_value_as_real(manta_value_get(from, "fraction"), -1),
                              (uint64_t)manta_value_as_int(manta_value_get(from, "seed"), 0), err);
}

const struct manta__step manta__step_sample = {
    .name = "sample",
    .scan = sample_begin,
    .explain = sample_explain,
    .pack = sample_pack,
    .unpack = sample_unpack,
};

manta_status manta_dataset_sample(manta_dataset **out, manta_dataset *d, double fraction,
                                  uint64_t seed, manta_error *err)
{
  struct sample_data *s;
  if (!(fraction >= 0 && fraction <= 1))
    return manta_error_set(err, MANTA_EINVAL, "a sample of %g: a fraction is from 0 to 1",
                           fraction);
  MANTA_TRY(manta__dataset_unlimited(d, "a sample", err));
  MANTA_TRY(manta__dataset_create(&s, sizeof *s, &manta__step_sample, &d, 1, err));
  s->fraction = fraction;
  s->seed = seed;
  *out = &s->d;
  return MANTA_OK;
}
