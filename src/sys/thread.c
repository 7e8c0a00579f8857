/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/thread.h"

#include <sched.h>
#include <signal.h>

int manta__thread_start(pthread_t *out, const char *name, size_t stack, void *(*fn)(void *),
                        void *arg)
{
  pthread_attr_t attr;
  sigset_t all, old;
  int rc = pthread_attr_init(&attr);
  if (rc != 0)
    return rc;
  pthread_attr_setstacksize(&attr, stack);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  rc = pthread_create(out, &attr, fn, arg);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  if (rc == 0)
    pthread_setname_np(*out, name);
  return rc;
}

void manta__thread_move(int cpu)
{
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) < 0 || !CPU_ISSET(cpu, &all))
    return;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (sched_setaffinity(0, sizeof one, &one) == 0)
    sched_setaffinity(0, sizeof all, &all);
}
