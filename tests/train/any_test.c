/* SPDX-License-Identifier: Apache-2.0
 *
 * Many runs, one thread: manta_run_next_any.
 */
#include "rig.h"

#include "train/driver.h"
#include "train/run.h"

#define MOST   12
#define WAIT_S 60.0

/* What came of one run, through its callbacks and out of the call. */
struct seen {
  int64_t rows, called, last;
  int finishes, renewals;
  char output[256];
};

static struct fleet {
  char dir[64];
  size_t count;
  manta_trainer *t[MOST];
  manta_run *run[MOST];
  struct seen seen[MOST];
  manta_callbacks calls[MOST];
  pthread_t user;
  manta_error err;
} fleet;

// --- what the ranks do --------------------------------------------------------------------------

// Reports "n" rows; killed before the one of "die" in the first attempt; prints "say".
static manta_status steps(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t n = manta_session_config_int(s, "n", 0), die = manta_session_config_int(s, "die", -1);
  if (!board)
    board_open();
  printf("%s\n", manta_session_config_string(s, "say", "hello"));
  fflush(stdout);
  for (int64_t i = 1; i <= n; i++) {
    while (board->hold) {
      MANTA_TRY(manta_session_check(s, err));
      usleep(500);
    }
    if (i == die && manta_session_attempt(s) == 0)
      raise(SIGKILL);
    manta_value row =
        MANTA_MAP(MANTA_KV_INT("i", i), MANTA_KV_INT("id", manta_session_config_int(s, "id", -1)));
    MANTA_TRY(manta_session_report(s, &row, err));
  }
  return manta_value_set_int(result, n);
}

static manta_status nothing(manta_session *s, manta_value *result, manta_error *err)
{
  return MANTA_OK;
}

// --- the driver's side --------------------------------------------------------------------------

static manta_status on_result(void *ctx, const manta_rows *rows, manta_error *err)
{
  struct seen *n = ctx;
  assert_true(pthread_equal(pthread_self(), fleet.user));
  n->called++;
  return MANTA_OK;
}

static manta_status on_finish(void *ctx, const manta_error *error, manta_error *err)
{
  struct seen *n = ctx;
  assert_true(pthread_equal(pthread_self(), fleet.user));
  n->finishes++;
  return MANTA_OK;
}

static void on_output(void *ctx, int rank, const char *text, size_t len)
{
  struct seen *n = ctx;
  assert_true(pthread_equal(pthread_self(), fleet.user));
  size_t at = strlen(n->output), room = sizeof n->output - 1 - at;
  memcpy(n->output + at, text, len < room ? len : room);
}

static manta_status on_renew(void *ctx, int attempt, manta_error *err)
{
  size_t i = (size_t)((struct seen *)ctx - fleet.seen);
  assert_true(pthread_equal(pthread_self(), fleet.user));
  fleet.seen[i].renewals++;
  return manta_trainer_execute(fleet.t[i], nothing, NULL, NULL, err);
}

static int open_fleet(void **state)
{
  fleet = (struct fleet){.err = MANTA_ERROR_INIT, .user = pthread_self()};
  strcpy(fleet.dir, "/tmp/manta-test-XXXXXX"); // style: a literal into a larger array
  assert_non_null(mkdtemp(fleet.dir));
  memset(board, 0, sizeof *board);
  return 0;
}

static int close_fleet(void **state)
{
  char cmd[128];
  for (size_t i = 0; i < fleet.count; i++) {
    manta_run_close(fleet.run[i]);
    manta_trainer_destroy(fleet.t[i]);
  }
  snprintf(cmd, sizeof cmd, "rm -rf %s 2>/dev/null", fleet.dir);
  assert_true(within(5, system(cmd) == 0));
  return 0;
}

