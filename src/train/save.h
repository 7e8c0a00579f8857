/* SPDX-License-Identifier: Apache-2.0
 *
 * train/save.h - the snapshots of a session: slots in shared memory that it saves into, and what it
 * loads. save.c writes them, load.c gives them back.
 *
 * (1) Slots outlive the session: the next attempt in this process finds them warm.
 * (2) Rank 0's state is the checkpoint; the agent and the writer read it from its slots. Another
 *     rank that saves a part of it keeps that part in a slot of its own, which nobody else sees.
 * (3) All of it happens inside of the gate `save` (train/gate.h): one call at a time.
 */
#ifndef MANTA_TRAIN_SAVE_H
#define MANTA_TRAIN_SAVE_H

#include "ckpt/slot.h"
#include "train/session.h"

struct manta__saves {
  struct manta__slots slots; /* rank 0's */
  struct manta__slots own;   /* one: this rank's part of what rank 0 saved last */
  bool ready;
};
extern struct manta__saves manta__saved;

/* Makes the slots, once; `warm`: those that came from a process before this one are touched. */
void manta__save_ready(bool warm);
/* A slot of the process whose successor this one is; takes the descriptor. */
void manta__save_take_slot(int index, int fd);
void manta__save_end(void);
/* What the attempt began from is needed no longer: there is something newer. */
void manta__save_let_go(manta_session *s);

#endif
