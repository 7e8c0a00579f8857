/* SPDX-License-Identifier: Apache-2.0
 *
 * data/loader/flow.h - the rows of a data set in the order of their epochs, from any position on.
 *
 * (1) Rows come in segments: what a window of the shuffle holds or, where rows are not mixed, a
 *     batch. A segment has the rows that passed all filters, and knows for how many rows of the
 *     files it stands.
 * (2) The number of a row in the order counts rows of the files, in its pass, before filters. The
 *     last window of a pass is smaller; how much is known when the pass has been read.
 * (3) A position with the block that its window begins in is found without reading what lies in
 *     front of it; without that, or with an earlier block, it is found by reading.
 * (4) A step can make several rows of one. They have its number, come one after the other, and a
 *     position can lie between them.
 */
#ifndef MANTA_DATA_LOADER_FLOW_H
#define MANTA_DATA_LOADER_FLOW_H

#include "data/loader/feed.h"

struct manta__position {
  int64_t pass;
  int64_t rows;   /* of the files, that were handed out or left out in this pass */
  int64_t inside; /* and of what a step made of the next one, so many */
  /* A block in front of it, or in which it lies: the how manieth of the pass, and how many rows of
   * the files are in front of that. */
  int64_t ticket, before;
  int64_t taken; /* rows that were handed out in all passes */
};

struct manta__segment_part {
  manta_batch *batch;
  int64_t base; /* row number n of its block is row base + n of the pass, as read */
};

struct manta__segment {
  struct manta__segment *next;
  struct manta__segment_part *part;
  int parts, cap;
  int64_t rows, used;
  uint32_t *which, *row; /* in order: the part, and the row in it; NULL: as they are in part 0 */
  uint32_t *place;       /* in order: the number, from `first` on; NULL: as they were read */
  int64_t pass, first, end;
  int64_t ticket[2], before[2]; /* the first and the last block that it has rows of */
  size_t bytes;
};

/* Behind the first `used` rows. */
struct manta__position manta__segment_position(const struct manta__segment *s);

struct manta__flow;

struct manta__flow_config {
  manta_dataset *dataset; /* prepared; borrowed */
  int64_t epoch;          /* of pass 0 */
  int64_t passes;         /* 0: without end */
  struct manta__position from;
  int threads;
  size_t memory_limit;
};

manta_status manta__flow_open(struct manta__flow **out, const struct manta__flow_config *c,
                              manta_error *err);
void manta__flow_close(struct manta__flow *f); /* NULL is fine; drop its segments first */
/* 1 and a segment with rows that are not used; 0 at the end. MANTA_ETOOBIG: a window is larger than
 * the memory. */
manta_status manta__flow_next(struct manta__flow *f, struct manta__segment **out, manta_error *err);
void manta__flow_drop(struct manta__flow *f, struct manta__segment *s); /* NULL is fine */
void manta__flow_add_times(struct manta__flow *f, struct manta__feed_times *to);

#endif
