/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce_isa.h - the same kernels, compiled once per instruction set.
 */
#ifndef MANTA_COMM_REDUCE_ISA_H
#define MANTA_COMM_REDUCE_ISA_H

#include <stdbool.h>
#include <stddef.h>

#include <manta/ckpt.h>

/* MEAN is an ADD with a factor (floats) or with a division after it (integers). */
enum manta__reduce_kind { MANTA__ADD, MANTA__MUL, MANTA__MIN, MANTA__MAX, MANTA__KINDS };

/* n >= 2. mean: multiply by 1/n; only the ADD of floats looks at it. */
typedef void manta__reduce_fn(void *out, const void *const *in, int n, size_t count, bool mean);

struct manta__reduce_isa {
  const char *name;
  manta__reduce_fn *fn[MANTA_DTYPE_COUNT][MANTA__KINDS]; /* NULL: see the scalar set */
};

extern const struct manta__reduce_isa manta__reduce_scalar;
#if defined(__x86_64__)
extern const struct manta__reduce_isa manta__reduce_avx2;
extern const struct manta__reduce_isa manta__reduce_avx512;
#endif

#endif
