/* SPDX-License-Identifier: Apache-2.0
 *
 * Light runs: no log of their own, a fork of the worker for each, reports in lockstep, snapshots
 * that others begin from.
 */
#include "rig.h"

#include "ckpt/slot.h"
#include "sys/proc.h"
#include "train/driver.h"
#include "train/light.h"
#include "train/trainer.h"

#define WAIT_S 60.0

static struct {
  char dir[64];
  manta_trainer *t;
  manta_error err;
} one;

// --- what the trials do --------------------------------------------------------------------------

static int calls; // in this process

/* Reports "n" rows, saves after each if "save", before it if "ahead"; dies by the signal "die"
 * before the row "at". */
static manta_status trial(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t n = manta_session_config_int(s, "n", 3), at = manta_session_config_int(s, "at", 1);
  double w = 0;
  manta_checkpoint *c = NULL;
  calls++;
  if (!board)
    board_open();
  MANTA_TRY(manta_session_load(s, &c, err));
  if (c)
    w = *(const double *)manta_checkpoint_tensor(c, "w")->data;
  manta_checkpoint_close(c);
  for (int64_t i = manta_session_iteration(s) + 1; i <= n; i++) {
    if (i == at && manta_session_config_int(s, "die", 0)) {
      board->fired++;
      raise((int)manta_session_config_int(s, "die", 0));
    }
    w += 1;
    board->at[0] = i;
    manta_value row = MANTA_MAP(MANTA_KV_REAL("w", w), MANTA_KV_INT("pid", getpid()),
                                MANTA_KV_INT("calls", calls));
    manta_tensor tensor = MANTA_VECTOR("w", MANTA_F64, &w, 1);
    manta_state state = {.tensors = &tensor, .count = 1};
    if (manta_session_config_bool(s, "ahead", false)) {
      manta_session_ahead(s, NULL);
      MANTA_TRY(manta_session_save(s, &state, err));
    }
    MANTA_TRY(manta_session_report(s, &row, err));
    if (manta_session_config_bool(s, "save", false))
      MANTA_TRY(manta_session_save(s, &state, err));
  }
  return manta_value_set_int(result, getpid());
}

// --- the driver's side ---------------------------------------------------------------------------

static int set_up(void **state)
{
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  one.err = (manta_error)MANTA_ERROR_INIT;
  strcpy(one.dir, "/tmp/manta-test-XXXXXX"); // style: a literal into a larger array
  assert_non_null(mkdtemp(one.dir));
  memset(board, 0, sizeof *board);
  cfg.workers = 1;
  cfg.quiet = true;
  cfg.keep_workers = true;
  cfg.max_retries = -2;
  cfg.logdir = one.dir;
  assert_ok(manta_trainer_create(&one.t, &cfg, &one.err), &one.err);
  return 0;
}

static int tear_down(void **state)
{
  char cmd[128];
  manta_trainer_destroy(one.t);
  snprintf(cmd, sizeof cmd, "rm -rf %s 2>/dev/null", one.dir);
  assert_true(within(5, system(cmd) == 0));
  return 0;
}

static manta_run *start(const manta_value *config, const struct manta__light *how)
{
  manta_run *r;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  rc.config = config;
  assert_ok(manta__light_start(&r, one.t, trial, &rc, how, &one.err), &one.err);
  return r;
}

// The next row, which must be number `n`.
static const manta_value *take(manta_run *r, int64_t n)
{
  static manta_rows rows;
  int rc = manta_run_next(r, WAIT_S, &rows, &one.err);
  if (rc != 1)
    fail_msg("row %lld: %d: %s", (long long)n, rc, one.err.message);
  assert_int_equal(rows.iteration, n);
  return &rows.rows[0];
}

static manta_status end(manta_run *r)
{
  int rc;
  while ((rc = manta_run_next(r, WAIT_S, NULL, &one.err)) == 1)
    manta__light_answer(r, false);
  return (manta_status)rc;
}

#define HOW(...)   (&(struct manta__light){.dir = one.dir, __VA_ARGS__})
#define LIGHT(...) HOW(.fresh = true, .from = -1, __VA_ARGS__)

static void every_call_has_a_process_of_its_own(void **state)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", 2));
  int64_t pid[3] = {0};
  for (int i = 0; i < 3; i++) {
    manta_run *r = start(&config, LIGHT(.apart = true));
    const manta_value *row = take(r, 1);
    pid[i] = manta_value_as_int(manta_value_get(row, "pid"), 0);
    assert_int_equal(manta_value_as_int(manta_value_get(row, "calls"), 0), 1);
    take(r, 2);
    assert_ok(end(r), &one.err);
    assert_int_equal(manta_value_as_int(manta_value_at(manta_run_results(r), 0), 0), pid[i]);
    manta_run_close(r);
  }
  assert_true(pid[0] != pid[1] && pid[1] != pid[2] && pid[0] != pid[2]);
  assert_int_not_equal(pid[0], manta_trainer_pid(one.t, 0));
  char log[96];
  snprintf(log, sizeof log, "%s/run.log", one.dir);
  assert_int_equal(access(log, F_OK), -1);
}

