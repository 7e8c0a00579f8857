/* SPDX-License-Identifier: Apache-2.0
 *
 * view/stats.h - what a run has done so far, as far as people want to see it: kept up with every
 * record while it goes on, or read from run.log afterwards.
 *
 * (1) Memory depends on the number of metrics and of ranks, never on that of rows.
 * (2) A rewind makes rows void: the best value is then the best of those that are left. Of a metric
 *     that improved more than MANTA__PEAKS_MAX times, rewinds far back are answered by a value
 *     that was nearly the best there.
 * (3) A restart costs the time from the loss until the iteration that had been reached is reached
 *     again, and the iterations that are done twice.
 * (4) Without memory something is not shown; it is never an error.
 */
#ifndef MANTA_VIEW_STATS_H
#define MANTA_VIEW_STATS_H

#include "event/log.h"
#include "event/row.h"
#include "view/goal.h"

#define MANTA__METRICS_MAX 64
#define MANTA__PEAKS_MAX   512
#define MANTA__STOPS_MAX   32
#define MANTA__PACES       12

struct manta__peak {
  int64_t at; /* iteration */
  double value;
};

struct manta__metric {
  char name[MANTA__ROW_NAME];
  enum manta__goal goal;
  double last;               /* of rank 0 */
  int64_t at;                /* iteration of it; 0: there is none */
  struct manta__peak *peaks; /* of rank 0, each better than the one before; NULL without a goal */
  uint32_t peak_count, peak_cap;
  uint64_t improved, stride; /* how often; every stride-th is kept … */
  bool passing;              /* … and the newest of them is not one of those */
  double *of_rank;           /* the newest of each rank; NaN: none */
  int ranks;
};

/* A worker that was lost. */
struct manta__stop {
  int64_t wall_ns, iteration; /* when, and what had been reached */
  int rank;                   /* -1: not known, or a host */
  char cause[120];
};

struct manta__stats {
  struct manta__metric *metrics;
  size_t metric_count;
  bool metrics_left_out;
  char score[MANTA__ROW_NAME]; /* the metric that scores checkpoints; "": none */
  bool score_min;
  int64_t begin_ns, now_ns; /* wall clock of the first and the newest record */
  int64_t row_ns;           /* of the newest row of rank 0 */
  int64_t iteration;        /* of that row */
  int64_t rows;             /* of all ranks, the void ones too */
  uint32_t attempt;
  int world, lost, restarts;
  int64_t checkpoints, ckpt_ns, ckpt_iteration, ckpt_bytes;
  int64_t repeated, cost_ns; /* (3) */
  bool behind;               /* … it has not yet come back to where it was */
  int64_t since_ns, reached, from;
  struct manta__stop stops[MANTA__STOPS_MAX]; /* the first ones */
  int stop_count;
  struct manta__pace { /* to tell the speed by, oldest first */
    int64_t wall_ns, iteration;
  } paces[MANTA__PACES];
  int pace_count;
  bool over, failed;
  double formed_s, first_row_s; /* the start's time line; 0: not known */
};

void manta__stats_init(struct manta__stats *t);
void manta__stats_fini(struct manta__stats *t);
/* A row as it is packed; any other record. wall_ns: when it was made. */
void manta__stats_row(struct manta__stats *t, const struct manta__ident *id, int64_t wall_ns,
                      const void *payload, size_t len);
void manta__stats_event(struct manta__stats *t, enum manta__event kind,
                        const struct manta__ident *id, int64_t wall_ns, const manta_value *v);
/* All of a run's log. The statistics must be {0}; fini it also after a failure. */
manta_status manta__stats_read(struct manta__stats *t, int dirfd, manta_error *err);

/* The best value of rank 0, or NULL: the metric has no goal, or no value. */
const struct manta__peak *manta__metric_best(const struct manta__metric *m);
/* The metric that a run is judged by: its score, else the first that has a goal; NULL: none. */
const struct manta__metric *manta__stats_main(const struct manta__stats *t);
/* Iterations per second lately, and from the first to the last row. 0: not known. */
double manta__stats_rate(const struct manta__stats *t, int64_t now_ns);
double manta__stats_mean_rate(const struct manta__stats *t);

#endif
