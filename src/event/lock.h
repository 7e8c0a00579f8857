/* SPDX-License-Identifier: Apache-2.0
 *
 * event/lock.h - one writer per run directory.
 *
 * A POSIX lock (fcntl F_SETLK) on the file `.lock`, which nothing else opens. flock would be
 * inherited by every child that the user's program forks, and such a child would keep the run
 * locked after its driver was killed; a POSIX lock dies with the process that took it, and names
 * that process to others. Its weakness, that closing any descriptor of the file drops it, is why
 * the file is its own and why a second taker in the same process (which the kernel would let in) is
 * found in a list, before the file is touched.
 */
#ifndef MANTA_EVENT_LOCK_H
#define MANTA_EVENT_LOCK_H

#include <sys/types.h>

#include <manta/status.h>

struct manta__runlock {
  int fd;
  pid_t pid; /* that took it */
  dev_t dev; /* of the run directory */
  ino_t ino;
  struct manta__runlock *next;
};

/* MANTA_ESTATE if it is taken; `path` is for the message. *l stays in place until it is dropped. */
manta_status manta__runlock_take(struct manta__runlock *l, int dirfd, const char *path,
                                 manta_error *err);
void manta__runlock_drop(struct manta__runlock *l);

/* The process that writes this run's log: its pid, 0 if there is none, -1 if it cannot be told
 * which. */
pid_t manta__runlock_holder(int dirfd);

#endif
