/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials that became copies: what they begin from when the other one has moved on, and when nothing
 * is on disk of what they are a copy of. Trial 0 is the better one, trial 1 becomes its copy.
 */
#include "train/rig.h"

#include <sys/prctl.h>

#include <manta/tune.h>

#include "drivers.h"
#include "ondisk.h"
#include "tune/journal.h"

/* On the board: at[0] what trial 0 has saved, at[1] trial 1 runs as a copy, at[2] the other has
 * moved on; born[i] where trial 1 began as a copy for the i-th time, plus 1. */
#define SAVED 3 /* by trial 0 when it is copied, on disk */
#define MOVED 6 /* … when the copy fails */
#define LAST  5 /* rows of trials whose driver died */

static manta_status wait_for(bool there, manta_error *err)
{
  return there ? MANTA_OK : manta_error_set(err, MANTA_EUSER, "what it waits for does not come");
}

static manta_status save(manta_session *s, double whose, manta_error *err)
{
  manta_tensor tensor = MANTA_VECTOR("whose", MANTA_F64, &whose, 1);
  manta_state state = {.tensors = &tensor, .count = 1};
  return manta_session_save(s, &state, err);
}

static manta_status report(manta_session *s, double whose, manta_error *err)
{
  manta_value row = MANTA_MAP(MANTA_KV_REAL("loss", whose));
  MANTA_TRY(manta_session_report(s, &row, err));
  return save(s, whose, err);
}

// The driver knows of the checkpoint then: it is told before the disk is written.
static manta_status report_durably(manta_session *s, manta_error *err)
{
  MANTA_TRY(report(s, 1, err));
  int64_t i = manta_session_iteration(s);
  return wait_for(within(20, newest(manta_session_run_dir(s)) == i), err);
}

static manta_status load(manta_session *s, double *whose, manta_error *err)
{
  manta_checkpoint *c = NULL;
  if (!board)
    board_open();
  MANTA_TRY(manta_session_load(s, &c, err));
  if (c)
    *whose = *(const double *)manta_checkpoint_tensor(c, "whose")->data;
  manta_checkpoint_close(c);
  return MANTA_OK;
}

static bool is_source(const manta_session *s)
{
  return strstr(manta_session_run_dir(s), "trial_00000") != NULL;
}

// One that is worse, until it is copied.
static manta_status be_worse(manta_session *s, int64_t until, manta_error *err)
{
  for (int64_t i = manta_session_iteration(s) + 1; i <= 20; i++) {
    if (i == 2)
      MANTA_TRY(wait_for(within(20, board->at[0] == until), err));
    MANTA_TRY(report(s, 100, err));
  }
  return MANTA_OK;
}

// --- the copy fails when the other has moved on --------------------------------------------------

static manta_status move_on(manta_session *s, manta_error *err)
{
  for (int64_t i = 1; i <= MOVED; i++) {
    MANTA_TRY(report_durably(s, err));
    if (i == SAVED)
      board->at[0] = i;
    if (i == SAVED)
      MANTA_TRY(wait_for(within(20, board->at[1] > 0), err));
  }
  board->at[2] = 1;
  return wait_for(within(20, board->born[1] > 0), err);
}

static manta_status fail_once(manta_session *s, manta_error *err)
{
  int times = board->fired;
  board->born[times] = manta_session_iteration(s) + 1;
  board->at[1] = 1;
  if (times > 0)
    return MANTA_OK;
  MANTA_TRY(wait_for(within(20, board->at[2] > 0), err));
  board->fired++;
  raise(SIGKILL);
  return MANTA_OK;
}

static manta_status moving(manta_session *s, manta_value *result, manta_error *err)
{
  double whose = 100;
  MANTA_TRY(load(s, &whose, err));
  if (is_source(s))
    return move_on(s, err);
  return whose == 1 ? fail_once(s, err) : be_worse(s, SAVED, err);
}

// --- the driver dies when the copy is decided ----------------------------------------------------

// The first driver dies before the fourth report, for which the state is in memory and copied.
static manta_status be_ahead(manta_session *s, manta_error *err)
{
  const char *dir = manta_session_run_dir(s);
  if (board->fired)
    MANTA_TRY(wait_for(within(20, board->at[1] > 0), err));
  for (int64_t i = manta_session_iteration(s) + 1; i <= LAST; i++) {
    if (i > SAVED && !board->fired) {
      manta_session_ahead(s, NULL);
      MANTA_TRY(save(s, 1, err));
      MANTA_TRY(wait_for(within(20, is_written(dir)), err));
      board->at[0] = i;
      for (;;)
        pause(); // until the agent of the dead driver ends us
    }
    MANTA_TRY(report_durably(s, err));
  }
  return MANTA_OK;
}

static manta_status ahead(manta_session *s, manta_value *result, manta_error *err)
{
  double whose = 100;
  MANTA_TRY(load(s, &whose, err));
  if (is_source(s))
    return be_ahead(s, err);
  if (whose != 1)
    return be_worse(s, SAVED + 1, err);
  while (!board->fired)
    pause(); // until its driver has died
  board->born[0] = manta_session_iteration(s) + 1;
  board->at[1] = 1;
  for (int64_t i = manta_session_iteration(s) + 1; i <= LAST; i++)
    MANTA_TRY(report(s, whose, err));
  return MANTA_OK;
}

