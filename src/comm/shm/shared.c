/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shm/shared.c - the collectives of ranks that share memory.
 *
 * Every call begins with its description, which all ranks see (comm/shm/team.h). So they agree on
 * the way that it goes: by the bytes of a block (what one rank sends to one, or to all), by the
 * number of ranks, and by where the buffers lie.
 *
 *   1. Behind the description: all that a rank stages is BEHIND_MAX (1 KB) or less. It lies in the
 *      cache lines behind the description, wherever the buffers are. One phase.
 *   2. With the description: private, and one piece (64 KB; of an all-reduce of IN_PARTS_RANKS or
 *      more ranks REDUCED_BY_ALL_MAX, 8 KB). It is in the staging buffer when the description is
 *      published. One phase.
 *   3. Direct: more than DIRECT_FROM of its call (1, 4 or 16 KB), and all buffers that others read
 *      or write lie in the shared heap. Each rank takes what it needs from there (direct.c), and a
 *      second phase says that nobody reads any more.
 *   4. Remote: a private all-reduce of 128 KB or more, if the chooser has found this to be faster
 *      (chooser.h), in the memory of the other processes (remote.h). Two phases.
 *   5. In parts: any other all-reduce of IN_PARTS_RANKS or more. All is staged, each rank reduces
 *      its part of it into a shared result, and copies the whole. Two phases for each MB.
 *   6. In pieces: everything else. A piece (64 KB) after the other is staged, PIECES_AHEAD of what
 *      is taken out of the buffers of the others. A phase for each.
 *
 * Ways 2, 5 and 6 put data into staging buffers through the caches or past them: see chooser.h.
 */
#include <string.h>

#include "base/clock.h"
#include "base/copy.h"
#include "comm/reduce/reduce.h"
#include "comm/shm/shared.h"

#define PIECE              MANTA__COMM_PIECE /* 64 KB: staged and taken at once */
#define PIECES_AHEAD       2                 /* pieces that are staged before the first is taken */
#define BEHIND_MAX         MANTA__COMM_TINY  /* 1 KB: staged behind the description */
#define BLOCKS_BEHIND_MAX  256               /* the same, of the blocks of all ranks together */
#define IN_PARTS_RANKS     4                 /* with so many ranks each reduces a part, */
#define REDUCED_BY_ALL_MAX (8u << 10)        /* 8 KB: unless it is less than this */
#define BROADCAST_PIECE    (8u << 10)        /* 8 KB: of a broadcast of up to */
#define BROADCAST_CUT_MAX  (256u << 10)      /* 256 KB: others take one while the root stages one */

/* From here on it is worth a second phase to go direct. */
#define DIRECT_FROM_ALLREDUCE BEHIND_MAX
#define DIRECT_FROM_BROADCAST (4u << 10)
#define DIRECT_FROM_OTHERS    (16u << 10)

// len: bytes of this piece of a block, which begins at `at`.
typedef void (*stage_fn)(struct manta__team *t, const struct manta__transfer *x, size_t at,
                         size_t len);
typedef void (*take_fn)(struct manta__team *t, const struct manta__transfer *x, size_t at,
                        size_t len);
typedef manta_status (*direct_fn)(struct manta__team *t, const struct manta__transfer *x,
                                  manta_error *err);

enum reach { SENDS, SENDS_AND_RECVS, SEND_OF_ROOT, SENDS_AND_RECV_OF_ROOT };

struct method { // how a call is done
  stage_fn stage;
  take_fn take;
  direct_fn direct;
  size_t from;      // bytes of a block from which on it goes direct
  enum reach reach; // whose buffers that takes
  bool blocks;      // a staging buffer holds a piece of each block
};

// --- the pattern --------------------------------------------------------------------------------

void manta__team_slot(struct manta__team *t, size_t bytes)
{
  size_t need = (bytes + 63) & ~(size_t)63;
  t->slot = MANTA__TINY_SLOT;
  if (bytes <= BEHIND_MAX) {
    t->few[t->turn & 1] = bytes;
    return;
  }
  if (!t->warm)
    manta__team_warm(t);
  if (t->ring - t->cursor < need)
    t->cursor = 0;
  t->slot = t->cursor;
  t->cursor += need;
}