static void a_kept_process_serves_many(void **state)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", 1));
  for (int i = 1; i <= 3; i++) {
    manta_run *r = start(&config, LIGHT(.apart = false));
    assert_int_equal(manta_value_as_int(manta_value_get(take(r, 1), "calls"), 0), i);
    assert_ok(end(r), &one.err);
    manta_run_close(r);
  }
}

static void a_crash_is_one_runs_own(void **state)
{
  manta_value good = MANTA_MAP(MANTA_KV_INT("n", 1));
  manta_value bad =
      MANTA_MAP(MANTA_KV_INT("n", 3), MANTA_KV_INT("die", SIGKILL), MANTA_KV_INT("at", 2));
  manta_run *r = start(&good, LIGHT(.apart = true));
  assert_ok(end(r), &one.err);
  manta_run_close(r);
  int worker = manta_trainer_pid(one.t, 0);
  r = start(&bad, LIGHT(.apart = true));
  take(r, 1);
  assert_status(end(r), MANTA_EWORKER);
  assert_has(one.err.message, "SIGKILL");
  assert_int_equal(board->fired, 1);
  manta_run_close(r);
  r = start(&good, LIGHT(.apart = true));
  take(r, 1);
  assert_ok(end(r), &one.err);
  manta_run_close(r);
  if (!SANITIZED) // which has a thread of its own: such a worker is not forked, but used up
    assert_int_equal(manta_trainer_pid(one.t, 0), worker);
}

static void in_lockstep_a_report_waits(void **state)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", 3));
  manta_run *r = start(&config, LIGHT(.apart = true, .lockstep = true));
  for (int64_t i = 1; i <= 3; i++) {
    take(r, i);
    usleep(20000);
    assert_int_equal(board->at[0], i); // it has not gone on
    manta__light_answer(r, false);
  }
  assert_ok(end(r), &one.err);
  manta_run_close(r);
}

static void a_waiting_report_can_be_ended(void **state)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", 3));
  manta_run *r = start(&config, LIGHT(.apart = true, .lockstep = true));
  take(r, 1);
  manta_trainer_cancel(one.t);
  assert_status(end(r), MANTA_ECANCELED);
  assert_int_equal(board->at[0], 1);
  manta_run_close(r);
  r = start(&config, LIGHT(.apart = true)); // the worker is as it was
  for (int64_t i = 1; i <= 3; i++)
    take(r, i);
  assert_ok(end(r), &one.err);
  manta_run_close(r);
}

static void a_paused_one_goes_on_from_disk(void **state)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", 50), MANTA_KV_BOOL("save", true));
  manta_run *r = start(&config, LIGHT(.apart = true, .lockstep = true));
  take(r, 1);
  manta__light_answer(r, false);
  take(r, 2);
  manta_trainer_notice(one.t);
  manta__light_answer(r, true); // the report itself says so: no other follows
  assert_status(end(r), MANTA_EPREEMPTED);
  int64_t saved = manta__light_saved(r);
  assert_int_equal(saved, 2);
  manta_run_close(r);
  r = start(&config, HOW(.from = -1, .apart = true, .attempt = 1));
  const manta_value *row = take(r, saved + 1);
  assert_near(manta_value_as_real(manta_value_get(row, "w"), -1), (double)saved + 1, 0);
  assert_ok(end(r), &one.err);
  manta_run_close(r);
}

// The report that it was saved for is the one that ends the run, or pauses it.
static void a_state_is_saved_before_its_report(void **state)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", 50), MANTA_KV_BOOL("ahead", true));
  int64_t saved = 0;
  for (int pauses = 0; pauses <= 1; pauses++) {
    manta_run *r = start(&config, HOW(.from = -1, .apart = true, .lockstep = true, .fresh = !pauses,
                                      .attempt = (uint32_t)pauses));
    take(r, 1 + 2 * pauses);
    manta__light_answer(r, false);
    take(r, 2 + 2 * pauses);
    if (pauses)
      manta_trainer_notice(one.t), manta__light_answer(r, true);
    else
      manta_trainer_cancel(one.t), manta__light_dealt(r);
    assert_status(end(r), pauses ? MANTA_EPREEMPTED : MANTA_ECANCELED);
    saved = manta__light_saved(r);
    assert_int_equal(board->at[0], saved); // with the row that it ended at, and none after it
    assert_int_equal(saved, 2 + 2 * pauses);
    manta_run_close(r);
  }
  manta_run *r = start(&config, HOW(.from = -1, .apart = true, .attempt = 2));
  const manta_value *row = take(r, saved + 1);
  assert_near(manta_value_as_real(manta_value_get(row, "w"), -1), (double)saved + 1, 0);
  manta_run_close(r);
}

