/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shared.c - the collectives of ranks that share memory.
 *
 * Small and odd ones are one pattern: a rank puts a piece of its data into its staging buffer,
 * publishes the phase, waits for the others, and takes what it needs out of theirs; piece after
 * piece. Large ones go direct where the ranks can reach each other's buffers: each takes what it
 * needs straight from there, and a last phase says that nobody reads any more.
 */
#include <string.h>

#include "comm/comm.h"
#include "comm/reduce.h"

#define BLOCK  (16u << 10) /* a reduction works in pieces that stay in the first cache */
#define DIRECT (16u << 10) /* from here on it is worth a phase to look for a direct way */

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
typedef void (*stage_fn)(struct manta__team *t, const struct transfer *x, size_t at, size_t len);
typedef void (*take_fn)(struct manta__team *t, const struct transfer *x, size_t at, size_t len);
typedef manta_status (*direct_fn)(struct manta__team *t, const struct transfer *x,
                                  manta_error *err);

struct way { // how a call is done
  stage_fn stage;
  take_fn take;
  direct_fn direct;
  bool blocks; // a staging buffer holds a piece of each block
  bool rooted; // only the root's buffer is read by others
};

// --- the pattern --------------------------------------------------------------------------------

static size_t piece_at(const struct transfer *x, size_t at)
{
  return x->bytes - at < x->piece ? x->bytes - at : x->piece;
}

static manta_status pieces(struct manta__team *t, const struct transfer *x, const struct way *w,
                           size_t at, manta_error *err)
{
  for (; at < x->bytes; at += x->piece) {
    w->stage(t, x, at, piece_at(x, at));
    MANTA_TRY(manta__team_meet(t, err));
    w->take(t, x, at, piece_at(x, at));
    t->turn++;
  }
  return MANTA_OK;
}

// The first piece rides with the description.
static manta_status ride(struct manta__team *t, const struct manta__desc *d,
                         const struct transfer *x, const struct way *w, manta_error *err)
{
  size_t first = piece_at(x, 0);
  if (first)
    w->stage(t, x, 0, first);
  manta_status st = manta__team_begin(t, d, err);
  if (st == MANTA_OK && first)
    w->take(t, x, 0, first);
  t->turn++;
  return st < 0 ? st : pieces(t, x, w, x->piece, err);
}

// Whether every buffer that somebody reads lies in the heap, and none is tangled.
static bool reachable(const struct manta__team *t, const struct way *w, int root, bool *tangled)
{
  bool all = true;
  *tangled = false;
  for (int r = 0; r < t->size; r++) {
    const struct manta__desc *d = manta__team_desc(t, r);
    all = all && ((w->rooted && r != root) || d->send_at != MANTA__NOWHERE);
    *tangled = *tangled || d->tangled;
  }
  return all;
}

static manta_status go_direct(struct manta__team *t, const struct transfer *x, const struct way *w,
                              bool *done, manta_error *err)
{
  bool tangled, can = reachable(t, w, x->root, &tangled);
  if (!can && !tangled && x->bytes >= t->peek_from && x->bytes <= t->peek_to)
    MANTA_TRY(manta__team_can_peek(t, &can, err));
  *done = can && !tangled;
  if (!*done)
    return MANTA_OK;
  MANTA_TRY(w->direct(t, x, err));
  return manta__team_meet(t, err);
}

static manta_status transfer(struct manta__team *t, const struct manta__desc *d,
                             const struct transfer *x, const struct way *w, manta_error *err)
{
  bool done = false;
  if (!w->direct || x->bytes < DIRECT)
    return ride(t, d, x, w, err);
  manta_status st = manta__team_begin(t, d, err);
  if (st == MANTA_OK)
    st = go_direct(t, x, w, &done, err);
  t->turn++;
  return st < 0 || done ? st : pieces(t, x, w, 0, err);
}

// --- stages and takes ---------------------------------------------------------------------------

static void stage_own(struct manta__team *t, const struct transfer *x, size_t at, size_t len)
{
  memcpy(manta__team_staging(t, t->rank), x->send + at, len);
}

