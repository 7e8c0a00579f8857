/* SPDX-License-Identifier: Apache-2.0
 *
 * train/run.h - a trainer and its run, inside the driver.
 *
 * All of it is guarded by the driver's lock, but for what is marked as the user thread's own.
 *
 *   trainer.c   the trainer: create, start, shut down, what can be asked of it
 *   hosts.c     its hosts
 *   run_api.c   a run from the user's thread: beginning, end
 *   rundir.c    its directory: fresh, adopted or only read again
 *   deliver.c   rows, output and callbacks on the user's thread
 *   run.c       what happens to it: messages of the agents, steps
 *   form.c      attempts, and growing back; muster.c: the same on several hosts
 *   say.c       what it says, to the user and to run.log; screen.h: how it is shown
 *   terminal.c  a rank that has the driver's terminal
 *   exchange.c  what ranks tell each other through the driver
 *   rows.c      rings -> run.log -> alignment
 *   ending.c    its end: results, the last checkpoint, the message
 *   results.c   results that are too large for a message
 */
#ifndef MANTA_TRAIN_RUN_H
#define MANTA_TRAIN_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <termios.h>

#include <manta/manta.h>

#include "ckpt/origin.h"
#include "event/log.h"
#include "group/membership.h"
#include "group/ring.h"
#include "train/align.h"
#include "train/driver.h"
#include "train/screen.h"

struct manta__trainer_host { /* a host of a trainer */
  struct manta__link *link;
  char *address;    /* as given, or NULL */
  int slots;        /* workers it may have; 0: as many as it has CPUs, and more if need be */
  bool announced;   /* it knows of the run */
  int first, count; /* its ranks in the newest attempt */
  int planned;      /* its workers when the run began, by which it divides its CPUs; 0: none yet */
  int share, limit; /* muster: workers it is to have; more than that it has not */
  int asked;        /* … that it was asked for; 0: none yet */
  bool answered;
  int64_t *wids; /* … the workers it has ready, `ready` of them */
  int ready;
};

struct manta__peer { /* a worker process */
  struct manta__peer *next;
  struct manta__link *link;
  int64_t wid;
  int64_t before; /* whose place it takes, or -1 */
  int seat;       /* … and that one's rank, or -1 */
  pid_t pid;
  struct manta__ring ring;
  bool damaged; /* its ring was scribbled over: nothing more is read from it */
  bool held;    /* its next row is too far ahead of the others' */
  bool done;    /* its function has returned, well; told when its last row was read */
};

struct manta__text { /* something to show: output of a worker, or a warning */
  struct manta__text *next;
  int rank;   /* -1: a warning of ours, -2: something to know */
  int stream; /* of the worker: 1, 2 */
  bool live;  /* its rows that change, all of them */
  size_t len;
  char data[];
};

struct manta__newest { /* the newest snapshot in memory */
  int fd;              /* -1: none */
  int64_t wid;
  int slot;
  int64_t iteration;
  int64_t capacity; /* bytes of its slot, of which there are three */
};

struct manta__tty { /* the terminal of a rank */
  int fd, rank;     /* -1: none has it */
  bool saved;
  struct termios before;
};

struct manta__exchange {      /* what the ranks of the attempt tell each other */
  struct manta__voice *voice; /* by rank */
  int world;
  uint64_t exchanges, agreements; /* rounds that are over */
};

struct manta__storing { /* large results on their way into files */
  bool busy;
  int rank, dir, fd; /* fd: of the file that is being written, or -1 */
  size_t at;
  void *hash; /* XXH3_state_t */
};