// A call in the seat: the worker that it was made in, or beside.
static pid_t call_in_seat(bool apart)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", 2));
  manta_run *r = start(&config, LIGHT(.apart = apart));
  pid_t pid = -1;
  take(r, 1);
  assert_true(within(5, (pid = manta_trainer_pid(one.t, 0)) > 0)); // rows may be faster
  take(r, 2);
  assert_ok(end(r), &one.err);
  manta_run_close(r);
  return pid;
}

static void stop_process(pid_t pid)
{
  assert_int_equal(manta__proc_signal(pid, SIGSTOP), 0);
  assert_true(within(5, manta__proc_stopped(pid)));
}

// A worker with threads is not forked, and leaves after its call.
static void a_stopped_seat_is_replaced(void **state)
{
  for (int apart = 0; apart <= !THREADED; apart++) {
    pid_t was = call_in_seat(apart);
    stop_process(was);
    pid_t now = call_in_seat(apart);
    assert_int_not_equal(now, was);
    assert_true(within(5, !alive(was)));
    assert_int_equal(call_in_seat(apart), now); // which is as good
  }
}

static void so_is_a_stopped_zygote(void **state)
{
  pid_t seat = call_in_seat(!THREADED);
  pid_t agent = child_named(getpid(), "manta-agent"), zygote = child_named(agent, "manta-zygote");
  assert_true(agent > 0 && zygote > 0);
  stop_process(zygote);
  assert_int_equal(call_in_seat(!THREADED), seat); // nobody needs it
  stop_process(seat);
  assert_int_not_equal(call_in_seat(!THREADED), seat);
  assert_true(within(5, !alive(seat) && !alive(zygote)));
}

static bool has_peer(pid_t pid)
{
  bool found = false;
  pthread_mutex_lock(&manta__drv.lock);
  for (const struct manta__peer *p = one.t->peers; p; p = p->next)
    found |= p->pid == pid;
  pthread_mutex_unlock(&manta__drv.lock);
  return found;
}

// The writer of its checkpoint waits for the answer to its rows.
static void a_worker_may_be_gone_before_its_answer(void **state)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", 1), MANTA_KV_BOOL("save", true));
  manta_trainer_keep(one.t, false);
  manta_run *r = start(&config, LIGHT());
  pid_t pid = (pid_t)manta_value_as_int(manta_value_get(take(r, 1), "pid"), 0);
  assert_true(within(5, !has_peer(pid)));
  manta__light_answer(r, false);
  assert_ok(end(r), &one.err);
  assert_int_equal(manta__light_saved(r), 1);
  manta_run_close(r);
}

static void a_run_that_is_ended_waits_for_no_answer(void **state)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", 50), MANTA_KV_BOOL("ahead", true));
  manta_run *r = start(&config, LIGHT(.apart = true, .lockstep = true));
  take(r, 1);
  manta_trainer_cancel(one.t);
  manta__light_dealt(r);
  assert_status(end(r), MANTA_ECANCELED);
  char path[sizeof one.dir + 64];
  snprintf(path, sizeof path, "%s/checkpoints/000001/manifest.json", one.dir);
  assert_int_equal(access(path, F_OK), 0); // it was waited for
  manta_run_close(r);
}

static void another_begins_from_a_live_snapshot(void **state)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("n", 5), MANTA_KV_BOOL("save", true));
  int fd;
  int64_t at = 0;
  manta_run *r = start(&config, LIGHT(.apart = true, .lockstep = true));
  assert_ok(manta__light_capture(r, -1, &fd, &at, &one.err), &one.err);
  assert_int_equal(fd, -1); // nothing was saved yet
  take(r, 1);
  manta__light_answer(r, false);
  take(r, 2);
  assert_true(within(5, manta__light_saved(r) == 1));
  assert_ok(manta__light_capture(r, -1, &fd, &at, &one.err), &one.err);
  assert_true(fd >= 0);
  assert_int_equal(at, 1);
  manta_run_close(r);
  r = start(&config, HOW(.from = fd, .apart = true, .attempt = 1));
  const manta_value *row = take(r, 2);
  assert_near(manta_value_as_real(manta_value_get(row, "w"), -1), 2, 0);
  assert_ok(end(r), &one.err);
  manta_run_close(r);
  close(fd);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
#define light_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      light_test(every_call_has_a_process_of_its_own),
      light_test(a_kept_process_serves_many),
      light_test(a_crash_is_one_runs_own),
      light_test(in_lockstep_a_report_waits),
      light_test(a_waiting_report_can_be_ended),
      light_test(a_paused_one_goes_on_from_disk),
      light_test(a_state_is_saved_before_its_report),
      light_test(a_worker_may_be_gone_before_its_answer),
      light_test(a_run_that_is_ended_waits_for_no_answer),
      light_test(another_begins_from_a_live_snapshot),
      light_test(a_stopped_seat_is_replaced),
      light_test(so_is_a_stopped_zygote),
  };
  int failed = cmocka_run_group_tests_name("light", tests, NULL, NULL);
  board_close();
  return failed;
}
