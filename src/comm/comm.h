/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/comm.h - a communicator inside, and what it needs of its host.
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
 */
#ifndef MANTA_COMM_COMM_H
#define MANTA_COMM_COMM_H

#include <stdatomic.h>
#include <stdint.h>

#include <manta/comm.h>

#include "sys/bell.h"

#define MANTA__COMM_CHUNK (256u << 10) /* bytes of one staging buffer */
#define MANTA__COMM_TINY  (1u << 10)   /* up to here staging is cheaper than a second phase */
#define MANTA__COMM_SMALL (8u << 10)   /* up to here the data rides with the description */

/* The host: who we are, the shared segment, the abort word, the bells. Borrowed. */
struct manta__comm_host {
  int rank, size;
  int heap_fd;
  void *ctx;
  const _Atomic uint32_t *abort; /* not 0: check says why */
  manta_status (*check)(void *ctx, manta_error *err);
  struct manta__bell *(*bell)(void *ctx, int rank);
  /* A sign of life; waits = true: the clock that looks for hangs stands still until the next one.
   * */
  void (*alive)(void *ctx, bool waits);
};

enum manta__call {
  MANTA__CALL_BARRIER = 1,
  MANTA__CALL_ALLREDUCE,
  MANTA__CALL_REDUCE,
  MANTA__CALL_BROADCAST,
  MANTA__CALL_ALLGATHER,
  MANTA__CALL_ALLGATHERV,
  MANTA__CALL_REDUCE_SCATTER,
  MANTA__CALL_ALLTOALL,
  MANTA__CALL_GATHER,
  MANTA__CALL_SCATTER
};

/* What a rank says of its call. The first five must agree. */
struct manta__desc {
  uint32_t call, type, op;
  int32_t root;
  uint64_t count;
  uint64_t send_at, recv_at; /* places in the heap, or UINT64_MAX */
};

struct manta__line { /* of one rank, in the segment */
  _Alignas(128) _Atomic uint32_t phase;
  _Atomic uint32_t left; /* its function has returned */
  struct manta__desc desc[2];
};

struct manta__heap_block {
  uint64_t at, bytes;
  bool used;
};

struct manta_comm {
  struct manta__comm_host host;
  uint8_t *base; /* of the segment */
  size_t bytes;
  struct manta__line *line; /* one per rank */
  uint8_t *staging;         /* [rank][2][CHUNK] */
  uint8_t *result;          /* [2][CHUNK] */
  uint64_t heap_at, region; /* the heap: rank r has [heap_at + r * region, … + region) */
  struct manta__heap_block *block;
  size_t blocks, block_cap;
  uint32_t phase;     /* published by us */
  uint32_t turn;      /* which staging buffer is next */
  int64_t timeout_ns; /* < 0: none */
  int64_t by;         /* deadline of the current call */
  int spins;          /* before sleeping */
  const void **in;    /* n pointers, for reductions */
};

/* Bytes of the segment for `size` ranks with a heap of `region` bytes each. */
size_t manta__comm_segment(int size, uint64_t region);
/* The segment must be all zeros and the same for all ranks. */
manta_status manta__comm_create(manta_comm **out, const struct manta__comm_host *host,
                                manta_error *err);
/* Tells the others that we left, and frees. NULL is fine. */
void manta__comm_destroy(manta_comm *c);

/* --- sync.c --- */

/* Publishes our next phase. */
void manta__comm_publish(manta_comm *c);
/* Waits until every rank has published the phase that we did. */
manta_status manta__comm_wait(manta_comm *c, manta_error *err);
/* Publishes `d` (and what lies in the staging buffer), waits, and compares. */
manta_status manta__comm_begin(manta_comm *c, const struct manta__desc *d, manta_error *err);
/* The staging buffer of a rank in this turn. */
static inline uint8_t *manta__comm_staging(const manta_comm *c, int rank)
{
  return c->staging + ((size_t)rank * 2 + (c->turn & 1)) * MANTA__COMM_CHUNK;
}
/* Place of p in the heap, or UINT64_MAX if not all of it lies there. */
uint64_t manta__heap_place(const manta_comm *c, const void *p, size_t bytes);

#endif
