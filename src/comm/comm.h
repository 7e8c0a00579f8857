/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/comm.h - a communicator inside, and what it needs of its host.
 *
 * (1) A call is a task. It is run at once by the caller, or started: then it waits in the
 *     communicator's lane, whose thread (or whoever waits) runs it in its turn.
 * (2) Tasks of ranks that share memory are done by their team (comm/shm/team.h).
 * (3) Sends and receives have no turn: they are moved by whoever waits and by a second thread, so
 *     that two ranks may start a send to each other before they receive.
 *
 * comm.c      making, the public calls
 * backlog.c   collectives that were started
 * mover.c     sends and receives in flight
 * aside.c     messages whose receive has not come yet
 * split.c     groups: communicators out of communicators
 * gpu.c       tasks on device memory
 *
 * reduce/     the sum of n arrays, and the other operations: kernels for each instruction set
 *   reduce.c    which kernel runs         avx2.c, avx512.c, scalar.c: those there are
 *   ref.c       the same, word by word    kernels.h, loop.h, isa.h: how they are made
 * shm/        ranks that share memory
 *   task.h      a call, and its description
 *   team.c      phases, waiting           crowd.c    a rank that waits moves to another CPU
 *   shared.c    collectives of a team     chooser.c  which way large ones go, by measuring
 *   direct.c    … straight from the others' buffers in the heap
 *   remote.c    … straight from the others' private memory, by the kernel
 *   pair.c      bytes from one rank to another
 *   heap.c      memory that others can read
 * hosts/      ranks on several hosts
 *   hosts.c     layout, messages, how a call begins
 *   calls.c     the collectives           reduction.c, lanes.c: reductions
 *   move.c      sends and receives        net.c      the table of a transport, and its module
 * nccl/       device memory: device.c in the core, the rest in a module
 *   device.c    finds the module          device.h   what it is asked for
 *   nccl.c      communicators             call.c     each collective in NCCL's words
 *   end.c       the end of one            lib.c      NCCL and CUDA, found at run time (abi.h)
 * ucx/        messages between hosts over UCX: a module
 *   ucx.c
 */
#ifndef MANTA_COMM_COMM_H
#define MANTA_COMM_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <manta/comm.h>

#include "comm/shm/team.h"

struct manta_work {
  manta_comm *comm;
  manta_work *next; /* in its lane, or among the moves */
  manta_work *prev_all, *next_all;
  struct manta__task task;
  bool moves; /* in the mover, not in the lane */
  bool any;   /* receives from whoever sends first */
  struct manta__move move;
  _Atomic bool done;
  manta_status status;
  manta_error err;
  size_t counts[]; /* a copy */
};

/* Collectives that were started, one behind the other. */
struct manta__backlog {
  pthread_mutex_t lock;
  pthread_cond_t change;
  manta_work *first, **last;
  _Atomic int pending; /* queued or running */
  bool busy;           /* somebody runs the first */
  bool stop, has_thread;
  pthread_t thread;
};

/* Sends and receives in flight, in order of their start. */
struct manta__mover {
  pthread_mutex_t lock;
  pthread_cond_t change;
  manta_work *first, **last;
  bool has_thread;
  _Atomic bool stop;
  pthread_t thread;
  uint32_t *seen, round;     /* [size]: channels that have a send in front in this round */
  struct manta__move **half; /* [size]: what is in the middle of a message from there, or NULL */
  struct manta__aside *aside, **aside_last; /* messages whose tag nobody has asked for yet */
  size_t aside_bytes;
};

/* Where device memory goes; made when some is first seen. */
struct manta__comm_gpu {
  const struct manta__device_ops *ops;
  struct manta__device *device;
  int index;
  void *stream; /* the caller's, or NULL */
};

