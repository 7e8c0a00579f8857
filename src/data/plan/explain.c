/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/explain.c - the plan as text: the same questions as a scan asks, and no answers.
 */
#include "base/alloc.h"
#include "data/plan/dataset.h"

#define TEXT_MAX ((size_t)1 << 20)

static manta_status put_line(const manta_dataset *d, const struct manta__want *want, int depth,
                             manta__buf *b)
{
  MANTA_TRY(manta__buf_printf(b, "%*s", 2 * depth, ""));
  MANTA_TRY(d->step->explain(d, want, b));
  return manta__buf_putc(b, '\n');
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, int depth,
                            manta__buf *b, manta_error *err);

static manta_status explain_inputs(const manta_dataset *d, const struct manta__want *want,
                                   int depth, manta__buf *b, manta_error *err)
{
  manta_status st = MANTA_OK;
  for (int i = 0; i < d->inputs && st == MANTA_OK; i++) {
    struct manta__asked a;
    MANTA_TRY(manta__dataset_ask(d, i, want, &a, err));
    struct manta__want of = {a.columns, a.filter.type == MANTA_NIL ? NULL : &a.filter};
    st = explain(d->input[i], &of, d->inputs > 1 ? depth + 1 : depth, b, err);
    manta__asked_fini(&a);
  }
  return st;
}

// A filter that goes no further is a line of its own.
static manta_status explain_filter(const manta_dataset *d, const struct manta__want *want,
                                   bool *columns, int depth, manta__buf *b, manta_error *err)
{
  char *text;
  MANTA_TRY(manta__expr_uses(d->out, want->filter, columns, err));
  MANTA_TRY(manta__expr_print(want->filter, &text, err));
  manta_status st = manta__buf_printf(b, "%*skeep rows where %s\n", 2 * depth, "", text);
  manta_free(text);
  return st;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, int depth,
                            manta__buf *b, manta_error *err)
{
  bool takes, *columns = manta__columns_flags(d, false);
  struct manta__want here = {columns, want->filter};
  if (!columns)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to explain a data set");
  for (int i = 0; i < d->out->count; i++)
    columns[i] = want->columns[i];
  manta_status st = manta__dataset_takes(d, want->filter, &takes, err);
  if (st == MANTA_OK && !takes) {
    st = explain_filter(d, want, columns, depth, b, err);
    here.filter = NULL;
  }
  if (st == MANTA_OK)
    st = put_line(d, &here, depth, b);
  if (st == MANTA_OK)
    st = explain_inputs(d, &here, depth, b, err);
  manta__free(columns);
  return st;
}

manta_status manta_dataset_explain(manta_dataset *d, char **out, manta_error *err)
{
  manta__buf b;
  struct manta__want want = {.columns = manta__columns_flags(d, true)};
  if (!want.columns)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to explain a data set");
  manta__buf_init(&b, TEXT_MAX);
  manta_status st = explain(d, &want, 0, &b, err);
  if (st == MANTA_OK)
    st = manta__buf_terminate(&b);
  manta__free((void *)(uintptr_t)want.columns);
  if (st < 0) {
    manta__buf_fini(&b);
    return manta_error_set(err, st, "the plan of a data set cannot be printed");
  }
  *out = manta__buf_release(&b, NULL);
  return MANTA_OK;
}
