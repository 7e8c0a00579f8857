/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce.h - n arrays become one, element by element, in one fixed order.
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
 */
#ifndef MANTA_COMM_REDUCE_H
#define MANTA_COMM_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include <manta/comm.h>

#define MANTA__REDUCE_MAX 4096

/* out may be one of in[]. Otherwise out overlaps nothing. 1 <= n <= MANTA__REDUCE_MAX. Any
 * alignment. */
void manta__reduce(void *out, const void *const *in, int n, size_t count, manta_dtype type,
                   manta_op op);
/* Whether the operation makes sense for the type (BOOL8: MIN and MAX only). */
bool manta__reduce_valid(manta_dtype type, manta_op op);
/* What runs: "avx512", "avx2", "scalar". MANTA_COMM_ISA=scalar|avx2|avx512 lowers it. */
const char *manta__reduce_isa(void);

/* The truth, plain and slow: the fast path must agree bit by bit. */
void manta__reduce_ref(void *out, const void *const *in, int n, size_t count, manta_dtype type,
                       manta_op op);

#endif
