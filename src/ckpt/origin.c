/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/origin.h"

#include <errno.h>
#include <fcntl.h>

#include "ckpt/ckdir.h"
#include "sys/sock.h"

static const char *const names[MANTA__ORIGIN_FDS] = {MANTA__CKPT_MANIFEST, MANTA__CKPT_TENSORS,
                                                     MANTA__CKPT_VALUE};

// What is no file at all must not make us wait.
manta_status manta__origin_open(struct manta__origin *out, int dir, manta_error *err)
{
  struct manta__origin o = {0};
  for (; o.count < MANTA__ORIGIN_FDS; o.count++) {
    o.fd[o.count] = openat(dir, names[o.count], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (o.fd[o.count] < 0) {
      manta_status st = errno != ENOENT ? MANTA_EIO : o.count == 0 ? MANTA_ENOENT : MANTA_ECORRUPT;
      manta_error_set(err, st, "open %s: %m", names[o.count]);
      manta__origin_close(&o);
      return st;
    }
  }
  *out = o;
  return MANTA_OK;
}

manta_status manta__origin_dup(struct manta__origin *out, const struct manta__origin *from,
                               manta_error *err)
{
  struct manta__origin o = {.given = from->given, .memory = from->memory};
  for (; o.count < from->count; o.count++)
    if ((o.fd[o.count] = fcntl(from->fd[o.count], F_DUPFD_CLOEXEC, 0)) < 0) {
      manta_error_set(err, MANTA_EIO, "dup: %m");
      manta__origin_close(&o);
      return MANTA_EIO;
    }
  *out = o;
  return MANTA_OK;
}

void manta__origin_close(struct manta__origin *o)
{
  manta__fd_close_all(o->fd, o->count);
  *o = (struct manta__origin){0};
}

manta_status manta__origin_load(manta_checkpoint **out, const struct manta__origin *o, bool verify,
                                manta_error *err)
{
  if (o->count == 0)
    return manta_error_set(err, MANTA_ENOENT, "there is no checkpoint to begin from");
  manta_status st = o->count == 1 ? manta__checkpoint_from_fd(out, o->fd[0], verify, err)
                                  : manta__checkpoint_from_files(out, o->fd, verify, err);
  if (st == MANTA_OK)
    manta__checkpoint_mark(*out, o->given);
  return st;
}
