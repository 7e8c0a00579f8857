/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/python.h"

#include <errno.h>
#include <sys/wait.h>

#include "scratch.h"

static char *root;
static manta_error err;
static struct manta__python found;

static int setup(void **state)
{
  root = scratch_make();
  err = (manta_error)MANTA_ERROR_INIT;
  found = (struct manta__python){"x", "x", "x"};
  return 0;
}

static int teardown(void **state)
{
  unsetenv("MANTA_PYTHON");
  unsetenv("PYTHONPATH");
  scratch_remove(root);
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); // it left no child behind
  return 0;
}

// An interpreter that is this shell script.
static void pretend(const char *script)
{
  char path[PATH_MAX];
  scratch_write(root, "python", script);
  snprintf(path, sizeof path, "%s/python", root);
  assert_int_equal(chmod(path, 0755), 0);
  setenv("MANTA_PYTHON", path, 1);
}

static void the_variable_names_it(void **state)
{
  assert_string_equal(manta__python_name(), "python3");
  setenv("MANTA_PYTHON", "", 1);
  assert_string_equal(manta__python_name(), "python3");
  setenv("MANTA_PYTHON", "/opt/python", 1);
  assert_string_equal(manta__python_name(), "/opt/python");
}

// The real one: torch without metadata, and no import of it, which would print.
static void it_is_asked_what_it_finds(void **state)
{
  scratch_write(root, "torch/__init__.py", "print('imported')\n");
  setenv("PYTHONPATH", root, 1);
  manta_status st = manta__python_ask(&found, 60, &err);
  if (st == MANTA_ENOENT)
    skip_because("there is no python3");
  assert_ok(st, &err);
  assert_int_equal(strncmp(found.version, "3.", 2), 0);
  assert_true(found.torch[0] == '?' || strchr(found.torch, '.'));
}

static void what_does_not_exist(void **state)
{
  setenv("MANTA_PYTHON", "/nowhere/python", 1);
  assert_int_equal(manta__python_ask(&found, 60, &err), MANTA_ENOENT);
  assert_has(err.message, "cannot run /nowhere/python");
  assert_string_equal(found.version, "");
}

static void what_answers_something_else(void **state)
{
  pretend("#!/bin/sh\necho hello\n");
  assert_int_equal(manta__python_ask(&found, 60, &err), MANTA_EIO);
  assert_has(err.message, "is not a Python");
  pretend("#!/bin/sh\nprintf '3.9\\n\\n\\n'\nexit 3\n");
  assert_int_equal(manta__python_ask(&found, 60, &err), MANTA_EIO);
  pretend("#!/bin/sh\nexec yes\n");
  assert_int_equal(manta__python_ask(&found, 60, &err), MANTA_EIO);
}

static void what_does_not_answer_is_killed(void **state)
{
  pretend("#!/bin/sh\nexec sleep 1000\n");
  assert_int_equal(manta__python_ask(&found, 0.05, &err), MANTA_ETIMEDOUT);
  assert_has(err.message, "did not answer within 0.05 s");
  pretend("#!/bin/sh\nexec sleep 1000 >&-\n"); // nothing to read any more, and no end
  assert_int_equal(manta__python_ask(&found, 0.05, &err), MANTA_ETIMEDOUT);
}

static void long_versions_are_cut(void **state)
{
  pretend("#!/bin/sh\nprintf '3.12.1\\n%0100d\\n2.9\\n' 7\n");
  assert_ok(manta__python_ask(&found, 60, &err), &err);
  assert_int_equal(strlen(found.manta), MANTA__PYTHON_TEXT - 1);
  assert_string_equal(found.torch, "2.9");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      T(the_variable_names_it),       T(it_is_asked_what_it_finds),      T(what_does_not_exist),
      T(what_answers_something_else), T(what_does_not_answer_is_killed), T(long_versions_are_cut),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
