/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shm/task.h - a call as its parts pass it on, and the description by which ranks compare it.
 */
#ifndef MANTA_COMM_SHM_TASK_H
#define MANTA_COMM_SHM_TASK_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/comm.h>

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
  MANTA__CALL_RECV,
  MANTA__CALL_ON_GPU = 0x80 /* added in a description */
};

struct manta__task {
  enum manta__call call;
  const void *send;
  void *recv;
  size_t count;
  const size_t *counts; /* allgatherv */
  manta_dtype type;
  manta_op op;
  int root;  /* of send and recv: the peer; -1: any */
  int tag;   /* of those */
  int *from; /* of recv: becomes the peer, or NULL */
};

/* Above what callers may have: messages of our own. */
#define MANTA__TAG_GROUP (MANTA_TAG_MAX + 1)

/* Where a buffer is, for the others: a place in the segment; an address in the rank's own memory,
 * which it offers for this call (comm/shm/remote.h); or nowhere. */
#define MANTA__NOWHERE UINT64_MAX
#define MANTA__PRIVATE ((uint64_t)1 << 63)

static inline bool manta__place_is_shared(uint64_t at)
{
  return at < MANTA__PRIVATE;
}

static inline bool manta__place_is_private(uint64_t at)
{
  return at >= MANTA__PRIVATE && at != MANTA__NOWHERE;
}

/* The tag that some systems have in the uppermost byte goes: no address has more than 56 bits. */
static inline uint64_t manta__place_private(const void *p)
{
  return MANTA__PRIVATE | ((uintptr_t)p & (((uint64_t)1 << 56) - 1));
}

/* What a rank says of its call. Whole words: what is stored as bytes and then copied as words waits
 * until the bytes have reached the cache. */
struct manta__desc {
  uint64_t head; /* see manta__desc_head */
  uint64_t count;
  uint64_t send_at, recv_at; /* these need not agree */
  uint64_t ways;             /* of the first rank: its choices (comm/shm/chooser.h) */
};

/* Of a head: send and receive overlap, so pieces must be staged before any is written. Need not
 * agree. */
#define MANTA__DESC_TANGLED ((uint64_t)1 << 24)
#define MANTA__DESC_AGREES  (~MANTA__DESC_TANGLED)

/* root of an allgatherv: a hash of its counts. */
static inline uint64_t manta__desc_head(uint32_t call, manta_dtype type, manta_op op, int16_t root)
{
  return (uint64_t)(uint8_t)call | (uint64_t)(uint8_t)type << 8 | (uint64_t)(uint8_t)op << 16 |
         (uint64_t)(uint16_t)root << 32;
}

static inline uint32_t manta__desc_call(const struct manta__desc *d)
{
  return d->head & 0xff;
}

static inline manta_dtype manta__desc_type(const struct manta__desc *d)
{
  return (manta_dtype)(d->head >> 8 & 0xff);
}

static inline unsigned manta__desc_op(const struct manta__desc *d)
{
  return d->head >> 16 & 0xff;
}

static inline int manta__desc_root(const struct manta__desc *d)
{
  return (int16_t)(d->head >> 32);
}

const char *manta__call_name(uint32_t call);
/* What a description has for a root in a group of n (shared.c). */
int16_t manta__task_root(const struct manta__task *task, int n);
/* Whether two ranks call the same; and the message if they do not. */
static inline bool manta__desc_same(const struct manta__desc *a, const struct manta__desc *b)
{
  return ((a->head ^ b->head) & MANTA__DESC_AGREES) == 0 && a->count == b->count;
}
manta_status manta__desc_differ(int a_rank, const struct manta__desc *a, int b_rank,
                                const struct manta__desc *b, manta_error *err);
size_t manta__task_bytes(const struct manta__task *task);

#endif
