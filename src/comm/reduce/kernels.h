/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/reduce/kernels.h - all kernels of one instruction set, in vectors of VBYTES; included once
 * by each of its files, after ISA, VBYTES and INTEGERS (whether it has those, too).
 *
 * (1) A partial vector is padded with zeros and takes the same way as a whole one: there is no
 *     second, scalar arithmetic that could round otherwise.
 * (2) Which of two NaNs survives an addition is the compiler's and the CPU's whim; so every NaN
 *     result is the one quiet NaN with no payload.
 * (3) MIN and MAX are those of IEEE 754-2019: -0 is below +0, and a NaN stays.
 */
#ifdef MANTA_SANITIZED
// Speed is no matter there, and clang takes up to six times as long where all is one function.
#define INLINE static inline
#else
#define INLINE static inline __attribute__((always_inline))
#endif
#define GLUE(a, b)  GLUE2(a, b)
#define GLUE2(a, b) a##_##b

#define SYMBOL(isa)   GLUE(manta__reduce, isa)
#define NAME_OF(isa)  NAME_OF2(isa)
#define NAME_OF2(isa) #isa

#define SLOT_BYTES   2048
#define STREAM_BYTES (16u << 20) // what a core can hope to hold of a last-level cache
#define SLOTS        12 // MANTA__REDUCE_MAX / 4 groups: ten carries, the top and one to spare

#define VECTOR(name, type, bytes) typedef type name __attribute__((vector_size(bytes)))
#define LOOSE(name, vec)          typedef vec name __attribute__((aligned(1), may_alias))

VECTOR(v_u8, uint8_t, VBYTES);
VECTOR(v_i8, int8_t, VBYTES);
VECTOR(v_u16, uint16_t, VBYTES);
VECTOR(v_i16, int16_t, VBYTES);
VECTOR(v_u32, uint32_t, VBYTES);
VECTOR(v_i32, int32_t, VBYTES);
VECTOR(v_u64, uint64_t, VBYTES);
VECTOR(v_i64, int64_t, VBYTES);
VECTOR(v_f32, float, VBYTES);
VECTOR(v_f64, double, VBYTES);
VECTOR(h_u8, uint8_t, VBYTES / 2); // as many 16-bit floats as fit a v_f32
VECTOR(h_u16, uint16_t, VBYTES / 2);
VECTOR(h_u64, uint64_t, VBYTES / 2);
LOOSE(loose_v, v_u8);
LOOSE(loose_h, h_u8);

/* Memory: whole vectors at any alignment, and the first `part` bytes of one. */
#if VBYTES == 64
INLINE v_u8 load_part(const void *p, size_t part)
{
  return (v_u8)_mm512_maskz_loadu_epi8(~(__mmask64)0 >> (64 - part), p);
}

INLINE h_u8 load_part_h(const void *p, size_t part)
{
  return (h_u8)_mm256_maskz_loadu_epi8(~(__mmask32)0 >> (32 - part), p);
}

INLINE void store_part(void *p, v_u8 v, size_t part)
{
  _mm512_mask_storeu_epi8(p, ~(__mmask64)0 >> (64 - part), (__m512i)v);
}

INLINE void store_part_h(void *p, h_u8 v, size_t part)
{
  _mm256_mask_storeu_epi8(p, ~(__mmask32)0 >> (32 - part), (__m256i)v);
}
#else
#if VBYTES == 32
/* A store of part of a vector and a load of all of it stall; words have masks, which do not. */
INLINE __m256i first_words(size_t part)
{
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(part / 4)), index);
}

INLINE v_u8 load_part(const void *p, size_t part)
{
  return (v_u8)_mm256_maskload_epi32(p, first_words(part));
}

INLINE void store_part(void *p, v_u8 v, size_t part)
{
  _mm256_maskstore_epi32(p, first_words(part), (__m256i)v);
}
#else
INLINE v_u8 load_part(const void *p, size_t part)
{
  v_u8 v = {0};
  memcpy(&v, p, part);
  return v;
}

