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
 * (5) Of trials that could begin, the one with the fewest turns is first, and of these the one with
 *     the lowest number: those that go on before new ones, except after a turn of theirs.
 *
 *   experiment.c  what is due: begin, wait, act       apply.c    events and what they change
 *   choice.h      searcher and scheduler, native or the caller's
 *   copies.c      what a copy begins from             dirs.c     directories of trials
 *   journal.h     the log: records, and reading them  seats.c    trials as light runs
 *   trial.h       states                              tune.c     the public calls
 *   sinks.c       the process of the trials' sinks
 */
#ifndef MANTA_TUNE_EXPERIMENT_H
#define MANTA_TUNE_EXPERIMENT_H

#include <limits.h>

#include "event/rundir.h"
#include "sink/child.h"
#include "tune/choice.h"
#include "tune/journal.h"
#include "tune/runner.h"
#include "tune/trial.h"

/* What the user asked for, as far as it outlives the start. */
struct manta__plan {
  char *metric, *time_key; /* metric NULL: none */
  char *name;              /* of its trainers */
  char *score;             /* of checkpoints; NULL: none */
  bool maximize;
  uint64_t total; /* trials; UINT64_MAX: without end */
  manta_value stop;
  int (*stop_fn)(void *ctx, uint64_t trial, const manta_value *row);
  void *stop_ctx;
  int (*resources_fn)(void *ctx, uint64_t trial, const manta_value *row, manta_value *out);
  void *resources_ctx;
  manta_status (*explore_fn)(void *ctx, uint64_t trial, manta_value *config, manta_error *err);
  void *explore_ctx;
  manta_status (*dir_fn)(void *ctx, uint64_t trial, const manta_value *config, char *name,
                         size_t size, manta_error *err);
  void *dir_ctx;
  int max_failures;
  bool fail_fast, soft_stop;
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
  bool more;                       /* the next row is here: the log is written with it */
  bool measured;                   /* a trial has reported the metric */
  int64_t deadline_ns;             /* of the budget */
  double used_s;                   /* of it, by drivers that are gone */
  bool resumed;                    /* there was a driver before this one */
  struct manta__capture *captures; /* by seat in turn: what trials are to begin from … */
  uint64_t *captured;              /* … and whose it is to be; MANTA__NO_TRIAL: free */
  int capture_count;
  struct manta__outbox out;
  struct manta__sink_child sink; /* writes what trials report to files, and elsewhere */
  int64_t sink_ns;               /* when it is looked after next */
  manta_value view[5]; /* config, last, best, result, resources of the trial that was asked for */
  char view_dir[4400];
};

/* --- row.c --- */

/* A metric of a row, with or without the underscore that manta's own have; "outer/inner" is one of
 * a map in it. NULL: it is not there. */
const manta_value *manta__row_metric(const manta_value *row, const char *key);
/* What a trial has reported, for messages: "loss, eval/loss". manta's own are left out. */
void manta__row_names(const manta_value *row, char *out, size_t size);

/* --- apply.c --- */

/* What an event has led to, for whoever acts upon it. */
struct manta__outcome {
  manta_verdict verdict; /* of a row */
  bool end_all;          /* a stop function says so */
  bool yields;           /* it goes on, or lets others have their turn */
};

/* Writes an event to the log and applies it. */
manta_status manta__experiment_note(manta_tune *t, const struct manta__event_rec *e,
                                    struct manta__outcome *out, manta_error *err);
/* Applies one that is in the log. again: it is read, not made. */
manta_status manta__experiment_apply(manta_tune *t, const struct manta__event_rec *e, bool again,
                                     struct manta__outcome *out, manta_error *err);
/* What the exploration of a copy is numbered by. */
uint64_t manta__copy_turn(uint64_t number, uint32_t attempt);

/* --- experiment.c --- */

/* Makes the next thing happen. 1: the outbox has something; 0: over. */
int manta__experiment_step(manta_tune *t, int64_t by, manta_error *err);
/* After the log was read: what ran is to run again, what was decided is carried out. */
manta_status manta__experiment_recover(manta_tune *t, bool retry_failed, manta_error *err);
/* Nothing begins any more, and what runs is ended. */
void manta__experiment_end(manta_tune *t, bool save);
/* Ends one trial. */
void manta__experiment_stop(manta_tune *t, uint64_t trial);

/* --- copies.c --- */

/* What a trial is to begin from, or NULL. */
struct manta__capture *manta__capture_of(manta_tune *t, uint64_t number);
/* What `from`, if it runs, has saved last, for trial `number`. */
manta_status manta__capture_take(manta_tune *t, uint64_t number, uint64_t from, manta_error *err);
void manta__capture_drop(manta_tune *t, uint64_t number);
void manta__captures_fini(manta_tune *t);
/* The directory of the checkpoint that a trial begins from because it copied another one; false: it
 * copied none, has saved since, or there is none. *iteration: where it begins if it copied one. */
bool manta__copy_origin(const manta_tune *t, uint64_t number, char path[PATH_MAX],
                        int64_t *iteration);

/* --- dirs.c --- */

/* The name of its directory: "trial_00042", or what the user called it. */
void manta__trial_dir(const manta_tune *t, char name[MANTA__TRIAL_DIR_MAX], uint64_t number);
/* Asks for the name of the next trial; "": the usual one. */
manta_status manta__trial_name(const manta_tune *t, const manta_value *config,
                               char name[MANTA__TRIAL_DIR_MAX], manta_error *err);
/* Makes it, if it is not there. */
manta_status manta__trial_make_dir(const manta_tune *t, uint64_t number, const char *name,
                                   manta_error *err);

/* --- tune.c --- */

/* As manta_tune_start, over another runner than seats; it is closed with the experiment. */
manta_status manta__experiment_start(manta_tune **out, manta_train_fn fn,
                                     const manta_tune_config *cfg, struct manta__runner *runner,
                                     manta_error *err);

/* --- sinks.c --- */

/* Whether they make sense. */
manta_status manta__experiment_check_sinks(const manta_tune_config *c, manta_error *err);
/* Starts their process; what goes wrong is told, and the experiment goes on. */
void manta__experiment_start_sinks(manta_tune *t, const manta_tune_config *c);
/* Shows what they say, and starts them again if need be; cheap. */
void manta__experiment_step_sinks(manta_tune *t);
/* Waits until they have all of the log, but not for ever. `now`: hardly. */
void manta__experiment_end_sinks(manta_tune *t, bool now);

/* --- results.c --- */

/* The experiment that a user means: a directory, the name of one in the default logdir, or NULL or
 * "latest": the newest there. Gives descriptor and absolute path (manta_free). */
manta_status manta__experiment_find(const char *what, int *fd_out, char **path_out,
                                    manta_error *err);
void manta__experiment_tell(manta_tune *t, manta_event_kind kind, uint64_t trial, uint64_t from,
                            const manta_value *row, const char *message);
manta_status manta__experiment_pend(manta_tune *t, uint64_t number, manta_error *err);

#endif
