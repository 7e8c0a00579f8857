/* SPDX-License-Identifier: Apache-2.0
 *
 * base/rng.h - random numbers that are a function of a key and an index (SplitMix64): who knows
 * seed and stream makes the same ones anywhere, in any order, after a restart too. Not for secrets.
 */
#ifndef MANTA_BASE_RNG_H
#define MANTA_BASE_RNG_H

#include <math.h>
#include <stdint.h>

struct manta__rng {
  uint64_t key; /* changed by every draw */
};

static inline uint64_t manta__rng_mix(uint64_t x)
{
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

/* The generator of a stream, such as one trial, of a seed. */
static inline struct manta__rng manta__rng_of(uint64_t seed, uint64_t stream)
{
  uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
  return (struct manta__rng){manta__rng_mix(manta__rng_mix(seed + golden) ^ (stream * golden))};
}

static inline uint64_t manta__rng_next(struct manta__rng *r)
{
  r->key += UINT64_C(0x9e3779b97f4a7c15);
  return manta__rng_mix(r->key);
}

/* In [0, 1). */
static inline double manta__rng_unit(struct manta__rng *r)
{
  return (double)(manta__rng_next(r) >> 11) * 0x1p-53;
}

/* In [0, n), each as likely; n > 0. */
static inline uint64_t manta__rng_below(struct manta__rng *r, uint64_t n)
{
  uint64_t unfair = -n % n; // 2^64 modulo n: draws below it would favour small results
  for (;;) {
    unsigned __int128 wide = (unsigned __int128)manta__rng_next(r) * n;
    if ((uint64_t)wide >= unfair)
      return (uint64_t)(wide >> 64);
  }
}

/* Of mean 0 and deviation 1. */
static inline double manta__rng_normal(struct manta__rng *r)
{
  double u = 1 - manta__rng_unit(r), angle = 6.283185307179586 * manta__rng_unit(r);
  return sqrt(-2 * log(u)) * cos(angle);
}

#endif
