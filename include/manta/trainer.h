/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/trainer.h - what the driver sees: a trainer, its runs, their rows and results.
 *
 * A trainer holds a group of workers, on this host or on several. `run` runs a train function on
 * all of them and gives back their return values; `run_start`/`run_next` do the same row by row,
 * and `run_next_any` does it for the runs of many trainers at once.
 * Calls on one trainer (and its run) come from one thread at a time, except manta_trainer_resize,
 * _notice and _cancel, which any thread may call; different trainers may be used from different
 * threads. Callbacks run only on the thread inside run or next. A forked child of the driver cannot
 * use a trainer.
 */
#ifndef MANTA_TRAINER_H
#define MANTA_TRAINER_H

#include <stdio.h>

#include <manta/session.h>
#include <manta/sink.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANTA_MAX_RANKS 4096
#define MANTA_MAX_HOSTS 256

typedef struct manta_trainer manta_trainer;
typedef struct manta_run manta_run;

/* The aligned reports of one iteration. Borrowed: valid until the callback returns or until the
 * next call of manta_run_next or manta_run_next_any for this run. */
typedef struct manta_rows {
  int64_t iteration;  /* _training_iteration, from 1 */
  int count;          /* ranks of the attempt that made them */
  bool complete;      /* false: some rank has no row, and its entry is nil */
  int64_t rewound_to; /* >= 0 on the first rows after a revival: later ones seen before are void */
  const manta_value *rows; /* one map per rank */
} manta_rows;

/* What a start callback is told. Borrowed. */
typedef struct manta_run_info {
  const char *run_dir;
  const char *run_id;
  const manta_value *config;
  int workers;
  bool resumed;
} manta_run_info;

/* Each may be NULL. A callback that returns a failure is shown as a warning; training goes on. It
 * may call manta_trainer_resize, _notice, _cancel, _pid, _run_dir and _checkpoint, nothing else of
 * its trainer. What it is given is borrowed for the call. The table is copied when it is handed
 * over; ctx is the caller's and must outlive the run. */
typedef struct manta_callbacks {
  void *ctx;
  manta_status (*start)(void *ctx, const manta_run_info *info, manta_error *err);
  manta_status (*result)(void *ctx, const manta_rows *rows, manta_error *err);
  /* `error` is NULL if the run succeeded. */
  manta_status (*finish)(void *ctx, const manta_error *error, manta_error *err);
  /* Lines that a worker printed to either stream; one longer than 8 KiB comes in pieces. Of a line
   * that "\r" replaces again and again only the last state. Without an output callback rank 0's
   * lines go to the streams they were printed to, with the rank in front (manta_display).
   */
  void (*output)(void *ctx, int rank, const char *text, size_t len);
} manta_callbacks;

/* What the driver's standard output or standard error is. */
typedef enum manta_display_kind {
  MANTA_DISPLAY_PLAIN,   /* a file or a pipe: gets whole lines */
  MANTA_DISPLAY_LINE,    /* "\r" leads back to the start of the line, as in a notebook */
  MANTA_DISPLAY_TERMINAL /* the cursor can go up, too: progress bars of several ranks stay apart */
} manta_display_kind;

#define MANTA_DISPLAY_HTML 3 /* a stream of its own: each text replaces the one before */

/* Where the lines of workers go instead of the standard output and standard error of the process:
 * for languages that have streams of their own. write is called on the thread inside run or next,
 * with stream 1 or 2 and text that is ready to be written; kind[0] is of stream 1. */
typedef struct manta_display {
  void *ctx;
  void (*write)(void *ctx, int stream, const char *text, size_t len);
  manta_display_kind kind[2];
} manta_display;

/* A host that workers run on. `command` is run by /bin/sh on the driver's host; its standard input
 * and output are the channel to the agent there, so it must end in `manta agent --stdio` on that
 * host: "ssh -o BatchMode=yes node7 manta agent --stdio". It needs no port and no shared file
 * system, but the program must lie at the same path there, and be the same build. A word of
 * lower-case letters and a colon in front names the engine that reaches the host: "exec:COMMAND" is
 * the same as "COMMAND", "local:" the same as NULL; the name of no engine is an error. */
