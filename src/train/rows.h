/* SPDX-License-Identifier: Apache-2.0
 *
 * train/rows.h - rows from the rings into run.log and, aligned, into the run's queue.
 *
 * (1) A row is in the log before its ring is released, and before a callback sees it.
 * (2) A rank far ahead is left in its ring for a while: the slow one may only wait for a core.
 * (3) While the user does not take rows they stay in the rings, and then reports wait.
 * (4) With the driver's lock held, all of it.
 */
#ifndef MANTA_TRAIN_ROWS_H
#define MANTA_TRAIN_ROWS_H

#include <stdbool.h>

#include <manta/trainer.h>

struct manta__peer;

/* How to read a ring in which a rank is more than the window ahead of the slowest. */
enum manta__ahead {
  MANTA__HOLD,  /* leave its rows where they are: the slow rank may only be waiting for a core */
  MANTA__PUSH,  /* deliver older rows with gaps: the slow rank does not report */
  MANTA__IGNORE /* log them only: the attempt is about to be void */
};
/* Reads one worker's rows; the number. They are released by manta__rows_release. */
int manta__rows_read(manta_trainer *t, struct manta__peer *p, enum manta__ahead how);
/* Hands what was read to the log, then frees the rings and queues what is aligned. */
void manta__rows_release(manta_trainer *t);
/* Queues what is aligned for the user, and shows what alignment has to say. */
void manta__rows_queue(manta_run *r);
/* Reads and releases, for all workers; the number of rows. */
int manta__rows_drain(manta_trainer *t);
/* False: rows stay in their rings, because the user does not take them, or because it is not known
 * yet who has which rank. */
bool manta__rows_reading(const manta_trainer *t);

#endif
