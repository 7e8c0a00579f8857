/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/writer.h - the process that makes snapshots durable, one after the other.
 *
 * A child of the agent that outlives it: a write that has begun always finishes. It is the only one
 * that touches checkpoints/; a second one (after a lost agent) waits for the first.
 */
#ifndef MANTA_AGENT_WRITER_H
#define MANTA_AGENT_WRITER_H

#include <stdbool.h>
#include <sys/types.h>

#include <manta/status.h>

#include "engine/role.h"

/* What is kept of the checkpoints of a run, which lies in the directory. */
struct manta__writer_job {
  int rundir;
  int keep_last, keep_best;
  bool score_min;
};
/* Starts one, in the command's own binary; *sock speaks with it. It ends when that is closed. */
manta_status manta__writer_start(const struct manta__writer_job *job, int *sock, pid_t *pid,
                                 manta_error *err);

/* The environment of such a child: its role, and what the program may need to find its libraries;
 * ends with NULL. */
#define MANTA__CHILD_ENV 10
void manta__writer_env(char *env[MANTA__CHILD_ENV], enum manta__role role);

/* conn: to the agent; rundir: the run directory. argv: name, keep_last, keep_best, "min" or "max".
 */
int manta__writer_main(int conn, int rundir, char *const argv[]);

#endif
