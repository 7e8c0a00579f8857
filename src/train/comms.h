/* SPDX-License-Identifier: Apache-2.0
 *
 * train/comms.h - the communicator of a job: what the collectives need of the runtime, and between
 * hosts the wire.
 */
#ifndef MANTA_TRAIN_COMMS_H
#define MANTA_TRAIN_COMMS_H

#include "comm/comm.h"
#include "comm/hosts/net.h"
#include "group/worker.h"
#include "sys/iface.h"

struct manta__comms {
  struct manta__job *job;
  manta_comm *comm; /* NULL: not asked for yet */
  /* Ends the attempt for this rank and takes part in the next one; given by the session. */
  manta_status (*rejoin)(void *session, manta_error *err);
  void *session;
  struct manta__span span;
  struct manta__wire wire;
  struct manta__iface face;  /* by which other hosts reach this one; no name: not looked for yet */
  struct manta__blobs blobs; /* what the ranks exchanged, while the wire is being made */
};

/* The communicator of all ranks, made when it is first asked for. On several hosts that waits for
 * all ranks to ask. Where it can't be made its calls say why. NULL: no memory. */
manta_comm *manta__comms_get(struct manta__comms *c);
/* By which the ranks of other hosts reach this one; with one host, the loopback. Borrowed. */
manta_status manta__comms_face(struct manta__comms *c, const struct manta__iface **out,
                               manta_error *err);
/* Whoever waits for this rank learns that it will not come. failed: at once; else what was sent is
 * seen to its end, for which the other hosts have to take it. */
void manta__comms_leave(struct manta__comms *c, bool failed);
/* The same for a process that ends now: frees nothing, waits for nobody. From any thread. */
void manta__comms_depart(struct manta__comms *c);

#endif
