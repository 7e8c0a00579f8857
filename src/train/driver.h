/* SPDX-License-Identifier: Apache-2.0
 *
 * train/driver.h - manta in the user's process: one agent, one thread, all trainers.
 *
 * (1) One lock guards everything; the I/O thread holds it except while it waits. All signals are
 * blocked there. It runs no user code. (2) User threads send messages to the agent themselves,
 * under the lock, and wait on the condition. (3) Rows are read from the rings in batches, 10 ms
 * apart while they keep coming, handed to run.log, and only then released and aligned. (4) A forked
 * child of the user's process has none of this: its descriptors are closed there.
 */
#ifndef MANTA_TRAIN_DRIVER_H
#define MANTA_TRAIN_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <manta/manta.h>

#include "event/log.h"
#include "group/group.h"
#include "group/proto.h"
#include "group/ring.h"
#include "sys/proc.h"
#include "train/align.h"
#include "wire/conn.h"
#include "wire/rpc.h"

struct manta__peer { /* a worker process */
  struct manta__peer *next;
  int64_t wid;
  pid_t pid;
  struct manta__ring ring;
  bool damaged; /* its ring was scribbled over: nothing more is read from it */
  bool held;    /* its next row is too far ahead of the others' */
  bool done;    /* its function has returned, well; told when its last row was read */
};

struct manta__text { /* something to show: output of a worker, or a warning */
  struct manta__text *next;
  int rank; /* -1: a warning of ours */
  size_t len;
  char data[];
};

struct manta__newest { /* the newest snapshot in memory */
  int fd;              /* -1: none */
  int64_t wid;
  int slot;
  int64_t iteration;
};

struct manta_trainer {
  manta_trainer *next;
  uint32_t group;
  int workers, min_workers, max_retries, threads;
  bool elastic; /* the user gave a minimum: fewer than asked for is no error, even at the start */
  bool retry_errors, pin, show_all, quiet, strict_cpus;
  double step_timeout, grace, cpus, gpus;
  int64_t log_limit;
  char *name, *logdir;
  manta_value config, resources;
  manta_callbacks *callbacks;
  size_t callback_count;
  struct manta__peer *peers;
  bool spawning; /* a SPAWN waits for its answer */
  manta_error spawn_error;
  int spawned;
  manta_run *run; /* the current one, or NULL */
  char *run_dir;  /* of the newest */
  bool score_min;
  int notice; /* set by manta_trainer_notice, from a signal handler perhaps */
  struct manta__newest newest;
  int world; /* of the newest attempt */
  int64_t wids[MANTA_MAX_RANKS];
};

struct manta_run {
  manta_trainer *trainer;
  uint64_t id;
  char *dir;
  int rundir, logs, job_fd, initial_fd; /* initial_fd: checkpoint to begin from, or -1 */
  bool exec;                            /* an execute call: no directory, no rows */
  bool single;                          /* … of rank 0 alone */
  bool resumed, replayed;               /* adopted; finished already, only its results are given */
  manta__log_writer *log;
  uint64_t log_seq;
  struct manta__group group;
  struct manta__member *members;
  struct manta__align align;
  bool strict_reports, listening;
  int keep_last, keep_best;
  bool score_min;
  char *score;
  manta_value config;
  const manta_callbacks **callbacks;
  manta_callbacks *own; /* copies of those given to this run */
  size_t callback_count;
  manta_value *result; /* by rank of the current attempt */
  int64_t held_ns;     /* since when rows wait for a rank that lags behind; 0: none do */
  bool gaps_are_fine;  /* it was waited for in vain */
  bool told_noroom, finishing, over, announced, finished_told;
  bool probing;     /* a question for more room is on its way */
  int64_t probe_ns; /* when to ask next */
  bool rewind;      /* the next attempt is not the first */
  int64_t base;     /* iteration the current attempt began after */
  int64_t initial_iteration;
  char last_root[MANTA_ERROR_MESSAGE_MAX]; /* what ended the last attempt, to be told at the revival
                                            */
  manta_error error;
  manta_value results;                      /* list, when over */
  struct manta__rowset *queue, *queue_last; /* aligned, not taken yet */
  size_t queued;
  struct manta__text *texts, *texts_last;
  size_t text_bytes;
  /* the user thread's own */
  struct manta__rowset *batch, *shown;
  manta_value *values;
  int value_count;
};

struct manta__driver {
  pthread_mutex_t lock;
  pthread_cond_t cond;
  pthread_t thread;
  bool running, quit, dead; /* dead: we are a forked child */
  int command_fd, ring_fd;  /* eventfds: user threads (also from signal handlers: atomic), rows */
  manta__conn *agent;
  pid_t agent_pid;
  bool agent_spoke;    /* it answered our hello */
  manta_error refusal; /* why it cannot work, if it said so */
  struct manta__rpc rpc;
  char host[256];
  double host_cpus, host_gpus;
  uint64_t program_sent; /* key of the program this agent knows */
  uint32_t groups;
  manta_trainer *trainers;
  uint64_t session;
  int ordinals;
  int64_t drained_ns; /* when rows were last read */
  bool rows_flowing;
  int argc;
  char **argv;
};

extern struct manta__driver manta__drv;

/* Copies a config struct of whatever age into one of ours. */
manta_status manta__config_take(void *out, size_t size, const void *given, const char *macro,
                                manta_error *err);

/* --- driver.c: the process's side --- */

/* Called by manta_init in the driver. */
void manta__driver_note_program(int argc, char **argv);
/* Makes the random number of this invocation of the program, once. With the lock held. */
manta_status manta__driver_session(manta_error *err);
/* Starts thread and agent if need be. With the lock held. */
manta_status manta__driver_up(manta_error *err);
/* Ends the agent and the thread when no trainer is left. With the lock held; drops it for the
 * while. */
void manta__driver_down(void);
void manta__driver_wake(void);
/* The program's zygotes can be started by the agent from now on; gives their key. */
manta_status manta__driver_program(uint64_t *key_out, int threads, manta_error *err);
manta_status manta__driver_send(const struct manta__msg *m, const manta_value *v, manta_error *err);
/* Finds the manta command, which is the agent's binary. manta_free it. */
char *manta__driver_find_command(void);

/* --- run.c: what happens to a run; all with the lock held --- */

void manta__run_on_msg(manta_trainer *t, struct manta__msg *m);
/* final: there will not be another one. */
void manta__run_agent_lost(manta_trainer *t, const manta_error *why, bool final);
/* Reads the rings of a trainer; the number of rows. */
int manta__run_drain(manta_trainer *t);
/* Does what is due; returns when it must be called again. */
int64_t manta__run_step(manta_trainer *t, int64_t now);
manta_status manta__run_begin(manta_run *r, uint32_t attempt, manta_error *err);
manta_status manta__run_announce(manta_run *r, manta_error *err);
/* Asks for workers ahead of a run. */
manta_status manta__run_spawn(manta_trainer *t, manta_error *err);
void manta__run_warn(manta_trainer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* False: rows stay in their rings, because the user does not take them, or because it is not known
 * yet who has which rank. */
bool manta__run_reading(const manta_trainer *t);
void manta__peer_free(struct manta__peer *p);

#endif
