/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shm/shared.h - a collective of ranks that share memory, between the files that do it.
 */
#ifndef MANTA_COMM_SHM_SHARED_H
#define MANTA_COMM_SHM_SHARED_H

#include "comm/shm/team.h"

struct manta__transfer {
  const uint8_t *send;
  uint8_t *recv;
  size_t bytes; /* of one block */
  size_t piece; /* of one block that goes in one phase */
  size_t size;  /* of an element */
  manta_dtype type;
  manta_op op;
  int root;
  const size_t *counts; /* allgatherv */
  bool blocks;          /* a staging buffer holds a piece of each block */
  bool allreduce;
  bool in_parts; /* an all-reduce of many ranks: each reduces a part */
};

/* The part of n bytes that is ours to reduce, in whole cache lines. */
static inline void manta__slice(const struct manta__team *t, size_t n, size_t *from, size_t *to)
{
  size_t per = ((n + (size_t)t->size - 1) / (size_t)t->size + 63) & ~(size_t)63;
  *from = per * (size_t)t->rank < n ? per * (size_t)t->rank : n;
  *to = n - *from < per ? n : *from + per;
}

/* --- direct.c --- */

/* Each rank takes what it needs straight from the buffers that the descriptions of this turn place
 * in the segment. The caller meets and settles with all before anybody may change these. */
manta_status manta__direct_allreduce(struct manta__team *t, const struct manta__transfer *x,
                                     manta_error *err);
manta_status manta__direct_reduce(struct manta__team *t, const struct manta__transfer *x,
                                  manta_error *err);
manta_status manta__direct_reduce_scatter(struct manta__team *t, const struct manta__transfer *x,
                                          manta_error *err);
manta_status manta__direct_broadcast(struct manta__team *t, const struct manta__transfer *x,
                                     manta_error *err);
manta_status manta__direct_allgather(struct manta__team *t, const struct manta__transfer *x,
                                     manta_error *err);
manta_status manta__direct_alltoall(struct manta__team *t, const struct manta__transfer *x,
                                    manta_error *err);
manta_status manta__direct_gather(struct manta__team *t, const struct manta__transfer *x,
                                  manta_error *err);
manta_status manta__direct_scatter(struct manta__team *t, const struct manta__transfer *x,
                                   manta_error *err);

#endif
