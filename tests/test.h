/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/test.h - what every C test includes: cmocka, and assertions that cannot be fooled.
 *
 * A test binary ends in  int main(int argc, char **argv) { … return cmocka_run_group_tests(tests,
 * …); } and calls manta_init first if it starts workers. Its arguments choose tests by name:
 * runner.c says how.
 */
#ifndef MANTA_TEST_H
#define MANTA_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <manta/manta.h>

#include "base/alloc.h"

/* Runs the tests that the program's arguments name, or all; returns how many failed. */
int run_chosen(const char *group, const struct CMUnitTest *tests, size_t count,
               CMFixtureFunction set_up, CMFixtureFunction tear_down);

/* cmocka's own, which know no arguments. */
#undef cmocka_run_group_tests
#undef cmocka_run_group_tests_name
#define cmocka_run_group_tests(tests, set_up, tear_down)                                           \
  cmocka_run_group_tests_name(#tests, tests, set_up, tear_down)
#define cmocka_run_group_tests_name(group, tests, set_up, tear_down)                               \
  run_chosen(group, tests, sizeof(tests) / sizeof *(tests), set_up, tear_down)

/* Succeeds only with MANTA_OK or a positive status; prints the message otherwise. */
#define assert_ok(expr, errp)                                                                      \
  do {                                                                                             \
    int assert_st = (int)(expr);                                                                   \
    if (assert_st < 0)                                                                             \
      fail_msg("%s: %s: %s", #expr, manta_status_name((manta_status)assert_st), (errp)->message);  \
  } while (0)

/* Succeeds only with exactly this status. */
#define assert_status(expr, want)                                                                  \
  do {                                                                                             \
    int assert_st = (int)(expr);                                                                   \
    if (assert_st != (int)(want))                                                                  \
      fail_msg("%s: got %s, want %s", #expr, manta_status_name((manta_status)assert_st),           \
               manta_status_name((manta_status)(want)));                                           \
  } while (0)

/* Fails unless |a - b| <= tol: NaN cannot slip by. */
#define assert_near(a, b, tol)                                                                     \
  do {                                                                                             \
    double assert_a = (a), assert_b = (b);                                                         \
    if (!(fabs(assert_a - assert_b) <= (tol)))                                                     \
      fail_msg("%s = %.17g, want %.17g", #a, assert_a, assert_b);                                  \
  } while (0)

#define assert_has(haystack, needle)                                                               \
  do {                                                                                             \
    const char *assert_h = (haystack);                                                             \
    if (!strstr(assert_h, (needle)))                                                               \
      fail_msg("\"%s\" does not contain \"%s\"", assert_h, (needle));                              \
  } while (0)

/* Ends the test as skipped; `reason` (a literal) is shown by make check. */
#define skip_because(reason)                                                                       \
  do {                                                                                             \
    print_message("# skip: " reason "\n");                                                         \
    skip();                                                                                        \
  } while (0)

/* Runs `make` with the 1st, 2nd, 3rd … allocation failing until it succeeds, and asserts that each
 * failure was MANTA_ENOMEM. `make` is an expression of type manta_status; `undo` runs after
 * success. At least one failure must have happened, else the test proves nothing. */
#define FOR_EACH_OOM(make, undo)                                                                   \
  do {                                                                                             \
    long oom_n = 0;                                                                                \
    for (;; oom_n++) {                                                                             \
      assert_true(oom_n < 100000);                                                                 \
      manta__alloc_fail_after(oom_n);                                                              \
      manta_status oom_st = (make);                                                                \
      manta__alloc_fail_after(-1);                                                                 \
      if (oom_st >= 0)                                                                             \
        break;                                                                                     \
      assert_status(oom_st, MANTA_ENOMEM);                                                         \
    }                                                                                              \
    undo;                                                                                          \
    assert_true(oom_n > 0);                                                                        \
  } while (0)

#endif
