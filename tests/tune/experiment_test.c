/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine over simulated trials, with every scheduler, failures at any place and drivers that
 * are gone after any number of events: nothing hangs, nobody is forgotten, nobody runs after its
 * end, and what is read from the log is what was there.
 */
#include "setting.h"

static void nothing_hangs_and_nobody_is_forgotten(void **state)
{
  for (uint64_t seed = 0; seed < 10 * SCHEDULERS; seed++) {
    char *dir = scratch_make();
    struct setting s;
    struct sim sim = make_sim(seed);
    make_setting(&s, dir, schedulers[seed % SCHEDULERS], seed);
    manta_tune *t = open_experiment(&sim, &s);
    assert_true(take(t, 1000000));
    assert_all_ended(t, s.c.samples);
    manta_tune_close(t);
    drop_setting(&s);
    scratch_remove(dir);
  }
}

// All that is known of a trial must be the same; what a driver only has in memory is left out.
static void assert_same(manta_tune *a, manta_tune *b)
{
  manta_error err = MANTA_ERROR_INIT;
  assert_int_equal(manta_tune_count(a), manta_tune_count(b));
  for (uint64_t i = 0; i < manta_tune_count(a); i++) {
    manta_trial x, y;
    assert_ok(manta_tune_trial(a, i, &x, &err), &err);
    assert_ok(manta_tune_trial(b, i, &y, &err), &err);
    assert_true(manta_value_equal(x.config, y.config));
    assert_true(manta_value_equal(x.last, y.last));
    assert_int_equal(x.failures, y.failures);
    if (a->trials.at[i].state >= MANTA_TRIAL_FINISHED)
      assert_int_equal(x.state, y.state);
  }
}

static void a_driver_may_be_gone_after_any_event(void **state)
{
  for (uint64_t seed = 0; seed < 4 * SCHEDULERS; seed++) {
    char *dir = scratch_make();
    struct setting s;
    struct sim sim = make_sim(seed);
    struct manta__rng rng = manta__rng_of(seed, 8);
    make_setting(&s, dir, schedulers[seed % SCHEDULERS], seed);
    manta_tune *t = open_experiment(&sim, &s), *seen;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", manta_tune_dir(t));
    while (!take(t, 1 + manta__rng_below(&rng, 40))) {
      manta_error err = MANTA_ERROR_INIT;
      assert_ok(manta__journal_flush(&t->journal, &err), &err);
      assert_ok(manta_tune_open(&seen, path, &err), &err);
      assert_same(t, seen);
      manta_tune_close(seen);
      for (int i = 0; i < sim.seats; i++)
        if (sim.seat[i].taken)
          sim.disk[sim.seat[i].trial] = sim.seat[i].saved;
      manta_tune_close(t);
      s.c.resume = path;
      t = open_experiment(&sim, &s);
    }
    assert_all_ended(t, s.c.samples);
    manta_tune_close(t);
    drop_setting(&s);
    scratch_remove(dir);
  }
}

static void states_change_as_the_picture_says(void **state)
{
  static const char *const allowed[] = {
      "pending running", "pending stopped", "running pending", "running paused", "running finished",
      "running stopped", "running failed",  "paused pending",  "paused stopped", "failed pending"};
  for (int from = MANTA_TRIAL_PENDING; from <= MANTA_TRIAL_FAILED; from++)
    for (int to = MANTA_TRIAL_PENDING; to <= MANTA_TRIAL_FAILED; to++) {
      char way[64];
      bool may = false;
      struct manta__trial t = {.state = (uint8_t)from};
      snprintf(way, sizeof way, "%s %s", manta_trial_state_name((manta_trial_state)from),
               manta_trial_state_name((manta_trial_state)to));
      for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        may |= !strcmp(way, allowed[i]);
      assert_int_equal(manta__trial_move(&t, (manta_trial_state)to, NULL) == MANTA_OK, may);
    }
}

// --- schedulers of the caller's ------------------------------------------------------------------

static manta_status pause_all(void *ctx, uint64_t trial, const manta_value *row,
                              manta_decision *out, manta_error *err)
{
  out->verdict = MANTA_TRIAL_PAUSE;
  return MANTA_OK;
}

