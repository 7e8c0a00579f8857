/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/runner.c - runs the tests of a program, or those that its arguments name.
 *
 *     test_NAME [-l] [FILTER...]
 *
 * A filter is a part of a test's name, or a glob (with *, ? or [) of the whole name; a test runs if
 * one of them fits. -l prints the names instead. A filter that fits nothing is a failure: a typing
 * error must not look like success.
 *
 * The arguments come from a constructor, so that no main can forget to pass them on. A program that
 * starts itself in another role returns from main before it gets here.
 */
#include "test.h"

#include <fnmatch.h>

static bool list;
static char **filters; // up to a NULL
static char *none[] = {NULL};

// glibc calls constructors as it calls main.
__attribute__((constructor)) static void take_arguments(int argc, char **argv)
{
  list = argc > 1 && !strcmp(argv[1], "-l");
  filters = argc > 0 ? argv + 1 + list : none;
}

static bool fits(const char *name, const char *filter)
{
  if (strpbrk(filter, "*?["))
    return fnmatch(filter, name, 0) == 0;
  return strstr(name, filter) != NULL;
}

static bool is_chosen(const char *name)
{
  for (char **f = filters; *f; f++)
    if (fits(name, *f))
      return true;
  return !*filters;
}

int run_chosen(const char *group, const struct CMUnitTest *tests, size_t count,
               CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
  struct CMUnitTest *chosen = calloc(count, sizeof *chosen);
  size_t n = 0;
  if (!chosen)
    abort();
  for (size_t i = 0; i < count; i++)
    if (is_chosen(tests[i].name))
      chosen[n++] = tests[i];
  int failed = n == 0;
  if (n == 0)
    fprintf(stderr, "no test has such a name; -l lists the %zu names\n", count);
  else if (list)
    for (size_t i = 0; i < n; i++)
      puts(chosen[i].name);
  else
    failed = _cmocka_run_group_tests(group, chosen, n, set_up, tear_down);
  free(chosen);
  return failed;
}
