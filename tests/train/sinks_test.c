/* SPDX-License-Identifier: Apache-2.0
 *
 * The sinks of real runs: their files are complete when the run has ended, whoever was killed.
 */
#include <errno.h>

#include "rig.h"
#include "sys/proc.h"

static manta_value read_json(const char *dir, const char *name)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = {0};
  char path[600];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "r");
  if (!f)
    fail_msg("%s: %s", path, strerror(errno));
  static char text[4 << 20];
  size_t n = fread(text, 1, sizeof text, f);
  fclose(f);
  assert_ok(manta_value_from_json(&v, text, n, &err), &err);
  return v;
}

// results.json has exactly the iterations 1 to n.
static void assert_counts(const struct rig *r, size_t n)
{
  manta_value v = read_json(manta_trainer_run_dir(r->t), "results.json");
  assert_int_equal(v.count, n);
  for (size_t i = 0; i < n; i++) {
    const manta_value *row = manta_value_at(manta_value_at(&v, i), 0);
    assert_int_equal(manta_value_as_int(manta_value_get(row, "_training_iteration"), -1), i + 1);
    assert_int_equal(manta_value_as_int(manta_value_get(row, "count"), -1), i + 1);
  }
  manta_value_fini(&v);
}

static void with_json(struct rig *r, int workers)
{
  static const manta_sink json = {"json", NULL};
  rig_init(r, workers);
  r->rc.sinks = &json;
  r->rc.sink_count = 1;
}

static void assert_no_sink_left(void)
{
  assert_true(within(5, child_named(getpid(), "manta-sink") == 0));
}

static void files_are_complete_when_the_run_ends(void **state)
{
  struct rig r;
  with_json(&r, 2);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 300), MANTA_KV_INT("pause_us", 0));
  for (int k = 0; k < 3; k++) {
    r.last = 0;
    assert_ok(rig_run(&r, &c), &r.err);
    assert_counts(&r, 300);
    assert_no_sink_left();
  }
  manta_value params = read_json(manta_trainer_run_dir(r.t), "params.json");
  assert_int_equal(manta_value_as_int(manta_value_get(&params, "n"), 0), 300);
  manta_value_fini(&params);
  rig_fini(&r);
  assert_nothing_left();
}

static void void_rows_are_taken_out_after_a_death(void **state)
{
  struct rig r;
  with_json(&r, 2);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 100), MANTA_KV_STR("fault", "kill"),
                            MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 57));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(board->fired, 1);
  assert_int_equal(r.rewinds, 1);
  assert_counts(&r, 100);
  rig_fini(&r);
  assert_no_sink_left();
  assert_nothing_left();
}

static int killed;

static void *kill_sinks(void *arg)
{
  for (int k = 0; k < 3; k++) {
    pid_t pid = 0;
    if (!within(10, (pid = child_named(getpid(), "manta-sink")) > 0))
      return NULL;
    while (board->at[0] < 40 * (k + 1)) // some rows later, so that there is something to double
      usleep(500);
    killed += manta__proc_signal(pid, SIGKILL) == 0;
    if (!within(5, !alive(pid)))
      return NULL;
  }
  return NULL;
}

static void a_killed_process_of_sinks_is_started_again(void **state)
{
  struct rig r;
  pthread_t killer;
  with_json(&r, 1);
  killed = 0;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 400), MANTA_KV_INT("pause_us", 2000));
  assert_int_equal(pthread_create(&killer, NULL, kill_sinks, NULL), 0);
  assert_ok(rig_run(&r, &c), &r.err);
  pthread_join(killer, NULL);
  assert_int_equal(killed, 3);
  assert_logged(&r, "the process of the sinks died (killed by signal 9 (SIGKILL))");
  assert_counts(&r, 400);
  rig_fini(&r);
  assert_no_sink_left();
  assert_nothing_left();
}

static void a_place_that_cannot_be_written_is_a_warning(void **state)
{
  struct rig r;
  manta_value where = MANTA_MAP(MANTA_KV_STR("logdir", "/proc/none"));
  manta_sink json = {"json", &where};
  with_json(&r, 1);
  r.rc.sinks = &json;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 10));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_logged(&r, "sink json: ");
  assert_logged(&r, "did not get all");
  rig_fini(&r);
  assert_no_sink_left();
}

static void a_wrong_sink_is_refused_before_anything_starts(void **state)
{
  struct rig r;
  manta_sink wrong = {"jsonn", NULL};
  with_json(&r, 1);
  r.rc.sinks = &wrong;
  assert_status(rig_run(&r, NULL), MANTA_EINVAL);
  assert_non_null(strstr(r.err.message, "json"));
  r.rc.sink_count = 0;
  rig_fini(&r);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(files_are_complete_when_the_run_ends),
      rig_test(void_rows_are_taken_out_after_a_death),
      rig_test(a_killed_process_of_sinks_is_started_again),
      rig_test(a_place_that_cannot_be_written_is_a_warning),
      rig_test(a_wrong_sink_is_refused_before_anything_starts),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
