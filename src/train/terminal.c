/* SPDX-License-Identifier: Apache-2.0
 *
 * train/terminal.c - MANTA_PDB=RANK (`manta run --pdb RANK`): one rank of each run has the driver's
 * terminal as its standard input, output and error, so that a debugger or a question works there.
 *
 * The rank reads and writes the terminal itself: it is in a session without one, so that the kernel
 * does not count it as a background process. What a rank that died did to its settings is undone.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "group/proto.h"
#include "sys/sock.h"
#include "train/run.h"

static manta_status wanted_rank(int *rank, const char *text, int ranks, manta_error *err)
{
  char *end;
  errno = 0;
  long n = strtol(text, &end, 10);
  if (errno || end == text || *end || n < 0 || n >= MANTA_MAX_RANKS)
    return manta_error_set(err, MANTA_EINVAL, "MANTA_PDB is the number of a rank, not \"%s\"",
                           text);
  if (n >= ranks)
    return manta_error_set(err, MANTA_EINVAL, "MANTA_PDB=%ld: the run has ranks 0 to %d", n,
                           ranks - 1);
  *rank = (int)n;
  return MANTA_OK;
}

static bool far(const manta_trainer *t)
{
  for (int i = 0; i < t->hosts; i++)
    if (t->host[i].link->command)
      return true;
  return false;
}

manta_status manta__terminal_take(manta_run *r, manta_error *err)
{
  const char *text = getenv("MANTA_PDB");
  if (!text || !*text || r->exec || getenv(MANTA__MARK_ENV)) // a run of a worker's own has none
    return MANTA_OK;
  MANTA_TRY(wanted_rank(&r->tty.rank, text, r->membership.policy.want, err));
  if (far(r->trainer))
    return manta_error_set(err, MANTA_EINVAL,
                           "MANTA_PDB: a terminal can be given to ranks of this host only\n"
                           "hint: run on this host alone");
  r->tty.fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
  if (r->tty.fd < 0 || tcgetpgrp(r->tty.fd) != getpgrp())
    return manta_error_set(err, MANTA_ESTATE,
                           "MANTA_PDB=%s needs a terminal, and this process has none%s", text,
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
