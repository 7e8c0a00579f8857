/* SPDX-License-Identifier: Apache-2.0
 *
 * Experiments over real processes: searchers, schedulers, failures, pauses, copies, going on.
 */
#include "train/rig.h"

#include <sched.h>
#include <sys/stat.h>

#include <manta/tune.h>

#include "ckpt/store.h"
#include "sys/proc.h"

#define WAIT_S 60.0

static struct {
  char dir[64];
  manta_error err;
  manta_tune *t;
} one;

// --- what trials do ------------------------------------------------------------------------------

/* Counts from its checkpoint to "n"; loss is x / iteration. Faults by config: "die" (a signal) at
 * iteration "at", in the first attempt, or in all with "always"; "fail": an error instead. */
static manta_status trial(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t n = manta_session_config_int(s, "n", 3), at = manta_session_config_int(s, "at", 2);
  double x = manta_session_config_real(s, "x", 1), w = 0;
  int die = (int)manta_session_config_int(s, "die", 0);
  bool faulty = manta_session_attempt(s) == 0 || manta_session_config_bool(s, "always", false);
  manta_checkpoint *c = NULL;
  if (!board)
    board_open();
  board->counts++;
  MANTA_TRY(manta_session_load(s, &c, err));
  if (c)
    w = *(const double *)manta_checkpoint_tensor(c, "w")->data;
  manta_checkpoint_close(c);
  for (int64_t i = manta_session_iteration(s) + 1; i <= n; i++) {
    if (i == at && faulty && (die || manta_session_config_bool(s, "fail", false))) {
      board->fired++;
      if (!die)
        return manta_error_set(err, MANTA_EUSER, "as it was told to");
      raise(die);
    }
    w += 1;
    manta_value row = MANTA_MAP(MANTA_KV_REAL("loss", x / (double)i), MANTA_KV_REAL("w", w),
                                MANTA_KV_INT("pid", getpid()));
    manta_tensor tensor = MANTA_VECTOR("w", MANTA_F64, &w, 1);
    manta_state state = {.tensors = &tensor, .count = 1};
    if (manta_session_config_bool(s, "ahead", false)) {
      manta_session_ahead(s, &row);
      MANTA_TRY(manta_session_save(s, &state, err));
    }
    MANTA_TRY(manta_session_report(s, &row, err));
    if (manta_session_config_bool(s, "save", false))
      MANTA_TRY(manta_session_save(s, &state, err));
    while (board->hold) {
      MANTA_TRY(manta_session_check(s, err));
      usleep(500);
    }
  }
  return manta_value_set_real(result, w);
}

// --- the driver's side ---------------------------------------------------------------------------

static int set_up(void **state)
{
  one.err = (manta_error)MANTA_ERROR_INIT;
  one.t = NULL;
  strcpy(one.dir, "/tmp/manta-test-XXXXXX"); // style: a literal into a larger array
  assert_non_null(mkdtemp(one.dir));
  memset(board, 0, sizeof *board);
  return 0;
}

static int tear_down(void **state)
{
  char cmd[128];
  manta_tune_close(one.t);
  snprintf(cmd, sizeof cmd, "rm -rf %s 2>/dev/null", one.dir);
  assert_true(within(5, system(cmd) == 0));
  return 0;
}

static manta_tune_config config(const char *space)
{
  static manta_value v;
  manta_tune_config c = MANTA_TUNE_CONFIG_INIT;
  assert_ok(manta_value_from_json(&v, space, strlen(space), &one.err), &one.err);
  c.space = &v;
  c.logdir = one.dir;
  c.name = "exp";
  c.concurrency = 2;
  c.metric = "loss";
  c.seed = 7;
  return c;
}

#define SPACE_X "{\"x\": {\"$range\": {\"low\": 1, \"high\": 9}}}"

static manta_trial trial_of(uint64_t number)
{
  manta_trial x;
  assert_ok(manta_tune_trial(one.t, number, &x, &one.err), &one.err);
  return x;
}

static double metric(const manta_value *row, const char *key)
{
  return manta_value_as_real(manta_value_get(row, key), NAN);
}

