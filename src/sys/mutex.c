/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/mutex.c - the wait for a mutex.
 *
 * (1) Who sleeps has stored 2 before, and the kernel compares: a leave between the store and the
 *     sleep is seen by one of both.
 * (2) Who is woken takes it as 2, since others may sleep; the price is a wake-up for nobody.
 * (3) Who gives up leaves the 2: again a wake-up for nobody, never one that is missing.
 */
#include "sys/mutex.h"

#include "base/clock.h"
#include "sys/shm.h"

#define SPINS 100 /* longer than a row takes, shorter than a sleep */

static void pause_cpu(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

static bool spin(struct manta__mutex *m)
{
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&m->word, memory_order_relaxed) == 0 && manta__mutex_try(m))
      return true;
    pause_cpu();
  }
  return false;
}

bool manta__mutex_wait(struct manta__mutex *m, int64_t by)
{
  if (spin(m))
    return true;
  while (atomic_exchange_explicit(&m->word, 2, memory_order_acquire) != 0) {
    if (by != MANTA__NEVER && manta__now() >= by)
      return false;
    manta__futex_wait(&m->word, 2, by);
  }
  return true;
}

void manta__mutex_wake(struct manta__mutex *m)
{
  manta__futex_wake(&m->word, 1);
}
