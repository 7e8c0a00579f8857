/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/tune.h - experiments: a train function, called with many configs out of a space.
 *
 * A trial is one config: a run of the train function with what it reports, saves and returns. It is
 * the same function, with the same session, whether it has one worker or is distributed. A
 * searcher chooses the configs, a scheduler which trials go on. An experiment has a directory:
 *
 *   LOGDIR/NAME_0003_…/   experiment/run.log[.N]   trial_00000/ trial_00001/ …
 *
 * Everything that happens is in the log before anybody acts upon it, so that an experiment whose
 * driver was killed at any moment goes on from there: trials that ended do not run again, those
 * that ran begin at their newest checkpoint, and the searcher and the scheduler, which are made by
 * the same calls once more, choose as they would have.
 *
 * One thread at a time makes calls on an experiment; callbacks run on it, inside of next.
 */
#ifndef MANTA_TUNE_H
#define MANTA_TUNE_H

#include <manta/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_tune manta_tune;

/* --- Spaces --- */

/* A space is a config (a map) in which some values are domains. These give a domain in *out, which
 * must be {0} or a valid value; put it where the value goes. A domain may lie in maps and lists of
 * any depth; one inside of an option of a choice counts only where that option is chosen. They fail
 * with MANTA_ENOMEM only: whether bounds make sense is said, by name, when the experiment begins.
 *
 * uniform: low <= x <= high; q > 0: rounded to multiples of it; log: uniform in the logarithm.
 * randint: low <= x <= high, integers.
 * choice: one of a list; grid: each of a list (every sample is the whole grid).
 * literal: a map that looks like a domain and is none. */
MANTA_API manta_status manta_space_uniform(manta_value *out, double low, double high, double q,
                                           bool log);
MANTA_API manta_status manta_space_normal(manta_value *out, double mean, double sd, double q);
MANTA_API manta_status manta_space_randint(manta_value *out, int64_t low, int64_t high, int64_t q,
                                           bool log);
MANTA_API manta_status manta_space_choice(manta_value *out, const manta_value *options);
MANTA_API manta_status manta_space_grid(manta_value *out, const manta_value *options);
MANTA_API manta_status manta_space_literal(manta_value *out, const manta_value *v);

/* --- What a trial is --- */

typedef enum manta_trial_state {
  MANTA_TRIAL_PENDING, /* has a config, or will; waits for room */
  MANTA_TRIAL_RUNNING,
  MANTA_TRIAL_PAUSED,   /* its room went to others; it goes on when the scheduler says so */
  MANTA_TRIAL_FINISHED, /* its function returned */
  MANTA_TRIAL_STOPPED,  /* it was ended: by the scheduler, or by a condition. No failure */
  MANTA_TRIAL_FAILED    /* more often than max_failures */
} manta_trial_state;

/* "pending", "running", …; "?" if there is no such state. */
MANTA_API const char *manta_trial_state_name(manta_trial_state s);

/* A trial as it is now. Borrowed from the experiment until the next call on it. */
typedef struct manta_trial {
  uint64_t number; /* from 0 */
  manta_trial_state state;
  const manta_value *config; /* a map */
  const manta_value *last;   /* its newest row, or nil */
  const manta_value *best;   /* the row with the best metric, or nil */
  const manta_value *result; /* what its function (rank 0) returned, or nil */
  int64_t iteration;         /* reports that count */
  int failures;              /* so far */
  const char *dir;           /* its directory */
  const char *message;       /* of its newest failure, or "" */
  double began_s, ended_s;   /* wall clock; 0: not yet */
  double trained_s;          /* between its reports, and before the first; all attempts together */
} manta_trial;

/* --- Searchers and schedulers of the caller's --- */

/* A searcher that the caller brings: a Python class, another library. Its calls come one at a time,
 * on the thread inside of next, and in the same order again when an experiment is resumed, with
 * `again` for suggest: then *config is what the trial had, and the searcher may only take note.
 * Entries that are NULL are left out. `value` is the metric as reported, not turned round. */
typedef struct manta_searcher {
  void *ctx;
  /* 1: *config ({0} at first) is the config of trial `number`; 0: there are no more; 2: not now,
   * ask again when a trial has reported or ended. Negative: the experiment ends with that error. */
  int (*suggest)(void *ctx, uint64_t number, bool again, manta_value *config, manta_error *err);
  manta_status (*report)(void *ctx, uint64_t number, const manta_value *row, manta_error *err);
  /* row: the newest, or nil; failed: it has no result that counts */
  manta_status (*complete)(void *ctx, uint64_t number, const manta_value *row, bool failed,
                           manta_error *err);
} manta_searcher;

