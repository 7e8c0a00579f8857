/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/searcher.h - proposes the point of the next trial out of what earlier ones have reached.
 *
 * (1) A proposal follows from seed, number and the calls so far: who makes the same calls again, as
 *     an experiment that is resumed does from its log, gets the same points.
 * (2) Values are to be minimized; whoever maximizes turns the sign.
 * (3) Trials that were proposed and have not ended count as bad ones, so that several that run at
 *     once do not all try the same.
 */
#ifndef MANTA_TUNE_SEARCHER_H
#define MANTA_TUNE_SEARCHER_H

#include "tune/space.h"

struct manta__searcher; /* begins with a struct manta__search */

struct manta__search_config {
  uint64_t seed;
  int startup;    /* trials at random before anything is concluded; 0: the searcher's own number */
  int candidates; /* points that are compared for a proposal; 0: the searcher's own number */
  int population; /* of a generation (CMA-ES); 0: by the number of dimensions */
  double sigma;   /* first step size (CMA-ES), as a part of the range; 0: a sixth */
};

/* A trial that has been proposed. */
struct manta__sample {
  uint64_t number;
  double value; /* NaN: it has not ended; INFINITY: it failed */
  double *point;
};

/* What a searcher has seen, in the order of the proposals. */
struct manta__search {
  const struct manta__searcher_ops *ops;
  const struct manta__space *space;
  struct manta__search_config config;
  struct manta__sample *samples;
  int count, cap;
  int ended; /* of those: with a value */
};

struct manta__searcher_ops {
  const char *name;
  size_t size; /* of its struct */
  bool takes_grids;
  manta_status (*init)(struct manta__searcher *s, manta_error *err); /* or NULL, as the others */
  /* Fills in every dimension that counts; those of grids have been. */
  manta_status (*propose)(struct manta__searcher *s, uint64_t number, double *point,
                          manta_error *err);
  void (*learn)(struct manta__searcher *s, const struct manta__sample *ended);
  void (*fini)(struct manta__searcher *s);
};

extern const struct manta__searcher_ops manta__random_search, manta__tpe_search,
    manta__cmaes_search, manta__gp_search;

/* name: "random", "tpe", "cmaes", "gp". `space` is borrowed and must live as long. MANTA_EINVAL:
 * there is no such searcher, or it can't search this space; the message says why. */
manta_status manta__searcher_create(struct manta__searcher **out, const char *name,
                                    const struct manta__space *space,
                                    const struct manta__search_config *config, manta_error *err);
void manta__searcher_destroy(struct manta__searcher *s); /* NULL is fine */

/* The point of trial `number`, into `point`, which has room for all dimensions. Numbers rise. */
manta_status manta__searcher_propose(struct manta__searcher *s, uint64_t number, double *point,
                                     manta_error *err);
/* That trial reached `value`; NaN or infinite: it failed, and counts as worse than all others. A
 * number that was never proposed, or has ended, is ignored. */
void manta__searcher_observe(struct manta__searcher *s, uint64_t number, double value);
/* A trial that somebody else has chosen the point of, and its value. */
manta_status manta__searcher_add(struct manta__searcher *s, uint64_t number, const double *point,
                                 double value, manta_error *err);

/* --- for searchers ---------------------------------------------------------------------------- */

static inline struct manta__search *manta__search_of(struct manta__searcher *s)
{
  return (struct manta__search *)(void *)s;
}

/* At random, as `random` does. */
void manta__search_draw(const struct manta__search *h, uint64_t number, double *point);
/* The ended samples, best first, into `order`, which has room for all of them; of equal ones the
 * earlier first. Returns how many. */
int manta__search_rank(const struct manta__search *h, const struct manta__sample **order);

#endif
