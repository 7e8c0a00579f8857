/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/comm.c - the collectives over shared memory.
 *
 * Nearly all of them are one pattern: a rank puts a piece of its data into its staging buffer,
 * publishes the phase, waits for the others, and takes what it needs out of theirs; piece after
 * piece. Large all-reduces of buffers in the shared heap need no staging: each rank reduces one
 * slice straight out of all buffers and writes it into all of them.
 */
#include "comm/comm.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/reduce.h"
#include "sys/shm.h"

#define BLOCK (16u << 10) /* a reduction works in pieces that stay in the first cache */

// --- making -------------------------------------------------------------------------------------

static size_t lines_bytes(int size)
{
  return ((size_t)size * sizeof(struct manta__line) + 4095) & ~(size_t)4095;
}

static size_t fixed_bytes(int size)
{
  return lines_bytes(size) + ((size_t)size * 2 + 2) * MANTA__COMM_CHUNK;
}

size_t manta__comm_segment(int size, uint64_t region)
{
  return fixed_bytes(size) + (size_t)size * region;
}

// Spinning pays while every rank has a core of its own; else it keeps the others from theirs.
static int choose_spins(int size)
{
  cpu_set_t set;
  int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return size <= cpus ? 4000 : 50;
}

manta_status manta__comm_create(manta_comm **out, const struct manta__comm_host *host,
                                manta_error *err)
{
  manta_comm *c = manta__calloc(1, sizeof *c);
  const void **in = manta__calloc((size_t)host->size, sizeof *in);
  void *base = NULL;
  manta_status st = c && in ? manta__shm_map(host->heap_fd, &base, &c->bytes, err)
                            : manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator");
  if (st == MANTA_OK && c->bytes < fixed_bytes(host->size)) {
    manta__shm_unmap(base, c->bytes);
    st = manta_error_set(err, MANTA_EPROTO, "the shared segment is too small for %d ranks",
                         host->size);
  }
  if (st < 0) {
    manta__free(in);
    manta__free(c);
    return st;
  }
  c->host = *host;
  c->base = base;
  c->line = base;
  c->staging = c->base + lines_bytes(host->size);
  c->result = c->staging + (size_t)host->size * 2 * MANTA__COMM_CHUNK;
  c->heap_at = fixed_bytes(host->size);
  c->region = ((c->bytes - c->heap_at) / (size_t)host->size) & ~(uint64_t)4095;
  c->in = in;
  c->timeout_ns = -1;
  c->by = MANTA__NEVER;
  c->spins = choose_spins(host->size);
  *out = c;
  return MANTA_OK;
}

void manta__comm_destroy(manta_comm *c)
{
  if (!c)
    return;
  atomic_store(&c->line[c->host.rank].left, 1);
  for (int r = 0; r < c->host.size; r++)
    manta__bell_ring(c->host.bell(c->host.ctx, r));
  manta__shm_unmap(c->base, c->bytes);
  manta__free(c->block);
  manta__free(c->in);
  manta__free(c);
}

int manta_comm_rank(const manta_comm *c)
{
  return c->host.rank;
}

int manta_comm_size(const manta_comm *c)
{
  return c->host.size;
}

void manta_comm_set_timeout(manta_comm *c, double seconds)
{
  c->timeout_ns = seconds < 0 ? -1 : (int64_t)(seconds * 1e9);
}

// --- the pattern --------------------------------------------------------------------------------

struct transfer {
  const uint8_t *send;
  uint8_t *recv;
  size_t bytes; // of one block
  size_t piece; // of one block that goes in one phase
  size_t size;  // of an element
  manta_dtype type;
  manta_op op;
  int root;
  const size_t *counts; // allgatherv
};

// len: bytes of this piece of a block, which begins at `at`.
typedef void (*stage_fn)(manta_comm *c, const struct transfer *t, size_t at, size_t len);
typedef void (*take_fn)(manta_comm *c, const struct transfer *t, size_t at, size_t len);

static size_t piece_at(const struct transfer *t, size_t at)
{
  return t->bytes - at < t->piece ? t->bytes - at : t->piece;
}

static manta_status pieces(manta_comm *c, const struct transfer *t, size_t at, stage_fn stage,
                           take_fn take, manta_error *err)
{
  for (; at < t->bytes; at += t->piece) {
    stage(c, t, at, piece_at(t, at));
    manta__comm_publish(c);
    MANTA_TRY(manta__comm_wait(c, err));
    take(c, t, at, piece_at(t, at));
    c->turn++;
  }
  return MANTA_OK;
}

