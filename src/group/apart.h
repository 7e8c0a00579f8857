/* SPDX-License-Identifier: Apache-2.0
 *
 * group/apart.h - a job's function in a fork of its worker.
 *
 * The worker stays what the agent knows: it holds the life of the job, waits, and tells how the
 * fork ended if that could not do so itself. The next job finds it as the last one did. So a job
 * costs a fork and no more, and a crash, a kill for memory or a leak is that job's alone.
 * (1) The fork has the worker's ring and connection to itself until it is gone.
 * (2) It has a process group of its own, which ends with it, and dies with the worker.
 * (3) A worker that has threads is not forked: it calls the function itself and is used up.
 */
#ifndef MANTA_GROUP_APART_H
#define MANTA_GROUP_APART_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <manta/embed.h>

/* Whether this process can be forked. */
bool manta__apart_can(void);
/* 0: we are the fork. -1: errno says why there is none. */
pid_t manta__apart_fork(const manta_fork_hooks *hooks);
/* Waits until it has ended; status as waitpid gives it. */
int manta__apart_wait(pid_t pid);
/* How it ended, in words. */
void manta__apart_explain(int status, char *buf, size_t size);

#endif
