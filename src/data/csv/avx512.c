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

INLINE block_type block_of(const uint8_t *p)
{
  return _mm512_loadu_si512(p);
}

INLINE uint64_t equal(block_type b, uint8_t byte)
{
  return _mm512_cmpeq_epi8_mask(b, _mm512_set1_epi8((char)byte));
}

// The numbers 0 to 15 that have a bit, moved together, four times.
INLINE void put_bits(uint32_t *pos, uint32_t at, uint64_t bits)
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

// 10 to the power of the digits behind a dot at each of 16 places; one at the last has none.
static const double scales[16] = {1e15, 1e14, 1e13, 1e12, 1e11, 1e10, 1e9, 1e8,
                                  1e7,  1e6,  1e5,  1e4,  1e3,  1e2,  1e1, 1e0};

/* Four fields; in `hard` and `negative` each has a bit. */
struct simple_four {
  __m256i m;
  __m256d scale;
  unsigned negative, hard;
};

// Four times 16 digits, the first in the lowest byte of its lane, zeros in front.
INLINE __m256i values_of(__m512i digits)
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

/* One column, with what does not change from row to row at hand. */
struct aim_four {
  const uint8_t *text;
  const uint32_t *pos; /* of the column in the first row */
  bool last;           /* a CR in front of the end is none of the field */
};

// Where the field in front ends, and where this one does, of four rows.
INLINE __m256i load_ends(const uint32_t *const p[LANES])
{
  __m128i low = _mm_loadl_epi64((const __m128i *)(p[0] - 1));
  __m128i high = _mm_loadl_epi64((const __m128i *)(p[2] - 1));
  low = _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(low), (const double *)(p[1] - 1)));
  high = _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(high), (const double *)(p[3] - 1)));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* 16 bytes in front of the ends of four fields, and how many of them each field has. */
struct four_fields {
  __m512i v;
  __m256i n;
};

INLINE struct four_fields load_four(const struct aim_four *f, const uint32_t *first)
{
  const uint32_t *p[LANES] = {f->pos + first[0], f->pos + first[1], f->pos + first[2],
                              f->pos + first[3]};
  __m256i ends = load_ends(p), one = _mm256_set1_epi32(1);
  __m256i n = _mm256_sub_epi32(_mm256_sub_epi32(_mm256_srli_epi64(ends, 32), ends), one);
  size_t end[LANES];
  for (size_t i = 0; i < LANES; i++)
    end[i] = *p[i];
  if (f->last) {
    uint64_t cr[LANES];
    for (size_t i = 0; i < LANES; i++)
      end[i] -= cr[i] = f->text[end[i] - 1] == '\r';
    n = _mm256_sub_epi32(n, _mm256_set_epi64x((long long)cr[3], (long long)cr[2], (long long)cr[1],
                                              (long long)cr[0]));
  }
  struct four_fields out = {.n = _mm256_and_si256(n, _mm256_set1_epi64x(0xffffffff))};
  out.v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(f->text + end[0] - 16)));
  for (int i = 1; i < LANES; i++) {
    __m128i lane = _mm_loadu_si128((const __m128i *)(f->text + end[i] - 16));
    out.v = i == 1   ? _mm512_inserti32x4(out.v, lane, 1)
            : i == 2 ? _mm512_inserti32x4(out.v, lane, 2)
                     : _mm512_inserti32x4(out.v, lane, 3);
  }
  return out;
}

// A bit for each field that has a bit among its 16.
INLINE unsigned any_of(uint64_t mask)
{
  return _mm_test_epi16_mask(_mm_cvtsi64_si128((long long)mask), _mm_set1_epi16(-1));
}