// The first piece rides with the description.
static manta_status transfer(manta_comm *c, const struct manta__desc *d, const struct transfer *t,
                             stage_fn stage, take_fn take, manta_error *err)
{
  size_t first = piece_at(t, 0);
  if (first)
    stage(c, t, 0, first);
  manta_status st = manta__comm_begin(c, d, err);
  if (st == MANTA_OK && first)
    take(c, t, 0, first);
  c->turn++;
  return st < 0 ? st : pieces(c, t, t->piece, stage, take, err);
}

static manta_status check(const manta_comm *c, size_t count, manta_dtype type, int op, int root,
                          manta_error *err)
{
  if (manta_dtype_bytes(type) == 0 || count > SIZE_MAX / 16 / (size_t)c->host.size)
    return manta_error_set(err, MANTA_EINVAL, "%zu elements of type %s", count,
                           manta_dtype_name(type));
  if (op >= 0 && !manta__reduce_valid(type, (manta_op)op))
    return manta_error_set(err, MANTA_EINVAL, "this operation makes no sense for %s",
                           manta_dtype_name(type));
  if (root >= c->host.size || root < 0)
    return manta_error_set(err, MANTA_EINVAL, "root %d of %d ranks", root, c->host.size);
  return MANTA_OK;
}

// blocks: how many blocks share a staging buffer. A piece is a whole number of cache lines.
static struct transfer make(const void *send, void *recv, size_t count, manta_dtype type,
                            int blocks)
{
  size_t size = manta_dtype_bytes(type), piece = MANTA__COMM_CHUNK / (size_t)blocks;
  return (struct transfer){.send = send,
                           .recv = recv,
                           .bytes = count * size,
                           .piece = piece >= 64 ? piece & ~(size_t)63 : 8,
                           .size = size,
                           .type = type};
}

static struct manta__desc describe(enum manta__call call, size_t count, manta_dtype type, int op,
                                   int root)
{
  return (struct manta__desc){.call = call,
                              .type = type,
                              .op = (uint32_t)op,
                              .root = root,
                              .count = count,
                              .send_at = UINT64_MAX,
                              .recv_at = UINT64_MAX};
}

// --- stages and takes ---------------------------------------------------------------------------

static void stage_own(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  memcpy(manta__comm_staging(c, c->host.rank), t->send + at, len);
}

static void stage_if_root(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  if (c->host.rank == t->root)
    stage_own(c, t, at, len);
}

// The same piece of every block, one behind the other.
static void stage_blocks(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  uint8_t *to = manta__comm_staging(c, c->host.rank);
  for (int r = 0; r < c->host.size; r++)
    memcpy(to + (size_t)r * t->piece, t->send + (size_t)r * t->bytes + at, len);
}

static void stage_blocks_if_root(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  if (c->host.rank == t->root)
    stage_blocks(c, t, at, len);
}

static void reduce_staged(manta_comm *c, const struct transfer *t, uint8_t *to, size_t skip,
                          size_t len)
{
  for (int r = 0; r < c->host.size; r++)
    c->in[r] = manta__comm_staging(c, r) + skip;
  manta__reduce(to, c->in, c->host.size, len / t->size, t->type, t->op);
}

static void take_reduced(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  reduce_staged(c, t, t->recv + at, 0, len);
}

static void take_reduced_if_root(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  if (c->host.rank == t->root)
    take_reduced(c, t, at, len);
}

static void take_reduced_block(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  reduce_staged(c, t, t->recv + at, (size_t)c->host.rank * t->piece, len);
}

static void take_from_root(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  if (c->host.rank != t->root)
    memcpy(t->recv + at, manta__comm_staging(c, t->root), len);
}

static void take_all(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  for (int r = 0; r < c->host.size; r++)
    memcpy(t->recv + (size_t)r * t->bytes + at, manta__comm_staging(c, r), len);
}

static void take_all_if_root(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  if (c->host.rank == t->root)
    take_all(c, t, at, len);
}

static void take_blocks(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  for (int r = 0; r < c->host.size; r++)
    memcpy(t->recv + (size_t)r * t->bytes + at,
           manta__comm_staging(c, r) + (size_t)c->host.rank * t->piece, len);
}

static void take_block_of_root(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  memcpy(t->recv + at, manta__comm_staging(c, t->root) + (size_t)c->host.rank * t->piece, len);
}

// --- all-reduce ---------------------------------------------------------------------------------

