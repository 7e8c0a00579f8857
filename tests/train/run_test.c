/* SPDX-License-Identifier: Apache-2.0
 *
 * What a user of the trainer sees when nothing goes wrong, or only the user's own function.
 */
#include "rig.h"

static void counts_on_all_workers(void **state)
{
  struct rig r;
  rig_init(&r, 3);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 50));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(r.results.count, 3);
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, i), -1), 50);
  assert_int_equal(r.rows, 50);
  assert_int_equal(r.incomplete, 0);
  assert_int_equal(r.starts, 1);
  assert_int_equal(r.finishes, 1);
  assert_int_equal(r.finished_with, MANTA_OK);
  rig_fini(&r);
  assert_nothing_left();
}

static void runs_again_in_fresh_processes(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 5));
  int64_t pid[8][2];
  for (int k = 0; k < 8; k++) {
    r.last = 0;
    assert_ok(rig_run(&r, &c), &r.err);
    for (int i = 0; i < 2; i++) {
      pid[k][i] = board->pid[i];
      assert_true(k == 0 || pid[k][i] != pid[k - 1][i]);
      assert_false(k > 1 && alive((pid_t)pid[k - 2][i]));
    }
  }
  assert_int_equal(board->reused, 0);
  rig_fini(&r);
  assert_nothing_left();
}

static void runs_again_in_the_same_processes_if_asked(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.keep_workers = true;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 5));
  assert_ok(rig_run(&r, &c), &r.err);
  int64_t pid = board->pid[1];
  char first[512];
  snprintf(first, sizeof first, "%s", manta_trainer_run_dir(r.t));
  r.last = 0;
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(board->pid[1], pid);
  assert_int_equal(manta_trainer_pid(r.t, 1), pid);
  assert_string_not_equal(manta_trainer_run_dir(r.t), first);
  manta_trainer_shutdown(r.t);
  assert_true(within(2, !alive((pid_t)pid)));
  manta_trainer_shutdown(r.t);
  r.last = 0;
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_not_equal(board->pid[1], pid);
  rig_fini(&r);
  assert_nothing_left();
}

static void starts_ahead_of_the_run(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  rig_make(&r);
  assert_ok(manta_trainer_start(r.t, &r.err), &r.err);
  assert_ok(manta_trainer_start(r.t, &r.err), &r.err);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 3));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(r.results.count, 2);
  rig_fini(&r);
}

static void several_trainers_share_an_agent(void **state)
{
  struct rig r;
  manta_trainer *other;
  manta_run *run;
  rig_init(&r, 2);
  rig_make(&r);
  manta_trainer_config cfg = r.cfg;
  cfg.callback_count = 0;
  assert_ok(manta_trainer_create(&other, &cfg, &r.err), &r.err);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 200));
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  rc.config = &c;
  assert_ok(manta_run_start(&run, other, counting, &rc, &r.err), &r.err);
  manta_value few = MANTA_MAP(MANTA_KV_INT("n", 20));
  assert_ok(rig_run(&r, &few), &r.err);
  manta_rows rows;
  int n = 0, st;
  while ((st = manta_run_next(run, 10, &rows, &r.err)) == 1)
    assert_int_equal(rows.iteration, ++n);
  assert_ok(st, &r.err);
  assert_int_equal(n, 200);
  manta_run_close(run);
  manta_trainer_destroy(other);
  rig_fini(&r);
  assert_nothing_left();
}

static void iterates_row_by_row(void **state)
{
  struct rig r;
  manta_run *run;
  manta_rows rows;
  rig_init(&r, 2);
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 4));
  r.rc.config = &c;
  assert_ok(manta_run_start(&run, r.t, counting, &r.rc, &r.err), &r.err);
  assert_status(manta_run_start(&run, r.t, counting, &r.rc, &r.err), MANTA_ESTATE);
  for (int i = 1; i <= 4; i++) {
    assert_int_equal(manta_run_next(run, 10, &rows, &r.err), 1);
    assert_int_equal(rows.count, 2);
    assert_true(rows.complete);
    assert_near(manta_value_as_real(manta_value_get(&rows.rows[1], "half"), -1), i / 2.0, 0);
    assert_int_equal(manta_value_get(&rows.rows[0], "_timestamp")->type, MANTA_INT);
    assert_int_equal(manta_value_get(&rows.rows[0], "_time_this_iter_s")->type, MANTA_REAL);
  }
  assert_int_equal(manta_run_next(run, 10, &rows, &r.err), 0);
  assert_true(manta_run_finished(run));
  assert_int_equal(manta_value_as_int(manta_value_at(manta_run_results(run), 1), -1), 4);
  manta_run_close(run);
  rig_fini(&r);
}