static size_t slot_bytes(const struct manta__team *t, const struct manta__transfer *x, size_t len)
{
  return x->blocks ? x->piece * (size_t)t->size : len;
}

static size_t piece_at(const struct manta__transfer *x, size_t at)
{
  return x->bytes - at < x->piece ? x->bytes - at : x->piece;
}

// Piece k is staged after k - PIECES_AHEAD was taken, and all have published k - PIECES_AHEAD by
// then, having taken k - 2 * PIECES_AHEAD: so twice as many pieces must fit in, and the last are
// read until the phase behind them.
static manta_status pieces(struct manta__team *t, const struct manta__transfer *x,
                           const struct method *m, manta_error *err)
{
  const uint32_t first = t->phase + 1;
  const size_t count = (x->bytes + x->piece - 1) / x->piece;
  size_t slot[PIECES_AHEAD];
  for (size_t k = 0; k < count + PIECES_AHEAD - 1; k++) {
    if (k < count) {
      size_t at = k * x->piece, len = piece_at(x, at);
      manta__team_slot(t, slot_bytes(t, x, len));
      slot[k % PIECES_AHEAD] = t->slot;
      m->stage(t, x, at, len);
      manta__team_publish(t);
    }
    if (k < PIECES_AHEAD - 1)
      continue;
    size_t now = k - (PIECES_AHEAD - 1), at = now * x->piece;
    MANTA_TRY(manta__team_wait(t, first + (uint32_t)now, err));
    t->slot = slot[now % PIECES_AHEAD];
    m->take(t, x, at, piece_at(x, at));
  }
  return manta__team_meet(t, err);
}

static bool is_placed(const struct manta__desc *d, enum reach reach, bool root)
{
  bool send = manta__place_is_shared(d->send_at), recv = manta__place_is_shared(d->recv_at);
  switch (reach) {
  case SENDS_AND_RECVS:
    return send && recv;
  case SEND_OF_ROOT:
    return !root || send;
  case SENDS_AND_RECV_OF_ROOT:
    return send && (!root || recv);
  default:
    return send;
  }
}

enum where { ALL_IN_HEAP, NONE_IN_HEAP, MIXED };

// Where the buffers are that others would read or write. The same answer on all ranks.
static enum where look(const struct manta__team *t, const struct manta__transfer *x,
                       const struct method *m)
{
  int placed = 0, counted = 0;
  bool tangled = false;
  for (int r = 0; r < t->size; r++) {
    bool counts = m->reach != SEND_OF_ROOT || r == x->root;
    counted += counts;
    const struct manta__desc *d = manta__team_desc(t, r);
    placed += counts && is_placed(d, m->reach, r == x->root);
    tangled = tangled || (d->head & MANTA__DESC_TANGLED);
  }
  return placed == 0 ? NONE_IN_HEAP : placed == counted && !tangled ? ALL_IN_HEAP : MIXED;
}

static bool all_offer(const struct manta__team *t)
{
  for (int r = 0; r < t->size; r++)
    if (!manta__place_is_private(manta__team_desc(t, r)->recv_at))
      return false;
  return true;
}

struct course {             // of a call, as this rank sees it
  int choice;               // of the chooser, or -1
  enum manta__comm_way way; // told for it
  bool rides;               // staged before its description is published
  bool timed;
  int64_t ns;   // of what came before the description
  bool offered; // our memory, to the others
  bool direct;
  bool remote;
};

static manta_status reduce_in_parts(struct manta__team *t, const struct manta__transfer *x,
                                    manta_error *err);

