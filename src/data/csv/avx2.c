/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/avx2.c - the inner loops for AVX2. Runs only where isa.c found it.
 */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "data/csv/isa.h"

// Pragmas, not compiler flags: the inline functions of the headers above must stay baseline code.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,popcnt"))), apply_to = function)
#else
#pragma GCC optimize("O3", "fp-contract=off")
#pragma GCC target("avx2,bmi,popcnt")
#endif

#define ISA avx2

typedef struct csv_halves {
  __m256i low, high;
} block_type;

INLINE block_type block_of(const uint8_t *p)
{
  return (block_type){_mm256_loadu_si256((const __m256i *)p),
                      _mm256_loadu_si256((const __m256i *)(p + 32))};
}

INLINE uint64_t equal(block_type b, uint8_t byte)
{
  __m256i pattern = _mm256_set1_epi8((char)byte);
  uint32_t low = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(b.low, pattern));
  uint32_t high = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(b.high, pattern));
  return low | (uint64_t)high << 32;
}

// Eight at a time, whether or not there are as many: how many follow is known to nobody, and a
// wrong guess per bit would cost more.
INLINE void put_bits(uint32_t *pos, uint32_t at, uint64_t bits)
{
  int n = __builtin_popcountll(bits);
  for (int done = 0; done < n; done += 8)
    for (int i = 0; i < 8; i++) {
      pos[done + i] = at + (uint32_t)_tzcnt_u64(bits);
      bits &= bits - 1;
    }
}

// --- numbers ------------------------------------------------------------------------------------

static const double tens[16] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

// 16 bytes from LAST + n on have ones in the last n of them.
static const uint8_t last_bytes[32] = {
    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

// 16 digits, the first in the lowest byte, zeros in front.
INLINE uint64_t value_of(__m128i digits)
{
  const __m128i ten = _mm_set1_epi16(0x010a), hundred = _mm_set1_epi32(0x00010064),
                myriad = _mm_set1_epi32(0x00012710);
  __m128i t = _mm_maddubs_epi16(digits, ten);
  t = _mm_madd_epi16(t, hundred);
  t = _mm_packus_epi32(t, t);
  t = _mm_madd_epi16(t, myriad);
  uint64_t two = (uint64_t)_mm_cvtsi128_si64(t);
  return (two & 0xffffffff) * 100000000 + (two >> 32);
}

struct simple_vector {
  uint64_t m;
  unsigned behind; /* digits behind the dot */
  bool negative;
};

// [-] digits [. digits], 16 characters at most and one digit at least, in front of `end`.
INLINE bool read_simple(const uint8_t *end, size_t n, bool dots, struct simple_vector *out)
{
  const __m128i places = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  if (n - 1 > 15)
    return false;
  __m128i v = _mm_loadu_si128((const __m128i *)(end - 16));
  out->negative = end[-(ptrdiff_t)n] == '-';
  n -= out->negative;
  __m128i field = _mm_loadu_si128((const __m128i *)(last_bytes + n));
  __m128i digits = _mm_sub_epi8(v, _mm_set1_epi8('0'));
  __m128i is_digit = _mm_cmpeq_epi8(_mm_min_epu8(digits, _mm_set1_epi8(9)), digits);
  unsigned other = (unsigned)_mm_movemask_epi8(_mm_andnot_si128(is_digit, field));
  digits = _mm_and_si128(digits, _mm_and_si128(field, is_digit));
  out->behind = 0;
  if (other) {
    unsigned dot = (unsigned)__builtin_ctz(other);
    if (!dots || other & (other - 1) || end[(ptrdiff_t)dot - 16] != '.' || n == 1)
      return false;
    // Digits in front of the dot move on by one place, over it.
    __m128i move = _mm_cmpgt_epi8(_mm_set1_epi8((char)(dot + 1)), places);
    digits = _mm_shuffle_epi8(digits, _mm_add_epi8(places, move));
    out->behind = 15 - dot;
  }
  out->m = value_of(digits);
  return n > 0;
}

static size_t fields_f64(double *out, const struct manta__csv_fields *f, size_t n, uint32_t *hard)
{
  size_t left = 0;
  for (size_t r = 0; r < n; r++) {
    size_t begin = manta__csv_begin(f, r), end = manta__csv_end(f, r);
    struct simple_vector s;
    if (!read_simple(f->text + end, end - begin, true, &s) || s.m >> 53) {
      hard[left++] = (uint32_t)r;
      continue;
    }
    double v = (double)(int64_t)s.m / tens[s.behind];
    out[r] = s.negative ? -v : v;
  }
  return left;
}

static size_t fields_i64(int64_t *out, const struct manta__csv_fields *f, size_t n, uint32_t *hard)
{
  size_t left = 0;
  for (size_t r = 0; r < n; r++) {
    size_t begin = manta__csv_begin(f, r), end = manta__csv_end(f, r);
    struct simple_vector s;
    if (!read_simple(f->text + end, end - begin, false, &s)) {
      hard[left++] = (uint32_t)r;
      continue;
    }
    out[r] = s.negative ? -(int64_t)s.m : (int64_t)s.m;
  }
  return left;
}

#include "data/csv/kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