// [-] digits [. digits], 16 characters at most and one digit at least.
INLINE struct simple_four read_four(const struct aim_four *f, const uint32_t *first, bool dots)
{
  const __m512i places = _mm512_set4_epi32(0x0f0e0d0c, 0x0b0a0908, 0x07060504, 0x03020100);
  const __m512i behind = _mm512_sub_epi8(_mm512_set1_epi8(15), places); // bytes that follow
  struct four_fields in = load_four(f, first);
  struct simple_four out = {
      .hard = _mm256_cmpgt_epu64_mask(_mm256_sub_epi64(in.n, _mm256_set1_epi64x(1)),
                                      _mm256_set1_epi64x(15))};
  // The number of characters in each byte of its lane: those bytes are the field that few follow.
  __m512i n = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3),
                                       _mm512_castsi256_si512(in.n));
  n = _mm512_shuffle_epi8(n, _mm512_setzero_si512());
  uint64_t field = _mm512_cmpgt_epi8_mask(n, behind);
  uint64_t begin = _mm512_cmpeq_epi8_mask(n, _mm512_add_epi8(behind, _mm512_set1_epi8(1)));
  uint64_t minus = _mm512_mask_cmpeq_epi8_mask(begin, in.v, _mm512_set1_epi8('-'));
  field &= ~minus;
  __m512i digits = _mm512_sub_epi8(in.v, _mm512_set1_epi8('0'));
  uint64_t other = _mm512_mask_cmpgt_epu8_mask(field, digits, _mm512_set1_epi8(9));
  uint64_t dot = dots ? _mm512_mask_cmpeq_epi8_mask(other, in.v, _mm512_set1_epi8('.')) : 0;
  // Left to the caller: what is neither digit nor dot, two dots, no digit.
  __m128i x = _mm_cvtsi64_si128((long long)other), below = _mm_sub_epi16(x, _mm_set1_epi16(1));
  out.hard |=
      any_of(other ^ dot) | (_mm_test_epi16_mask(x, below) & 15) | (~any_of(field ^ other) & 15);
  out.negative = any_of(minus);
  // Digits in front of the dot move on by one place, over it.
  __mmask8 dotted = _mm_test_epi16_mask(x, x);
  uint64_t moves =
      (uint64_t)_mm_cvtsi128_si64(_mm_maskz_mov_epi16(dotted, _mm_xor_si128(x, below)));
  __m512i from = _mm512_mask_sub_epi8(places, moves, places, _mm512_set1_epi8(1));
  out.m = values_of(_mm512_shuffle_epi8(_mm512_maskz_mov_epi8(field ^ other, digits), from));
  uint64_t at = other | 0x8000800080008000; // as if each had a dot, at its end if nowhere else
  out.scale = _mm256_set_pd(scales[__builtin_ctzll(at >> 48)], scales[__builtin_ctzll(at >> 32)],
                            scales[__builtin_ctzll(at >> 16)], scales[__builtin_ctzll(at)]);
  return out;
}

INLINE size_t put_hard(uint32_t *hard, size_t r, unsigned bits, size_t n)
{
  size_t left = 0;
  for (size_t i = 0; i < n; i++)
    if (bits >> i & 1)
      hard[left++] = (uint32_t)(r + i);
  return left;
}

// The last fields are read as four of which some are the first of them once more.
INLINE struct simple_four read_some(const struct aim_four *f, const uint32_t *first, size_t n,
                                    bool dots)
{
  uint32_t four[LANES];
  if (n >= LANES)
    return read_four(f, first, dots);
  for (size_t i = 0; i < LANES; i++)
    four[i] = first[i < n ? i : 0];
  return read_four(f, four, dots);
}

INLINE size_t all_f64(double *out, const struct aim_four *aim, const uint32_t *first, size_t n,
                      uint32_t *hard)
{
  size_t left = 0;
  for (size_t r = 0; r < n; r += LANES) {
    size_t some = n - r < LANES ? n - r : LANES;
    struct simple_four x = read_some(aim, first + r, n - r, true);
    x.hard |= _mm256_cmpge_epu64_mask(x.m, _mm256_set1_epi64x(INT64_C(1) << 53));
    __m256d v = _mm256_div_pd(_mm256_cvtepu64_pd(x.m), x.scale);
    v = _mm256_mask_xor_pd(v, (__mmask8)x.negative, v, _mm256_set1_pd(-0.0));
    _mm256_mask_storeu_pd(out + r, (__mmask8)((1u << some) - 1), v);
    if (x.hard)
      left += put_hard(hard + left, r, x.hard, some);
  }
  return left;
}

INLINE size_t all_i64(int64_t *out, const struct aim_four *aim, const uint32_t *first, size_t n,
                      uint32_t *hard)
{
  size_t left = 0;
  for (size_t r = 0; r < n; r += LANES) {
    size_t some = n - r < LANES ? n - r : LANES;
    struct simple_four x = read_some(aim, first + r, n - r, false);
    __m256i v = _mm256_mask_sub_epi64(x.m, (__mmask8)x.negative, _mm256_setzero_si256(), x.m);
    _mm256_mask_storeu_epi64(out + r, (__mmask8)((1u << some) - 1), v);
    if (x.hard)
      left += put_hard(hard + left, r, x.hard, some);
  }
  return left;
}

// Once for the last column of rows and once for the others, which have no CR to look for.
static size_t fields_f64(double *out, const struct manta__csv_fields *f, size_t n, uint32_t *hard)
{
  const uint32_t *pos = f->pos + f->column;
  if (f->last)
    return all_f64(out, &(struct aim_four){f->text, pos, true}, f->first, n, hard);
  return all_f64(out, &(struct aim_four){f->text, pos, false}, f->first, n, hard);
}

static size_t fields_i64(int64_t *out, const struct manta__csv_fields *f, size_t n, uint32_t *hard)
{
  const uint32_t *pos = f->pos + f->column;
  if (f->last)
    return all_i64(out, &(struct aim_four){f->text, pos, true}, f->first, n, hard);
  return all_i64(out, &(struct aim_four){f->text, pos, false}, f->first, n, hard);
}

#include "data/csv/kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
