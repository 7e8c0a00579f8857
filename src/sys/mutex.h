/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/mutex.h - a mutex of one process's threads whose wait has a deadline.
 *
 * For calls that are mostly made by one thread: taking and leaving cost an atomic operation each,
 * and there is a system call only while somebody sleeps. Not fair: a thread that comes by may be
 * quicker than the one that was woken. {0} is free. A forked child finds it as it was: taken,
 * perhaps, for ever.
 */
#ifndef MANTA_SYS_MUTEX_H
#define MANTA_SYS_MUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct manta__mutex {
  _Atomic uint32_t word; /* futex. 0: free; 1: taken; 2: taken, and somebody may sleep */
};

static inline bool manta__mutex_try(struct manta__mutex *m)
{
  uint32_t free = 0;
  return atomic_compare_exchange_strong_explicit(&m->word, &free, 1, memory_order_acquire,
                                                 memory_order_relaxed);
}

/* Waits until it is free and takes it; false when it was not until `by`. */
bool manta__mutex_wait(struct manta__mutex *m, int64_t by);
void manta__mutex_wake(struct manta__mutex *m);

static inline void manta__mutex_leave(struct manta__mutex *m)
{
  if (atomic_exchange_explicit(&m->word, 0, memory_order_release) == 2)
    manta__mutex_wake(m);
}

/* After a leave: what was stored before it is seen by others before what is loaded from now on. */
static inline void manta__mutex_fence(void)
{
#if defined(__x86_64__)
  atomic_signal_fence(memory_order_seq_cst); // the exchange was a fence already
#else
  atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
