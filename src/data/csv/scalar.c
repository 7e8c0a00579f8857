/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/scalar.c - the inner loops for any CPU: words of 8 bytes.
 */
#include <string.h>

#include "data/csv/isa.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=off")
#endif

#define ISA scalar

typedef struct csv_words {
  uint64_t w[8];
} block_type;

INLINE block_type block_of(const uint8_t *p)
{
  block_type b;
  memcpy(&b, p, sizeof b);
  return b;
}

// The highest bit of each byte that is 0 after the xor, gathered by a multiplication.
INLINE uint64_t equal_word(uint64_t w, uint64_t pattern)
{
  const uint64_t low = 0x7f7f7f7f7f7f7f7f;
  w ^= pattern;
  w = ~(((w & low) + low) | w | low);
  return (w >> 7) * 0x0102040810204080 >> 56;
}

INLINE uint64_t equal(block_type b, uint8_t byte)
{
  uint64_t pattern = byte * UINT64_C(0x0101010101010101), bits = 0;
  for (int i = 0; i < 8; i++)
    bits |= equal_word(b.w[i], pattern) << (8 * i);
  return bits;
}

INLINE void put_bits(uint32_t *pos, uint32_t at, uint64_t bits)
{
  for (; bits; bits &= bits - 1)
    *pos++ = at + (uint32_t)__builtin_ctzll(bits);
}

// --- numbers ------------------------------------------------------------------------------------

static const double tens[16] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

struct simple_word {
  uint64_t m;
  int behind; /* digits behind the dot */
  bool negative;
};

// [-] digits [. digits], 16 characters at most and one digit at least.
INLINE bool read_simple(const uint8_t *p, size_t n, bool dots, struct simple_word *out)
{
  const uint8_t *end = p + n, *dot = NULL;
  int digits = 0;
  *out = (struct simple_word){0};
  if (n == 0 || n > 16)
    return false;
  if (*p == '-') {
    out->negative = true;
    p++;
  }
  for (; p < end; p++) {
    unsigned d = *p - '0';
    if (d > 9) {
      if (*p != '.' || dot || !dots)
        return false;
      dot = p;
      continue;
    }
    out->m = out->m * 10 + d;
    digits++;
  }
  out->behind = dot ? (int)(end - dot) - 1 : 0;
  return digits > 0;
}

static size_t fields_f64(double *out, const struct manta__csv_fields *f, size_t n, uint32_t *hard)
{
  size_t left = 0;
  for (size_t r = 0; r < n; r++) {
    size_t begin = manta__csv_begin(f, r);
    struct simple_word s;
    if (!read_simple(f->text + begin, manta__csv_end(f, r) - begin, true, &s) || s.m >> 53) {
      hard[left++] = (uint32_t)r;
      continue;
    }
    double v = (double)s.m / tens[s.behind];
    out[r] = s.negative ? -v : v;
  }
  return left;
}

static size_t fields_i64(int64_t *out, const struct manta__csv_fields *f, size_t n, uint32_t *hard)
{
  size_t left = 0;
  for (size_t r = 0; r < n; r++) {
    size_t begin = manta__csv_begin(f, r);
    struct simple_word s;
    if (!read_simple(f->text + begin, manta__csv_end(f, r) - begin, false, &s)) {
      hard[left++] = (uint32_t)r;
      continue;
    }
    out[r] = s.negative ? -(int64_t)s.m : (int64_t)s.m;
  }
  return left;
}

#include "data/csv/kernels.h"
