/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/tpe.c - the tree-structured Parzen estimator (Bergstra and others, 2011), over all
 * dimensions at once (Falkner and others, 2018).
 *
 * The samples are divided into the best tenth, 25 at most, and the others, to which those that have
 * not ended belong. Each part gives a density; of some points drawn from that of the good ones the
 * one is proposed at which it is largest against the other.
 *
 * (1) Of the others the newest thousand count: the cost of a proposal has a ceiling.
 * (2) The best ones, and both densities, are kept up to date: a proposal costs as much as what has
 *     changed since the one before, and the comparison of its candidates.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "tune/parzen.h"

#define STARTUP    10
#define CANDIDATES 24
#define MOST_GOOD  25
#define MOST_BAD   1000

struct tpe {
  struct manta__search h;
  int good[MOST_GOOD]; /* indices of the best samples, best first */
  double good_value[MOST_GOOD];
  int good_count;
  struct manta__parzen near, far; /* around the good ones, and the others */
  int near_of[MOST_GOOD];         /* which samples are in `near` */
  int near_count;
  int seen; /* samples that are in either, or were */
  double *candidates, *gains;
  int candidate_count;
};

static struct tpe *tpe_of(struct manta__searcher *s)
{
  return (struct tpe *)(void *)s;
}

static manta_status init_tpe(struct manta__searcher *s, manta_error *err)
{
  struct tpe *t = tpe_of(s);
  size_t dims = (size_t)t->h.space->count;
  int asked = t->h.config.candidates;
  size_t n = (size_t)(t->candidate_count = asked ? asked : CANDIDATES);
  t->candidates = manta__malloc(sizeof *t->candidates * n * (dims ? dims : 1));
  t->gains = manta__malloc(sizeof *t->gains * 2 * n);
  if (!t->candidates || !t->gains)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a searcher");
  MANTA_TRY(manta__parzen_init(&t->near, t->h.space, MOST_GOOD, err));
  return manta__parzen_init(&t->far, t->h.space, MOST_BAD + 1, err);
}

static void fini_tpe(struct manta__searcher *s)
{
  struct tpe *t = tpe_of(s);
  manta__free(t->candidates);
  manta__free(t->gains);
  manta__parzen_fini(&t->near);
  manta__parzen_fini(&t->far);
}

static void learn_tpe(struct manta__searcher *s, const struct manta__sample *ended)
{
  struct tpe *t = tpe_of(s);
  int at = t->good_count;
  while (at > 0 && ended->value < t->good_value[at - 1])
    at--;
  if (at == MOST_GOOD)
    return;
  int moved = (t->good_count < MOST_GOOD ? t->good_count : MOST_GOOD - 1) - at;
  memmove(&t->good[at + 1], &t->good[at], sizeof *t->good * (size_t)moved);
  memmove(&t->good_value[at + 1], &t->good_value[at], sizeof *t->good_value * (size_t)moved);
  t->good[at] = (int)(ended - t->h.samples);
  t->good_value[at] = ended->value;
  if (t->good_count < MOST_GOOD)
    t->good_count++;
}

static bool is_in(const int *samples, int n, int sample)
{
  for (int i = 0; i < n; i++)
    if (samples[i] == sample)
      return true;
  return false;
}

static void put_far(struct tpe *t, int sample)
{
  manta__parzen_add(&t->far, sample, t->h.samples[sample].point);
  if (t->far.kernels - 1 > MOST_BAD)
    manta__parzen_drop_oldest(&t->far);
}

/* Both densities after what has come since the last proposal; the `good` best are near. */
static void divide(struct tpe *t, int good)
{
  bool same = good == t->near_count;
  const double *points[MOST_GOOD];
  for (int i = 0; i < good; i++) {
    points[i] = t->h.samples[t->good[i]].point;
    if (is_in(t->near_of, t->near_count, t->good[i]))
      continue;
    manta__parzen_drop(&t->far, t->good[i]);
    same = false;
  }
  for (int i = 0; i < t->near_count; i++)
    if (!is_in(t->good, good, t->near_of[i]))
      put_far(t, t->near_of[i]);
  int first = t->h.count - MOST_BAD - MOST_GOOD; // older ones would be dropped again
  for (int i = t->seen > first ? t->seen : first; i < t->h.count; i++)
    if (!is_in(t->good, good, i))
      put_far(t, i);
  t->seen = t->h.count;
  manta__parzen_age(&t->far, t->h.count - 1);
  if (same)
    return;
  manta__parzen_surround(&t->near, points, good);
  memcpy(t->near_of, t->good, sizeof *t->good * (size_t)good);
  t->near_count = good;
}

static void choose(struct tpe *t, uint64_t number, double *point)
{
  struct manta__rng rng = manta__rng_of(t->h.config.seed, number);
  int n = t->candidate_count, best = 0;
  size_t dims = (size_t)t->h.space->count;
  double *near = t->gains, *far = t->gains + n;
  for (int i = 0; i < n; i++)
    manta__parzen_draw(&t->near, &rng, t->candidates + (size_t)i * dims);
  manta__parzen_log(&t->near, t->candidates, n, near);
  manta__parzen_log(&t->far, t->candidates, n, far);
  for (int i = 1; i < n; i++)
    best = near[i] - far[i] > near[best] - far[best] ? i : best;
  memcpy(point, t->candidates + (size_t)best * dims, sizeof *point * dims);
}

static manta_status propose_tpe(struct manta__searcher *s, uint64_t number, double *point,
                                manta_error *err)
{
  (void)err;
  struct tpe *t = tpe_of(s);
  if (t->h.ended < (t->h.config.startup ? t->h.config.startup : STARTUP)) {
    manta__search_draw(&t->h, number, point);
    return MANTA_OK;
  }
  int tenth = (t->h.ended + 9) / 10;
  divide(t, tenth < MOST_GOOD ? tenth : MOST_GOOD);
  choose(t, number, point);
  return MANTA_OK;
}

const struct manta__searcher_ops manta__tpe_search = {
    .name = "tpe",
    .size = sizeof(struct tpe),
    .init = init_tpe,
    .propose = propose_tpe,
    .learn = learn_tpe,
    .fini = fini_tpe,
};