INLINE void store_part(void *p, v_u8 v, size_t part)
{
  memcpy(p, &v, part);
}
#endif

INLINE h_u8 load_part_h(const void *p, size_t part)
{
  h_u8 v = {0};
  memcpy(&v, p, part);
  return v;
}

INLINE void store_part_h(void *p, h_u8 v, size_t part)
{
  memcpy(p, &v, part);
}
#endif

INLINE v_u8 load(const void *p, size_t part)
{
  if (part)
    return load_part(p, part);
  return *(const loose_v *)p;
}

INLINE h_u8 load_h(const void *p, size_t part)
{
  if (part)
    return load_part_h(p, part);
  return *(const loose_h *)p;
}

INLINE void store(void *p, v_u8 v, size_t part)
{
  if (part)
    store_part(p, v, part);
  else
    *(loose_v *)p = v;
}

INLINE void store_h(void *p, h_u8 v, size_t part)
{
  if (part)
    store_part_h(p, v, part);
  else
    *(loose_h *)p = v;
}

/* Past the caches: spares the read of a line that is overwritten. p is aligned to the vector. */
#if defined(__x86_64__)
INLINE void stream(void *p, v_u8 v)
{
#if VBYTES == 64
  _mm512_stream_si512(p, (__m512i)v);
#elif VBYTES == 32
  _mm256_stream_si256(p, (__m256i)v);
#else
  _mm_stream_si128(p, (__m128i)v);
#endif
}

INLINE void stream_h(void *p, h_u8 v)
{
#if VBYTES == 64
  _mm256_stream_si256(p, (__m256i)v);
#elif VBYTES == 32
  _mm_stream_si128(p, (__m128i)v);
#else
  _mm_stream_si64(p, (long long)((h_u64)v)[0]);
#endif
}

INLINE void stream_end(void)
{
  _mm_sfence();
}
#else
INLINE void stream(void *p, v_u8 v)
{
  store(p, v, 0);
}

INLINE void stream_h(void *p, h_u8 v)
{
  store_h(p, v, 0);
}

INLINE void stream_end(void)
{
}
#endif

/* Whether out is so large that the caches would not hold it until it is read. What is also read
 * has its lines at hand already. `skip` gets the bytes until out is aligned to `step`. */
static bool streams(const void *out, const void *const *in, int n, size_t bytes, size_t step,
                    size_t element, size_t *skip)
{
  *skip = -(uintptr_t)out & (step - 1);
  if (bytes < STREAM_BYTES || *skip % element)
    return false;
  for (int i = 0; i < n; i++)
    if (in[i] == out)
      return false;
  return true;
}

#define PICK(bits, mask, a, b) (((bits)(a) & (bits)(mask)) | ((bits)(b) & ~(bits)(mask)))

