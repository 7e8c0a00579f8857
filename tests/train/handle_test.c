/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's handle and its trainer may end in either order, in a forked child too.
 */
#include "rig.h"

#define FAR 1000000 /* nobody gets there */

// A run to `n`, with its first row taken.
static manta_run *begin(struct rig *r, int64_t n)
{
  manta_run *run = NULL;
  manta_rows rows;
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", n), MANTA_KV_INT("pause_us", 1000));
  rig_make(r);
  r->rc.config = &config;
  assert_ok(manta_run_start(&run, r->t, counting, &r->rc, &r->err), &r->err);
  assert_int_equal(manta_run_next(run, 30, &rows, &r->err), 1);
  return run;
}

static void a_run_outlives_its_trainer(void **state)
{
  struct rig r;
  manta_rows rows;
  rig_init(&r, 2);
  manta_run *run = begin(&r, FAR);
  rig_destroy(&r);
  assert_int_equal(r.finishes, 1);
  assert_int_equal(r.finished_with, MANTA_ECANCELED);
  assert_nothing_left();
  for (int i = 0; i < 2; i++) {
    assert_int_equal(manta_run_next(run, 30, &rows, &r.err), MANTA_ECANCELED);
    assert_true(manta_run_finished(run));
    assert_null(manta_run_results(run));
    assert_null(manta_run_failure(run));
  }
  manta_run_close(run);
  assert_int_equal(r.finishes, 1);
  rig_fini(&r);
}

static void results_outlive_the_trainer(void **state)
{
  struct rig r;
  manta_rows rows;
  rig_init(&r, 2);
  manta_run *run = begin(&r, 3);
  int st;
  while ((st = manta_run_next(run, 30, &rows, &r.err)) == 1)
    ;
  assert_int_equal(st, 0);
  rig_destroy(&r);
  assert_int_equal(manta_run_next(run, 30, &rows, &r.err), 0);
  const manta_value *results = manta_run_results(run);
  assert_non_null(results);
  assert_int_equal(manta_value_as_int(manta_value_at(results, 1), -1), 3);
  assert_int_equal(r.finishes, 1);
  manta_run_close(run);
  rig_fini(&r);
}

// The handle holds nothing of the run's directory: another trainer goes on with it.
static void what_a_destroyed_trainer_left_can_be_resumed(void **state)
{
  struct rig r, next;
  manta_rows rows;
  char dir[512];
  rig_init(&r, 1);
  manta_run *run = begin(&r, FAR);
  while (manta_run_next(run, 30, &rows, &r.err) == 1 && rows.iteration < 20)
    ;
  snprintf(dir, sizeof dir, "%s", manta_trainer_run_dir(r.t));
  rig_destroy(&r);
  rig_init(&next, 1);
  next.rc.resume = dir;
  next.last = -1;
  manta_value n = MANTA_MAP(MANTA_KV_INT("n", 1)); // counts are beyond it already
  next.rc.config = &n;
  rig_make(&next);
  assert_ok(manta_trainer_run(next.t, counting, &next.rc, &next.results, &next.err), &next.err);
  assert_string_equal(manta_trainer_run_dir(next.t), dir);
  assert_true(manta_value_as_int(manta_value_at(&next.results, 0), -1) >= 1);
  rig_fini(&next);
  manta_run_close(run);
  rig_fini(&r);
}

// A child that the user forks cleans up what it inherited: nothing happens, and nobody hangs.
static void a_forked_child_ends_nothing(void **state)
{
  struct rig r;
  manta_rows rows;
  int status = 0;
  rig_init(&r, 1);
  manta_run *run = begin(&r, FAR);
  for (int i = 0; i < 8; i++) { // the thread holds its lock now and then
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
      alarm(20);
      int st = manta_run_next(run, 5, &rows, NULL);
      bool over = manta_run_finished(run);
      manta_run_close(run);
      manta_trainer_shutdown(r.t);
      manta_trainer_destroy(r.t);
      _exit(st == MANTA_ESTATE && over ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(manta_run_next(run, 30, &rows, &r.err), 1);
  }
  assert_int_equal(r.finishes, 0);
  manta_run_close(run);
  assert_int_equal(r.finishes, 1);
  rig_fini(&r);
  assert_nothing_left();
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(a_run_outlives_its_trainer),
      rig_test(results_outlive_the_trainer),
      rig_test(what_a_destroyed_trainer_left_can_be_resumed),
      rig_test(a_forked_child_ends_nothing),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
