/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/file.h"
#include "sys/pages.h"
#include "sys/sock.h"

manta_status manta__shm_create(const char *name, size_t bytes, int *fd_out, manta_error *err)
{
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0)
    return manta_error_set(err, MANTA_EIO, "memfd_create %s: %m", name);
  if (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
    manta_error_set(err, MANTA_EIO, "memfd %s of %zu bytes: %m", name, bytes);
    close(fd);
    return MANTA_EIO;
  }
  *fd_out = fd;
  return MANTA_OK;
}

int manta__shm_log(const char *name)
{
  int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd >= 0 && fcntl(fd, F_SETFL, O_APPEND) < 0)
    manta__fd_close(&fd);
  return fd;
}

static manta_status lacking(int fd, size_t bytes, manta_error *err)
{
  manta_status st = errno == ENOSPC || errno == ENOMEM ? MANTA_ENOMEM : MANTA_EIO;
  manta_error_set(err, st, "cannot allocate %zu bytes of shared memory: %m", bytes);
  close(fd);
  return st;
}

manta_status manta__shm_of(const char *name, const void *p, size_t bytes, int *fd_out,
                           manta_error *err)
{
  int fd = -1;
  MANTA_TRY(manta__shm_create(name, bytes, &fd, err));
  if (manta__write_all(fd, p, bytes, NULL) < 0)
    return lacking(fd, bytes, err);
  *fd_out = fd;
  return MANTA_OK;
}

manta_status manta__shm_from(const char *name, int fd, int *fd_out, manta_error *err)
{
  struct stat sb;
  off_t at = 0;
  int to = -1;
  if (fstat(fd, &sb) < 0 || !S_ISREG(sb.st_mode))
    return manta_error_set(err, MANTA_EINVAL, "the descriptor is not of a file or of memory");
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    to = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    *fd_out = to;
    return to < 0 ? manta_error_set(err, MANTA_EIO, "dup: %m") : MANTA_OK;
  }
  MANTA_TRY(manta__shm_create(name, (size_t)sb.st_size, &to, err));
  while (at < sb.st_size) {
    ssize_t n = sendfile(to, fd, &at, (size_t)(sb.st_size - at));
    if (n < 0 && errno != EINTR)
      return lacking(to, (size_t)sb.st_size, err);
    if (n == 0)
      break; // it became shorter: what is missing is zero
  }
  *fd_out = to;
  return MANTA_OK;
}

manta_status manta__shm_map(int fd, void **out, size_t *bytes_out, manta_error *err)
{
  struct stat sb;
  int seals = fcntl(fd, F_GET_SEALS);
  if (fstat(fd, &sb) < 0 || seals < 0 || !(seals & F_SEAL_SHRINK))
    return manta_error_set(err, MANTA_EPROTO, "not a sealed memory segment");
  void *p = manta__pages_map(fd, (size_t)sb.st_size, PROT_READ | PROT_WRITE, MAP_SHARED);
  if (p == MAP_FAILED)
    return manta_error_set(err, MANTA_ENOMEM, "map %lld bytes: %m", (long long)sb.st_size);
  *out = p;
  *bytes_out = (size_t)sb.st_size;
  return MANTA_OK;
}

void manta__shm_unmap(void *p, size_t bytes)
{
  if (p)
    munmap(p, bytes);
}

void manta__futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t by)
{
  struct timespec t, *limit = NULL;
  if (by != MANTA__NEVER) {
    int64_t left = by - manta__now();
    if (left <= 0)
      return;
    t = (struct timespec){left / 1000000000, left % 1000000000};
    limit = &t;
  }
  syscall(SYS_futex, word, FUTEX_WAIT, seen, limit, NULL, 0);
}

void manta__futex_wake(_Atomic uint32_t *word, int count)
{
  syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}
