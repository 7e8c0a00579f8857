/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/base/random_value.h - trees of every type, the same ones for the same seed.
 */
#ifndef MANTA_RANDOM_VALUE_H
#define MANTA_RANDOM_VALUE_H

#include <math.h>

#include "test.h"

struct gen {
  uint64_t state; /* not 0 */
  bool utf8;      /* strings are well-formed UTF-8 */
};

static uint64_t gen_next(struct gen *g)
{
  g->state ^= g->state << 13;
  g->state ^= g->state >> 7;
  g->state ^= g->state << 17;
  return g->state * 0x2545f4914f6cdd1dULL;
}

static uint32_t gen_below(struct gen *g, uint32_t n)
{
  return (uint32_t)((gen_next(g) >> 32) % n);
}

static int64_t gen_int(struct gen *g)
{
  int64_t near = gen_below(g, 5) - 2;
  uint64_t power = 1ULL << gen_below(g, 64);
  switch (gen_below(g, 3)) {
  case 0:
    return (int64_t)(power + (uint64_t)near);
  case 1:
    return (int64_t)(0 - power + (uint64_t)near);
  default:
    return (int64_t)gen_next(g);
  }
}

static double gen_real(struct gen *g)
{
  static const double odd[] = {0.0,      -0.0,      1.0,   -1.0,   0.1,   1e15,   1e16, 5e-324,
                               INFINITY, -INFINITY, 1e308, 123456, 1e-10, 0x1p53, 1e22, 2.5};
  uint64_t bits = gen_next(g);
  double r;
  memcpy(&r, &bits, sizeof r);
  switch (gen_below(g, 4)) {
  case 0:
    return odd[gen_below(g, sizeof odd / sizeof *odd)];
  case 1:
    return (double)(int64_t)gen_below(g, 100000) / 1000.0;
  case 2:
    return gen_below(g, 8) ? r : NAN;
  default:
    return r;
  }
}

static size_t gen_code_point(struct gen *g, char *to)
{
  static const uint32_t top[] = {0x80, 0x800, 0x10000, 0x110000};
  uint32_t c = gen_below(g, top[gen_below(g, 4)]);
  if (c >= 0xd800 && c < 0xe000)
    c = 0xfffd;
  if (c < 0x80) {
    to[0] = (char)c;
    return 1;
  }
  size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = len - 1; i > 0; i--, c >>= 6)
    to[i] = (char)(0x80 | (c & 0x3f));
  to[0] = (char)((0xf00u >> len & 0xff) | c);
  return len;
}

static size_t gen_text(struct gen *g, char *to, size_t max, bool utf8)
{
  size_t want = gen_below(g, 8) ? gen_below(g, 24) : gen_below(g, (uint32_t)max), n = 0;
  while (n < want && n + 4 <= max) {
    if (utf8)
      n += gen_code_point(g, to + n);
    else
      to[n++] = (char)gen_next(g);
  }
  return n;
}

static void gen_string(struct gen *g, manta_value *out)
{
  char text[400];
  bool bytes = gen_below(g, 3) == 0;
  size_t n = gen_text(g, text, sizeof text, g->utf8 && !bytes);
  assert_int_equal(manta_value_set_bytes(out, text, n), MANTA_OK);
  if (!bytes)
    out->type = MANTA_STRING; // set_string would end at the first NUL
}

static void gen_value(struct gen *g, int depth, manta_value *out);

static void gen_container(struct gen *g, int depth, manta_value *out)
{
  bool map = gen_below(g, 2);
  uint32_t n = gen_below(g, 10) ? gen_below(g, 6) : gen_below(g, 40);
  assert_int_equal(map ? manta_value_set_map(out) : manta_value_set_list(out), MANTA_OK);
  for (uint32_t i = 0; i < n; i++) {
    manta_value item = {0};
    char key[12];
    gen_value(g, depth - 1, &item);
    snprintf(key, sizeof key, "%c%u", 'a' + (int)gen_below(g, 26), gen_below(g, 50));
    assert_int_equal(map ? manta_value_put(out, key, &item) : manta_value_append(out, &item),
                     MANTA_OK);
  }
}

static void gen_value(struct gen *g, int depth, manta_value *out)
{
  switch (gen_below(g, depth > 0 ? 9 : 6)) {
  case 0:
    manta_value_set_nil(out);
    break;
  case 1:
    manta_value_set_bool(out, gen_below(g, 2));
    break;
  case 2:
    manta_value_set_int(out, gen_int(g));
    break;
  case 3:
    manta_value_set_real(out, gen_real(g));
    break;
  case 4:
  case 5:
    gen_string(g, out);
    break;
  default:
    gen_container(g, depth, out);
    break;
  }
}

#endif
