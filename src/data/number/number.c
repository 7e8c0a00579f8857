/* SPDX-License-Identifier: Apache-2.0 */
#include "data/number/number.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DIGITS       19  /* that a uint64_t holds, whatever they are */
#define DIGITS_KEPT  800 /* behind those no digit can matter, only whether there is one: 767 do */
#define EXPONENT_MAX 100000

// --- digits -------------------------------------------------------------------------------------

static bool is_digit(char c)
{
  return (unsigned char)(c - '0') < 10;
}

// Eight digits at once; `w` has the first in its lowest byte.
static bool eight_digits(uint64_t w)
{
  return ((w & 0xf0f0f0f0f0f0f0f0) | ((w + 0x0606060606060606) & 0xf0f0f0f0f0f0f0f0) >> 4) ==
         0x3333333333333333;
}

static uint64_t value_of_eight(uint64_t w)
{
  w = (w & 0x0f0f0f0f0f0f0f0f) * 2561 >> 8; // pairs: 10 a + b
  w = (w & 0x00ff00ff00ff00ff) * 6553601 >> 16;
  return (w & 0x0000ffff0000ffff) * 42949672960001 >> 32;
}

// Digits at p up to `end` into *m, which takes at most `room` of them; returns where they end.
static const char *take_digits(const char *p, const char *end, uint64_t *m, int *room)
{
  uint64_t w;
  for (; end - p >= 8 && *room >= 8; p += 8, *room -= 8) {
    memcpy(&w, p, 8);
    if (!eight_digits(w))
      break;
    *m = *m * 100000000 + value_of_eight(w);
  }
  for (; p<end && * room> 0 && is_digit(*p); p++, --*room)
    *m = *m * 10 + (uint64_t)(*p - '0');
  return p;
}

static void trim(const char **p, const char **end)
{
  while (*p < *end && (**p == ' ' || **p == '\t'))
    ++*p;
  while (*end > *p && ((*end)[-1] == ' ' || (*end)[-1] == '\t'))
    --*end;
}

static bool take_sign(const char **p, const char *end)
{
  if (*p < end && (**p == '-' || **p == '+'))
    return *(*p)++ == '-';
  return false;
}

// --- integers -----------------------------------------------------------------------------------

// Sign and magnitude, if that fits 64 bits.
static bool magnitude(const char *p, size_t n, uint64_t *out, bool *negative)
{
  const char *end = p + n;
  uint64_t m = 0;
  int room = DIGITS;
  trim(&p, &end);
  *negative = take_sign(&p, end);
  const char *first = p;
  while (end - p > 1 && *p == '0')
    p++;
  p = take_digits(p, end, &m, &room);
  if (p < end && is_digit(*p) && room == 0) { // the twentieth
    uint64_t last = (uint64_t)(*p++ - '0');
    if (m > UINT64_MAX / 10 || m * 10 > UINT64_MAX - last)
      return false;
    m = m * 10 + last;
  }
  *out = m;
  return p == end && p > first;
}

bool manta__number_i64(const char *p, size_t n, int64_t *out)
{
  uint64_t m;
  bool negative;
  if (!magnitude(p, n, &m, &negative) || m > (uint64_t)INT64_MAX + negative)
    return false;
  *out = (int64_t)(negative ? 0 - m : m);
  return true;
}

bool manta__number_u64(const char *p, size_t n, uint64_t *out)
{
  uint64_t m;
  bool negative;
  if (!magnitude(p, n, &m, &negative) || (negative && m))
    return false;
  *out = m;
  return true;
}

// --- reals --------------------------------------------------------------------------------------

// A decimal under the eye: where its digits are, and the place of the last one in m.
struct number_reading {
  struct manta__decimal d;
  const char *p, *end;
  const char *first, *dot, *last; /* of the digits; dot may be NULL */
};