#if INTEGERS
/* Integers: the signed ones only compare; sums and products wrap, which only unsigned ones may. */
#define INTEGER(type)                                                                              \
  typedef v_##type work_##type;                                                                    \
  typedef float scale_##type;                                                                      \
  enum { STEP_##type = VBYTES };                                                                   \
  INLINE v_##type get_##type(const void *p, size_t part)                                           \
  {                                                                                                \
    return (v_##type)load(p, part);                                                                \
  }                                                                                                \
  INLINE void put_##type(void *p, v_##type v, size_t part)                                         \
  {                                                                                                \
    store(p, (v_u8)v, part);                                                                       \
  }                                                                                                \
  INLINE v_##type done_##type(v_##type v, float s)                                                 \
  {                                                                                                \
    return v;                                                                                      \
  }                                                                                                \
  INLINE v_##type min_##type(v_##type a, v_##type b)                                               \
  {                                                                                                \
    return (v_##type)PICK(v_u8, a < b, a, b);                                                      \
  }                                                                                                \
  INLINE v_##type max_##type(v_##type a, v_##type b)                                               \
  {                                                                                                \
    return (v_##type)PICK(v_u8, a > b, a, b);                                                      \
  }
#define WRAPPING(type)                                                                             \
  INLINE v_##type add_##type(v_##type a, v_##type b)                                               \
  {                                                                                                \
    return a + b;                                                                                  \
  }                                                                                                \
  INLINE v_##type mul_##type(v_##type a, v_##type b)                                               \
  {                                                                                                \
    return a * b;                                                                                  \
  }
#define BITWISE(type)                                                                              \
  INLINE v_##type and_##type(v_##type a, v_##type b)                                               \
  {                                                                                                \
    return a & b;                                                                                  \
  }                                                                                                \
  INLINE v_##type or_##type(v_##type a, v_##type b)                                                \
  {                                                                                                \
    return a | b;                                                                                  \
  }                                                                                                \
  INLINE v_##type xor_##type(v_##type a, v_##type b)                                               \
  {                                                                                                \
    return a ^ b;                                                                                  \
  }
INTEGER(u8)
INTEGER(i8)
INTEGER(u16)
INTEGER(i16)
INTEGER(u32)
INTEGER(i32)
INTEGER(u64)
INTEGER(i64)
WRAPPING(u8)
WRAPPING(u16)
WRAPPING(u32)
WRAPPING(u64)
BITWISE(u8)
#endif

/* Floats. In MIN of what is neither below nor above, the or of the bits is -0 of two zeros and a
 * NaN of a NaN and anything; MAX needs the and for zeros. */
#define FLOATING(type, scalar, bits, quiet)                                                        \
  typedef v_##type work_##type;                                                                    \
  typedef scalar scale_##type;                                                                     \
  INLINE v_##type done_##type(v_##type v, scalar s)                                                \
  {                                                                                                \
    bits nan = (bits){0} + quiet;                                                                  \
    v = v * s;                                                                                     \
    return (v_##type)PICK(bits, v == v, v, nan);                                                   \
  }                                                                                                \
  INLINE v_##type add_##type(v_##type a, v_##type b)                                               \
  {                                                                                                \
    return a + b;                                                                                  \
  }                                                                                                \
  INLINE v_##type mul_##type(v_##type a, v_##type b)                                               \
  {                                                                                                \
    return a * b;                                                                                  \
  }                                                                                                \
  INLINE v_##type min_##type(v_##type a, v_##type b)                                               \
  {                                                                                                \
    bits same = PICK(bits, b < a, b, (bits)a | (bits)b);                                           \
    return (v_##type)PICK(bits, a < b, a, same);                                                   \
  }                                                                                                \
  INLINE v_##type max_##type(v_##type a, v_##type b)                                               \
  {                                                                                                \
    bits same = PICK(bits, a == b, (bits)a & (bits)b, (bits)a | (bits)b);                          \
    same = PICK(bits, b > a, b, same);                                                             \
    return (v_##type)PICK(bits, a > b, a, same);                                                   \
  }
#define QUIET_F32 0x7fc00000u
#define QUIET_F64 0x7ff8000000000000u
FLOATING(f32, float, v_u32, QUIET_F32)
FLOATING(f64, double, v_u64, QUIET_F64)
enum { STEP_f32 = VBYTES, STEP_f64 = VBYTES };

INLINE v_f32 get_f32(const void *p, size_t part)
{
  return (v_f32)load(p, part);
}

INLINE void put_f32(void *p, v_f32 v, size_t part)
{
  store(p, (v_u8)v, part);
}

INLINE void stream_f32(void *p, v_f32 v)
{
  stream(p, (v_u8)v);
}

INLINE v_f64 get_f64(const void *p, size_t part)
{
  return (v_f64)load(p, part);
}

INLINE void put_f64(void *p, v_f64 v, size_t part)
{
  store(p, (v_u8)v, part);
}

/* The two of 16 bits: f32 from the load to the store. What is stored comes from done_f32, so its
 * only NaN is the quiet one, which rounds to the quiet one. */
#define NARROW(type)                                                                               \
  FLOATING_AS_F32(type)                                                                            \
  enum { STEP_##type = VBYTES / 2 };                                                               \
  INLINE v_f32 get_##type(const void *p, size_t part)                                              \
  {                                                                                                \
    return widen_##type(load_h(p, part));                                                          \
  }                                                                                                \
  INLINE void put_##type(void *p, v_f32 v, size_t part)                                            \
  {                                                                                                \
    store_h(p, narrow_##type(v), part);                                                            \
  }                                                                                                \
  INLINE void stream_##type(void *p, v_f32 v)                                                      \
  {                                                                                                \
    stream_h(p, narrow_##type(v));                                                                 \
  }
#define FLOATING_AS_F32(type)                                                                      \
  typedef v_f32 work_##type;                                                                       \
  typedef float scale_##type;                                                                      \
  INLINE v_f32 done_##type(v_f32 v, float s)                                                       \
  {                                                                                                \
    return done_f32(v, s);                                                                         \
  }                                                                                                \
  INLINE v_f32 add_##type(v_f32 a, v_f32 b)                                                        \
  {                                                                                                \
    return add_f32(a, b);                                                                          \
  }                                                                                                \
  INLINE v_f32 mul_##type(v_f32 a, v_f32 b)                                                        \
  {                                                                                                \
    return mul_f32(a, b);                                                                          \
  }                                                                                                \
  INLINE v_f32 min_##type(v_f32 a, v_f32 b)                                                        \
  {                                                                                                \
    return min_f32(a, b);                                                                          \
  }                                                                                                \
  INLINE v_f32 max_##type(v_f32 a, v_f32 b)                                                        \
  {                                                                                                \
    return max_f32(a, b);                                                                          \
  }

/* Halves to words and back, which compilers do badly when left alone. */
#if VBYTES == 64
INLINE v_u32 words(h_u8 h)
{
  return (v_u32)_mm512_cvtepu16_epi32((__m256i)h);
}

INLINE h_u8 upper_halves(v_u32 x)
{
  return (h_u8)_mm512_cvtepi32_epi16((__m512i)(x >> 16));
}
#elif VBYTES == 32
INLINE v_u32 words(h_u8 h)
{
  return (v_u32)_mm256_cvtepu16_epi32((__m128i)h);
}

INLINE h_u8 upper_halves(v_u32 x)
{
  __m256i y = (__m256i)(x >> 16);
  return (h_u8)_mm_packus_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
}
#elif defined(__SSE2__)
INLINE v_u32 words(h_u8 h)
{
  __m128i low = _mm_cvtsi64_si128((int64_t)((h_u64)h)[0]);
  return (v_u32)_mm_unpacklo_epi16(low, _mm_setzero_si128());
}

/* The only pack of SSE2 saturates signed words: an arithmetic shift leaves it nothing to do. */
INLINE h_u8 upper_halves(v_u32 x)
{
  __m128i y = _mm_srai_epi32((__m128i)x, 16);
  return (h_u8)(h_u64){(uint64_t)_mm_cvtsi128_si64(_mm_packs_epi32(y, y))};
}
#else
INLINE v_u32 words(h_u8 h)
{
  return __builtin_convertvector((h_u16)h, v_u32);
}

INLINE h_u8 upper_halves(v_u32 x)
{
  return (h_u8) __builtin_convertvector(x >> 16, h_u16);
}
#endif

INLINE v_f32 widen_bf16(h_u8 h)
{
  return (v_f32)(words(h) << 16);
}

/* To nearest even: adds just under half of the last bit kept, and one more if that bit is odd. */
INLINE h_u8 narrow_bf16(v_f32 v)
{
  v_u32 x = (v_u32)v;
  x += 0x7fff + (x >> 16 & 1);
  return upper_halves(x);
}

#if VBYTES == 64
INLINE v_f32 widen_f16(h_u8 h)
{
  return (v_f32)_mm512_cvtph_ps((__m256i)h);
}

INLINE h_u8 narrow_f16(v_f32 v)
{
  return (h_u8)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif VBYTES == 32
INLINE v_f32 widen_f16(h_u8 h)
{
  return (v_f32)_mm256_cvtph_ps((__m128i)h);
}

INLINE h_u8 narrow_f16(v_f32 v)
{
  return (h_u8)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#else
/* A subnormal's bits in the mantissa of 2^-14, less that 2^-14: the subtraction normalises it. */
INLINE v_f32 widen_f16(h_u8 h)
{
  v_u32 x = words(h), body = (x & 0x7fff) << 13;
  v_u32 ends = (v_u32)(body >= 0x7c00u << 13) & (112u << 23); // inf and NaN: the highest exponent
  v_u32 normal = body + (112u << 23) + ends;
  v_f32 least = (v_f32)((v_u32){0} + (113u << 23));
  v_u32 tiny = (v_u32)((v_f32)(body + (113u << 23)) - least);
  return (v_f32)(PICK(v_u32, body < 1u << 23, tiny, normal) | (x & 0x8000) << 16);
}

/* Normals round in the integers, subnormals by adding 0.5, whose last bit is worth 2^-24. */
INLINE h_u8 narrow_f16(v_f32 v)
{
  v_u32 x = (v_u32)v, sign = x >> 16 & 0x8000, body = x & 0x7fffffff;
  v_u32 normal = (body + 0xfff + (body >> 13 & 1) - (112u << 23)) >> 13;
  v_u32 tiny = (v_u32)((v_f32)body + 0.5f) - (126u << 23);
  v_u32 inf = (v_u32){0} + 0x7c00, nan = (v_u32){0} + 0x7e00;
  v_u32 r = PICK(v_u32, body < 113u << 23, tiny, normal);
  r = PICK(v_u32, body >= 143u << 23, inf, r);
  r = PICK(v_u32, body > 0x7f800000, nan, r);
  return upper_halves((r | sign) << 16);
}
#endif
NARROW(f16)
NARROW(bf16)

#define TYPE f32
#define KIND add
#define STREAMS
#include "comm/reduce/loop.h"
#define TYPE f32
#define KIND mul
#include "comm/reduce/loop.h"
#define TYPE f32
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE f32
#define KIND max
#include "comm/reduce/loop.h"
#define TYPE f64
#define KIND add
#include "comm/reduce/loop.h"
#define TYPE f64
#define KIND mul
#include "comm/reduce/loop.h"
#define TYPE f64
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE f64
#define KIND max
#include "comm/reduce/loop.h"
#define TYPE f16
#define KIND add
#define STREAMS
#include "comm/reduce/loop.h"
#define TYPE f16
#define KIND mul
#include "comm/reduce/loop.h"
#define TYPE f16
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE f16
#define KIND max
#include "comm/reduce/loop.h"
#define TYPE bf16
#define KIND add
#define STREAMS
#include "comm/reduce/loop.h"
#define TYPE bf16
#define KIND mul
#include "comm/reduce/loop.h"
#define TYPE bf16
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE bf16
#define KIND max
#include "comm/reduce/loop.h"
#if INTEGERS
#define TYPE u8
#define KIND add
#include "comm/reduce/loop.h"
#define TYPE u8
#define KIND mul
#include "comm/reduce/loop.h"
#define TYPE u8
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE u8
#define KIND max
#include "comm/reduce/loop.h"
#define TYPE u8
#define KIND and
#include "comm/reduce/loop.h"
#define TYPE u8
#define KIND or
#include "comm/reduce/loop.h"
#define TYPE u8
#define KIND xor
#include "comm/reduce/loop.h"
#define TYPE u16
#define KIND add
#include "comm/reduce/loop.h"
#define TYPE u16
#define KIND mul
#include "comm/reduce/loop.h"
#define TYPE u16
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE u16
#define KIND max
#include "comm/reduce/loop.h"
#define TYPE u32
#define KIND add
#include "comm/reduce/loop.h"
#define TYPE u32
#define KIND mul
#include "comm/reduce/loop.h"
#define TYPE u32
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE u32
#define KIND max
#include "comm/reduce/loop.h"
#define TYPE u64
#define KIND add
#include "comm/reduce/loop.h"
#define TYPE u64
#define KIND mul
#include "comm/reduce/loop.h"
#define TYPE u64
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE u64
#define KIND max
#include "comm/reduce/loop.h"
#define TYPE i8
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE i8
#define KIND max
#include "comm/reduce/loop.h"
#define TYPE i16
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE i16
#define KIND max
#include "comm/reduce/loop.h"
#define TYPE i32
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE i32
#define KIND max
#include "comm/reduce/loop.h"
#define TYPE i64
#define KIND min
#include "comm/reduce/loop.h"
#define TYPE i64
#define KIND max
#include "comm/reduce/loop.h"
#endif

/* The tail is a vector of its own, as everywhere. */
#define CONVERT(type)                                                                              \
  static void widen_all_##type(float *out, const void *in, size_t count)                           \
  {                                                                                                \
    const unsigned char *from = in;                                                                \
    size_t per = VBYTES / 4, i = 0;                                                                \
    for (; count - i >= per; i += per)                                                             \
      put_f32(out + i, get_##type(from + 2 * i, 0), 0);                                            \
    if (i < count)                                                                                 \
      put_f32(out + i, get_##type(from + 2 * i, 2 * (count - i)), 4 * (count - i));                \
  }                                                                                                \
  static void narrow_all_##type(void *out, const float *in, size_t count)                          \
  {                                                                                                \
    unsigned char *to = out;                                                                       \
    size_t per = VBYTES / 4, i = 0;                                                                \
    for (; count - i >= per; i += per)                                                             \
      put_##type(to + 2 * i, get_f32(in + i, 0), 0);                                               \
    if (i < count)                                                                                 \
      put_##type(to + 2 * i, get_f32(in + i, 4 * (count - i)), 2 * (count - i));                   \
  }
CONVERT(f16)
CONVERT(bf16)

#define ROW(sums, compares)                                                                        \
  {                                                                                                \
    sums##_add, sums##_mul, compares##_min, compares##_max                                         \
  }

const struct manta__reduce_isa SYMBOL(ISA) = {
    .name = NAME_OF(ISA),
    .widen_f16 = widen_all_f16,
    .widen_bf16 = widen_all_bf16,
    .narrow_f16 = narrow_all_f16,
    .narrow_bf16 = narrow_all_bf16,
    .fn =
        {
            [MANTA_F16] = ROW(f16, f16),
            [MANTA_BF16] = ROW(bf16, bf16),
            [MANTA_F32] = ROW(f32, f32),
            [MANTA_F64] = ROW(f64, f64),
#if INTEGERS
            [MANTA_BOOL8] = {NULL, NULL, u8_min, u8_max},
            [MANTA_U8] = {u8_add, u8_mul, u8_min, u8_max, u8_and, u8_or, u8_xor},
            [MANTA_I8] = ROW(u8, i8),
            [MANTA_U16] = ROW(u16, u16),
            [MANTA_I16] = ROW(u16, i16),
            [MANTA_U32] = ROW(u32, u32),
            [MANTA_I32] = ROW(u32, i32),
            [MANTA_U64] = ROW(u64, u64),
            [MANTA_I64] = ROW(u64, i64),
#endif
        },
};
