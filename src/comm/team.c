/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/team.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

#define SPINS     4000   /* about 0.1 ms, while every rank has a processor of its own */
#define YIELD_NS  300000 /* of a crowded host: others get the processor, and nothing is burnt */
#define RING_MAX  (64u << 10)
#define RINGS_MAX ((size_t)1 << 30)
#define PEEK_FROM (128u << 10) /* private memory: below, two copies are cheaper than a call */
#define PEEK_TO   (16u << 20) /* above, the staging buffers stay in the cache and the data do not */

static _Thread_local bool background;

// --- layout -------------------------------------------------------------------------------------

static size_t pages(size_t n)
{
  return (n + 4095) & ~(size_t)4095;
}

static size_t ring_bytes(int n)
{
  size_t ring = RING_MAX;
  while (ring > 4096 && ring * (size_t)n * (size_t)n > RINGS_MAX)
    ring /= 2;
  return ring;
}

static size_t lines_bytes(int n)
{
  return pages((size_t)n * sizeof(struct manta__line));
}

static size_t pairs_bytes(int n)
{
  return pages((size_t)n * (size_t)n * sizeof(struct manta__pair));
}

size_t manta__team_bytes(int n)
{
  return lines_bytes(n) + pairs_bytes(n) + ((size_t)n * 2 + 2) * MANTA__COMM_CHUNK +
         (size_t)n * (size_t)n * ring_bytes(n);
}

