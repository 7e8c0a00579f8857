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
  int kernels, cap;     /* the first one is the prior; kernels without order behind it */
  int *samples;         /* by kernel: index of its sample */
  const double **where; /* likewise: its point, borrowed */
  double *width;        /* by dimension, while all kernels have the same: on the scale */
  int width_of;         /* number of kernels that it is for */
  float *weights;       /* by kernel; 0 beyond the last one */
  float *base; /* likewise: logarithm of what divides it in the dimensions that always count */
  float *rows; /* by block of kernels, then dimension: centres, widths, masses */
  int *order;  /* scratch of surround */
  struct manta__parzen_term *terms; /* scratch of log */
};

/* For up to `cap` samples; it has none. MANTA_ENOMEM. */
manta_status manta__parzen_init(struct manta__parzen *p, const struct manta__space *space, int cap,
                                manta_error *err);
void manta__parzen_fini(struct manta__parzen *p);

/* Around these samples and no others, n of them: each kernel reaches in each dimension as far as
 * the farther of its neighbours. All weigh the same. */
void manta__parzen_surround(struct manta__parzen *p, const double *const *points, int n);

/* One sample more or less, of those whose kernels all have the same width; it follows from how many
 * there are. Samples are known by an index, newer ones by larger ones. */
void manta__parzen_add(struct manta__parzen *p, int sample, const double *point);
void manta__parzen_drop(struct manta__parzen *p, int sample); /* unknown ones are ignored */
void manta__parzen_drop_oldest(struct manta__parzen *p);
/* The 25 newest weigh the same, older ones less: before the density is asked for. */
void manta__parzen_age(struct manta__parzen *p, int newest);

void manta__parzen_draw(const struct manta__parzen *p, struct manta__rng *rng, double *point);
/* The logarithm of the density at `n` points (n, dimensions). */
void manta__parzen_log(const struct manta__parzen *p, const double *points, int n, double *out);

#endif
