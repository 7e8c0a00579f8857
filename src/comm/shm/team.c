/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/shm/team.h"

#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "sys/pages.h"

#define SPINS       400    /* some 10 us, while every rank has a processor of its own */
#define YIELD_NS    300000 /* of a wait: then asleep */
#define YIELDED_NS  500000 /* somebody had the processor who does not wait for us */
#define SHUN        50     /* waits without yielding after that */
#define LOOKS       8      /* long waits between two looks at who runs where, */
#define LOOKS_MANY  64     /* and where all are long */
#define RING_MAX    (64u << 10)
#define RINGS_MAX   ((size_t)1 << 30)
#define FETCHED     320          /* of a post: the processor does better with more */
#define STAGING_MAX (2u << 20)   /* of one rank */
#define STAGING_MIN (512u << 10) /* and with very many of them */
#define STAGING_ALL ((size_t)64 << 20)

static _Thread_local bool background;

// --- layout -------------------------------------------------------------------------------------

static size_t ring_bytes(int n)
{
  size_t ring = RING_MAX;
  while (ring > 4096 && ring * (size_t)n * (size_t)n > RINGS_MAX)
    ring /= 2;
  return ring;
}

static size_t lines_bytes(int n)
{
  return manta__pages_round((size_t)n * sizeof(struct manta__line));
}

static size_t pairs_bytes(int n)
{
  return manta__pages_round((size_t)n * (size_t)n * sizeof(struct manta__pair));
}

size_t manta__team_ring_size(int n)
{
  size_t staging = STAGING_MAX;
  while (staging > STAGING_MIN && staging * (size_t)n > STAGING_ALL)
    staging /= 2;
  return staging;
}

size_t manta__team_bytes(int n)
{
  return lines_bytes(n) + pairs_bytes(n) + (size_t)n * manta__team_ring_size(n) +
         manta__team_ring_size(n) / 2 + (size_t)n * (size_t)n * ring_bytes(n);
}

manta_status manta__team_init(struct manta__team *t, struct manta__fabric *f, uint64_t at, int rank,
                              int size, const int *host_rank, manta_error *err)
{
  uint8_t *base = f->base + at;
  t->fabric = f;
  t->rank = rank;
  t->size = size;
  t->line = (struct manta__line *)base;
  t->pair = (struct manta__pair *)(base + lines_bytes(size));
  t->staging = base + lines_bytes(size) + pairs_bytes(size);
  t->ring = manta__team_ring_size(size);
  t->result = t->staging + (size_t)size * t->ring;
  t->rings = t->result + t->ring / 2;
  t->ring_bytes = ring_bytes(size);
  t->timeout_ns = -1;
  t->gone = -1;
  t->by = MANTA__NEVER;
  t->crowded = f->host.size > sysconf(_SC_NPROCESSORS_ONLN); // a rank may be pinned to one
  t->spins = t->crowded ? 1 : SPINS;
  t->host_rank = manta__calloc((size_t)size, sizeof *t->host_rank);
  t->in = manta__calloc((size_t)size, sizeof *t->in);
  if (!t->host_rank || !t->in)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator of %d ranks", size);
  memcpy(t->host_rank, host_rank, (size_t)size * sizeof *host_rank);
  MANTA_TRY(manta__chooser_init(&t->chooser, err));
  return manta__remote_init(t, err);
}

void manta__team_depart(struct manta__team *t)
{
  if (!t->line)
    return;
  atomic_store(&t->line[t->rank].left, 1);
  for (int r = 0; t->host_rank && r < t->size; r++)
    manta__team_ring(t, r);
}

void manta__team_fini(struct manta__team *t)
{
  manta__team_depart(t);
  manta__remote_fini(&t->remote);
  manta__free(t->host_rank);
  manta__free(t->in);
}

void manta__team_quit(struct manta__team *t)
{
  atomic_store(&t->quit, true);
  manta__team_ring(t, t->rank);
}