typedef enum manta_verdict {
  MANTA_TRIAL_GO_ON,
  MANTA_TRIAL_STOP,
  MANTA_TRIAL_PAUSE, /* it saves, ends, and goes on from there later */
  MANTA_TRIAL_COPY   /* it goes on from the newest checkpoint of another one, with a new config */
} manta_verdict;

typedef struct manta_decision {
  uint64_t trial;
  manta_verdict verdict;
  uint64_t from;      /* COPY: that other one, which must have saved a checkpoint */
  manta_value config; /* COPY: the new config, which is taken; nil: that of `from`. GO_ON: a map
                         with "cpus", "gpus" or "workers": with other resources from here on */
} manta_decision;

/* A scheduler of the caller's; as manta_searcher. */
typedef struct manta_scheduler {
  void *ctx;
  manta_status (*begin)(void *ctx, uint64_t trial, const manta_value *config, manta_error *err);
  /* What becomes of a trial that has reported `row`; *out is "go on" at first. */
  manta_status (*report)(void *ctx, uint64_t trial, const manta_value *row, manta_decision *out,
                         manta_error *err);
  void (*saved)(void *ctx, uint64_t trial);                       /* it has a checkpoint now */
  void (*end)(void *ctx, uint64_t trial, const manta_value *row); /* it will not report again */
  void (*close)(void *ctx);                                       /* no further trial will begin */
  /* 1: *out is about a paused trial; 0: nothing now. Asked until it says 0. If all are paused and
   * close was called, one of them must be decided upon, or the experiment ends with an error. */
  int (*next)(void *ctx, manta_decision *out, manta_error *err);
  /* Which of the trials that could begin or go on is first; index into `trials`, or -1: any. */
  int (*choose)(void *ctx, const uint64_t *trials, size_t count);
} manta_scheduler;

/* --- Searchers by themselves --- */

/* A searcher of libmanta without an experiment, for whoever runs trials in another way. One thread
 * at a time. */
typedef struct manta_search manta_search;

/* name and options: as in manta_tune_config. MANTA_EINVAL: there is no such searcher, it cannot
 * search this space, or the space makes no sense; the message says why. Close it. */
MANTA_API manta_status manta_search_open(manta_search **out, const char *name,
                                         const manta_value *space, const manta_value *options,
                                         uint64_t seed, manta_error *err);
MANTA_API void manta_search_close(manta_search *s); /* NULL is fine */
/* Combinations of all grids of the space; 1 without one. */
MANTA_API uint64_t manta_search_grid(const manta_search *s);
/* The config of trial `number`, into *config ({0} or a valid value). Numbers rise. */
MANTA_API manta_status manta_search_propose(manta_search *s, uint64_t number, manta_value *config,
                                            manta_error *err);
/* That trial has reached `value`, which is to be small; NaN or infinite: it failed. */
MANTA_API void manta_search_observe(manta_search *s, uint64_t number, double value);

/* --- Experiments --- */

typedef enum manta_event_kind {
  MANTA_TUNE_BEGAN,  /* a trial runs, for the first time or again */
  MANTA_TUNE_ROW,    /* it has reported; `row` */
  MANTA_TUNE_SAVED,  /* it has a checkpoint in memory */
  MANTA_TUNE_PAUSED, /* it has paused */
  MANTA_TUNE_COPIED, /* it goes on from the checkpoint of `from` */
  MANTA_TUNE_FAILED, /* a failure after which it is tried again; `message` */
  MANTA_TUNE_ENDED,  /* finished, stopped or failed for good: see its state */
  MANTA_TUNE_NOTE    /* something to tell the user; `message` */
} manta_event_kind;

typedef struct manta_tune_event {
  manta_event_kind kind;
  uint64_t trial; /* UINT64_MAX: of none */
  uint64_t from;
  const manta_value *row; /* borrowed until the next call */
  const char *message;
} manta_tune_event;

/* {0} after .size means: every default. All is copied, but for ctx of tables, the payload and what
 * `trainer` borrows, which must live until the experiment is closed. */