static manta_status go_on(struct manta__team *t, const struct manta__transfer *x,
                          const struct method *m, struct course *c, manta_error *err)
{
  enum where where = m->direct ? look(t, x, m) : NONE_IN_HEAP;
  c->direct = where == ALL_IN_HEAP;
  if (c->direct) {
    MANTA_TRY(m->direct(t, x, err));
    return manta__team_meet_verified(t, err);
  }
  if (c->rides && where == NONE_IN_HEAP) {
    if (x->bytes)
      m->take(t, x, 0, x->bytes);
    return MANTA_OK;
  }
  if (c->offered && all_offer(t))
    MANTA_TRY(manta__remote_try(t, &c->remote, err));
  if (c->remote) {
    MANTA_TRY(manta__remote_allreduce(t, x, err));
    return manta__team_meet_verified(t, err);
  }
  return x->in_parts ? reduce_in_parts(t, x, err) : pieces(t, x, m, err);
}

// The first rank tells how later calls are to go: in all that are not tiny.
static manta_status begin(struct manta__team *t, struct manta__desc *d, manta_error *err)
{
  d->ways = t->chooser.next;
  manta_status st = manta__team_begin(t, d, err);
  t->chooser.now = manta__team_desc(t, 0)->ways;
  return st;
}

static bool is_tiny(const struct manta__team *t, const struct manta__transfer *x)
{
  return x->bytes <= x->piece && slot_bytes(t, x, x->bytes) <= BEHIND_MAX;
}

// What is tiny lies behind the description, wherever its buffers are: such a call is as long as its
// instructions are many.
static manta_status ride(struct manta__team *t, struct manta__desc *d,
                         const struct manta__transfer *x, const struct method *m, manta_error *err)
{
  t->past = false;
  manta__team_slot(t, slot_bytes(t, x, x->bytes));
  if (x->bytes)
    m->stage(t, x, 0, x->bytes);
  manta_status st = manta__team_begin(t, d, err);
  if (st == MANTA_OK && x->bytes)
    m->take(t, x, 0, x->bytes);
  t->turn++;
  return st;
}

static struct course plan(const struct manta__team *t, const struct manta__desc *d,
                          const struct manta__transfer *x, const struct method *m)
{
  bool rides = x->bytes <= x->piece && !(x->in_parts && x->bytes > REDUCED_BY_ALL_MAX);
  // The time of a root whose data ride says nothing of those who read them.
  bool blind = rides && m->reach == SEND_OF_ROOT;
  int choice = blind ? -1 : manta__chooser_find(x->allreduce, x->bytes);
  return (struct course){.choice = choice,
                         .way = manta__chooser_way(&t->chooser, choice),
                         .rides = rides,
                         .timed =
                             choice >= 0 && t->rank == 0 && !manta__place_is_shared(d->send_at)};
}

// What can be done before the others are there.
static void prepare(struct manta__team *t, struct manta__desc *d, const struct manta__transfer *x,
                    const struct method *m, struct course *c)
{
  int64_t began = c->timed ? manta__now() : 0;
  bool placed = m->direct && is_placed(d, m->reach, t->rank == x->root);
  t->past = c->way == MANTA__WAY_PAST;
  if (c->rides) {
    manta__team_slot(t, slot_bytes(t, x, x->bytes));
    if (x->bytes && !placed)
      m->stage(t, x, 0, x->bytes);
  } else if (c->way == MANTA__WAY_REMOTE && !manta__place_is_shared(d->send_at) &&
             !manta__place_is_shared(d->recv_at)) {
    c->offered = manta__remote_offer(t, x, d);
  }
  c->ns = c->timed ? manta__now() - began : 0;
}

// On the first rank, after a call that was not direct.
static void learn(struct manta__team *t, const struct manta__transfer *x, const struct course *c,
                  int64_t ns)
{
  if (t->remote.state == MANTA__REMOTE_FORBIDDEN && !t->chooser.barred)
    manta__chooser_bar(&t->chooser);
  else if (c->way == MANTA__WAY_REMOTE && !c->remote)
    manta__chooser_miss(&t->chooser, c->choice, c->way);
  else
    manta__chooser_note(&t->chooser, c->choice, c->way, ns, x->bytes, t->ring);
}

