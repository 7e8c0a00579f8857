/* SPDX-License-Identifier: Apache-2.0 */
#include "event/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

#define LOCK_FILE ".lock"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct manta__runlock *held; /* by this process, or by the one it was forked from */

// Is the directory in the list, put there by this process?
static bool held_here(dev_t dev, ino_t ino)
{
  for (struct manta__runlock *l = held; l; l = l->next)
    if (l->dev == dev && l->ino == ino && l->pid == getpid())
      return true;
  return false;
}

// Who stands in the way of a lock on fd: a pid, 0 for nobody, -1 if unknown (another pid
// namespace).
static pid_t holder_of(int fd)
{
  struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (fcntl(fd, F_GETLK, &f) < 0 || f.l_type == F_UNLCK)
    return 0;
  return f.l_pid > 0 ? f.l_pid : -1;
}

static manta_status lock_file(int fd, const char *path, manta_error *err)
{
  struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (fcntl(fd, F_SETLK, &f) == 0)
    return MANTA_OK;
  if (errno != EAGAIN && errno != EACCES) {
    manta__warn("cannot lock %s/" LOCK_FILE ": %m; continuing without a lock", path);
    return MANTA_OK;
  }
  pid_t pid = holder_of(fd);
  if (pid > 0)
    return manta_error_set(err, MANTA_ESTATE, "run %s is being written by another process (pid %d)",
                           path, (int)pid);
  return manta_error_set(err, MANTA_ESTATE, "run %s is being written by another process", path);
}

static manta_status take(struct manta__runlock *l, int dirfd, const char *path, manta_error *err)
{
  struct stat sb;
  if (fstat(dirfd, &sb) < 0)
    return manta_error_set(err, MANTA_EIO, "stat %s: %m", path);
  if (held_here(sb.st_dev, sb.st_ino))
    return manta_error_set(err, MANTA_ESTATE, "run %s is being written by this process already",
                           path);
  int fd = openat(dirfd, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    return manta_error_set(err, MANTA_EIO, "open %s/" LOCK_FILE ": %m", path);
  manta_status st = lock_file(fd, path, err);
  if (st < 0) {
    close(fd);
    return st;
  }
  *l = (struct manta__runlock){fd, getpid(), sb.st_dev, sb.st_ino, held};
  held = l;
  return MANTA_OK;
}

manta_status manta__runlock_take(struct manta__runlock *l, int dirfd, const char *path,
                                 manta_error *err)
{
  pthread_mutex_lock(&mutex);
  manta_status st = take(l, dirfd, path, err);
  pthread_mutex_unlock(&mutex);
  return st;
}

void manta__runlock_drop(struct manta__runlock *l)
{
  pthread_mutex_lock(&mutex);
  for (struct manta__runlock **at = &held; *at; at = &(*at)->next)
    if (*at == l) {
      *at = l->next;
      close(l->fd);
      break;
    }
  pthread_mutex_unlock(&mutex);
}

pid_t manta__runlock_holder(int dirfd)
{
  struct stat sb;
  if (fstat(dirfd, &sb) < 0)
    return 0;
  pid_t pid = 0;
  pthread_mutex_lock(&mutex);
  if (held_here(sb.st_dev, sb.st_ino)) {
    pid = getpid();
  } else {
    int fd = openat(dirfd, LOCK_FILE, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      pid = holder_of(fd);
      close(fd);
    }
  }
  pthread_mutex_unlock(&mutex);
  return pid;
}
