/* SPDX-License-Identifier: Apache-2.0
 *
 * train/recall.h - random states of ranks, on the driver's side: agents that have no run directory
 * send them here, and every rank asks here for what it gave before. With the driver's lock held.
 */
#ifndef MANTA_TRAIN_RECALL_H
#define MANTA_TRAIN_RECALL_H

#include <manta/trainer.h>

struct manta__link;
struct manta__msg;

/* Messages of a rank of this attempt. */
void manta__recall_take(manta_run *r, const struct manta__msg *m);
void manta__recall_answer(manta_run *r, struct manta__link *n, const struct manta__msg *m);

#endif