static void stage_if_root(struct manta__team *t, const struct transfer *x, size_t at, size_t len)
{
  if (t->rank == x->root)
    stage_own(t, x, at, len);
}

// The same piece of every block, one behind the other.
static void stage_blocks(struct manta__team *t, const struct transfer *x, size_t at, size_t len)
{
  uint8_t *to = manta__team_staging(t, t->rank);
  for (int r = 0; r < t->size; r++)
    memcpy(to + (size_t)r * x->piece, x->send + (size_t)r * x->bytes + at, len);
}

static void stage_blocks_if_root(struct manta__team *t, const struct transfer *x, size_t at,
                                 size_t len)
{
  if (t->rank == x->root)
    stage_blocks(t, x, at, len);
}

// Of a ragged block only what is there.
static size_t ragged(const struct transfer *x, int rank, size_t at, size_t len)
{
  size_t have = x->counts[rank] * x->size;
  return at >= have ? 0 : have - at < len ? have - at : len;
}

static void stage_ragged(struct manta__team *t, const struct transfer *x, size_t at, size_t len)
{
  stage_own(t, x, at, ragged(x, t->rank, at, len));
}

static void reduce_staged(struct manta__team *t, const struct transfer *x, uint8_t *to, size_t skip,
                          size_t len)
{
  for (int r = 0; r < t->size; r++)
    t->in[r] = manta__team_staging(t, r) + skip;
  manta__reduce(to, t->in, t->size, len / x->size, x->type, x->op);
}

static void take_reduced(struct manta__team *t, const struct transfer *x, size_t at, size_t len)
{
  reduce_staged(t, x, x->recv + at, 0, len);
}

static void take_reduced_if_root(struct manta__team *t, const struct transfer *x, size_t at,
                                 size_t len)
{
  if (t->rank == x->root)
    take_reduced(t, x, at, len);
}

static void take_reduced_block(struct manta__team *t, const struct transfer *x, size_t at,
                               size_t len)
{
  reduce_staged(t, x, x->recv + at, (size_t)t->rank * x->piece, len);
}

static void take_from_root(struct manta__team *t, const struct transfer *x, size_t at, size_t len)
{
  if (t->rank != x->root)
    memcpy(x->recv + at, manta__team_staging(t, x->root), len);
}

static void take_all(struct manta__team *t, const struct transfer *x, size_t at, size_t len)
{
  for (int r = 0; r < t->size; r++)
    memcpy(x->recv + (size_t)r * x->bytes + at, manta__team_staging(t, r), len);
}

static void take_all_if_root(struct manta__team *t, const struct transfer *x, size_t at, size_t len)
{
  if (t->rank == x->root)
    take_all(t, x, at, len);
}

static void take_ragged(struct manta__team *t, const struct transfer *x, size_t at, size_t len)
{
  uint8_t *to = x->recv;
  for (int r = 0; r < t->size; r++) {
    size_t n = ragged(x, r, at, len);
    if (n)
      memcpy(to + at, manta__team_staging(t, r), n);
    to += x->counts[r] * x->size;
  }
}

static void take_blocks(struct manta__team *t, const struct transfer *x, size_t at, size_t len)
{
  for (int r = 0; r < t->size; r++)
    memcpy(x->recv + (size_t)r * x->bytes + at,
           manta__team_staging(t, r) + (size_t)t->rank * x->piece, len);
}

static void take_block_of_root(struct manta__team *t, const struct transfer *x, size_t at,
                               size_t len)
{
  memcpy(x->recv + at, manta__team_staging(t, x->root) + (size_t)t->rank * x->piece, len);
}

// --- straight from the others' buffers ----------------------------------------------------------

static manta_status fetch(struct manta__team *t, int rank, void *to, size_t skip, size_t bytes,
                          manta_error *err)
{
  const struct manta__desc *d = manta__team_desc(t, rank);
  return manta__team_peek(t, rank, to, d->send_at, d->send, skip, bytes, err);
}

