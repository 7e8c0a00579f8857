/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/queue.c - which snapshot is written next. The rules are in queue.h.
 *
 * (1) If a snapshot waits, one is being written: both entries end by starting the oldest that
 *     waits.
 * (2) The snapshots are written in the order in which they came.
 * (3) Beside the newest, a slot is held only while it is written, or waits and is worth it; so a
 *     worker that finds none free gets one after at most two writes.
 */
#include "ckpt/queue.h"

void manta__snapq_init(struct manta__snapq *q)
{
  *q = (struct manta__snapq){.newest = -1, .writing = -1};
}

static void give_back(struct manta__snapq *q, int slot, struct manta__snapq_do *next)
{
  if (q->slot[slot].state == MANTA__Q_WAITING)
    next->dropped++;
  q->slot[slot] = (struct manta__snapq_slot){0};
  next->free |= 1u << slot;
}

// Starts the oldest that waits, if nothing is being written.
static void start_next(struct manta__snapq *q, struct manta__snapq_do *next)
{
  int oldest = -1;
  for (int i = 0; i < MANTA__SLOTS; i++)
    if (q->slot[i].state == MANTA__Q_WAITING &&
        (oldest < 0 || q->slot[i].order < q->slot[oldest].order))
      oldest = i;
  if (q->writing >= 0 || oldest < 0)
    return;
  q->slot[oldest].state = MANTA__Q_WRITING;
  q->writing = oldest;
  next->write = oldest;
}

// A snapshot other than the newest, which has just come.
static bool outlived(const struct manta__snapq_slot *s, enum manta__snapq_worth newest)
{
  if (s->state != MANTA__Q_WAITING)
    return s->state == MANTA__Q_WRITTEN;
  return s->worth == MANTA__Q_PASSING || (newest == MANTA__Q_BEST && s->worth != MANTA__Q_NEEDED);
}

struct manta__snapq_do manta__snapq_ready(struct manta__snapq *q, int slot,
                                          enum manta__snapq_worth worth)
{
  struct manta__snapq_do next = {.write = -1};
  if (slot < 0 || slot >= MANTA__SLOTS || q->slot[slot].state == MANTA__Q_WAITING ||
      q->slot[slot].state == MANTA__Q_WRITING)
    return next;
  q->slot[slot] =
      (struct manta__snapq_slot){.state = MANTA__Q_WAITING, .worth = worth, .order = q->orders++};
  q->newest = slot;
  for (int i = 0; i < MANTA__SLOTS; i++)
    if (i != slot && outlived(&q->slot[i], worth))
      give_back(q, i, &next);
  start_next(q, &next);
  return next;
}

struct manta__snapq_do manta__snapq_written(struct manta__snapq *q, int slot)
{
  struct manta__snapq_do next = {.write = -1};
  if (slot < 0 || slot != q->writing)
    return next;
  q->writing = -1;
  q->slot[slot].state = MANTA__Q_WRITTEN;
  if (slot != q->newest)
    give_back(q, slot, &next);
  start_next(q, &next);
  return next;
}

bool manta__snapq_busy(const struct manta__snapq *q)
{
  return q->writing >= 0;
}
