/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/avx512.c - the inner loops for AVX-512 F, BW, DQ and VL: four fields at a time. Runs
 * only where isa.c found all four.
 */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "data/csv/isa.h"

// Pragmas, not compiler flags: the inline functions of the headers above must stay baseline code.
#define FEATURES "avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target(FEATURES))), apply_to = function)
#else
#pragma GCC optimize("O3", "fp-contract=off")
#pragma GCC target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define ISA   avx512
#define LANES 4

typedef __m512i block_type;

static inline block_type block_of(const uint8_t *p)
{
  return _mm512_loadu_si512(p);
}

static inline uint64_t equal(block_type b, uint8_t byte)
{
  return _mm512_cmpeq_epi8_mask(b, _mm512_set1_epi8((char)byte));
}

// The numbers 0 to 15 that have a bit, moved together, four times.
static inline void put_bits(uint32_t *pos, uint32_t at, uint64_t bits)
{
  const __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i base = _mm512_add_epi32(places, _mm512_set1_epi32((int)at));
  if (!bits)
    return;
  for (int part = 0; part < 4; part++) {
    __mmask16 k = (__mmask16)(bits >> (16 * part));
    _mm512_storeu_si512(pos, _mm512_maskz_compress_epi32(k, base));
    pos += __builtin_popcount(k);
    base = _mm512_add_epi32(base, _mm512_set1_epi32(16));
  }
}

// --- numbers ------------------------------------------------------------------------------------

static const double tens[16] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

/* Four fields; in `hard` and `negative` each has a bit. */
struct simple_four {
  __m256i m;
  __m256d scale; /* 10 to the power of the digits behind the dot */
  unsigned negative, hard;
};

// Four times 16 digits, the first in the lowest byte of its lane, zeros in front.
static inline __m256i values_of(__m512i digits)
{
  const __m512i ten = _mm512_set1_epi16(0x010a), hundred = _mm512_set1_epi32(0x00010064),
                myriad = _mm512_set1_epi32(0x00012710);
  __m512i t = _mm512_maddubs_epi16(digits, ten);
  t = _mm512_madd_epi16(t, hundred);
  t = _mm512_packus_epi32(t, t);
  t = _mm512_madd_epi16(t, myriad);
  t = _mm512_add_epi64(_mm512_mul_epu32(t, _mm512_set1_epi64(100000000)), _mm512_srli_epi64(t, 32));
  return _mm512_castsi512_si256(_mm512_maskz_compress_epi64(0x55, t)); // the first of each lane
}

