/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast reduction against the plain one, bit by bit; the program runs itself again with
 * "sweep" as its argument for each instruction set.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "bits.h"
#include "comm/reduce/isa.h"
#include "comm/reduce/reduce.h"
#include "test.h"

extern const struct manta__reduce_isa manta__reduce_generic; // reduce_generic.c
static bool generic;

#define MAX_N     17
#define MAX_COUNT 4097
#define GUARD     64
#define ROOM      (GUARD + 8 + MAX_COUNT * 8 + GUARD)

static const int ns[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17};
static const size_t counts[] = {0, 1, 3, 7, 64, 1000, MAX_COUNT};
#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

static uint64_t next_random(void)
{
  static uint64_t x = 88172645463325252u;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}

/* Zeros, ones, smallest and largest subnormals, smallest normal, largest, inf, and three NaNs. */
static const uint64_t specials_f16[] = {0,      0x3c00, 1,      0x3ff,  0x400,
                                        0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7fff};
static const uint64_t specials_bf16[] = {0,      0x3f80, 1,      0x7f,   0x80,
                                         0x7f7f, 0x7f80, 0x7f81, 0x7fc0, 0x7fff};
static const uint64_t specials_f32[] = {0,          0x3f800000, 1,          0x7fffff,   0x800000,
                                        0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff};
static const uint64_t specials_f64[] = {
    0,
    0x3ff0000000000000,
    1,
    0xfffffffffffff,
    0x10000000000000,
    0x7fefffffffffffff,
    0x7ff0000000000000,
    0x7ff0000000000001,
    0x7ff8000000000000,
    0x7fffffffffffffff,
};

static const uint64_t *specials(manta_dtype type)
{
  switch (type) {
  case MANTA_F16:
    return specials_f16;
  case MANTA_BF16:
    return specials_bf16;
  case MANTA_F32:
    return specials_f32;
  case MANTA_F64:
    return specials_f64;
  default:
    return NULL;
  }
}

/* How many bits of exponent: clearing the upper ones but the first keeps values near one. */
static uint64_t tame(uint64_t bits, manta_dtype type)
{
  switch (type) {
  case MANTA_F16:
    return (bits & 0x8bff) | 0x3800;
  case MANTA_BF16:
    return (bits & 0x81ff) | 0x3e00;
  case MANTA_F32:
    return (bits & 0x81ffffff) | 0x3e000000;
  case MANTA_F64:
    return (bits & 0x803fffffffffffff) | 0x3fc0000000000000;
  default:
    return bits;
  }
}

static uint64_t random_bits(manta_dtype type)
{
  uint64_t r = next_random(), choice = r % 8, bits = next_random();
  size_t size = manta_dtype_bytes(type);
  if (type == MANTA_BOOL8)
    return bits & 1;
  if (choice < 5)
    return tame(bits, type);
  if (choice == 5 || !specials(type))
    return bits;
  uint64_t special = specials(type)[(r >> 8) % LENGTH(specials_f32)];
  return special | (r >> 32 & 1) << (8 * size - 1);
}

static void fill(unsigned char *p, size_t count, manta_dtype type)
{
  size_t size = manta_dtype_bytes(type);
  for (size_t i = 0; i < count; i++) {
    uint64_t bits = random_bits(type);
    put_bits(p + i * size, bits, size);
  }
}

/* What is under test: the way of this CPU, or the kernels for any other. */
static void reduce(void *out, const void *const *in, int n, size_t count, manta_dtype type,
                   manta_op op)
{
  static const enum manta__reduce_kind kinds[] = {MANTA__ADD, MANTA__ADD, MANTA__MUL, MANTA__MIN,
                                                  MANTA__MAX, MANTA__AND, MANTA__OR,  MANTA__XOR};
  if (!generic || n == 1 || count == 0)
    manta__reduce(out, in, n, count, type, op);
  else if (op >= MANTA_BAND)
    manta__reduce_generic.fn[MANTA_U8][kinds[op]](out, in, n, count * manta_dtype_bytes(type), 1);
  else
    manta__reduce_generic.fn[type][kinds[op]](out, in, n, count, op == MANTA_MEAN ? n : 1);
}

