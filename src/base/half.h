/* SPDX-License-Identifier: Apache-2.0
 *
 * base/half.h - f16 and bf16 to f32 and back, one at a time.
 *
 * Narrowing rounds to nearest even, past the largest to infinity; a NaN becomes the quiet one
 * without payload. The same bits as the reductions of comm/ give.
 */
#ifndef MANTA_BASE_HALF_H
#define MANTA_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t manta__f32_bits(float f)
{
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

static inline float manta__f32_of_bits(uint32_t u)
{
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static inline float manta__f32_of_bf16(uint16_t h)
{
  return manta__f32_of_bits((uint32_t)h << 16);
}

/* Adds just under half of the last bit kept, and one more if that bit is odd. */
static inline uint16_t manta__bf16_of_f32(float f)
{
  uint32_t u = manta__f32_bits(f), round = u + 0x7fff + (u >> 16 & 1);
  return (u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (uint16_t)(round >> 16);
}

/* The bits in the exponent range of f32, times 2^112: this normalises subnormals as well. */
static inline float manta__f32_of_f16(uint16_t h)
{
  uint32_t body = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  if (body >= 0x7c00u << 13) // infinity and NaN
    return manta__f32_of_bits(sign | (body + (112u << 23) + (112u << 23)));
  return manta__f32_of_bits(sign | manta__f32_bits(manta__f32_of_bits(body) * 0x1p112f));
}

/* Normals round in the integers; subnormals by adding 0.5, whose last bit is worth 2^-24. */
static inline uint16_t manta__f16_of_f32(float f)
{
  uint32_t u = manta__f32_bits(f), body = u & 0x7fffffff, r;
  if (body > 0x7f800000)
    return 0x7e00;
  if (body >= 143u << 23)
    r = 0x7c00;
  else if (body < 113u << 23)
    r = manta__f32_bits(manta__f32_of_bits(body) + 0.5f) - (126u << 23);
  else
    r = (body + 0xfff + (body >> 13 & 1) - (112u << 23)) >> 13;
  return (uint16_t)(r | (u >> 16 & 0x8000));
}

#endif
