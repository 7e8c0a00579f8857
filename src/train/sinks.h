/* SPDX-License-Identifier: Apache-2.0
 *
 * train/sinks.h - the sinks of a run, from the driver: what it has, and the process they live in.
 *
 * Whatever goes wrong with them is a warning of the run.
 */
#ifndef MANTA_TRAIN_SINKS_H
#define MANTA_TRAIN_SINKS_H

#include <manta/trainer.h>

/* Those of the trainer and of the run, checked and put together. The user's thread, before the
 * run has a directory. */
manta_status manta__run_sinks_collect(manta_run *r, const manta_run_config *rc, manta_error *err);
/* Starts their process; before others know of the run. */
void manta__run_sinks_start(manta_run *r);
/* Looks after it, and ends the run when it was the last to be waited for. With the lock held;
 * returns when to look again. */
int64_t manta__run_sinks_step(manta_run *r, int64_t now);
/* The log is complete: the run is over when the sinks have it all, too. With the lock held. */
void manta__run_sinks_finish(manta_run *r);

#endif
