/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/child.h - a program of the user's, run as a child: the common part of `run` and `resume`.
 */
#ifndef MANTA_CMD_CHILD_H
#define MANTA_CMD_CHILD_H

#include <manta/status.h>

/* Sets what the program's libmanta needs to find this command: MANTA_BIN, unless it is set. */
manta_status manta__child_prepare(manta_error *err);

/* Runs the program (looked up in PATH if `path` has no slash) and waits for its end. Gives the exit
 * code: the program's own, or 128 plus the signal that ended it. A SIGTERM is passed on as a notice
 * to its runs; a second one, or MANTA_GRACE seconds (30), kills it. A SIGINT is the terminal's, who
 * sends it to the program as well. */
int manta__child_run(const char *path, char *const argv[]);

#endif
