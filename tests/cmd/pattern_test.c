/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/pattern.h"

#include <string.h>

#include "test.h"

#define COUNT (3 * MANTA__PATTERN_PERIOD + 5)

static uint8_t buf[COUNT * 8];

static void what_is_written_is_right(void **state)
{
  static struct manta__pattern p;
  for (int t = 0; t < MANTA_DTYPE_COUNT; t++) {
    manta__pattern_of_rank(&p, (manta_dtype)t, 2);
    manta__pattern_write(&p, buf, COUNT, 700);
    assert_int_equal(manta__pattern_wrong(&p, buf, COUNT, 700), 0);
    // The period is prime: one place off is nearly always another number.
    assert_true(manta__pattern_wrong(&p, buf, COUNT, 701) > COUNT / 4);
    manta__pattern_of_rank(&p, (manta_dtype)t, 3);
    assert_true(manta__pattern_wrong(&p, buf, COUNT, 700) > COUNT / 4);
  }
}

static void one_wrong_element_is_found(void **state)
{
  static struct manta__pattern p;
  manta__pattern_of_sum(&p, MANTA_F32, 4);
  manta__pattern_write(&p, buf, COUNT, 0);
  buf[4 * (COUNT - 1)] ^= 1;
  buf[4 * 17 + 3] ^= 1;
  assert_int_equal(manta__pattern_wrong(&p, buf, COUNT, 0), 2);
}

static void sums_are_those_of_the_ranks(void **state)
{
  static struct manta__pattern sum, one;
  static double total[MANTA__PATTERN_PERIOD], d[MANTA__PATTERN_PERIOD];
  for (int r = 0; r < MANTA__PATTERN_RANKS; r++) {
    manta__pattern_of_rank(&one, MANTA_F64, r);
    memcpy(d, one.period, sizeof d);
    for (size_t i = 0; i < MANTA__PATTERN_PERIOD; i++)
      total[i] += d[i];
  }
  manta__pattern_of_sum(&sum, MANTA_F64, MANTA__PATTERN_RANKS);
  assert_memory_equal(total, sum.period, sizeof total);
  for (size_t i = 0; i < MANTA__PATTERN_PERIOD; i++)
    assert_true(total[i] <= 256); // what bf16 holds
}

// Written by hand: the form of small numbers in each type.
static void numbers_have_the_form_of_their_type(void **state)
{
  static struct manta__pattern want, p;
  static double d[MANTA__PATTERN_PERIOD];
  static const uint16_t half[] = {0, 0x3c00, 0x4000, 0x4200}, brain[] = {0, 0x3f80, 0x4000, 0x4040};
  manta__pattern_of_rank(&want, MANTA_F64, 0);
  memcpy(d, want.period, sizeof d);
  for (size_t i = 0; i < MANTA__PATTERN_PERIOD; i++) {
    uint16_t h;
    int64_t whole;
    manta__pattern_of_rank(&p, MANTA_F16, 0);
    memcpy(&h, p.period + i * 2, 2);
    assert_int_equal(h, half[(int)d[i]]);
    manta__pattern_of_rank(&p, MANTA_BF16, 0);
    memcpy(&h, p.period + i * 2, 2);
    assert_int_equal(h, brain[(int)d[i]]);
    manta__pattern_of_rank(&p, MANTA_I64, 0);
    memcpy(&whole, p.period + i * 8, 8);
    assert_int_equal(whole, (int)d[i]);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_right),
      cmocka_unit_test(one_wrong_element_is_found),
      cmocka_unit_test(sums_are_those_of_the_ranks),
      cmocka_unit_test(numbers_have_the_form_of_their_type),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
