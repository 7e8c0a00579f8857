/* SPDX-License-Identifier: Apache-2.0
 *
 * base/crc.c - eight bytes at a time by eight tables; CRC-32C by its instruction where the
 * CPU has one.
 */
#include "base/crc.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#define POLY_32  0xedb88320u
#define POLY_32C 0x82f63b78u

typedef uint32_t table_type[8][256];

static table_type of_32, of_32c;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make(table_type t, uint32_t poly)
{
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++)
      c = c & 1 ? c >> 1 ^ poly : c >> 1;
    t[0][i] = c;
  }
  for (int k = 1; k < 8; k++)
    for (int i = 0; i < 256; i++)
      t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 255];
}

static void make_tables(void)
{
  make(of_32, POLY_32);
  make(of_32c, POLY_32C);
}

static uint32_t by_table(const table_type t, uint32_t crc, const uint8_t *p, size_t n)
{
  crc = ~crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t w;
    memcpy(&w, p, 8);
    w ^= crc;
    crc = t[7][w & 255] ^ t[6][w >> 8 & 255] ^ t[5][w >> 16 & 255] ^ t[4][w >> 24 & 255] ^
          t[3][w >> 32 & 255] ^ t[2][w >> 40 & 255] ^ t[1][w >> 48 & 255] ^ t[0][w >> 56];
  }
  for (; n; n--, p++)
    crc = crc >> 8 ^ t[0][(crc ^ *p) & 255];
  return ~crc;
}

uint32_t manta__crc32(uint32_t crc, const void *p, size_t n)
{
  pthread_once(&once, make_tables);
  return by_table(of_32, crc, p, n);
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *p,
                                                                 size_t n)
{
  uint64_t c = ~crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t w;
    memcpy(&w, p, 8);
    c = _mm_crc32_u64(c, w);
  }
  for (; n; n--, p++)
    c = _mm_crc32_u8((uint32_t)c, *p);
  return ~(uint32_t)c;
}

static bool has_instruction(void)
{
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.2");
}
#else
static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
  return crc;
}

static bool has_instruction(void)
{
  return false;
}
#endif

uint32_t manta__crc32c(uint32_t crc, const void *p, size_t n)
{
  if (has_instruction())
    return by_instruction(crc, p, n);
  pthread_once(&once, make_tables);
  return by_table(of_32c, crc, p, n);
}
