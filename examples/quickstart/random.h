/* SPDX-License-Identifier: Apache-2.0
 *
 * quickstart/random.h - random numbers that depend on a key and a counter, and on nothing else: no
 * hidden state, no order of calls between ranks, the same on every machine.
 */
#ifndef QUICKSTART_RANDOM_H
#define QUICKSTART_RANDOM_H

#include <stdint.h>

struct random {
  uint64_t key, counter;
};

static inline uint64_t random_mix(uint64_t x) // the finaliser of SplitMix64
{
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* A stream of its own for every three numbers. */
static inline struct random random_of(uint64_t seed, uint64_t a, uint64_t b)
{
  uint64_t key = random_mix(seed + 0x9e3779b97f4a7c15u);
  key = random_mix(key ^ (a + 0xd1b54a32d192ed03u));
  return (struct random){random_mix(key ^ (b + 0x8cb92ba72f3d8dd7u)), 0};
}

static inline uint64_t random_bits(struct random *r)
{
  return random_mix(r->key + ++r->counter * 0x9e3779b97f4a7c15u);
}

/* 0 … n - 1. */
static inline int random_below(struct random *r, int n)
{
  return (int)(((random_bits(r) >> 32) * (uint64_t)n) >> 32);
}

/* In [low, high). */
static inline float random_between(struct random *r, float low, float high)
{
  return low + (high - low) * ((float)(random_bits(r) >> 40) * 0x1p-24f);
}

/* A bell curve of mean 0 and the given width (standard deviation), never beyond three widths. */
static inline float random_bell(struct random *r, float width)
{
  float sum = random_between(r, -1, 1);
  sum += random_between(r, -1, 1);
  sum += random_between(r, -1, 1);
  return width * sum;
}

#endif
