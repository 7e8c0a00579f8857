/* SPDX-License-Identifier: Apache-2.0
 *
 * group/place.h - what a job says about the process itself: environment, CPUs, threads, its mark.
 */
#ifndef MANTA_GROUP_PLACE_H
#define MANTA_GROUP_PLACE_H

#include "group/worker.h"

/* Writes the mark into the environment that the kernel shows; before `environment`. */
void manta__place_mark(const char *mark);
/* The driver's environment in place of ours; NULL: ours stays. */
void manta__place_environment(const manta_value *list);
/* torchrun's names, threads, GPUs and CPUs. */
void manta__place_take(const struct manta__job *job, const struct manta__job_msg *head);

#endif