static manta_status transfer(struct manta__team *t, struct manta__desc *d,
                             const struct manta__transfer *x, const struct method *m,
                             manta_error *err)
{
  struct course c = plan(t, d, x, m);
  prepare(t, d, x, m, &c);
  manta_status st = begin(t, d, err);
  int64_t began = c.timed ? manta__now() : 0;
  bool differ = st == MANTA_EINVAL; // then nobody went on, on any rank
  if (st == MANTA_OK)
    st = go_on(t, x, m, &c, err);
  if (st == MANTA_OK && c.timed && !c.direct)
    learn(t, x, &c, c.ns + manta__now() - began);
  if (st < 0 && c.offered && !differ)
    manta__remote_withdraw(t);
  t->turn++;
  return st;
}

// --- stages and takes ---------------------------------------------------------------------------

static void put(struct manta__team *t, uint8_t *to, const uint8_t *from, size_t len)
{
  if (!t->past) {
    memcpy(to, from, len);
    return;
  }
  manta__copy_past(to, from, len);
  manta__copy_fence();
}

static void stage_own(struct manta__team *t, const struct manta__transfer *x, size_t at, size_t len)
{
  put(t, manta__team_staging(t, t->rank), x->send + at, len);
}

static void stage_if_root(struct manta__team *t, const struct manta__transfer *x, size_t at,
                          size_t len)
{
  if (t->rank == x->root)
    stage_own(t, x, at, len);
}

// The same piece of every block, one behind the other.
static void stage_blocks(struct manta__team *t, const struct manta__transfer *x, size_t at,
                         size_t len)
{
  uint8_t *to = manta__team_staging(t, t->rank);
  for (int r = 0; r < t->size; r++)
    put(t, to + (size_t)r * x->piece, x->send + (size_t)r * x->bytes + at, len);
}

static void stage_blocks_if_root(struct manta__team *t, const struct manta__transfer *x, size_t at,
                                 size_t len)
{
  if (t->rank == x->root)
    stage_blocks(t, x, at, len);
}

// Of a ragged block only what is there.
static size_t ragged(const struct manta__transfer *x, int rank, size_t at, size_t len)
{
  size_t have = x->counts[rank] * x->size;
  return at >= have ? 0 : have - at < len ? have - at : len;
}

static void stage_ragged(struct manta__team *t, const struct manta__transfer *x, size_t at,
                         size_t len)
{
  size_t n = ragged(x, t->rank, at, len);
  if (n) // who has nothing may have no buffer
    stage_own(t, x, at, n);
}

static void reduce_staged(struct manta__team *t, const struct manta__transfer *x, uint8_t *to,
                          size_t skip, size_t len)
{
  for (int r = 0; r < t->size; r++)
    t->in[r] = manta__team_staging(t, r) + skip;
  manta__reduce(to, t->in, t->size, len / x->size, x->type, x->op);
}

// Ours is read where it lies: it is written there in a moment, and the staged copy is the peers'.
static void take_reduced(struct manta__team *t, const struct manta__transfer *x, size_t at,
                         size_t len)
{
  for (int r = 0; r < t->size; r++)
    t->in[r] = r == t->rank ? x->send + at : manta__team_staging(t, r);
  manta__reduce(x->recv + at, t->in, t->size, len / x->size, x->type, x->op);
}

static void take_reduced_if_root(struct manta__team *t, const struct manta__transfer *x, size_t at,
                                 size_t len)
{
  if (t->rank == x->root)
    take_reduced(t, x, at, len);
}

static void take_reduced_block(struct manta__team *t, const struct manta__transfer *x, size_t at,
                               size_t len)
{
  reduce_staged(t, x, x->recv + at, (size_t)t->rank * x->piece, len);
}

static void take_from_root(struct manta__team *t, const struct manta__transfer *x, size_t at,
                           size_t len)
{
  if (t->rank != x->root)
    memcpy(x->recv + at, manta__team_staging(t, x->root), len);
}

