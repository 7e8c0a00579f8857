/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce/isa.h - the same kernels, compiled once per instruction set.
 */
#ifndef MANTA_COMM_REDUCE_ISA_H
#define MANTA_COMM_REDUCE_ISA_H

#include <stddef.h>

#include <manta/ckpt.h>

/* MEAN is an ADD with a factor (floats) or with a division after it (integers). */
enum manta__reduce_kind {
  MANTA__ADD,
  MANTA__MUL,
  MANTA__MIN,
  MANTA__MAX,
  MANTA__AND, /* this and the next two: of U8 only, as which every type goes */
  MANTA__OR,
  MANTA__XOR,
  MANTA__KINDS
};

/* n >= 2. The result is multiplied by 1/divisor; only the ADD of floats looks at it. */
typedef void manta__reduce_fn(void *out, const void *const *in, int n, size_t count, int divisor);
/* 16-bit floats to f32; and back what a reduction made, whose only NaN is the quiet one. */
typedef void manta__widen_fn(float *out, const void *in, size_t count);
typedef void manta__narrow_fn(void *out, const float *in, size_t count);

struct manta__reduce_isa {
  const char *name;
  manta__reduce_fn *fn[MANTA_DTYPE_COUNT][MANTA__KINDS]; /* NULL: see the scalar set */
  manta__widen_fn *widen_f16, *widen_bf16;
  manta__narrow_fn *narrow_f16, *narrow_bf16;
};

extern const struct manta__reduce_isa manta__reduce_scalar;
#if defined(__x86_64__)
extern const struct manta__reduce_isa manta__reduce_avx2;
extern const struct manta__reduce_isa manta__reduce_avx512;
#endif

#endif
