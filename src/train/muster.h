/* SPDX-License-Identifier: Apache-2.0
 *
 * train/muster.h - workers on several hosts: how many each has, and who gets which rank.
 *
 *   begin ──all hosts have answered their hello, or are not there──► each is asked for its share
 *         ──all have answered──► ranks are given out, blockwise, in the order of the hosts
 *
 * (1) The driver chooses the workers by name, so that it knows who takes part before any of them
 *     begins: a worker that dies meanwhile is a lost member, and nothing has to be taken back.
 * (2) A host that has less than its share leaves the rest to those that follow.
 * (3) A host that was lost is waited for a short while, one that was never there until its agent
 *     answers or gives up.
 * (4) A trainer musters for its run's next attempt, or to have workers ahead of a run. With the
 *     driver's lock held, all of it.
 */
#ifndef MANTA_TRAIN_MUSTER_H
#define MANTA_TRAIN_MUSTER_H

#include <stdint.h>

#include <manta/trainer.h>

struct manta__link;

struct manta__muster {
  enum { MANTA__MUSTER_NONE, MANTA__MUSTER_HELLO, MANTA__MUSTER_ASKED } phase;
  int64_t by;        /* lost hosts are not waited for any longer */
  manta_error error; /* of the first host that has nothing, and says why */
};

manta_status manta__muster_begin(manta_trainer *t, manta_error *err);
void manta__muster_end(manta_trainer *t);
/* Does what is due; returns when it must be called again. */
int64_t manta__muster_step(manta_trainer *t, int64_t now);
/* An agent's answer: the workers it has (NULL: none), or why it has none. */
void manta__muster_answer(manta_trainer *t, const struct manta__link *n, const manta_value *ready,
                          const manta_error *why);
void manta__muster_gone(manta_trainer *t, int64_t wid);
void manta__muster_link_lost(manta_trainer *t, const struct manta__link *n);
/* Starts lost agents again whose time has come. */
void manta__muster_tend(manta_trainer *t, int64_t now);
/* Workers that a host could have beyond those of the newest attempt. */
int manta__muster_spare(manta_trainer *t, int host, int want);

#endif
