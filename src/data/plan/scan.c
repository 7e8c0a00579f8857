/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/scan.c - the rows of a block of any data set: what is asked of whom, and the filters
 * that no step takes.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/plan/dataset.h"

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory to read a data set");
}

// --- expressions --------------------------------------------------------------------------------

manta_status manta__expr_uses(const struct manta__schema *schema, const manta_value *tree,
                              bool *columns, manta_error *err)
{
  struct manta__expr *e;
  MANTA_TRY(manta__expr_compile(&e, tree, schema, err));
  manta__expr_columns(e, columns);
  manta__expr_destroy(e);
  return MANTA_OK;
}

static manta_status add_copy(manta_value *list, const manta_value *v)
{
  manta_value copy = {0};
  manta_status st = manta_value_copy(&copy, v);
  if (st == MANTA_OK)
    st = manta_value_append(list, &copy);
  manta_value_fini(&copy);
  return st;
}

manta_status manta__filter_join(manta_value *out, const manta_value *a, const manta_value *b,
                                manta_error *err)
{
  manta_value name = manta_value_borrow_string("and");
  manta_status st;
  if (!a || !b)
    st = a || b ? manta_value_copy(out, a ? a : b) : MANTA_OK;
  else if ((st = manta_value_set_list(out)) == MANTA_OK &&
           (st = add_copy(out, &name)) == MANTA_OK && (st = add_copy(out, a)) == MANTA_OK)
    st = add_copy(out, b);
  return st < 0 ? no_memory(err) : MANTA_OK;
}

manta_status manta__filter_check(const manta_value *tree, struct manta__schema *schema,
                                 manta_error *err)
{
  struct manta__expr *e;
  uint32_t row;
  int64_t count;
  manta_batch *none;
  MANTA_TRY(manta__expr_compile(&e, tree, schema, err));
  manta_status st = manta__batch_create(&none, schema, 0, err);
  if (st == MANTA_OK) {
    st = manta__expr_filter(e, none, &row, &count, err);
    manta_batch_destroy(none);
  }
  manta__expr_destroy(e);
  return st;
}

// --- asking -------------------------------------------------------------------------------------

manta_status manta__dataset_ask(const manta_dataset *d, int input, const struct manta__want *want,
                                struct manta__asked *out, manta_error *err)
{
  manta_status st = MANTA_OK;
  *out = (struct manta__asked){.columns = manta__columns_flags(d->input[input], false)};
  if (!out->columns)
    return no_memory(err);
  if (d->step->ask)
    st = d->step->ask(d, input, want, out->columns, &out->filter, err);
  else {
    memcpy(out->columns, want->columns, (size_t)d->out->count);
    st = manta__filter_join(&out->filter, want->filter, NULL, err);
  }
  if (st < 0)
    manta__asked_fini(out);
  return st;
}

void manta__asked_fini(struct manta__asked *a)
{
  manta__free(a->columns);
  manta_value_fini(&a->filter);
  *a = (struct manta__asked){0};
}

// --- scans --------------------------------------------------------------------------------------

manta_status manta__scan_create(void *out, size_t size, manta_dataset *d,
                                const struct manta__want *want, manta_error *err)
{
  struct manta__scan *s = manta__calloc(1, size);
  if (s)
    s->columns = manta__columns_flags(d, false);
  if (!s || !s->columns) {
    manta__free(s);
    return no_memory(err);
  }
  memcpy(s->columns, want->columns, (size_t)d->out->count);
  s->d = d;
  *(struct manta__scan **)out = s;
  return MANTA_OK;
}

manta_status manta__scan_input(struct manta__scan **out, manta_dataset *d, int input, int64_t block,
                               const struct manta__want *want, manta_error *err)
{
  struct manta__asked a;
  MANTA_TRY(manta__dataset_ask(d, input, want, &a, err));
  struct manta__want of = {a.columns, a.filter.type == MANTA_NIL ? NULL : &a.filter};
  manta_status st = manta__dataset_scan(out, d->input[input], block, &of, err);
  manta__asked_fini(&a);
  return st;
}