// A trainer of one worker and its run; its number.
static size_t start(int64_t n, int64_t die, int max_retries)
{
  size_t i = fleet.count++;
  struct seen *seen = &fleet.seen[i];
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  fleet.calls[i] =
      (manta_callbacks){.ctx = seen, .result = on_result, .finish = on_finish, .output = on_output};
  cfg.workers = 1;
  cfg.logdir = fleet.dir;
  cfg.quiet = true;
  cfg.max_retries = max_retries;
  cfg.callbacks = &fleet.calls[i];
  cfg.callback_count = 1;
  char say[32];
  snprintf(say, sizeof say, "run %zu", i);
  manta_value config = MANTA_MAP(MANTA_KV_INT("id", (int64_t)i), MANTA_KV_INT("n", n),
                                 MANTA_KV_INT("die", die), MANTA_KV_STR("say", say));
  rc.config = &config;
  rc.renew = on_renew;
  rc.renew_ctx = seen;
  assert_ok(manta_trainer_create(&fleet.t[i], &cfg, &fleet.err), &fleet.err);
  assert_ok(manta_run_start(&fleet.run[i], fleet.t[i], steps, &rc, &fleet.err), &fleet.err);
  return i;
}

// The next of any; rows are what their run reported, in order.
static int next(manta_run *const *runs, double timeout_s, size_t *which)
{
  manta_rows rows;
  int rc = manta_run_next_any(runs, fleet.count, timeout_s, which, &rows, &fleet.err);
  if (rc != 1)
    return rc;
  struct seen *n = &fleet.seen[*which];
  const manta_value *row = &rows.rows[0];
  n->rows++;
  n->last = rows.rewound_to >= 0 ? rows.rewound_to + 1 : n->last + 1;
  assert_int_equal(rows.iteration, n->last);
  assert_int_equal(manta_value_as_int(manta_value_get(row, "id"), -1), *which);
  assert_int_equal(manta_value_as_int(manta_value_get(row, "i"), -1), rows.iteration);
  return rc;
}

// Until all have ended; their ends by run.
static void drain(int *ends)
{
  manta_run *runs[MOST];
  size_t which, left = fleet.count;
  memcpy(runs, fleet.run, sizeof runs);
  while (left > 0) {
    int rc = next(runs, WAIT_S, &which);
    assert_true(which < fleet.count);
    if (rc == 1)
      continue;
    ends[which] = rc;
    runs[which] = NULL;
    left--;
  }
  assert_int_equal(next(runs, WAIT_S, &which), MANTA_ENOENT);
  assert_int_equal(which, fleet.count);
}

static bool is_over(const manta_run *r)
{
  pthread_mutex_lock(&manta__drv.lock);
  bool over = r->over;
  pthread_mutex_unlock(&manta__drv.lock);
  return over;
}

// --- tests --------------------------------------------------------------------------------------

static void one_thread_takes_the_rows_of_many(void **state)
{
  int ends[MOST];
  for (int i = 0; i < MOST; i++)
    start(5 * i, -1, -2); // the first one ends at once
  drain(ends);
  for (int i = 0; i < MOST; i++) {
    const struct seen *n = &fleet.seen[i];
    char said[32];
    assert_int_equal(ends[i], 0);
    assert_int_equal(n->rows, 5 * i);
    assert_int_equal(n->called, 5 * i);
    assert_int_equal(n->finishes, 1);
    snprintf(said, sizeof said, "run %d\n", i);
    assert_string_equal(n->output, said);
    const manta_value *results = manta_run_results(fleet.run[i]);
    assert_non_null(results);
    assert_int_equal(manta_value_as_int(manta_value_at(results, 0), -1), 5 * i);
  }
}

// All rows of both wait to be taken: from then on they come in turn, the ends too.
static void runs_take_turns(void **state)
{
  size_t many = start(500, -1, -2), few = start(20, -1, -2), which;
  assert_true(within(WAIT_S, is_over(fleet.run[many]) && is_over(fleet.run[few])));
  for (int i = 0; i < 40; i++) {
    assert_int_equal(next(fleet.run, WAIT_S, &which), 1);
    assert_int_equal(which, i % 2 ? few : many);
  }
  for (int i = 0; i < 6; i++) { // one that is over has its turns as well, until it is taken out
    assert_int_equal(next(fleet.run, WAIT_S, &which), i % 2 ? 0 : 1);
    assert_int_equal(which, i % 2 ? few : many);
  }
  manta_run *rest[2] = {fleet.run[many], NULL};
  for (int i = 0; i < 477; i++) {
    assert_int_equal(next(rest, WAIT_S, &which), 1);
    assert_int_equal(which, many);
  }
  assert_int_equal(next(rest, WAIT_S, &which), 0);
  assert_int_equal(fleet.seen[few].finishes, 1);
}