static void leaving_early_ends_the_run(void **state)
{
  struct rig r;
  manta_run *run;
  manta_rows rows;
  rig_init(&r, 2);
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 1000000), MANTA_KV_INT("pause_us", 1000));
  r.rc.config = &c;
  assert_ok(manta_run_start(&run, r.t, counting, &r.rc, &r.err), &r.err);
  assert_int_equal(manta_run_next(run, 10, &rows, &r.err), 1);
  assert_false(manta_run_finished(run));
  assert_null(manta_run_results(run));
  assert_status(manta_run_next(run, 0, &rows, &r.err) == 1 ? 0 : MANTA_OK, MANTA_OK);
  int64_t t0 = manta__now();
  manta_run_close(run);
  assert_true(manta__now() - t0 < 2000000000);
  assert_int_equal(r.finished_with, MANTA_ECANCELED);
  manta_value few = MANTA_MAP(MANTA_KV_INT("n", 3));
  r.last = 0;
  assert_ok(rig_run(&r, &few), &r.err); // the trainer is as good as new
  rig_fini(&r);
  assert_nothing_left();
}

static void *cancel_soon(void *t)
{
  usleep(50000);
  manta_trainer_cancel(t);
  return NULL;
}

static void another_thread_cancels(void **state)
{
  struct rig r;
  pthread_t th;
  rig_init(&r, 2);
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 1000000));
  pthread_create(&th, NULL, cancel_soon, r.t);
  int64_t t0 = manta__now();
  assert_status(rig_run(&r, &c), MANTA_ECANCELED);
  assert_true(manta__now() - t0 < 3000000000);
  pthread_join(th, NULL);
  rig_fini(&r);
}

// --- the user's own errors ----------------------------------------------------------------------

static void a_failed_function_is_the_runs_error(void **state)
{
  struct rig r;
  rig_init(&r, 3);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 1000), MANTA_KV_STR("fault", "error"),
                            MANTA_KV_INT("rank", 2), MANTA_KV_INT("at", 5));
  assert_status(rig_run(&r, &c), MANTA_EUSER);
  assert_int_equal(board->fired, 1);
  assert_int_equal(board->attempts, 0);
  assert_string_equal(r.err.message, "loss is not a number at row 57");
  assert_int_equal(r.err.rank, 2);
  assert_int_equal(r.finished_with, MANTA_EUSER);
  r.last = 0;
  manta_value few = MANTA_MAP(MANTA_KV_INT("n", 3));
  assert_ok(rig_run(&r, &few), &r.err);
  rig_fini(&r);
}

static void errors_are_retried_if_asked(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.retry_errors = true;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 30), MANTA_KV_STR("fault", "error"),
                            MANTA_KV_INT("rank", 0), MANTA_KV_INT("at", 15));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(board->fired, 1);
  assert_int_equal(board->attempts, 1);
  assert_int_equal(r.last, 30);
  rig_fini(&r);
}

static manta_status uneven(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t n = manta_session_rank(s) == 0 ? 5 : manta_session_config_int(s, "others", 0);
  for (int64_t i = 1; i <= n; i++) {
    manta_value row = MANTA_MAP(MANTA_KV_INT("count", i));
    MANTA_TRY(manta_session_report(s, &row, err));
  }
  return MANTA_OK;
}

static void uneven_counts_are_named(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_INT("others", 3));
  r.rc.config = &c;
  assert_status(manta_trainer_run(r.t, uneven, &r.rc, NULL, &r.err), MANTA_EUNEVEN);
  assert_has(r.err.message, "rank 0: 5, rank 1: 3");
  rig_fini(&r);
}

