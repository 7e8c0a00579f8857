/* SPDX-License-Identifier: Apache-2.0
 *
 * train/form.h - attempts of a run: what they begin from, who is asked for workers, growing back.
 *
 * (1) An attempt begins from the newest checkpoint: in memory, else on disk, else the one that the
 *     user named.
 * (2) An attempt that finds no room, or cannot be formed, is told to the membership, which decides
 *     what follows; nothing here tries again by itself.
 * (3) With the driver's lock held, all of it.
 *
 * A trainer on one host sends its agent everything at once, and is told who takes part. One on
 * several hosts has to know first how many workers each of them has: train/muster.h.
 */
#ifndef MANTA_TRAIN_FORM_H
#define MANTA_TRAIN_FORM_H

#include <stdint.h>

#include <manta/trainer.h>

#include "ckpt/origin.h"
#include "group/proto.h"

struct manta__link;
struct manta__msg;
struct manta__trainer_host;

void manta__run_begin(manta_run *r, uint32_t attempt);
/* Begins an attempt. */
void manta__form(manta_run *r);
/* Asks for workers ahead of a run. */
manta_status manta__run_spawn(manta_trainer *t, manta_error *err);
/* An order for workers of this trainer, from which it borrows. */
struct manta__order manta__form_order(const manta_trainer *t, uint64_t key, int count, int min);
/* The attempt ends: the workers it was in are ended, and successors forked for the next attempt or
 * the next run. */
void manta__form_renew(manta_run *r);
/* Tells an agent of the run, once. */
manta_status manta__form_announce(manta_run *r, struct manta__trainer_host *p, manta_error *err);
/* What the attempt begins from, opened: close it. */
void manta__form_checkpoint(manta_run *r, struct manta__origin *out);
/* Sends ATTEMPT: *a has the order, and what belongs to several hosts. */
manta_status manta__form_send(manta_run *r, struct manta__trainer_host *p,
                              struct manta__attempt_msg *a, const struct manta__origin *from,
                              manta_error *err);
/* All are known that take part: t->wids. */
void manta__form_done(manta_run *r, int world, int64_t now);
void manta__form_noroom(manta_run *r, const manta_error *why, int64_t now);
void manta__form_on_formed(manta_trainer *t, struct manta__link *n, struct manta__msg *m,
                           const struct manta__formed_msg *in, int64_t now);
void manta__form_on_noroom(manta_trainer *t, struct manta__link *n,
                           const struct manta__noroom_msg *in, int64_t now);
/* Asks for room for a run that is too small; returns when to do so again. */
int64_t manta__form_probe(manta_run *r, int64_t now);

#endif
