/* SPDX-License-Identifier: Apache-2.0
 *
 * train/ddp_pack.c - gradients as bf16 for the wire; what rounding takes is added to the next ones.
 */
#include "base/half.h"
#include "train/ddp.h"

#define WIDE 16 /* a constant, so that the compiler makes vectors of it */

// A gradient that is infinite or no number must not spoil all later ones.
static inline float finite_or_zero(float f)
{
  return (manta__f32_bits(f) & 0x7f800000) == 0x7f800000 ? 0 : f;
}

void manta__pack_bf16(uint16_t *packed, float *left, const float *grad, size_t n)
{
  for (size_t i = 0; i < n; i += WIDE)
    for (size_t k = i; k < i + WIDE; k++) {
      float v = grad[k] + left[k];
      packed[k] = manta__bf16_of_f32(v);
      left[k] = finite_or_zero(v - manta__f32_of_bf16(packed[k]));
    }
}

void manta__unpack_bf16(float *grad, const uint16_t *packed, size_t n)
{
  for (size_t i = 0; i < n; i += WIDE)
    for (size_t k = i; k < i + WIDE; k++)
      grad[k] = manta__f32_of_bf16(packed[k]);
}
