/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/apply.h - a function of the user's as a step.
 *
 * (1) A call has rows of one block, from its beginning on, cut in the same places every time: what
 *     a position names is then the same row whenever it is read.
 * (2) Rows that were made of one source row have its number and stay in one batch.
 * (3) Nothing goes through the step from above: what a function gives may depend on every row and
 *     column that it sees.
 */
#ifndef MANTA_DATA_PLAN_APPLY_H
#define MANTA_DATA_PLAN_APPLY_H

#include "data/plan/dataset.h"

struct manta__apply {
  manta_dataset d;
  manta_apply_config c; /* its pointers are not kept, but for call, close and ctx */
  bool owned;           /* ctx is ours to close */
  char *name;
  struct manta__schema *seen; /* by the function */
  int *from;                  /* [seen->count]: columns of the input */
  int *kept;                  /* ADD: [input columns], where each goes in the output, -1: nowhere */
};

/* The rows of a block. */
manta_status manta__apply_scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                               const struct manta__want *want, manta_error *err);
/* Calls the function. `in` has all columns of the input that it sees. What it gives is `a`'s, for
 * the caller to finish; its numbers of rows are in order, and its batch has as many rows as the
 * kind says. */
manta_status manta__apply_call(const struct manta__apply *a, const manta_batch *in,
                               manta_applied *out, manta_error *err);
void manta__applied_fini(manta_applied *a);

#endif
