/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/logfile.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "sys/file.h"
#include "sys/sock.h"

static void name_of(char *buf, size_t size, int rank, const char *suffix)
{
  snprintf(buf, size, "rank-%d.log%s", rank, suffix);
}

void manta__logfile_close(struct manta__logfile *f)
{
  manta__fd_close(&f->fd);
  f->rank = -1;
}

static void open_it(struct manta__logfile *f, int dir, int rank)
{
  char name[64];
  name_of(name, sizeof name, rank, "");
  f->fd = openat(dir, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  f->rank = rank;
  f->size = f->fd >= 0 ? lseek(f->fd, 0, SEEK_END) : 0;
}

static void rotate(struct manta__logfile *f, int dir)
{
  char now[64], before[64];
  int rank = f->rank;
  name_of(now, sizeof now, rank, "");
  name_of(before, sizeof before, rank, ".1");
  manta__logfile_close(f);
  renameat(dir, now, dir, before);
  open_it(f, dir, rank);
}

bool manta__logfile_write(struct manta__logfile *f, int dir, int rank, int64_t limit, const void *p,
                          size_t n)
{
  if (f->rank != rank) {
    manta__logfile_close(f);
    open_it(f, dir, rank);
  }
  if (f->size + (int64_t)n > limit / 2 && f->size > 0)
    rotate(f, dir);
  if (f->fd < 0 || manta__write_all(f->fd, p, n, NULL) < 0)
    return false;
  f->size += (int64_t)n;
  return true;
}
