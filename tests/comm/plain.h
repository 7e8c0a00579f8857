/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/comm/plain.h - one collective call of all ranks, and what it must give by plain means: each
 * rank makes the data of all ranks for itself out of a seed, and compares bit by bit.
 */
#ifndef MANTA_TEST_PLAIN_H
#define MANTA_TEST_PLAIN_H

#include "bits.h"
#include "comm/reduce/reduce.h"
#include "ranks.h"

#define PLAIN_GUARD 64
#define PLAIN_FILL  0xa5

enum plain_place { PLAIN_PRIVATE, PLAIN_HEAP, PLAIN_MIXED, PLAIN_PLACES };

struct plain { /* the same on all ranks */
  enum manta__call call;
  manta_dtype type;
  manta_op op;
  int root;
  size_t count;
  size_t counts[RANKS_MAX]; /* allgatherv */
  uint64_t seed;
  enum plain_place place;
  bool in_place;
  int shift; /* bytes by which the buffers are off a cache line */
};

/* The buffers of a rank: two of its own, two in the heap, and what must come out. */
struct plain_bed {
  size_t room;
  uint8_t *own[2], *heap[2], *want, *input[RANKS_MAX];
  uint8_t *send, *recv; /* of the call that is prepared; NULL where it may be */
  size_t send_bytes, recv_bytes;
};

/* room: bytes of the largest buffer of any call. 0, or a line. */
static inline int plain_open(struct plain_bed *b, manta_comm *c, int n, size_t room)
{
  size_t all = room + 2 * PLAIN_GUARD + 64;
  *b = (struct plain_bed){.room = room, .want = malloc(all)};
  for (int i = 0; i < 2; i++) {
    b->own[i] = aligned_alloc(64, (all + 63) & ~(size_t)63);
    EXPECT(manta_shm_alloc(c, all, (void **)&b->heap[i], NULL) == MANTA_OK);
  }
  for (int r = 0; r < n; r++)
    b->input[r] = malloc(all);
  return 0;
}

static inline void plain_close(struct plain_bed *b, manta_comm *c)
{
  for (int i = 0; i < 2; i++) {
    free(b->own[i]);
    manta_shm_free(c, b->heap[i]);
  }
  for (int r = 0; r < RANKS_MAX; r++)
    free(b->input[r]);
  free(b->want);
}

// --- data ---------------------------------------------------------------------------------------