// Our pages are to be ours: touched first by us, and before a copy is timed. A kernel that does not
// know the advice has them faulted in one by one.
void manta__team_warm(struct manta__team *t)
{
  madvise(t->staging + (size_t)t->rank * t->ring, t->ring, MADV_POPULATE_WRITE);
  t->warm = true;
}

// --- phases -------------------------------------------------------------------------------------

static inline void relax(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb"); // many of them do nothing at all at a yield
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
  return t->fabric->host.bell(t->fabric->host.ctx, t->host_rank[t->rank]);
}

void manta__team_ring(const struct manta__team *t, int rank)
{
  manta__bell_ring(t->fabric->host.bell(t->fabric->host.ctx, t->host_rank[rank]));
}

void manta__team_publish(struct manta__team *t)
{
  t->phase++;
  // Sequentially consistent: a peer that is about to sleep sees the phase, or we see that it waits.
  atomic_store(&t->line[t->rank].post[t->turn & 1].phase, t->phase);
  for (int r = 0; r < t->size; r++)
    if (r != t->rank)
      manta__team_ring(t, r);
}

// A rank that is a turn ahead has left this turn's last phase where it was.
static bool reached(const struct manta__team *t, int rank, uint32_t phase)
{
  const struct manta__post *post = &t->line[rank].post[t->turn & 1];
  uint32_t there = atomic_load_explicit(&post->phase, memory_order_acquire);
  return (int32_t)(there - phase) >= 0;
}

static const char *const names[] = {
    "?",          "barrier",  "allreduce", "reduce",  "reduce_scatter", "broadcast", "allgather",
    "allgatherv", "alltoall", "gather",    "scatter", "send",           "recv"};

const char *manta__call_name(uint32_t call)
{
  call &= ~(uint32_t)MANTA__CALL_ON_GPU;
  return call < sizeof names / sizeof *names ? names[call] : "?";
}

// The call that we are in.
static const char *call_of(const struct manta__team *t)
{
  return manta__call_name(manta__desc_call(manta__team_desc(t, t->rank)));
}

// "rank 1", and in a group that was split also its rank in the run.
static const char *tell_rank(char *buf, size_t size, const struct manta__team *t, int rank)
{
  int label = manta__team_label(t, rank);
  int run = t->fabric->here[t->host_rank[rank]];
  if (run == label)
    snprintf(buf, size, "rank %d", label);
  else
    snprintf(buf, size, "rank %d (%d of the run)", label, run);
  return buf;
}

// Who left will never read what is ours, nor let others end this call: that is no giving up.
manta_status manta__team_trouble(struct manta__team *t, int rank, bool left, int64_t by,
                                 const char *call, manta_error *err)
{
  char who[48];
  bool aborted = atomic_load_explicit(t->fabric->host.abort, memory_order_relaxed);
  bool quits = atomic_load_explicit(&t->quit, memory_order_relaxed);
  bool late = by != MANTA__NEVER && manta__now() > by;
  if (aborted || (!left && (quits || late)))
    manta__team_give_up(t);
  if (aborted)
    return t->fabric->host.check(t->fabric->host.ctx, err);
  if (left)
    return manta_error_set(err, MANTA_EPEERLOST, "%s: %s has left its train function", call,
                           tell_rank(who, sizeof who, t, rank));
  if (quits)
    return manta_error_set(err, MANTA_ECANCELED, "%s: the communicator is being freed", call);
  if (!late)
    return MANTA_OK;
  t->broken = true;
  return manta_error_set(err, MANTA_ETIMEDOUT,
                         "%s: %s of %d is missing after the timeout of %.3g s", call,
                         tell_rank(who, sizeof who, t, rank), t->size, (double)t->timeout_ns / 1e9);
}

