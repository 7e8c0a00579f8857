/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/best.h - the one number by which a run is judged in a list.
 */
#ifndef MANTA_DASH_BEST_H
#define MANTA_DASH_BEST_H

#include "dash/index.h"

struct manta__best {
  const struct manta__series *series; /* NULL: the run has no metric yet */
  bool lowest;                        /* the least is the best */
  struct manta__extreme at;
};

/* The metric that the run's checkpoints are judged by; else a loss or an error of rank 0, at its
 * least; else an accuracy, a score or a reward, at its greatest; else its first metric, at its
 * least. */
struct manta__best manta__best_of(const struct manta__index *x);

#endif