typedef struct manta_host {
  const char *name;    /* for messages; NULL: what the host calls itself */
  const char *command; /* NULL: the driver's own host */
  int slots;           /* workers it may have; 0: one per CPU, and more if there are not enough */
  const char *address; /* to reach its workers at, or the name of the interface that has it; NULL:
                          where the channel runs, or else the way to the other hosts */
} manta_host;

/* {0} after .size means: every default. */
typedef struct manta_trainer_config {
  size_t size;                  /* filled by MANTA_TRAINER_CONFIG_INIT */
  int workers;                  /* 0: MANTA_NUM_WORKERS, else 1 */
  int min_workers;              /* 0: 1. An elastic run goes on with this many after losses */
  const char *name;             /* of run directories; NULL: the program's name */
  const char *logdir;           /* or s3://BUCKET/PREFIX (manta/storage.h); NULL: MANTA_RESULTS,
                                   else ~/manta_results */
  int max_retries;              /* revivals after lost workers; 0: 3; -1: without end; -2: none */
  bool retry_errors;            /* also revive after the train function failed */
  double step_timeout_s;        /* 0: never. A rank silent for longer counts as hung */
  double grace_s;               /* 0: 0.25. How long a survivor may take to leave its function */
  double cpus_per_worker;       /* 0: counts as 1, soft. Else strict */
  double gpus_per_worker;       /* 0: none. May be a fraction */
  const manta_value *resources; /* further named resources per worker: map of numbers, or NULL */
  int threads_per_worker;       /* OpenMP's, by OMP_NUM_THREADS. 0: that of the environment; else
                             cpus_per_worker; else the CPUs of its host by the workers that this run
                             is to have there, at least 1: losses do not change it */
  bool pin;                     /* pin every worker to cores of its own */
  bool show_all_output;         /* show the output of every rank, not only of rank 0 */
  bool quiet;                   /* print nothing */
  int64_t log_limit;            /* bytes kept of one rank's output; 0: 64 MiB */
  const manta_value *config;    /* default config of every run: a map, or NULL; copied */
  const manta_callbacks *callbacks; /* array, used by every run; the table is copied */
  size_t callback_count;
  const manta_host *hosts; /* array, copied; ranks are given out host by host. NULL: MANTA_HOSTS,
                              else the driver's own */
  size_t host_count;
  double host_timeout_s; /* 0: 15. A host that is silent for longer is lost with its workers */
  const struct manta_program *program; /* what workers are forked from (manta/embed.h); NULL: the
                                          program that called manta_init */
  bool
      keep_workers; /* survivors and later runs keep their processes, with all that a train function
                        left in them. Else every call of a train function begins in a fresh one */
  const manta_sink *sinks; /* array, of every run; copied */
  size_t sink_count;
} manta_trainer_config;
/* Every field, so that -Wextra has nothing to say in C or in C++. */
#define MANTA_TRAINER_CONFIG_INIT                                                                  \
  {                                                                                                \
    sizeof(manta_trainer_config), 0, 0, NULL, NULL, 0, false, 0, 0, 0, 0, NULL, 0, false, false,   \
        false, 0, NULL, NULL, 0, NULL, 0, 0, NULL, false, NULL, 0                                  \
  }