static void take_all(struct manta__team *t, const struct manta__transfer *x, size_t at, size_t len)
{
  for (int r = 0; r < t->size; r++) {
    uint8_t *to = x->recv + (size_t)r * x->bytes + at;
    const uint8_t *from = r == t->rank ? x->send + at : manta__team_staging(t, r);
    if (to != from)
      memcpy(to, from, len);
  }
}

static void take_all_if_root(struct manta__team *t, const struct manta__transfer *x, size_t at,
                             size_t len)
{
  if (t->rank == x->root)
    take_all(t, x, at, len);
}

static void take_ragged(struct manta__team *t, const struct manta__transfer *x, size_t at,
                        size_t len)
{
  uint8_t *to = x->recv;
  for (int r = 0; r < t->size; r++) {
    size_t n = ragged(x, r, at, len);
    if (n)
      memcpy(to + at, manta__team_staging(t, r), n);
    to += x->counts[r] * x->size;
  }
}

static void take_blocks(struct manta__team *t, const struct manta__transfer *x, size_t at,
                        size_t len)
{
  for (int r = 0; r < t->size; r++)
    memcpy(x->recv + (size_t)r * x->bytes + at,
           manta__team_staging(t, r) + (size_t)t->rank * x->piece, len);
}

static void take_block_of_root(struct manta__team *t, const struct manta__transfer *x, size_t at,
                               size_t len)
{
  memcpy(x->recv + at, manta__team_staging(t, x->root) + (size_t)t->rank * x->piece, len);
}

// --- all-reduce of many -------------------------------------------------------------------------

// With many ranks each reduces a part of the piece, and all copy the whole. Nobody reads what is
// staged after the second phase, nor the result after the first one of the next piece.
static manta_status reduce_in_parts(struct manta__team *t, const struct manta__transfer *x,
                                    manta_error *err)
{
  const size_t part = t->ring / 2;
  for (size_t at = 0; at < x->bytes; at += part) {
    size_t len = x->bytes - at < part ? x->bytes - at : part, from, to;
    manta__team_slot(t, len);
    stage_own(t, x, at, len);
    MANTA_TRY(manta__team_meet(t, err));
    manta__slice(t, len, &from, &to);
    if (to > from)
      reduce_staged(t, x, t->result + from, from, to - from);
    MANTA_TRY(manta__team_meet(t, err));
    memcpy(x->recv + at, t->result, len);
  }
  return MANTA_OK;
}

// --- a call -------------------------------------------------------------------------------------

static const struct method methods[] = {
    [MANTA__CALL_ALLREDUCE] = {stage_own, take_reduced, manta__direct_allreduce,
                               DIRECT_FROM_ALLREDUCE, SENDS_AND_RECVS, false},
    [MANTA__CALL_REDUCE] = {stage_own, take_reduced_if_root, manta__direct_reduce,
                            DIRECT_FROM_OTHERS, SENDS_AND_RECV_OF_ROOT, false},
    [MANTA__CALL_REDUCE_SCATTER] = {stage_blocks, take_reduced_block, manta__direct_reduce_scatter,
                                    DIRECT_FROM_OTHERS, SENDS, true},
    [MANTA__CALL_BROADCAST] = {stage_if_root, take_from_root, manta__direct_broadcast,
                               DIRECT_FROM_BROADCAST, SEND_OF_ROOT, false},
    [MANTA__CALL_ALLGATHER] = {stage_own, take_all, manta__direct_allgather, DIRECT_FROM_OTHERS,
                               SENDS, false},
    [MANTA__CALL_ALLGATHERV] = {stage_ragged, take_ragged, NULL, 0, SENDS, false},
    [MANTA__CALL_ALLTOALL] = {stage_blocks, take_blocks, manta__direct_alltoall, DIRECT_FROM_OTHERS,
                              SENDS, true},
    [MANTA__CALL_GATHER] = {stage_own, take_all_if_root, manta__direct_gather, DIRECT_FROM_OTHERS,
                            SENDS, false},
    [MANTA__CALL_SCATTER] = {stage_blocks_if_root, take_block_of_root, manta__direct_scatter,
                             DIRECT_FROM_OTHERS, SEND_OF_ROOT, true},
};

