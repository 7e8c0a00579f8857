/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/descend.h - a local minimum of a smooth function inside of a box: L-BFGS (Nocedal, 1980)
 * with projected steps.
 */
#ifndef MANTA_TUNE_DESCEND_H
#define MANTA_TUNE_DESCEND_H

#define MANTA__DESCEND_MEMORY 8

/* The value at x (n), and the gradient there in `grad`; INFINITY where there is none. */
typedef double (*manta__slope_fn)(void *ctx, const double *x, double *grad);

struct manta__descent {
  manta__slope_fn slope;
  void *ctx;
  int n;
  double low, high; /* of every coordinate that has a gradient; may be infinite */
  int steps;        /* at most */
  double *room;     /* (n, 2 MANTA__DESCEND_MEMORY + 6) of scratch */
};

/* Moves x (n) downhill; returns the value there. x is never worse than it was. */
double manta__descend(const struct manta__descent *to, double *x);

#endif
