/* SPDX-License-Identifier: Apache-2.0
 *
 * data/loader/cut.h - global batches, and the part of a rank in each.
 *
 * (1) A global batch is the next rows of the order that passed all filters; every rank cuts the
 *     same ones, whatever its number, so all have equally many.
 * (2) Only the rows of the rank's own part are copied, and none if they lie together.
 * (3) Batches go on over the passes of a repeat; only the last pass has a tail.
 */
#ifndef MANTA_DATA_LOADER_CUT_H
#define MANTA_DATA_LOADER_CUT_H

#include "data/loader/flow.h"

struct manta__cut_config {
  struct manta__flow_config flow;
  int64_t batch_rows;
  int rank, ranks;
  manta_tail tail;
};

/* {0} is closed; close twice is harmless. */
struct manta__cut {
  struct manta__cut_config c;
  struct manta__flow *flow;
  struct manta__segment *first, **last; /* with rows that are not used */
  int64_t rows;                         /* how many */
  bool ended;                           /* the flow has no more */
  struct manta__position position;      /* behind the last batch */
  struct manta__feed_times times;       /* of flows that are closed */
};

/* From c->flow.from on. */
manta_status manta__cut_open(struct manta__cut *cut, const struct manta__cut_config *c,
                             manta_error *err);
void manta__cut_close(struct manta__cut *cut);
/* 1 and the rank's part of the next batch, and the position behind that batch; 0 at the end. */
manta_status manta__cut_next(struct manta__cut *cut, manta_batch **out, manta_error *err);

#endif