static void a_silent_rank_is_nil_or_an_error(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, uneven, &r.rc, NULL, &r.err), &r.err);
  assert_int_equal(r.rows, 5);
  assert_int_equal(r.incomplete, 5);
  r.last = 0;
  r.rc.strict_reports = true;
  assert_status(manta_trainer_run(r.t, uneven, &r.rc, NULL, &r.err), MANTA_EUNEVEN);
  rig_fini(&r);
}

static manta_status only_first(manta_session *s, manta_value *result, manta_error *err)
{
  board_open();
  for (int64_t i = 1; manta_session_rank(s) == 0 && i <= 5000; i++) {
    manta_value row = MANTA_MAP(MANTA_KV_INT("count", i));
    MANTA_TRY(manta_session_report(s, &row, err));
  }
  while (manta_session_rank(s) == 1 && !board->hold)
    usleep(1000); // stays without a word until rank 0's rows have arrived
  return MANTA_OK;
}

static void rank_0_alone_may_report(void **state)
{
  struct rig r;
  manta_run *run;
  manta_rows rows;
  rig_init(&r, 2);
  r.cfg.callback_count = 0;
  rig_make(&r);
  assert_ok(manta_run_start(&run, r.t, only_first, &r.rc, &r.err), &r.err);
  int64_t n = 0;
  while (n < 5000 - 1024) { // those beyond the window come while rank 1 still runs
    assert_int_equal(manta_run_next(run, 10, &rows, &r.err), 1);
    assert_int_equal(rows.iteration, ++n);
    assert_false(rows.complete);
  }
  board->hold = 1;
  while (manta_run_next(run, 10, &rows, &r.err) == 1)
    assert_int_equal(rows.iteration, ++n);
  assert_int_equal(n, 5000);
  manta_run_close(run);
  rig_fini(&r);
}

static manta_status who_am_i(manta_session *s, manta_value *result, manta_error *err)
{
  int r = manta_session_rank(s);
  manta_session_heartbeat(s);
  bool right = manta_session_current() == s && manta_session_local_rank(s) == r &&
               manta_session_local_world_size(s) == 2 && manta_session_node_rank(s) == 0 &&
               manta_session_iteration(s) == 0 && manta_session_attempt(s) == 0 &&
               !manta_session_preempted(s) && manta_session_config_real(s, "x", 0) == 0.5 &&
               manta_session_config_bool(s, "flag", false) &&
               manta_session_config_real(s, "absent", 7) == 7;
  return manta_value_set_bool(result, right);
}

static void a_session_knows_who_it_is(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  rig_make(&r);
  assert_null(manta_session_current());
  assert_string_equal(manta_version(), MANTA_VERSION);
  manta_value c = MANTA_MAP(MANTA_KV_REAL("x", 0.5), MANTA_KV_BOOL("flag", true));
  r.rc.config = &c;
  assert_ok(manta_trainer_run(r.t, who_am_i, &r.rc, &r.results, &r.err), &r.err);
  for (size_t i = 0; i < 2; i++)
    assert_true(manta_value_as_bool(manta_value_at(&r.results, i), false));
  rig_fini(&r);
}

// --- what travels -------------------------------------------------------------------------------

static manta_status echo(manta_session *s, manta_value *result, manta_error *err)
{
  MANTA_TRY(manta_value_copy(result, manta_session_config(s)));
  MANTA_TRY(manta_value_put_int(result, "rank", manta_session_rank(s)));
  MANTA_TRY(manta_value_put_int(result, "env_rank", strtol(getenv("RANK"), NULL, 10)));
  MANTA_TRY(manta_value_put_int(result, "world", strtol(getenv("WORLD_SIZE"), NULL, 10)));
  MANTA_TRY(manta_value_put_string(result, "mine", getenv("MANTA_TEST_MINE")));
  MANTA_TRY(manta_value_put_string(result, "role", getenv("MANTA_ROLE")));
  char cwd[4096];
  printf("printed by rank %d\n", manta_session_rank(s));
  return manta_value_put_string(result, "cwd", getcwd(cwd, sizeof cwd));
}

