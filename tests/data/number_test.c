/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers out of text: every double bit-equal to strtod's, integers up to their limits.
 */
#include "data/number/number.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>

#include "cells.h"

// In memory of exactly its size, so that a sanitizer sees a read beside it.
static bool read_f64(const char *text, size_t n, double *out)
{
  char *exact = malloc(n ? n : 1);
  memcpy(exact, text, n);
  bool ok = manta__number_f64(exact, n, out);
  free(exact);
  return ok;
}

static void assert_strtod(const char *text)
{
  double want = strtod(text, NULL), got = 12345;
  if (!read_f64(text, strlen(text), &got))
    fail_msg("\"%s\" was not taken", text);
  if (memcmp(&want, &got, sizeof want) != 0)
    fail_msg("\"%s\": %a, strtod says %a", text, got, want);
}

static void well_known_hard_cases_are_right(void **state)
{
  static const char *const cases[] = {
      "0",
      "-0",
      "0.0",
      "-0.0e5",
      "0e999999",
      "1",
      "-1",
      "1.",
      ".5",
      "+.5",
      "1e0",
      "1E+2",
      "1e-2",
      "9007199254740992",
      "9007199254740993",
      "9007199254740993.0000000000000000000000000000001",
      "9007199254740994",
      "9007199254740995",
      "18014398509481983",
      "36028797018963967",
      "2.2250738585072011e-308",
      "2.2250738585072014e-308",
      "2.2250738585072012e-308",
      "4.9406564584124654e-324",
      "2.4703282292062327e-324",
      "2.4703282292062328e-324",
      "2.47032822920623272088284396434110686182e-324",
      "1.7976931348623157e308",
      "1.7976931348623158e308",
      "1.7976931348623159e308",
      "1e308",
      "1e309",
      "1e-400",
      "1e400",
      "123456789012345678901234567890",
      "0.000000000000000000000000000001",
      "3.14159265358979323846",
      "6.02214076e23",
      "1.1",
      "0.1",
      "0.3",
      "100000000000000000000000",
      "1e23",
      "8.5e22",
      "9.5e22",
      "7.2057594037927933e16",
      "5e-324",
      "3e-324",
      "2e-324",
      "1e-323",
      "179769313486231580793e289",
      "2.225073858507201136057409796709131975934819546351645648023426109724822222021076"
      "94551652952390813508791414915891303962110687008643869459464552765720740782062174"
      "33799881410632673292535522868813721490129811224514518898490572223072852551331557"
      "55015914397476397983411801999323962548289017107081850690630666655994938275772572"
      "01576306269066333264756530000924588831643303777979186961204949739037782970490505"
      "10806099407302629371289589500035837999672072543043602840788957717961509455167482"
      "43471030702609144621572289880258182545180325707018860872113128079512233426288368"
      "62232150377566662250398253433597456888442390026549819838548794829220689472168983"
      "10996983658468140228542433306603398508864458040010349339704275671864433837704860"
      "37861622771738545623065874679014086723327636718751234567890123456789012345678901"
      "e-308",
      "inf",
      "-inf",
      "Infinity",
      "-INFINITY",
      "nan",
      "NaN",
      "-nan"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_strtod(cases[i]);
}

static void every_power_of_ten_is_right(void **state)
{
  static const char *const digits[] = {"1",
                                       "9",
                                       "12345678901234567",
                                       "9999999999999999999",
                                       "10000000000000000000000001",
                                       "18446744073709551615",
                                       "18446744073709551616",
                                       "4503599627370497.5"};
  char text[64];
  for (int e = -400; e <= 400; e++)
    for (size_t i = 0; i < sizeof digits / sizeof *digits; i++) {
      snprintf(text, sizeof text, "%se%d", digits[i], e);
      assert_strtod(text);
    }
}

// Doubles of all sizes, in the forms that programs write them.
static void random_doubles_are_right(void **state)
{
  static const char *const forms[] = {"%.17g", "%.16g", "%.15g", "%.6g", "%.9g", "%.3e", "%.20e"};
  uint64_t seed = 20;
  char text[400];
  for (int i = 0; i < 100000; i++) {
    uint64_t bits = cells_random(&seed);
    double d;
    memcpy(&d, &bits, sizeof d);
    snprintf(text, sizeof text, forms[i % 7], d);
    assert_strtod(text);
    d = (double)(int64_t)cells_random(&seed) / 0x1p63 * 1000;
    snprintf(text, sizeof text, i & 1 ? "%.6f" : "%.17g", d);
    assert_strtod(text);
  }
}

// Half way between two doubles, and a little beside it: what 128 bits cannot always decide.
static void ties_go_to_the_even_one(void **state)
{
  uint64_t seed = 21;
  char text[1200], beside[1300];
  for (int i = 0; i < 3000; i++) {
    uint64_t bits = cells_random(&seed) & ~(UINT64_C(1) << 63);
    if (i & 1) // where exact ties have few digits
      bits = (bits & 0x000fffffffffffff) | (uint64_t)(1023 + cells_random(&seed) % 90) << 52;
    double low, high;
    memcpy(&low, &bits, sizeof low);
    bits++;
    memcpy(&high, &bits, sizeof high);
    if (!isfinite(high))
      continue;
    long double middle = ((long double)low + (long double)high) / 2;
    snprintf(text, sizeof text, "%.1074Lf", middle);
    if (strlen(text) > 1150)
      continue;
    assert_strtod(text);
    snprintf(beside, sizeof beside, "%s0000000000000000001", text);
    assert_strtod(beside);
    snprintf(text, sizeof text, "%.770Le", middle);
    assert_strtod(text);
  }
}

static void long_numbers_are_right(void **state)
{
  static const size_t counts[] = {18, 19, 20, 21, 300, 799, 800, 801, 5000};
  char *text = malloc(20000);
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    for (int form = 0; form < 6; form++) {
      size_t n = counts[i], at = 0;
      if (form & 1)
        at = (size_t)snprintf(text, 100, "0.");
      memset(text + at, form & 2 ? '0' : '9', n);
      text[at] = '1';
      text[at + n - 1] = '1';
      snprintf(text + at + n, 100, "%s", form >= 4 ? "e-290" : form & 1 ? "" : ".5");
      assert_strtod(text);
      memmove(text + 2000, text, at + n + 20);
      memset(text, '0', 2000); // leading zeros count for nothing
      assert_strtod(text);
    }
  free(text);
}

static void what_is_no_number_is_refused(void **state)
{
  static const char *const wrong[] = {
      "",   " ", "-",   "+",   ".",  "e5",      "1e",     "1e+", "1.5.2", "1,5",      "0x10",
      "1x", "x", "--1", "+-1", "in", "infinit", "nan(1)", "1 2", "1e5.5", "\xd9\xa1", "1\n"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    double d = 7;
    int64_t s = 7;
    uint64_t u = 7;
    if (read_f64(wrong[i], strlen(wrong[i]), &d))
      fail_msg("\"%s\" was taken as %a", wrong[i], d);
    assert_false(manta__number_i64(wrong[i], strlen(wrong[i]), &s));
    assert_false(manta__number_u64(wrong[i], strlen(wrong[i]), &u));
    assert_true(d == 7 && s == 7 && u == 7);
  }
  double d;
  assert_false(read_f64("1\0", 2, &d));
  assert_true(read_f64(" \t1.5 ", 6, &d) && d == 1.5);
}

static void integers_go_to_their_limits(void **state)
{
  static const struct {
    const char *text;
    bool i, u;
  } cases[] = {{"0", true, true},
               {"-0", true, true},
               {"007", true, true},
               {"+12345678", true, true},
               {"123456789012345678", true, true},
               {"9223372036854775807", true, true},
               {"9223372036854775808", false, true},
               {"-9223372036854775808", true, false},
               {"-9223372036854775809", false, false},
               {"18446744073709551615", false, true},
               {"18446744073709551616", false, false},
               {"99999999999999999999", false, false},
               {"00000000000000000000000000001", true, true},
               {"100000000000000000000000", false, false},
               {"-1", true, false},
               {"1.0", false, false},
               {" 42 ", true, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t s = 0;
    uint64_t u = 0;
    const char *text = cases[i].text;
    assert_int_equal(manta__number_i64(text, strlen(text), &s), cases[i].i);
    assert_int_equal(manta__number_u64(text, strlen(text), &u), cases[i].u);
    if (cases[i].i)
      assert_true(s == strtoll(text, NULL, 10));
    if (cases[i].u)
      assert_true(u == strtoull(text, NULL, 10));
  }
}

static void random_integers_read_back(void **state)
{
  uint64_t seed = 22;
  char text[32];
  for (int i = 0; i < 100000; i++) {
    int64_t want = (int64_t)cells_random(&seed) >> cells_random(&seed) % 64, got = 0;
    int n = snprintf(text, sizeof text, "%" PRId64, want);
    assert_true(manta__number_i64(text, (size_t)n, &got));
    assert_true(want == got);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(well_known_hard_cases_are_right),
      cmocka_unit_test(every_power_of_ten_is_right),
      cmocka_unit_test(random_doubles_are_right),
      cmocka_unit_test(ties_go_to_the_even_one),
      cmocka_unit_test(long_numbers_are_right),
      cmocka_unit_test(what_is_no_number_is_refused),
      cmocka_unit_test(integers_go_to_their_limits),
      cmocka_unit_test(random_integers_read_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
