/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that are saved ahead of the report they belong to: whoever dies between the two, no
 * row is lost and none comes twice.
 */
#include "train/rig.h"

#include <sys/prctl.h>

#include <manta/tune.h>

#include "drivers.h"
#include "ondisk.h"
#include "sys/proc.h"
#include "tune/journal.h"

#define ROWS  4
#define FAULT 3 /* the report before which somebody dies */

// --- the trial -----------------------------------------------------------------------------------

// The snapshot of this report is on the disk, and no checkpoint before its report: now somebody
// dies.
static void fault(manta_session *s, const char *who)
{
  const char *dir = manta_session_run_dir(s);
  board->hold = within(10, is_written(dir)) && !within(0.05, newest(dir) == FAULT);
  board->fired++;
  manta__proc_signal(!strcmp(who, "driver") ? (pid_t)board->born[0] : getpid(), SIGKILL);
  for (;;)
    pause(); // until the agent of the dead driver ends us
}

static manta_status trial(manta_session *s, manta_value *result, manta_error *err)
{
  const char *who = manta_session_config_string(s, "who", "");
  double sum = 0, began = (double)manta_session_iteration(s);
  manta_checkpoint *c = NULL;
  if (!board)
    board_open();
  MANTA_TRY(manta_session_load(s, &c, err));
  if (c)
    sum = *(const double *)manta_checkpoint_tensor(c, "sum")->data;
  manta_checkpoint_close(c);
  for (int64_t i = manta_session_iteration(s) + 1; i <= ROWS; i++) {
    sum += (double)i;
    manta_value row = MANTA_MAP(MANTA_KV_REAL("sum", sum), MANTA_KV_REAL("began", began));
    manta_tensor tensor = MANTA_VECTOR("sum", MANTA_F64, &sum, 1);
    manta_state state = {.tensors = &tensor, .count = 1};
    if (i == FAULT && !within(10, newest(manta_session_run_dir(s)) == FAULT - 1))
      return manta_error_set(err, MANTA_EIO, "there is no checkpoint to go on from");
    manta_session_ahead(s, NULL);
    MANTA_TRY(manta_session_save(s, &state, err));
    if (i == FAULT && !board->fired && manta_session_rank(s) == 0)
      fault(s, who);
    MANTA_TRY(manta_session_report(s, &row, err));
  }
  return manta_value_set_real(result, sum);
}

// --- the driver ----------------------------------------------------------------------------------

static int drive(const char *dir, const char *who)
{
  manta_tune *t = NULL;
  manta_error err = MANTA_ERROR_INIT;
  manta_tune_config c = MANTA_TUNE_CONFIG_INIT;
  manta_trainer_config tc = MANTA_TRAINER_CONFIG_INIT;
  manta_value space = MANTA_MAP(MANTA_KV_STR("who", who));
  char found[256];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("MANTA_RESULTS", dir, 1);
  board_open();
  board->born[0] = getpid();
  c.space = &space;
  c.name = "exp";
  c.max_failures = !strcmp(who, "trial");
  c.trainer = &tc;
  tc.workers = strcmp(who, "rank") ? 1 : 2;
  tc.max_retries = 1;
  go_on_with_newest(&c, found);
  if (manta_tune_run(&t, trial, &c, &err) < 0) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  manta_tune_close(t);
  return 0;
}

static int run_driver(const char *dir, const char *who)
{
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "ahead_test", "--drive", dir, who, (char *)NULL);
    _exit(3);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

// --- what came of it -----------------------------------------------------------------------------

struct seen {
  int rows[ROWS + 1];
  double began; /* where the attempt that reported the last one did */
};

static manta_status see(void *ctx, const struct manta__event_rec *e, manta_error *err)
{
  struct seen *s = ctx;
  if (e->what != MANTA__T_ROW)
    return MANTA_OK;
  assert_in_range(e->iteration, 1, ROWS);
  s->rows[e->iteration]++;
  s->began = manta_value_as_real(manta_value_get(e->value, "began"), NAN);
  return MANTA_OK;
}

static void check_rows(const char *dir)
{
  manta_tune *t;
  manta_error err = MANTA_ERROR_INIT;
  manta_trial x;
  struct seen s = {{0}};
  struct manta__journal_reader reader = {.ctx = &s, .event = see};
  setenv("MANTA_RESULTS", dir, 1);
  assert_ok(manta_tune_open(&t, NULL, &err), &err);
  assert_ok(manta_tune_trial(t, 0, &x, &err), &err);
  assert_int_equal(x.state, MANTA_TRIAL_FINISHED);
  assert_near(manta_value_as_real(x.result, NAN), 1 + 2 + 3 + 4, 0);
  read_events(t, &reader);
  manta_tune_close(t);
  for (int i = 1; i <= ROWS; i++)
    assert_int_equal(s.rows[i], 1);
  assert_near(s.began, FAULT - 1, 0); // not from the beginning, and not behind a row that is lost
}

static void someone_dies(const char *who)
{
  char dir[64] = "/tmp/manta-test-XXXXXX", cmd[160];
  assert_non_null(mkdtemp(dir));
  memset(board, 0, sizeof *board);
  int64_t began = manta__now();
  int status = run_driver(dir, who);
  if (!strcmp(who, "driver")) {
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = run_driver(dir, who);
  }
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(board->fired, 1);
  assert_int_equal(board->hold, 1);
  assert_true(manta__now() - began <
              60 * 1000000000ll); // nobody waits for the row that never comes
  check_rows(dir);
  snprintf(cmd, sizeof cmd, "rm -rf %s 2>/dev/null", dir);
  assert_true(within(5, system(cmd) == 0));
}

static void the_driver_dies_before_the_report(void **state)
{
  someone_dies("driver");
}

static void the_trial_dies_before_its_report(void **state)
{
  someone_dies("trial");
}

static void a_rank_dies_before_its_report(void **state)
{
  someone_dies("rank"); // its run goes on by itself, from memory if that counts
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  if (argc > 3 && !strcmp(argv[1], "--drive"))
    return drive(argv[2], argv[3]);
  board_open();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_driver_dies_before_the_report),
      cmocka_unit_test(the_trial_dies_before_its_report),
      cmocka_unit_test(a_rank_dies_before_its_report),
  };
  int failed = cmocka_run_group_tests_name("ahead", tests, NULL, NULL);
  board_close();
  return failed;
}
