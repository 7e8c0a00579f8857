/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/apply.h - a function of the user's as a step.
 *
 * (1) A call has rows of one block, from its beginning on, cut in the same places every time: what
 *     a position names is then the same row whenever it is read.
 * (2) Rows that were made of one source row have its number and stay in one batch.
 * (3) Nothing goes through the step from above: what a function gives may depend on every row and
 *     column that it sees.
 * (4) A function that can be packed travels with the plan. Where that is unpacked a host calls it,
 *     and what it gives is checked as if it had been called here.
 */
#ifndef MANTA_DATA_PLAN_APPLY_H
#define MANTA_DATA_PLAN_APPLY_H

#include "data/plan/pack.h"

/* The rows of a call. */
struct manta__apply_place {
  const char *file; /* of the block, or NULL */
  int64_t block;
  int64_t first, last; /* numbers in the block */
  uint64_t seed;       /* the same whenever these rows are given to this step */
};

/* Who calls functions that came from another process. */
struct manta__apply_host {
  /* The function of a step that sees these columns. All is copied. */
  manta_status (*open)(void **function, const char *name, const void *code, size_t bytes,
                       struct manta__schema *seen, manta_error *err);
  manta_status (*call)(void *function, const struct manta__apply_place *at, const manta_batch *in,
                       manta_applied *out, manta_error *err);
  void (*close)(void *function);
};
/* For all plans that are unpacked from now on; NULL: those with functions cannot be. */
void manta__apply_set_host(const struct manta__apply_host *host);

struct manta__apply {
  manta_dataset d;
  manta_apply_config c; /* its pointers are not kept, but for the functions and ctx */
  bool owned;           /* ctx is ours to close */
  char *name;
  const struct manta__apply_host *host; /* calls it instead of c.call; NULL: nobody */
  void *function;                       /* the host's */
  manta_value code;                     /* with a host: what it was made of */
  struct manta__schema *seen;           /* by the function */
  int *from;                            /* [seen->count]: columns of the input */
  int *kept; /* ADD: [input columns], where each goes in the output, -1: nowhere */
};

/* The rows of a block. */
manta_status manta__apply_scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                               const struct manta__want *want, manta_error *err);
/* Calls the function. `in` has all columns of the input that it sees. What it gives is `a`'s, for
 * the caller to finish; its numbers of rows are in order, and its batch has as many rows as the
 * kind says. */
manta_status manta__apply_call(struct manta__apply *a, const struct manta__apply_place *at,
                               const manta_batch *in, manta_applied *out, manta_error *err);
void manta__applied_fini(manta_applied *a);

/* The rows that a MAP gives for those of a batch, in the types of the schema. */
manta_status manta__apply_late(manta_dataset *d, manta_batch *in, manta_batch **out,
                               manta_error *err);

/* --- travelling (applypack.c) --- */

manta_status manta__apply_pack(const manta_dataset *d, manta_value *to, manta_error *err);
manta_status manta__apply_unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                                 const manta_value *from, manta_error *err);
/* Tells the functions of a plan what was given beside the failure of one of them. */
void manta__apply_raised(manta_dataset *d, const void *detail, size_t bytes,
                         const manta_error *err);

/* --- making, in two parts --- */

/* A step without a function: kind, rows of a call, columns (by name, or all) and name are there.
 * Unref it if it cannot be finished. */
manta_status manta__apply_begin(struct manta__apply **out, manta_dataset *d,
                                const manta_apply_config *c, manta_error *err);
/* Its schema, if it gives columns: `gives` is what the function does. */
manta_status manta__apply_end(struct manta__apply *a, struct manta__schema *gives,
                              manta_error *err);

#endif
