/* SPDX-License-Identifier: Apache-2.0
 *
 * train/ddp.h - data-parallel training inside.
 *
 * (1) A bucket is one block of shared memory of one type, filled with parameters as they are added;
 *     their gradients lie in a second block at the same places. What is larger has a bucket of its
 *     own. So buckets are made in the order of their first parameter, and a backward pass
 *     completes them from the last to the first: that is the order of reduction, on every rank.
 * (2) A reduction works on elements, so no bit depends on how buckets are cut. The norm is a tree
 *     over blocks that each parameter has by itself, so neither does that one.
 * (3) The first failure of a collective stays: `error`. Later calls return it and touch nothing.
 */
#ifndef MANTA_TRAIN_DDP_H
#define MANTA_TRAIN_DDP_H

#include <stdint.h>

#include <manta/ddp.h>

#define MANTA__DDP_ALIGN  64   /* bytes: of a parameter in its bucket */
#define MANTA__NORM_BLOCK 4096 /* elements of a leaf of the norm's tree */

struct manta__bucket {
  manta_dtype type;
  uint8_t *param, *grad;
  size_t cap, used; /* elements */
  size_t first;     /* parameter */
  size_t members, missing;
  uint16_t *packed; /* bf16, shared; NULL: not compressed */
  float *left;      /* over from rounding; private */
  manta_work *work;
};

struct manta__ddp_param {
  size_t bucket;
  size_t block; /* the first of its blocks */
  bool ready;
};

struct manta_ddp {
  manta_comm *comm;
  manta_ddp_config cfg;
  manta_tensor *param, *grad; /* by index; names are the param's */
  struct manta__ddp_param *layout;
  size_t count, cap;
  struct manta__bucket *bucket;
  size_t buckets, bucket_cap;
  size_t next;    /* bucket next - 1 is the next to start */
  double *square; /* sum of squares of each block; shared */
  size_t blocks;
  manta_tensor *saved;
  int64_t steps;
  bool sealed, paused, overlap, touched; /* touched: something is ready in this step */
  manta_error error;
};

/* --- ddp.c --- */

/* The failure that stays, or MANTA_ESTATE if begin was not yet called (or was: sealed = false). */
manta_status manta__ddp_in(const manta_ddp *d, bool sealed, manta_error *err);
/* Passes `st` on; a failure, whose message is in d->error, stays. */
manta_status manta__ddp_end(manta_ddp *d, manta_status st, manta_error *err);

/* --- ddp_agree.c: the ranks compare what they have --- */

/* MANTA_EINVAL on all ranks if the config or a parameter differs. */
manta_status manta__ddp_agree(manta_ddp *d, manta_error *err);
/* MANTA_ECORRUPT on all ranks if a parameter differs. */
manta_status manta__ddp_check_replicas(manta_ddp *d, manta_error *err);
/* What AUTO means here; the same on all ranks. */
manta_status manta__ddp_choose_overlap(manta_ddp *d, bool *overlap, manta_error *err);

/* --- ddp_norm.c --- */

size_t manta__norm_blocks(size_t count);
/* The sums of squares of this rank's share of the blocks of bucket b. */
void manta__ddp_squares(manta_ddp *d, size_t b);
/* Shares them and gives the norm, then scales the gradients if it is over the limit. */
manta_status manta__ddp_clip(manta_ddp *d, double *norm, manta_error *err);

/* Sum of squares of up to MANTA__NORM_BLOCK elements, eight sums side by side. */
double manta__squares(const void *x, size_t n, manta_dtype type);
/* s[0] = the balanced tree over s[0 … n): neighbours first, an odd one moves up. */
double manta__sum_tree(double *s, size_t n);
/* x *= by, in f32 (f64: in f64). */
void manta__scale(void *x, size_t n, manta_dtype type, double by);

/* --- ddp_pack.c: gradients on bf16 --- */

/* packed = bf16(grad + left); left = what that lost, or 0 where it is not finite. n is a multiple
 * of 16. */
void manta__pack_bf16(uint16_t *packed, float *left, const float *grad, size_t n);
void manta__unpack_bf16(float *grad, const uint16_t *packed, size_t n);

#endif
