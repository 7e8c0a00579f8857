/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/parzen.h - a density over points: one kernel around each of some samples, and a wide one
 * over the whole space, the prior. A kernel is a product over the dimensions: a normal distribution
 * cut off at the ends of a range, or for a choice most of the weight on the option that it has. A
 * dimension that does not count in a sample has the prior's density in its kernel.
 */
#ifndef MANTA_TUNE_PARZEN_H
#define MANTA_TUNE_PARZEN_H

#include "base/rng.h"
#include "tune/searcher.h"

struct manta__parzen {
  const struct manta__space *space;
  int kernels;     /* the last one is the prior */
  double *weights; /* they sum up to 1 */
  double *base;    /* by kernel: logarithm of its weight */
  double *centre;  /* by dimension, then kernel: on the scale, or an option; NaN: the prior's */
  double *mass;    /* likewise: logarithm of what divides the normal density */
  double *sigma;   /* likewise: width */
  double *terms;   /* by kernel: scratch */
};

/* Around `n` samples, the oldest first: the 25 newest weigh the same, older ones less. */
manta_status manta__parzen_init(struct manta__parzen *p, const struct manta__space *space,
                                const struct manta__sample *const *samples, int n,
                                manta_error *err);
void manta__parzen_fini(struct manta__parzen *p);

void manta__parzen_draw(const struct manta__parzen *p, struct manta__rng *rng, double *point);
/* The logarithm of the density at a point. */
double manta__parzen_log(const struct manta__parzen *p, const double *point);

#endif
