/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "comm/comm.h"

static inline void relax(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void manta__comm_publish(manta_comm *c)
{
  c->phase++;
  // Sequentially consistent: a peer that is about to sleep sees the phase, or we see that it waits.
  atomic_store(&c->line[c->host.rank].phase, c->phase);
  for (int r = 0; r < c->host.size; r++)
    if (r != c->host.rank)
      manta__bell_ring(c->host.bell(c->host.ctx, r));
}

static bool reached(const manta_comm *c, int rank)
{
  uint32_t there = atomic_load_explicit(&c->line[rank].phase, memory_order_acquire);
  return (int32_t)(there - c->phase) >= 0;
}

static const char *const names[] = {"?",         "barrier",   "allreduce",  "reduce",
                                    "broadcast", "allgather", "allgatherv", "reduce_scatter",
                                    "alltoall",  "gather",    "scatter"};

static const char *name_of(uint32_t call)
{
  return call < sizeof names / sizeof *names ? names[call] : "?";
}

static manta_status give_up(const manta_comm *c, int rank, manta_status st, manta_error *err)
{
  const char *call = name_of(c->line[c->host.rank].desc[c->turn & 1].call);
  if (st == MANTA_EPEERLOST)
    return manta_error_set(err, st, "%s: rank %d has left its train function", call, rank);
  return manta_error_set(err, st, "%s: rank %d of %d is missing after %.3g s", call, rank,
                         c->host.size, (double)c->timeout_ns / 1e9);
}

// What ends a wait besides the phase itself. The phase is looked at last: who left after it is
// fine.
static manta_status trouble(const manta_comm *c, int rank, manta_error *err)
{
  bool left = atomic_load_explicit(&c->line[rank].left, memory_order_acquire);
  if (reached(c, rank))
    return MANTA_OK;
  if (atomic_load_explicit(c->host.abort, memory_order_relaxed))
    return c->host.check(c->host.ctx, err);
  if (left)
    return give_up(c, rank, MANTA_EPEERLOST, err);
  if (c->by != MANTA__NEVER && manta__now() > c->by)
    return give_up(c, rank, MANTA_ETIMEDOUT, err);
  return MANTA_OK;
}

// Sleeps until somebody rings; true if the phase is reached.
static bool sleep_for(manta_comm *c, int rank)
{
  struct manta__bell *bell = c->host.bell(c->host.ctx, c->host.rank);
  uint32_t seen = manta__bell_prepare(bell);
  atomic_thread_fence(memory_order_seq_cst);
  bool there = reached(c, rank) || atomic_load(&c->line[rank].left) || atomic_load(c->host.abort);
  if (!there) {
    c->host.alive(c->host.ctx, true);
    manta__bell_wait(bell, seen, c->by);
    c->host.alive(c->host.ctx, false);
  }
  manta__bell_done(bell);
  return reached(c, rank);
}

static manta_status wait_for(manta_comm *c, int rank, manta_error *err)
{
  for (int i = 0; i < c->spins; i++) {
    if (reached(c, rank))
      return MANTA_OK;
    relax();
    if ((i & 63) == 63)
      MANTA_TRY(trouble(c, rank, err));
  }
  while (!sleep_for(c, rank))
    MANTA_TRY(trouble(c, rank, err));
  return MANTA_OK;
}

manta_status manta__comm_wait(manta_comm *c, manta_error *err)
{
  for (int r = 0; r < c->host.size; r++)
    if (!reached(c, r))
      MANTA_TRY(wait_for(c, r, err));
  return MANTA_OK;
}

static void tell_call(char *buf, size_t size, const struct manta__desc *d)
{
  static const char *const ops[] = {"sum", "mean", "prod", "min", "max"};
  snprintf(buf, size, "%s of %llu %s%s%s root %d", name_of(d->call), (unsigned long long)d->count,
           manta_dtype_name((manta_dtype)d->type), d->call <= MANTA__CALL_REDUCE ? " " : "",
           d->call <= MANTA__CALL_REDUCE && d->op < 5 ? ops[d->op] : "", d->root);
}

manta_status manta__comm_begin(manta_comm *c, const struct manta__desc *d, manta_error *err)
{
  unsigned turn = c->turn & 1;
  c->by = c->timeout_ns < 0 ? MANTA__NEVER : manta__now() + c->timeout_ns;
  c->line[c->host.rank].desc[turn] = *d;
  c->host.alive(c->host.ctx, false);
  manta__comm_publish(c);
  MANTA_TRY(manta__comm_wait(c, err));
  for (int r = 0; r < c->host.size; r++) {
    const struct manta__desc *o = &c->line[r].desc[turn];
    if (o->call == d->call && o->type == d->type && o->op == d->op && o->root == d->root &&
        o->count == d->count)
      continue;
    char ours[96], theirs[96];
    tell_call(ours, sizeof ours, d);
    tell_call(theirs, sizeof theirs, o);
    return manta_error_set(err, MANTA_EINVAL,
                           "the ranks call different things: rank %d %s, rank %d %s", c->host.rank,
                           ours, r, theirs);
  }
  return MANTA_OK;
}
