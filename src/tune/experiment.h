/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/experiment.h - the engine: which trial runs next, what becomes of one that reports, and the
 * log out of which all of it can be made again.
 *
 * An experiment is a state (trials, searcher, scheduler) that events move. Each event is written to
 * the log before anybody acts upon it, and costs the same whatever the number of trials.
 *
 * (1) State changes by manta__experiment_apply alone, from an event that was logged: who reads the
 *     log again makes the same calls of searcher and scheduler, in the same order, and has the same
 *     state. What running a trial needs (seats, captures) is no part of it.
 * (2) A trial whose end is in the log does not run again.
 * (3) Whoever is paused goes on only by a decision. If all are paused, none can begin and the
 *     scheduler decides nothing, that is an error and no deadlock.
 * (4) A trial is copied only from one that has saved, and never from itself.
 * (5) Of trials that could begin, the lowest number is first: those that go on before new ones.
 *
 *   experiment.c  what is due: begin, wait, act       apply.c    events and what they change
 *   choice.h      searcher and scheduler, native or the caller's
 *   journal.h     the log: records, and reading them  seats.c    trials as light runs
 *   trial.h       states                              tune.c     the public calls
 */
#ifndef MANTA_TUNE_EXPERIMENT_H
#define MANTA_TUNE_EXPERIMENT_H

#include "tune/choice.h"
#include "tune/journal.h"
#include "tune/runner.h"
#include "tune/trial.h"

#define MANTA__TRIAL_DIR_MAX 32

/* What the user asked for, as far as it outlives the start. */
struct manta__plan {
  char *metric, *time_key; /* metric NULL: none */
  bool maximize;
  uint64_t total; /* trials; UINT64_MAX: without end */
  manta_value stop;
  int (*stop_fn)(void *ctx, uint64_t trial, const manta_value *row);
  void *stop_ctx;
  int (*resources_fn)(void *ctx, uint64_t trial, const manta_value *row, manta_value *out);
  void *resources_ctx;
  manta_status (*explore_fn)(void *ctx, uint64_t trial, manta_value *config, manta_error *err);
  void *explore_ctx;
  int max_failures;
  bool fail_fast;
  double budget_s;
};

/* Events that wait to be given out; a trial's row is borrowed from the runner. */
struct manta__outbox {
  manta_tune_event at[8];
  int count, next;
  char message[MANTA_ERROR_MESSAGE_MAX];
};

struct manta_tune {
  struct manta__plan plan;
  struct manta__choosers choice;
  struct manta__trials trials;
  struct manta__journal journal;
  struct manta__runner *runner; /* NULL: it is only read */
  char *dir;
  int dirfd;
  manta_value info;  /* of the newest start */
  uint64_t *pending; /* trials that may begin: numbers */
  size_t pending_count, pending_cap;
  bool closed;         /* no new trial comes */
  bool ending, saving; /* what runs is to end; … and to save first */
  bool over;
  bool waits;                      /* the searcher has nothing now */
  int64_t deadline_ns;             /* of the budget */
  double used_s;                   /* of it, by drivers that are gone */
  struct manta__capture *captures; /* by seat in turn: what trials are to begin from … */
  uint64_t *captured;              /* … and whose it is to be; MANTA__NO_TRIAL: free */
  int capture_count;
  struct manta__outbox out;
  manta_value view[5]; /* config, last, best, result, resources of the trial that was asked for */
  char view_dir[4200];
};

/* --- apply.c --- */

/* What an event has led to, for whoever acts upon it. */
struct manta__outcome {
  manta_verdict verdict; /* of a row */
  bool end_all;          /* a stop function says so */
};

/* Writes an event to the log and applies it. */
manta_status manta__experiment_note(manta_tune *t, const struct manta__event_rec *e,
                                    struct manta__outcome *out, manta_error *err);
/* Applies one that is in the log. again: it is read, not made. */
manta_status manta__experiment_apply(manta_tune *t, const struct manta__event_rec *e, bool again,
                                     struct manta__outcome *out, manta_error *err);
/* What the exploration of a copy is numbered by. */
uint64_t manta__copy_turn(uint64_t number, uint32_t attempt);
/* A metric of a row, with or without the underscore that manta's own have; NULL: it is not there.
 */
const manta_value *manta__row_metric(const manta_value *row, const char *key);

/* --- experiment.c --- */

/* Makes the next thing happen. 1: the outbox has something; 0: over. */
int manta__experiment_step(manta_tune *t, int64_t by, manta_error *err);
/* After the log was read: what ran is to run again, what was decided is carried out. */
manta_status manta__experiment_recover(manta_tune *t, bool retry_failed, manta_error *err);
/* Nothing begins any more, and what runs is ended. */
void manta__experiment_end(manta_tune *t, bool save);
/* Ends one trial. */
void manta__experiment_stop(manta_tune *t, uint64_t trial);

/* --- tune.c --- */

/* As manta_tune_start, over another runner than seats; it is closed with the experiment. */
manta_status manta__experiment_start(manta_tune **out, manta_train_fn fn,
                                     const manta_tune_config *cfg, struct manta__runner *runner,
                                     manta_error *err);

/* --- results.c --- */

/* The experiment that a user means: a directory, the name of one in the default logdir, or NULL or
 * "latest": the newest there. Gives descriptor and absolute path (manta_free). */
manta_status manta__experiment_find(const char *what, int *fd_out, char **path_out,
                                    manta_error *err);
void manta__experiment_tell(manta_tune *t, manta_event_kind kind, uint64_t trial, uint64_t from,
                            const manta_value *row, const char *message);
/* "trial_00042". */
void manta__trial_dir(char name[MANTA__TRIAL_DIR_MAX], uint64_t number);
manta_status manta__experiment_pend(manta_tune *t, uint64_t number, manta_error *err);

#endif