struct manta_trainer {
  manta_trainer *next;
  uint32_t group;
  int workers, min_workers, max_retries;
  int threads;        /* that programs are loaded with; 0: as the environment says */
  int worker_threads; /* of a worker; 0: as the environment says; -1: its part of the CPUs */
  bool elastic; /* the user gave a minimum: fewer than asked for is no error, even at the start */
  bool retry_errors, pin, show_all, quiet, strict_cpus;
  bool keep; /* its workers serve several calls of a train function */
  bool hold; /* its idle workers are not to be ended for another trainer's sake */
  double step_timeout, grace, cpus, gpus;
  int64_t log_limit;
  char *name, *logdir;
  struct manta__program program;
  manta_value config, resources;
  manta_callbacks *callbacks;
  size_t callback_count;
  struct manta__peer *peers;
  struct manta__trainer_host *host; /* the hosts, in the order of their ranks */
  int hosts;
  struct manta__link *door; /* on this host, so that `manta ps` finds the run; NULL: host 0 is */
  enum { MANTA__MUSTER_NONE, MANTA__MUSTER_HELLO, MANTA__MUSTER_ASKED } muster;
  int64_t muster_by; /* lost hosts are not waited for any longer */
  manta_error muster_error;
  bool spawning;  /* a SPAWN waits for its answer */
  bool told_open; /* in this run, that its network is to be trusted */
  manta_error spawn_error;
  manta_run *run; /* the current one, or NULL */
  manta_run
      *parked;   /* one that waits for what is called on its workers before it goes on, or NULL */
  char *run_dir; /* of the newest */
  bool score_min;
  int notice; /* set by manta_trainer_notice, from a signal handler perhaps */
  struct manta__newest newest;
  int world;     /* of the newest attempt */
  int64_t *wids; /* … its workers by rank */
  int wid_places;
};

struct manta_run {
  manta_trainer *trainer; /* NULL: the run has parted from it, and is over */
  uint64_t id;
  char *dir;
  int rundir, logs, job_fd;
  struct manta__origin initial; /* the checkpoint that the user named, or nothing */
  struct manta__tty tty;
  bool exec;              /* an execute call: no directory, no rows */
  bool single;            /* … of rank 0 alone */
  bool resumed, replayed; /* adopted; finished already, only its results are given */
  manta__log_writer *log;
  uint64_t log_seq;
  struct manta__membership membership;
  struct manta__align align;
  struct manta__exchange exchange;
  bool strict_reports, listening;
  const void *payload; /* the caller's, until the job is made */
  size_t payload_bytes;
  int keep_last, keep_best;
  bool score_min;
  char *score;
  manta_value config;
  const manta_callbacks **callbacks;
  manta_callbacks *own; /* copies of those given to this run */
  size_t callback_count;
  manta_value *result;      /* by rank of the current attempt */
  struct manta__bulk *bulk; /* … those that are large, or NULL: results.c */
  struct manta__storing storing;
  bool taken;         /* … were given to the user */
  int64_t held_ns;    /* since when rows wait for a rank that lags behind; 0: none do */
  bool gaps_are_fine; /* it was waited for in vain */
  bool told_noroom, finishing, over, finished_told;
  int probing, room; /* questions for more room that are on their way, and their answers so far */
  int settling;      /* agents that have not said that all is written */
  int64_t probe_ns;  /* when to ask next */
  manta_status (*renew)(void *ctx, int attempt, manta_error *err);
  void *renew_ctx;
  bool paused;  /* the next attempt is to be formed by the user's thread, after `renew` */
  bool noticed; /* all hosts know that the run was asked to stop */
  bool rewind;  /* the next attempt is not the first */
  int64_t base; /* iteration the current attempt began after */
  int64_t initial_iteration;
  char last_root[MANTA_ERROR_MESSAGE_MAX]; /* what ended the last attempt, to be told at the revival
                                            */
  manta_error error;
  struct manta__timeline { /* of the start, in ns from began; 0: not reached */
    int64_t began, formed, first_row;
  } timeline;
  manta_value results;                      /* list, when over */
  struct manta__rowset *queue, *queue_last; /* aligned, not taken yet */
  size_t queued;
  struct manta__text *texts, *texts_last;
  size_t text_bytes;
  bool moves;     /* rows that change are shown */
  bool displayed; /* … and all the rest, on a display of the caller's */
  /* the user thread's own */
  struct manta__screen screen;
  struct manta__rowset *batch;
  manta_value *values;
  int value_count;
};

/* --- trainer.c --- */

/* Copies a config struct of whatever age into one of ours. */
manta_status manta__config_take(void *out, size_t size, const void *given, const char *macro,
                                manta_error *err);

/* --- ranks.c --- */

/* Makes room for so many ranks. Before others know of the run, or with the lock held. */
manta_status manta__ranks_reserve(manta_run *r, int count, manta_error *err);
/* The same for t->wids. With the lock held. */
manta_status manta__ranks_reserve_wids(manta_trainer *t, int count, manta_error *err);
/* The run is to have so many workers from its next attempt on. With the lock held. */
manta_status manta__ranks_resize(manta_run *r, int want, manta_error *err);

