/* SPDX-License-Identifier: Apache-2.0
 *
 * train/shard.h - a state of which every rank has a part.
 *
 *   others: size ──► rank 0: room for all, "go"
 *           description ──► one state of all, its slot is taken, "go"
 *           bytes of each tensor ──► straight into the slot, handed over, "done"
 *           part kept, for this rank to load
 *
 * A rank that gives up says so in the place of the next word: nobody waits for it.
 */
#ifndef MANTA_TRAIN_SHARD_H
#define MANTA_TRAIN_SHARD_H

#include <manta/comm.h>

/* On rank 0: saves the state of all; `fill` writes the tensors whose data is NULL. On the others,
 * when that is done: keeps the part of it that is theirs, which has the form of the whole, and no
 * tensors or values of other ranks; `fill` is NULL. */
typedef manta_status (*manta__shard_save_fn)(void *ctx, const manta_state *all, manta_fill_fn fill,
                                             void *fill_ctx, manta_error *err);

/* A collective of all ranks of `c`. */
manta_status manta__shard_save(manta_comm *c, const manta_state *mine, manta__shard_save_fn save,
                               void *ctx, manta_error *err);

#endif
