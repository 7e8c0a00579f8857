/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/base/comma.h - a program in a locale whose decimal point is a comma.
 */
#ifndef MANTA_TEST_COMMA_H
#define MANTA_TEST_COMMA_H

#include <locale.h>

#include "test.h"

static inline void assert_comma(void)
{
  char point[8];
  snprintf(point, sizeof point, "%.1f", 1.5);
  assert_string_equal(point, "1,5");
}

/* Runs `body` in such a locale, made for the purpose, and asserts that it is still in force
 * afterwards; skips the test where none can be made. */
static inline void with_comma(void (*body)(void))
{
  char dir[] = "/tmp/manta-locale-XXXXXX", cmd[200];
  assert_non_null(mkdtemp(dir));
  snprintf(cmd, sizeof cmd, "localedef -i de_DE -f UTF-8 %s/xx >/dev/null 2>&1", dir);
  int made = system(cmd);
  setenv("LOCPATH", dir, 1);
  const char *set = made == 0 ? setlocale(LC_ALL, "xx") : NULL;
  if (set) {
    assert_comma();
    body();
    assert_comma();
  }
  setlocale(LC_ALL, "C");
  snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
  assert_int_equal(system(cmd), 0);
  if (!set)
    skip_because("localedef cannot make a locale with a decimal comma here");
}

#endif