struct bed {
  unsigned char *in[MAX_N]; /* each in a block of its own, ending where the block ends */
  const void *ptr[MAX_N];
  unsigned char want[MAX_COUNT * 8], out[ROOM];
  size_t bytes;
};

/* Input i ends `i % 3` bytes later than its block is aligned to: all alignments come up. */
static void setup(struct bed *b, int n, size_t count, manta_dtype type)
{
  b->bytes = count * manta_dtype_bytes(type);
  for (int i = 0; i < n; i++) {
    b->in[i] = malloc(b->bytes + (size_t)i % 3 + 1);
    assert_non_null(b->in[i]);
    unsigned char *p = b->in[i] + i % 3 + 1;
    fill(p, count, type);
    b->ptr[i] = p;
  }
}

static void teardown(struct bed *b, int n)
{
  for (int i = 0; i < n; i++)
    free(b->in[i]);
}

static int guards_hold(const struct bed *b, const unsigned char *out)
{
  for (int i = 1; i <= GUARD; i++)
    if (out[-i] != 0xa5 || out[b->bytes + (size_t)i - 1] != 0xa5)
      return 0;
  return 1;
}

/* To an array of its own, at several alignments. */
static int wrong_apart(struct bed *b, int n, size_t count, manta_dtype type, manta_op op)
{
  int wrong = 0;
  for (int shift = 0; shift < 4; shift += 3) {
    unsigned char *out = b->out + GUARD + shift;
    memset(b->out, 0xa5, sizeof(b->out));
    reduce(out, b->ptr, n, count, type, op);
    wrong += memcmp(out, b->want, b->bytes) != 0 || !guards_hold(b, out);
  }
  return wrong;
}

/* To each of the inputs. */
static int wrong_in_place(struct bed *b, int n, size_t count, manta_dtype type, manta_op op)
{
  int wrong = 0;
  for (int i = 0; i < n; i++) {
    unsigned char *out = b->out + GUARD + 1;
    const void *kept = b->ptr[i];
    memset(b->out, 0xa5, sizeof(b->out));
    memcpy(out, kept, b->bytes);
    b->ptr[i] = out;
    reduce(out, b->ptr, n, count, type, op);
    wrong += memcmp(out, b->want, b->bytes) != 0 || !guards_hold(b, out);
    b->ptr[i] = kept;
  }
  return wrong;
}

/* In pieces, as a pipeline would. */
static int wrong_in_pieces(struct bed *b, int n, size_t count, manta_dtype type, manta_op op)
{
  size_t size = manta_dtype_bytes(type), piece;
  unsigned char *out = b->out + GUARD;
  for (size_t at = 0; at < count; at += piece) {
    const void *ptr[MAX_N];
    piece = 1 + next_random() % 700;
    if (piece > count - at)
      piece = count - at;
    for (int i = 0; i < n; i++)
      ptr[i] = (const unsigned char *)b->ptr[i] + at * size;
    reduce(out + at * size, ptr, n, piece, type, op);
  }
  return memcmp(out, b->want, b->bytes) != 0;
}

static int wrong_case(struct bed *b, int n, size_t count, manta_dtype type, manta_op op)
{
  setup(b, n, count, type);
  manta__reduce_ref(b->want, b->ptr, n, count, type, op);
  int wrong = wrong_apart(b, n, count, type, op) + wrong_in_place(b, n, count, type, op) +
              wrong_in_pieces(b, n, count, type, op);
  if (wrong)
    print_message("# %s: %s op %d n %d count %zu differs\n", manta__reduce_isa(),
                  manta_dtype_name(type), (int)op, n, count);
  teardown(b, n);
  return wrong;
}

static int sweep(void)
{
  static struct bed b;
  int wrong = 0;
  for (int type = 0; type < MANTA_DTYPE_COUNT; type++)
    for (int op = 0; op <= MANTA_BXOR; op++)
      for (size_t i = 0; i < LENGTH(ns) * LENGTH(counts); i++)
        if (manta__reduce_valid((manta_dtype)type, (manta_op)op) &&
            !(generic && op == MANTA_MEAN && !specials((manta_dtype)type))) // divides elsewhere
          wrong += wrong_case(&b, ns[i / LENGTH(counts)], counts[i % LENGTH(counts)],
                              (manta_dtype)type, (manta_op)op);
  return wrong;
}

