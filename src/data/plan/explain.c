/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/explain.c - the plan as text: the same questions as a scan asks, and no answers.
 */
#include "base/alloc.h"
#include "data/plan/late.h"
#include "data/plan/pack.h"

#define TEXT_MAX ((size_t)1 << 20)

/* The text, and where what it tells is done. */
struct explanation {
  manta__buf b;
  struct manta__late late;
  bool sent; /* what is in front of that goes to the reader */
};

// In a run; a program without one does all of it itself.
static const char *place_of(const struct explanation *e, const manta_dataset *d)
{
  if (!e->sent || manta__late_has(&e->late, d))
    return "worker";
  return d->step == &manta__step_apply ? "reader's functions" : "reader";
}

static manta_status put_line(const manta_dataset *d, const struct manta__want *want, int depth,
                             struct explanation *e)
{
  MANTA_TRY(manta__buf_printf(&e->b, "%*s", 2 * depth, ""));
  MANTA_TRY(d->step->explain(d, want, &e->b));
  return manta__buf_printf(&e->b, "  [%s]\n", place_of(e, d));
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, int depth,
                            struct explanation *e, manta_error *err);

static manta_status explain_inputs(const manta_dataset *d, const struct manta__want *want,
                                   int depth, struct explanation *e, manta_error *err)
{
  manta_status st = MANTA_OK;
  for (int i = 0; i < d->inputs && st == MANTA_OK; i++) {
    struct manta__asked a;
    MANTA_TRY(manta__dataset_ask(d, i, want, &a, err));
    struct manta__want of = {a.columns, a.filter.type == MANTA_NIL ? NULL : &a.filter};
    st = explain(d->input[i], &of, d->inputs > 1 ? depth + 1 : depth, e, err);
    manta__asked_fini(&a);
  }
  return st;
}

// A filter that goes no further is a line of its own.
static manta_status explain_filter(const manta_dataset *d, const struct manta__want *want,
                                   bool *columns, int depth, struct explanation *e,
                                   manta_error *err)
{
  char *text;
  MANTA_TRY(manta__expr_uses(d->out, want->filter, columns, err));
  MANTA_TRY(manta__expr_print(want->filter, &text, err));
  manta_status st = manta__buf_printf(&e->b, "%*skeep rows where %s  [%s]\n", 2 * depth, "", text,
                                      e->sent ? "reader" : "worker");
  manta_free(text);
  return st;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, int depth,
                            struct explanation *e, manta_error *err)
{
  bool takes, *columns = manta__columns_flags(d, false);
  struct manta__want here = {columns, want->filter};
  if (!columns)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to explain a data set");
  for (int i = 0; i < d->out->count; i++)
    columns[i] = want->columns[i];
  manta_status st = manta__dataset_takes(d, want->filter, &takes, err);
  if (st == MANTA_OK && !takes) {
    st = explain_filter(d, want, columns, depth, e, err);
    here.filter = NULL;
  }
  if (st == MANTA_OK)
    st = put_line(d, &here, depth, e);
  if (st == MANTA_OK)
    st = explain_inputs(d, &here, depth, e, err);
  manta__free(columns);
  return st;
}

static bool can_be_sent(manta_dataset *d)
{
  manta_value plan = {0};
  bool sent = manta__plan_pack(d, &plan, NULL) == MANTA_OK;
  manta_value_fini(&plan);
  return sent;
}

manta_status manta_dataset_explain(manta_dataset *d, char **out, manta_error *err)
{
  struct explanation e = {0};
  MANTA_TRY(manta__late_split(&e.late, d, err));
  e.sent = can_be_sent(e.late.early);
  struct manta__want want = {.columns = manta__columns_flags(d, true)};
  if (!want.columns)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to explain a data set");
  manta__buf_init(&e.b, TEXT_MAX);
  manta_status st = explain(d, &want, 0, &e, err);
  if (st == MANTA_OK)
    st = manta__buf_terminate(&e.b);
  manta__free((void *)(uintptr_t)want.columns);
  if (st < 0) {
    manta__buf_fini(&e.b);
    return manta_error_set(err, st, "the plan of a data set cannot be printed");
  }
  *out = manta__buf_release(&e.b, NULL);
  return MANTA_OK;
}
