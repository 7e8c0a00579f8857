/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/bell.h - a process waits in shared memory until somebody rings for it.
 *
 * Each process has a bell of its own, so that whatever its threads wait for, one word wakes them: a
 * peer that has made progress, or the agent that ends the attempt. Ringing costs a load while
 * nobody waits.
 */
#ifndef MANTA_SYS_BELL_H
#define MANTA_SYS_BELL_H

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>

#include "sys/shm.h"

struct manta__bell {
  _Atomic uint32_t count;   /* futex */
  _Atomic uint32_t waiting; /* threads that sleep, or are about to */
};

/* To be called after what is waited for was stored, sequentially consistent. The load must be so,
 * too: of "store, then look whether somebody waits" here and "say that we wait, then look at what
 * was stored" there one sees the other, in the one order of all such accesses. A weaker load may go
 * before the store (aarch64 does that with stlr and ldr), and both would look too early. */
static inline void manta__bell_ring(struct manta__bell *b)
{
  if (!atomic_load(&b->waiting))
    return;
  atomic_fetch_add(&b->count, 1);
  manta__futex_wake(&b->count, INT_MAX);
}

/* The owner: take `seen`, look once more at what is waited for, then wait; spuriously wakes. */
static inline uint32_t manta__bell_prepare(struct manta__bell *b)
{
  uint32_t seen = atomic_load(&b->count);
  atomic_fetch_add(&b->waiting, 1);
  return seen;
}
static inline void manta__bell_wait(struct manta__bell *b, uint32_t seen, int64_t by)
{
  manta__futex_wait(&b->count, seen, by);
}
static inline void manta__bell_done(struct manta__bell *b)
{
  atomic_fetch_sub_explicit(&b->waiting, 1, memory_order_relaxed);
}

#endif
