/* SPDX-License-Identifier: Apache-2.0 */
#include "data/column/bits.h"

#include <string.h>

int64_t manta__bits_count(const uint8_t *bits, int64_t at, int64_t n)
{
  int64_t end = at + n, count = 0;
  for (; at < end && at & 7; at++)
    count += manta__bit_get(bits, at);
  for (; end - at >= 64; at += 64) {
    uint64_t w;
    memcpy(&w, bits + (at >> 3), 8);
    count += __builtin_popcountll(w);
  }
  for (; at < end; at++)
    count += manta__bit_get(bits, at);
  return count;
}

void manta__bits_fill(uint8_t *bits, int64_t at, int64_t n, bool on)
{
  int64_t end = at + n;
  for (; at < end && at & 7; at++)
    manta__bit_set(bits, at, on);
  if (end - at >= 8)
    memset(bits + (at >> 3), on ? 0xff : 0, (size_t)((end - at) >> 3));
  for (at += (end - at) & ~(int64_t)7; at < end; at++)
    manta__bit_set(bits, at, on);
}

void manta__bits_copy(uint8_t *to, int64_t to_at, const uint8_t *from, int64_t from_at, int64_t n)
{
  int64_t i = 0;
  for (; i < n && (to_at + i) & 7; i++)
    manta__bit_set(to, to_at + i, manta__bit_get(from, from_at + i));
  unsigned shift = (unsigned)((from_at + i) & 7);
  for (; n - i >= 8; i += 8) { // whole bytes of `to`, each of two neighbours in `from`
    const uint8_t *p = from + ((from_at + i) >> 3);
    to[(to_at + i) >> 3] = (uint8_t)(shift ? p[0] >> shift | p[1] << (8 - shift) : p[0]);
  }
  for (; i < n; i++)
    manta__bit_set(to, to_at + i, manta__bit_get(from, from_at + i));
}