static int processors(void)
{
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

manta_status manta__team_init(struct manta__team *t, struct manta__fabric *f, uint64_t at, int rank,
                              int size, const int *world, manta_error *err)
{
  uint8_t *base = f->base + at;
  t->fabric = f;
  t->rank = rank;
  t->size = size;
  t->line = (struct manta__line *)base;
  t->pair = (struct manta__pair *)(base + lines_bytes(size));
  t->staging = base + lines_bytes(size) + pairs_bytes(size);
  t->result = t->staging + (size_t)size * 2 * MANTA__COMM_CHUNK;
  t->rings = t->result + 2 * MANTA__COMM_CHUNK;
  t->ring_bytes = ring_bytes(size);
  t->timeout_ns = -1;
  t->by = MANTA__NEVER;
  // Spinning pays while every rank has a processor; else it keeps the others from theirs.
  t->crowded = f->host.size > processors();
  t->spins = t->crowded ? 50 : SPINS;
  t->peeks = -1;
  t->peek_from = PEEK_FROM;
  t->peek_to = PEEK_TO;
  t->world = manta__calloc((size_t)size, sizeof *t->world);
  t->in = manta__calloc((size_t)size, sizeof *t->in);
  if (!t->world || !t->in)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator of %d ranks", size);
  memcpy(t->world, world, (size_t)size * sizeof *world);
  atomic_store(&t->line[rank].pid, getpid());
  return MANTA_OK;
}

void manta__team_fini(struct manta__team *t)
{
  if (t->line) {
    atomic_store(&t->line[t->rank].left, 1);
    for (int r = 0; t->world && r < t->size; r++)
      manta__team_ring(t, r);
  }
  manta__free(t->world);
  manta__free(t->in);
  manta__free(t->scratch);
}

void manta__team_quit(struct manta__team *t)
{
  atomic_store(&t->quit, true);
  manta__team_ring(t, t->rank);
}

// --- phases -------------------------------------------------------------------------------------

static inline void relax(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void manta__team_background(void)
{
  background = true;
}

void manta__team_alive(const struct manta__team *t, bool waits)
{
  if (!background)
    t->fabric->host.alive(t->fabric->host.ctx, waits);
}

struct manta__bell *manta__team_bell(const struct manta__team *t)
{
  return t->fabric->host.bell(t->fabric->host.ctx, t->world[t->rank]);
}

void manta__team_ring(const struct manta__team *t, int rank)
{
  manta__bell_ring(t->fabric->host.bell(t->fabric->host.ctx, t->world[rank]));
}

void manta__team_publish(struct manta__team *t)
{
  t->phase++;
  // Sequentially consistent: a peer that is about to sleep sees the phase, or we see that it waits.
  atomic_store(&t->line[t->rank].phase, t->phase);
  for (int r = 0; r < t->size; r++)
    if (r != t->rank)
      manta__team_ring(t, r);
}

static bool reached(const struct manta__team *t, int rank)
{
  uint32_t there = atomic_load_explicit(&t->line[rank].phase, memory_order_acquire);
  return (int32_t)(there - t->phase) >= 0;
}

static const char *const names[] = {
    "?",          "barrier",  "allreduce", "reduce",  "reduce_scatter", "broadcast", "allgather",
    "allgatherv", "alltoall", "gather",    "scatter", "send",           "recv"};

const char *manta__call_name(uint32_t call)
{
  return call < sizeof names / sizeof *names ? names[call] : "?";
}

// "rank 1", and in a group that was split also its rank in the run.
static const char *tell_rank(char *buf, size_t size, const struct manta__team *t, int rank)
{
  if (t->world[rank] == rank)
    snprintf(buf, size, "rank %d", rank);
  else
    snprintf(buf, size, "rank %d (%d of the run)", rank, t->world[rank]);
  return buf;
}

manta_status manta__team_trouble(struct manta__team *t, int rank, bool left, int64_t by,
                                 const char *call, manta_error *err)
{
  char who[48];
  if (atomic_load_explicit(t->fabric->host.abort, memory_order_relaxed))
    return t->fabric->host.check(t->fabric->host.ctx, err);
  if (left)
    return manta_error_set(err, MANTA_EPEERLOST, "%s: %s has left its train function", call,
                           tell_rank(who, sizeof who, t, rank));
  if (atomic_load_explicit(&t->quit, memory_order_relaxed))
    return manta_error_set(err, MANTA_ECANCELED, "%s: the communicator is being freed", call);
  if (by == MANTA__NEVER || manta__now() <= by)
    return MANTA_OK;
  t->broken = true;
  return manta_error_set(err, MANTA_ETIMEDOUT, "%s: %s of %d is missing after %.3g s", call,
                         tell_rank(who, sizeof who, t, rank), t->size, (double)t->timeout_ns / 1e9);
}

// The phase is looked at after `left`: who left after it is fine.
static manta_status trouble(struct manta__team *t, int rank, manta_error *err)
{
  bool left = atomic_load_explicit(&t->line[rank].left, memory_order_acquire);
  if (reached(t, rank))
    return MANTA_OK;
  return manta__team_trouble(t, rank, left, t->by,
                             manta__call_name(manta__team_desc(t, t->rank)->call), err);
}

// Sleeps until somebody rings; true if the phase is reached.
static bool sleep_for(struct manta__team *t, int rank)
{
  struct manta__bell *bell = manta__team_bell(t);
  uint32_t seen = manta__bell_prepare(bell);
  atomic_thread_fence(memory_order_seq_cst);
  bool there = reached(t, rank) || atomic_load(&t->line[rank].left) ||
               atomic_load(t->fabric->host.abort) || atomic_load(&t->quit);
  if (!there) {
    manta__team_alive(t, true);
    manta__bell_wait(bell, seen, t->by);
    manta__team_alive(t, false);
  }
  manta__bell_done(bell);
  return reached(t, rank);
}

// True if the phase came within the time for which it pays to stay awake.
static bool stay_awake(struct manta__team *t, int rank, manta_status *st, manta_error *err)
{
  for (int i = 0; i < t->spins; i++) {
    if (reached(t, rank))
      return true;
    relax();
    if ((i & 63) == 63 && (*st = trouble(t, rank, err)) < 0)
      return false;
  }
  if (!t->crowded)
    return false;
  for (int64_t until = manta__now() + YIELD_NS; manta__now() < until;) {
    sched_yield();
    if (reached(t, rank))
      return true;
    if ((*st = trouble(t, rank, err)) < 0)
      return false;
  }
  return false;
}

static manta_status wait_for(struct manta__team *t, int rank, manta_error *err)
{
  manta_status st = MANTA_OK;
  if (stay_awake(t, rank, &st, err))
    return MANTA_OK;
  while (st == MANTA_OK && !sleep_for(t, rank))
    st = trouble(t, rank, err);
  return st;
}

manta_status manta__team_wait(struct manta__team *t, manta_error *err)
{
  for (int r = 0; r < t->size; r++)
    if (!reached(t, r))
      MANTA_TRY(wait_for(t, r, err));
  return MANTA_OK;
}

manta_status manta__team_meet(struct manta__team *t, manta_error *err)
{
  manta__team_publish(t);
  return manta__team_wait(t, err);
}

// --- descriptions -------------------------------------------------------------------------------

static void tell_call(char *buf, size_t size, const struct manta__desc *d)
{
  static const char *const ops[] = {"sum", "mean", "prod", "min", "max"};
  bool reduces = d->call >= MANTA__CALL_ALLREDUCE && d->call <= MANTA__CALL_REDUCE_SCATTER;
  snprintf(buf, size, "%s of %llu %s%s%s root %d", manta__call_name(d->call),
           (unsigned long long)d->count, manta_dtype_name((manta_dtype)d->type), reduces ? " " : "",
           reduces && d->op < 5 ? ops[d->op] : "", d->root);
}

static bool same_call(const struct manta__desc *a, const struct manta__desc *b)
{
  return a->call == b->call && a->type == b->type && a->op == b->op && a->root == b->root &&
         a->count == b->count;
}

manta_status manta__team_begin(struct manta__team *t, const struct manta__desc *d, manta_error *err)
{
  if (t->broken)
    return manta_error_set(err, MANTA_ESTATE,
                           "%s: an earlier call ran out of time, the ranks are out of step",
                           manta__call_name(d->call));
  t->by = t->timeout_ns < 0 ? MANTA__NEVER : manta__now() + t->timeout_ns;
  t->line[t->rank].desc[t->turn & 1] = *d;
  manta__team_alive(t, false);
  MANTA_TRY(manta__team_meet(t, err));
  for (int r = 0; r < t->size; r++) {
    const struct manta__desc *o = manta__team_desc(t, r);
    if (same_call(o, d))
      continue;
    char ours[96], theirs[96];
    tell_call(ours, sizeof ours, d);
    tell_call(theirs, sizeof theirs, o);
    return manta_error_set(err, MANTA_EINVAL,
                           "the ranks call different things: rank %d %s, rank %d %s", t->rank, ours,
                           r, theirs);
  }
  return MANTA_OK;
}

// --- memory of others ---------------------------------------------------------------------------

// The kernel found nobody there: its death will be known in a moment.
static manta_status peer_vanished(struct manta__team *t, int rank, int error, manta_error *err)
{
  struct manta__bell *bell = manta__team_bell(t);
  int64_t by = manta__deadline(5);
  char who[48];
  while (!atomic_load(t->fabric->host.abort) && manta__now() < by) {
    uint32_t seen = manta__bell_prepare(bell);
    if (!atomic_load(t->fabric->host.abort))
      manta__bell_wait(bell, seen, by);
    manta__bell_done(bell);
  }
  if (atomic_load(t->fabric->host.abort))
    return t->fabric->host.check(t->fabric->host.ctx, err);
  return manta_error_set(err, MANTA_EPEERLOST, "cannot read the memory of %s: %s",
                         tell_rank(who, sizeof who, t, rank), strerror(error));
}

manta_status manta__team_peek(struct manta__team *t, int rank, void *to, uint64_t place,
                              uint64_t addr, size_t skip, size_t bytes, manta_error *err)
{
  if (place != MANTA__NOWHERE || bytes == 0) {
    memcpy(to, t->fabric->base + place + skip, bytes);
    return MANTA_OK;
  }
  pid_t pid = atomic_load_explicit(&t->line[rank].pid, memory_order_relaxed);
  for (size_t done = 0; done < bytes;) {
    struct iovec here = {(uint8_t *)to + done, bytes - done};
    struct iovec there = {(void *)(uintptr_t)(addr + skip + done), bytes - done};
    ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (n <= 0)
      return peer_vanished(t, rank, n < 0 ? errno : EFAULT, err);
    done += (size_t)n;
  }
  return MANTA_OK;
}

static bool peeks_at_all(struct manta__team *t)
{
  const char *peek = getenv("MANTA_COMM_PEEK");
  uint64_t word;
  if (peek && !strcmp(peek, "off"))
    return false;
  for (int r = 0; r < t->size; r++) {
    struct iovec here = {&word, 8};
    struct iovec there = {(void *)(uintptr_t)manta__team_desc(t, r)->send, 8};
    if (r != t->rank && process_vm_readv(t->line[r].pid, &here, 1, &there, 1, 0) != 8)
      return false;
  }
  return true;
}

manta_status manta__team_can_peek(struct manta__team *t, bool *can, manta_error *err)
{
  if (t->peeks < 0) {
    if (!t->scratch)
      t->scratch = manta__malloc((size_t)t->size * MANTA__COMM_PEEK);
    atomic_store(&t->line[t->rank].peeks, t->scratch && peeks_at_all(t) ? 1 : 2);
    MANTA_TRY(manta__team_meet(t, err));
    t->peeks = 1;
    for (int r = 0; r < t->size; r++)
      t->peeks = t->peeks && atomic_load(&t->line[r].peeks) == 1;
  }
  *can = t->peeks == 1;
  return MANTA_OK;
}
