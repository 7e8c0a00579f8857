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
 * (2) Which are the best is kept up to date as trials end; nothing is sorted.
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
  uint64_t good[MOST_GOOD]; /* numbers of the best samples, best first */
  double good_value[MOST_GOOD];
  int good_count;
  const struct manta__sample **picked; /* room for MOST_GOOD + MOST_BAD */
  double *candidate;
};

static struct tpe *tpe_of(struct manta__searcher *s)
{
  return (struct tpe *)(void *)s;
}

static manta_status init_tpe(struct manta__searcher *s, manta_error *err)
{
  struct tpe *t = tpe_of(s);
  size_t dims = (size_t)t->h.space->count;
  t->picked = manta__malloc(sizeof *t->picked * (MOST_GOOD + MOST_BAD));
  t->candidate = manta__malloc(sizeof *t->candidate * (dims ? dims : 1));
  if (!t->picked || !t->candidate)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a searcher");
  return MANTA_OK;
}

static void fini_tpe(struct manta__searcher *s)
{
  manta__free(tpe_of(s)->picked);
  manta__free(tpe_of(s)->candidate);
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
  t->good[at] = ended->number;
  t->good_value[at] = ended->value;
  if (t->good_count < MOST_GOOD)
    t->good_count++;
}

static bool is_good(const struct tpe *t, uint64_t number, int good)
{
  for (int i = 0; i < good; i++)
    if (t->good[i] == number)
      return true;
  return false;
}

/* The good ones, or the others, oldest first; returns how many. */
static int pick(struct tpe *t, bool want_good, int good)
{
  int most = want_good ? good : MOST_BAD, n = 0;
  for (int i = t->h.count - 1; i >= 0 && n < most; i--)
    if (is_good(t, t->h.samples[i].number, good) == want_good)
      t->picked[n++] = &t->h.samples[i];
  for (int i = 0; i < n / 2; i++) {
    const struct manta__sample *other = t->picked[i];
    t->picked[i] = t->picked[n - 1 - i];
    t->picked[n - 1 - i] = other;
  }
  return n;
}

static void choose(struct tpe *t, const struct manta__parzen *good, const struct manta__parzen *bad,
                   uint64_t number, double *point)
{
  struct manta__rng rng = manta__rng_of(t->h.config.seed, number);
  int candidates = t->h.config.candidates ? t->h.config.candidates : CANDIDATES;
  double best = -INFINITY;
  size_t bytes = sizeof *point * (size_t)t->h.space->count;
  for (int i = 0; i < candidates; i++) {
    manta__parzen_draw(good, &rng, t->candidate);
    double gain = manta__parzen_log(good, t->candidate) - manta__parzen_log(bad, t->candidate);
    if (i == 0 || gain > best) {
      best = gain;
      memcpy(point, t->candidate, bytes);
    }
  }
}

static manta_status propose_tpe(struct manta__searcher *s, uint64_t number, double *point,
                                manta_error *err)
{
  struct tpe *t = tpe_of(s);
  if (t->h.ended < (t->h.config.startup ? t->h.config.startup : STARTUP)) {
    manta__search_draw(&t->h, number, point);
    return MANTA_OK;
  }
  int tenth = (t->h.ended + 9) / 10, good = tenth < MOST_GOOD ? tenth : MOST_GOOD;
  struct manta__parzen above, below;
  int n = pick(t, true, good);
  MANTA_TRY(manta__parzen_init(&below, t->h.space, t->picked, n, err));
  n = pick(t, false, good);
  manta_status st = manta__parzen_init(&above, t->h.space, t->picked, n, err);
  if (st >= 0) {
    choose(t, &below, &above, number, point);
    manta__parzen_fini(&above);
  }
  manta__parzen_fini(&below);
  return st;
}

const struct manta__searcher_ops manta__tpe_search = {
    .name = "tpe",
    .size = sizeof(struct tpe),
    .init = init_tpe,
    .propose = propose_tpe,
    .learn = learn_tpe,
    .fini = fini_tpe,
};