manta_status manta__scan_over(void *out, size_t size, manta_dataset *d, int64_t block,
                              const struct manta__want *want, manta_error *err)
{
  struct manta__scan *s = NULL;
  MANTA_TRY(manta__scan_create(&s, size, d, want, err));
  manta_status st = manta__scan_input(&s->inner, d, 0, block, want, err);
  if (st < 0) {
    manta__scan_close(s);
    return st;
  }
  *(struct manta__scan **)out = s;
  return MANTA_OK;
}

manta_status manta__scan_next(struct manta__scan *s, manta_batch **out, manta_error *err)
{
  return s->next(s, out, err);
}

void manta__scan_close(struct manta__scan *s)
{
  if (!s)
    return;
  if (s->close)
    s->close(s);
  manta__scan_close(s->inner);
  manta__free(s->columns);
  manta__free(s);
}

static manta_status no_rows(struct manta__scan *s, manta_batch **out, manta_error *err)
{
  return 0;
}

manta_status manta__scan_nothing(struct manta__scan **out, manta_dataset *d,
                                 const struct manta__want *want, manta_error *err)
{
  MANTA_TRY(manta__scan_create(out, sizeof **out, d, want, err));
  (*out)->next = no_rows;
  return MANTA_OK;
}

// --- filters that go no further -----------------------------------------------------------------

struct filter_scan {
  struct manta__scan scan;
  struct manta__expr *filter;
  uint32_t *rows; /* that pass; room for `cap` */
  int64_t cap;
};

static manta_status filter_next(struct manta__scan *scan, manta_batch **out, manta_error *err)
{
  struct filter_scan *s = (struct filter_scan *)scan;
  manta_batch *in;
  int64_t count = 0;
  manta_status st = manta__scan_next(scan->inner, &in, err);
  if (st != 1)
    return st;
  if (in->rows > s->cap) {
    manta__free(s->rows);
    s->rows = manta__malloc((size_t)in->rows * sizeof *s->rows);
    s->cap = s->rows ? in->rows : 0;
  }
  st =
      s->cap >= in->rows ? manta__expr_filter(s->filter, in, s->rows, &count, err) : no_memory(err);
  if (st == MANTA_OK && count == in->rows) {
    *out = in;
    return (manta_status)1;
  }
  if (st == MANTA_OK)
    st = manta__batch_take(out, in, s->rows, count, scan->d->pool, err);
  manta_batch_destroy(in);
  return st < 0 ? st : (manta_status)1;
}

static void filter_close(struct manta__scan *scan)
{
  struct filter_scan *s = (struct filter_scan *)scan;
  manta__expr_destroy(s->filter);
  manta__free(s->rows);
}

static manta_status scan_step(struct manta__scan **out, manta_dataset *d, int64_t block,
                              const struct manta__want *want, manta_error *err)
{
  if (d->step->scan)
    return d->step->scan(out, d, block, want, err);
  return manta__scan_input(out, d, 0, block, want, err);
}

static manta_status scan_filtered(struct manta__scan **out, manta_dataset *d, int64_t block,
                                  const struct manta__want *want, manta_error *err)
{
  struct filter_scan *s = NULL;
  MANTA_TRY(manta__scan_create(&s, sizeof *s, d, want, err));
  s->scan.next = filter_next;
  s->scan.close = filter_close;
  struct manta__want more = {s->scan.columns, NULL};
  manta_status st = manta__expr_compile(&s->filter, want->filter, d->out, err);
  if (st == MANTA_OK) {
    manta__expr_columns(s->filter, s->scan.columns);
    st = scan_step(&s->scan.inner, d, block, &more, err);
  }
  if (st < 0) {
    manta__scan_close(&s->scan);
    return st;
  }
  *out = &s->scan;
  return MANTA_OK;
}

manta_status manta__dataset_takes(const manta_dataset *d, const manta_value *filter, bool *out,
                                  manta_error *err)
{
  *out = true;
  if (!filter || !d->step->takes)
    return MANTA_OK;
  bool *used = manta__columns_flags(d, false);
  manta_status st = used ? manta__expr_uses(d->out, filter, used, err) : no_memory(err);
  if (st == MANTA_OK)
    *out = d->step->takes(d, used);
  manta__free(used);
  return st;
}

manta_status manta__dataset_scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                                 const struct manta__want *want, manta_error *err)
{
  bool takes;
  MANTA_TRY(manta__dataset_takes(d, want->filter, &takes, err));
  return takes ? scan_step(out, d, block, want, err) : scan_filtered(out, d, block, want, err);
}