// The part of n bytes that is rank r's to reduce, in whole cache lines.
static void slice(const manta_comm *c, size_t n, size_t *from, size_t *to)
{
  size_t per = ((n + (size_t)c->host.size - 1) / (size_t)c->host.size + 63) & ~(size_t)63;
  *from = per * (size_t)c->host.rank < n ? per * (size_t)c->host.rank : n;
  *to = n - *from < per ? n : *from + per;
}

// How many ranks have both buffers in the heap. The same answer on all of them.
static int in_heap(const manta_comm *c)
{
  int n = 0;
  for (int r = 0; r < c->host.size; r++) {
    const struct manta__desc *d = &c->line[r].desc[c->turn & 1];
    n += d->send_at != UINT64_MAX && d->recv_at != UINT64_MAX;
  }
  return n;
}

// Straight out of all buffers into all buffers: each byte is touched by one rank only.
static manta_status reduce_in_heap(manta_comm *c, const struct transfer *t, manta_error *err)
{
  _Alignas(64) uint8_t block[BLOCK];
  const unsigned turn = c->turn & 1;
  size_t from, to;
  slice(c, t->bytes, &from, &to);
  for (size_t at = from; at < to; at += BLOCK) {
    size_t len = to - at < BLOCK ? to - at : BLOCK;
    for (int r = 0; r < c->host.size; r++)
      c->in[r] = c->base + c->line[r].desc[turn].send_at + at;
    manta__reduce(block, c->in, c->host.size, len / t->size, t->type, t->op);
    for (int r = 0; r < c->host.size; r++)
      memcpy(c->base + c->line[r].desc[turn].recv_at + at, block, len);
  }
  manta__comm_publish(c);
  return manta__comm_wait(c, err);
}

// With many ranks each reduces a part of the piece, and all copy the whole.
static manta_status reduce_in_parts(manta_comm *c, const struct transfer *t, manta_error *err)
{
  for (size_t at = 0; at < t->bytes; at += t->piece) {
    size_t len = piece_at(t, at), from, to;
    uint8_t *result = c->result + (c->turn & 1) * MANTA__COMM_CHUNK;
    stage_own(c, t, at, len);
    manta__comm_publish(c);
    MANTA_TRY(manta__comm_wait(c, err));
    slice(c, len, &from, &to);
    if (to > from)
      reduce_staged(c, t, result + from, from, to - from);
    manta__comm_publish(c);
    MANTA_TRY(manta__comm_wait(c, err));
    memcpy(t->recv + at, result, len);
    c->turn++;
  }
  return MANTA_OK;
}

manta_status manta_comm_allreduce(manta_comm *c, const void *send, void *recv, size_t count,
                                  manta_dtype type, manta_op op, manta_error *err)
{
  MANTA_TRY(check(c, count, type, op, 0, err));
  struct transfer t = make(send, recv, count, type, 1);
  struct manta__desc d = describe(MANTA__CALL_ALLREDUCE, count, type, op, 0);
  t.op = op;
  if (t.bytes > MANTA__COMM_TINY) {
    d.send_at = manta__heap_place(c, send, t.bytes);
    d.recv_at = manta__heap_place(c, recv, t.bytes);
  }
  // What is small and private rides with the description.
  bool rides = t.bytes <= MANTA__COMM_SMALL;
  if (rides && (d.send_at == UINT64_MAX || d.recv_at == UINT64_MAX))
    stage_own(c, &t, 0, t.bytes);
  manta_status st = manta__comm_begin(c, &d, err);
  int heap = st == MANTA_OK ? in_heap(c) : 0;
  bool done = st < 0 || heap == c->host.size || (heap == 0 && rides);
  if (st == MANTA_OK && heap == c->host.size)
    st = reduce_in_heap(c, &t, err);
  else if (st == MANTA_OK && done)
    take_reduced(c, &t, 0, t.bytes);
  c->turn++;
  if (done)
    return st;
  return c->host.size <= 3 ? pieces(c, &t, 0, stage_own, take_reduced, err)
                           : reduce_in_parts(c, &t, err);
}

// --- the others ---------------------------------------------------------------------------------

manta_status manta_comm_reduce(manta_comm *c, const void *send, void *recv, size_t count,
                               manta_dtype type, manta_op op, int root, manta_error *err)
{
  MANTA_TRY(check(c, count, type, op, root, err));
  struct transfer t = make(send, recv, count, type, 1);
  struct manta__desc d = describe(MANTA__CALL_REDUCE, count, type, op, root);
  t.op = op;
  t.root = root;
  return transfer(c, &d, &t, stage_own, take_reduced_if_root, err);
}