manta_status manta__team_ready(struct manta__team *t, uint32_t call, int gone, manta_error *err)
{
  if (atomic_load_explicit(&t->broken, memory_order_relaxed))
    return manta_error_set(err, MANTA_ESTATE,
                           "%s: an earlier call ran out of time, the ranks are out of step",
                           manta__call_name(call));
  return manta__team_trouble(t, gone < 0 ? t->rank : gone, gone >= 0, MANTA__NEVER,
                             manta__call_name(call), err);
}

static bool is_whole(const struct manta__team *t, int rank)
{
  return !atomic_load(t->fabric->host.abort) && !atomic_load(&t->line[rank].gave_up);
}

manta_status manta__team_verify(struct manta__team *t, int rank, const char *call, manta_error *err)
{
  char who[48];
  if (is_whole(t, rank))
    return MANTA_OK;
  if (atomic_load(t->fabric->host.abort))
    return t->fabric->host.check(t->fabric->host.ctx, err);
  return manta_error_set(err, MANTA_EPEERLOST, "%s: %s has given up", call,
                         tell_rank(who, sizeof who, t, rank));
}

// The phase is looked at after `left`: who left after it is fine.
static manta_status trouble(struct manta__team *t, int rank, uint32_t phase, manta_error *err)
{
  bool left = atomic_load_explicit(&t->line[rank].left, memory_order_acquire);
  if (reached(t, rank, phase))
    return MANTA_OK;
  if (left)
    t->gone = rank;
  return manta__team_trouble(t, rank, left, t->by, call_of(t), err);
}

// Sleeps until somebody rings; true if the phase is reached.
static bool sleep_for(struct manta__team *t, int rank, uint32_t phase)
{
  struct manta__bell *bell = manta__team_bell(t);
  uint32_t seen = manta__bell_prepare(bell);
  atomic_thread_fence(memory_order_seq_cst);
  bool there = reached(t, rank, phase) || atomic_load(&t->line[rank].left) ||
               atomic_load(t->fabric->host.abort) || atomic_load(&t->quit);
  if (!there) {
    manta__team_alive(t, true);
    manta__bell_wait(bell, seen, t->by);
    manta__team_alive(t, false);
  }
  manta__bell_done(bell);
  return reached(t, rank, phase);
}

static bool spin_for(struct manta__team *t, int rank, uint32_t phase)
{
  for (int i = 0; i < t->spins; i++) {
    if (reached(t, rank, phase))
      return true;
    relax();
  }
  return false;
}

// The rank that we wait for may want this very processor: yielding is then the shortest way. But a
// program that computes keeps what it is given for milliseconds, and nobody wakes one who yielded:
// then it is better to sleep, for a while.
static bool yield_to(struct manta__team *t, int rank, uint32_t phase)
{
  int64_t began = manta__now(), before = began;
  if (t->shun > 0) {
    t->shun--;
    return false;
  }
  if (++t->looks >= (t->crowded ? LOOKS_MANY : LOOKS))
    manta__team_even_out(t);
  do {
    sched_yield();
    int64_t now = manta__now();
    if (now - before > YIELDED_NS)
      t->shun = SHUN;
    before = now;
    if (reached(t, rank, phase))
      return true;
  } while (t->shun == 0 && before - began < YIELD_NS);
  return false;
}

static manta_status wait_for(struct manta__team *t, int rank, uint32_t phase, manta_error *err)
{
  if (spin_for(t, rank, phase) || yield_to(t, rank, phase))
    return MANTA_OK;
  do
    MANTA_TRY(trouble(t, rank, phase, err));
  while (!sleep_for(t, rank, phase));
  return MANTA_OK;
}

manta_status manta__team_wait(struct manta__team *t, uint32_t phase, manta_error *err)
{
  for (int r = 0; r < t->size; r++)
    if (!reached(t, r, phase))
      MANTA_TRY(wait_for(t, r, phase, err));
  return MANTA_OK;
}

// Nobody reaches a phase beyond the next one before we have.
manta_status manta__team_await_loss(struct manta__team *t, int rank, manta_error *err)
{
  return wait_for(t, rank, t->phase + 2, err);
}

