/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/queue.h - which snapshot is written next, which is dropped, which slot is free again.
 *
 * A pure state machine, run by the agent; it touches no slot itself but says what to do.
 * (1) A write that has begun always finishes.
 * (2) A snapshot that waits is dropped when a newer one arrives, unless it is worth being written
 *     nevertheless; the newest is never dropped.
 * (3) The newest snapshot's slot is never freed, written or not: it serves restores.
 */
#ifndef MANTA_CKPT_QUEUE_H
#define MANTA_CKPT_QUEUE_H

#include <stdbool.h>

#include "ckpt/slot.h"

enum manta__snapq_worth {
  MANTA__Q_PASSING, /* a newer one is as good */
  MANTA__Q_SCORED,  /* retention would keep it for its score */
  MANTA__Q_BEST,    /* and no other for its score: those that wait for theirs are dropped */
  MANTA__Q_NEEDED   /* it is written whatever comes */
};

struct manta__snapq {
  struct manta__snapq_slot {
    enum { MANTA__Q_NONE, MANTA__Q_WAITING, MANTA__Q_WRITING, MANTA__Q_WRITTEN } state;
    enum manta__snapq_worth worth;
    uint64_t order;
  } slot[MANTA__SLOTS];
  uint64_t orders;
  int newest;  /* index, or -1 */
  int writing; /* index, or -1 */
};

/* What to do now. Each is a bit mask of slots; at most one of write. */
struct manta__snapq_do {
  int write;     /* start writing this slot, or -1 */
  unsigned free; /* give these back to the worker */
  int dropped;   /* how many of them were never written */
};

void manta__snapq_init(struct manta__snapq *q);
/* A slot has a new snapshot. The slot must be one that was given back, or the newest if it is
 * written and was RETIRED (its worker replaces it then): so a slot that is handed out for loading
 * before it is written is moved to RETIRED only once it is. A slot that waits or is being written
 * is ignored. */
struct manta__snapq_do manta__snapq_ready(struct manta__snapq *q, int slot,
                                          enum manta__snapq_worth worth);
/* A write ended, well or not (a failed newest is not tried again by itself). */
struct manta__snapq_do manta__snapq_written(struct manta__snapq *q, int slot);
/* True while a snapshot is being written or waits to be. */
bool manta__snapq_busy(const struct manta__snapq *q);

#endif