typedef struct manta_run_config {
  size_t size;                      /* filled by MANTA_RUN_CONFIG_INIT */
  const manta_value *config;        /* NULL: the trainer's. A map; copied */
  const manta_callbacks *callbacks; /* after the trainer's own */
  size_t callback_count;
  const char *checkpoint; /* directory or URI of a checkpoint to begin from; NULL: none */
  int workers;            /* 0: the trainer's */
  int keep_last;          /* checkpoints kept on disk; 0: 2; -1: all */
  int keep_best;          /* and so many with the best score; 0: none */
  const char *score;      /* name of the reported metric that scores a checkpoint */
  bool score_min;         /* smaller is better */
  bool strict_reports;    /* a rank that never reports is an error */
  const void *payload; /* bytes for the train function (manta_session_payload), or NULL; copied */
  size_t payload_bytes;
  bool execute;       /* only call the function, as manta_trainer_execute does … */
  bool single;        /* … and on rank 0 alone: the results of the others are nil */
  const char *resume; /* directory or URI of an unfinished run to go on with; NULL: a new one */
  /* Called on the thread inside run or next before every attempt but the first, unless workers are
   * kept: what it calls by manta_trainer_execute reaches the fresh processes of that attempt before
   * they enter the function. A failure ends the run. May be NULL */
  manta_status (*renew)(void *ctx, int attempt, manta_error *err);
  void *renew_ctx;
  const manta_display *display; /* NULL: the standard streams of the process; copied, but for ctx */
  const manta_sink *sinks;      /* array, besides those of the trainer; copied */
  size_t sink_count;
  int verbose; /* progress on standard error: 1: how far the run is, its metrics and checkpoints,
                  and a summary at the end; 2: the metrics of every worker, too, and the times of
                  the start; -1: nothing; 0: MANTA_VERBOSE, else nothing */
  bool html;   /* progress goes as HTML to the display, as stream MANTA_DISPLAY_HTML */
} manta_run_config;
#define MANTA_RUN_CONFIG_INIT                                                                      \
  {                                                                                                \
    sizeof(manta_run_config), NULL, NULL, 0, NULL, 0, 0, 0, NULL, false, false, NULL, 0, false,    \
        false, NULL, NULL, NULL, NULL, NULL, 0, 0, false                                           \
  }

/* --- Trainer -------------------------------------------------------------------------------- */

/* Checks the config and gives a trainer in *out (destroy it). Starts nothing. cfg NULL: every
 * default. What cfg points to is copied, except the ctx of callbacks. MANTA_EINVAL or MANTA_ETYPE
 * name the field; *out is then as it was. */
MANTA_API manta_status manta_trainer_create(manta_trainer **out, const manta_trainer_config *cfg,
                                            manta_error *err);
/* Starts agent and workers ahead of the first run, which else does it, and waits until they are
 * there. Idempotent. MANTA_ENOROOM says what was asked for and what there is; MANTA_ENOENT that the
 * command `manta`, which is the agent, was not found. */
MANTA_API manta_status manta_trainer_start(manta_trainer *t, manta_error *err);
/* Runs `fn` on all workers until it ends, reviving it as the config says; callbacks run on this
 * thread. rc NULL: every default. On success *results (NULL, {0} or a valid value) becomes the list
 * of return values by rank, the caller's to fini; on failure it is as it was. `fn` must lie in the
 * program or in an object loaded before manta_init. The error is the first real one, with the rank
 * it comes from in err->rank: MANTA_EUSER or what `fn` returned; when the retries are used up
 * MANTA_EWORKER or MANTA_EHUNG, of the last loss (the message says how, and how many retries there
 * were); MANTA_EUNEVEN; MANTA_EPREEMPTED after a notice, and MANTA_ECANCELED: the run can be
 * resumed. The trainer can run again afterwards. */
MANTA_API manta_status manta_trainer_run(manta_trainer *t, manta_train_fn fn,
                                         const manta_run_config *rc, manta_value *results,
                                         manta_error *err);
/* Calls `fn` on every worker, or on rank 0 alone, outside of any run: no directory, no reports, no
 * checkpoints (report and save give MANTA_ESTATE), no retries. `arg` (a map, or NULL; copied)
 * arrives as the session's config. results and errors are those of manta_trainer_run;
 * execute_single gives the one value itself instead of a list. MANTA_ESTATE while a run is going
 * on. */
MANTA_API manta_status manta_trainer_execute(manta_trainer *t, manta_train_fn fn,
                                             const manta_value *arg, manta_value *results,
                                             manta_error *err);
MANTA_API manta_status manta_trainer_execute_single(manta_trainer *t, manta_train_fn fn,
                                                    const manta_value *arg, manta_value *result,
                                                    manta_error *err);
