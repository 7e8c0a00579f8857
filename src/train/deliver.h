/* SPDX-License-Identifier: Apache-2.0
 *
 * train/deliver.h - rows, output and callbacks, on the thread inside run or next and nowhere else.
 *
 * (1) User code runs without the driver's lock.
 * (2) A callback that fails is a warning; training goes on.
 */
#ifndef MANTA_TRAIN_DELIVER_H
#define MANTA_TRAIN_DELIVER_H

#include <manta/trainer.h>

/* Shows what the run has to say. With the lock held, which is dropped for the while. */
void manta__deliver_texts(manta_run *r);
/* Gives out the first iteration of r->batch, which is not empty: 1, or negative. */
int manta__deliver_rows(manta_run *r, manta_rows *out, manta_error *err);
/* The end of a run that is over: 0, or its error. */
int manta__deliver_end(manta_run *r, manta_error *err);
void manta__call_start(manta_run *r);
void manta__call_finish(manta_run *r); /* once */
void manta__deliver_free(manta_run *r);

#endif
