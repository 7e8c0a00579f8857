/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// A relative XDG_RUNTIME_DIR is invalid by its specification; after su or sudo it is the other
// user's.
static bool xdg_is_ours(const char *xdg, uid_t uid)
{
  struct stat sb;
  return xdg && xdg[0] == '/' && stat(xdg, &sb) == 0 && S_ISDIR(sb.st_mode) && sb.st_uid == uid;
}

// Judged on the descriptor, so that nobody can swap the directory between the look and the use.
static manta_status check_ours(int fd, const char *path, uid_t uid, manta_error *err)
{
  struct stat sb;
  if (fstat(fd, &sb) < 0)
    return manta_error_set(err, MANTA_EIO, "stat %s: %m", path);
  if (sb.st_uid != uid)
    return manta_error_set(
        err, MANTA_EDENIED,
        "%s belongs to user %u, not to this user (%u)\n"
        "hint: have it removed, or set XDG_RUNTIME_DIR to a directory of your own",
        path, (unsigned)sb.st_uid, (unsigned)uid);
  if (sb.st_mode & 077)
    return manta_error_set(err, MANTA_EDENIED,
                           "%s is open to other users (mode %04o)\n"
                           "hint: look at what is in it, then: chmod 700 %s",
                           path, (unsigned)(sb.st_mode & 07777), path);
  return MANTA_OK;
}

static manta_status open_dir(const char *path, uid_t uid, int *fd_out, manta_error *err)
{
  if (mkdir(path, 0700) < 0 && errno != EEXIST)
    return manta_error_set(err, errno == EACCES ? MANTA_EDENIED : MANTA_EIO, "mkdir %s: %m", path);
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
    return manta_error_set(err, MANTA_EDENIED,
                           "%s is a symbolic link or not a directory\n"
                           "hint: remove it, or set XDG_RUNTIME_DIR to a directory of your own",
                           path);
  if (fd < 0)
    return manta_error_set(err, errno == EACCES ? MANTA_EDENIED : MANTA_EIO,
                           "open directory %s: %m", path);
  manta_status st = check_ours(fd, path, uid, err);
  if (st < 0) {
    close(fd);
    return st;
  }
  *fd_out = fd;
  return MANTA_OK;
}

manta_status manta__runtime_dir_in(const char *xdg, const char *tmp, uid_t uid, int *fd_out,
                                   char *path, size_t size, manta_error *err)
{
  char name[PATH_MAX];
  int n = xdg_is_ours(xdg, uid) ? snprintf(name, sizeof name, "%s/manta", xdg)
                                : snprintf(name, sizeof name, "%s/manta-%u", tmp, (unsigned)uid);
  if (n < 0 || (size_t)n >= sizeof name || (path && (size_t)n >= size))
    return manta_error_set(err, MANTA_ETOOBIG, "the name of the runtime directory is too long");
  MANTA_TRY(open_dir(name, uid, fd_out, err));
  if (path)
    memcpy(path, name, (size_t)n + 1);
  return MANTA_OK;
}

manta_status manta__runtime_dir(int *fd_out, char *path, size_t size, manta_error *err)
{
  return manta__runtime_dir_in(getenv("XDG_RUNTIME_DIR"), "/tmp", geteuid(), fd_out, path, size,
                               err);
}
