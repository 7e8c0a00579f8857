/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/limit.c - the first rows.
 *
 * In front of a shuffle a limit is a place in the files: prepare() reads up to it once, and from
 * then on it is the number of a block and of a row in it. Filters from above may go through: they
 * do not move it, unless a step made several rows of one, where the limit can lie between them.
 * Behind a shuffle or a repeat it is the loader that stops.
 */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "data/plan/pack.h"

struct limit_data {
  manta_dataset d;
  int64_t rows;
  int64_t block, row; /* where it ends: rows of this block from number `row` on are behind it, */
  int64_t inside;     /* but for the first so many of that number */
};

static void set_end(struct limit_data *l, const manta_batch *b, int64_t last)
{
  int64_t number = manta__batch_source(b, last);
  l->row = number + 1;
  l->inside = 0;
  if (last + 1 == b->rows || manta__batch_source(b, last + 1) != number)
    return;
  for (l->row = number; last >= 0 && manta__batch_source(b, last) == number; last--)
    l->inside++;
}

// Rows of a block until the limit is reached: then *row is the number of the first one behind it.
static manta_status count_block(struct limit_data *l, int64_t block, const struct manta__want *want,
                                int64_t *left, manta_error *err)
{
  struct manta__scan *s;
  manta_batch *b;
  manta_status st;
  MANTA_TRY(manta__dataset_scan(&s, l->d.input[0], block, want, err));
  while (*left > 0 && (st = manta__scan_next(s, &b, err)) == 1) {
    if (b->rows >= *left) {
      set_end(l, b, *left - 1);
      *left = 0;
    } else
      *left -= b->rows;
    manta_batch_destroy(b);
  }
  manta__scan_close(s);
  return *left > 0 ? st : MANTA_OK;
}

static manta_status prepare(manta_dataset *d, manta_error *err)
{
  struct limit_data *l = (struct limit_data *)d;
  struct manta__want want = {.columns = manta__columns_flags(d->input[0], false)};
  manta_status st =
      want.columns ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory to find a limit");
  int64_t left = l->rows;
  l->block = 0;
  for (; st >= 0 && left > 0 && l->block<d->blocks; l->block += left> 0)
    st = count_block(l, l->block, &want, &left, err);
  manta__free((void *)(uintptr_t)want.columns);
  return st < 0 ? st : MANTA_OK;
}

static manta_status cut_next(struct manta__scan *s, manta_batch **out, manta_error *err)
{
  const struct limit_data *l = (const struct limit_data *)s->d;
  manta_batch *in;
  manta_status st = manta__scan_next(s->inner, &in, err);
  if (st != 1)
    return st;
  if (in->first + in->source_rows <= l->row) {
    *out = in;
    return st;
  }
  int64_t n = 0, end = l->row + (l->inside > 0);
  while (n < in->rows && manta__batch_source(in, n) < l->row)
    n++;
  for (int64_t i = 0; i < l->inside && n < in->rows && manta__batch_source(in, n) == l->row; i++)
    n++;
  st = in->first >= end ? 0 : manta__batch_slice(out, in, 0, n, err);
  if (st == MANTA_OK && in->first < end) {
    (*out)->source_rows = end - in->first < in->source_rows ? end - in->first : in->source_rows;
    st = (manta_status)1;
  }
  manta_batch_destroy(in);
  return st;
}

static manta_status scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                         const struct manta__want *want, manta_error *err)
{
  const struct limit_data *l = (const struct limit_data *)d;
  if (l->rows == 0 || block > l->block)
    return manta__scan_nothing(out, d, want, err);
  if (block < l->block)
    return manta__scan_input(out, d, 0, block, want, err);
  MANTA_TRY(manta__scan_over(out, sizeof **out, d, block, want, err));
  (*out)->next = cut_next;
  return MANTA_OK;
}

static bool takes(const manta_dataset *d, const bool *columns)
{
  return !d->multiplies;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  return manta__buf_printf(b, "limit %" PRId64 " rows", ((const struct limit_data *)d)->rows);
}

static manta_status pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  return manta_value_put_int(to, "rows", ((const struct limit_data *)d)->rows);
}

static manta_status unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                           const manta_value *from, manta_error *err)
{
  if (inputs != 1)
    return manta__plan_malformed(err);
  return manta_dataset_limit(out, in[0], manta_value_as_int(manta_value_get(from, "rows"), -1),
                             err);
}

const struct manta__step manta__step_limit = {
    .name = "limit",
    .takes = takes,
    .prepare = prepare,
    .scan = scan,
    .explain = explain,
    .pack = pack,
    .unpack = unpack,
};

static manta_status explain_last(const manta_dataset *d, const struct manta__want *want,
                                 manta__buf *b)
{
  return manta__buf_printf(b, "limit %" PRId64 " rows, as they come", d->passes.take);
}

static const struct manta__step step_last = {
    .name = "limit", .explain = explain_last, .pack = pack, .unpack = unpack};

manta_status manta_dataset_limit(manta_dataset **out, manta_dataset *d, int64_t rows,
                                 manta_error *err)
{
  struct limit_data *l;
  bool last = d->passes.shuffles || d->passes.times != 1;
  if (rows < 0)
    return manta_error_set(err, MANTA_EINVAL, "a limit of %" PRId64 " rows", rows);
  MANTA_TRY(
      manta__dataset_create(&l, sizeof *l, last ? &step_last : &manta__step_limit, &d, 1, err));
  l->rows = rows;
  if (last)
    l->d.passes.take = d->passes.take >= 0 && d->passes.take < rows ? d->passes.take : rows;
  else
    l->d.mark = manta__hash_seed(&rows, sizeof rows, d->mark);
  *out = &l->d;
  return MANTA_OK;
}
