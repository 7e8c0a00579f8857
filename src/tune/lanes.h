/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/lanes.h - functions of many numbers at once, for densities: exp, log and the error function,
 * to about six digits.
 *
 * The compiler makes vectors of loops over MANTA__LANES numbers, as wide as the CPU's. Each lane is
 * computed by the same additions and multiplications in the same order, and sums have a fixed
 * order, so that the bits are the same on every CPU; libm's are not.
 */
#ifndef MANTA_TUNE_LANES_H
#define MANTA_TUNE_LANES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define MANTA__LANES 32

/* exp(x) for x <= 0; below -87 as there. Numbers of one sign compare as their bits do, which makes
 * a vector where a comparison of floats would make a branch. */
static inline float manta__lane_exp(float x)
{
  uint32_t away, most = 0xc2ae0000; // the bits of -87
  memcpy(&away, &x, sizeof away);
  away = away < most ? away : most;
  memcpy(&x, &away, sizeof x);
  float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; // rounds to an integer
  float r = x - n * 0.693359375f + n * 2.12194440e-4f;     // x - n log 2, |r| <= log(2) / 2
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r * r + r + 1;
  int32_t bits = ((int32_t)n + 127) * (1 << 23);
  float power;
  memcpy(&power, &bits, sizeof power);
  return p * power;
}

/* log(x) for a normal x > 0. */
static inline float manta__lane_log(float x)
{
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  int32_t n = (bits - 0x3f3504f3) >> 23; // x = m 2^n with m in [sqrt(1/2), sqrt(2))
  bits -= n * (1 << 23);
  float m;
  memcpy(&m, &bits, sizeof m);
  float s = (m - 1) / (m + 1), q = s * s, p = 1.0f / 9; // log m = 2 artanh s
  p = p * q + 1.0f / 7;
  p = p * q + 1.0f / 5;
  p = p * q + 1.0f / 3;
  return (float)n * 0.693147181f + 2 * (s + s * q * p);
}

/* Abramowitz and Stegun, 7.1.26. */
static inline float manta__lane_erf(float x)
{
  float a = fabsf(x), t = 1 / (1 + 0.3275911f * a);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  return copysignf(1 - p * t * manta__lane_exp(-a * a), x);
}

/* Sum and largest of MANTA__LANES numbers, always in the same order. */
static inline float manta__lanes_sum(const float *x)
{
  float a[16], b[8], c[4];
  for (int i = 0; i < 16; i++)
    a[i] = x[i] + x[i + 16];
  for (int i = 0; i < 8; i++)
    b[i] = a[i] + a[i + 8];
  for (int i = 0; i < 4; i++)
    c[i] = b[i] + b[i + 4];
  return (c[0] + c[2]) + (c[1] + c[3]);
}

static inline float manta__lanes_max(const float *x)
{
  float a[16], b[8], c[4];
  for (int i = 0; i < 16; i++)
    a[i] = x[i] > x[i + 16] ? x[i] : x[i + 16];
  for (int i = 0; i < 8; i++)
    b[i] = a[i] > a[i + 8] ? a[i] : a[i + 8];
  for (int i = 0; i < 4; i++)
    c[i] = b[i] > b[i + 4] ? b[i] : b[i + 4];
  float d = c[0] > c[2] ? c[0] : c[2], e = c[1] > c[3] ? c[1] : c[3];
  return d > e ? d : e;
}

#endif
