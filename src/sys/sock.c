/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"

manta_status manta__sock_pair(int end[2], manta_error *err)
{
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) < 0)
    return manta_error_set(err, MANTA_EIO, "socketpair: %m");
  return MANTA_OK;
}

manta_status manta__sock_packets(int end[2], manta_error *err)
{
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, end) < 0)
    return manta_error_set(err, MANTA_EIO, "socketpair: %m");
  return MANTA_OK;
}

manta_status manta__fd_nonblock(int fd, bool on, manta_error *err)
{
  int flags = fcntl(fd, F_GETFL);
  int want = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
  if (flags < 0 || (want != flags && fcntl(fd, F_SETFL, want) < 0))
    return manta_error_set(err, MANTA_EIO, "fcntl: %m");
  return MANTA_OK;
}

int manta__fd_wait(int fd, bool write, int64_t by)
{
  struct pollfd p = {.fd = fd, .events = write ? POLLOUT : POLLIN};
  for (;;) {
    int rc = poll(&p, 1, manta__left_ms(by));
    if (rc >= 0 || errno != EINTR)
      return rc;
  }
}

union control {
  struct cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int) * MANTA__SOCK_MAX_FDS)];
};

ssize_t manta__sock_send(int sock, const void *p, size_t n, const int *fds, int count)
{
  union control ctl;
  struct iovec io = {(void *)p, n};
  struct msghdr h = {.msg_iov = &io, .msg_iovlen = 1};
  if (count > MANTA__SOCK_MAX_FDS) {
    errno = EINVAL;
    return -1;
  }
  if (count > 0) {
    memset(&ctl, 0, sizeof ctl);
    h.msg_control = ctl.bytes;
    h.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)count);
  }
  ssize_t rc;
  do
    rc = sendmsg(sock, &h, MSG_NOSIGNAL);
  while (rc < 0 && errno == EINTR);
  return rc;
}

ssize_t manta__sock_recv(int sock, void *p, size_t n, int *fds, int max, int *count_out)
{
  union control ctl;
  struct iovec io = {p, n};
  struct msghdr h = {.msg_iov = &io,
                     .msg_iovlen = 1,
                     .msg_control = ctl.bytes,
                     .msg_controllen = sizeof ctl.bytes};
  ssize_t rc;
  do
    rc = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
  while (rc < 0 && errno == EINTR);
  *count_out = 0;
  bool lost = rc >= 0 && (h.msg_flags & MSG_CTRUNC);
  for (struct cmsghdr *c = rc < 0 ? NULL : CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
      continue;
    int got = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    for (int i = 0; i < got; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + sizeof(int) * (size_t)i, sizeof fd);
      if (*count_out < max)
        fds[(*count_out)++] = fd;
      else
        lost |= close(fd) == 0;
    }
  }
  if (lost) { // by a limit of ours or of the process: which ones are left, nobody could tell
    manta__fd_close_all(fds, *count_out);
    *count_out = 0;
    errno = EMFILE;
    return -1;
  }
  return rc;
}

void manta__fd_mute(void)
{
  int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null < 0)
    return;
  dup2(null, STDOUT_FILENO);
  dup2(null, STDERR_FILENO);
  close(null);
}

void manta__fd_close(int *fd)
{
  int saved = errno;
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
  errno = saved;
}

void manta__fd_close_all(int *fds, int count)
{
  for (int i = 0; i < count; i++)
    manta__fd_close(&fds[i]);
}