struct manta_comm {
  struct manta__fabric *fabric;
  manta_comm *next; /* of the fabric's */
  int rank, size;
  int *run; /* [size]: ranks in the run */
  bool is_world;
  manta_error *failed; /* it could not be made: what every call gives; else NULL */
  manta_status (*rebuild)(void *ctx, manta_comm **out, manta_error *err); /* of its host */
  void *ctx;
  struct manta__team team;    /* those on this host */
  struct manta__hosts *hosts; /* NULL: these are all */
  struct manta__backlog lane;
  struct manta__mover mover;
  struct manta__comm_gpu gpu;
  manta_work *all; /* not waited for yet */
  pthread_mutex_t all_lock;
};

/* The communicator of all ranks. The segment must be all zeros and the same for all ranks. */
manta_status manta__comm_create(manta_comm **out, const struct manta__comm_host *host,
                                manta_error *err);
/* One whose calls all give this error. NULL: no memory. */
manta_comm *manta__comm_create_failed(const struct manta__comm_host *host, int rank, int size,
                                      const manta_error *why);
/* MANTA_OK, or why it can't be used. */
manta_status manta__comm_usable(const manta_comm *c, manta_error *err);
/* Tells the others that we left, ends what is in flight, and frees this communicator and all that
 * were split from it. NULL is fine. */
void manta__comm_destroy(manta_comm *c);
/* Only tells the others of this host that we left, in all communicators: for a process that ends
 * now, whatever its threads do. NULL is fine. */
void manta__comm_depart(manta_comm *c);
/* The first rank of this host that has left, as a rank of the run, or -1. */
int manta__comm_departed(const manta_comm *c);

/* --- comm.c --- */
/* A group of `size` ranks, run[r] being their ranks in the run; its team lies at `at`. */
manta_status manta__comm_make(manta_comm **out, struct manta__fabric *f, uint64_t at, int rank,
                              int size, const int *run, uint32_t group, manta_error *err);
/* Whether a rank of the run is on this host. */
bool manta__comm_is_here(const struct manta__fabric *f, int run);
/* A collective in host memory. */
manta_status manta__comm_run_host(manta_comm *c, const struct manta__task *t, manta_error *err);
void manta__comm_end(manta_comm *c);
/* Runs a collective on this thread. */
manta_status manta__comm_run(manta_comm *c, const struct manta__task *t, manta_error *err);

/* --- gpu.c --- */

/* Whether its buffers are device memory, and of which GPU. */
bool manta__comm_gpu_task(const manta_comm *c, const struct manta__task *t, int *gpu);
manta_status manta__comm_gpu_run(manta_comm *c, const struct manta__task *t, int gpu,
                                 manta_error *err);
void manta__comm_gpu_end(manta_comm *c);

/* --- backlog.c --- */
void manta__backlog_init(struct manta__backlog *l);
void manta__backlog_fini(struct manta__backlog *l);
/* Queues a copy of the task. */
manta_status manta__backlog_start(manta_comm *c, const struct manta__task *t, manta_work **out,
                                  manta_error *err);
void manta__backlog_wait(struct manta__backlog *l, manta_work *w);
manta_work *manta__work_new(manta_comm *c, const struct manta__task *t, manta_error *err);
void manta__work_free(manta_work *w);

/* --- mover.c --- */
manta_status manta__mover_init(struct manta__mover *m, int size, manta_error *err);
void manta__mover_fini(manta_comm *c);
manta_status manta__mover_run(manta_comm *c, const struct manta__task *t, manta_error *err);
manta_status manta__mover_start(manta_comm *c, const struct manta__task *t, manta_work **out,
                                manta_error *err);
void manta__mover_wait(manta_comm *c, manta_work *w);
/* What the team calls a rank of the communicator that is on this host. */
int manta__mover_local(const manta_comm *c, int rank);

/* --- aside.c: with the mover's lock --- */

void manta__aside_init(struct manta__mover *m);
void manta__aside_fini(struct manta__mover *m);
/* Takes messages out of the channel from `peer` that no receive in flight wants. */
manta_status manta__aside_clear(manta_comm *c, int peer, manta_error *err);
/* Whether a message of `peer` that was put aside is for `w`: then it has it, and is over. */
bool manta__aside_find(manta_comm *c, manta_work *w, int peer, manta_status *st);

#endif
