/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver of an experiment is killed again and again, at any moment: every trial ends once, and
 * the results are those of an experiment that nobody killed, no row missing.
 *
 * KILLS=50 in the environment: more of them, and more trials.
 */
#include "train/rig.h"

#include <sys/prctl.h>

#include <manta/tune.h>

#include "base/rng.h"
#include "drivers.h"
#include "sys/proc.h"

#define TRIALS_A_KILL 12

// Saves nothing, behind its reports or ahead of them, as "a" says.
static manta_status trial(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t a = manta_session_config_int(s, "a", 0);
  double x = manta_session_config_real(s, "x", 0), sum = 0;
  manta_checkpoint *c = NULL;
  MANTA_TRY(manta_session_load(s, &c, err));
  if (c)
    sum = *(const double *)manta_checkpoint_tensor(c, "sum")->data;
  manta_checkpoint_close(c);
  for (int64_t i = manta_session_iteration(s) + 1; i <= 4; i++) {
    sum += x * (double)i;
    manta_value row = MANTA_MAP(MANTA_KV_REAL("sum", sum));
    manta_tensor tensor = MANTA_VECTOR("sum", MANTA_F64, &sum, 1);
    manta_state state = {.tensors = &tensor, .count = 1};
    if (a == 3) {
      manta_session_ahead(s, NULL);
      MANTA_TRY(manta_session_save(s, &state, err));
    }
    MANTA_TRY(manta_session_report(s, &row, err));
    if (a == 2)
      MANTA_TRY(manta_session_save(s, &state, err));
  }
  return manta_value_set_real(result, sum);
}

#define SPACE                                                                                      \
  "{\"a\": {\"$grid\": [1, 2, 3]}, \"x\": {\"$range\": {\"low\": 1e-3, \"high\": 1, \"log\": "     \
  "true}}}"

// The driver that is killed. Goes on with what is in `dir`, if there is something.
static int drive(const char *dir, int samples)
{
  manta_tune *t = NULL;
  manta_error err = MANTA_ERROR_INIT;
  manta_tune_config c = MANTA_TUNE_CONFIG_INIT;
  manta_value space = {0}, stop = MANTA_MAP(MANTA_KV_REAL("sum", 8));
  char found[256];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("MANTA_RESULTS", dir, 1);
  if (manta_value_from_json(&space, SPACE, strlen(SPACE), &err) < 0)
    return 2;
  c.space = &space;
  c.samples = samples;
  c.metric = "sum";
  c.seed = 11;
  c.stop = samples % 2 ? &stop : NULL;
  c.concurrency = 2;
  c.name = "exp";
  go_on_with_newest(&c, found);
  if (manta_tune_run(&t, trial, &c, &err) < 0) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  manta_tune_close(t);
  manta_value_fini(&space);
  return 0;
}

// --- one that copies -----------------------------------------------------------------------------

#define LONG 20 /* reports: one that could be copied may do so every other time */

static void tell(const char *what)
{
  char path[256];
  snprintf(path, sizeof path, "%s/%s", getenv("MANTA_RESULTS"), what);
  close(open(path, O_CREAT | O_WRONLY, 0600));
}

static void await(const char *what)
{
  char path[256];
  snprintf(path, sizeof path, "%s/%s", getenv("MANTA_RESULTS"), what);
  assert_true(within(30, access(path, F_OK) == 0));
}

// Its state is whose it was at first: x. The better one is there until it was copied.
static manta_status lineage(manta_session *s, manta_value *result, manta_error *err)
{
  double whose = manta_session_config_real(s, "x", 0);
  manta_checkpoint *c = NULL;
  MANTA_TRY(manta_session_load(s, &c, err));
  if (c)
    whose = *(const double *)manta_checkpoint_tensor(c, "whose")->data;
  manta_checkpoint_close(c);
  for (int64_t i = manta_session_iteration(s) + 1; i <= LONG; i++) {
    manta_value row = MANTA_MAP(MANTA_KV_REAL("loss", whose));
    manta_tensor tensor = MANTA_VECTOR("whose", MANTA_F64, &whose, 1);
    manta_state state = {.tensors = &tensor, .count = 1};
    if (i == 2 && whose > 2)
      await("saved");
    if (i == LONG && whose < 2)
      await("copied");
    MANTA_TRY(manta_session_report(s, &row, err));
    MANTA_TRY(manta_session_save(s, &state, err));
    if (i == 3 && whose < 2)
      tell("saved");
  }
  return manta_value_set_real(result, whose);
}

