/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/runlist.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <manta/manta.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "sys/sock.h"

manta_status manta__runlist_open(struct manta__runlist *out, const char *dir, manta_error *err)
{
  *out = (struct manta__runlist){.fd = -1};
  manta_status st = dir ? ((out->dir = manta__strdup(dir)) ? MANTA_OK : MANTA_ENOMEM)
                        : manta__rundir_default(&out->dir, err);
  if (st < 0)
    return st == MANTA_ENOMEM ? manta_error_set(err, st, "no memory to list runs") : st;
  out->fd = open(out->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (out->fd < 0 && !(errno == ENOENT && !dir))
    st = manta_error_set(err, errno == ENOENT || errno == ENOTDIR ? MANTA_ENOENT : MANTA_EIO,
                         "open directory %s: %m", out->dir);
  if (st == MANTA_OK && out->fd >= 0)
    st = manta__rundir_list(out->dir, &out->paths, &out->count, err);
  if (st < 0)
    manta__runlist_close(out);
  return st;
}

void manta__runlist_close(struct manta__runlist *l)
{
  for (size_t i = 0; i < l->count; i++)
    manta_free(l->paths[i]);
  manta_free(l->paths);
  manta__free(l->dir);
  manta__fd_close(&l->fd);
  *l = (struct manta__runlist){.fd = -1};
}

manta_status manta__runlist_read(const struct manta__runlist *l, size_t i, struct manta__runref *r,
                                 struct manta__standing *s, manta_error *err)
{
  *r = MANTA__RUNREF_NONE;
  const char *name = strrchr(l->paths[i], '/') + 1;
  int fd = openat(l->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return manta_error_set(err, MANTA_ENOENT, "open directory %s: %m", l->paths[i]);
  if (!(r->path = manta__strdup(l->paths[i]))) {
    close(fd);
    return manta_error_set(err, MANTA_ENOMEM, "no memory to list runs");
  }
  r->fd = fd;
  r->name = strrchr(r->path, '/') + 1;
  manta_status st = manta__standing_read(s, r, err);
  if (st < 0)
    manta__runref_close(r);
  return st;
}

int64_t manta__standing_age(const struct manta__standing *s)
{
  int64_t age = manta__wall() - s->sum.end_ns;
  return strcmp(s->word, "running") == 0 || age < 0 ? 0 : age;
}
