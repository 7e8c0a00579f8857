/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/asha.c - asynchronous successive halving (Li and others, 2018), in the form that stops: a
 * trial that reaches a rung goes on if it is among the best 1/factor of those that have.
 *
 * Rungs are at grace × factor^k. Nobody waits: who comes first to a rung always goes on. With
 * several brackets, of which a trial gets one by chance, the first rung of the b-th one is
 * at grace × factor^b, and each has values of its own.
 *
 * (1) The values of a rung are sorted: a report is a search and a move of memory.
 * (2) A report that is the first past several rungs counts for the highest one alone.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "tune/scheduler.h"

#define MAX_TIME 100
#define FACTOR   4

struct rung {
  double time;
  struct manta__grow values; /* of double, sorted */
};

struct asha_bracket {
  struct rung *rungs;
  int count;
};

struct asha {
  struct manta__schedule base;
  double max_time, factor;
  uint64_t seed;
  struct asha_bracket *brackets;
  int count;
  struct manta__grow passed; /* of int, by trial: rungs of its bracket that are behind it */
};

static struct asha *asha_of(struct manta__scheduler *s)
{
  return (struct asha *)(void *)s;
}

static manta_status make_rungs(struct asha *a, struct asha_bracket *b, double first,
                               manta_error *err)
{
  int n = 0;
  for (double t = first; t < a->max_time; t *= a->factor)
    n++;
  b->rungs = manta__calloc((size_t)n + 1, sizeof *b->rungs);
  if (!b->rungs)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a scheduler");
  b->count = n;
  for (int i = 0; i < n; i++, first *= a->factor)
    b->rungs[i].time = first;
  return MANTA_OK;
}

static manta_status init_asha(struct manta__scheduler *s, const struct manta__schedule_config *c,
                              manta_error *err)
{
  struct asha *a = asha_of(s);
  double grace = c->grace > 0 ? c->grace : 1;
  a->max_time = c->max_time > 0 ? c->max_time : MAX_TIME;
  a->factor = c->factor > 0 ? c->factor : FACTOR;
  a->seed = c->seed;
  int brackets = c->brackets > 0 ? c->brackets : 1;
  a->brackets = manta__calloc((size_t)brackets, sizeof *a->brackets);
  if (!a->brackets)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a scheduler");
  for (; a->count < brackets; grace *= a->factor)
    MANTA_TRY(make_rungs(a, &a->brackets[a->count++], grace, err));
  return MANTA_OK;
}

static void fini_asha(struct manta__scheduler *s)
{
  struct asha *a = asha_of(s);
  for (int i = 0; i < a->count; i++) {
    for (int k = 0; k < a->brackets[i].count; k++)
      manta__free(a->brackets[i].rungs[k].values.items);
    manta__free(a->brackets[i].rungs);
  }
  manta__free(a->brackets);
  manta__free(a->passed.items);
}

static manta_status begin_asha(struct manta__scheduler *s, uint64_t trial, manta_error *err)
{
  return manta__grow_to(&asha_of(s)->passed, trial + 1, sizeof(int), err);
}

/* By chance; the more rungs a bracket has, the more trials: most of them end early. */
static struct asha_bracket *bracket_of(struct asha *a, uint64_t trial)
{
  struct manta__rng rng = manta__rng_of(a->seed, trial);
  uint64_t total = 0;
  for (int i = 0; i < a->count; i++)
    total += (uint64_t)a->brackets[i].count + 1;
  uint64_t at = manta__rng_below(&rng, total);
  for (int i = 0; i < a->count; i++) {
    uint64_t share = (uint64_t)a->brackets[i].count + 1;
    if (at < share)
      return &a->brackets[i];
    at -= share;
  }
  return &a->brackets[0];
}

/* The value that `part` of the sorted values do not exceed, between two of them in proportion. */
static double quantile(const double *values, uint64_t n, double part)
{
  double at = part * (double)(n - 1);
  uint64_t below = (uint64_t)at;
  if (below + 1 >= n || isinf(values[below + 1]))
    return values[below];
  return values[below] + (at - (double)below) * (values[below + 1] - values[below]);
}

static manta_status insert(struct rung *r, double value, manta_error *err)
{
  uint64_t n = r->values.count, from = 0, to = n;
  MANTA_TRY(manta__grow_to(&r->values, n + 1, sizeof(double), err));
  double *values = r->values.items;
  while (from < to) {
    uint64_t mid = from + (to - from) / 2;
    if (values[mid] <= value)
      from = mid + 1;
    else
      to = mid;
  }
  memmove(&values[from + 1], &values[from], sizeof *values * (n - from));
  values[from] = value;
  return MANTA_OK;
}

static manta_status report_asha(struct manta__scheduler *s, double time, double value,
                                struct manta__decision *d, manta_error *err)
{
  struct asha *a = asha_of(s);
  struct asha_bracket *b = bracket_of(a, d->trial);
  if (time >= a->max_time) {
    d->verdict = MANTA__STOP;
    return MANTA_OK;
  }
  int *passed = &((int *)a->passed.items)[d->trial], at = b->count - 1;
  while (at >= *passed && time < b->rungs[at].time)
    at--;
  if (at < *passed)
    return MANTA_OK;
  *passed = at + 1;
  struct rung *r = &b->rungs[at];
  if (r->values.count && value > quantile(r->values.items, r->values.count, 1 / a->factor))
    d->verdict = MANTA__STOP;
  return insert(r, value, err);
}

const struct manta__scheduler_ops manta__asha_schedule = {
    .name = "asha",
    .size = sizeof(struct asha),
    .init = init_asha,
    .begin = begin_asha,
    .report = report_asha,
    .fini = fini_asha,
};
