/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/scheduler.h - which trials go on, by what they report.
 *
 * Whoever runs the trials tells the scheduler when one begins, reports, saves a checkpoint and
 * ends, and does what it decides: at once about the trial that reports, and later about those that
 * pause.
 *
 * (1) Values are to be minimized; time is whatever trials count, most often iterations.
 * (2) A decision follows from the calls so far: an experiment that is resumed makes them again.
 * (3) A paused trial is decided upon at last. If all are paused and no more will begin, which
 *     manta__scheduler_close says, at least one of them goes on or ends.
 * (4) Nobody takes over the state of a trial that has not saved one, or of itself.
 */
#ifndef MANTA_TUNE_SCHEDULER_H
#define MANTA_TUNE_SCHEDULER_H

#include "tune/space.h"

enum manta__verdict {
  MANTA__GO_ON, /* also: a paused trial is to run again */
  MANTA__STOP,  /* it has done enough; this is no failure */
  MANTA__PAUSE, /* its resources go to others until something is decided */
  MANTA__COPY   /* it goes on from the checkpoint of another one, with a config like that one's */
};

struct manta__decision {
  uint64_t trial;
  enum manta__verdict verdict;
  uint64_t from; /* MANTA__COPY: whose checkpoint */
  bool yields;   /* MANTA__GO_ON: it was looked at, and trials that wait may have their turn */
};

struct manta__schedule_config {
  double max_time; /* a trial ends there; 0: the scheduler's own number */
  double grace;    /* no trial is stopped before; 0: 1. pbt: none is looked at before; 0: at once */
  double factor;   /* one of so many goes on; 0: 4 (asha), 3 (hyperband) */
  int brackets;    /* asha: with different grace periods; 0: 1 */
  int least_trials; /* median: others that must be there; 0: 3 */
  double interval;  /* pbt: time between two looks at a trial; 0: 60 */
  double quantile;  /* pbt: part that is copied, and that copies; 0: a quarter */
  double resample;  /* pbt: part of the parameters that are drawn anew; 0: a quarter */
  uint64_t seed;
};

struct manta__scheduler; /* begins with a pointer to its ops */

struct manta__scheduler_ops {
  const char *name;
  size_t size;
  manta_status (*init)(struct manta__scheduler *s, const struct manta__schedule_config *config,
                       manta_error *err); /* or NULL, as all below but report */
  manta_status (*begin)(struct manta__scheduler *s, uint64_t trial, manta_error *err);
  manta_status (*report)(struct manta__scheduler *s, double time, double value,
                         struct manta__decision *d, manta_error *err);
  void (*saved)(struct manta__scheduler *s, uint64_t trial);
  void (*copied)(struct manta__scheduler *s, uint64_t trial); /* it has none of its own now */
  void (*end)(struct manta__scheduler *s, uint64_t trial);
  void (*close)(struct manta__scheduler *s);
  bool (*next)(struct manta__scheduler *s, struct manta__decision *d);
  void (*fini)(struct manta__scheduler *s);
};

extern const struct manta__scheduler_ops manta__fifo_schedule, manta__asha_schedule,
    manta__median_schedule, manta__hyperband_schedule, manta__pbt_schedule;

/* name: "fifo", "asha", "median", "hyperband", "pbt". MANTA_EINVAL says what makes no sense. */
manta_status manta__scheduler_create(struct manta__scheduler **out, const char *name,
                                     const struct manta__schedule_config *config, manta_error *err);
void manta__scheduler_destroy(struct manta__scheduler *s); /* NULL is fine */

/* Numbers rise by one, from 0. MANTA_ENOMEM. */
manta_status manta__scheduler_begin(struct manta__scheduler *s, uint64_t trial, manta_error *err);
/* What becomes of a trial that has reached `value` at `time`; NaN is worse than everything. */
manta_status manta__scheduler_report(struct manta__scheduler *s, uint64_t trial, double time,
                                     double value, struct manta__decision *out, manta_error *err);
/* The trial has a checkpoint now. */
void manta__scheduler_saved(struct manta__scheduler *s, uint64_t trial);
void manta__scheduler_copied(struct manta__scheduler *s, uint64_t trial);
/* The trial will not report again: finished, failed, or stopped by anybody. */
void manta__scheduler_end(struct manta__scheduler *s, uint64_t trial);
/* No further trial will begin. */
void manta__scheduler_close(struct manta__scheduler *s);
/* The next decision about a paused trial; false: there is none now. */
bool manta__scheduler_next(struct manta__scheduler *s, struct manta__decision *out);

/* PBT: the point for a trial that goes on from another one's checkpoint: a parameter is drawn anew
 * with probability `resample`, else a number is multiplied by 0.8 or 1.2 and an option replaced by
 * a neighbour. Those that are `fixed` (by dimension; NULL: none) keep what they have. `number`
 * tells one exploration from another. */
void manta__explore(const struct manta__space *sp, const double *from, const bool *fixed,
                    double resample, uint64_t seed, uint64_t number, double *point);

/* --- for schedulers --------------------------------------------------------------------------- */

struct manta__schedule {
  const struct manta__scheduler_ops *ops;
};

/* An array that grows; {0} is empty. */
struct manta__grow {
  void *items;
  uint64_t count, cap;
};
/* Room for `count` items of `size` bytes, the new ones zero. MANTA_ENOMEM. */
manta_status manta__grow_to(struct manta__grow *g, uint64_t count, size_t size, manta_error *err);

#endif
