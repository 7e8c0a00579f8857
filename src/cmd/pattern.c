/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/pattern.h"

#include <string.h>

// 0 to 3: 64 of them are exact in bf16, which holds integers up to 256.
static int number_at(int rank, size_t place)
{
  uint32_t mixed = ((uint32_t)place + 1) * 2654435761u + (uint32_t)rank * 0x9e3779b1u;
  return (int)((mixed ^ mixed >> 13) * 0x85ebca6bu >> 30);
}

static uint16_t half_of(int v) // v < 2048
{
  int exponent = 0;
  if (v == 0)
    return 0;
  while (v >> (exponent + 1))
    exponent++;
  return (uint16_t)((exponent + 15) << 10 | (v - (1 << exponent)) << (10 - exponent));
}

static uint16_t brain_of(int v) // v < 256
{
  float f = (float)v;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return (uint16_t)(bits >> 16);
}

// Integers of every width and sign are the low bytes of v (both of our machines are little-endian).
static void put(uint8_t *at, manta_dtype type, size_t size, int v)
{
  int64_t whole = v;
  double d = v;
  float f = (float)v;
  uint16_t h = type == MANTA_BF16 ? brain_of(v) : half_of(v);
  const void *from = type == MANTA_F64                         ? (const void *)&d
                     : type == MANTA_F32                       ? (const void *)&f
                     : type == MANTA_F16 || type == MANTA_BF16 ? (const void *)&h
                                                               : (const void *)&whole;
  memcpy(at, from, size);
}

static void make(struct manta__pattern *p, manta_dtype type, int from, int to)
{
  p->type = type;
  p->size = manta_dtype_bytes(type);
  for (size_t i = 0; i < MANTA__PATTERN_PERIOD; i++) {
    int sum = 0;
    for (int r = from; r < to; r++)
      sum += number_at(r, i);
    put(p->period + i * p->size, type, p->size, sum);
  }
}

void manta__pattern_of_rank(struct manta__pattern *p, manta_dtype type, int rank)
{
  make(p, type, rank, rank + 1);
}

void manta__pattern_of_sum(struct manta__pattern *p, manta_dtype type, int ranks)
{
  make(p, type, 0, ranks);
}

// The elements from place `first` that one period still holds, at most `count`.
static size_t piece(size_t count, size_t first)
{
  size_t left = MANTA__PATTERN_PERIOD - first % MANTA__PATTERN_PERIOD;
  return count < left ? count : left;
}

void manta__pattern_write(const struct manta__pattern *p, void *buf, size_t count, size_t first)
{
  uint8_t *to = buf;
  for (size_t n; count; count -= n, first += n, to += n * p->size) {
    n = piece(count, first);
    memcpy(to, p->period + first % MANTA__PATTERN_PERIOD * p->size, n * p->size);
  }
}

static size_t differences(const uint8_t *a, const uint8_t *b, size_t count, size_t size)
{
  size_t n = 0;
  for (size_t i = 0; i < count; i++)
    n += memcmp(a + i * size, b + i * size, size) != 0;
  return n;
}

size_t manta__pattern_wrong(const struct manta__pattern *p, const void *buf, size_t count,
                            size_t first)
{
  const uint8_t *at = buf;
  size_t wrong = 0;
  for (size_t n; count; count -= n, first += n, at += n * p->size) {
    const uint8_t *want = p->period + first % MANTA__PATTERN_PERIOD * p->size;
    n = piece(count, first);
    if (memcmp(at, want, n * p->size) != 0)
      wrong += differences(at, want, n, p->size);
  }
  return wrong;
}