typedef struct manta_tune_config {
  size_t size;              /* filled by MANTA_TUNE_CONFIG_INIT */
  const manta_value *space; /* a map; NULL: empty, so that all trials have the same config */
  int64_t samples;          /* times the space, or its whole grid, is tried; 0: once; -1: without
                               end, until stopped, the time is up or the searcher has no more */
  const char *metric;       /* what trials report and searchers and schedulers look at; may be NULL
                               with random search and fifo */
  bool maximize;            /* larger is better */
  const char *time_key;     /* what a scheduler takes for time: a metric, "time_total_s" (seconds
                               trained), NULL: _training_iteration */
  const char *searcher;     /* "random" (also grids), "tpe", "cmaes", "gp"; NULL: random */
  const manta_value *searcher_options; /* a map: startup, candidates, population, sigma */
  const manta_searcher *own_searcher;  /* instead */
  const char *scheduler; /* "fifo", "asha", "median", "hyperband", "pbt", "pb2"; NULL: fifo */
  const manta_value *scheduler_options; /* a map: max_time, grace, factor, brackets, least_trials,
                                           interval, quantile, resample, only (pbt, pb2: a list
                                           of paths as "optimizer/lr"; all else is copied as it
                                           is) */
  const manta_scheduler *own_scheduler; /* instead */
  uint64_t seed; /* the same one gives the same configs; 0 is a seed like others */
  const manta_trainer_config *trainer; /* of one trial: workers, resources, program, hosts,
                                          step_timeout_s. NULL: one worker with one CPU */
  const void *payload;                 /* for every trial (manta_session_payload), or NULL */
  size_t payload_bytes;
  int concurrency;         /* trials at once; 0: as many as there is room for */
  bool reuse;              /* one worker serves many trials, with all that they leave in it. Else
                               every trial begins in a fresh process */
  int max_failures;        /* of one trial, after which it is tried again from its newest
                               checkpoint; -1: without end */
  bool fail_fast;          /* the first trial that fails for good ends the experiment */
  const manta_value *stop; /* map: a trial that has reported at least so much of a metric is
                               stopped, e.g. {"_training_iteration": 10}; NULL: none */
  /* Asked for every row: 1: stop this trial, 2: end the experiment, 0: go on. May be NULL. */
  int (*stop_fn)(void *ctx, uint64_t trial, const manta_value *row);
  void *stop_ctx;
  /* Asked for every row of a trial that goes on: 1: it is to have other resources, and *out is a
   * map of "cpus", "gpus", "workers"; it saves, ends, and goes on with those. 0: as it is. It is
   * not asked again about rows that are in the log. May be NULL. */
  int (*resources_fn)(void *ctx, uint64_t trial, const manta_value *row, manta_value *out);
  void *resources_ctx;
  /* Makes the config of a trial that copies another one, under pbt: *config is that of the other,
   * to be changed. What it makes is in the log, and it is not asked for it again. NULL: every value
   * that the space has a domain for may change. */
  manta_status (*explore_fn)(void *ctx, uint64_t trial, manta_value *config, manta_error *err);
  void *explore_ctx;
  double time_budget_s;    /* of the experiment, those of earlier drivers counted in; 0: no limit */
  int keep_last;           /* newest checkpoints of a trial on disk; -1: all; 0: the newest one, and
                              the one with the best metric unless keep_best says how many */
  const char *name;        /* of the directory; NULL: that of the trainer, or the program's */
  const char *logdir;      /* NULL: MANTA_RESULTS, else ~/manta_results */
  const char *resume;      /* an experiment (as in `manta tune status`) to go on with; NULL: a new
                               one, or, under `manta tune resume`, the one of this program */
  bool retry_failed;       /* … and trials that failed begin again, from their checkpoints */
  const manta_sink *sinks; /* one of each for every trial, with its config, in its directory (or in
                              one of its name in the option logdir); manta/sink.h */
  size_t sink_count;
  double trial_time_s; /* a trial that has run for so long is stopped, also if it hangs and
                              reports nothing; 0: no limit */
  int keep_best; /* checkpoints of a trial on disk besides: those with the best score; 0: none */
  const char *score; /* the reported metric that scores a checkpoint; NULL: none has a score */
  bool score_min;    /* smaller is better */
  /* Names the directory of a new trial, in `name`: at most size - 1 bytes, without '/', with no '.'
   * in front, and of no other trial. What it gave is in the log, and it is not asked again. NULL:
   * trial_00042. */
  manta_status (*dir_fn)(void *ctx, uint64_t trial, const manta_value *config, char *name,
                         size_t size, manta_error *err);
  void *dir_ctx;
  /* Lines that a worker of a trial has printed, as manta_callbacks.output has them, on the thread
   * that is inside of next. NULL: they are in the files of the trial alone. */
  void (*output_fn)(void *ctx, uint64_t trial, int rank, const char *text, size_t len);
  void *output_ctx;
  bool soft_stop; /* a trial that is stopped is asked to, as one that is paused, and may save before
                     it returns; else its processes are ended where they are */
} manta_tune_config;
#define MANTA_TUNE_CONFIG_INIT                                                                     \
  {                                                                                                \
    sizeof(manta_tune_config), NULL, 0, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0,  \
        NULL, NULL, 0, 0, false, 0, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL,   \
        NULL, NULL, false, NULL, 0, 0, 0, NULL, false, NULL, NULL, NULL, NULL, false               \
  }