// One after the other, each rank beginning with its neighbour: not all at the same buffer.
static manta_status fetch_blocks(struct manta__team *t, const struct transfer *x, size_t skip,
                                 manta_error *err)
{
  for (int i = 1; i < t->size; i++) {
    int r = (t->rank + i) % t->size;
    MANTA_TRY(fetch(t, r, x->recv + (size_t)r * x->bytes, skip, x->bytes, err));
  }
  uint8_t *own = x->recv + (size_t)t->rank * x->bytes;
  if (own != x->send + skip)
    memcpy(own, x->send + skip, x->bytes);
  return MANTA_OK;
}

static manta_status direct_broadcast(struct manta__team *t, const struct transfer *x,
                                     manta_error *err)
{
  return t->rank == x->root ? MANTA_OK : fetch(t, x->root, x->recv, 0, x->bytes, err);
}

static manta_status direct_allgather(struct manta__team *t, const struct transfer *x,
                                     manta_error *err)
{
  return fetch_blocks(t, x, 0, err);
}

static manta_status direct_gather(struct manta__team *t, const struct transfer *x, manta_error *err)
{
  return t->rank == x->root ? fetch_blocks(t, x, 0, err) : MANTA_OK;
}

static manta_status direct_alltoall(struct manta__team *t, const struct transfer *x,
                                    manta_error *err)
{
  return fetch_blocks(t, x, (size_t)t->rank * x->bytes, err);
}

static manta_status direct_scatter(struct manta__team *t, const struct transfer *x,
                                   manta_error *err)
{
  size_t skip = (size_t)t->rank * x->bytes;
  if (t->rank != x->root)
    return fetch(t, x->root, x->recv, skip, x->bytes, err);
  if (x->recv != x->send + skip)
    memcpy(x->recv, x->send + skip, x->bytes);
  return MANTA_OK;
}

// The op over all ranks of [skip, skip + bytes) of their buffers, into `to`.
static manta_status reduce_fetched(struct manta__team *t, const struct transfer *x, uint8_t *to,
                                   size_t skip, size_t bytes, manta_error *err)
{
  for (size_t at = 0; at < bytes; at += MANTA__COMM_PEEK) {
    size_t len = bytes - at < MANTA__COMM_PEEK ? bytes - at : MANTA__COMM_PEEK;
    for (int r = 0; r < t->size; r++) {
      const struct manta__desc *d = manta__team_desc(t, r);
      uint8_t *block = t->scratch + (size_t)r * MANTA__COMM_PEEK;
      if (r == t->rank)
        t->in[r] = x->send + skip + at;
      else if (d->send_at != MANTA__NOWHERE)
        t->in[r] = t->fabric->base + d->send_at + skip + at;
      else
        MANTA_TRY(fetch(t, r, block, skip + at, len, err));
      if (r != t->rank && d->send_at == MANTA__NOWHERE)
        t->in[r] = block;
    }
    manta__reduce(to + at, t->in, t->size, len / x->size, x->type, x->op);
  }
  return MANTA_OK;
}

static manta_status direct_reduce_scatter(struct manta__team *t, const struct transfer *x,
                                          manta_error *err)
{
  return reduce_fetched(t, x, x->recv, (size_t)t->rank * x->bytes, x->bytes, err);
}

// --- all-reduce ---------------------------------------------------------------------------------

// The part of n bytes that is rank r's to reduce, in whole cache lines.
static void slice(const struct manta__team *t, int rank, size_t n, size_t *from, size_t *to)
{
  size_t per = ((n + (size_t)t->size - 1) / (size_t)t->size + 63) & ~(size_t)63;
  *from = per * (size_t)rank < n ? per * (size_t)rank : n;
  *to = n - *from < per ? n : *from + per;
}

// How many ranks have both buffers in the heap. The same answer on all of them.
static int in_heap(const struct manta__team *t)
{
  int n = 0;
  for (int r = 0; r < t->size; r++) {
    const struct manta__desc *d = manta__team_desc(t, r);
    n += d->send_at != MANTA__NOWHERE && d->recv_at != MANTA__NOWHERE;
  }
  return n;
}

