/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/reader.h - the process that parses data for the workers of a run on this host.
 *
 * A child of the agent, which connects workers with it (data/share/share.h) and does not see what
 * they say. It has a thread for each connection, and lives from the first that is asked for to the
 * end of the run: parsed blocks outlive an attempt. It dies with the agent, by its lifeline.
 */
#ifndef MANTA_AGENT_READER_H
#define MANTA_AGENT_READER_H

#include <sys/types.h>

#include <manta/status.h>

/* Starts one, in the command's own binary; *sock speaks with it, and closing *lifeline kills it. */
manta_status manta__reader_start(int *sock, int *lifeline, pid_t *pid, manta_error *err);

int manta__reader_main(int conn, int lifeline);

#endif
