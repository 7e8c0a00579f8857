/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/lifeline.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

manta_status manta__lifeline_create(int end[2], manta_error *err)
{
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end) < 0)
    return manta_error_set(err, MANTA_EIO, "socketpair: %m");
  return MANTA_OK;
}

manta_status manta__lifeline_hang_on(int fd, manta_error *err)
{
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETOWN, getpid()) < 0 || fcntl(fd, F_SETSIG, SIGKILL) < 0 ||
      fcntl(fd, F_SETFL, flags | O_ASYNC) < 0)
    return manta_error_set(err, MANTA_EIO, "lifeline: %m");
  // The supervisor may have died before the signal was armed.
  struct pollfd p = {.fd = fd, .events = POLLIN};
  if (poll(&p, 1, 0) > 0)
    raise(SIGKILL);
  return MANTA_OK;
}