// [-] digits [. digits], 16 characters at most and one digit at least.
static inline struct simple_four read_four(const struct manta__csv_fields *f, size_t r, bool dots)
{
  const __m512i places = _mm512_set4_epi32(0x0f0e0d0c, 0x0b0a0908, 0x07060504, 0x03020100);
  __m128i lane[LANES];
  uint64_t fields = 0, firsts = 0;
  unsigned hard = 0;
  for (size_t i = 0; i < LANES; i++) {
    size_t begin = manta__csv_begin(f, r + i), end = manta__csv_end(f, r + i), n = end - begin;
    hard |= (unsigned)(n - 1 > 15) << i;
    n = n - 1 > 15 ? 1 : n;
    lane[i] = _mm_loadu_si128((const __m128i *)(f->text + end - 16));
    fields |= (uint64_t)(0xffffu << (16 - n) & 0xffff) << (16 * i);
    firsts |= (uint64_t)1 << (16 - n) << (16 * i);
  }
  __m512i v = _mm512_castsi128_si512(lane[0]);
  v = _mm512_inserti32x4(v, lane[1], 1);
  v = _mm512_inserti32x4(v, lane[2], 2);
  v = _mm512_inserti32x4(v, lane[3], 3);
  __m512i digits = _mm512_sub_epi8(v, _mm512_set1_epi8('0'));
  uint64_t minus = _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('-')) & firsts;
  fields &= ~minus;
  uint64_t other = _mm512_cmpgt_epu8_mask(digits, _mm512_set1_epi8(9)) & fields, moves = 0;
  uint64_t dot = dots ? _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('.')) : 0;
  double scale[LANES];
  uint32_t negative = 0;
  for (size_t i = 0; i < LANES; i++) {
    uint32_t x = other >> (16 * i) & 0xffff, d = dot >> (16 * i) & 0xffff;
    uint32_t all = fields >> (16 * i) & 0xffff;
    // one character that is no digit, if it is a dot; and one digit
    hard |= (uint32_t)((x & ~d) || x & (x - 1) || all == x) << i;
    uint32_t up = x ^ (x - 1); // the bits up to the dot; all of them if there is none
    moves |= (uint64_t)(x ? up & 0xffff : 0) << (16 * i);
    scale[i] = tens[x ? 15 - __builtin_ctz(x) : 0];
    negative |= (uint32_t)(minus >> (16 * i) & 0xffff ? 1 : 0) << i;
  }
  digits = _mm512_maskz_mov_epi8(fields & ~other, digits);
  __m512i from = _mm512_mask_sub_epi8(places, moves, places, _mm512_set1_epi8(1));
  struct simple_four out = {.negative = negative, .hard = hard};
  out.m = values_of(_mm512_shuffle_epi8(digits, from));
  out.scale = _mm256_set_pd(scale[3], scale[2], scale[1], scale[0]);
  return out;
}

static inline size_t put_hard(uint32_t *hard, size_t r, unsigned bits, size_t n)
{
  size_t left = 0;
  for (size_t i = 0; i < n; i++)
    if (bits >> i & 1)
      hard[left++] = (uint32_t)(r + i);
  return left;
}

// The last fields are read as four of which some are the first of them once more.
static inline struct simple_four read_last(const struct manta__csv_fields *f, size_t r, size_t n,
                                           bool dots)
{
  uint32_t first[LANES];
  for (size_t i = 0; i < LANES; i++)
    first[i] = f->first[r + (i < n ? i : 0)];
  struct manta__csv_fields g = *f;
  g.first = first;
  return read_four(&g, 0, dots);
}

static size_t fields_f64(double *out, const struct manta__csv_fields *f, size_t n, uint32_t *hard)
{
  size_t left = 0;
  for (size_t r = 0; r < n; r += LANES) {
    size_t some = n - r < LANES ? n - r : LANES;
    struct simple_four x = some < LANES ? read_last(f, r, some, true) : read_four(f, r, true);
    x.hard |= _mm256_cmpge_epu64_mask(x.m, _mm256_set1_epi64x(INT64_C(1) << 53));
    __m256d v = _mm256_div_pd(_mm256_cvtepu64_pd(x.m), x.scale);
    v = _mm256_mask_xor_pd(v, (__mmask8)x.negative, v, _mm256_set1_pd(-0.0));
    _mm256_mask_storeu_pd(out + r, (__mmask8)((1u << some) - 1), v);
    if (x.hard)
      left += put_hard(hard + left, r, x.hard, some);
  }
  return left;
}

static size_t fields_i64(int64_t *out, const struct manta__csv_fields *f, size_t n, uint32_t *hard)
{
  size_t left = 0;
  for (size_t r = 0; r < n; r += LANES) {
    size_t some = n - r < LANES ? n - r : LANES;
    struct simple_four x = some < LANES ? read_last(f, r, some, false) : read_four(f, r, false);
    __m256i v = _mm256_mask_sub_epi64(x.m, (__mmask8)x.negative, _mm256_setzero_si256(), x.m);
    _mm256_mask_storeu_epi64(out + r, (__mmask8)((1u << some) - 1), v);
    if (x.hard)
      left += put_hard(hard + left, r, x.hard, some);
  }
  return left;
}

#include "data/csv/kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