static void trials_run_and_the_best_is_known(void **state)
{
  manta_tune_config c = config(SPACE_X);
  uint64_t best;
  double least = INFINITY;
  c.samples = 6;
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  assert_int_equal(manta_tune_count(one.t), 6);
  assert_int_equal(manta_tune_count_state(one.t, MANTA_TRIAL_FINISHED), 6);
  assert_ok(manta_tune_best(one.t, NULL, false, false, &best, &one.err), &one.err);
  for (uint64_t i = 0; i < 6; i++) {
    manta_trial x = trial_of(i);
    assert_int_equal(x.iteration, 3);
    assert_near(metric(x.last, "loss"), metric(x.config, "x") / 3, 1e-12);
    assert_near(manta_value_as_real(x.result, -1), 3, 0);
    least = fmin(least, metric(x.last, "loss"));
  }
  assert_near(metric(trial_of(best).last, "loss"), least, 0);
  assert_int_equal(board->counts, 6);
  assert_status(manta_tune_best(one.t, "lose", false, false, &best, &one.err), MANTA_ENOENT);
  assert_has(one.err.message, "loss");
}

static void grids_are_crossed_with_samples(void **state)
{
  manta_tune_config c = config("{\"a\": {\"$grid\": [1, 2, 3]}, \"b\": {\"$grid\": [1, 2]}}");
  c.samples = 2;
  c.reuse = true;
  int seen[4][3] = {{0}};
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  assert_int_equal(manta_tune_count(one.t), 12);
  for (uint64_t i = 0; i < 12; i++) {
    const manta_value *v = trial_of(i).config;
    seen[manta_value_as_int(manta_value_get(v, "a"), 0)]
        [manta_value_as_int(manta_value_get(v, "b"), 0)]++;
  }
  for (int a = 1; a <= 3; a++)
    for (int b = 1; b <= 2; b++)
      assert_int_equal(seen[a][b], 2);
}

static void a_crash_is_that_trials_own(void **state)
{
  manta_tune_config c = config("{\"die\": {\"$grid\": [0, 9, 0, 11]}, \"always\": true}");
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  assert_int_equal(manta_tune_count_state(one.t, MANTA_TRIAL_FINISHED), 2);
  assert_int_equal(manta_tune_count_state(one.t, MANTA_TRIAL_FAILED), 2);
  assert_int_equal(board->fired, 2);
  assert_has(trial_of(1).message, "SIGKILL");
  assert_has(trial_of(3).message, "SIGSEGV");
}

static void a_trial_that_hangs_is_stopped_in_time(void **state)
{
  manta_tune_config c = config("{\"die\": {\"$grid\": [0, 19, 0]}, \"n\": 4}"); // SIGSTOP
  c.trial_time_s = 2;
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  assert_int_equal(board->fired, 1);
  assert_int_equal(manta_tune_count_state(one.t, MANTA_TRIAL_FINISHED), 2);
  assert_int_equal(trial_of(1).state, MANTA_TRIAL_STOPPED);
  assert_int_equal(trial_of(1).iteration, 1);
}

static void a_failed_trial_is_tried_again_from_its_checkpoint(void **state)
{
  manta_tune_config c = config("{\"die\": 9, \"at\": 3, \"n\": 5, \"save\": true}");
  c.max_failures = 1;
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  manta_trial x = trial_of(0);
  assert_int_equal(board->fired, 1);
  assert_int_equal(x.state, MANTA_TRIAL_FINISHED);
  assert_int_equal(x.failures, 1);
  assert_int_equal(x.iteration, 5);
  assert_near(manta_value_as_real(x.result, -1), 5, 0); // w was not counted twice
}

static void a_stop_condition_ends_a_trial_where_it_is(void **state)
{
  manta_tune_config c = config("{\"n\": 1000}");
  manta_value stop = MANTA_MAP(MANTA_KV_INT("training_iteration", 4));
  c.samples = 3;
  c.stop = &stop;
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  assert_int_equal(manta_tune_count_state(one.t, MANTA_TRIAL_STOPPED), 3);
  for (uint64_t i = 0; i < 3; i++)
    assert_int_equal(trial_of(i).iteration, 4);
}

static void a_checkpoint_that_comes_with_the_last_row_is_kept(void **state)
{
  manta_tune_config c = config("{\"n\": 1000, \"ahead\": true}");
  manta_value stop = MANTA_MAP(MANTA_KV_INT("training_iteration", 1));
  manta_checkpoint *found;
  c.samples = 3;
  c.stop = &stop;
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  assert_int_equal(manta_tune_count_state(one.t, MANTA_TRIAL_STOPPED), 3);
  for (uint64_t i = 0; i < 3; i++) {
    assert_int_equal(trial_of(i).iteration, 1);
    assert_ok(manta_tune_checkpoint(one.t, i, &found, &one.err), &one.err);
    assert_non_null(found);
    assert_int_equal(manta_checkpoint_iteration(found), 1);
    manta_checkpoint_close(found);
  }
}