static void config_environment_and_directory_follow_the_driver(void **state)
{
  struct rig r;
  char cwd[4096];
  rig_init(&r, 2);
  rig_make(&r);
  for (int k = 0; k < 2; k++) {
    char text[8];
    snprintf(text, sizeof text, "mine%d", k);
    setenv("MANTA_TEST_MINE", text, 1);
    assert_int_equal(chdir(k ? "/tmp" : "/"), 0);
    manta_value c = MANTA_MAP(MANTA_KV_STR("word", "ünïcode"), MANTA_KV_REAL("x", 0.1));
    r.rc.config = &c;
    assert_ok(manta_trainer_run(r.t, echo, &r.rc, &r.results, &r.err), &r.err);
    for (int i = 0; i < 2; i++) {
      const manta_value *v = manta_value_at(&r.results, (size_t)i);
      assert_string_equal(manta_value_as_string(manta_value_get(v, "word"), ""), "ünïcode");
      assert_near(manta_value_as_real(manta_value_get(v, "x"), 0), 0.1, 0);
      assert_int_equal(manta_value_as_int(manta_value_get(v, "rank"), -1), i);
      assert_int_equal(manta_value_as_int(manta_value_get(v, "env_rank"), -1), i);
      assert_int_equal(manta_value_as_int(manta_value_get(v, "world"), -1), 2);
      assert_string_equal(manta_value_as_string(manta_value_get(v, "mine"), ""), text);
      assert_string_equal(manta_value_as_string(manta_value_get(v, "cwd"), ""), getcwd(cwd, 4096));
      assert_int_equal(manta_value_get(v, "role")->type, MANTA_NIL);
    }
  }
  assert_has(r.output, "printed by rank 0\n");
  assert_null(strstr(r.output, "printed by rank 1\n")); // in its log
  rig_fini(&r);
}

static void large_configs_and_results_travel(void **state)
{
  struct rig r;
  size_t n = 5u << 20;
  char *big = malloc(n + 1);
  memset(big, 'x', n);
  big[n] = 0;
  rig_init(&r, 2);
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_STR("big", big));
  r.rc.config = &c;
  assert_ok(manta_trainer_run(r.t, echo, &r.rc, &r.results, &r.err), &r.err);
  const manta_value *back = manta_value_get(manta_value_at(&r.results, 1), "big");
  assert_int_equal(back->count, n);
  assert_memory_equal(back->u.s, big, n);
  free(big);
  rig_fini(&r);
}

static manta_status too_big(manta_session *s, manta_value *result, manta_error *err)
{
  size_t n = (1u << 20) + 1;
  char *big = malloc(n + 1);
  memset(big, 'x', n);
  big[n] = 0;
  manta_value row = MANTA_MAP(MANTA_KV_STR("big", big)), list = {.type = MANTA_LIST};
  manta_status first = manta_session_report(s, &row, err);
  bool hint = strstr(err->message, "checkpoint") != NULL;
  big[n - 1000] = 0;
  row = MANTA_MAP(MANTA_KV_STR("big", big));
  manta_status second = manta_session_report(s, &row, err);
  manta_status third = manta_session_report(s, &list, err);
  free(big);
  bool ok = first == MANTA_ETOOBIG && hint && second == MANTA_OK && third == MANTA_ETYPE;
  return manta_value_set_bool(result, ok);
}

static void reports_have_limits(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, too_big, &r.rc, &r.results, &r.err), &r.err);
  assert_true(manta_value_as_bool(manta_value_at(&r.results, 0), false));
  assert_int_equal(r.rows, 1);
  rig_fini(&r);
}

static manta_status flood(manta_session *s, manta_value *result, manta_error *err)
{
  char text[400];
  memset(text, 'y', sizeof text - 1);
  text[sizeof text - 1] = 0;
  for (int64_t i = 1; i <= 60000; i++) {
    manta_value row = MANTA_MAP(MANTA_KV_INT("count", i), MANTA_KV_STR("text", text));
    MANTA_TRY(manta_session_report(s, &row, err));
  }
  return MANTA_OK;
}

