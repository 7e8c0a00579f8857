/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/late.h - the last steps of a plan that can wait until global batches are cut: functions
 * that make one row of each row by itself, and the choice of columns behind them.
 *
 * (1) Behind them are only steps that say in which order rows come. Those go in front of them: they
 *     do not look at columns.
 * (2) Positions, blocks and marks of what is cut are those of the whole: rows stay rows.
 */
#ifndef MANTA_DATA_PLAN_LATE_H
#define MANTA_DATA_PLAN_LATE_H

#include "data/plan/dataset.h"

#define MANTA__LATE_MAX 16

struct manta__late {
  manta_dataset *early;                 /* what is cut; borrowed from the data set, or itself */
  manta_dataset *step[MANTA__LATE_MAX]; /* in the order in which they are done; borrowed */
  int count;
};

/* Of a data set, which must outlive it. */
manta_status manta__late_split(struct manta__late *out, manta_dataset *d, manta_error *err);
/* Whether a step of the plan is among them. */
bool manta__late_has(const struct manta__late *l, const manta_dataset *step);
/* The data set under the order: all that differ in that alone have its rows. */
manta_dataset *manta__late_rows(manta_dataset *d);
/* The data set under the choice of columns and the order: what was counted there is seen from all
 * that differ in those alone. */
manta_dataset *manta__late_base(manta_dataset *d);
/* Does them: *batch becomes what they make of it. On failure it is gone. */
manta_status manta__late_do(const struct manta__late *l, manta_batch **batch, manta_error *err);

#endif