static void one_that_is_asked_to_stop_may_save(void **state)
{
  for (int soft = 0; soft < 2; soft++) {
    manta_tune_config c = config("{\"n\": 1000, \"save\": true}");
    manta_value stop = MANTA_MAP(MANTA_KV_INT("training_iteration", 3));
    manta_checkpoint *found;
    c.samples = 3;
    c.stop = &stop;
    c.soft_stop = soft;
    assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
    assert_int_equal(manta_tune_count_state(one.t, MANTA_TRIAL_STOPPED), 3);
    for (uint64_t i = 0; i < 3; i++) {
      assert_int_equal(trial_of(i).iteration, 3);
      assert_ok(manta_tune_checkpoint(one.t, i, &found, &one.err), &one.err);
      assert_non_null(found);
      assert_int_equal(manta_checkpoint_iteration(found), soft ? 3 : 2);
      manta_checkpoint_close(found);
    }
    manta_tune_close(one.t);
    one.t = NULL;
  }
}

// As a disk that is slow: the writer stands still for a while.
static void *slow_writer(void *arg)
{
  pid_t agent, writer = 0;
  if (!within(20, (agent = child_named(getpid(), "manta-agent")) > 0 &&
                      (writer = child_named(agent, "manta-writer")) > 0) ||
      manta__proc_signal(writer, SIGSTOP) < 0)
    return NULL;
  board->fired++;
  board->hold = 0;
  usleep(1500000);
  manta__proc_signal(writer, SIGCONT);
  return NULL;
}

// What waits for the writer, behind what that one holds, is written as well.
static void one_that_is_stopped_waits_for_a_slow_disk(void **state)
{
  manta_tune_config c = config("{\"n\": 1000, \"save\": true}");
  manta_value stop = MANTA_MAP(MANTA_KV_INT("training_iteration", 4));
  manta_checkpoint *found;
  pthread_t thread;
  c.stop = &stop;
  c.samples = 2; // the second one comes to the same writer
  c.concurrency = 1;
  board->hold = 1; // behind its first checkpoint
  pthread_create(&thread, NULL, slow_writer, NULL);
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  pthread_join(thread, NULL);
  assert_int_equal(board->fired, 1);
  assert_ok(manta_tune_checkpoint(one.t, 0, &found, &one.err), &one.err);
  assert_non_null(found);
  assert_int_equal(manta_checkpoint_iteration(found), 3);
  manta_checkpoint_close(found);
}