// --- the driver ----------------------------------------------------------------------------------

static int drive(const char *dir, manta_train_fn fn, bool dies)
{
  manta_tune *t = NULL;
  manta_error err = MANTA_ERROR_INIT;
  manta_tune_config c = MANTA_TUNE_CONFIG_INIT;
  manta_value grid[2] = {manta_value_int(1), manta_value_int(2)};
  manta_value list = {.type = MANTA_LIST, .count = 2, .u.items = grid};
  manta_value choice = MANTA_MAP(MANTA_KV("$grid", list)), space = MANTA_MAP(MANTA_KV("x", choice)),
              options = MANTA_MAP(MANTA_KV_INT("interval", 2), MANTA_KV_REAL("quantile", 0.5));
  manta_tune_event e;
  char found[256];
  int rc;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("MANTA_RESULTS", dir, 1);
  board_open();
  c.space = &space;
  c.metric = "loss";
  c.scheduler = "pbt";
  c.scheduler_options = &options;
  c.concurrency = 2;
  c.max_failures = !dies;
  c.name = "exp";
  go_on_with_newest(&c, found);
  if (manta_tune_start(&t, fn, &c, &err) < 0)
    return 1;
  while ((rc = manta_tune_next(t, 60, &e, &err)) == 1)
    if (e.kind == MANTA_TUNE_COPIED && dies && !board->fired) {
      while (manta_tune_next(t, 0.1, NULL, NULL) == 1)
        ; // until it is in the log, and nobody has anything to say
      board->fired++;
      raise(SIGKILL);
    }
  if (rc < 0)
    fprintf(stderr, "%s\n", err.message);
  manta_tune_close(t);
  return rc < 0;
}

static int run_driver(const char *role, const char *dir)
{
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "copy_test", role, dir, (char *)NULL);
    _exit(3);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

// --- what came of it -----------------------------------------------------------------------------

struct seen {
  int64_t copied, origin, first, last; /* iterations; of trial 1 */
  bool gap;
};

static manta_status see(void *ctx, const struct manta__event_rec *e, manta_error *err)
{
  struct seen *s = ctx;
  if (e->trial != 1)
    return MANTA_OK;
  if (e->what == MANTA__T_COPIED && s->copied < 0)
    s->copied = e->iteration;
  if (e->what == MANTA__T_ORIGIN && s->origin < 0)
    s->origin = e->iteration;
  bool row = e->what == MANTA__T_ROW && s->copied >= 0;
  if (row && s->first == 0)
    s->first = e->iteration;
  s->gap |= row && e->iteration != s->last + 1;
  if (row || e->what == MANTA__T_COPIED || e->what == MANTA__T_ORIGIN) // it may be copied again
    s->last = e->iteration;
  return MANTA_OK;
}

static struct seen read_log(const char *dir)
{
  manta_tune *t;
  manta_error err = MANTA_ERROR_INIT;
  struct seen s = {.copied = -1, .origin = -1};
  struct manta__journal_reader reader = {.ctx = &s, .event = see};
  setenv("MANTA_RESULTS", dir, 1);
  assert_ok(manta_tune_open(&t, NULL, &err), &err);
  assert_int_equal(manta_tune_count_state(t, MANTA_TRIAL_FINISHED), 2);
  read_events(t, &reader);
  manta_tune_close(t);
  return s;
}

static char dir[64];

static int set_up(void **state)
{
  strcpy(dir, "/tmp/manta-test-XXXXXX"); // style: a literal into a larger array
  assert_non_null(mkdtemp(dir));
  memset(board, 0, sizeof *board);
  return 0;
}

static int tear_down(void **state)
{
  char cmd[160];
  snprintf(cmd, sizeof cmd, "rm -rf %s 2>/dev/null", dir);
  assert_true(within(5, system(cmd) == 0));
  return 0;
}

static void one_that_fails_begins_from_the_same_state(void **state)
{
  int status = run_driver("--moving", dir);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  struct seen s = read_log(dir);
  assert_int_equal(board->fired, 1);
  assert_in_range(s.copied, 1, SAVED);
  assert_int_equal(board->born[0], s.copied + 1);
  assert_int_equal(board->born[1], s.copied + 1); // and not from what the other has saved since
}

static void no_row_is_lost_where_the_disk_lags(void **state)
{
  int status = run_driver("--ahead", dir);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  status = run_driver("--ahead", dir);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  struct seen s = read_log(dir);
  assert_int_equal(s.copied, SAVED + 1); // of what was in memory …
  assert_int_equal(board->born[0], SAVED + 1);
  assert_int_equal(s.origin, SAVED); // … and this is where it began
  assert_int_equal(s.first, SAVED + 1);
  assert_int_equal(s.last, LAST);
  assert_false(s.gap);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  if (argc > 2 && !strcmp(argv[1], "--moving"))
    return drive(argv[2], moving, false);
  if (argc > 2 && !strcmp(argv[1], "--ahead"))
    return drive(argv[2], ahead, true);
  board_open();
#define copy_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      copy_test(one_that_fails_begins_from_the_same_state),
      copy_test(no_row_is_lost_where_the_disk_lags),
  };
  int failed = cmocka_run_group_tests_name("copy", tests, NULL, NULL);
  board_close();
  return failed;
}
