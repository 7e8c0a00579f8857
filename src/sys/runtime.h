/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/runtime.h - the one directory of this user for sockets and leases.
 *
 * $XDG_RUNTIME_DIR/manta if XDG_RUNTIME_DIR is an absolute path to a directory that we own, else
 * /tmp/manta-UID. /tmp is everybody's: whoever makes the directory first owns it, so owner and mode
 * are checked on the descriptor and a symbolic link is never followed.
 */
#ifndef MANTA_SYS_RUNTIME_H
#define MANTA_SYS_RUNTIME_H

#include <stddef.h>
#include <sys/types.h>

#include <manta/status.h>

/* Makes the directory (0700) if it is not there. *fd_out gets a descriptor (close it) and `path`
 * (may be NULL) its name. Use the descriptor: the name can be replaced under a caller's feet.
 * MANTA_EDENIED if it is somebody else's, a link, or open to others; the message says what to do.
 */
manta_status manta__runtime_dir(int *fd_out, char *path, size_t size, manta_error *err);

/* The same with everything given: `xdg` (may be NULL) for XDG_RUNTIME_DIR, `tmp` for /tmp, `uid`
 * for us. For tests. */
manta_status manta__runtime_dir_in(const char *xdg, const char *tmp, uid_t uid, int *fd_out,
                                   char *path, size_t size, manta_error *err);

#endif