static void a_death_ends_its_own_run_only(void **state)
{
  int ends[MOST];
  size_t dies = start(20, 7, -2), lives = start(300, -1, -2), empty = start(0, -1, -2);
  drain(ends);
  assert_int_equal(ends[dies], MANTA_EWORKER);
  assert_int_equal(fleet.seen[dies].rows, 6);
  assert_int_equal(ends[lives], 0);
  assert_int_equal(fleet.seen[lives].rows, 300);
  assert_int_equal(ends[empty], 0);
  for (size_t i = 0; i < fleet.count; i++)
    assert_int_equal(fleet.seen[i].finishes, 1);
}

// The message and the rank of a failure are those that manta_run_next gives, again and again.
static void an_error_says_what_next_says(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  size_t which, dies = start(5, 1, -2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(next(fleet.run, WAIT_S, &which), MANTA_EWORKER);
    assert_int_equal(which, dies);
  }
  assert_int_equal(fleet.err.rank, 0);
  assert_int_equal(manta_run_next(fleet.run[dies], WAIT_S, NULL, &err), MANTA_EWORKER);
  assert_string_equal(err.message, fleet.err.message);
}

// What is called before the second attempt of one run is called here, and reaches its worker.
static void a_revival_goes_on_beside_the_others(void **state)
{
  int ends[MOST];
  size_t dies = start(20, 7, 1), lives = start(200, -1, -2);
  drain(ends);
  assert_int_equal(ends[dies], 0);
  assert_int_equal(ends[lives], 0);
  assert_int_equal(fleet.seen[dies].renewals, 1);
  assert_int_equal(fleet.seen[dies].last, 20);
  assert_int_equal(fleet.seen[lives].renewals, 0);
  assert_int_equal(fleet.seen[lives].rows, 200);
}

static void a_limit_passes_while_all_wait(void **state)
{
  size_t which = 77, one, two;
  board->hold = 1;
  one = start(3, -1, -2);
  two = start(3, -1, -2);
  // What they print comes while none has a row.
  int64_t by = manta__deadline(WAIT_S);
  while (!fleet.seen[one].output[0] || !fleet.seen[two].output[0]) {
    assert_int_equal(next(fleet.run, 0.02, &which), MANTA_ETIMEDOUT);
    assert_int_equal(which, fleet.count);
    assert_has(fleet.err.message, "within 0.02 s");
    assert_true(manta__now() < by);
  }
  assert_int_equal(next(fleet.run, 0, &which), MANTA_ETIMEDOUT);
  board->hold = 0;
  int ends[MOST];
  drain(ends);
  assert_int_equal(fleet.seen[one].rows + fleet.seen[two].rows, 6);
}

static void *cancel_soon(void *t)
{
  usleep(50000);
  manta_trainer_cancel(t);
  return NULL;
}

static void a_cancel_wakes_the_one_who_waits(void **state)
{
  pthread_t th;
  size_t which;
  board->hold = 1;
  start(3, -1, -2);
  size_t two = start(3, -1, -2);
  pthread_create(&th, NULL, cancel_soon, fleet.t[two]);
  assert_int_equal(next(fleet.run, -1, &which), MANTA_ECANCELED);
  assert_int_equal(which, two);
  pthread_join(th, NULL);
  assert_int_equal(fleet.seen[two].finishes, 1);
  assert_int_equal(fleet.seen[0].finishes, 0);
}

static void a_run_without_its_trainer_is_over(void **state)
{
  size_t which, gone = start(1000000, -1, -2), going = start(10, -1, -2);
  int ends[MOST];
  assert_int_equal(next(&fleet.run[0], WAIT_S, &which), 1);
  manta_trainer_destroy(fleet.t[gone]);
  fleet.t[gone] = NULL;
  drain(ends);
  assert_int_equal(ends[gone], MANTA_ECANCELED);
  assert_int_equal(ends[going], 0);
  assert_int_equal(fleet.seen[going].rows, 10);
}

