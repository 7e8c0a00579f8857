/* SPDX-License-Identifier: Apache-2.0 */
#include "event/log_wake.h"

#include <limits.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sys/sock.h"

// Not in the kernel's header.
#define XFS_MAGIC 0x58465342
#define ZFS_MAGIC 0x2fc12fc1

// What writing, cutting, rolling over, ending and deleting a log does to its directory. Not what
// reading does: who looks for the writer's lock must not wake himself.
#define CHANGES                                                                                    \
  (IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE | IN_ONLYDIR)

// Whether the file system of an open directory tells of all changes to it.
static bool tells(int dirfd)
{
  static const long local[] = {EXT4_SUPER_MAGIC, XFS_MAGIC,   BTRFS_SUPER_MAGIC,
                               TMPFS_MAGIC,      RAMFS_MAGIC, OVERLAYFS_SUPER_MAGIC,
                               F2FS_SUPER_MAGIC, ZFS_MAGIC};
  struct statfs fs;
  if (fstatfs(dirfd, &fs) < 0)
    return false;
  for (size_t i = 0; i < sizeof local / sizeof *local; i++)
    if ((long)fs.f_type == local[i])
      return true;
  return false;
}

static int watch_dir(int dirfd)
{
  char path[64];
  if (!tells(dirfd))
    return -1;
  int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  snprintf(path, sizeof path, "/proc/self/fd/%d", dirfd);
  if (fd >= 0 && inotify_add_watch(fd, path, CHANGES) < 0)
    manta__fd_close(&fd);
  return fd;
}

static int add(const struct manta__log_wake *w, int fd, uint32_t events)
{
  struct epoll_event e = {.events = events};
  return epoll_ctl(w->fd, EPOLL_CTL_ADD, fd, &e);
}

static void set_timer(const struct manta__log_wake *w, long ms, long ns)
{
  struct timespec t = {ms / 1000, ms % 1000 * 1000000 + ns};
  timerfd_settime(w->timer, 0, &(struct itimerspec){.it_value = t}, NULL);
}

manta_status manta__log_wake_open(struct manta__log_wake *w, manta_error *err)
{
  *w = (struct manta__log_wake){.fd = epoll_create1(EPOLL_CLOEXEC), .timer = -1, .notify = -1};
  w->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (w->fd < 0 || w->timer < 0 || add(w, w->timer, EPOLLIN) < 0) {
    manta_error_set(err, MANTA_EIO, "wait for a log: %m");
    manta__log_wake_close(w);
    return MANTA_EIO;
  }
  manta__log_wake_arm(w, false);
  return MANTA_OK;
}

void manta__log_wake_watch(struct manta__log_wake *w, int dirfd)
{
  w->notify = watch_dir(dirfd); // of those there are few: without one it is polled
  if (w->notify >= 0 && add(w, w->notify, EPOLLIN) < 0)
    manta__fd_close(&w->notify);
  set_timer(w, 0, 1);
}

void manta__log_wake_close(struct manta__log_wake *w)
{
  manta__fd_close(&w->notify);
  manta__fd_close(&w->timer);
  manta__fd_close(&w->fd);
}

// Nothing is learned from what is read: that something happened is enough.
static void drain(int fd)
{
  char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
  while (fd >= 0 && read(fd, buf, sizeof buf) > 0)
    ;
}

void manta__log_wake_clear(struct manta__log_wake *w)
{
  drain(w->notify);
  drain(w->timer);
}

void manta__log_wake_arm(struct manta__log_wake *w, bool batch)
{
  bool watching = w->notify >= 0;
  long ms = !watching ? MANTA__WAKE_POLL_MS : batch ? MANTA__WAKE_BATCH_MS : MANTA__WAKE_IDLE_MS;
  set_timer(w, ms, 0);
  struct epoll_event e = {.events = batch ? 0 : EPOLLIN};
  if (watching)
    epoll_ctl(w->fd, EPOLL_CTL_MOD, w->notify, &e);
}
