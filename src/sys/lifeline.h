/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/lifeline.h - a process that dies with its supervisor.
 *
 * A socketpair that carries no data. The supervisor keeps one end; the other belongs to the
 * supervised process, which the kernel sends SIGKILL the moment the first end is closed, be it by
 * death. (Not PR_SET_PDEATHSIG: that follows the parent thread, not the process.)
 */
#ifndef MANTA_SYS_LIFELINE_H
#define MANTA_SYS_LIFELINE_H

#include <manta/status.h>

/* end[0] for the supervisor, end[1] for the process. Both close-on-exec. */
manta_status manta__lifeline_create(int end[2], manta_error *err);
/* In the supervised process: from now on it dies when the other end closes; at once if it has. */
manta_status manta__lifeline_hang_on(int fd, manta_error *err);

#endif
