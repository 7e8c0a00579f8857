/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/thread.h - a thread of ours in somebody else's process: all signals blocked, a small stack.
 */
#ifndef MANTA_SYS_THREAD_H
#define MANTA_SYS_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Joinable. name: at most 15 letters, as /proc shows it. 0, or an errno. */
int manta__thread_start(pthread_t *out, const char *name, size_t stack, void *(*fn)(void *),
                        void *arg);
/* Moves the calling thread to a processor that it may use, without binding it: the scheduler may
 * move it again. */
void manta__thread_move(int cpu);

#endif