// Straight out of all buffers into all buffers: each byte is touched by one rank only.
static manta_status reduce_in_heap(struct manta__team *t, const struct transfer *x,
                                   manta_error *err)
{
  _Alignas(64) uint8_t block[BLOCK];
  size_t from, to;
  slice(t, t->rank, x->bytes, &from, &to);
  for (size_t at = from; at < to; at += BLOCK) {
    size_t len = to - at < BLOCK ? to - at : BLOCK;
    for (int r = 0; r < t->size; r++)
      t->in[r] = t->fabric->base + manta__team_desc(t, r)->send_at + at;
    manta__reduce(block, t->in, t->size, len / x->size, x->type, x->op);
    for (int r = 0; r < t->size; r++)
      memcpy(t->fabric->base + manta__team_desc(t, r)->recv_at + at, block, len);
  }
  return manta__team_meet(t, err);
}

// Each reduces its slice into its own buffer; when all have, each fetches the other slices.
static manta_status reduce_by_peeking(struct manta__team *t, const struct transfer *x,
                                      manta_error *err)
{
  size_t from, to;
  slice(t, t->rank, x->bytes, &from, &to);
  MANTA_TRY(reduce_fetched(t, x, x->recv + from, from, to - from, err));
  MANTA_TRY(manta__team_meet(t, err));
  for (int i = 1; i < t->size; i++) {
    int r = (t->rank + i) % t->size;
    const struct manta__desc *d = manta__team_desc(t, r);
    slice(t, r, x->bytes, &from, &to);
    MANTA_TRY(manta__team_peek(t, r, x->recv + from, d->recv_at, d->recv, from, to - from, err));
  }
  return manta__team_meet(t, err);
}

// With many ranks each reduces a part of the piece, and all copy the whole.
static manta_status reduce_in_parts(struct manta__team *t, const struct transfer *x,
                                    manta_error *err)
{
  for (size_t at = 0; at < x->bytes; at += x->piece) {
    size_t len = piece_at(x, at), from, to;
    uint8_t *result = t->result + (t->turn & 1) * MANTA__COMM_CHUNK;
    stage_own(t, x, at, len);
    MANTA_TRY(manta__team_meet(t, err));
    slice(t, t->rank, len, &from, &to);
    if (to > from)
      reduce_staged(t, x, result + from, from, to - from);
    MANTA_TRY(manta__team_meet(t, err));
    memcpy(x->recv + at, result, len);
    t->turn++;
  }
  return MANTA_OK;
}

static const struct way reduced = {stage_own, take_reduced, NULL, false, false};

static manta_status reduce_large(struct manta__team *t, const struct transfer *x, bool *done,
                                 manta_error *err)
{
  bool can = false;
  *done = true;
  if (in_heap(t) == t->size)
    return reduce_in_heap(t, x, err);
  if (x->bytes >= t->peek_from && x->bytes <= t->peek_to)
    MANTA_TRY(manta__team_can_peek(t, &can, err));
  if (can)
    return reduce_by_peeking(t, x, err);
  *done = false;
  return MANTA_OK;
}

static manta_status allreduce(struct manta__team *t, const struct manta__desc *d,
                              const struct transfer *x, manta_error *err)
{
  // What is small and private rides with the description.
  bool rides = x->bytes <= MANTA__COMM_SMALL, done = true;
  if (rides && (d->send_at == MANTA__NOWHERE || d->recv_at == MANTA__NOWHERE))
    stage_own(t, x, 0, x->bytes);
  manta_status st = manta__team_begin(t, d, err);
  if (st == MANTA_OK && rides && in_heap(t) == 0)
    take_reduced(t, x, 0, x->bytes);
  else if (st == MANTA_OK)
    st = reduce_large(t, x, &done, err);
  t->turn++;
  if (st < 0 || done)
    return st;
  return t->size <= 3 ? pieces(t, x, &reduced, 0, err) : reduce_in_parts(t, x, err);
}

// --- the others ---------------------------------------------------------------------------------

