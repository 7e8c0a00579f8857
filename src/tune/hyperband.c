/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/hyperband.c - HyperBand (Li and others, 2017): brackets of trials that pause at a rung until
 * all of them are there; then the best 1/factor go on and the others end.
 *
 * The brackets of a band trade the number of their trials against the time of the first rung: the
 * first one has factor^s trials that are looked at after max_time / factor^s, the last a few that
 * run to the end. Trials fill one bracket after the other, and one band after the other.
 *
 * (1) A bracket is looked at when it is full, or no more trials will come, and all its trials that
 *     live have paused. A trial that ends in any way makes it be looked at again.
 * (2) At least one trial of it goes on: a bracket never ends with nobody at the last rung.
 */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "tune/scheduler.h"

#define MAX_TIME 81
#define FACTOR   3

enum entry_state { RUNNING, PAUSED, ENDED };

struct entry {
  uint64_t bracket;
  enum entry_state state;
  double value;
};

struct band_bracket {
  uint64_t first, filled, size; /* trials are numbered one after the other */
  uint64_t live, paused;
  double rung;
};

struct hyperband {
  struct manta__schedule base;
  double max_time, factor;
  int widest; /* brackets of a band, less one */
  bool closed;
  struct manta__grow entries;   /* of struct entry, by trial */
  struct manta__grow brackets;  /* of struct band_bracket */
  struct manta__grow decisions; /* made and not yet asked for */
  uint64_t asked;
  struct manta__grow order; /* of uint64_t: scratch */
};

static struct hyperband *hyperband_of(struct manta__scheduler *s)
{
  return (struct hyperband *)(void *)s;
}

static manta_status init_hyperband(struct manta__scheduler *s,
                                   const struct manta__schedule_config *c, manta_error *err)
{
  (void)err;
  struct hyperband *h = hyperband_of(s);
  h->max_time = c->max_time > 0 ? c->max_time : MAX_TIME;
  h->factor = c->factor > 0 ? c->factor : FACTOR;
  double grace = c->grace > 0 ? c->grace : 1;
  while (h->max_time / pow(h->factor, h->widest + 1) >= grace * (1 - 1e-9))
    h->widest++;
  return MANTA_OK;
}

static void fini_hyperband(struct manta__scheduler *s)
{
  struct hyperband *h = hyperband_of(s);
  manta__free(h->entries.items);
  manta__free(h->brackets.items);
  manta__free(h->decisions.items);
  manta__free(h->order.items);
}

static struct entry *entry_of(const struct hyperband *h, uint64_t trial)
{
  return &((struct entry *)h->entries.items)[trial];
}

static struct band_bracket *bracket_at(const struct hyperband *h, uint64_t i)
{
  return &((struct band_bracket *)h->brackets.items)[i];
}

/* --- filling ---------------------------------------------------------------------------------- */

static manta_status open_bracket(struct hyperband *h, uint64_t first, manta_error *err)
{
  uint64_t n = h->brackets.count;
  int s = h->widest - (int)(n % (uint64_t)(h->widest + 1));
  MANTA_TRY(manta__grow_to(&h->brackets, n + 1, sizeof(struct band_bracket), err));
  double times = pow(h->factor, s);
  *bracket_at(h, n) =
      (struct band_bracket){.first = first,
                            .size = (uint64_t)ceil((h->widest + 1.0) / (s + 1) * times - 1e-9),
                            .rung = h->max_time / times};
  return MANTA_OK;
}

static manta_status begin_hyperband(struct manta__scheduler *s, uint64_t trial, manta_error *err)
{
  struct hyperband *h = hyperband_of(s);
  uint64_t n = h->brackets.count;
  MANTA_TRY(manta__grow_to(&h->order, trial + 1, sizeof(uint64_t), err));
  MANTA_TRY(manta__grow_to(&h->entries, trial + 1, sizeof(struct entry), err));
  if (n == 0 || bracket_at(h, n - 1)->filled == bracket_at(h, n - 1)->size)
    MANTA_TRY(open_bracket(h, trial, err));
  n = h->brackets.count;
  struct band_bracket *b = bracket_at(h, n - 1);
  b->filled++;
  b->live++;
  *entry_of(h, trial) = (struct entry){.bracket = n - 1};
  return MANTA_OK;
}

