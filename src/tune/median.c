/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/median.c - the median stopping rule (Golovin and others, 2017): a trial ends if the best
 * that it has reached is worse than the median of what the others had reached on average by then.
 */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "tune/scheduler.h"

struct step {
  double time, sum; /* of all values up to it */
};

struct learning_curve {
  struct manta__grow steps;
  double best;
};

struct median {
  struct manta__schedule base;
  double grace, max_time;
  uint64_t least;
  struct manta__grow courses; /* by trial */
  struct manta__grow means;   /* of double: scratch */
};

static struct median *median_of(struct manta__scheduler *s)
{
  return (struct median *)(void *)s;
}

static manta_status init_median(struct manta__scheduler *s, const struct manta__schedule_config *c,
                                manta_error *err)
{
  (void)err;
  struct median *m = median_of(s);
  m->grace = c->grace > 0 ? c->grace : 1;
  m->max_time = c->max_time > 0 ? c->max_time : INFINITY;
  m->least = c->least_trials > 0 ? (uint64_t)c->least_trials : 3;
  return MANTA_OK;
}

static struct learning_curve *course_of(const struct median *m, uint64_t trial)
{
  return &((struct learning_curve *)m->courses.items)[trial];
}

static void fini_median(struct manta__scheduler *s)
{
  struct median *m = median_of(s);
  for (uint64_t i = 0; i < m->courses.count; i++)
    manta__free(course_of(m, i)->steps.items);
  manta__free(m->courses.items);
  manta__free(m->means.items);
}

static manta_status begin_median(struct manta__scheduler *s, uint64_t trial, manta_error *err)
{
  struct median *m = median_of(s);
  MANTA_TRY(manta__grow_to(&m->courses, trial + 1, sizeof(struct learning_curve), err));
  course_of(m, trial)->best = INFINITY;
  return MANTA_OK;
}

/* Its mean over all values up to `time`; NaN if it has not come so far. */
static double mean_at(const struct learning_curve *c, double time)
{
  const struct step *steps = c->steps.items;
  uint64_t from = 0, to = c->steps.count;
  if (to == 0 || steps[to - 1].time < time)
    return NAN;
  while (from < to) { // the last one that is not later
    uint64_t mid = from + (to - from) / 2;
    if (steps[mid].time <= time)
      from = mid + 1;
    else
      to = mid;
  }
  return from ? steps[from - 1].sum / (double)from : NAN;
}

static int rising(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Of the others; NaN if they are too few. */
static manta_status median_at(struct median *m, uint64_t trial, double time, double *out,
                              manta_error *err)
{
  MANTA_TRY(manta__grow_to(&m->means, m->courses.count, sizeof(double), err));
  double *means = m->means.items;
  size_t n = 0;
  for (uint64_t i = 0; i < m->courses.count; i++) {
    double mean = i == trial ? NAN : mean_at(course_of(m, i), time);
    if (!isnan(mean))
      means[n++] = mean;
  }
  *out = NAN;
  if (n < m->least)
    return MANTA_OK;
  qsort(means, n, sizeof *means, rising);
  *out = n % 2 ? means[n / 2] : (means[n / 2 - 1] + means[n / 2]) / 2;
  return MANTA_OK;
}

static manta_status report_median(struct manta__scheduler *s, double time, double value,
                                  struct manta__decision *d, manta_error *err)
{
  struct median *m = median_of(s);
  struct learning_curve *c = course_of(m, d->trial);
  uint64_t n = c->steps.count;
  MANTA_TRY(manta__grow_to(&c->steps, n + 1, sizeof(struct step), err));
  struct step *steps = c->steps.items;
  steps[n] = (struct step){time, (n ? steps[n - 1].sum : 0) + value};
  c->best = fmin(c->best, value);
  double middle = NAN;
  if (time >= m->grace)
    MANTA_TRY(median_at(m, d->trial, time, &middle, err));
  if (time >= m->max_time || (!isnan(middle) && c->best > middle))
    d->verdict = MANTA__STOP;
  return MANTA_OK;
}

const struct manta__scheduler_ops manta__median_schedule = {
    .name = "median",
    .size = sizeof(struct median),
    .init = init_median,
    .begin = begin_median,
    .report = report_median,
    .fini = fini_median,
};
