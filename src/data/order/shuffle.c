/* SPDX-License-Identifier: Apache-2.0
 *
 * data/order/shuffle.c - a permutation of n numbers without a table.
 *
 * A Feistel network permutes the numbers of 2 * bits bits, the smallest such range that holds n; a
 * number that it sends out of 0 … n - 1 is sent on until it is back inside, which is a permutation
 * of those n again. The range is less than four times n, so that takes four rounds on average at
 * most.
 */
#include "data/order/order.h"

// The finaliser of MurmurHash3 with the constants of splitmix64: every bit depends on every other.
static uint64_t mix(uint64_t x)
{
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

struct manta__shuffle manta__shuffle_make(uint64_t n, uint64_t seed, uint64_t epoch,
                                          uint64_t stream)
{
  struct manta__shuffle s = {.n = n, .bits = 1};
  while (s.bits < 32 && (n - 1) >> 2 * s.bits)
    s.bits++;
  uint64_t key[2] = {mix(mix(mix(seed) ^ epoch) ^ stream), 0};
  key[1] = mix(key[0] ^ n);
  for (int i = 0; i < MANTA__SHUFFLE_ROUNDS; i++)
    s.key[i] = mix(key[i & 1] + (uint64_t)i);
  return s;
}

static uint64_t half_of(const struct manta__shuffle *s, uint64_t half, int round)
{
  uint64_t mask = (UINT64_C(1) << s->bits) - 1;
  return mix(half ^ s->key[round]) >> 17 & mask;
}

static uint64_t forward(const struct manta__shuffle *s, uint64_t x)
{
  uint64_t mask = (UINT64_C(1) << s->bits) - 1, left = x >> s->bits, right = x & mask;
  for (int i = 0; i < MANTA__SHUFFLE_ROUNDS; i++) {
    uint64_t next = left ^ half_of(s, right, i);
    left = right;
    right = next;
  }
  return left << s->bits | right;
}

static uint64_t backward(const struct manta__shuffle *s, uint64_t x)
{
  uint64_t mask = (UINT64_C(1) << s->bits) - 1, left = x >> s->bits, right = x & mask;
  for (int i = MANTA__SHUFFLE_ROUNDS - 1; i >= 0; i--) {
    uint64_t before = right ^ half_of(s, left, i);
    right = left;
    left = before;
  }
  return left << s->bits | right;
}

uint64_t manta__shuffle_at(const struct manta__shuffle *s, uint64_t i)
{
  do
    i = forward(s, i);
  while (i >= s->n);
  return i;
}

uint64_t manta__shuffle_find(const struct manta__shuffle *s, uint64_t x)
{
  do
    x = backward(s, x);
  while (x >= s->n);
  return x;
}

double manta__order_chance(uint64_t seed, uint64_t block, uint64_t row)
{
  return (double)(mix(mix(mix(seed) ^ block) ^ row) >> 11) * 0x1p-53;
}