manta_status manta__team_meet(struct manta__team *t, manta_error *err)
{
  manta__team_publish(t);
  return manta__team_wait(t, t->phase, err);
}

manta_status manta__team_meet_verified(struct manta__team *t, manta_error *err)
{
  MANTA_TRY(manta__team_meet(t, err));
  for (int r = 0; r < t->size; r++)
    if (!is_whole(t, r))
      return manta__team_verify(t, r, call_of(t), err);
  return MANTA_OK;
}

// --- descriptions -------------------------------------------------------------------------------

static void tell_call(char *buf, size_t size, const struct manta__desc *d)
{
  static const char *const ops[] = {"sum", "mean", "prod", "min", "max", "band", "bor", "bxor"};
  uint32_t call = manta__desc_call(d) & ~(uint32_t)MANTA__CALL_ON_GPU;
  bool reduces = call >= MANTA__CALL_ALLREDUCE && call <= MANTA__CALL_REDUCE_SCATTER;
  snprintf(buf, size, "%s%s of %llu %s%s%s %s %d", manta__call_name(call),
           manta__desc_call(d) == call ? "" : " on a GPU", (unsigned long long)d->count,
           manta_dtype_name(manta__desc_type(d)), reduces ? " " : "",
           reduces && manta__desc_op(d) < sizeof ops / sizeof *ops ? ops[manta__desc_op(d)] : "",
           call == MANTA__CALL_ALLGATHERV ? "in parts" : "root", manta__desc_root(d));
}

manta_status manta__desc_differ(int a_rank, const struct manta__desc *a, int b_rank,
                                const struct manta__desc *b, manta_error *err)
{
  char ours[96], theirs[96];
  tell_call(ours, sizeof ours, a);
  tell_call(theirs, sizeof theirs, b);
  return manta_error_set(err, MANTA_EINVAL,
                         "the ranks make different calls: rank %d %s, rank %d %s", a_rank, ours,
                         b_rank, theirs);
}

// The others have read the post of our next turn two turns ago: get it back while we wait.
static void fetch_own(struct manta__team *t)
{
  const uint32_t next = (t->turn + 1) & 1;
  const uint8_t *post = (const uint8_t *)&t->line[t->rank].post[next];
  size_t used = offsetof(struct manta__post, tiny) + t->few[next];
  for (size_t i = 0; i < used && i < FETCHED; i += 64)
    manta__prefetch_to_write(post + i);
  t->few[next] = 0;
}

// All lines at once, and not one by one behind what has to be looked at before.
static void fetch_others(const struct manta__team *t)
{
  size_t used = offsetof(struct manta__post, tiny) + t->few[t->turn & 1];
  for (int r = 0; used <= FETCHED && r < t->size; r++)
    for (size_t i = 64; i < used; i += 64)
      __builtin_prefetch((const uint8_t *)&t->line[r].post[t->turn & 1] + i);
}

manta_status manta__team_exchange(struct manta__team *t, manta_error *err)
{
  const struct manta__desc *own = manta__team_desc(t, t->rank);
  manta__team_publish(t);
  // What comes now is done while the others read that.
  int64_t limit = t->timeout_ns;
  t->by = limit < 0 ? MANTA__NEVER : manta__now() + limit;
  atomic_store_explicit(&t->line[t->rank].cpu, (uint32_t)(sched_getcpu() + 1),
                        memory_order_relaxed);
  manta__team_alive(t, false);
  fetch_own(t);
  MANTA_TRY(manta__team_wait(t, t->phase, err));
  fetch_others(t);
  for (int r = 0; r < t->size; r++) {
    const struct manta__desc *o = manta__team_desc(t, r);
    if (manta__desc_same(o, own))
      continue;
    t->cursor = 0; // ours may have gone another way than theirs
    return manta__desc_differ(manta__team_label(t, t->rank), own, manta__team_label(t, r), o, err);
  }
  return MANTA_OK;
}
