/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce.c - which kernel runs: by type, operation and instruction set.
 *
 * (1) The set is chosen at the first call and stays: the widest that the CPU has and MANTA_COMM_ISA
 *     allows. A name that is not known allows all.
 * (2) One array is copied as it is, whatever the operation: no NaN loses its payload.
 */
#include "comm/reduce.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/reduce_isa.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* __builtin_cpu_supports of clang 14 has no name for it. */
static bool has_f16c(void)
{
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
  return __builtin_cpu_supports("avx2") && has_f16c();
}

static bool has_avx512(void)
{
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static const struct manta__reduce_isa *choose(const char *limit)
{
  if (limit && !strcmp(limit, manta__reduce_scalar.name))
    return &manta__reduce_scalar;
  bool narrow = limit && !strcmp(limit, manta__reduce_avx2.name);
  __builtin_cpu_init();
  if (!narrow && has_avx512())
    return &manta__reduce_avx512;
  return has_avx2() ? &manta__reduce_avx2 : &manta__reduce_scalar;
}
#else
static const struct manta__reduce_isa *choose(const char *limit)
{
  return &manta__reduce_scalar;
}
#endif

/* Threads that race here find the same answer. */
static const struct manta__reduce_isa *isa(void)
{
  static const struct manta__reduce_isa *_Atomic chosen;
  const struct manta__reduce_isa *i = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (!i) {
    i = choose(getenv("MANTA_COMM_ISA"));
    atomic_store_explicit(&chosen, i, memory_order_relaxed);
  }
  return i;
}

const char *manta__reduce_isa(void)
{
  return isa()->name;
}

static enum manta__reduce_kind kind_of(manta_op op)
{
  switch (op) {
  case MANTA_PROD:
    return MANTA__MUL;
  case MANTA_MIN:
    return MANTA__MIN;
  case MANTA_MAX:
    return MANTA__MAX;
  default:
    return MANTA__ADD;
  }
}

bool manta__reduce_valid(manta_dtype type, manta_op op)
{
  if ((unsigned)type >= MANTA_DTYPE_COUNT || (unsigned)op > MANTA_MAX)
    return false;
  return type != MANTA_BOOL8 || op == MANTA_MIN || op == MANTA_MAX;
}

/* Wide enough for n, which a byte is not. */
#define DIVIDE(name, type, wide)                                                                   \
  static void name(unsigned char *p, int n, size_t count)                                          \
  {                                                                                                \
    for (size_t i = 0; i < count; i++) {                                                           \
      type x;                                                                                      \
      memcpy(&x, p + i * sizeof(x), sizeof(x));                                                    \
      x = (type)((wide)x / (wide)n);                                                               \
      memcpy(p + i * sizeof(x), &x, sizeof(x));                                                    \
    }                                                                                              \
  }
DIVIDE(divide_u8, uint8_t, uint32_t)
DIVIDE(divide_i8, int8_t, int32_t)
DIVIDE(divide_u16, uint16_t, uint32_t)
DIVIDE(divide_i16, int16_t, int32_t)
DIVIDE(divide_u32, uint32_t, uint32_t)
DIVIDE(divide_i32, int32_t, int32_t)
DIVIDE(divide_u64, uint64_t, uint64_t)
DIVIDE(divide_i64, int64_t, int64_t)

typedef void divide_fn(unsigned char *p, int n, size_t count);

static divide_fn *const divides[MANTA_DTYPE_COUNT] = {
    [MANTA_U8] = divide_u8,   [MANTA_I8] = divide_i8,   [MANTA_U16] = divide_u16,
    [MANTA_I16] = divide_i16, [MANTA_U32] = divide_u32, [MANTA_I32] = divide_i32,
    [MANTA_U64] = divide_u64, [MANTA_I64] = divide_i64,
};

/* The wide sets have only floats: integers are rare, and 16 bytes at a time outrun the memory. */
static manta__reduce_fn *kernel(manta_dtype type, enum manta__reduce_kind kind)
{
  manta__reduce_fn *wide = isa()->fn[type][kind];
  return wide ? wide : manta__reduce_scalar.fn[type][kind];
}

void manta__reduce(void *out, const void *const *in, int n, size_t count, manta_dtype type,
                   manta_op op)
{
  assert(n >= 1 && n <= MANTA__REDUCE_MAX && manta__reduce_valid(type, op));
  if (!count)
    return;
  if (n == 1) {
    if (out != in[0])
      memcpy(out, in[0], count * manta_dtype_bytes(type));
    return;
  }
  kernel(type, kind_of(op))(out, in, n, count, op == MANTA_MEAN);
  if (op == MANTA_MEAN && divides[type])
    divides[type](out, n, count);
}
