/* SPDX-License-Identifier: Apache-2.0
 *
 * train/newest.h - the newest snapshot in memory, which attempts of the run begin from.
 *
 * (1) A snapshot counts together with the rows that it stands for. One that was saved ahead of its
 *     report (manta_session_ahead) becomes void if its worker ends without making that report: who
 *     went on from it would never make it. It is neither loaded nor written then.
 * (2) With the driver's lock held, all of it.
 */
#ifndef MANTA_TRAIN_NEWEST_H
#define MANTA_TRAIN_NEWEST_H

#include <manta/trainer.h>

struct manta__msg;
struct manta__peer;
struct manta__snap_msg;

/* A snapshot has come. from: its worker, or NULL if that is gone. */
void manta__newest_take(manta_trainer *t, struct manta__msg *m, const struct manta__snap_msg *s,
                        const struct manta__peer *from);
/* Forgets it. */
void manta__newest_drop(manta_trainer *t);
/* A worker reports no more in this attempt. */
void manta__newest_settle(manta_trainer *t, const struct manta__peer *p);

#endif
