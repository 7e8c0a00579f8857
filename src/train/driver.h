/* SPDX-License-Identifier: Apache-2.0
 *
 * train/driver.h - manta in the user's process: one thread, all trainers, an agent per host.
 *
 * (1) One lock guards everything; the I/O thread holds it except while it waits. All signals are
 *     blocked there. It runs no user code.
 * (2) User threads send messages to agents themselves, under the lock, and wait on the
 *     condition.
 * (3) Rows are read from the rings in batches, 10 ms apart while they keep coming, handed to
 *     run.log, and only then released and aligned.
 * (4) A forked child of the user's process has none of this: its descriptors are closed there.
 */
#ifndef MANTA_TRAIN_DRIVER_H
#define MANTA_TRAIN_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <manta/manta.h>

#include "engine/engine.h"
#include "group/proto.h"
#include "train/program.h"
#include "wire/conn.h"
#include "wire/rpc.h"

/* An agent as its driver sees it: on this host or, through a bridge, on another. Trainers that name
 * the same host share it. */
struct manta__link {
  struct manta__link *next;
  struct manta__engine_host where;
  int users;         /* trainers, and who keeps it */
  bool kept;         /* it lives without trainers (manta_prestart) */
  manta__conn *conn; /* NULL: it does not run */
  pid_t pid;
  bool spoke;          /* it answered our hello */
  bool known;          /* it did so once: what happens to it later is a loss, not a mistake */
  manta_error refusal; /* why it cannot work, if it said so */
  int64_t heard_ns;    /* when it last said anything */
  int64_t retry_ns;    /* not started again before */
  int failures;        /* in a row */
  struct manta__rpc rpc;
  char host[256], addr[64]; /* as it says itself */
  double cpus, gpus;
  uint64_t program_sent; /* key of the program this agent knows */
};

struct manta__driver {
  pthread_mutex_t lock;
  pthread_cond_t cond;
  pthread_t thread;
  bool running, quit, dead; /* dead: we are a forked child */
  int command_fd, ring_fd;  /* eventfds: user threads (also from signal handlers: atomic), rows */
  struct manta__link *nodes;
  uint32_t starts; /* of agents: their workers are numbered apart */
  uint32_t groups;
  manta_trainer *trainers;
  uint64_t session;
  int ordinals;
  int64_t drained_ns; /* when rows were last read */
  bool rows_flowing;
  uint64_t turns; /* of runs that one thread waits for together */
  int argc;       /* what `manta resume` runs again */
  char **argv;
};

extern struct manta__driver manta__drv;

/* --- driver.c: the process's side --- */

/* Called by manta_init in the driver; argv is borrowed for good. */
void manta__driver_note_program(int argc, char **argv);
/* Keeps an agent on this host with a process of the program. Without the lock, as the next two. */
manta_status manta__driver_keep(const struct manta__program *p, int threads, manta_error *err);
/* The same on all hosts of a trainer, whose program it is. */
manta_status manta__driver_keep_hosts(manta_trainer *t, manta_error *err);
/* Ends those of them that no trainer uses. */
void manta__driver_release(void);
/* Makes the random number of this invocation of the program, once. With the lock held. */
manta_status manta__driver_session(manta_error *err);
/* Starts the thread if need be. With the lock held, as all that follows. */
manta_status manta__driver_up(manta_error *err);
/* Ends the agents and the thread when no trainer is left; drops the lock for the while. */
void manta__driver_down(void);
void manta__driver_wake(void);

/* --- link.c: agents --- */

/* The agent of a host, known to be used by one trainer more; it is not started yet. */
struct manta__link *manta__link_use(const struct manta__engine_host *h, manta_error *err);
/* One trainer less; an agent that nobody uses is told to leave, unless it is on this host. */
void manta__link_drop(struct manta__link *n);
/* Starts it with a process of the program, and keeps it, also without trainers. */
manta_status manta__link_keep(struct manta__link *n, const struct manta__program *p, int threads,
                              manta_error *err);
/* Starts it, and the thread, if it does not run. */
manta_status manta__link_up(struct manta__link *n, manta_error *err);
/* The same for several at once. The first failure is told, and does not keep the others from
 * being started. */
manta_status manta__links_up(struct manta__link *const *links, int count, manta_error *err);
/* Whether it is on another host, behind a bridge. */
bool manta__link_remote(const struct manta__link *n);
/* Its name for messages. */
const char *manta__link_name(const struct manta__link *n);
/* The program's zygotes can be started by the agent from now on; gives their key. */
manta_status manta__link_program(struct manta__link *n, const struct manta__program *p, int threads,
                                 uint64_t *key_out, manta_error *err);
/* … and one is started now. */
manta_status manta__link_warm(struct manta__link *n, uint64_t key, manta_error *err);
manta_status manta__link_send(struct manta__link *n, const struct manta__msg *m,
                              const manta_value *v, manta_error *err);
/* Reads what it has said; notices its end and its silence. Returns when to look again. */
int64_t manta__link_read(struct manta__link *n, int64_t now);
/* Those that are kept are so no longer; whether there are any. */
void manta__links_release(void);
bool manta__links_kept(void);
void manta__links_end(void);

#endif