/* Between its runs a trainer keeps its workers and what they hold of the host. They are ended when
 * another trainer of this process needs that room, and its next run starts new ones; with hold they
 * are not, because something lives in them that the program still needs. Any thread. */
MANTA_API void manta_trainer_hold(manta_trainer *t, bool hold);
/* Sets the number of workers, for this run and later ones: for the next run when idle, after the
 * next checkpoint when one is going on (a run that never saves stays as it is), at once when its
 * workers are just being started, as in a revival. The newest number counts. Does not wait. Any
 * thread. MANTA_EINVAL outside of 1 … MANTA_MAX_RANKS. */
MANTA_API manta_status manta_trainer_resize(manta_trainer *t, int workers, manta_error *err);
/* Sets keep_workers for the runs that follow; not while one is going on. */
MANTA_API void manta_trainer_keep(manta_trainer *t, bool keep);
/* Asks the running function to save and return (as SIGTERM to a worker does): run or next then give
 * MANTA_EPREEMPTED. Returns at once; harmless without a run. Any thread, and async-signal-safe: it
 * is what a SIGTERM handler of the driver calls. */
MANTA_API void manta_trainer_notice(manta_trainer *t);
/* For a program that handles Ctrl-C: says in one line, where the run says such things, that the run
 * ends now, which checkpoint is the newest and how to resume. Close the run next. On the thread
 * that called next; harmless when the run is over. */
MANTA_API void manta_run_tell_stop(manta_run *r);
/* Ends the current run within a second, without a last save: run or next return MANTA_ECANCELED.
 * Returns at once; harmless without a run. Any thread, but not a signal handler. */
MANTA_API void manta_trainer_cancel(manta_trainer *t);
/* Ends workers (and a run that is going on, which must still be closed) and waits until they are
 * gone; the trainer can be started again. Idempotent. */
MANTA_API void manta_trainer_shutdown(manta_trainer *t);
/* Ends a run that is going on (it can then be resumed), shuts down and frees; the last trainer
 * takes the agent along. Leaves no process. A run that was not closed outlives its trainer as a
 * handle: its finish callbacks have been called, rows that were not taken are gone, next gives its
 * end (MANTA_ECANCELED if it was going on), results stay, and it must still be closed. NULL is
 * fine. */
MANTA_API void manta_trainer_destroy(manta_trainer *t);

/* Prints the table of workers and resources, as it is now; before the start, those that are asked
 * for. MANTA_EIO if it cannot be written. */
MANTA_API manta_status manta_trainer_print(manta_trainer *t, FILE *to);
/* Workers that the next run has, if there is room for them. */
MANTA_API int manta_trainer_workers(const manta_trainer *t);
/* Where the directories of its runs are made. Borrowed from the trainer. */
MANTA_API const char *manta_trainer_logdir(const manta_trainer *t);
/* The URI under which its runs are stored; NULL: only in the logdir. Borrowed from the trainer. */
MANTA_API const char *manta_trainer_storage(const manta_trainer *t);
/* Directory of the newest run; "" before the first. Borrowed until the next run. */
MANTA_API const char *manta_trainer_run_dir(const manta_trainer *t);
/* Gives the newest checkpoint of the newest run (close it); NULL in *out if there is none. While a
 * run is going on it is the newest on disk; afterwards the newest of all, from memory if it can be.
 */
MANTA_API manta_status manta_trainer_checkpoint(manta_trainer *t, manta_checkpoint **out,
                                                manta_error *err);
/* Writes the directory of the best kept checkpoint of the newest run (by its score) into buf, for
 * manta_checkpoint_open or manta_run_config.checkpoint. MANTA_ENOENT if none has a score, and
 * MANTA_ETOOBIG if `size` bytes are too few. */
MANTA_API manta_status manta_trainer_best_checkpoint(manta_trainer *t, char *buf, size_t size,
                                                     manta_error *err);
/* Process id (on its host) of a rank of the newest attempt, or of its successor if it is gone; -1
 * if there is no such rank, or neither. Check it before kill(), to which -1 is every process. */
MANTA_API int manta_trainer_pid(const manta_trainer *t, int rank);