static void all_paused_and_nobody_decides_is_an_error(void **state)
{
  char *dir = scratch_make();
  struct setting s;
  struct sim sim = make_sim(1);
  manta_scheduler own = {.report = pause_all};
  manta_error err = MANTA_ERROR_INIT;
  int rc;
  make_setting(&s, dir, "fifo", 1);
  sim.fail = 0;
  s.c.own_scheduler = &own;
  s.c.samples = 3;
  manta_tune *t = open_experiment(&sim, &s);
  while ((rc = manta_tune_next(t, -1, NULL, &err)) == 1)
    ;
  assert_int_equal(rc, MANTA_ESTATE);
  assert_has(err.message, "paused");
  manta_tune_close(t);
  drop_setting(&s);
  scratch_remove(dir);
}

// Twice as many CPUs from the third report on.
static manta_status grow(void *ctx, uint64_t trial, const manta_value *row, manta_decision *out,
                         manta_error *err)
{
  if (manta_value_as_int(manta_value_get(row, "_training_iteration"), 0) != 3)
    return MANTA_OK;
  ++*(int *)ctx;
  MANTA_TRY(manta_value_set_map(&out->config));
  return manta_value_put_int(&out->config, "cpus", 2);
}

static void other_resources_begin_a_trial_anew(void **state)
{
  char *dir = scratch_make();
  struct setting s;
  struct sim sim = make_sim(2);
  int asked = 0;
  manta_scheduler own = {.ctx = &asked, .report = grow};
  make_setting(&s, dir, "fifo", 2);
  sim.fail = sim.forgets = 0;
  sim.length = 5;
  s.c.own_scheduler = &own;
  s.c.samples = 4;
  manta_tune *t = open_experiment(&sim, &s);
  assert_true(take(t, 100000));
  assert_all_ended(t, 4);
  assert_int_equal(asked, 4);
  assert_int_equal(sim.starts, 8); // each begins twice, and reports each iteration once
  assert_int_equal(sim.rows, 4 * 5);
  manta_tune_close(t);
  drop_setting(&s);
  scratch_remove(dir);
}

static int ask_grow(void *ctx, uint64_t trial, const manta_value *row, manta_value *out)
{
  manta_decision d = {0};
  assert_int_equal(grow(ctx, trial, row, &d, NULL), MANTA_OK);
  manta_value_move(out, &d.config);
  return out->type == MANTA_MAP;
}

static void resources_may_change_under_any_scheduler(void **state)
{
  char *dir = scratch_make();
  struct setting s;
  struct sim sim = make_sim(2);
  int asked = 0;
  make_setting(&s, dir, "asha", 2);
  sim.fail = sim.forgets = 0;
  sim.length = 5;
  s.c.resources_fn = ask_grow;
  s.c.resources_ctx = &asked;
  s.c.samples = 4;
  manta_tune *t = open_experiment(&sim, &s);
  assert_true(take(t, 100000));
  assert_all_ended(t, 4);
  assert_true(asked > 0);
  assert_int_equal(sim.starts, 4 + asked);
  manta_tune_close(t);
  drop_setting(&s);
  scratch_remove(dir);
}

static manta_status set_to_five(void *ctx, uint64_t trial, manta_value *config, manta_error *err)
{
  double was = manta_value_as_real(manta_value_get(config, "x"), NAN);
  assert_true(was == 5 || (was >= 1 && was <= 9)); // that of the other trial
  ++*(int *)ctx;
  return manta_value_put_real(config, "x", 5);
}

static void the_caller_may_make_the_configs_of_copies(void **state)
{
  char *dir = scratch_make();
  struct setting s;
  struct sim sim = make_sim(4);
  manta_tune_event e;
  manta_trial x;
  manta_error err = MANTA_ERROR_INIT;
  int asked = 0, copied = 0, rc;
  make_setting(&s, dir, "pbt", 4);
  sim.fail = sim.forgets = 0;
  sim.length = 12;
  sim.seats = SIM_SEATS;
  s.c.samples = SIM_SEATS;
  s.c.explore_fn = set_to_five;
  s.c.explore_ctx = &asked;
  manta_tune *t = open_experiment(&sim, &s);
  while ((rc = manta_tune_next(t, -1, &e, &err)) == 1) {
    if (e.kind != MANTA_TUNE_COPIED)
      continue;
    copied++;
    assert_ok(manta_tune_trial(t, e.trial, &x, &err), &err);
    assert_near(manta_value_as_real(manta_value_get(x.config, "x"), NAN), 5.0, 0.0);
  }
  assert_ok(rc, &err);
  assert_true(copied > 0);
  assert_int_equal(asked, copied);
  manta_tune_close(t);
  drop_setting(&s);
  scratch_remove(dir);
}