/* --- hosts.c --- */

/* The hosts of a trainer: the config's, those of MANTA_HOSTS, or this one. With the lock held. */
manta_status manta__hostlist_take(manta_trainer *t, const manta_trainer_config *c,
                                  manta_error *err);
void manta__hostlist_drop(manta_trainer *t);

/* --- run.c --- */

void manta__run_on_msg(manta_trainer *t, struct manta__link *n, struct manta__msg *m);
/* final: there will not be another one. */
void manta__run_link_lost(manta_trainer *t, struct manta__link *n, const manta_error *why,
                          bool final);
/* Does what is due; returns when it must be called again. */
int64_t manta__run_step(manta_trainer *t, int64_t now);
void manta__peer_free(struct manta__peer *p);
/* Tells the agent on this host which workers there are elsewhere; `none` any more. */
void manta__run_tell_door(manta_trainer *t, bool none);
/* Sends to the agents of all hosts that are there. */
void manta__run_tell_all(manta_trainer *t, const struct manta__msg *m, const manta_value *v);

/* --- form.c --- */

#define MANTA__REQUEST_PAIRS 13
#define MANTA__ATTEMPT_PAIRS (MANTA__REQUEST_PAIRS + 10)

void manta__run_begin(manta_run *r, uint32_t attempt);
/* Begins an attempt. */
void manta__form(manta_run *r);
/* Asks for workers ahead of a run. */
manta_status manta__run_spawn(manta_trainer *t, manta_error *err);
/* What a worker of this trainer asks for, in `pairs`. Borrows from the trainer. */
manta_value manta__form_request(const manta_trainer *t, manta_pair *pairs, uint64_t key, int count,
                                int min);
/* The attempt ends: the workers it was in are ended, and successors forked for the next attempt or
 * the next run. */
void manta__form_renew(manta_run *r);
/* Tells an agent of the run, once. */
manta_status manta__form_announce(manta_run *r, struct manta__trainer_host *p, manta_error *err);
/* What the attempt begins from, opened: close it. */
void manta__form_checkpoint(manta_run *r, struct manta__origin *out);
/* Sends ATTEMPT: *v is a request, with room for MANTA__ATTEMPT_PAIRS. */
manta_status manta__form_send(manta_run *r, struct manta__trainer_host *p, manta_value *v,
                              const struct manta__origin *from, manta_error *err);
/* All are known that take part: t->wids. */
void manta__form_done(manta_run *r, int world, int64_t now);
void manta__form_noroom(manta_run *r, const manta_error *why, int64_t now);
void manta__form_on_formed(manta_trainer *t, struct manta__link *n, struct manta__msg *m,
                           const manta_value *v, int64_t now);
void manta__form_on_noroom(manta_trainer *t, struct manta__link *n, const manta_value *v,
                           int64_t now);
/* Asks for room for a run that is too small; returns when to do so again. */
int64_t manta__form_probe(manta_run *r, int64_t now);

/* --- muster.c: several hosts --- */

manta_status manta__muster_begin(manta_trainer *t, manta_error *err);
void manta__muster_end(manta_trainer *t);
int64_t manta__muster_step(manta_trainer *t, int64_t now);
/* An agent's answer: what it has, or why it has nothing. */
void manta__muster_answer(manta_trainer *t, const struct manta__link *n, const manta_value *v,
                          const manta_error *why);
void manta__muster_gone(manta_trainer *t, int64_t wid);
void manta__muster_link_lost(manta_trainer *t, const struct manta__link *n);
/* Starts lost agents again whose time has come. */
void manta__muster_tend(manta_trainer *t, int64_t now);
/* Workers that a host could have beyond those of the newest attempt. */
int manta__muster_spare(manta_trainer *t, int host, int want);

/* --- say.c --- */

/* Queues a message of an agent to be shown: lines of a rank, or its rows that change. Dropped when
 * the user has not looked for long. */