static inline uint64_t plain_mix(uint64_t x)
{
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/* Floats are mostly near one; one in sixteen is anything, NaN and infinity included. */
static inline uint64_t plain_tame(uint64_t bits, manta_dtype type)
{
  if ((bits & 15) == 5 && type != MANTA_BOOL8)
    return bits;
  switch (type) {
  case MANTA_BOOL8:
    return bits & 1;
  case MANTA_F16:
    return (bits & 0x8bff) | 0x3800;
  case MANTA_BF16:
    return (bits & 0x81ff) | 0x3e00;
  case MANTA_F32:
    return (bits & 0x81ffffff) | 0x3e000000;
  case MANTA_F64:
    return (bits & 0x803fffffffffffff) | 0x3fc0000000000000;
  default:
    return bits;
  }
}

/* Elements from … from + count of what rank r holds: eight bytes make one step of the generator. */
static inline void plain_data(uint8_t *to, const struct plain *p, int r, size_t from, size_t count)
{
  size_t size = manta_dtype_bytes(p->type), per = 8 / size;
  uint64_t key = plain_mix(p->seed * 64 + (uint64_t)r), word = plain_mix(key + from / per);
  for (size_t i = from; i < from + count; i++, to += size) {
    if (i % per == 0)
      word = plain_mix(key + i / per);
    uint64_t bits = plain_tame(word >> 8 * size * (i % per), p->type);
    put_bits(to, bits, size);
  }
}

// --- sizes and places ---------------------------------------------------------------------------

static inline size_t plain_total(const struct plain *p, int n)
{
  size_t total = 0;
  for (int r = 0; r < n; r++)
    total += p->counts[r];
  return total;
}

static inline size_t plain_before(const struct plain *p, int rank)
{
  return plain_total(p, rank);
}

static inline bool plain_reduces(const struct plain *p)
{
  return p->call >= MANTA__CALL_ALLREDUCE && p->call <= MANTA__CALL_REDUCE_SCATTER;
}

/* Elements that the rank hands over, and gets. */
static inline size_t plain_sent(const struct plain *p, int rank, int n)
{
  switch (p->call) {
  case MANTA__CALL_REDUCE_SCATTER:
  case MANTA__CALL_ALLTOALL:
    return p->count * (size_t)n;
  case MANTA__CALL_SCATTER:
    return rank == p->root ? p->count * (size_t)n : 0;
  case MANTA__CALL_ALLGATHERV:
    return p->counts[rank];
  case MANTA__CALL_BARRIER:
    return 0;
  default:
    return p->count;
  }
}

static inline size_t plain_received(const struct plain *p, int rank, int n)
{
  switch (p->call) {
  case MANTA__CALL_ALLGATHER:
  case MANTA__CALL_ALLTOALL:
    return p->count * (size_t)n;
  case MANTA__CALL_GATHER:
    return rank == p->root ? p->count * (size_t)n : 0;
  case MANTA__CALL_REDUCE:
    return rank == p->root ? p->count : 0;
  case MANTA__CALL_ALLGATHERV:
    return plain_total(p, n);
  case MANTA__CALL_BARRIER:
    return 0;
  default:
    return p->count;
  }
}

/* Where in place is: the element of the larger buffer at which the smaller one begins. */
static inline size_t plain_inner(const struct plain *p, int rank)
{
  switch (p->call) {
  case MANTA__CALL_REDUCE_SCATTER:
  case MANTA__CALL_SCATTER:
  case MANTA__CALL_ALLGATHER:
  case MANTA__CALL_GATHER:
    return p->count * (size_t)rank;
  case MANTA__CALL_ALLGATHERV:
    return plain_before(p, rank);
  default:
    return 0;
  }
}

static inline uint8_t *plain_area(const struct plain_bed *b, const struct plain *p, int rank,
                                  int which)
{
  bool mixed = plain_mix(p->seed + (uint64_t)(rank * 2 + which)) & 1;
  bool heap = p->place == PLAIN_HEAP || (p->place == PLAIN_MIXED && mixed);
  return (heap ? b->heap : b->own)[which];
}

static inline void plain_put(struct plain_bed *b, const struct plain *p, int rank, int n)
{
  size_t size = manta_dtype_bytes(p->type), inner = plain_inner(p, rank) * size;
  uint8_t *area[2];
  for (int i = 0; i < 2; i++)
    area[i] = plain_area(b, p, rank, i) + PLAIN_GUARD + (i ? p->shift * 3 % 64 : p->shift);
  b->send_bytes = plain_sent(p, rank, n) * size;
  b->recv_bytes = plain_received(p, rank, n) * size;
  b->send = area[0];
  b->recv = area[1];
  bool both = b->send_bytes && b->recv_bytes;
  if (p->call == MANTA__CALL_BROADCAST)
    b->recv = b->send;
  else if (p->in_place && both && b->send_bytes >= b->recv_bytes)
    b->recv = b->send + inner;
  else if (p->in_place && both)
    b->send = b->recv + inner;
  if (!b->send_bytes && p->seed % 2)
    b->send = NULL;
  if (!b->recv_bytes && p->seed % 2)
    b->recv = NULL;
}

static inline void plain_paint(uint8_t *at, size_t bytes)
{
  if (at)
    memset(at - PLAIN_GUARD, PLAIN_FILL, bytes + 2 * PLAIN_GUARD);
}

/* Buffers, guards and data of this rank's part. */
static inline void plain_prepare(struct plain_bed *b, const struct plain *p, int rank, int n)
{
  size_t size = manta_dtype_bytes(p->type);
  plain_put(b, p, rank, n);
  plain_paint(b->recv, b->recv_bytes);
  plain_paint(b->send, b->send_bytes);
  if (b->send_bytes)
    plain_data(b->send, p, rank, 0, b->send_bytes / size);
}

// --- the call -----------------------------------------------------------------------------------

/* Runs it, or starts it if there is a place for a work. */
static inline manta_status plain_call(manta_comm *c, const struct plain *p,
                                      const struct plain_bed *b, manta_work **w, manta_error *err)
{
  switch (p->call) {
  case MANTA__CALL_ALLREDUCE:
    return manta_comm_allreduce_start(c, b->send, b->recv, p->count, p->type, p->op, w, err);
  case MANTA__CALL_REDUCE:
    return manta_comm_reduce_start(c, b->send, b->recv, p->count, p->type, p->op, p->root, w, err);
  case MANTA__CALL_REDUCE_SCATTER:
    return manta_comm_reduce_scatter_start(c, b->send, b->recv, p->count, p->type, p->op, w, err);
  case MANTA__CALL_BROADCAST:
    return manta_comm_broadcast_start(c, b->send, p->count, p->type, p->root, w, err);
  case MANTA__CALL_ALLGATHER:
    return manta_comm_allgather_start(c, b->send, b->recv, p->count, p->type, w, err);
  case MANTA__CALL_ALLGATHERV:
    return manta_comm_allgatherv_start(c, b->send, b->recv, p->counts, p->type, w, err);
  case MANTA__CALL_ALLTOALL:
    return manta_comm_alltoall_start(c, b->send, b->recv, p->count, p->type, w, err);
  case MANTA__CALL_GATHER:
    return manta_comm_gather_start(c, b->send, b->recv, p->count, p->type, p->root, w, err);
  case MANTA__CALL_SCATTER:
    return manta_comm_scatter_start(c, b->send, b->recv, p->count, p->type, p->root, w, err);
  default:
    return manta_comm_barrier_start(c, w, err);
  }
}

static inline void plain_truth(struct plain_bed *b, const struct plain *p, int rank, int n)
{
  size_t size = manta_dtype_bytes(p->type), bytes = p->count * size;
  size_t mine = p->call == MANTA__CALL_REDUCE_SCATTER ? p->count * (size_t)rank : 0;
  uint8_t *to = b->want;
  if (plain_reduces(p)) {
    for (int r = 0; r < n; r++)
      plain_data(b->input[r], p, r, mine, p->count);
    manta__reduce_ref(b->want, (const void *const *)b->input, n, p->count, p->type, p->op);
  } else if (p->call == MANTA__CALL_BROADCAST) {
    plain_data(to, p, p->root, 0, p->count);
  } else if (p->call == MANTA__CALL_SCATTER) {
    plain_data(to, p, p->root, p->count * (size_t)rank, p->count);
  } else if (p->call == MANTA__CALL_ALLGATHERV) {
    for (int r = 0; r < n; to += p->counts[r++] * size)
      plain_data(to, p, r, 0, p->counts[r]);
  } else {
    size_t from = p->call == MANTA__CALL_ALLTOALL ? p->count * (size_t)rank : 0;
    for (int r = 0; r < n; r++, to += bytes)
      plain_data(to, p, r, from, p->count);
  }
}

static inline bool plain_guarded(const uint8_t *at, size_t bytes)
{
  for (size_t i = 1; at && i <= PLAIN_GUARD; i++)
    if (at[-(ptrdiff_t)i] != PLAIN_FILL || at[bytes + i - 1] != PLAIN_FILL)
      return false;
  return true;
}

/* Whether the call gave what it should, and touched nothing else. 0, or a line. */
static inline int plain_check(struct plain_bed *b, const struct plain *p, int rank, int n)
{
  size_t size = manta_dtype_bytes(p->type);
  bool within = b->send && b->recv && b->send <= b->recv && b->recv < b->send + b->send_bytes;
  bool around = b->send && b->recv && b->recv <= b->send && b->send < b->recv + b->recv_bytes;
  if (b->recv_bytes) {
    plain_truth(b, p, rank, n);
    EXPECT(memcmp(b->recv, b->want, b->recv_bytes) == 0);
  }
  EXPECT((within || around) && b->send_bytes > b->recv_bytes
             ? plain_guarded(b->send, b->send_bytes)
             : plain_guarded(b->recv, b->recv_bytes));
  if (b->send_bytes && !within && !around) {
    plain_data(b->want, p, rank, 0, b->send_bytes / size);
    EXPECT(memcmp(b->send, b->want, b->send_bytes) == 0);
    EXPECT(plain_guarded(b->send, b->send_bytes));
  }
  return 0;
}

/* Runs and checks one; says on failure which. */
static inline int plain_one(manta_comm *c, struct plain_bed *b, const struct plain *p, int rank,
                            int n)
{
  manta_error err = MANTA_ERROR_INIT;
  plain_prepare(b, p, rank, n);
  manta_status st = plain_call(c, p, b, NULL, &err);
  int line = st < 0 ? __LINE__ : plain_check(b, p, rank, n);
  if (line)
    fprintf(stderr, "rank %d of %d: %s of %zu %s, op %d, root %d, place %d, %s, shift %d: %s\n",
            rank, n, manta__call_name(p->call), p->count, manta_dtype_name(p->type), (int)p->op,
            p->root, (int)p->place, p->in_place ? "in place" : "apart", p->shift,
            st < 0 ? err.message : "wrong");
  return line;
}

#endif
