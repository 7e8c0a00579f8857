/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce/reduce.h - n arrays become one, element by element, in one fixed order.
 *
 * (1) The order is the balanced binary tree over the index of the array: neighbours first, then
 *     neighbours of those, an odd one moves up: ((0+1)+(2+3))+4.
 * (2) Each node is computed in f32 for f16, bf16 and f32, in f64 for f64, in the type itself
 *     (wrapping) for integers; f16 and bf16 are rounded once, at the end, to nearest even.
 * (3) An element's bits depend on its n inputs only: not on count, alignment, chunking or
 *     instruction set. (No fused multiply-add, no reassociation.) So a NaN that comes out is always
 *     the quiet one without payload; but one array (n = 1) is copied as it is.
 * (4) MEAN is the sum times 1/n in f32 (f64 for f64); for integers the sum divided by n, towards
 *     zero. MIN and MAX of a NaN are NaN, and -0 is below +0.
 * (5) BAND, BOR and BXOR are for integers and BOOL8, which is kept as 0 or 1.
 */
#ifndef MANTA_COMM_REDUCE_REDUCE_H
#define MANTA_COMM_REDUCE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include <manta/comm.h>

#define MANTA__REDUCE_MAX 4096

/* out may be one of in[]. Otherwise out overlaps nothing. 1 <= n <= MANTA__REDUCE_MAX. Any
 * alignment. */
void manta__reduce(void *out, const void *const *in, int n, size_t count, manta_dtype type,
                   manta_op op);
/* Whether the operation makes sense for the type (BOOL8: MIN, MAX and the bitwise ones). */
bool manta__reduce_valid(manta_dtype type, manta_op op);
/* What runs: "avx512", "avx2", "scalar". MANTA_COMM_ISA=scalar|avx2|avx512 lowers it. */
const char *manta__reduce_isa(void);

/* --- in parts: each host makes nodes of the tree, and the rest is made of those --- */

struct manta__tree_node {
  int from, to; /* the inputs that it is made of */
};
#define MANTA__NODES_MAX 24 /* of one host: two per level, at most */

/* The nodes of the tree over n inputs that together are [from, to), as few as there can be; `out`
 * has room for MANTA__NODES_MAX. How many. */
int manta__reduce_nodes(int from, int to, int n, struct manta__tree_node *out);
/* What a node is kept in: F32 for F16 and BF16, else the type. */
manta_dtype manta__reduce_wide(manta_dtype type);
/* One node out of the n inputs that it is made of, in its wide type; no mean yet. */
void manta__reduce_partial(void *out, const void *const *in, int n, size_t count, manta_dtype type,
                           manta_op op);
/* All nodes (two at least, wide, in order, together [0, n)) become the result: the same bits as
 * manta__reduce over the n inputs. out may be one of in[] where the wide type is the type. */
void manta__reduce_combine(void *out, const void *const *in, const struct manta__tree_node *node,
                           int nodes, size_t count, manta_dtype type, manta_op op);

/* The truth, plain and slow: the fast path must agree bit by bit. */
void manta__reduce_ref(void *out, const void *const *in, int n, size_t count, manta_dtype type,
                       manta_op op);

#endif
