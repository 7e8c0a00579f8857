/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/gp.h - a Gaussian process: what a function may look like between points at which it is
 * known.
 *
 * The kernel is Matérn's with nu = 5/2 and one length scale per dimension; two options of a choice
 * have the distance 1 from each other. Its parameters are those that make the values likely, with
 * priors that keep them within reason while there are few.
 */
#ifndef MANTA_TUNE_GP_H
#define MANTA_TUNE_GP_H

#include <stdbool.h>

#include <manta/status.h>

struct manta__gp {
  int dims;
  const bool *is_option; /* (dims), borrowed */
  int n, cap;
  double *x;      /* (n, dims) in [0, 1], or an option */
  double *y;      /* (n) standardized */
  double *params; /* (dims + 2) logarithms: inverse square length scales, variance, noise */
  double *factor; /* (n, n) of the covariance */
  double *alpha;  /* (n) its inverse times y */
  double *work;   /* (n, n) scratch */
  double *vec;    /* (dims + 2) scratch */
  double *room;   /* scratch of the descent */
};

/* For up to `cap` points. MANTA_ENOMEM. */
manta_status manta__gp_init(struct manta__gp *g, int dims, const bool *is_option, int cap,
                            manta_error *err);
void manta__gp_fini(struct manta__gp *g);

/* After g->n, g->x and g->y have been set: with the parameters that it has, or after `steps` of a
 * descent to likelier ones. */
void manta__gp_fit(struct manta__gp *g, int steps);

/* Mean and variance at x, and their gradients if those are not NULL (0 for options). */
void manta__gp_predict(const struct manta__gp *g, const double *x, double *mean, double *variance,
                       double *mean_grad, double *variance_grad);

#endif