/* --- a rung ----------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b, void *ctx)
{
  const struct hyperband *h = ctx;
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  double u = entry_of(h, x)->value, v = entry_of(h, y)->value;
  if (u != v)
    return u < v ? -1 : 1;
  return x < y ? -1 : x > y;
}

static void decide(struct hyperband *h, uint64_t trial, enum manta__verdict verdict)
{
  struct manta__decision *all = h->decisions.items;
  all[h->decisions.count++] = (struct manta__decision){.trial = trial, .verdict = verdict};
  entry_of(h, trial)->state = verdict == MANTA__GO_ON ? RUNNING : ENDED;
}

/* Room was made by report_hyperband, so that a death can be told without memory. */
static void look_at(struct hyperband *h, struct band_bracket *b)
{
  bool full = b->filled == b->size || h->closed;
  if (!full || b->live == 0 || b->paused < b->live)
    return;
  uint64_t *order = h->order.items, n = 0;
  for (uint64_t i = b->first; i < b->first + b->filled; i++)
    if (entry_of(h, i)->state == PAUSED)
      order[n++] = i;
  qsort_r(order, n, sizeof *order, by_value, h);
  uint64_t keep = (uint64_t)((double)n / h->factor);
  keep = keep ? keep : 1;
  for (uint64_t i = 0; i < n; i++)
    decide(h, order[i], i < keep ? MANTA__GO_ON : MANTA__STOP);
  b->live = keep;
  b->paused = 0;
  b->rung *= h->factor;
}

static manta_status report_hyperband(struct manta__scheduler *s, double time, double value,
                                     struct manta__decision *d, manta_error *err)
{
  struct hyperband *h = hyperband_of(s);
  struct entry *e = entry_of(h, d->trial);
  struct band_bracket *b = bracket_at(h, e->bracket);
  if (time >= h->max_time * (1 - 1e-9)) {
    d->verdict = MANTA__STOP;
    return MANTA_OK;
  }
  if (e->state != RUNNING || time < b->rung * (1 - 1e-9))
    return MANTA_OK;
  uint64_t made = h->decisions.count, most = made + h->entries.count;
  MANTA_TRY(manta__grow_to(&h->decisions, most, sizeof(struct manta__decision), err));
  h->decisions.count = made;
  e->value = value;
  e->state = PAUSED;
  b->paused++;
  d->verdict = MANTA__PAUSE;
  look_at(h, b);
  return MANTA_OK;
}

static void end_hyperband(struct manta__scheduler *s, uint64_t trial)
{
  struct hyperband *h = hyperband_of(s);
  struct entry *e = entry_of(h, trial);
  struct band_bracket *b = bracket_at(h, e->bracket);
  if (e->state == ENDED)
    return;
  b->live--;
  b->paused -= e->state == PAUSED;
  e->state = ENDED;
  look_at(h, b);
}

static void close_hyperband(struct manta__scheduler *s)
{
  struct hyperband *h = hyperband_of(s);
  h->closed = true;
  for (uint64_t i = 0; i < h->brackets.count; i++)
    look_at(h, bracket_at(h, i));
}

static bool next_hyperband(struct manta__scheduler *s, struct manta__decision *d)
{
  struct hyperband *h = hyperband_of(s);
  if (h->asked == h->decisions.count) {
    h->asked = h->decisions.count = 0;
    return false;
  }
  *d = ((struct manta__decision *)h->decisions.items)[h->asked++];
  return true;
}

const struct manta__scheduler_ops manta__hyperband_schedule = {
    .name = "hyperband",
    .size = sizeof(struct hyperband),
    .init = init_hyperband,
    .begin = begin_hyperband,
    .report = report_hyperband,
    .end = end_hyperband,
    .close = close_hyperband,
    .next = next_hyperband,
    .fini = fini_hyperband,
};