static bool is_copy(const manta_tune_event *e)
{
  return manta_value_as_real(manta_value_get(e->row, "loss"), NAN) < 2;
}

// Kills itself when a trial has become a copy, and runs to the end the next time.
static int drive_copies(const char *dir)
{
  static const char text[] = "{\"x\": {\"$grid\": [1, 100]}}";
  manta_tune *t = NULL;
  manta_error err = MANTA_ERROR_INIT;
  manta_tune_config c = MANTA_TUNE_CONFIG_INIT;
  manta_value space = {0},
              options = MANTA_MAP(MANTA_KV_INT("interval", 2), MANTA_KV_REAL("quantile", 0.5));
  manta_tune_event e;
  char found[256];
  int rc;
  setenv("MANTA_RESULTS", dir, 1);
  if (manta_value_from_json(&space, text, strlen(text), &err) < 0)
    return 2;
  c.space = &space;
  c.metric = "loss";
  c.scheduler = "pbt";
  c.scheduler_options = &options;
  c.concurrency = 2;
  c.name = "exp";
  go_on_with_newest(&c, found);
  if (manta_tune_start(&t, lineage, &c, &err) < 0)
    return 1;
  while ((rc = manta_tune_next(t, 60, &e, &err)) == 1) {
    if (e.kind == MANTA_TUNE_COPIED && !c.resume) {
      tell("copied");
      raise(SIGKILL);
    }
    if (e.kind == MANTA_TUNE_ROW && e.trial == 1 && c.resume && !is_copy(&e))
      return 4; // it went on from what it had been
  }
  manta_tune_close(t);
  manta_value_fini(&space);
  return rc < 0;
}

// --- the test ------------------------------------------------------------------------------------

static const char *self;

static pid_t start_as(const char *role, const char *dir, int samples)
{
  char text[16];
  snprintf(text, sizeof text, "%d", samples);
  pid_t pid = fork();
  if (pid == 0) {
    execl(self, self, role, dir, text, (char *)NULL);
    _exit(3);
  }
  return pid;
}

static pid_t start_driver(const char *dir, int samples)
{
  return start_as("--drive", dir, samples);
}

