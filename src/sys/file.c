/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

static struct {
  _Atomic int error;
  _Atomic int64_t bytes;
  _Atomic size_t max_write;
  _Atomic long fired;
} fault;

long manta__file_fault(int64_t bytes, int error, size_t max_write)
{
  atomic_store(&fault.bytes, bytes);
  atomic_store(&fault.max_write, max_write);
  atomic_store(&fault.error, error);
  return atomic_exchange(&fault.fired, 0);
}

// How much of an n-byte write may go through; -1 if the fault fires.
static ssize_t allowed(size_t n)
{
  size_t max = atomic_load_explicit(&fault.max_write, memory_order_relaxed);
  if (max && n > max)
    n = max;
  if (!atomic_load_explicit(&fault.error, memory_order_relaxed))
    return (ssize_t)n;
  int64_t left = atomic_load(&fault.bytes);
  if (left <= 0) {
    atomic_fetch_add(&fault.fired, 1);
    errno = atomic_load(&fault.error);
    return -1;
  }
  if ((int64_t)n > left)
    n = (size_t)left;
  atomic_fetch_sub(&fault.bytes, (int64_t)n);
  return (ssize_t)n;
}

int manta__write_all(int fd, const void *p, size_t n, size_t *done)
{
  size_t at = 0;
  int rc = 0;
  while (at < n) {
    ssize_t k = allowed(n - at);
    ssize_t w = k < 0 ? -1 : write(fd, (const char *)p + at, (size_t)k);
    if (w < 0 && errno == EINTR)
      continue;
    if (w == 0) // never seen of a file; it must not become an endless loop
      errno = EIO;
    if (w <= 0) {
      rc = -1;
      break;
    }
    at += (size_t)w;
  }
  if (done)
    *done = at;
  return rc;
}

manta_status manta__dir_makeat(int dirfd, const char *name, int *fd_out, manta_error *err)
{
  if (mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
    return manta_error_set(err, MANTA_EIO, "mkdir %s: %m", name);
  int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return manta_error_set(err, MANTA_EIO, "open directory %s: %m", name);
  *fd_out = fd;
  return MANTA_OK;
}

// Makes one directory of a path. What is there already is fine, also where mkdir may not even look
// (a read-only or foreign file system says EROFS or EACCES instead of EEXIST).
static int make_one(const char *path)
{
  struct stat sb;
  if (mkdir(path, 0700) == 0 || errno == EEXIST)
    return 0;
  int saved = errno;
  if (stat(path, &sb) == 0 && S_ISDIR(sb.st_mode))
    return 0;
  errno = saved;
  return -1;
}

manta_status manta__dir_make(const char *dir, int *fd_out, manta_error *err)
{
  char path[PATH_MAX];
  size_t n = strlen(dir);
  if (n == 0 || n >= sizeof path)
    return manta_error_set(err, MANTA_EINVAL, "directory name \"%s\" is empty or too long", dir);
  memcpy(path, dir, n + 1);
  for (size_t i = 1; i <= n; i++) {
    if (path[i] != '/' && path[i] != 0)
      continue;
    char c = path[i];
    path[i] = 0;
    if (make_one(path) < 0)
      return manta_error_set(err, MANTA_EIO, "mkdir %s: %m", path);
    path[i] = c;
  }
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return manta_error_set(err, MANTA_EIO, "open directory %s: %m", dir);
  *fd_out = fd;
  return MANTA_OK;
}

void manta__dir_path(int dirfd, char *path)
{
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
  ssize_t n = readlink(link, path, PATH_MAX - 1);
  if (n > 0)
    path[n] = 0;
  else
    memcpy(path, "?", 2);
}

// Reads up to n bytes; the number read, or -1.
static ssize_t read_full(int fd, char *p, size_t n)
{
  size_t at = 0;
  while (at < n) {
    ssize_t r = read(fd, p + at, n - at);
    if (r < 0 && errno == EINTR)
      continue;
    if (r < 0)
      return -1;
    if (r == 0)
      break;
    at += (size_t)r;
  }
  return (ssize_t)at;
}

manta_status manta__file_read(int dirfd, const char *name, size_t limit, char **out, size_t *len,
                              manta_error *err)
{
  manta_status st = MANTA_OK;
  int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a named pipe must not hang us
  if (fd < 0)
    return manta_error_set(err, errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "open %s: %m", name);
  struct stat sb;
  char *p = NULL;
  ssize_t n = 0;
  if (fstat(fd, &sb) < 0 || !S_ISREG(sb.st_mode))
    st = manta_error_set(err, MANTA_EIO, "%s is not a regular file", name);
  else if ((uint64_t)sb.st_size > limit)
    st = manta_error_set(err, MANTA_ETOOBIG, "%s has %lld bytes, the limit is %zu", name,
                         (long long)sb.st_size, limit);
  else if (!(p = manta__malloc((size_t)sb.st_size + 1)))
    st = manta_error_set(err, MANTA_ENOMEM, "no memory to read %s", name);
  else if ((n = read_full(fd, p, (size_t)sb.st_size)) < 0)
    st = manta_error_set(err, MANTA_EIO, "read %s: %m", name);
  close(fd);
  if (st < 0) {
    manta__free(p);
    return st;
  }
  p[n] = 0;
  *out = p;
  *len = (size_t)n;
  return MANTA_OK;
}

// A temp file that no other thread or process has; its name goes into temp.
static int open_temp(int dirfd, const char *name, char temp[NAME_MAX + 1])
{
  static _Atomic unsigned serial;
  for (int tries = 0; tries < 1000; tries++) {
    unsigned k = atomic_fetch_add(&serial, 1);
    if (snprintf(temp, NAME_MAX + 1, ".%s.%d.%u.tmp", name, (int)getpid(), k) > NAME_MAX) {
      errno = ENAMETOOLONG;
      return -1;
    }
    int fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST)
      return fd;
  }
  return -1;
}

static int fill_temp(int fd, const void *p, size_t n, bool sync)
{
  int rc = manta__write_all(fd, p, n, NULL);
  if (rc == 0 && sync)
    rc = fsync(fd);
  int saved = errno;
  close(fd);
  errno = saved;
  return rc;
}

static manta_status swap(int dirfd, const char *name, const void *p, size_t n, bool sync,
                         manta_error *err)
{
  char temp[NAME_MAX + 1];
  if (strchr(name, '/'))
    return manta_error_set(err, MANTA_EINVAL, "%s is a path, not a name", name);
  int fd = open_temp(dirfd, name, temp);
  if (fd < 0)
    return manta_error_set(err, MANTA_EIO, "create a temp file for %s: %m", name);
  int rc = fill_temp(fd, p, n, sync);
  if (rc == 0)
    rc = renameat(dirfd, temp, dirfd, name);
  if (rc == 0)
    return MANTA_OK;
  manta_error_set(err, MANTA_EIO, "write %s: %m", name);
  unlinkat(dirfd, temp, 0);
  return MANTA_EIO;
}

manta_status manta__file_swap(int dirfd, const char *name, const void *p, size_t n,
                              manta_error *err)
{
  return swap(dirfd, name, p, n, false, err);
}

manta_status manta__file_replace(int dirfd, const char *name, const void *p, size_t n,
                                 manta_error *err)
{
  MANTA_TRY(swap(dirfd, name, p, n, true, err));
  if (fsync(dirfd) < 0 && errno != EINVAL) // EINVAL: a file system whose directories need none
    return manta_error_set(err, MANTA_EIO, "sync the directory of %s: %m", name);
  return MANTA_OK;
}
