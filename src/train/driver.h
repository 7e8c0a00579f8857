/* SPDX-License-Identifier: Apache-2.0
 *
 * train/driver.h - manta in the user's process: one agent, one thread, all trainers.
 *
 * (1) One lock guards everything; the I/O thread holds it except while it waits. All signals are
 *     blocked there. It runs no user code.
 * (2) User threads send messages to the agent themselves, under the lock, and wait on the
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

#include "group/proto.h"
#include "wire/conn.h"
#include "wire/rpc.h"

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

#endif