static void agrees_with_the_truth(void **state)
{
  print_message("# isa %s\n", manta__reduce_isa());
  assert_int_equal(sweep(), 0);
}

static int sweep_large(void);

static void generic_kernels_agree(void **state)
{
  generic = true;
  assert_int_equal(sweep() + sweep_large(), 0);
  generic = false;
}

/* The child's exit status; its environment has MANTA_COMM_ISA = isa. */
static int sweep_again(const char *isa)
{
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    setenv("MANTA_COMM_ISA", isa, 1);
    execl("/proc/self/exe", "reduce_test", "sweep", isa, NULL);
    _exit(127);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Each agrees with the truth, hence all with each other. */
static void every_isa_agrees(void **state)
{
  static const char *const isas[] = {"scalar", "avx2", "avx512"}; // rising
  for (size_t i = 0; i < LENGTH(isas); i++) {
    assert_int_equal(sweep_again(isas[i]), 0);
    if (!strcmp(isas[i], manta__reduce_isa()))
      break;
  }
}

static float reduce_f32(const float *v, int n, manta_op op)
{
  const void *in[MAX_N];
  float out = NAN;
  for (int i = 0; i < n; i++)
    in[i] = &v[i];
  manta__reduce(&out, in, n, 1, MANTA_F32, op);
  return out;
}

/* 2^24 swallows a one, but not a two. */
static void adds_as_a_balanced_tree(void **state)
{
  const float big = 16777216.0f;
  assert_near(reduce_f32((float[]){big, 1, 1}, 3, MANTA_SUM), 16777216.0, 0.0);
  assert_near(reduce_f32((float[]){1, 1, big}, 3, MANTA_SUM), 16777218.0, 0.0);
  assert_near(reduce_f32((float[]){big, 1, 1, 1, 1}, 5, MANTA_SUM), 16777220.0, 0.0);
  assert_near(reduce_f32((float[]){1, big, 1, -big, 1}, 5, MANTA_SUM), 2.0, 0.0);
  assert_near(reduce_f32((float[]){1, 1, big, -big, big, 1, 1}, 7, MANTA_SUM), 16777218.0, 0.0);
}

/* 5 * (1/3) is one unit above 5 / 3. */
static void mean_multiplies_by_the_inverse(void **state)
{
  float got = reduce_f32((float[]){1, 2, 2}, 3, MANTA_MEAN);
  assert_near(got, 0x1.aaaaacp+0, 0.0);
  assert_true(got != 5.0f / 3.0f);
}

static uint16_t reduce_u16(uint16_t a, uint16_t b, manta_dtype type, manta_op op)
{
  uint16_t out = 0xdead;
  manta__reduce(&out, (const void *const[]){&a, &b}, 2, 1, type, op);
  return out;
}

static void rounds_halves_to_even(void **state)
{
  assert_int_equal(reduce_u16(0x6800, 0x3c00, MANTA_F16, MANTA_SUM), 0x6800);  // 2048 + 1
  assert_int_equal(reduce_u16(0x6800, 0x4200, MANTA_F16, MANTA_SUM), 0x6802);  // 2048 + 3
  assert_int_equal(reduce_u16(0x7bff, 0x4c00, MANTA_F16, MANTA_SUM), 0x7c00);  // 65504 + 16
  assert_int_equal(reduce_u16(0x7bff, 0x4bff, MANTA_F16, MANTA_SUM), 0x7bff);  // just below that
  assert_int_equal(reduce_u16(1, 0, MANTA_F16, MANTA_MEAN), 0);                // half of the least
  assert_int_equal(reduce_u16(3, 0, MANTA_F16, MANTA_MEAN), 2);                // 1.5 of it
  assert_int_equal(reduce_u16(0x7c00, 0xfc00, MANTA_F16, MANTA_SUM), 0x7e00);  // inf - inf
  assert_int_equal(reduce_u16(0x4380, 0x3f80, MANTA_BF16, MANTA_SUM), 0x4380); // 256 + 1
  assert_int_equal(reduce_u16(0x4381, 0x3f80, MANTA_BF16, MANTA_SUM), 0x4382); // 258 + 1
  assert_int_equal(reduce_u16(0x7f7f, 0x7f7f, MANTA_BF16, MANTA_SUM), 0x7f80);
  assert_int_equal(reduce_u16(1, 2, MANTA_BF16, MANTA_SUM), 3);
}

/* -0 changes nothing, so every f16 and bf16 must come back: both conversions are exact. */
static void every_16_bit_float_survives(void **state)
{
  static uint16_t all[65536], zero[65536], out[65536];
  for (int t = 0; t < 2; t++) {
    int inf = t ? 0x7f80 : 0x7c00, quiet = t ? 0x7fc0 : 0x7e00;
    for (int i = 0; i < 65536; i++) {
      all[i] = (uint16_t)i;
      zero[i] = 0x8000;
    }
    manta__reduce(out, (const void *const[]){all, zero}, 2, 65536, t ? MANTA_BF16 : MANTA_F16,
                  MANTA_SUM);
    for (int i = 0; i < 65536; i++)
      assert_int_equal(out[i], (i & 0x7fff) > inf ? quiet : i);
  }
}

static void integers_wrap_and_divide_towards_zero(void **state)
{
  static const int8_t v[200] = {[0] = -7};
  const void *in[200];
  int8_t out = 1;
  for (int i = 0; i < 200; i++)
    in[i] = &v[i];
  manta__reduce(&out, in, 2, 1, MANTA_I8, MANTA_MEAN);
  assert_int_equal(out, -3);
  manta__reduce(&out, in, 200, 1, MANTA_I8, MANTA_MEAN);
  assert_int_equal(out, 0);
  uint8_t sum = 0, a = 200, b = 100;
  manta__reduce(&sum, (const void *const[]){&a, &b}, 2, 1, MANTA_U8, MANTA_SUM);
  assert_int_equal(sum, 44);
}

/* As many arrays as there may be, and the counts of arrays around a carry of every length. */
static void many_arrays_agree(void **state)
{
  static const int many[] = {31, 32, 33, 63, 65, 127, 128, 129, 1000, 4095, MANTA__REDUCE_MAX};
  static const void *in[MANTA__REDUCE_MAX];
  static float v[MANTA__REDUCE_MAX + 600], out[601], want[601];
  fill((unsigned char *)v, LENGTH(v), MANTA_U32);
  for (size_t i = 0; i < LENGTH(v); i++)
    v[i] = (float)(next_random() % 1000000) * 1e-3f;
  for (int i = 0; i < MANTA__REDUCE_MAX; i++)
    in[i] = v + i;
  for (size_t i = 0; i < LENGTH(many); i++) {
    manta__reduce(out, in, many[i], 601, MANTA_F32, MANTA_SUM);
    manta__reduce_ref(want, in, many[i], 601, MANTA_F32, MANTA_SUM);
    assert_memory_equal(out, want, sizeof(out));
  }
}

/* Large enough for stores past the caches, from a place that is aligned to its element only and
 * from one that is not. The input repeats, and so must the result. */
#define PERIOD 4104 /* elements: no whole number of cache lines in any type */
#define LARGE  ((17u << 20) + 12)

static bool repeats(const unsigned char *out, const unsigned char *want, size_t bytes,
                    size_t period)
{
  for (size_t at = 0; at < bytes; at += period)
    if (memcmp(out + at, want, bytes - at < period ? bytes - at : period) != 0)
      return false;
  return true;
}

static void repeat(unsigned char *to, size_t bytes, size_t period, manta_dtype type)
{
  fill(to, PERIOD, type);
  for (size_t at = period; at < bytes; at += period)
    memcpy(to + at, to, bytes - at < period ? bytes - at : period);
}

static int wrong_large(unsigned char *block[5], manta_dtype type)
{
  static unsigned char want[PERIOD * 4];
  size_t size = manta_dtype_bytes(type), count = LARGE / size, period = PERIOD * size;
  const void *in[4] = {block[0] + 8, block[1] + 4, block[2] + 8, block[3] + 3};
  int wrong = 0;
  for (int i = 0; i < 4; i++)
    repeat((unsigned char *)(uintptr_t)in[i], count * size, period, type);
  for (int n = 2; n <= 4; n++) {
    manta__reduce_ref(want, in, n, PERIOD, type, MANTA_MEAN);
    for (int shift = 3; shift <= 4; shift++) {
      unsigned char *out = block[4] + shift;
      memset(block[4], 0xa5, LARGE + 16);
      reduce(out, in, n, count, type, MANTA_MEAN);
      wrong +=
          !repeats(out, want, count * size, period) || out[-1] != 0xa5 || out[count * size] != 0xa5;
    }
  }
  return wrong;
}

static int sweep_large(void)
{
  static const manta_dtype types[] = {MANTA_F32, MANTA_BF16, MANTA_F16};
  unsigned char *block[5];
  int wrong = 0;
  for (int i = 0; i < 5; i++) {
    block[i] = malloc(LARGE + 16);
    assert_non_null(block[i]);
  }
  for (int k = 0; k < 3; k++)
    wrong += wrong_large(block, types[k]);
  for (int i = 0; i < 5; i++)
    free(block[i]);
  return wrong;
}

static void large_arrays_agree(void **state)
{
  assert_int_equal(sweep_large(), 0);
}

static void knows_what_makes_sense(void **state)
{
  assert_false(manta__reduce_valid(MANTA_BOOL8, MANTA_SUM));
  assert_false(manta__reduce_valid(MANTA_BOOL8, MANTA_MEAN));
  assert_false(manta__reduce_valid(MANTA_BOOL8, MANTA_PROD));
  assert_true(manta__reduce_valid(MANTA_BOOL8, MANTA_MAX));
  assert_true(manta__reduce_valid(MANTA_I8, MANTA_MEAN));
  assert_false(manta__reduce_valid(MANTA_DTYPE_COUNT, MANTA_SUM));
  assert_false(manta__reduce_valid((manta_dtype)-1, MANTA_SUM));
  assert_true(manta__reduce_valid(MANTA_BOOL8, MANTA_BXOR));
  assert_true(manta__reduce_valid(MANTA_I16, MANTA_BAND));
  for (int type = 0; type < MANTA_DTYPE_COUNT; type++)
    assert_int_equal(manta__reduce_valid((manta_dtype)type, MANTA_BOR),
                     !specials((manta_dtype)type));
  assert_false(manta__reduce_valid(MANTA_I32, (manta_op)(MANTA_BXOR + 1)));
  assert_false(manta__reduce_valid(MANTA_F32, (manta_op)-1));
}

/* What the parent asked for must run, unless the CPU lacks it. */
static int run_as_child(const char *isa)
{
  print_message("# isa %s, asked for %s\n", manta__reduce_isa(), isa);
  if (strcmp(manta__reduce_isa(), isa) && strcmp(manta__reduce_isa(), "scalar"))
    return 2;
  return sweep() || sweep_large() ? 1 : 0;
}

int main(int argc, char **argv)
{
  if (argc == 3 && !strcmp(argv[1], "sweep"))
    return run_as_child(argv[2]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(knows_what_makes_sense),
      cmocka_unit_test(adds_as_a_balanced_tree),
      cmocka_unit_test(mean_multiplies_by_the_inverse),
      cmocka_unit_test(rounds_halves_to_even),
      cmocka_unit_test(every_16_bit_float_survives),
      cmocka_unit_test(integers_wrap_and_divide_towards_zero),
      cmocka_unit_test(many_arrays_agree),
      cmocka_unit_test(large_arrays_agree),
      cmocka_unit_test(agrees_with_the_truth),
      cmocka_unit_test(generic_kernels_agree),
      cmocka_unit_test(every_isa_agrees),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
