/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DEPTH 64

static int open_dir(int parent, const char *name)
{
  return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Its entries, without moving the caller's descriptor.
static DIR *entries(int dirfd)
{
  int fd = open_dir(dirfd, ".");
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d && fd >= 0)
    close(fd);
  return d;
}

static struct dirent *next(DIR *d)
{
  struct dirent *e;
  errno = 0;
  do
    e = readdir(d);
  while (e && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")));
  return e;
}

// --- How large it is -----------------------------------------------------------------------------

static int64_t bytes_below(int dirfd, int depth)
{
  DIR *d = depth < MAX_DEPTH ? entries(dirfd) : NULL;
  int64_t sum = 0;
  struct stat sb;
  for (struct dirent *e; d && (e = next(d));) {
    if (fstatat(dirfd, e->d_name, &sb, AT_SYMLINK_NOFOLLOW) < 0)
      continue;
    sum += (int64_t)sb.st_blocks * 512;
    int sub = S_ISDIR(sb.st_mode) ? open_dir(dirfd, e->d_name) : -1;
    if (sub >= 0) {
      sum += bytes_below(sub, depth + 1);
      close(sub);
    }
  }
  if (d)
    closedir(d);
  return sum;
}

int64_t manta__tree_bytes(int dirfd)
{
  struct stat sb;
  int64_t own = fstat(dirfd, &sb) == 0 ? (int64_t)sb.st_blocks * 512 : 0;
  return own + bytes_below(dirfd, 0);
}

// --- To the disk ---------------------------------------------------------------------------------

static manta_status sync_below(int dirfd, int depth, manta_error *err);

static manta_status sync_entry(int dirfd, const char *name, int depth, manta_error *err)
{
  int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat sb;
  if (fd < 0 && (errno == ELOOP || errno == ENXIO || errno == ENOENT))
    return MANTA_OK;
  if (fd < 0 || fstat(fd, &sb) < 0) {
    manta_error_set(err, MANTA_EIO, "open %s: %m", name);
    if (fd >= 0)
      close(fd);
    return MANTA_EIO;
  }
  manta_status st = MANTA_OK;
  if (S_ISDIR(sb.st_mode))
    st = sync_below(fd, depth + 1, err);
  else if (S_ISREG(sb.st_mode) && fsync(fd) < 0)
    st = manta_error_set(err, MANTA_EIO, "sync %s: %m", name);
  close(fd);
  return st;
}

static manta_status sync_below(int dirfd, int depth, manta_error *err)
{
  if (depth >= MAX_DEPTH)
    return manta_error_set(err, MANTA_ETOOBIG, "directories are nested more than %d deep",
                           MAX_DEPTH);
  DIR *d = entries(dirfd);
  if (!d)
    return manta_error_set(err, MANTA_EIO, "read a directory: %m");
  manta_status st = MANTA_OK;
  for (struct dirent *e; st == MANTA_OK && (e = next(d));)
    st = sync_entry(dirfd, e->d_name, depth, err);
  closedir(d);
  if (st == MANTA_OK && fsync(dirfd) < 0)
    st = manta_error_set(err, MANTA_EIO, "sync a directory: %m");
  return st;
}

manta_status manta__tree_sync(int dirfd, manta_error *err)
{
  return sync_below(dirfd, 0, err);
}

// --- Its end -------------------------------------------------------------------------------------

static manta_status empty(int dirfd, bool (*keeps)(const char *), int depth, manta_error *err);

static manta_status remove_dir(int parent, const char *name, int depth, manta_error *err)
{
  struct stat above, here;
  int fd = open_dir(parent, name);
  if (fd < 0)
    return manta_error_set(err, MANTA_EIO, "open %s: %m", name);
  manta_status st = MANTA_OK;
  if (fstat(parent, &above) < 0 || fstat(fd, &here) < 0)
    st = manta_error_set(err, MANTA_EIO, "stat %s: %m", name);
  else if (above.st_dev != here.st_dev)
    st = manta_error_set(err, MANTA_EIO, "%s is on another file system", name);
  else
    st = empty(fd, NULL, depth, err);
  close(fd);
  if (st == MANTA_OK && unlinkat(parent, name, AT_REMOVEDIR) < 0)
    st = manta_error_set(err, MANTA_EIO, "remove directory %s: %m", name);
  return st;
}

static manta_status remove_entry(int dirfd, const char *name, int depth, manta_error *err)
{
  if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
    return MANTA_OK;
  if (errno == EISDIR)
    return remove_dir(dirfd, name, depth + 1, err);
  return manta_error_set(err, MANTA_EIO, "remove %s: %m", name);
}

// A stream over a directory that shrinks may miss entries: passes, until one finds nothing.
static manta_status empty(int dirfd, bool (*keeps)(const char *), int depth, manta_error *err)
{
  manta_status st = MANTA_OK;
  if (depth >= MAX_DEPTH)
    return manta_error_set(err, MANTA_ETOOBIG, "directories are nested more than %d deep",
                           MAX_DEPTH);
  DIR *d = entries(dirfd);
  if (!d)
    return manta_error_set(err, MANTA_EIO, "read a directory: %m");
  for (int found = 1; found > 0 && st == MANTA_OK; rewinddir(d)) {
    found = 0;
    for (struct dirent *e; st == MANTA_OK && (e = next(d));)
      if (!keeps || !keeps(e->d_name)) {
        st = remove_entry(dirfd, e->d_name, depth, err);
        found++;
      }
  }
  closedir(d);
  return st;
}

manta_status manta__tree_empty(int dirfd, bool (*keeps)(const char *name), manta_error *err)
{
  return empty(dirfd, keeps, 0, err);
}

manta_status manta__tree_remove(int parent, const char *name, manta_error *err)
{
  return remove_entry(parent, name, 0, err);
}

// --- Links ---------------------------------------------------------------------------------------

static bool link_all(int from, int to, int depth);

static bool link_dir(int parent, const char *name, int to, int depth)
{
  int from = open_dir(parent, name), made = -1;
  bool good = from >= 0 && mkdirat(to, name, 0777) == 0 && (made = open_dir(to, name)) >= 0 &&
              link_all(from, made, depth + 1);
  if (from >= 0)
    close(from);
  if (made >= 0)
    close(made);
  return good;
}

static bool link_all(int from, int to, int depth)
{
  DIR *d = entries(from);
  bool good = d && depth < MAX_DEPTH;
  for (struct dirent *e; good && (e = next(d));) {
    struct stat sb;
    good = fstatat(from, e->d_name, &sb, AT_SYMLINK_NOFOLLOW) == 0;
    if (good && S_ISDIR(sb.st_mode))
      good = link_dir(from, e->d_name, to, depth);
    else if (good && (S_ISREG(sb.st_mode) || S_ISLNK(sb.st_mode)))
      good = linkat(from, e->d_name, to, e->d_name, 0) == 0;
  }
  if (d)
    closedir(d);
  return good;
}

bool manta__tree_link(int parent, const char *name, int to)
{
  return link_dir(parent, name, to, 0);
}