static size_t round_up(size_t n, size_t to)
{
  return (n + to - 1) / to * to;
}

// A piece is a whole number of cache lines, or less than one.
static struct manta__transfer make(const struct manta__team *t, const struct manta__task *task,
                                   const struct method *m)
{
  size_t size = manta_dtype_bytes(task->type), count = task->count;
  size_t piece = m->blocks ? PIECE / (size_t)t->size : PIECE;
  for (int r = 0; task->counts && r < t->size; r++)
    count = r == 0 || task->counts[r] > count ? task->counts[r] : count;
  piece = piece >= 64 ? piece & ~(size_t)63 : 8;
  if (task->call == MANTA__CALL_BROADCAST && count * size > 2 * BROADCAST_PIECE &&
      count * size <= BROADCAST_CUT_MAX)
    piece = BROADCAST_PIECE;
  if (m->blocks &&
      count * size <= BLOCKS_BEHIND_MAX / (size_t)t->size) // so that all fit behind the description
    piece = count ? round_up(count * size, 8) : 8;
  return (struct manta__transfer){.send = task->send,
                                  .recv = task->recv,
                                  .bytes = count * size,
                                  .piece = piece,
                                  .size = size,
                                  .type = task->type,
                                  .op = task->op,
                                  .root = task->root,
                                  .counts = task->counts,
                                  .blocks = m->blocks,
                                  .allreduce = task->call == MANTA__CALL_ALLREDUCE,
                                  .in_parts = task->call == MANTA__CALL_ALLREDUCE &&
                                              t->size >= IN_PARTS_RANKS};
}

// Whether what a rank receives lies where others still read. In its own block nobody does.
static bool is_tangled(const struct manta__team *t, const struct manta__task *task,
                       const struct manta__transfer *x)
{
  size_t n = (size_t)t->size, own = (size_t)t->rank * x->bytes;
  const uint8_t *send = x->send, *recv = x->recv;
  size_t send_bytes = x->bytes, recv_bytes = x->bytes;
  if (!send || !recv)
    return false;
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
  return send < recv + recv_bytes && recv < send + send_bytes;
}

// Ragged counts must agree one by one: they decide how many pieces there are.
size_t manta__task_bytes(const struct manta__task *task)
{
  return task->count * manta_dtype_bytes(task->type);
}

int16_t manta__task_root(const struct manta__task *task, int n)
{
  uint64_t h = 0;
  for (int r = 0; task->counts && r < n; r++)
    h = (h ^ task->counts[r]) * 0x9e3779b97f4a7c15;
  return (int16_t)(task->counts ? (int)(h >> 49) : task->root);
}

static struct manta__desc describe(const struct manta__team *t, const struct manta__task *task,
                                   const struct manta__transfer *x, const struct method *m)
{
  int16_t root = manta__task_root(task, t->size);
  struct manta__desc d = {.head = manta__desc_head(task->call, task->type, task->op, root),
                          .count = task->count,
                          .send_at = MANTA__NOWHERE,
                          .recv_at = MANTA__NOWHERE};
  if (m->direct && x->bytes > m->from) {
    size_t blocks = m->blocks ? (size_t)t->size : 1;
    d.send_at = manta__heap_offset(t->fabric, task->send, x->bytes * blocks);
    d.recv_at = manta__heap_offset(t->fabric, task->recv, x->bytes);
    d.head |= is_tangled(t, task, x) ? MANTA__DESC_TANGLED : 0;
  }
  return d;
}

manta_status manta__team_run(struct manta__team *t, const struct manta__task *task,
                             manta_error *err)
{
  const struct method *m = &methods[task->call];
  struct manta__transfer x = make(t, task, m);
  struct manta__desc d = describe(t, task, &x, m);
  return is_tiny(t, &x) ? ride(t, &d, &x, m, err) : transfer(t, &d, &x, m, err);
}