// The score falls: of four checkpoints the first is best, and the last is the newest.
static void checkpoints_are_kept_by_their_score(void **state)
{
  static const char *const spaces[] = {"{\"n\": 4, \"ahead\": true}", "{\"n\": 4, \"save\": true}"};
  for (int i = 0; i < 4; i++) {
    manta_tune_config c = config(spaces[i % 2]);
    struct manta__manifest *kept;
    size_t count;
    c.maximize = true;
    c.score = i < 2 ? "loss" : NULL; // else by the metric of the experiment
    c.keep_best = i < 2;
    assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
    int dir = open(trial_of(0).dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_ok(manta__store_list(dir, true, &kept, &count, &one.err), &one.err);
    close(dir);
    assert_int_equal(count, 2);
    assert_int_equal(kept[0].iteration, 1);
    assert_near(kept[0].score, 1, 0);
    assert_int_equal(kept[1].iteration, 4);
    manta_free(kept);
    manta_tune_close(one.t);
    one.t = NULL;
    c.score = NULL;
    c.keep_best = 1;
    assert_status(manta_tune_start(&one.t, trial, &c, &one.err), MANTA_EINVAL);
  }
}

static void asha_stops_most_of_them_early(void **state)
{
  manta_tune_config c = config("{\"n\": 16, \"x\": {\"$range\": {\"low\": 1, \"high\": 9}}}");
  manta_value options = MANTA_MAP(MANTA_KV_INT("max_time", 16), MANTA_KV_INT("factor", 4));
  c.samples = 12;
  c.scheduler = "asha";
  c.scheduler_options = &options;
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  uint64_t best;
  int64_t rows = 0;
  for (uint64_t i = 0; i < 12; i++)
    rows += trial_of(i).iteration;
  assert_true(rows < 12 * 16 / 2);
  assert_ok(manta_tune_best(one.t, NULL, false, true, &best, &one.err), &one.err);
  assert_int_equal(trial_of(best).iteration, 16);
}

static void hyperband_pauses_and_goes_on(void **state)
{
  manta_tune_config c =
      config("{\"n\": 9, \"save\": true, \"x\": {\"$range\": {\"low\": 1, \"high\": 9}}}");
  manta_value options = MANTA_MAP(MANTA_KV_INT("max_time", 9), MANTA_KV_INT("factor", 3));
  manta_tune_event e;
  int rc, pauses = 0;
  c.samples = 9;
  c.scheduler = "hyperband";
  c.scheduler_options = &options;
  assert_ok(manta_tune_start(&one.t, trial, &c, &one.err), &one.err);
  while ((rc = manta_tune_next(one.t, WAIT_S, &e, &one.err)) == 1)
    pauses += e.kind == MANTA_TUNE_PAUSED;
  assert_ok(rc, &one.err);
  assert_true(pauses > 0);
  assert_int_equal(manta_tune_count_state(one.t, MANTA_TRIAL_PAUSED), 0);
  for (uint64_t i = 0; i < 9; i++)
    assert_near(metric(trial_of(i).last, "w"), (double)trial_of(i).iteration, 0);
}

static void pbt_goes_on_from_anothers_state(void **state)
{
  manta_tune_config c =
      config("{\"n\": 12, \"save\": true, \"x\": {\"$range\": {\"low\": 1, \"high\": 9}}}");
  manta_value options = MANTA_MAP(MANTA_KV_INT("interval", 2), MANTA_KV_REAL("quantile", 0.5));
  manta_tune_event e;
  int rc, copies = 0;
  c.samples = 2;
  c.scheduler = "pbt";
  c.scheduler_options = &options;
  assert_ok(manta_tune_start(&one.t, trial, &c, &one.err), &one.err);
  while ((rc = manta_tune_next(one.t, WAIT_S, &e, &one.err)) == 1)
    if (e.kind == MANTA_TUNE_COPIED) {
      copies++;
      assert_int_not_equal(e.trial, e.from);
    }
  assert_ok(rc, &one.err);
  assert_true(copies > 0);
  for (uint64_t i = 0; i < 2; i++) // the state came along: w is the iteration, whoever counted it
    assert_near(manta_value_as_real(trial_of(i).result, -1), 12, 0);
}

static void an_unknown_metric_is_an_error_with_the_names_there_are(void **state)
{
  manta_tune_config c = config(SPACE_X);
  c.metric = "lose";
  for (int i = 0; i < 2; i++) { // where every row is compared, and where nothing is until the end
    c.searcher = i == 0 ? "tpe" : "random";
    assert_status(manta_tune_run(&one.t, trial, &c, &one.err), MANTA_EINVAL);
    assert_has(one.err.message, "lose");
    assert_has(one.err.message, "it reports loss, w, pid");
    assert_null(strstr(one.err.message, "_timestamp"));
  }
}

static void what_makes_no_sense_is_said_at_the_start(void **state)
{
  static const struct {
    const char *space, *searcher, *says;
  } bad[] = {{"{\"a\": {\"$choice\": []}}", "random", "a"},
             {"{\"a\": {\"$grid\": [1, 2]}}", "tpe", "grid"},
             {"{}", "best", "best"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    manta_tune_config c = config(bad[i].space);
    c.searcher = bad[i].searcher;
    assert_status(manta_tune_start(&one.t, trial, &c, &one.err), MANTA_EINVAL);
    assert_has(one.err.message, bad[i].says);
  }
  manta_tune_config c = config("{}");
  manta_trainer_config tc = MANTA_TRAINER_CONFIG_INIT;
  tc.workers = 1;
  tc.cpus_per_worker = 4000;
  c.trainer = &tc;
  assert_status(manta_tune_start(&one.t, trial, &c, &one.err), MANTA_EINVAL);
  assert_has(one.err.message, "4000");
  assert_int_equal(rmdir(one.dir), 0); // nothing is left that `resume` could go on with
  assert_int_equal(mkdir(one.dir, 0700), 0);
}

// Strict with what was asked for; else trials share the CPUs, as workers of a trainer do.
static void trials_share_cpus_that_others_hold(void **state)
{
  manta_trainer *holder;
  manta_trainer_config all = MANTA_TRAINER_CONFIG_INIT, asked = MANTA_TRAINER_CONFIG_INIT;
  cpu_set_t mask;
  all.workers = 1;
  all.logdir = one.dir;
  assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
  for (all.cpus_per_worker = CPU_COUNT(&mask);; all.cpus_per_worker--) { // a quota may be below it
    assert_true(all.cpus_per_worker > 0);
    assert_ok(manta_trainer_create(&holder, &all, &one.err), &one.err);
    manta_trainer_hold(holder, true);
    if (manta_trainer_start(holder, &one.err) == MANTA_OK)
      break;
    manta_trainer_destroy(holder);
  }
  manta_tune_config c = config(SPACE_X);
  c.samples = 2;
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  assert_int_equal(manta_tune_count_state(one.t, MANTA_TRIAL_FINISHED), 2);
  manta_tune_close(one.t);
  one.t = NULL;
  asked.workers = 1;
  asked.cpus_per_worker = 1;
  c.trainer = &asked;
  assert_status(manta_tune_start(&one.t, trial, &c, &one.err), MANTA_ENOROOM);
  manta_trainer_destroy(holder);
}

static void trials_can_be_distributed(void **state)
{
  manta_tune_config c = config("{\"n\": 3, \"x\": {\"$grid\": [4, 2]}}");
  manta_trainer_config tc = MANTA_TRAINER_CONFIG_INIT;
  tc.workers = 2;
  tc.cpus_per_worker = 0.5;
  c.trainer = &tc;
  c.concurrency = 1;
  uint64_t best;
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  assert_int_equal(manta_tune_count_state(one.t, MANTA_TRIAL_FINISHED), 2);
  assert_int_equal(board->counts, 4);
  assert_ok(manta_tune_best(one.t, NULL, false, false, &best, &one.err), &one.err);
  assert_int_equal(best, 1);
}

static void a_stopped_experiment_goes_on_where_it_was(void **state)
{
  manta_tune_config c = config("{\"n\": 6, \"save\": true}");
  manta_value stop = MANTA_MAP(MANTA_KV_INT("loss_never", 1));
  manta_tune_event e;
  int rc;
  c.samples = 4;
  c.stop = &stop; // lockstep
  assert_ok(manta_tune_start(&one.t, trial, &c, &one.err), &one.err);
  for (int rows = 0; rows < 5 && (rc = manta_tune_next(one.t, WAIT_S, &e, &one.err)) == 1;)
    rows += e.kind == MANTA_TUNE_ROW;
  manta_tune_stop(one.t, true);
  while ((rc = manta_tune_next(one.t, WAIT_S, &e, &one.err)) == 1)
    ;
  assert_ok(rc, &one.err);
  uint64_t done = manta_tune_count_state(one.t, MANTA_TRIAL_FINISHED);
  assert_true(done < 4);
  char dir[256];
  snprintf(dir, sizeof dir, "%s", manta_tune_dir(one.t));
  manta_tune_close(one.t);
  c.resume = dir;
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  assert_int_equal(manta_tune_count_state(one.t, MANTA_TRIAL_FINISHED), 4);
  for (uint64_t i = 0; i < 4; i++)
    assert_near(manta_value_as_real(trial_of(i).result, -1), 6, 0);
  manta_tune_close(one.t);
  c.seed++;
  assert_status(manta_tune_start(&one.t, trial, &c, &one.err), MANTA_EINVAL);
  assert_has(one.err.message, "seed");
  one.t = NULL;
}

static manta_status named(void *ctx, uint64_t number, const manta_value *config, char *name,
                          size_t size, manta_error *err)
{
  const char *const *names = ctx;
  board->fired++;
  snprintf(name, size, "%s", names[number]);
  return MANTA_OK;
}

static void directories_have_the_names_that_they_are_given(void **state)
{
  static const char *names[] = {"a", "b c", "x=1.5"};
  manta_tune_config c = config(SPACE_X);
  manta_tune *seen;
  c.samples = 3;
  c.dir_fn = named;
  c.dir_ctx = names;
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  assert_ok(manta_tune_open(&seen, manta_tune_dir(one.t), &one.err), &one.err);
  for (uint64_t i = 0; i < 3; i++) {
    manta_trial x;
    assert_ok(manta_tune_trial(seen, i, &x, &one.err), &one.err);
    assert_string_equal(strrchr(x.dir, '/') + 1, names[i]);
    assert_int_equal(access(x.dir, F_OK), 0);
  }
  manta_tune_close(seen);
  assert_int_equal(board->fired, 3);
}

static void names_that_are_no_directories_are_refused(void **state)
{
  static const char *wrong[][2] = {{"", ""},           {"a/b", ""}, {"..", ""}, {".hidden", ""},
                                   {"experiment", ""}, {"a\n", ""}, {"a", "a"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    manta_tune_config c = config(SPACE_X);
    c.samples = 2;
    c.dir_fn = named;
    c.dir_ctx = wrong[i];
    assert_status(manta_tune_run(&one.t, trial, &c, &one.err), MANTA_EINVAL);
    assert_has(one.err.message, "director");
    one.t = NULL;
  }
}

static manta_status talker(manta_session *s, manta_value *result, manta_error *err)
{
  manta_value row = MANTA_MAP(MANTA_KV_REAL("loss", 1));
  printf("I am %d\n", (int)manta_session_config_int(s, "x", -1));
  manta_status st = manta_session_report(s, &row, err);
  fprintf(stderr, "that was it\n");
  return st;
}

// Each trial says the value of its only parameter, which is its number.
static void hear(void *ctx, uint64_t trial, int rank, const char *text, size_t len)
{
  char want[32], (*heard)[64] = ctx;
  assert_int_equal(rank, 0);
  assert_in_range(trial, 0, 2);
  snprintf(want, sizeof want, "%.*s", (int)len, text);
  strncat(heard[trial], want, sizeof *heard - strlen(heard[trial]) - 1);
  usleep(20000); // meanwhile the trial says the rest, and ends
}

static void what_trials_print_is_heard(void **state)
{
  for (int reuse = 0; reuse <= 1; reuse++) {
    manta_tune_config c = config("{\"x\": {\"$grid\": [0, 1, 2]}}");
    char heard[3][64] = {"", "", ""}, want[64];
    c.samples = 1;
    c.reuse = reuse;
    c.output_fn = hear;
    c.output_ctx = heard;
    assert_ok(manta_tune_run(&one.t, talker, &c, &one.err), &one.err);
    for (int i = 0; i < 3; i++) {
      snprintf(want, sizeof want, "I am %d\nthat was it\n", i);
      assert_string_equal(heard[i], want);
    }
    manta_tune_close(one.t);
    one.t = NULL;
  }
}

static void an_experiment_can_be_read_by_others(void **state)
{
  manta_tune_config c = config(SPACE_X);
  manta_tune *seen;
  uint64_t a, b;
  c.samples = 3;
  assert_ok(manta_tune_run(&one.t, trial, &c, &one.err), &one.err);
  assert_ok(manta_tune_open(&seen, manta_tune_dir(one.t), &one.err), &one.err);
  assert_int_equal(manta_tune_count_state(seen, MANTA_TRIAL_FINISHED), 3);
  assert_ok(manta_tune_best(one.t, NULL, false, true, &a, &one.err), &one.err);
  assert_ok(manta_tune_best(seen, NULL, false, true, &b, &one.err), &one.err);
  assert_int_equal(a, b);
  manta_tune_close(seen);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
#define tune_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      tune_test(trials_run_and_the_best_is_known),
      tune_test(grids_are_crossed_with_samples),
      tune_test(a_crash_is_that_trials_own),
      tune_test(a_trial_that_hangs_is_stopped_in_time),
      tune_test(a_failed_trial_is_tried_again_from_its_checkpoint),
      tune_test(a_stop_condition_ends_a_trial_where_it_is),
      tune_test(a_checkpoint_that_comes_with_the_last_row_is_kept),
      tune_test(one_that_is_asked_to_stop_may_save),
      tune_test(one_that_is_stopped_waits_for_a_slow_disk),
      tune_test(checkpoints_are_kept_by_their_score),
      tune_test(asha_stops_most_of_them_early),
      tune_test(hyperband_pauses_and_goes_on),
      tune_test(pbt_goes_on_from_anothers_state),
      tune_test(an_unknown_metric_is_an_error_with_the_names_there_are),
      tune_test(what_makes_no_sense_is_said_at_the_start),
      tune_test(trials_share_cpus_that_others_hold),
      tune_test(trials_can_be_distributed),
      tune_test(a_stopped_experiment_goes_on_where_it_was),
      tune_test(directories_have_the_names_that_they_are_given),
      tune_test(names_that_are_no_directories_are_refused),
      tune_test(what_trials_print_is_heard),
      tune_test(an_experiment_can_be_read_by_others),
  };
  int failed = cmocka_run_group_tests_name("tune", tests, NULL, NULL);
  board_close();
  return failed;
}
