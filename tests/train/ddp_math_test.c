/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of data-parallel training: norm, scaling, rounding with what is left over.
 */
#include "base/half.h"
#include "test.h"
#include "train/ddp.h"

static float noise(uint32_t *seed)
{
  *seed = *seed * 1664525u + 1013904223u;
  return (float)(*seed >> 8) / (float)(1u << 24) - 0.5f;
}

static void squares_are_those_of_a_plain_sum(void **state)
{
  static float x[MANTA__NORM_BLOCK];
  static double x64[MANTA__NORM_BLOCK];
  static uint16_t bf[MANTA__NORM_BLOCK], h[MANTA__NORM_BLOCK];
  uint32_t seed = 1;
  for (size_t n = 0; n <= MANTA__NORM_BLOCK; n = n < 40 ? n + 1 : n * 2 - n % 3) {
    long double want = 0, want_bf = 0, want_h = 0;
    for (size_t i = 0; i < n; i++) {
      x[i] = noise(&seed);
      x64[i] = (double)x[i];
      bf[i] = manta__bf16_of_f32(x[i]);
      h[i] = manta__f16_of_f32(x[i]);
      want += (long double)x[i] * (long double)x[i];
      want_bf += (long double)manta__f32_of_bf16(bf[i]) * (long double)manta__f32_of_bf16(bf[i]);
      want_h += (long double)manta__f32_of_f16(h[i]) * (long double)manta__f32_of_f16(h[i]);
    }
    assert_near(manta__squares(x, n, MANTA_F32), (double)want, 1e-12 * (double)want);
    assert_near(manta__squares(bf, n, MANTA_BF16), (double)want_bf, 1e-12 * (double)want_bf);
    assert_near(manta__squares(h, n, MANTA_F16), (double)want_h, 1e-12 * (double)want_h);
    // The order of addition is that of f64, whatever the type.
    assert_true(manta__squares(x64, n, MANTA_F64) == manta__squares(x, n, MANTA_F32));
  }
}

static void the_tree_is_balanced(void **state)
{
  double s[5] = {0x1p53, 1, 1, 1, 1};               // 2^53 + 1 is not to be had: it stays 2^53
  assert_true(manta__sum_tree(s, 5) == 0x1p53 + 4); // to even; one by one: 2^53
  double left[4] = {1, 1, 1, 0x1p53};
  assert_true(manta__sum_tree(left, 4) == 0x1p53 + 2);
  double one[1] = {7};
  assert_true(manta__sum_tree(one, 1) == 7);
  assert_int_equal(manta__norm_blocks(0), 0);
  assert_int_equal(manta__norm_blocks(1), 1);
  assert_int_equal(manta__norm_blocks(MANTA__NORM_BLOCK), 1);
  assert_int_equal(manta__norm_blocks(MANTA__NORM_BLOCK + 1), 2);
}

static void scaling_is_by_f32(void **state)
{
  float f[3] = {1, -3, 5e-41f};
  double d[3] = {1, -3, 5};
  uint16_t h[3] = {0x3c00, 0xc200, 0x0001}, b[3] = {0x3f80, 0xc040, 0x0001};
  manta__scale(f, 3, MANTA_F32, 0.1);
  manta__scale(d, 3, MANTA_F64, 0.1);
  manta__scale(h, 3, MANTA_F16, 0.1);
  manta__scale(b, 3, MANTA_BF16, 0.1);
  float by = 0.1f, three = -3;
  assert_true(f[0] == by && f[1] == three * by && d[1] == -3 * 0.1);
  assert_int_equal(h[0], manta__f16_of_f32(by));
  assert_int_equal(h[1], manta__f16_of_f32(three * by));
  assert_int_equal(h[2], 0);
  assert_int_equal(b[1], manta__bf16_of_f32(three * by));
}

static void nothing_is_lost_by_packing(void **state)
{
  enum { N = 4096 };
  static float g[N], left[N], old[N];
  static uint16_t packed[N];
  uint32_t seed = 3;
  for (int step = 0; step < 50; step++) {
    for (int i = 0; i < N; i++)
      g[i] = noise(&seed) * (i % 7 ? 1 : 1e-30f);
    memcpy(old, left, sizeof old);
    manta__pack_bf16(packed, left, g, N);
    for (int i = 0; i < N; i++) {
      float v = g[i] + old[i];
      assert_int_equal(packed[i], manta__bf16_of_f32(v));
      assert_true(manta__f32_of_bf16(packed[i]) + left[i] == v);
    }
  }
  manta__unpack_bf16(g, packed, N);
  for (int i = 0; i < N; i++)
    assert_true(g[i] == manta__f32_of_bf16(packed[i]));
}

static void what_is_not_finite_leaves_nothing_over(void **state)
{
  float g[16] = {INFINITY, -INFINITY, NAN, 3.4e38f, 1}, left[16] = {0};
  uint16_t packed[16];
  manta__pack_bf16(packed, left, g, 16);
  assert_int_equal(packed[0], 0x7f80);
  assert_int_equal(packed[1], 0xff80);
  assert_int_equal(packed[2], 0x7fc0);
  assert_int_equal(packed[3], 0x7f80); // rounded up, past the largest
  for (int i = 0; i < 16; i++)
    assert_true(left[i] == 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(squares_are_those_of_a_plain_sum),
      cmocka_unit_test(the_tree_is_balanced),
      cmocka_unit_test(scaling_is_by_f32),
      cmocka_unit_test(nothing_is_lost_by_packing),
      cmocka_unit_test(what_is_not_finite_leaves_nothing_over),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
