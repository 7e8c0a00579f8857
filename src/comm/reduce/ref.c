/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce/ref.c - reduce.h, word by word: one element at a time, the tree level by level.
 *
 * It shares nothing with the kernels: 16-bit floats are converted by arithmetic, not by bits. Every
 * NaN result is the quiet one without payload, except that one array is copied as it is.
 */
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "comm/reduce/reduce.h"

union node {
  float f;
  double d;
  uint64_t u;
  int64_t i;
};

enum family { UNSIGNED, SIGNED, SINGLE, DOUBLE };

static enum family family_of(manta_dtype type)
{
  switch (type) {
  case MANTA_I8:
  case MANTA_I16:
  case MANTA_I32:
  case MANTA_I64:
    return SIGNED;
  case MANTA_F16:
  case MANTA_BF16:
  case MANTA_F32:
    return SINGLE;
  case MANTA_F64:
    return DOUBLE;
  default:
    return UNSIGNED;
  }
}

static float widen_f16(uint16_t h)
{
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  float v =
      exponent ? ldexpf((float)(1024 + mantissa), exponent - 25) : ldexpf((float)mantissa, -24);
  if (exponent == 31)
    v = mantissa ? NAN : INFINITY;
  return h & 0x8000 ? -v : v;
}

static uint16_t narrow_f16(float f)
{
  uint16_t sign = signbit(f) ? 0x8000 : 0;
  int exponent;
  float a = fabsf(f);
  if (isnan(f))
    return 0x7e00;
  if (a >= 65520.0f) // half way from the largest to what would come next
    return sign | 0x7c00;
  frexpf(a, &exponent);
  int unit = a < 0x1p-14f ? -24 : exponent - 11; // of the last place
  int steps = (int)rint(ldexp(a, -unit));        // to nearest even
  return (uint16_t)(sign | (steps + (unit + 24) * 1024));
}

static float widen_bf16(uint16_t h)
{
  uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

static uint16_t narrow_bf16(float f)
{
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (isnan(f))
    return 0x7fc0;
  uint32_t kept = bits >> 16, rest = bits & 0xffff;
  if (rest > 0x8000 || (rest == 0x8000 && kept & 1))
    kept++;
  return (uint16_t)kept;
}

static uint64_t sign_extend(uint64_t u, size_t bytes)
{
  unsigned unused = (unsigned)(64 - 8 * bytes);
  return (uint64_t)((int64_t)(u << unused) >> unused);
}

static union node load(const void *array, size_t i, manta_dtype type)
{
  size_t bytes = manta_dtype_bytes(type);
  union node v = {.u = 0};
  memcpy(&v, (const char *)array + i * bytes, bytes); // little endian, as manta's hosts are
  if (type == MANTA_F16)
    v.f = widen_f16((uint16_t)v.u);
  else if (type == MANTA_BF16)
    v.f = widen_bf16((uint16_t)v.u);
  else if (family_of(type) == SIGNED)
    v.u = sign_extend(v.u, bytes);
  return v;
}

static void store(void *array, size_t i, manta_dtype type, union node v)
{
  size_t bytes = manta_dtype_bytes(type);
  if (type == MANTA_F16)
    v.u = narrow_f16(v.f);
  else if (type == MANTA_BF16)
    v.u = narrow_bf16(v.f);
  else if (type == MANTA_F32 && isnan(v.f))
    v.u = 0x7fc00000;
  else if (type == MANTA_F64 && isnan(v.d))
    v.u = 0x7ff8000000000000;
  memcpy((char *)array + i * bytes, &v, bytes);
}

/* -0 is below +0; a NaN stays. */
static double least(double a, double b)
{
  if (isnan(a) || isnan(b))
    return NAN;
  if (a == b)
    return signbit(a) ? a : b;
  return a < b ? a : b;
}

static float combine_f(float a, float b, manta_op op)
{
  switch (op) {
  case MANTA_PROD:
    return a * b;
  case MANTA_MIN:
    return (float)least(a, b);
  case MANTA_MAX:
    return -(float)least(-a, -b);
  default:
    return a + b;
  }
}

static double combine_d(double a, double b, manta_op op)
{
  switch (op) {
  case MANTA_PROD:
    return a * b;
  case MANTA_MIN:
    return least(a, b);
  case MANTA_MAX:
    return -least(-a, -b);
  default:
    return a + b;
  }
}

static union node combine_int(union node a, union node b, manta_op op, enum family family)
{
  bool less = family == SIGNED ? a.i < b.i : a.u < b.u;
  switch (op) {
  case MANTA_PROD:
    return (union node){.u = a.u * b.u};
  case MANTA_MIN:
    return less ? a : b;
  case MANTA_MAX:
    return less ? b : a;
  case MANTA_BAND:
    return (union node){.u = a.u & b.u};
  case MANTA_BOR:
    return (union node){.u = a.u | b.u};
  case MANTA_BXOR:
    return (union node){.u = a.u ^ b.u};
  default:
    return (union node){.u = a.u + b.u};
  }
}

static union node combine(union node a, union node b, manta_op op, enum family family)
{
  if (family == SINGLE)
    return (union node){.f = combine_f(a.f, b.f, op)};
  if (family == DOUBLE)
    return (union node){.d = combine_d(a.d, b.d, op)};
  return combine_int(a, b, op, family);
}

/* Neighbours, then neighbours of those; an odd one moves up. */
static union node tree(union node *v, int n, manta_op op, enum family family)
{
  for (; n > 1; n = (n + 1) / 2) {
    for (int i = 0; i < n / 2; i++)
      v[i] = combine(v[2 * i], v[2 * i + 1], op, family);
    if (n % 2)
      v[n / 2] = v[n - 1];
  }
  return v[0];
}

static union node mean(union node sum, int n, enum family family, size_t bytes)
{
  unsigned unused = (unsigned)(64 - 8 * bytes);
  switch (family) {
  case SINGLE:
    return (union node){.f = sum.f * (1.0f / (float)n)};
  case DOUBLE:
    return (union node){.d = sum.d * (1.0 / n)};
  case SIGNED: // the sum wrapped where its type does
    return (union node){.i = (int64_t)sign_extend(sum.u, bytes) / n};
  default:
    return (union node){.u = (sum.u << unused >> unused) / (uint64_t)n};
  }
}

/* v: room for n, of the caller: AddressSanitizer marks the whole of an array that comes to life. */
static void reduce_one(void *out, const void *const *in, int n, size_t i, manta_dtype type,
                       manta_op op, union node *v)
{
  enum family family = family_of(type);
  for (int k = 0; k < n; k++)
    v[k] = load(in[k], i, type);
  union node r = tree(v, n, op, family);
  if (op == MANTA_MEAN)
    r = mean(r, n, family, manta_dtype_bytes(type));
  store(out, i, type, r);
}

void manta__reduce_ref(void *out, const void *const *in, int n, size_t count, manta_dtype type,
                       manta_op op)
{
  assert(n >= 1 && n <= MANTA__REDUCE_MAX && manta__reduce_valid(type, op));
  if (n == 1) {
    memmove(out, in[0], count * manta_dtype_bytes(type));
    return;
  }
  union node v[MANTA__REDUCE_MAX];
  for (size_t i = 0; i < count; i++)
    reduce_one(out, in, n, i, type, op, v);
}
