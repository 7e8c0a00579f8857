/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/scheduler.c - schedulers by name, and the one that decides nothing.
 */
#include "tune/scheduler.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

static const struct manta__scheduler_ops *const all[] = {
    &manta__fifo_schedule, &manta__asha_schedule, &manta__median_schedule,
    &manta__hyperband_schedule, &manta__pbt_schedule};

static const struct manta__scheduler_ops *ops_of(const struct manta__scheduler *s)
{
  return ((const struct manta__schedule *)(const void *)s)->ops;
}

static manta_status check(const struct manta__schedule_config *c, manta_error *err)
{
  if (!(c->max_time >= 0) || !(c->grace >= 0) || !(c->interval >= 0))
    return manta_error_set(err, MANTA_EINVAL, "times of a scheduler are not negative");
  if (c->max_time > 0 && c->grace > c->max_time)
    return manta_error_set(err, MANTA_EINVAL, "the grace period, %g, is longer than a trial, %g",
                           c->grace, c->max_time);
  if (c->factor != 0 && !(c->factor > 1))
    return manta_error_set(err, MANTA_EINVAL, "the reduction factor is more than 1, not %g",
                           c->factor);
  if (!(c->quantile >= 0 && c->quantile <= 0.5))
    return manta_error_set(err, MANTA_EINVAL,
                           "the quantile is between 0 and a half, not %g: nobody can be among the "
                           "best and among the worst",
                           c->quantile);
  if (!(c->resample >= 0 && c->resample <= 1))
    return manta_error_set(err, MANTA_EINVAL, "a probability is between 0 and 1, not %g",
                           c->resample);
  return MANTA_OK;
}

manta_status manta__scheduler_create(struct manta__scheduler **out, const char *name,
                                     const struct manta__schedule_config *config, manta_error *err)
{
  MANTA_TRY(check(config, err));
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (strcmp(all[i]->name, name) != 0)
      continue;
    struct manta__scheduler *s = manta__calloc(1, all[i]->size);
    if (!s)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for a scheduler");
    ((struct manta__schedule *)(void *)s)->ops = all[i];
    manta_status st = all[i]->init ? all[i]->init(s, config, err) : MANTA_OK;
    if (st < 0)
      manta__scheduler_destroy(s);
    else
      *out = s;
    return st;
  }
  return manta_error_set(err, MANTA_EINVAL,
                         "no scheduler is called \"%s\"\nhint: there are fifo, asha, median, "
                         "hyperband, pbt, pb2",
                         name);
}

void manta__scheduler_destroy(struct manta__scheduler *s)
{
  if (!s)
    return;
  if (ops_of(s)->fini)
    ops_of(s)->fini(s);
  manta__free(s);
}

manta_status manta__scheduler_begin(struct manta__scheduler *s, uint64_t trial, manta_error *err)
{
  return ops_of(s)->begin ? ops_of(s)->begin(s, trial, err) : MANTA_OK;
}

manta_status manta__scheduler_report(struct manta__scheduler *s, uint64_t trial, double time,
                                     double value, struct manta__decision *out, manta_error *err)
{
  *out = (struct manta__decision){.trial = trial, .verdict = MANTA__GO_ON};
  if (!ops_of(s)->report)
    return MANTA_OK;
  return ops_of(s)->report(s, time, isnan(value) ? INFINITY : value, out, err);
}

void manta__scheduler_saved(struct manta__scheduler *s, uint64_t trial)
{
  if (ops_of(s)->saved)
    ops_of(s)->saved(s, trial);
}

void manta__scheduler_copied(struct manta__scheduler *s, uint64_t trial)
{
  if (ops_of(s)->copied)
    ops_of(s)->copied(s, trial);
}

void manta__scheduler_end(struct manta__scheduler *s, uint64_t trial)
{
  if (ops_of(s)->end)
    ops_of(s)->end(s, trial);
}

void manta__scheduler_close(struct manta__scheduler *s)
{
  if (ops_of(s)->close)
    ops_of(s)->close(s);
}

bool manta__scheduler_next(struct manta__scheduler *s, struct manta__decision *out)
{
  return ops_of(s)->next && ops_of(s)->next(s, out);
}

manta_status manta__grow_to(struct manta__grow *g, uint64_t count, size_t size, manta_error *err)
{
  if (count > g->cap) {
    uint64_t cap = g->cap ? 2 * g->cap : 16;
    cap = cap < count ? count : cap;
    void *items = manta__realloc(g->items, cap * size);
    if (!items)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for a scheduler's trials");
    g->items = items;
    g->cap = cap;
  }
  if (count > g->count) {
    memset((char *)g->items + g->count * size, 0, (count - g->count) * size);
    g->count = count;
  }
  return MANTA_OK;
}

const struct manta__scheduler_ops manta__fifo_schedule = {.name = "fifo",
                                                          .size = sizeof(struct manta__schedule)};
