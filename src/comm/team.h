/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/team.h - the ranks of a communicator that share memory.
 *
 * (1) All ranks make the same calls in the same order; each call is a number of phases that all
 *     ranks agree on. A rank publishes a phase by storing its number; the others wait for that
 *     store.
 * (2) The first phase of a call carries its description: a call that differs is found there, on
 *     every rank, and named.
 * (3) What a rank puts into its staging buffer in one phase is read by others until they publish
 *     the next; there are two buffers, used in turns, so nobody waits for readers.
 * (4) A wait ends with the phase, with the abort word, with the deadline, or when a rank that is
 *     waited for has left its function.
 * (5) Memory of a peer is reached through the shared heap, or by asking the kernel to copy it
 *     (process_vm_readv) where that is allowed and pays.
 */
#ifndef MANTA_COMM_TEAM_H
#define MANTA_COMM_TEAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <manta/comm.h>

#include "sys/bell.h"

#define MANTA__COMM_CHUNK (256u << 10) /* bytes of one staging buffer */
#define MANTA__COMM_TINY  (1u << 10)   /* up to here staging is cheaper than a second phase */
#define MANTA__COMM_SMALL (8u << 10)   /* up to here the data rides with the description */
#define MANTA__COMM_PEEK  (64u << 10)  /* read from a peer's private memory at once */

/* The host: who we are, the shared segment, the abort word, the bells. Borrowed. */
struct manta__comm_host {
  int rank, size;
  int heap_fd;
  void *ctx;
  const _Atomic uint32_t *abort; /* not 0: check says why */
  manta_status (*check)(void *ctx, manta_error *err);
  struct manta__bell *(*bell)(void *ctx, int rank);
  /* A sign of life; waits = true: the clock that looks for hangs stands still until the next
   * one. Only called on the user's own thread. */
  void (*alive)(void *ctx, bool waits);
};

struct manta__heap_block {
  uint64_t at, bytes;
  bool used;
};

/* What the communicators of a process have in common. */
struct manta__fabric {
  struct manta__comm_host host;
  uint8_t *base; /* of the segment */
  size_t bytes;
  pthread_mutex_t lock;     /* for what follows */
  uint64_t heap_at, region; /* rank r deals out [heap_at + r * region, … + region) */
  struct manta__heap_block *block;
  size_t blocks, block_cap;
  manta_comm *comms;          /* the world's last */
  struct manta__grave *grave; /* memory of teams that some rank has not left yet */
};

enum manta__call {
  MANTA__CALL_BARRIER = 1,
  MANTA__CALL_ALLREDUCE,
  MANTA__CALL_REDUCE,
  MANTA__CALL_REDUCE_SCATTER,
  MANTA__CALL_BROADCAST,
  MANTA__CALL_ALLGATHER,
  MANTA__CALL_ALLGATHERV,
  MANTA__CALL_ALLTOALL,
  MANTA__CALL_GATHER,
  MANTA__CALL_SCATTER,
  MANTA__CALL_SEND,
  MANTA__CALL_RECV
};

#define MANTA__NOWHERE UINT64_MAX

/* What a rank says of its call. The first five must agree. */
struct manta__desc {
  uint32_t call, type, op;
  int32_t root;
  uint64_t count;
  uint64_t send_at, recv_at; /* places in the segment, or MANTA__NOWHERE */
  uint64_t send, recv;       /* addresses in its own memory */
  bool tangled;              /* the two overlap: pieces must be staged before any is written */
};

struct manta__line { /* of one rank, in the segment */
  _Alignas(128) _Atomic uint32_t phase;
  _Atomic uint32_t left; /* its function has returned */
  _Atomic int32_t pid;
  _Atomic uint32_t peeks; /* 1: it can read the others' memory, 2: it cannot */
  struct manta__desc desc[2];
};

struct manta__pair { /* bytes on their way from one rank to another, in the segment */
  _Alignas(128) _Atomic uint64_t put;
  _Alignas(128) _Atomic uint64_t taken;
};

/* A send or a receive on its way. */
struct manta__move {
  bool sends, headed, wrong;
  int peer;
  uint8_t *buf;
  size_t bytes, done;
  uint64_t count, place;
  uint32_t type;
  int64_t by;
  uint64_t their_count; /* of a send that differs */
  uint32_t their_type;
};