// More than ring and queue hold: the worker must wait, and nothing may be lost.
static void a_slow_reader_slows_the_worker(void **state)
{
  struct rig r;
  manta_run *run;
  manta_rows rows;
  rig_init(&r, 2);
  r.cfg.callback_count = 0;
  rig_make(&r);
  assert_ok(manta_run_start(&run, r.t, flood, &r.rc, &r.err), &r.err);
  usleep(300000);
  assert_false(manta_run_finished(run));
  int64_t n = 0;
  while (manta_run_next(run, 20, &rows, &r.err) == 1)
    assert_int_equal(manta_value_as_int(manta_value_get(&rows.rows[1], "count"), -1), ++n);
  assert_int_equal(n, 60000);
  manta_run_close(run);
  rig_fini(&r);
}

static void executes_on_all_or_one(void **state)
{
  struct rig r;
  manta_value one = {0};
  rig_init(&r, 3);
  rig_make(&r);
  manta_value arg = MANTA_MAP(MANTA_KV_STR("word", "x"));
  setenv("MANTA_TEST_MINE", "m", 1);
  assert_ok(manta_trainer_execute(r.t, echo, &arg, &r.results, &r.err), &r.err);
  assert_int_equal(r.results.count, 3);
  assert_ok(manta_trainer_execute_single(r.t, echo, &arg, &one, &r.err), &r.err);
  assert_int_equal(manta_value_as_int(manta_value_get(&one, "rank"), -1), 0);
  assert_status(manta_trainer_execute(r.t, uneven, NULL, NULL, &r.err), MANTA_ESTATE); // no report
  assert_int_equal(r.starts, 0);
  manta_value_fini(&one);
  rig_fini(&r);
}

static void a_run_may_have_its_own_size(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 3));
  static const int asked[] = {4, 1, 0}, got[] = {4, 1, 2};
  for (int k = 0; k < 3; k++) {
    r.rc.workers = asked[k];
    r.last = 0;
    assert_ok(rig_run(&r, &c), &r.err);
    assert_int_equal(r.results.count, got[k]);
  }
  rig_fini(&r);
  assert_nothing_left();
}

static void wrong_configs_are_refused(void **state)
{
  manta_trainer *t;
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config cfg = {0};
  assert_status(manta_trainer_create(&t, &cfg, &err), MANTA_EINVAL);
  assert_has(err.message, "MANTA_TRAINER_CONFIG_INIT");
  cfg = (manta_trainer_config)MANTA_TRAINER_CONFIG_INIT;
  cfg.workers = 2;
  cfg.min_workers = 3;
  assert_status(manta_trainer_create(&t, &cfg, &err), MANTA_EINVAL);
  cfg.min_workers = 0;
  cfg.step_timeout_s = -1;
  assert_status(manta_trainer_create(&t, &cfg, &err), MANTA_EINVAL);
}

static void more_than_the_host_has_is_an_error_at_once(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.cpus_per_worker = 5000;
  assert_status(rig_run(&r, NULL), MANTA_EINVAL);
  assert_has(r.err.message, "CPU");
  rig_fini(&r);
}

static manta_status chatter(manta_session *s, manta_value *result, manta_error *err)
{
  for (int i = 0; i < 20000; i++)
    printf("line %d of a worker that talks a lot\n", i);
  return MANTA_OK;
}

static void logs_are_capped(void **state)
{
  struct rig r;
  char path[600];
  struct stat now, before;
  rig_init(&r, 1);
  r.cfg.log_limit = 100000;
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, chatter, &r.rc, NULL, &r.err), &r.err);
  snprintf(path, sizeof path, "%s/logs/rank-0.log", manta_trainer_run_dir(r.t));
  assert_int_equal(stat(path, &now), 0);
  snprintf(path, sizeof path, "%s/logs/rank-0.log.1", manta_trainer_run_dir(r.t));
  assert_int_equal(stat(path, &before), 0);
  assert_true(now.st_size > 0 && now.st_size + before.st_size <= 100000);
  snprintf(path, sizeof path, "tail -1 %s/logs/rank-0.log | grep -q '^line 19999 '",
           manta_trainer_run_dir(r.t));
  assert_int_equal(system(path), 0);
  rig_fini(&r);
}

