/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/bits.h - arrays of bits, from the lowest of a byte on, as Arrow has them.
 */
#ifndef MANTA_DATA_COLUMN_BITS_H
#define MANTA_DATA_COLUMN_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool manta__bit_get(const uint8_t *bits, int64_t i)
{
  return bits[i >> 3] >> (i & 7) & 1;
}

static inline void manta__bit_set(uint8_t *bits, int64_t i, bool on)
{
  uint8_t mask = (uint8_t)(1u << (i & 7));
  bits[i >> 3] = (uint8_t)(on ? bits[i >> 3] | mask : bits[i >> 3] & ~mask);
}

static inline size_t manta__bits_bytes(int64_t n)
{
  return (size_t)((n + 7) / 8);
}

/* How many of the n bits from `at` on are set. */
int64_t manta__bits_count(const uint8_t *bits, int64_t at, int64_t n);
/* Sets the n bits from `at` on to `on`. */
void manta__bits_fill(uint8_t *bits, int64_t at, int64_t n, bool on);
/* Copies n bits; the two do not overlap. */
void manta__bits_copy(uint8_t *to, int64_t to_at, const uint8_t *from, int64_t from_at, int64_t n);

#endif
