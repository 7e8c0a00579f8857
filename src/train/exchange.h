/* SPDX-License-Identifier: Apache-2.0
 *
 * train/exchange.h - what the ranks of an attempt tell each other through the driver: its side.
 *
 * (1) A round ends when every rank has given; then all get everything at once. If one leaves its
 *     function instead, those who wait are told.
 * (2) A round of agreement ends when every rank that is inside its function has voted: whoever
 *     dies or leaves is no longer waited for.
 * (3) With the driver's lock held, all of it.
 */
#ifndef MANTA_TRAIN_EXCHANGE_H
#define MANTA_TRAIN_EXCHANGE_H

#include <stdint.h>

#include <manta/trainer.h>

struct manta__msg;

struct manta__exchange {
  struct manta__voice *voice; /* by rank */
  int world;
  uint64_t exchanges, agreements; /* rounds that are over */
};

/* An attempt of `world` ranks begins, or there is none any more. */
manta_status manta__exchange_begin(struct manta__exchange *x, int world, manta_error *err);
void manta__exchange_end(struct manta__exchange *x);
/* A message of a rank of this attempt: bytes for all, a number to agree on. */
void manta__exchange_give(manta_run *r, const struct manta__msg *m);
void manta__exchange_vote(manta_run *r, const struct manta__msg *m);
/* Passes FETCH on to the host of rank 0, and the answer to that of the rank that asked. */
void manta__exchange_fetch(manta_run *r, const struct manta__msg *m);
/* A rank left its function. */
void manta__exchange_left(manta_run *r, int rank);
/* The members changed: those who wait may have all the votes now. */
void manta__exchange_settle(manta_run *r);

#endif