struct manta__team {
  struct manta__fabric *fabric;
  int rank, size;
  int *world; /* rank of each in the run */
  struct manta__line *line;
  struct manta__pair *pair; /* [to][from] */
  uint8_t *staging;         /* [rank][2][CHUNK] */
  uint8_t *result;          /* [2][CHUNK] */
  uint8_t *rings;           /* [to][from][ring_bytes] */
  size_t ring_bytes;
  uint32_t phase;      /* published by us */
  uint32_t turn;       /* which staging buffer is next */
  int64_t timeout_ns;  /* < 0: none */
  int64_t by;          /* deadline of the current call */
  _Atomic bool broken; /* a call ran out of time: the ranks are out of step */
  _Atomic bool quit;   /* we are leaving: waits end */
  int spins;           /* before yielding and sleeping */
  bool crowded;        /* more ranks than processors */
  int peeks;           /* 1: all ranks can read each other's memory, 0: not, -1: not known yet */
  size_t peek_from, peek_to; /* sizes for which that pays */
  const void **in;           /* n pointers, for reductions */
  uint8_t *scratch;          /* one block per rank, for what was peeked at */
};

struct manta__task;

/* --- team.c --- */

/* Bytes that a team of n needs in the segment, all zeros. */
size_t manta__team_bytes(int n);
manta_status manta__team_init(struct manta__team *t, struct manta__fabric *f, uint64_t at, int rank,
                              int size, const int *world, manta_error *err);
/* Tells the others that we left, and frees. */
void manta__team_fini(struct manta__team *t);
/* Every waiting and later call of ours ends with MANTA_ECANCELED. */
void manta__team_quit(struct manta__team *t);
/* Publishes our next phase. */
void manta__team_publish(struct manta__team *t);
/* Waits until every rank has published the phase that we did. */
manta_status manta__team_wait(struct manta__team *t, manta_error *err);
/* Both. */
manta_status manta__team_meet(struct manta__team *t, manta_error *err);
/* Publishes `d` (and what lies in the staging buffer), waits, and compares. */
manta_status manta__team_begin(struct manta__team *t, const struct manta__desc *d,
                               manta_error *err);
/* What else than its progress ends a wait for `rank`: MANTA_OK if nothing does. */
manta_status manta__team_trouble(struct manta__team *t, int rank, bool left, int64_t by,
                                 const char *call, manta_error *err);
void manta__team_ring(const struct manta__team *t, int rank);
struct manta__bell *manta__team_bell(const struct manta__team *t);
/* On the user's thread: a sign of life (see manta__comm_host). */
void manta__team_alive(const struct manta__team *t, bool waits);
/* This thread is manta's own: it gives no signs of life. */
void manta__team_background(void);
const char *manta__call_name(uint32_t call);
/* Copies from the memory of a rank; `place` and `addr` as it described them. */
manta_status manta__team_peek(struct manta__team *t, int rank, void *to, uint64_t place,
                              uint64_t addr, size_t skip, size_t bytes, manta_error *err);
/* Whether all ranks can do that with private memory. All must ask at the same place. */
manta_status manta__team_can_peek(struct manta__team *t, bool *can, manta_error *err);
/* The description of a rank in this turn, and its staging buffer. */
static inline const struct manta__desc *manta__team_desc(const struct manta__team *t, int rank)
{
  return &t->line[rank].desc[t->turn & 1];
}
static inline uint8_t *manta__team_staging(const struct manta__team *t, int rank)
{
  return t->staging + ((size_t)rank * 2 + (t->turn & 1)) * MANTA__COMM_CHUNK;
}

/* --- shared.c --- */
manta_status manta__team_run(struct manta__team *t, const struct manta__task *task,
                             manta_error *err);

/* --- pair.c --- */

/* Moves what can be moved; true when it is over, with its status in *st. */
bool manta__pair_step(struct manta__team *t, struct manta__move *m, manta_status *st,
                      manta_error *err);

/* --- heap.c --- */

manta_status manta__fabric_create(struct manta__fabric **out, const struct manta__comm_host *host,
                                  manta_error *err);
void manta__fabric_destroy(struct manta__fabric *f);
/* Zeroed memory of the segment; its place in *at. */
manta_status manta__heap_take(struct manta__fabric *f, size_t bytes, uint64_t *at,
                              manta_error *err);
void manta__heap_give(struct manta__fabric *f, uint64_t at);
/* Gives the memory of a team back when the last of its n ranks has left it. */
void manta__heap_bury(struct manta__fabric *f, uint64_t at, int n);
/* Place of p in the segment if all of it lies in our part of the heap, or MANTA__NOWHERE. */
uint64_t manta__heap_place(const struct manta__fabric *f, const void *p, size_t bytes);

#endif