static const struct way ways[] = {
    [MANTA__CALL_REDUCE] = {stage_own, take_reduced_if_root, NULL, false, false},
    [MANTA__CALL_REDUCE_SCATTER] = {stage_blocks, take_reduced_block, direct_reduce_scatter, true,
                                    false},
    [MANTA__CALL_BROADCAST] = {stage_if_root, take_from_root, direct_broadcast, false, true},
    [MANTA__CALL_ALLGATHER] = {stage_own, take_all, direct_allgather, false, false},
    [MANTA__CALL_ALLGATHERV] = {stage_ragged, take_ragged, NULL, false, false},
    [MANTA__CALL_ALLTOALL] = {stage_blocks, take_blocks, direct_alltoall, true, false},
    [MANTA__CALL_GATHER] = {stage_own, take_all_if_root, direct_gather, false, false},
    [MANTA__CALL_SCATTER] = {stage_blocks_if_root, take_block_of_root, direct_scatter, true, true},
};

// A piece is a whole number of cache lines.
static struct transfer make(const struct manta__team *t, const struct manta__task *task,
                            const struct way *w)
{
  size_t size = manta_dtype_bytes(task->type), count = task->count;
  size_t piece = MANTA__COMM_CHUNK / (w->blocks ? (size_t)t->size : 1);
  for (int r = 0; task->counts && r < t->size; r++)
    count = r == 0 || task->counts[r] > count ? task->counts[r] : count;
  return (struct transfer){.send = task->send,
                           .recv = task->recv,
                           .bytes = count * size,
                           .piece = piece >= 64 ? piece & ~(size_t)63 : 8,
                           .size = size,
                           .type = task->type,
                           .op = task->op,
                           .root = task->root,
                           .counts = task->counts};
}

// Whether what a rank receives lies where others still read. In its own block nobody does.
static bool is_tangled(const struct manta__team *t, const struct manta__task *task,
                       const struct transfer *x)
{
  size_t n = (size_t)t->size, own = (size_t)t->rank * x->bytes;
  const uint8_t *send = x->send, *recv = x->recv;
  size_t send_bytes = x->bytes, recv_bytes = x->bytes;
  switch (task->call) {
  case MANTA__CALL_REDUCE_SCATTER:
  case MANTA__CALL_SCATTER:
    if (recv == send + own)
      return false;
    send_bytes *= n;
    break;
  case MANTA__CALL_ALLGATHER:
  case MANTA__CALL_GATHER:
    if (send == recv + own)
      return false;
    recv_bytes *= n;
    break;
  case MANTA__CALL_ALLTOALL:
    send_bytes *= n;
    recv_bytes *= n;
    break;
  default:
    return false;
  }
  return send && recv && send < recv + recv_bytes && recv < send + send_bytes;
}

static struct manta__desc describe(const struct manta__team *t, const struct manta__task *task,
                                   const struct transfer *x, const struct way *w)
{
  struct manta__desc d = {.call = task->call,
                          .type = task->type,
                          .op = task->op,
                          .root = task->root,
                          .count = task->count,
                          .send_at = MANTA__NOWHERE,
                          .recv_at = MANTA__NOWHERE,
                          .send = (uintptr_t)task->send,
                          .recv = (uintptr_t)task->recv};
  if (x->bytes > MANTA__COMM_TINY) {
    size_t blocks = w->blocks ? (size_t)t->size : 1;
    d.send_at = manta__heap_place(t->fabric, task->send, x->bytes * blocks);
    d.recv_at = manta__heap_place(t->fabric, task->recv, x->bytes);
    d.tangled = is_tangled(t, task, x);
  }
  return d;
}

manta_status manta__team_run(struct manta__team *t, const struct manta__task *task,
                             manta_error *err)
{
  const struct way *w = task->call == MANTA__CALL_ALLREDUCE ? &reduced : &ways[task->call];
  struct transfer x = make(t, task, w);
  struct manta__desc d = describe(t, task, &x, w);
  if (task->call == MANTA__CALL_ALLREDUCE)
    return allreduce(t, &d, &x, err);
  if (task->call != MANTA__CALL_BARRIER)
    return transfer(t, &d, &x, w, err);
  manta_status st = manta__team_begin(t, &d, err);
  t->turn++;
  return st;
}
