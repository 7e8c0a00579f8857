/* SPDX-License-Identifier: Apache-2.0
 *
 * train/leave.c - a rank that ends its process inside of its train function, and means no harm.
 */
#include <manta/embed.h>

#include "train/comms.h"
#include "train/session.h"

bool manta_leave(void)
{
  manta_session *s = manta_session_current();
  struct manta__job *job = s ? manta__session_job(s) : NULL;
  if (!job || job->worker->dead || job->over)
    return false;
  manta__comms_depart(manta__session_comms(s));
  manta__worker_leave(job);
}

int manta_session_departed(manta_session *s)
{
  struct manta__comms *c = manta__session_comms(s);
  if (!c->comm && c->job->hosts > 1) // to make it would wait for all ranks
    return -1;
  return manta__comm_departed(manta__comms_get(c));
}
