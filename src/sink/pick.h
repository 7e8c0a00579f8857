/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/pick.h - which ranks a sink gets, and one row out of many.
 */
#ifndef MANTA_SINK_PICK_H
#define MANTA_SINK_PICK_H

#include "sink/sink.h"

enum manta__aggregate {
  MANTA__AGGREGATE_NONE,
  MANTA__AGGREGATE_MEAN,
  MANTA__AGGREGATE_MIN,
  MANTA__AGGREGATE_MAX,
  MANTA__AGGREGATE_LAST /* of the row that was made last */
};

/* The options `workers` (a rank, a list of ranks, or "all"; rank 0) and `aggregate`. */
struct manta__pick {
  bool all;
  int *ranks; /* rising */
  int count;
  enum manta__aggregate how;
};

/* MANTA_EINVAL names the option. */
manta_status manta__pick_init(struct manta__pick *p, const manta_value *options, manta_error *err);
void manta__pick_fini(struct manta__pick *p);
bool manta__pick_wants(const struct manta__pick *p, int rank);
/* How many of `world` ranks it wants. */
int manta__pick_need(const struct manta__pick *p, int world);

/* Makes one row of several, into *out (an empty row): numbers by `how`, each over the rows that
 * have it (a NaN is one, and shows); of what is no number, that of the lowest rank. Maps inside are
 * taken key by key. */
manta_status manta__pick_merge(struct manta__sink_row *out, const struct manta__sink_row *rows,
                               int count, enum manta__aggregate how, manta_error *err);
/* Values that only Python could read become their text. */
void manta__pick_clean(manta_value *v);

#endif
