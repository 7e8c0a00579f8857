/* SPDX-License-Identifier: Apache-2.0
 *
 * view/series.h - the values of a metric over a run, few enough to draw.
 *
 * (1) A series has at most MANTA__BINS bins, whatever the length of the run: a bin stands for
 *     `stride` iterations, and keeps their least, largest and mean value.
 * (2) A rewind drops the bins behind it. The bin that it falls into is kept as it is.
 */
#ifndef MANTA_VIEW_SERIES_H
#define MANTA_VIEW_SERIES_H

#include "view/stats.h"

#define MANTA__BINS 2048

struct manta__bin {
  int64_t first, last; /* iterations */
  int64_t wall_ns;     /* of the newest row */
  double least, most, sum;
  int64_t count;
};

struct manta__plot_series {
  char name[MANTA__ROW_NAME];
  struct manta__bin *bins;
  size_t count, cap;
  int64_t stride;
};

/* What is drawn of one run. {0} is empty. */
struct manta__run_series {
  struct manta__plot_series *series;
  size_t count;
  struct manta__stats stats;
};

/* Reads a run's log. rank: whose rows, or -1: of all ranks together. Series come in the order of
 * the rows. fini it also after a failure. */
manta_status manta__run_series_read(struct manta__run_series *out, int dirfd, int rank,
                                    manta_error *err);
void manta__run_series_fini(struct manta__run_series *s);
/* By its name, or NULL. */
const struct manta__plot_series *manta__run_series_find(const struct manta__run_series *s,
                                                        const char *name);

static inline double manta__bin_mean(const struct manta__bin *b)
{
  return b->sum / (double)b->count;
}

#endif