void manta__run_show(manta_trainer *t, const struct manta__msg *m);
/* Tells the user something, in one line, and logs it. */
void manta__run_tell(manta_trainer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Shows a warning to the user, and logs it. */
void manta__run_warn(manta_trainer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void manta__run_log(manta_run *r, enum manta__event kind, const manta_value *v);
#define MANTA__OUTLOOK_MAX 4300
/* How a run that has a directory could go on if it ended now, in one line. */
void manta__run_outlook(const manta_run *r, char *buf, size_t size);

/* --- terminal.c --- */

/* Opens the terminal if a rank is to have it; gives it back as it was. */
manta_status manta__terminal_take(manta_run *r, manta_error *err);
void manta__terminal_leave(manta_run *r);

/* --- exchange.c --- */

/* An attempt of `world` ranks begins, or there is none any more. */
manta_status manta__exchange_begin(struct manta__exchange *x, int world, manta_error *err);
void manta__exchange_end(struct manta__exchange *x);
/* A message of a rank of this attempt: bytes for all, a number to agree on. */
void manta__exchange_give(manta_run *r, const struct manta__msg *m);
void manta__exchange_vote(manta_run *r, const struct manta__msg *m);
/* Passes FETCH on to the host of rank 0, and the answer to that of the rank that asked. */
void manta__exchange_fetch(manta_run *r, const struct manta__msg *m);
/* A rank left its function. */
void manta__exchange_left(manta_run *r, int rank);
/* The members changed: those who wait may have all the votes now. */
void manta__exchange_settle(manta_run *r);

/* --- rows.c --- */

/* How to read a ring in which a rank is more than the window ahead of the slowest. */
enum manta__ahead {
  MANTA__HOLD,  /* leave its rows where they are: the slow rank may only be waiting for a core */
  MANTA__PUSH,  /* deliver older rows with gaps: the slow rank does not report */
  MANTA__IGNORE /* log them only: the attempt is about to be void */
};
/* Reads one worker's rows; the number. They are released by manta__rows_release. */
int manta__rows_read(manta_trainer *t, struct manta__peer *p, enum manta__ahead how);
/* Hands what was read to the log, then frees the rings and queues what is aligned. */
void manta__rows_release(manta_trainer *t);
/* Queues what is aligned for the user, and shows what alignment has to say. */
void manta__rows_queue(manta_run *r);
/* Reads and releases, for all workers; the number of rows. */
int manta__rows_drain(manta_trainer *t);
/* False: rows stay in their rings, because the user does not take them, or because it is not known
 * yet who has which rank. */
bool manta__rows_reading(const manta_trainer *t);

/* --- ending.c --- */

/* The group is done: result or error, then the last checkpoint, then r->over. */
void manta__run_finish(manta_run *r);

/* Does what is due; true: there is more, at once. */
bool manta__ending_step(manta_run *r);

/* --- results.c --- */

/* The result in a DONE; a large one is taken from the message. */
manta_status manta__results_give(manta_run *r, struct manta__msg *m, const manta_value *v,
                                 manta_error *err);
void manta__results_forget(manta_run *r);
/* Room for the results of `count` ranks, of which there are r->membership.places so far. */
manta_status manta__results_reserve(manta_run *r, int count, manta_error *err);
/* Begins to write the large ones into files; false: there are none, or it cannot be. Each step
 * writes a piece; false after the last. */
bool manta__results_store(manta_run *r);
bool manta__results_step(manta_run *r);
void manta__results_stop(manta_run *r);
/* The files of FINISH, by rank; nil if there are none. */
manta_status manta__results_files(const manta_run *r, manta_value *out);
/* The large results of a run that had finished. */
manta_status manta__results_open(manta_run *r, const manta_value *finish, manta_error *err);
/* On the user's thread, after the end: r->results becomes whole. Again after a failure. */
manta_status manta__results_take(manta_run *r, manta_error *err);

/* --- run_api.c --- */

/* Ends the run, tells its callbacks, and leaves to the caller only its end and its results. On the
 * user's thread, without the lock. */
void manta__run_part(manta_run *r, const char *why);

/* --- rundir.c --- */

/* Makes the run's directory, or adopts that of the run that is resumed, by `resume` or by
 * MANTA_RESUME; *attempt: the first one to make. A finished run is only read again: r->over then.
 */
manta_status manta__run_directory(manta_run *r, manta_train_fn fn, const char *resume,
                                  uint32_t *attempt, manta_error *err);

/* --- deliver.c: on the user's thread, without the lock --- */

void manta__call_start(manta_run *r);
void manta__call_finish(manta_run *r); /* once */
void manta__deliver_free(manta_run *r);

#endif