static bool take_exponent(struct number_reading *r, int64_t *out)
{
  int64_t e = 0;
  *out = 0;
  if (r->p == r->end || (*r->p != 'e' && *r->p != 'E'))
    return true;
  r->p++;
  bool negative = take_sign(&r->p, r->end);
  if (r->p == r->end || !is_digit(*r->p))
    return false;
  for (; r->p < r->end && is_digit(*r->p); r->p++)
    e = e < EXPONENT_MAX ? e * 10 + (*r->p - '0') : e;
  *out = negative ? -e : e;
  return true;
}

static const char *skip_zeros(const char *p, const char *end)
{
  while (p < end && *p == '0')
    p++;
  return p;
}

// Passes over the digits that m has no room for; counts those in front of the dot.
static const char *drop_digits(struct number_reading *r, const char *p, int64_t *dropped)
{
  for (; p < r->end && is_digit(*p); p++, ++*dropped)
    r->d.more |= *p != '0';
  return p;
}

// DIGITS [. DIGITS], into m and the exponent that m then has.
static bool take_mantissa(struct number_reading *r)
{
  int room = DIGITS;
  int64_t dropped = 0, behind = 0, ignored = 0;
  r->first = r->p;
  const char *p = take_digits(skip_zeros(r->p, r->end), r->end, &r->d.m, &room);
  p = drop_digits(r, p, &dropped);
  int64_t count = p - r->p;
  if (p < r->end && *p == '.') {
    const char *from = r->dot = p++;
    const char *start = r->d.m ? p : skip_zeros(p, r->end);
    p = take_digits(start, r->end, &r->d.m, &room);
    behind = p - from - 1;
    p = drop_digits(r, p, &ignored);
    count += p - from - 1;
  }
  r->p = r->last = p;
  r->d.exponent = dropped - behind;
  return count > 0;
}

static locale_t c_locale;

static void make_locale(void)
{
  c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

// What 128 bits do not decide: strtod gets the digits that can matter, and a 1 for all behind them.
static double ask_strtod(const struct number_reading *r, int64_t exponent)
{
  char text[DIGITS_KEPT + 64];
  size_t n = 0;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_locale);
  text[n++] = r->d.negative ? '-' : '+';
  size_t begin = n;
  bool more = false;
  for (const char *p = r->first; p < r->last; p++) {
    if (*p == '.' || (n == begin && *p == '0')) {
      exponent -= r->dot && p > r->dot;
      continue;
    }
    if (n - begin < DIGITS_KEPT) {
      text[n++] = *p;
      exponent -= r->dot && p > r->dot;
    } else {
      more |= *p != '0';
      exponent += !(r->dot && p > r->dot);
    }
  }
  if (more) {
    text[n++] = '1';
    exponent--;
  }
  snprintf(text + n, sizeof text - n, "e%lld", (long long)exponent);
  return c_locale ? strtod_l(text, NULL, c_locale) : strtod(text, NULL);
}

static bool is_word(const char *p, size_t n, const char *word)
{
  return strlen(word) == n && !strncasecmp(p, word, n);
}

static bool take_word(const struct number_reading *r, double *out)
{
  size_t n = (size_t)(r->end - r->p);
  double v;
  if (is_word(r->p, n, "nan"))
    v = __builtin_nan("");
  else if (is_word(r->p, n, "inf") || is_word(r->p, n, "infinity"))
    v = __builtin_inf();
  else
    return false;
  *out = r->d.negative ? -v : v;
  return true;
}

bool manta__number_f64(const char *p, size_t n, double *out)
{
  struct number_reading r = {.p = p, .end = p + n};
  int64_t e;
  trim(&r.p, &r.end);
  r.d.negative = take_sign(&r.p, r.end);
  if (r.p == r.end)
    return false;
  if (!is_digit(*r.p) && *r.p != '.')
    return take_word(&r, out);
  if (!take_mantissa(&r) || !take_exponent(&r, &e) || r.p != r.end)
    return false;
  r.d.exponent += e;
  if (!manta__decimal_f64(&r.d, out))
    *out = ask_strtod(&r, e);
  return true;
}