// Waits at most so long, then kills it; true: it had ended by itself.
static bool let_run(pid_t pid, double seconds)
{
  int status = 0;
  int64_t by = manta__deadline(seconds);
  pid_t got;
  while ((got = waitpid(pid, &status, WNOHANG)) == 0 && manta__now() < by)
    usleep(500);
  if (got == pid) {
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return true;
  }
  manta__proc_signal(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return false;
}

static int ends[4096];
static int64_t rows[4096]; /* by trial: the last one */

// Each trial's rows are there from the first to the last, once.
static manta_status count_ends(void *ctx, const struct manta__event_rec *e, manta_error *err)
{
  if (e->what == MANTA__T_ENDED)
    ends[e->trial]++;
  if (e->what == MANTA__T_ROW)
    assert_int_equal(e->iteration, ++rows[e->trial]);
  return MANTA_OK;
}

// What came of it: the number of trials; results by number.
static uint64_t read_results(const char *dir, double *out)
{
  manta_tune *t;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__journal_reader reader = {.event = count_ends};
  setenv("MANTA_RESULTS", dir, 1);
  assert_ok(manta_tune_open(&t, NULL, &err), &err);
  uint64_t n = manta_tune_count(t);
  memset(ends, 0, sizeof ends);
  memset(rows, 0, sizeof rows);
  read_events(t, &reader);
  for (uint64_t i = 0; i < n; i++) {
    manta_trial x;
    assert_ok(manta_tune_trial(t, i, &x, &err), &err);
    assert_true(x.state == MANTA_TRIAL_FINISHED || x.state == MANTA_TRIAL_STOPPED);
    assert_int_equal(ends[i], 1);
    assert_int_equal(rows[i], x.iteration);
    out[i] = manta_value_as_real(manta_value_get(x.last, "sum"), NAN);
  }
  manta_tune_close(t);
  return n;
}

static void remove_dir(const char *dir)
{
  char cmd[160];
  snprintf(cmd, sizeof cmd, "rm -rf %s 2>/dev/null", dir);
  assert_true(within(5, system(cmd) == 0));
}

// Kills its driver so often, from the first moments on, and lets it run to the end; the number of
// kills before that.
static int kill_often(const char *dir, int samples, int kills, double apart, struct manta__rng *rng)
{
  int made = 0;
  bool done = false;
  for (; made < kills && !done; made += !done)
    done = let_run(start_driver(dir, samples), apart * manta__rng_unit(rng) + 0.01);
  if (!done)
    assert_true(let_run(start_driver(dir, samples), 120));
  return made;
}

static void killed_again_and_again(int samples, int kills)
{
  char quiet[64] = "/tmp/manta-test-XXXXXX", killed[64] = "/tmp/manta-test-XXXXXX";
  static double want[4096], got[4096];
  struct manta__rng rng = manta__rng_of((uint64_t)samples, 1);
  int made = 0;
  assert_non_null(mkdtemp(quiet));
  int64_t began = manta__now();
  assert_true(let_run(start_driver(quiet, samples), 120));
  double whole = (double)(manta__now() - began) * 1e-9;
  for (int i = 0; i < 4 && 2 * made < kills; i++) { // one that had ended long before is no test
    if (i > 0)
      remove_dir(killed);
    strcpy(killed, "/tmp/manta-test-XXXXXX"); // style: a literal into a larger array
    assert_non_null(mkdtemp(killed));
    made = kill_often(killed, samples, kills, whole * 2 / kills / (1 << i), &rng);
  }
  assert_true(2 * made >= kills);
  uint64_t n = read_results(quiet, want);
  assert_int_equal(n, (uint64_t)samples * 3);
  assert_int_equal(read_results(killed, got), n);
  for (uint64_t i = 0; i < n; i++)
    assert_near(got[i], want[i], 0);
  remove_dir(quiet);
  remove_dir(killed);
}

static void a_copy_stays_one(void **state)
{
  char dir[64] = "/tmp/manta-test-XXXXXX";
  manta_tune *t;
  manta_error err = MANTA_ERROR_INIT;
  manta_trial x;
  int status;
  assert_non_null(mkdtemp(dir));
  pid_t pid = start_as("--copies", dir, 0);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  assert_true(let_run(start_as("--copies", dir, 0), 60));
  setenv("MANTA_RESULTS", dir, 1);
  assert_ok(manta_tune_open(&t, NULL, &err), &err);
  for (uint64_t i = 0; i < 2; i++) {
    assert_ok(manta_tune_trial(t, i, &x, &err), &err);
    assert_int_equal(x.state, MANTA_TRIAL_FINISHED);
    assert_near(manta_value_as_real(x.result, NAN), 1, 0);
  }
  manta_tune_close(t);
  remove_dir(dir);
}

static int kills(void)
{
  const char *text = getenv("KILLS");
  return text ? (int)strtol(text, NULL, 10) : 6;
}

static void nothing_is_lost_and_nothing_done_twice(void **state)
{
  killed_again_and_again(2 * TRIALS_A_KILL * kills() / 6, kills());
}

static void nor_where_trials_wait_for_decisions(void **state)
{
  killed_again_and_again(TRIALS_A_KILL * kills() / 6 + 1, kills());
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  self = "/proc/self/exe";
  if (argc > 3 && !strcmp(argv[1], "--drive"))
    return drive(argv[2], (int)strtol(argv[3], NULL, 10));
  if (argc > 3 && !strcmp(argv[1], "--copies"))
    return drive_copies(argv[2]);
  board_open(); // the CPUs are its own, whoever else runs
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_copy_stays_one),
      cmocka_unit_test(nothing_is_lost_and_nothing_done_twice),
      cmocka_unit_test(nor_where_trials_wait_for_decisions),
  };
  int failed = cmocka_run_group_tests_name("kill", tests, NULL, NULL);
  board_close();
  return failed;
}
