/* SPDX-License-Identifier: Apache-2.0
 *
 * group/writer.h - the process that makes snapshots durable, one after the other.
 *
 * A child of the agent that outlives it: a write that has begun always finishes. It is the only one
 * that touches checkpoints/; a second one (after a lost agent) waits for the first.
 */
#ifndef MANTA_GROUP_WRITER_H
#define MANTA_GROUP_WRITER_H

/* conn: to the agent; rundir: the run directory. argv: name, keep_last, keep_best, "min" or "max".
 */
int manta__writer_main(int conn, int rundir, char *const argv[]);

#endif