manta_status manta_comm_broadcast(manta_comm *c, void *buf, size_t count, manta_dtype type,
                                  int root, manta_error *err)
{
  MANTA_TRY(check(c, count, type, -1, root, err));
  struct transfer t = make(buf, buf, count, type, 1);
  struct manta__desc d = describe(MANTA__CALL_BROADCAST, count, type, 0, root);
  t.root = root;
  return transfer(c, &d, &t, stage_if_root, take_from_root, err);
}

manta_status manta_comm_allgather(manta_comm *c, const void *send, void *recv, size_t count,
                                  manta_dtype type, manta_error *err)
{
  MANTA_TRY(check(c, count, type, -1, 0, err));
  struct transfer t = make(send, recv, count, type, 1);
  struct manta__desc d = describe(MANTA__CALL_ALLGATHER, count, type, 0, 0);
  return transfer(c, &d, &t, stage_own, take_all, err);
}

// Of a ragged block only what is there.
static size_t ragged(const struct transfer *t, int rank, size_t at, size_t len)
{
  size_t have = t->counts[rank] * t->size;
  return at >= have ? 0 : have - at < len ? have - at : len;
}

static void stage_ragged(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  stage_own(c, t, at, ragged(t, c->host.rank, at, len));
}

static void take_ragged(manta_comm *c, const struct transfer *t, size_t at, size_t len)
{
  uint8_t *to = t->recv;
  for (int r = 0; r < c->host.size; r++) {
    memcpy(to + at, manta__comm_staging(c, r), ragged(t, r, at, len));
    to += t->counts[r] * t->size;
  }
}

manta_status manta_comm_allgatherv(manta_comm *c, const void *send, void *recv,
                                   const size_t *counts, manta_dtype type, manta_error *err)
{
  size_t most = 0, total = 0;
  for (int r = 0; r < c->host.size; r++) {
    MANTA_TRY(check(c, counts[r], type, -1, 0, err));
    most = counts[r] > most ? counts[r] : most;
    total += counts[r];
  }
  struct transfer t = make(send, recv, most, type, 1);
  struct manta__desc d = describe(MANTA__CALL_ALLGATHERV, total, type, 0, 0);
  t.counts = counts;
  return transfer(c, &d, &t, stage_ragged, take_ragged, err);
}

manta_status manta_comm_reduce_scatter(manta_comm *c, const void *send, void *recv, size_t count,
                                       manta_dtype type, manta_op op, manta_error *err)
{
  MANTA_TRY(check(c, count, type, op, 0, err));
  struct transfer t = make(send, recv, count, type, c->host.size);
  struct manta__desc d = describe(MANTA__CALL_REDUCE_SCATTER, count, type, op, 0);
  t.op = op;
  return transfer(c, &d, &t, stage_blocks, take_reduced_block, err);
}

manta_status manta_comm_alltoall(manta_comm *c, const void *send, void *recv, size_t count,
                                 manta_dtype type, manta_error *err)
{
  MANTA_TRY(check(c, count, type, -1, 0, err));
  struct transfer t = make(send, recv, count, type, c->host.size);
  struct manta__desc d = describe(MANTA__CALL_ALLTOALL, count, type, 0, 0);
  return transfer(c, &d, &t, stage_blocks, take_blocks, err);
}

manta_status manta_comm_gather(manta_comm *c, const void *send, void *recv, size_t count,
                               manta_dtype type, int root, manta_error *err)
{
  MANTA_TRY(check(c, count, type, -1, root, err));
  struct transfer t = make(send, recv, count, type, 1);
  struct manta__desc d = describe(MANTA__CALL_GATHER, count, type, 0, root);
  t.root = root;
  return transfer(c, &d, &t, stage_own, take_all_if_root, err);
}

manta_status manta_comm_scatter(manta_comm *c, const void *send, void *recv, size_t count,
                                manta_dtype type, int root, manta_error *err)
{
  MANTA_TRY(check(c, count, type, -1, root, err));
  struct transfer t = make(send, recv, count, type, c->host.size);
  struct manta__desc d = describe(MANTA__CALL_SCATTER, count, type, 0, root);
  t.root = root;
  return transfer(c, &d, &t, stage_blocks_if_root, take_block_of_root, err);
}

manta_status manta_comm_barrier(manta_comm *c, manta_error *err)
{
  struct manta__desc d = describe(MANTA__CALL_BARRIER, 0, MANTA_U8, 0, 0);
  manta_status st = manta__comm_begin(c, &d, err);
  c->turn++;
  return st;
}
