/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/pbt.c - population based training (Jaderberg and others, 2017): now and then a trial that is
 * among the worst takes over the state of one of the best, and a config like its own.
 *
 * (1) Only a trial that has saved a checkpoint is taken over from, and lives: its checkpoint is in
 *     memory, or on disk while it waits for its turn.
 * (2) With fewer than two trials that have reported there are neither best nor worst.
 * (3) A trial that was looked at yields: where a population is larger than the room for it, its
 *     members take turns, so that those of one age are compared.
 */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "tune/scheduler.h"

#define INTERVAL 60
#define QUANTILE 0.25

struct contender {
  double score, looked_at;
  bool live, scored, saved;
};

struct pbt {
  struct manta__schedule base;
  double interval, quantile, max_time, grace;
  uint64_t seed, copies;
  struct manta__grow members; /* by trial */
  struct manta__grow order;   /* of uint64_t: scratch */
};

static struct pbt *pbt_of(struct manta__scheduler *s)
{
  return (struct pbt *)(void *)s;
}

static struct contender *member_of(const struct pbt *p, uint64_t trial)
{
  return &((struct contender *)p->members.items)[trial];
}

static manta_status init_pbt(struct manta__scheduler *s, const struct manta__schedule_config *c,
                             manta_error *err)
{
  (void)err;
  struct pbt *p = pbt_of(s);
  p->interval = c->interval > 0 ? c->interval : INTERVAL;
  p->quantile = c->quantile > 0 ? c->quantile : QUANTILE;
  p->max_time = c->max_time > 0 ? c->max_time : INFINITY;
  p->grace = c->grace;
  p->seed = c->seed;
  return MANTA_OK;
}

static void fini_pbt(struct manta__scheduler *s)
{
  manta__free(pbt_of(s)->members.items);
  manta__free(pbt_of(s)->order.items);
}

static manta_status begin_pbt(struct manta__scheduler *s, uint64_t trial, manta_error *err)
{
  struct pbt *p = pbt_of(s);
  MANTA_TRY(manta__grow_to(&p->order, trial + 1, sizeof(uint64_t), err));
  MANTA_TRY(manta__grow_to(&p->members, trial + 1, sizeof(struct contender), err));
  *member_of(p, trial) = (struct contender){.live = true};
  return MANTA_OK;
}

static void saved_pbt(struct manta__scheduler *s, uint64_t trial)
{
  member_of(pbt_of(s), trial)->saved = true;
}

// What it saved before it was a copy is nobody's state any more.
static void copied_pbt(struct manta__scheduler *s, uint64_t trial)
{
  member_of(pbt_of(s), trial)->saved = false;
}

static void end_pbt(struct manta__scheduler *s, uint64_t trial)
{
  member_of(pbt_of(s), trial)->live = false;
}

static int by_score(const void *a, const void *b, void *ctx)
{
  const struct pbt *p = ctx;
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  double u = member_of(p, x)->score, v = member_of(p, y)->score;
  if (u != v)
    return u < v ? -1 : 1;
  return x < y ? -1 : x > y;
}

/* Whom the trial takes over from; false: it goes on as it is. */
static bool choose(struct pbt *p, uint64_t trial, uint64_t *from)
{
  uint64_t *order = p->order.items, n = 0, good = 0;
  for (uint64_t i = 0; i < p->members.count; i++)
    if (member_of(p, i)->live && member_of(p, i)->scored)
      order[n++] = i;
  qsort_r(order, n, sizeof *order, by_score, p);
  uint64_t part = (uint64_t)ceil((double)n * p->quantile);
  part = part < n / 2 ? part : n / 2;
  bool bad = false;
  for (uint64_t i = n - part; i < n; i++)
    bad |= order[i] == trial;
  for (uint64_t i = 0; i < part; i++)
    if (member_of(p, order[i])->saved)
      order[good++] = order[i];
  if (!bad || good == 0)
    return false;
  struct manta__rng rng = manta__rng_of(p->seed, p->copies++);
  *from = order[manta__rng_below(&rng, good)];
  return true;
}

static manta_status report_pbt(struct manta__scheduler *s, double time, double value,
                               struct manta__decision *d, manta_error *err)
{
  (void)err;
  struct pbt *p = pbt_of(s);
  struct contender *m = member_of(p, d->trial);
  if (time >= p->max_time) {
    d->verdict = MANTA__STOP;
    return MANTA_OK;
  }
  if (time < m->looked_at)
    m->looked_at = time; // as a copy it begins where the other one was
  if (time < p->grace || time - m->looked_at < p->interval)
    return MANTA_OK;
  m->looked_at = time;
  m->score = value;
  m->scored = true;
  if (choose(p, d->trial, &d->from))
    d->verdict = MANTA__COPY;
  d->yields = d->verdict == MANTA__GO_ON;
  return MANTA_OK;
}

const struct manta__scheduler_ops manta__pbt_schedule = {
    .name = "pbt",
    .size = sizeof(struct pbt),
    .init = init_pbt,
    .begin = begin_pbt,
    .report = report_pbt,
    .saved = saved_pbt,
    .copied = copied_pbt,
    .end = end_pbt,
    .fini = fini_pbt,
};

/* --- another config --------------------------------------------------------------------------- */

static double moved(const struct manta__dim *d, double x, struct manta__rng *rng)
{
  bool up = manta__rng_unit(rng) < 0.5;
  if (d->kind == MANTA__DIM_GRID)
    return x;
  if (d->kind == MANTA__DIM_CHOICE) {
    double to = x + (up ? 1 : -1);
    return to < 0 || to >= d->options ? x : to;
  }
  double to = x * (up ? 1.2 : 0.8);
  if (d->q > 0 && round(to / d->q) == round(x / d->q)) // too small a step to be seen
    to = x + (up ? d->q : -d->q);
  return manta__dim_from_scale(d, manta__dim_to_scale(d, to));
}

void manta__explore(const struct manta__space *sp, const double *from, const bool *fixed,
                    double resample, uint64_t seed, uint64_t number, double *point)
{
  struct manta__rng rng = manta__rng_of(~seed, number);
  for (int i = 0; i < sp->count; i++) {
    const struct manta__dim *d = &sp->dims[i];
    bool anew = manta__rng_unit(&rng) < resample && d->kind != MANTA__DIM_GRID;
    uint64_t stream = manta__rng_next(&rng);
    if (!manta__space_counts(sp, i, point))
      point[i] = NAN;
    else if (fixed && fixed[i] && !isnan(from[i]))
      point[i] = from[i];
    else if (anew || isnan(from[i])) // or its option was not chosen there
      point[i] = manta__space_draw_dim(sp, i, seed, stream);
    else
      point[i] = moved(d, from[i], &rng);
  }
}
