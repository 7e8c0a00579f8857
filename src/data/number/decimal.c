/* SPDX-License-Identifier: Apache-2.0
 *
 * data/number/decimal.c - m * 10^e to the nearest double.
 *
 * (1) Small cases are exact: m below 2^53 and a power of ten that a double holds exactly (up to
 *     10^22) make one multiplication or division, which IEEE rounds once (Clinger 1990).
 * (2) Else m times the first 128 bits of 5^e decides, but for rare ties that those bits cannot tell
 *     from their neighbours (Lemire, "Number Parsing at a Gigabyte per Second", 2021, where the
 *     bounds used here are proved).
 * (3) The powers are computed when they are first needed, exactly, by long multiplication and
 *     division by 5, and cut to 128 bits. Down to 10^-27, where m may be a multiple of the divisor,
 *     they are rounded up: the product of such an m then shows that it is exact.
 */
#include <pthread.h>
#include <string.h>

#include "data/number/number.h"

#define LEAST (-342) /* m * 10^e is 0 below, for m of 64 bits */
#define MOST  308    /* and infinite above */
#define TIES  (-27)  /* 5^27 is the last power that fits 64 bits */

struct power {
  uint64_t high, low;
};

static struct power powers[MOST - LEAST + 1];

// --- the table ----------------------------------------------------------------------------------

#define WORDS 20 /* 1280 bits: 5^308 has 716, and 2^(WORDS * 64) / 5^342 keeps 485 */

// The first 128 bits of a long number, from its highest bit that is set.
static struct power leading(const uint64_t w[WORDS])
{
  int top = WORDS - 1;
  while (w[top] == 0)
    top--;
  uint64_t a = w[top], b = top > 0 ? w[top - 1] : 0, c = top > 1 ? w[top - 2] : 0;
  int shift = __builtin_clzll(a);
  if (shift == 0)
    return (struct power){a, b};
  return (struct power){a << shift | b >> (64 - shift), b << shift | c >> (64 - shift)};
}

static void make_positive(void)
{
  uint64_t w[WORDS] = {1};
  for (int e = 0; e <= MOST; e++) {
    unsigned __int128 carry = 0;
    powers[e - LEAST] = leading(w);
    for (int i = 0; i < WORDS; i++) {
      carry += (unsigned __int128)w[i] * 5;
      w[i] = (uint64_t)carry;
      carry >>= 64;
    }
  }
}

// floor(floor(x / 5) / 5) is floor(x / 25): each step is exact.
static void make_negative(void)
{
  uint64_t w[WORDS] = {0};
  w[WORDS - 1] = UINT64_C(1) << 63;
  for (int e = -1; e >= LEAST; e--) {
    unsigned __int128 rest = 0;
    for (int i = WORDS - 1; i >= 0; i--) {
      rest = rest << 64 | w[i];
      w[i] = (uint64_t)(rest / 5);
      rest %= 5;
    }
    struct power p = leading(w);
    if (e >= TIES)
      p.high += ++p.low == 0;
    powers[e - LEAST] = p;
  }
}

static void make_powers(void)
{
  make_positive();
  make_negative();
}

static const struct power *power_of(int64_t e)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_powers);
  return &powers[e - LEAST];
}

// --- rounding -----------------------------------------------------------------------------------

static double of_bits(uint64_t bits, bool negative)
{
  double d;
  bits |= (uint64_t)negative << 63;
  memcpy(&d, &bits, sizeof d);
  return d;
}

// The product of m, shifted to its highest bit, and the power: 128 bits of it, or 192 where the
// first do not decide.
static struct power product(uint64_t m, const struct power *p)
{
  unsigned __int128 first = (unsigned __int128)m * p->high;
  struct power r = {(uint64_t)(first >> 64), (uint64_t)first};
  if ((r.high & 0x1ff) == 0x1ff) { // a carry could reach the bits that are kept
    uint64_t second = (uint64_t)((unsigned __int128)m * p->low >> 64);
    r.low += second;
    r.high += r.low < second;
  }
  return r;
}

// Below the normal numbers there are fewer bits to keep.
static bool subnormal(uint64_t mantissa, int binary, bool negative, double *out)
{
  if (1 - binary >= 64) {
    *out = of_bits(0, negative);
    return true;
  }
  mantissa >>= 1 - binary;
  mantissa += mantissa & 1;
  *out = of_bits(mantissa >> 1, negative); // 2^52 is the first normal one, and its bits say so
  return true;
}

static bool nearest(const struct manta__decimal *d, uint64_t m, double *out)
{
  int shift = __builtin_clzll(m);
  int64_t e = d->exponent;
  struct power r = product(m << shift, power_of(e));
  if (r.low == UINT64_MAX && (e < -27 || e > 55))
    return false;
  int upper = (int)(r.high >> 63);
  uint64_t mantissa = r.high >> (upper + 9);
  // floor(log2(10^e)) + 63, in integers
  int binary = (int)((e * 217706) >> 16) + 63 + upper - shift + 1023;
  if (binary <= 0)
    return subnormal(mantissa, binary, d->negative, out);
  // Half way between two doubles, exactly: to the even one.
  if (r.low <= 1 && e >= -4 && e <= 23 && (mantissa & 3) == 1 && mantissa << (upper + 9) == r.high)
    mantissa &= ~UINT64_C(1);
  mantissa += mantissa & 1;
  mantissa >>= 1;
  if (mantissa >> 53) { // rounding made it one bit longer
    mantissa >>= 1;
    binary++;
  }
  mantissa &= ~(UINT64_C(1) << 52);
  *out = binary >= 2047 ? of_bits(UINT64_C(0x7ff) << 52, d->negative)
                        : of_bits(mantissa | (uint64_t)binary << 52, d->negative);
  return true;
}

static bool is_small(const struct manta__decimal *d, double *out)
{
  static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  if (d->m >> 53 || d->exponent < -22 || d->exponent > 22 || d->more)
    return false;
  double v = (double)d->m;
  v = d->exponent < 0 ? v / tens[-d->exponent] : v * tens[d->exponent];
  *out = d->negative ? -v : v;
  return true;
}

bool manta__decimal_f64(const struct manta__decimal *d, double *out)
{
  double above;
  if (is_small(d, out))
    return true;
  if (d->m == 0 || d->exponent < LEAST) {
    *out = of_bits(0, d->negative);
    return !(d->m && d->more); // dropped digits cannot lift it, but let strtod say so
  }
  if (d->exponent > MOST) {
    *out = of_bits(UINT64_C(0x7ff) << 52, d->negative);
    return true;
  }
  if (!nearest(d, d->m, out))
    return false;
  // With digits dropped the number lies between m and m + 1: both have to round the same way.
  return !d->more || (d->m + 1 && nearest(d, d->m + 1, &above) && above == *out);
}
