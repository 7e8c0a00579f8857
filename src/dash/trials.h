/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/trials.h - all that the page shows of one tuning experiment, out of its log.
 *
 * The log is that of tune/journal.h: EXPERIMENT, then TRIAL and ROW with the trial's number as the
 * rank, and FINISH.
 * (1) Memory is bounded: MANTA__TRIALS trials, each with a short curve of the one metric that the
 *     experiment is about.
 * (2) `version` rises with every change, and a trial has that of its last one: who knows version v
 *     needs the trials above it.
 */
#ifndef MANTA_DASH_TRIALS_H
#define MANTA_DASH_TRIALS_H

#include "dash/curve.h"
#include "event/log.h"

#define MANTA__TRIALS        4096
#define MANTA__TRIAL_STEPS   512 /* improvements of the best value */
#define MANTA__TRIAL_MESSAGE 512

struct manta__dash_trial {
  uint64_t version;
  char state[12];     /* "pending", "running", … */
  manta_value config; /* abridged, or nil */
  struct manta__curve curve;
  int64_t iteration, began_ns, ended_ns;
  int failures;
  uint64_t from; /* + 1: the trial that it was copied from; 0: none */
  char *message; /* of its newest failure, or NULL */
};

struct manta__dash_step {
  int64_t wall_ns;
  double value;
  uint32_t trial;
};

struct manta__dash_trials {
  uint64_t version;
  int64_t records, begin_ns, end_ns;
  manta_value info; /* of the first EXPERIMENT, or nil */
  bool ended;
  struct manta__dash_trial *trial;
  uint32_t count, cap;
  bool left_out;
  struct manta__dash_step step[MANTA__TRIAL_STEPS]; /* each better than the one before */
  uint32_t steps;                                   /* past the limit the last one is replaced */
};

/* {0} is an empty one; fini it. */
void manta__dash_trials_fini(struct manta__dash_trials *t);
/* Takes the next record. MANTA_ENOMEM leaves out what there is no memory for. */
manta_status manta__dash_trials_take(struct manta__dash_trials *t, const struct manta__record *h,
                                     const uint8_t *payload);
/* What the experiment wants to be best: its metric ("" if unknown), and in which direction. */
const char *manta__dash_trials_metric(const struct manta__dash_trials *t, bool *maximize);
/* The best value of a trial so far; false: it has none. */
bool manta__dash_trial_best(const struct manta__dash_trials *t, const struct manta__dash_trial *one,
                            struct manta__extreme *out);

#endif
