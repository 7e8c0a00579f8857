/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver of an experiment is killed again and again, at any moment: every trial ends once, and
 * the results are those of an experiment that nobody killed.
 *
 * KILLS=50 in the environment: more of them, and more trials.
 */
#include "train/rig.h"

#include <sys/prctl.h>

#include <manta/tune.h>

#include "base/rng.h"
#include "tune/journal.h"

#define TRIALS_A_KILL 12

static manta_status trial(manta_session *s, manta_value *result, manta_error *err)
{
  double x = manta_session_config_real(s, "x", 0), sum = 0;
  manta_checkpoint *c = NULL;
  MANTA_TRY(manta_session_load(s, &c, err));
  if (c)
    sum = *(const double *)manta_checkpoint_tensor(c, "sum")->data;
  manta_checkpoint_close(c);
  for (int64_t i = manta_session_iteration(s) + 1; i <= 4; i++) {
    sum += x * (double)i;
    manta_value row = MANTA_MAP(MANTA_KV_REAL("sum", sum));
    MANTA_TRY(manta_session_report(s, &row, err));
    manta_tensor tensor = MANTA_VECTOR("sum", MANTA_F64, &sum, 1);
    manta_state state = {.tensors = &tensor, .count = 1};
    if (manta_session_config_int(s, "a", 0) == 2)
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
  if (manta_tune_open(&t, NULL, NULL) == MANTA_OK) {
    snprintf(found, sizeof found, "%s", manta_tune_dir(t));
    c.resume = found;
    manta_tune_close(t);
  }
  if (manta_tune_run(&t, trial, &c, &err) < 0) {
    fprintf(stderr, "%s\n", err.message);
    return 1;
  }
  manta_tune_close(t);
  manta_value_fini(&space);
  return 0;
}

// --- the test ------------------------------------------------------------------------------------

static const char *self;

static pid_t start_driver(const char *dir, int samples)
{
  char text[16];
  snprintf(text, sizeof text, "%d", samples);
  pid_t pid = fork();
  if (pid == 0) {
    execl(self, self, "--drive", dir, text, (char *)NULL);
    _exit(3);
  }
  return pid;
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
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return false;
}

static int ends[4096];

static manta_status count_ends(void *ctx, const struct manta__event_rec *e, manta_error *err)
{
  if (e->what == MANTA__T_ENDED)
    ends[e->trial]++;
  return MANTA_OK;
}

// What came of it: the number of trials; results by number.
static uint64_t read_results(const char *dir, double *out)
{
  manta_tune *t;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__journal j;
  struct manta__journal_reader reader = {.event = count_ends};
  setenv("MANTA_RESULTS", dir, 1);
  assert_ok(manta_tune_open(&t, NULL, &err), &err);
  uint64_t n = manta_tune_count(t);
  memset(ends, 0, sizeof ends);
  int fd = open(manta_tune_dir(t), O_RDONLY | O_DIRECTORY);
  assert_ok(manta__journal_open(&j, fd, false, false, &err), &err);
  assert_ok(manta__journal_read(&j, &reader, &err), &err);
  manta__journal_close(&j);
  close(fd);
  for (uint64_t i = 0; i < n; i++) {
    manta_trial x;
    assert_ok(manta_tune_trial(t, i, &x, &err), &err);
    assert_true(x.state == MANTA_TRIAL_FINISHED || x.state == MANTA_TRIAL_STOPPED);
    assert_int_equal(ends[i], 1);
    out[i] = manta_value_as_real(manta_value_get(x.last, "sum"), NAN);
  }
  manta_tune_close(t);
  return n;
}

static void killed_again_and_again(int samples, int kills)
{
  char quiet[64] = "/tmp/manta-test-XXXXXX", killed[64] = "/tmp/manta-test-XXXXXX", cmd[160];
  static double want[4096], got[4096];
  struct manta__rng rng = manta__rng_of((uint64_t)samples, 1);
  int done = 0;
  assert_non_null(mkdtemp(quiet));
  assert_non_null(mkdtemp(killed));
  int64_t began = manta__now();
  assert_true(let_run(start_driver(quiet, samples), 120));
  double whole = (double)(manta__now() - began) * 1e-9;
  for (int i = 0; i < kills && !done; i++) // from the first moments on, to all that it takes
    done = let_run(start_driver(killed, samples), whole * 3 / kills * manta__rng_unit(&rng) + 0.01);
  if (!done)
    assert_true(let_run(start_driver(killed, samples), 120));
  uint64_t n = read_results(quiet, want);
  assert_int_equal(n, (uint64_t)samples * 3);
  assert_int_equal(read_results(killed, got), n);
  for (uint64_t i = 0; i < n; i++)
    assert_near(got[i], want[i], 0);
  snprintf(cmd, sizeof cmd, "rm -rf %s %s 2>/dev/null", quiet, killed);
  assert_true(within(5, system(cmd) == 0));
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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_lost_and_nothing_done_twice),
      cmocka_unit_test(nor_where_trials_wait_for_decisions),
  };
  return cmocka_run_group_tests_name("kill", tests, NULL, NULL);
}
