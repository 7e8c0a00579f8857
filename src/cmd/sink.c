/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/sink.c - `manta sink`: what the sinks of a run have not got yet, from its log.
 */
#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/runref.h"
#include "sink/process.h"

int manta__cmd_sink(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__runref r = MANTA__RUNREF_NONE;
  manta_status st = manta__runref_open(&r, a->operand[0], &err);
  if (st == MANTA_OK)
    st = manta__sink_replay(r.fd, manta__args_get(a, "kind"), &err);
  if (st == MANTA_ENOENT && r.fd >= 0)
    manta_error_set(&err, st, "the run %s has no sinks", r.name);
  manta__runref_close(&r);
  return st < 0 ? manta__complain(&err) : MANTA__EXIT_OK;
}