/* --- A run, row by row ---------------------------------------------------------------------- */

/* Starts a run and gives it in *out (close it), without waiting for its workers. rc and fn are
 * those of manta_trainer_run. MANTA_ESTATE: the trainer has a run already. Rows that are not taken
 * fill their buffers, and then the workers' reports wait: call manta_run_next until it ends. */
MANTA_API manta_status manta_run_start(manta_run **out, manta_trainer *t, manta_train_fn fn,
                                       const manta_run_config *rc, manta_error *err);
/* Waits for the next iteration, and runs the callbacks that are due. 1: *out (may be NULL) holds
 * its rows, borrowed until the next call; 0: the run is over and was successful; negative: the
 * run's error (a manta_status), or MANTA_ETIMEDOUT after timeout_s (negative: no limit), upon which
 * it may be called again. */
MANTA_API int manta_run_next(manta_run *r, double timeout_s, manta_rows *out, manta_error *err);
/* Waits for the next iteration of any of `count` runs: many runs, one thread. Each has a trainer of
 * its own and is there once; a NULL among them is left out. Those that have rows take turns: next
 * is the one that was looked after the longest time ago. Output, callbacks and renew of all of them
 * run inside of this call, and the others wait meanwhile. Of rows that change on a terminal, those
 * of the run that was looked after last are shown.
 *   1                           *out (may be NULL) holds rows of runs[*which], borrowed until the
 *                               next call for that run
 *   0                           runs[*which] is over and was successful
 *   negative, *which < count    the error of runs[*which], which is over
 *   negative, *which == count   of no run: MANTA_ETIMEDOUT after timeout_s (negative: no limit),
 *                               upon which it may be called again; MANTA_ENOENT: there is none
 * A run that is over is given again whenever it is its turn: put NULL in its place. A run that is
 * closed must not be there. One that has nothing costs a look into memory, no more. */
MANTA_API int manta_run_next_any(manta_run *const *runs, size_t count, double timeout_s,
                                 size_t *which, manta_rows *out, manta_error *err);
/* True when nothing more will come out of manta_run_next but the run's end. Does not wait. */
MANTA_API bool manta_run_finished(const manta_run *r);
/* Waits until all of a finished run that has a URI (manta/storage.h) is stored there.
 * MANTA_ETIMEDOUT: not within timeout_s; it can be called again. Without it manta_run_close waits,
 * MANTA_UPLOAD_WAIT seconds at most; after it, it does not. Files that change later are not stored.
 */
MANTA_API manta_status manta_run_stored(manta_run *r, double timeout_s, manta_error *err);
/* The return values by rank, borrowed until the run is closed, or NULL while the run is going on or
 * if it failed. Bytes that came by manta_session_result are MANTA_BYTES here, or nil if they are
 * more than MANTA_VALUE_MAX_BYTES. Large ones lie in files of the run's directory,
 * results/rank-R.KIND, from which a run that was finished and is resumed has them. */
MANTA_API const manta_value *manta_run_results(const manta_run *r);
/* The bytes that a rank gave by manta_session_result and their number, whatever it is, borrowed
 * until the run is closed. MANTA_ENOENT: it gave none, or the run has not finished. */
MANTA_API manta_status manta_run_result_bytes(const manta_run *r, int rank, const void **bytes,
                                              size_t *count, manta_error *err);
/* Where the result of a rank lies, for a message about it: a path, or "" if it is not in a file.
 * Borrowed until the run is closed. */
MANTA_API const char *manta_run_result_file(const manta_run *r, int rank);
/* What the rank whose failure ended the run (err->rank) had put into its result, borrowed until the
 * run is closed: the place for more than a message holds. NULL if it is not known. */
MANTA_API const manta_value *manta_run_failure(const manta_run *r);
/* Ends the run if it is still going on (it can then be resumed), and frees it; the finish callbacks
 * have been called when it returns. Before or after the trainer is destroyed, but always: nothing
 * else frees it. NULL is fine. */
MANTA_API void manta_run_close(manta_run *r);

#ifdef __cplusplus
}
#endif
#endif
