/* SPDX-License-Identifier: Apache-2.0 */
#include "train/terminal.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/knob.h"
#include "group/proto.h"
#include "sys/sock.h"
#include "train/run.h"
#include "train/trainer.h"

static bool far(const manta_trainer *t)
{
  for (int i = 0; i < t->hosts; i++)
    if (manta__link_remote(t->host[i].link))
      return true;
  return false;
}

manta_status manta__terminal_take(manta_run *r, manta_error *err)
{
  int64_t rank;
  int ranks = r->membership.policy.want;
  bool nested = manta__knob_is_set(MANTA__KNOB_WORKER); // a run of a worker's own has none
  if (r->exec || nested || !manta__knob_whole(MANTA__KNOB_PDB, &rank))
    return MANTA_OK;
  if (rank >= ranks)
    return manta_error_set(err, MANTA_EINVAL, "MANTA_PDB=%d: the run has ranks 0 to %d", (int)rank,
                           ranks - 1);
  r->tty.rank = (int)rank;
  if (far(r->trainer))
    return manta_error_set(err, MANTA_EINVAL,
                           "MANTA_PDB: a terminal can be given to ranks of this host only\n"
                           "hint: run on this host alone");
  r->tty.fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
  if (r->tty.fd < 0 || tcgetpgrp(r->tty.fd) != getpgrp())
    return manta_error_set(err, MANTA_ESTATE,
                           "MANTA_PDB=%d needs a terminal, and this process has none%s", (int)rank,
                           r->tty.fd < 0 ? "" : " while it is in the background");
  r->tty.saved = tcgetattr(r->tty.fd, &r->tty.before) == 0;
  r->moves = false; // the cursor is the rank's
  return MANTA_OK;
}

void manta__terminal_leave(manta_run *r)
{
  if (r->tty.fd >= 0 && r->tty.saved && tcgetpgrp(r->tty.fd) == getpgrp())
    tcsetattr(r->tty.fd, TCSANOW, &r->tty.before);
  manta__fd_close(&r->tty.fd);
}