static manta_status forks(manta_session *s, manta_value *result, manta_error *err)
{
  int status = -1;
  manta_value row = MANTA_MAP(MANTA_KV_INT("count", 1));
  pid_t pid = fork();
  if (pid == 0)
    _exit(manta_session_report(s, &row, NULL) == MANTA_ESTATE ? 0 : 1);
  waitpid(pid, &status, 0);
  MANTA_TRY(manta_session_report(s, &row, err)); // ours works as before
  return manta_value_set_int(result, status);
}

static void a_forked_child_of_a_worker_has_no_session(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, forks, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(manta_value_as_int(manta_value_at(&r.results, 0), -1), 0);
  assert_int_equal(r.rows, 1);
  rig_fini(&r);
}

static manta_status inner(manta_session *s, manta_value *result, manta_error *err)
{
  return manta_value_set_int(result, manta_session_rank(s) + 10);
}

static manta_status outer(manta_session *s, manta_value *result, manta_error *err)
{
  manta_trainer *t;
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  cfg.workers = 2;
  cfg.quiet = true;
  cfg.logdir = manta_session_config_string(s, "dir", "/nowhere");
  MANTA_TRY(manta_trainer_create(&t, &cfg, err));
  manta_status st = manta_trainer_run(t, inner, NULL, result, err);
  manta_trainer_destroy(t);
  return st;
}

static void a_worker_may_have_a_trainer_of_its_own(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_STR("dir", r.dir));
  r.rc.config = &c;
  assert_ok(manta_trainer_run(r.t, outer, &r.rc, &r.results, &r.err), &r.err);
  for (size_t i = 0; i < 2; i++) {
    const manta_value *mine = manta_value_at(&r.results, i);
    assert_int_equal(manta_value_as_int(manta_value_at(mine, 1), -1), 11);
  }
  rig_fini(&r);
}

static void creating_a_trainer_survives_starvation(void **state)
{
  manta_trainer *t = NULL;
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_callbacks cb = {0};
  manta_value c = MANTA_MAP(MANTA_KV_STR("word", "x"));
  cfg.config = &c;
  cfg.callbacks = &cb;
  cfg.callback_count = 1;
  FOR_EACH_OOM(manta_trainer_create(&t, &cfg, &err), manta_trainer_destroy(t));
}

static void assert_table(struct rig *r, const char *state, const char *totals)
{
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  assert_ok(manta_trainer_print(r->t, f), &r->err);
  fclose(f);
  assert_has(text, state);
  assert_has(text, totals);
  free(text);
}

static void the_table_is_printed(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  rig_make(&r);
  assert_table(&r, " 1 ", "CPUs 0/?");
  assert_table(&r, "not started", "CPUs 0/?");
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 1));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_table(&r, "idle", "CPUs 2/");
  rig_fini(&r);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(counts_on_all_workers),
      rig_test(runs_again_in_fresh_processes),
      rig_test(runs_again_in_the_same_processes_if_asked),
      rig_test(starts_ahead_of_the_run),
      rig_test(several_trainers_share_an_agent),
      rig_test(iterates_row_by_row),
      rig_test(leaving_early_ends_the_run),
      rig_test(another_thread_cancels),
      rig_test(a_failed_function_is_the_runs_error),
      rig_test(errors_are_retried_if_asked),
      rig_test(uneven_counts_are_named),
      rig_test(a_silent_rank_is_nil_or_an_error),
      rig_test(rank_0_alone_may_report),
      rig_test(config_environment_and_directory_follow_the_driver),
      rig_test(large_configs_and_results_travel),
      rig_test(reports_have_limits),
      rig_test(a_slow_reader_slows_the_worker),
      rig_test(executes_on_all_or_one),
      rig_test(a_run_may_have_its_own_size),
      rig_test(wrong_configs_are_refused),
      rig_test(more_than_the_host_has_is_an_error_at_once),
      rig_test(a_session_knows_who_it_is),
      rig_test(logs_are_capped),
      rig_test(a_forked_child_of_a_worker_has_no_session),
      rig_test(a_worker_may_have_a_trainer_of_its_own),
      rig_test(creating_a_trainer_survives_starvation),
      rig_test(the_table_is_printed),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
