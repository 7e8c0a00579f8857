/* SPDX-License-Identifier: Apache-2.0
 *
 * data/loader/feed.h - threads that parse the blocks of a data set ahead of their use.
 *
 * (1) Blocks come in the order of their epochs, batch after batch, whichever thread is ready first.
 *     A failure comes where the rows would have come.
 * (2) A ticket is the number of a block in that order, over all passes: ticket t is the block that
 *     is number t % blocks in pass t / blocks.
 * (3) What was parsed and is still held has at most `room` bytes, over all feeds of the data set.
 *     Only the thread whose ticket is next may go beyond, by one batch at a time, if nothing of it
 *     is waiting: it is what all wait for.
 */
#ifndef MANTA_DATA_LOADER_FEED_H
#define MANTA_DATA_LOADER_FEED_H

#include "data/order/order.h"
#include "data/plan/dataset.h"

struct manta__feed;

struct manta__feed_config {
  manta_dataset *dataset; /* prepared; borrowed */
  int64_t epoch;          /* of pass 0 */
  int64_t passes;         /* 0: without end */
  int64_t ticket;         /* that it begins with */
  int threads;
  size_t room;
  size_t limit; /* with what stays for other feeds and epochs (loader/cache.h) */
};

/* A batch that a feed gives. */
struct manta__fed {
  manta_batch *batch; /* the receiver's */
  int64_t ticket;
  size_t bytes; /* that count until manta__feed_drop */
};

struct manta__feed_times {
  int64_t parse, idle; /* nanoseconds of all threads */
  int64_t bytes_max;
};

manta_status manta__feed_open(struct manta__feed **out, const struct manta__feed_config *c,
                              manta_error *err);
/* Waits for its threads. NULL is fine. */
void manta__feed_close(struct manta__feed *f);
/* 1 and the next batch, which may have no rows; 0 at the end of the last pass. After a failure the
 * feed is only closed. */
manta_status manta__feed_next(struct manta__feed *f, struct manta__fed *out, manta_error *err);
/* So many bytes are held no longer. */
void manta__feed_drop(struct manta__feed *f, size_t bytes);
/* Adds what its threads did to `to`. */
void manta__feed_add_times(struct manta__feed *f, struct manta__feed_times *to);

#endif