static void nothing_to_wait_for_is_said(void **state)
{
  manta_run *none[2] = {NULL, NULL};
  manta_error err = MANTA_ERROR_INIT;
  size_t which;
  assert_int_equal(manta_run_next_any(NULL, 0, -1, &which, NULL, &err), MANTA_ENOENT);
  assert_int_equal(which, 0);
  assert_int_equal(manta_run_next_any(none, 2, -1, &which, NULL, &err), MANTA_ENOENT);
  assert_int_equal(which, 2);
}

static void a_forked_child_is_refused(void **state)
{
  size_t which;
  int status;
  start(1000000, -1, -2);
  assert_int_equal(next(fleet.run, WAIT_S, &which), 1);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    alarm(20);
    int rc = manta_run_next_any(fleet.run, 1, -1, &which, NULL, NULL);
    _exit(rc == MANTA_ESTATE && which == 1 ? 0 : 1);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  assert_int_equal(next(fleet.run, WAIT_S, &which), 1);
}

// --- two runs on one terminal -------------------------------------------------------------------

static char shown[4096];

static void on_write(void *ctx, int stream, const char *text, size_t len)
{
  size_t at = strlen(shown), room = sizeof shown - 1 - at;
  memcpy(shown + at, text, len < room ? len : room);
}

// Prints a bar that stays, and holds.
static manta_status bars(manta_session *s, manta_value *result, manta_error *err)
{
  if (!board)
    board_open();
  printf("\rbar of %lld", (long long)manta_session_config_int(s, "id", -1));
  fflush(stdout);
  while (!board->hold) {
    MANTA_TRY(manta_session_check(s, err));
    usleep(500);
  }
  return MANTA_OK;
}

static void start_bar(int64_t id)
{
  size_t i = fleet.count++;
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_display to = {.write = on_write, .kind = {MANTA_DISPLAY_TERMINAL, MANTA_DISPLAY_TERMINAL}};
  manta_value config = MANTA_MAP(MANTA_KV_INT("id", id));
  cfg.workers = 1;
  cfg.logdir = fleet.dir;
  rc.config = &config;
  rc.display = &to;
  assert_ok(manta_trainer_create(&fleet.t[i], &cfg, &fleet.err), &fleet.err);
  assert_ok(manta_run_start(&fleet.run[i], fleet.t[i], bars, &rc, &fleet.err), &fleet.err);
}

// Each bar is taken off the screen before the other one is drawn.
static void bars_of_two_runs_do_not_mix(void **state)
{
  size_t which;
  shown[0] = 0;
  start_bar(7);
  start_bar(8);
  int64_t by = manta__deadline(WAIT_S);
  while (!strstr(shown, "bar of 7") || !strstr(shown, "bar of 8")) {
    assert_int_equal(manta_run_next_any(fleet.run, 2, 0.02, &which, NULL, &fleet.err),
                     MANTA_ETIMEDOUT);
    assert_true(manta__now() < by);
  }
  char *one = strstr(shown, "bar of 7"), *two = strstr(shown, "bar of 8");
  char *first = one < two ? one : two, *second = one < two ? two : one;
  char *wiped = strstr(first, "\r\033[J");
  assert_true(wiped && wiped < second);
  board->hold = 1;
  int ends[MOST];
  drain(ends);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_fleet, close_fleet)
  const struct CMUnitTest tests[] = {
      TEST(one_thread_takes_the_rows_of_many),   TEST(runs_take_turns),
      TEST(a_death_ends_its_own_run_only),       TEST(an_error_says_what_next_says),
      TEST(a_revival_goes_on_beside_the_others), TEST(a_limit_passes_while_all_wait),
      TEST(a_cancel_wakes_the_one_who_waits),    TEST(a_run_without_its_trainer_is_over),
      TEST(nothing_to_wait_for_is_said),         TEST(a_forked_child_is_refused),
      TEST(bars_of_two_runs_do_not_mix),
  };
  cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
