/* SPDX-License-Identifier: Apache-2.0
 *
 * group/zygote.h - the user's program, started once, that forks workers in a fraction of a
 * millisecond.
 *
 * It has one thread and runs no user code but what precedes manta_init. If a library has started
 * threads by then, a fork would copy half a process: workers are then started by exec instead.
 *
 * A program that can load more for later workers (manta_fork_hooks.warm) is forked once itself,
 * when the first workers are: the successor loads, says so, and takes over. Workers of the one
 * before it become the agent's children when that ends.
 */
#ifndef MANTA_GROUP_ZYGOTE_H
#define MANTA_GROUP_ZYGOTE_H

#include "group/worker.h"

/* Serves FORK and CALLER until the agent goes away, which ends the process; comes back only in a
 * worker that was told to end. conn and lifeline are taken. */
void manta__zygote_main(int conn, int lifeline, char *const argv[],
                        const struct manta__job_ops *ops);

#endif
