/* SPDX-License-Identifier: Apache-2.0
 *
 * train/random.c - the random states of this rank, which go with the checkpoints of the run.
 */
#include "train/session.h"

#define gate manta__session_gate

// In `save`.
static manta_status put(manta_session *s, const void *bytes, size_t len, manta_error *err)
{
  MANTA_TRY(manta__session_in_run(s, "save_random", err));
  if (len == 0 || len > MANTA_RANDOM_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "random states have 1 to %u bytes, not %zu",
                           MANTA_RANDOM_MAX, len);
  return manta__worker_put_random(s->job, manta_session_iteration(s), bytes, len, err);
}

manta_status manta_session_save_random(manta_session *s, const void *bytes, size_t len,
                                       manta_error *err)
{
  MANTA_TRY(manta__gate_enter(&gate, &gate.save, "save_random", err));
  manta_status st = put(s, bytes, len, err);
  manta__mutex_leave(&gate.save);
  return st;
}

manta_status manta_session_load_random(manta_session *s, void **bytes, size_t *len, int *owner,
                                       manta_error *err)
{
  *bytes = NULL;
  *len = 0;
  *owner = -1;
  MANTA_TRY(manta__gate_enter(&gate, &gate.save, "load_random", err));
  manta_status st = MANTA_OK;
  if (s->in_run && s->origin >= 0 && s->saves == 0)
    st = manta__worker_recall(s->job, s->origin, owner, bytes, len, err);
  manta__mutex_leave(&gate.save);
  return st;
}