/* Begins an experiment, or goes on with one, and gives it in *out (close it); trials begin with the
 * first next. MANTA_EINVAL and MANTA_ETYPE name what makes no sense: a domain by its path, a
 * searcher that cannot search this space, a metric that is missing, a request that no host can ever
 * meet; MANTA_ENOROOM: others hold it now. Where the trainer asks for no CPUs, trials share those
 * that others hold. What does not begin leaves no directory. `fn` as in manta_trainer_run. */
MANTA_API manta_status manta_tune_start(manta_tune **out, manta_train_fn fn,
                                        const manta_tune_config *cfg, manta_error *err);
/* Waits for the next event. 1: *out (may be NULL) has it; 0: the experiment is over; negative: its
 * error, or MANTA_ETIMEDOUT after timeout_s (negative: no limit), upon which it may be called
 * again. That trials failed is no error here: see manta_tune_failed. An unknown metric is one, with
 * the names there are: as soon as a row lacks it, if a searcher or scheduler compares by it, else
 * when the first trial has ended without it. "outer/inner" names a metric in a map. */
MANTA_API int manta_tune_next(manta_tune *t, double timeout_s, manta_tune_event *out,
                              manta_error *err);
/* Starts, takes every event, and gives the experiment in *out, when it is over, to ask it for its
 * results (close it). */
MANTA_API manta_status manta_tune_run(manta_tune **out, manta_train_fn fn,
                                      const manta_tune_config *cfg, manta_error *err);
/* No further trial begins, and those that run are ended: `save` lets them save first and leaves
 * them paused, so that the experiment can be resumed. Next gives the rest of the events. */
MANTA_API void manta_tune_stop(manta_tune *t, bool save);
/* Ends one trial, as a scheduler would; harmless if it has ended. */
MANTA_API void manta_tune_stop_trial(manta_tune *t, uint64_t trial);
/* Reads an experiment of any process, also while it runs: trials, best, nothing of what runs or
 * changes it. `what`: a directory, or the name of one under the default logdir, or NULL: the newest
 * one. */
MANTA_API manta_status manta_tune_open(manta_tune **out, const char *what, manta_error *err);
/* Ends what runs (it can then be resumed) and frees it. NULL is fine. */
MANTA_API void manta_tune_close(manta_tune *t);

/* --- Results --- */

/* Its directory. Borrowed. */
MANTA_API const char *manta_tune_dir(const manta_tune *t);
/* What the experiment began with: argv, cwd, metric, maximize, searcher, scheduler, samples, seed,
 * space. Borrowed. */
MANTA_API const manta_value *manta_tune_info(const manta_tune *t);
/* Trials that there are so far, those in a state, and the trial of a number, which MANTA_ENOENT
 * says there is none of. */
MANTA_API uint64_t manta_tune_count(const manta_tune *t);
MANTA_API uint64_t manta_tune_count_state(const manta_tune *t, manta_trial_state s);
MANTA_API manta_status manta_tune_trial(manta_tune *t, uint64_t number, manta_trial *out,
                                        manta_error *err);
/* The number of the best trial: by its last row, or with `any_row` by the best of all its rows.
 * metric NULL: the experiment's, with its direction. Infinity is worse than any number, and NaN is
 * none. MANTA_ENOENT: no trial has reported it; the message says what they have reported. */
MANTA_API manta_status manta_tune_best(manta_tune *t, const char *metric, bool maximize,
                                       bool any_row, uint64_t *number, manta_error *err);
/* Gives the newest checkpoint of a trial (close it), or NULL in *out. */
MANTA_API manta_status manta_tune_checkpoint(manta_tune *t, uint64_t number, manta_checkpoint **out,
                                             manta_error *err);
/* Writes the directory of that checkpoint into buf, for manta_checkpoint_open. MANTA_ENOENT: there
 * is none; MANTA_ETOOBIG: `size` bytes are too few. */
MANTA_API manta_status manta_tune_checkpoint_dir(manta_tune *t, uint64_t number, char *buf,
                                                 size_t size, manta_error *err);
/* Calls `row` for each row of a trial that counts, in order, out of the log; a failure of it ends
 * the walk and is returned. */
MANTA_API manta_status manta_tune_rows(manta_tune *t, uint64_t number, void *ctx,
                                       manta_status (*row)(void *ctx, const manta_value *row,
                                                           manta_error *err),
                                       manta_error *err);

#ifdef __cplusplus
}
#endif
#endif
