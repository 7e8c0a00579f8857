/* SPDX-License-Identifier: Apache-2.0 */
#include "data/plan/late.h"

#include "data/plan/apply.h"

// It says when rows come, and not what they are.
static bool only_orders(const manta_dataset *d)
{
  return d->inputs == 1 && !d->step->scan && !d->step->ask && d->step->pack;
}

static bool is_map(const manta_dataset *d)
{
  const struct manta__apply *a = (const struct manta__apply *)d;
  return d->step == &manta__step_apply && a->c.kind == MANTA_APPLY_MAP && a->c.each_row;
}

static bool can_wait(const manta_dataset *d)
{
  return d->step == &manta__step_apply ? is_map(d) : d->step->late != NULL;
}

manta_dataset *manta__late_rows(manta_dataset *d)
{
  while (only_orders(d))
    d = d->input[0];
  return d;
}

// The order of d over other rows.
static manta_status order_as(manta_dataset **out, const manta_dataset *d, manta_dataset *rows,
                             manta_error *err)
{
  manta_value options = {0};
  manta_dataset *in = NULL;
  if (!only_orders(d)) {
    *out = manta__dataset_ref(rows);
    return MANTA_OK;
  }
  MANTA_TRY(order_as(&in, d->input[0], rows, err));
  manta_status st = manta_value_set_map(&options);
  if (st == MANTA_OK)
    st = d->step->pack(d, &options, err);
  if (st == MANTA_OK)
    st = d->step->unpack(out, &in, 1, &options, err);
  manta_value_fini(&options);
  manta__dataset_unref(in);
  return st;
}

// Those that can wait, down to the deepest map: a choice of columns below it goes to the files.
static int find(manta_dataset *at, manta_dataset **found)
{
  int count = 0;
  for (int n = 0; n < MANTA__LATE_MAX && can_wait(at); at = at->input[0]) {
    found[n++] = at;
    if (is_map(at))
      count = n;
  }
  return count;
}

manta_status manta__late_split(struct manta__late *out, manta_dataset *d, manta_error *err)
{
  manta_dataset *at, *found[MANTA__LATE_MAX];
  manta_status st = MANTA_OK;
  *out = (struct manta__late){.early = d};
  at = manta__late_rows(d);
  if (!(out->count = find(at, found)))
    return MANTA_OK;
  for (int i = 0; i < out->count; i++)
    out->step[i] = found[out->count - 1 - i];
  pthread_mutex_lock(&d->lock); // one for all loaders: they share what is parsed
  if (!d->early)
    st = order_as(&d->early, d, out->step[0]->input[0], err);
  out->early = d->early;
  pthread_mutex_unlock(&d->lock);
  return st;
}

manta_dataset *manta__late_base(manta_dataset *d)
{
  while (only_orders(d) || d->step == &manta__step_project)
    d = d->input[0];
  return d;
}

bool manta__late_has(const struct manta__late *l, const manta_dataset *step)
{
  int i = 0;
  while (i < l->count && l->step[i] != step)
    i++;
  return i < l->count;
}

manta_status manta__late_do(const struct manta__late *l, manta_batch **batch, manta_error *err)
{
  for (int i = 0; i < l->count; i++) {
    manta_batch *in = *batch;
    *batch = NULL;
    manta_status st = l->step[i]->step->late(l->step[i], in, batch, err);
    manta_batch_destroy(in);
    if (st < 0)
      return st;
  }
  return MANTA_OK;
}
