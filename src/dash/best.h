/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/best.h - the one number by which a run is judged in a list.
 */
#ifndef MANTA_DASH_BEST_H
#define MANTA_DASH_BEST_H

#include "dash/index.h"

struct manta__best {
  const struct manta__curve *series; /* NULL: the run has no such metric */
  bool lowest;                       /* the least is the best */
  struct manta__extreme at;
};

/* Of rank 0, as `manta ls` does: the metric that the run's checkpoints are judged by, else the
 * first whose name tells whether it is better small or large. */
struct manta__best manta__best_of(const struct manta__index *x);

#endif
