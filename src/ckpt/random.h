/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/random.h - the states of the ranks' random number generators that belong to a checkpoint.
 *
 * checkpoints/random_ITERATION[-ATTEMPT]/rank-R: a directory beside the checkpoint, since ranks
 * give their states at their own save, which may be before or after rank 0's. It goes with it: the
 * store removes it, and the uploader sends it, as it does with the checkpoint.
 * (1) A file is there whole or not at all; what a power cut left of it is not believed.
 * (2) Of one iteration the newest attempt counts: the one before went back to an earlier one.
 */
#ifndef MANTA_CKPT_RANDOM_H
#define MANTA_CKPT_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#define MANTA__CKPT_RANDOM "random_"

/* "random_000012", and "-ATTEMPT" behind it in all attempts but the first. False: it is not such a
 * name. */
void manta__random_name(char out[48], uint32_t attempt, int64_t iteration);
bool manta__random_parse(const char *name, uint32_t *attempt, int64_t *iteration);

/* Not synced: the writer does that with the checkpoint. */
manta_status manta__random_put(int rundir, uint32_t attempt, int64_t iteration, int rank,
                               const void *bytes, size_t len, manta_error *err);
/* What the rank gave at this iteration, in an attempt before `attempt`, or else what rank 0 gave;
 * manta_free it. Gives whose it is, -1: there is none. */
int manta__random_get(int rundir, uint32_t attempt, int64_t iteration, int rank, void **bytes,
                      size_t *len);

#endif
