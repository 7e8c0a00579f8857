/* SPDX-License-Identifier: Apache-2.0
 *
 * MANTA_* variables with wrong values, and names that are none: who refuses, who warns.
 */
#include <manta/embed.h>

#include "rig.h"

static int warnings;
static char warning[512];

static void hear(void *ctx, manta_log_level level, const char *text)
{
  if (level == MANTA_LOG_WARN && strstr(text, "environment variable")) {
    warnings++;
    snprintf(warning, sizeof warning, "%s", text);
  }
}

// First: a process is warned once.
static void a_name_that_is_none_is_warned_of_once(void **state)
{
  struct rig r;
  setenv("MANTA_GROW_AFTR", "5", 1);
  setenv("MANTA_TEST_MINE", "1", 1);
  manta_set_log(hear, NULL);
  for (int i = 0; i < 2; i++) {
    rig_init(&r, 1);
    rig_make(&r);
    rig_fini(&r);
  }
  manta_set_log(NULL, NULL);
  unsetenv("MANTA_GROW_AFTR");
  unsetenv("MANTA_TEST_MINE");
  assert_int_equal(warnings, 1);
  assert_string_equal(warning, "unknown environment variable MANTA_GROW_AFTR; did you mean "
                               "MANTA_GROW_AFTER?");
}

static void a_trainer_is_refused(void **state)
{
  static const char *const wrong[][3] = {
      {"MANTA_GROW_AFTER", "abc", "MANTA_GROW_AFTER must be a number of seconds"},
      {"MANTA_NUM_WORKERS", "none", "MANTA_NUM_WORKERS must be a whole number of workers"},
      {"MANTA_DETAILED_METRICS", "2", "MANTA_DETAILED_METRICS must be 1 or 0"},
      {"MANTA_COMM_ISA", "sse", "MANTA_COMM_ISA must be scalar, avx2 or avx512, not \"sse\""},
      {"MANTA_NUM_CPUS", "-1", "MANTA_NUM_CPUS must be a number of CPUs"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    manta_trainer *t = NULL;
    struct rig r;
    rig_init(&r, 1);
    setenv(wrong[i][0], wrong[i][1], 1);
    assert_status(manta_trainer_create(&t, &r.cfg, &r.err), MANTA_EINVAL);
    assert_has(r.err.message, wrong[i][2]);
    unsetenv(wrong[i][0]);
    assert_null(t);
    rig_fini(&r);
  }
}

// A program may change its environment between the two; what is right again is taken.
static void a_run_is_refused_and_the_next_one_is_not(void **state)
{
  struct rig r;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 3));
  rig_init(&r, 2);
  rig_make(&r);
  setenv("MANTA_RESIZE_EVERY", "often", 1);
  assert_status(rig_run(&r, &c), MANTA_EINVAL);
  assert_has(r.err.message, "MANTA_RESIZE_EVERY must be a number of seconds from 0 to 1000000000, "
                            "not \"often\"");
  setenv("MANTA_RESIZE_EVERY", "0.5", 1);
  assert_ok(rig_run(&r, &c), &r.err);
  unsetenv("MANTA_RESIZE_EVERY");
  rig_fini(&r);
}

static void a_prestart_is_refused(void **state)
{
  const char *argv[] = {"x", NULL};
  manta_program p = MANTA_PROGRAM_INIT;
  manta_error err = MANTA_ERROR_INIT;
  p.argv = argv;
  setenv("MANTA_AMX", "some", 1);
  assert_status(manta_prestart(&p, 1, &err), MANTA_EINVAL);
  assert_string_equal(err.message, "MANTA_AMX must be none, ok or trap, not \"some\"");
  unsetenv("MANTA_AMX");
}

// It has an environment of its own, which the driver cannot look at.
static void an_agent_elsewhere_refuses_and_the_driver_says_so(void **state)
{
  struct rig r;
  char command[600];
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 3));
  rig_init(&r, 2);
  snprintf(command, sizeof command, "MANTA_GONE_AFTER=soon exec %s agent --stdio",
           getenv("MANTA_BIN"));
  manta_host there = {.name = "there", .command = command, .slots = 2};
  r.cfg.hosts = &there;
  r.cfg.host_count = 1;
  rig_make(&r);
  assert_true(rig_run(&r, &c) < 0);
  assert_has(r.err.message, "there");
  assert_has(r.err.message, "MANTA_GONE_AFTER must be a number of seconds");
  rig_fini(&r);
}

int main(int argc, char **argv)
{
  if (manta_init(&argc, &argv) < 0)
    return 1;
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(a_name_that_is_none_is_warned_of_once),
      rig_test(a_trainer_is_refused),
      rig_test(a_run_is_refused_and_the_next_one_is_not),
      rig_test(a_prestart_is_refused),
      rig_test(an_agent_elsewhere_refuses_and_the_driver_says_so),
  };
  cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
