/* SPDX-License-Identifier: Apache-2.0
 *
 * f16 and bf16 against arithmetic in f64 that knows nothing of bits.
 */
#include "base/half.h"
#include "test.h"

// The value of a half with `mantissa` bits of fraction and this bias.
static double value_of(uint16_t h, int mantissa, int bias)
{
  int exponent = (h & 0x7fff) >> mantissa, fraction = h & ((1 << mantissa) - 1);
  double unit = ldexp(1, (exponent ? exponent : 1) - bias - mantissa);
  double v = ((exponent ? 1 << mantissa : 0) + fraction) * unit;
  return h & 0x8000 ? -v : v;
}

static void widening_is_exact(void **state)
{
  for (uint32_t h = 0; h < 0x10000; h++) {
    float f = manta__f32_of_f16((uint16_t)h), b = manta__f32_of_bf16((uint16_t)h);
    if ((h & 0x7c00) != 0x7c00)
      assert_true((double)f == value_of((uint16_t)h, 10, 15) && !signbit(f) == !(h & 0x8000));
    else
      assert_true(h & 0x3ff ? isnan(f) : isinf(f) && !signbit(f) == !(h & 0x8000));
    if ((h & 0x7f80) != 0x7f80)
      assert_true((double)b == value_of((uint16_t)h, 7, 127) && !signbit(b) == !(h & 0x8000));
    else
      assert_true(h & 0x7f ? isnan(b) : isinf(b) && !signbit(b) == !(h & 0x8000));
  }
}

static void what_was_widened_narrows_to_itself(void **state)
{
  for (uint32_t h = 0; h < 0x10000; h++) {
    bool nan16 = (h & 0x7fff) > 0x7c00, nanb = (h & 0x7fff) > 0x7f80;
    assert_int_equal(manta__f16_of_f32(manta__f32_of_f16((uint16_t)h)), nan16 ? 0x7e00 : h);
    assert_int_equal(manta__bf16_of_f32(manta__f32_of_bf16((uint16_t)h)), nanb ? 0x7fc0 : h);
  }
}

// Between each two neighbours: the middle goes to the even one, what is beside it to the nearer.
static void narrowing_is_to_nearest_even(void **state)
{
  for (uint32_t h = 0; h < 0x7c00 - 1; h++) {
    float a = manta__f32_of_f16((uint16_t)h), b = manta__f32_of_f16((uint16_t)(h + 1));
    float middle = a + (b - a) / 2;
    assert_int_equal(manta__f16_of_f32(middle), h + (h & 1));
    assert_int_equal(manta__f16_of_f32(nextafterf(middle, 0)), h);
    assert_int_equal(manta__f16_of_f32(-nextafterf(middle, INFINITY)), (h + 1) | 0x8000);
  }
  for (uint32_t h = 0; h < 0x7f80 - 1; h++) {
    float a = manta__f32_of_bf16((uint16_t)h), b = manta__f32_of_bf16((uint16_t)(h + 1));
    float middle = a + (b - a) / 2;
    assert_int_equal(manta__bf16_of_f32(middle), h + (h & 1));
    assert_int_equal(manta__bf16_of_f32(nextafterf(middle, 0)), h);
    assert_int_equal(manta__bf16_of_f32(-nextafterf(middle, INFINITY)), (h + 1) | 0x8000);
  }
}

static void what_is_too_large_becomes_infinite(void **state)
{
  assert_int_equal(manta__f16_of_f32(65519.996f), 0x7bff);
  assert_int_equal(manta__f16_of_f32(65520.0f), 0x7c00);
  assert_int_equal(manta__f16_of_f32(-1e30f), 0xfc00);
  assert_int_equal(manta__bf16_of_f32(3.4028235e38f), 0x7f80);
  assert_int_equal(manta__bf16_of_f32(3.38e38f), 0x7f7e);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(widening_is_exact),
      cmocka_unit_test(what_was_widened_narrows_to_itself),
      cmocka_unit_test(narrowing_is_to_nearest_even),
      cmocka_unit_test(what_is_too_large_becomes_infinite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