// On two seats, looked at after two reports each, all members of a population come to run before
// one of them is far ahead.
static void a_population_takes_turns(void **state)
{
  char *dir = scratch_make();
  struct setting s;
  struct sim sim = make_sim(4);
  manta_tune_event e;
  manta_error err = MANTA_ERROR_INIT;
  int copied = 0, rc;
  make_setting(&s, dir, "pbt", 4);
  sim.fail = sim.forgets = 0;
  sim.length = 12;
  sim.seats = 2;
  s.c.samples = 6;
  manta_tune *t = open_experiment(&sim, &s);
  while ((rc = manta_tune_next(t, -1, &e, &err)) == 1) {
    copied += e.kind == MANTA_TUNE_COPIED;
    if (e.kind == MANTA_TUNE_ROW && t->trials.at[e.trial].iteration > 6)
      assert_int_equal(t->trials.count, 6);
  }
  assert_ok(rc, &err);
  assert_true(copied > 0 && sim.starts > 3 * 6);
  assert_all_ended(t, 6);
  manta_tune_close(t);
  drop_setting(&s);
  scratch_remove(dir);
}

static int suggest_three(void *ctx, uint64_t number, bool again, manta_value *config,
                         manta_error *err)
{
  if (number == 3)
    return 0;
  if (again)
    return 1;
  MANTA_TRY(manta_value_set_map(config));
  return manta_value_put_real(config, "x", (double)number) < 0 ? MANTA_ENOMEM : 1;
}

static manta_status count_ended(void *ctx, uint64_t number, const manta_value *row, bool failed,
                                manta_error *err)
{
  ++*(int *)ctx;
  return MANTA_OK;
}

static void a_searcher_of_the_callers_has_the_last_word(void **state)
{
  char *dir = scratch_make();
  struct setting s;
  struct sim sim = make_sim(3);
  int ended = 0;
  manta_searcher own = {.ctx = &ended, .suggest = suggest_three, .complete = count_ended};
  make_setting(&s, dir, "fifo", 3);
  s.c.own_searcher = &own;
  s.c.samples = 100;
  manta_tune *t = open_experiment(&sim, &s);
  assert_true(take(t, 100000));
  assert_int_equal(manta_tune_count(t), 3);
  assert_int_equal(ended, 3);
  manta_tune_close(t);
  drop_setting(&s);
  scratch_remove(dir);
}

static void metrics_of_maps_have_paths(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value row = {0};
  char names[64];
  const char *json = "{\"loss\": 1, \"a/b\": 2, \"eval\": {\"loss\": 3, \"top\": {\"5\": 4}}, "
                     "\"_own\": 5}";
  assert_ok(manta_value_from_json(&row, json, strlen(json), &err), &err);
  static const struct {
    const char *key;
    int64_t value;
  } there[] = {{"loss", 1}, {"a/b", 2}, {"eval/loss", 3}, {"eval/top/5", 4}, {"own", 5}};
  for (size_t i = 0; i < sizeof there / sizeof *there; i++)
    assert_int_equal(manta_value_as_int(manta__row_metric(&row, there[i].key), 0), there[i].value);
  static const char *const absent[] = {"eval/acc", "eval/", "/loss", "loss/loss", "eval/top/5/x"};
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
    assert_null(manta__row_metric(&row, absent[i]));
  manta__row_names(&row, names, sizeof names);
  assert_string_equal(names, "loss, a/b, eval/loss, eval/top/5");
  manta__row_names(&row, names, 12); // no room: fewer, and none cut
  assert_string_equal(names, "loss, a/b");
  manta_value_fini(&row);
}

int main(int argc, char **argv)
{
  manta_set_log(say_nothing, NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_hangs_and_nobody_is_forgotten),
      cmocka_unit_test(a_driver_may_be_gone_after_any_event),
      cmocka_unit_test(states_change_as_the_picture_says),
      cmocka_unit_test(all_paused_and_nobody_decides_is_an_error),
      cmocka_unit_test(other_resources_begin_a_trial_anew),
      cmocka_unit_test(resources_may_change_under_any_scheduler),
      cmocka_unit_test(the_caller_may_make_the_configs_of_copies),
      cmocka_unit_test(a_population_takes_turns),
      cmocka_unit_test(a_searcher_of_the_callers_has_the_last_word),
      cmocka_unit_test(metrics_of_maps_have_paths),
  };
  return cmocka_run_group_tests_name("experiment", tests, NULL, NULL);
}
