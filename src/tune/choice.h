/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/choice.h - the searcher and the scheduler of an experiment: manta's own or the caller's,
 * with one set of calls for both.
 */
#ifndef MANTA_TUNE_CHOICE_H
#define MANTA_TUNE_CHOICE_H

#include <manta/tune.h>

#include "tune/pb2.h"
#include "tune/scheduler.h"
#include "tune/searcher.h"

struct manta__choosers {
  struct manta__space space;
  uint64_t seed;
  double resample;
  struct manta__searcher *searcher; /* or NULL: own_searcher */
  manta_searcher own_searcher;
  struct manta__scheduler *scheduler; /* or NULL: own_scheduler */
  manta_scheduler own_scheduler;
  bool *fixed;           /* by dimension: copies keep its value; NULL: of none */
  struct manta__pb2 pb2; /* pb2.seen NULL: copies explore at random */
  bool decides;          /* the scheduler is not fifo */
  bool learns;           /* somebody looks at the metric */
  bool yields;           /* the trial that reported last may let others have their turn */
};

manta_status manta__choice_init(struct manta__choosers *c, const manta_tune_config *cfg,
                                manta_error *err);
void manta__choice_fini(struct manta__choosers *c);

/* The config of trial `number` ({0} or, `again`, what it had): 1, 0 (no more), 2 (not now), or an
 * error. */
int manta__choice_suggest(struct manta__choosers *c, uint64_t number, bool again,
                          manta_value *config, manta_error *err);
manta_status manta__choice_begin(struct manta__choosers *c, uint64_t number,
                                 const manta_value *config, manta_error *err);
/* What becomes of a trial. `value` is to be minimized; `point` is its own, or NULL: the searcher's;
 * *out is to be finished by its config. */
manta_status manta__choice_report(struct manta__choosers *c, uint64_t number, double time,
                                  double value, const double *point, const manta_value *row,
                                  manta_decision *out, manta_error *err);
/* It goes on from another one's state. */
void manta__choice_copied(struct manta__choosers *c, uint64_t number);
void manta__choice_saved(struct manta__choosers *c, uint64_t number);
manta_status manta__choice_end(struct manta__choosers *c, uint64_t number, double value,
                               const manta_value *row, bool failed, manta_error *err);
void manta__choice_close(struct manta__choosers *c);
/* 1: *out is about a paused trial; 0: nothing now. */
int manta__choice_next(struct manta__choosers *c, manta_decision *out, manta_error *err);
/* The config and the point of a trial that copies trial `number`, whose point is `from` (NULL: the
 * searcher's). The same `turn` gives the same. *point is the caller's; NULL where there are no
 * points, and then there is no config either. */
manta_status manta__choice_explore(struct manta__choosers *c, uint64_t number, const double *from,
                                   uint64_t turn, double **point, manta_value *config,
                                   manta_error *err);

#endif
