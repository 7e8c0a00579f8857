/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/sock.h - Unix sockets that carry descriptors.
 */
#ifndef MANTA_SYS_SOCK_H
#define MANTA_SYS_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <manta/status.h>

#define MANTA__SOCK_MAX_FDS 16

/* A stream socketpair, close-on-exec, with roomy buffers. */
manta_status manta__sock_pair(int end[2], manta_error *err);
/* The same for messages that arrive whole. */
manta_status manta__sock_packets(int end[2], manta_error *err);
manta_status manta__fd_nonblock(int fd, bool on, manta_error *err);
/* Waits until fd is readable (or writable), at most until `by`. 1, 0 on time-out, -1 with errno. */
int manta__fd_wait(int fd, bool write, int64_t by);

/* sendmsg/recvmsg with at most MANTA__SOCK_MAX_FDS descriptors; never SIGPIPE, never EINTR. The
 * received ones are close-on-exec. Return what the system call returns, or -1 with EMFILE if
 * descriptors came and could not all be taken. *count_out: descriptors received. */
ssize_t manta__sock_send(int sock, const void *p, size_t n, const int *fds, int count);
ssize_t manta__sock_recv(int sock, void *p, size_t n, int *fds, int max, int *count_out);

/* Standard output and error go nowhere from now on: whoever reads them need not wait for our end.
 */
void manta__fd_mute(void);

/* A descriptor closed and forgotten: *fd becomes -1. Fine with -1. Keeps errno. */
void manta__fd_close(int *fd);
void manta__fd_close_all(int *fds, int count);

#endif
