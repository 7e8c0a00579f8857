/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/pb2.h - PB2 (Parker-Holder and others, 2020): where PBT changes a copied config at random, a
 * Gaussian process of what configs have gained lately proposes the next one.
 *
 * (1) It knows the last MANTA__PB2_MOST gains of all trials, each with the time when it was made: a
 *     config that was good early may not be so later.
 * (2) Numbers that may change are proposed; options are explored as PBT does.
 * (3) A proposal follows from seed, turn and the gains so far.
 */
#ifndef MANTA_TUNE_PB2_H
#define MANTA_TUNE_PB2_H

#include "tune/scheduler.h"

#define MANTA__PB2_MOST 200

struct manta__pb2 {
  const struct manta__space *space; /* borrowed */
  const bool *fixed; /* by dimension: it keeps its value; NULL: none does. Borrowed */
  double interval;
  struct manta__grow trials; /* of struct gain_base, by trial */
  double *seen;              /* (MOST, dims + 2): units, time, gain; a ring */
  uint64_t count;            /* gains ever seen */
};

manta_status manta__pb2_init(struct manta__pb2 *p, const struct manta__space *sp, double interval,
                             manta_error *err);
void manta__pb2_fini(struct manta__pb2 *p); /* {0} is fine */
/* A trial with this point has reached `value`, which is to be minimized, at `time`. */
manta_status manta__pb2_observe(struct manta__pb2 *p, uint64_t trial, const double *point,
                                double time, double value, manta_error *err);
/* It goes on from another one's state: what it reaches next is no gain over what it had. */
void manta__pb2_forget(struct manta__pb2 *p, uint64_t trial);
/* Changes `point`, which manta__explore has made, into what promises the largest gain. */
manta_status manta__pb2_propose(const struct manta__pb2 *p, uint64_t seed, uint64_t turn,
                                double *point, manta_error *err);

#endif
