/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/curve.h - one metric of one rank, drawn from at most so many buckets however long it is.
 *
 * (1) A bucket holds the values of `width` consecutive x (iterations, or seconds): their number,
 *     sum, least and greatest, so that no spike is lost. While width is 1 it is the values
 *     themselves.
 * (2) A point past the last bucket doubles the width: neighbours are merged. Adding a point is O(1)
 *     on average, and memory is bounded from the first point on.
 * (3) Values that are no numbers (NaN, infinities) are counted, not drawn.
 * (4) `generation` rises when buckets that were drawn before change otherwise than by further
 *     points in the last one.
 */
#ifndef MANTA_DASH_CURVE_H
#define MANTA_DASH_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#define MANTA__CURVE_BUCKETS 512 /* at most; a power of two */
#define MANTA__CURVE_FEWEST  64

struct manta__chart_bucket {
  double sum, min, max; /* of the n finite values */
  double t;             /* seconds, of its first point */
  uint32_t n, odd;      /* odd: values that are not finite */
};

struct manta__extreme {
  double value;
  int64_t x;
};

struct manta__curve {
  char *name;
  int rank;
  struct manta__chart_bucket *bucket;
  uint32_t count, cap, limit;      /* limit: buckets at most */
  int64_t base, width;             /* bucket i: base + i * width and on; base: the first x */
  int64_t last_x;                  /* the greatest x */
  double last;                     /* its value; NaN if that is not finite */
  struct manta__extreme low, high; /* over all points; valid if `finite` */
  uint64_t finite, odd;
  uint32_t generation;
};

/* Name is copied. {0} is none; fini it. */
manta_status manta__curve_init(struct manta__curve *s, const char *name, size_t len, int rank);
void manta__curve_fini(struct manta__curve *s);
/* x may repeat but not fall below the first one: such a point is left out. */
manta_status manta__curve_add(struct manta__curve *s, int64_t x, double t, double value);
/* Forgets points with an x above `to`. False: buckets are wider than one point, so that what is
 * left is not known exactly; then it is unchanged. */
bool manta__curve_rewind(struct manta__curve *s, int64_t to);
/* At most so many buckets from now on (a power of two). */
void manta__curve_set_limit(struct manta__curve *s, uint32_t limit);
/* Forgets the buckets, keeps last, low and high. */
void manta__curve_shed(struct manta__curve *s);
/* Forgets all points. */
void manta__curve_clear(struct manta__curve *s);

#endif
