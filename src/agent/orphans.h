/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/orphans.h - what a worker leaves behind: descendants that outlived it, and why it was
 * killed.
 */
#ifndef MANTA_AGENT_ORPHANS_H
#define MANTA_AGENT_ORPHANS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The mark of a worker in its environment (MANTA_WORKER), which its descendants inherit. */
void manta__orphans_mark(char *buf, size_t size, pid_t agent, int64_t wid);
/* SIGKILLs children of this process that descend from the worker (those in the session `sid`, and
 * those whose environment carries its mark) and all their descendants. Returns how many. */
int manta__orphans_end(pid_t agent, int64_t wid, pid_t sid);

#endif
