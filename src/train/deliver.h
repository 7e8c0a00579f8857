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

void manta__call_start(manta_run *r);
void manta__call_finish(manta_run *r); /* once */
void manta__deliver_free(manta_run *r);

#endif
