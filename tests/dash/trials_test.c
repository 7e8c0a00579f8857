/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/trials.h"

#include "base/pack.h"
#include "test.h"

#define NS 1000000000ll

static void feed(struct manta__dash_trials *t, enum manta__event kind, int trial, manta_value v)
{
  uint8_t bytes[2048];
  size_t n = manta__pack_size(&v);
  assert_true(n > 0 && n <= sizeof bytes);
  manta__pack_into(bytes, &v);
  struct manta__record h = {.kind = (uint32_t)kind,
                            .len = (uint32_t)n,
                            .id = {0x77, 0, trial, (uint64_t)t->records},
                            .wall_ns = 1000 * NS + t->records * NS};
  assert_int_equal(manta__dash_trials_take(t, &h, bytes), MANTA_OK);
}

static void begin(struct manta__dash_trials *t, bool maximize)
{
  feed(t, MANTA__EV_EXPERIMENT, -1,
       MANTA_MAP(MANTA_KV_STR("metric", "eval/acc"), MANTA_KV_BOOL("maximize", maximize)));
}

static void happen(struct manta__dash_trials *t, int trial, const char *what)
{
  feed(t, MANTA__EV_TRIAL, trial, MANTA_MAP(MANTA_KV_STR("what", what)));
}

static void row(struct manta__dash_trials *t, int trial, int64_t iteration, double value)
{
  manta_value inner = MANTA_MAP(MANTA_KV_REAL("loss", 1), MANTA_KV_REAL("acc", value));
  feed(t, MANTA__EV_ROW, trial,
       MANTA_MAP(MANTA_KV("eval", inner), MANTA_KV_INT("_training_iteration", iteration)));
}

static void end(struct manta__dash_trials *t, int trial, const char *state, const char *message)
{
  feed(t, MANTA__EV_TRIAL, trial,
       MANTA_MAP(MANTA_KV_STR("what", "ended"), MANTA_KV_STR("state", state),
                 MANTA_KV_STR("message", message)));
}

static void test_trials(void **state)
{
  struct manta__dash_trials t = {0};
  struct manta__extreme best;
  begin(&t, true);
  manta_value config = MANTA_MAP(MANTA_KV_REAL("lr", 0.1));
  feed(&t, MANTA__EV_TRIAL, 1, MANTA_MAP(MANTA_KV_STR("what", "new"), MANTA_KV("value", config)));
  assert_int_equal(t.count, 2);
  assert_string_equal(t.trial[1].state, "pending");
  happen(&t, 1, "began");
  row(&t, 1, 1, 0.5);
  row(&t, 1, 2, 0.8);
  row(&t, 1, 3, 0.7);
  assert_string_equal(t.trial[1].state, "running");
  assert_true(manta__dash_trial_best(&t, &t.trial[1], &best));
  assert_near(best.value, 0.8, 0);
  assert_int_equal(best.x, 2);
  assert_false(manta__dash_trial_best(&t, &t.trial[0], &best));
  uint64_t before = t.version;
  row(&t, 0, 1, 0.9);
  end(&t, 0, "stopped", "");
  assert_true(t.trial[0].version > before && t.trial[1].version <= before);
  assert_int_equal(t.steps, 3); // 0.5, 0.8, 0.9
  assert_int_equal(t.step[2].trial, 0);
  happen(&t, 1, "failed");
  assert_int_equal(t.trial[1].failures, 1);
  end(&t, 1, "failed", "it broke");
  assert_string_equal(t.trial[1].message, "it broke");
  assert_near(manta_value_as_real(manta_value_get(&t.trial[1].config, "lr"), 0), 0.1, 0);
  feed(&t, MANTA__EV_FINISH, -1, MANTA_MAP(MANTA_KV_STR("status", "OK")));
  assert_true(t.ended);
  begin(&t, true); // a driver goes on with it
  assert_false(t.ended);
  manta__dash_trials_fini(&t);
  manta__dash_trials_fini(&t);
}

static void test_the_least_and_copies(void **state)
{
  struct manta__dash_trials t = {0};
  struct manta__extreme best;
  begin(&t, false);
  happen(&t, 0, "began");
  row(&t, 0, 1, 3);
  row(&t, 0, 2, NAN);
  row(&t, 0, 3, 2);
  assert_true(manta__dash_trial_best(&t, &t.trial[0], &best));
  assert_near(best.value, 2, 0);
  manta_value config = MANTA_MAP(MANTA_KV_REAL("lr", 0.2));
  feed(&t, MANTA__EV_TRIAL, 3,
       MANTA_MAP(MANTA_KV_STR("what", "copied"), MANTA_KV_INT("from", 0),
                 MANTA_KV("value", config)));
  assert_int_equal(t.trial[3].from, 1);
  assert_near(manta_value_as_real(manta_value_get(&t.trial[3].config, "lr"), 0), 0.2, 0);
  feed(&t, MANTA__EV_TRIAL, 0,
       MANTA_MAP(MANTA_KV_STR("what", "began"), MANTA_KV_INT("iteration", 1)));
  assert_int_equal(t.trial[0].curve.count, 1); // it goes on from there
  manta__dash_trials_fini(&t);
}

static void test_nonsense_and_too_many(void **state)
{
  struct manta__dash_trials t = {0};
  struct manta__record h = {.kind = MANTA__EV_ROW, .len = 3};
  for (uint32_t kind = 0; kind < 20; kind++) {
    h.kind = kind;
    assert_int_equal(manta__dash_trials_take(&t, &h, (const uint8_t *)"\xdf\xff\xff"), MANTA_OK);
  }
  row(&t, -3, 1, 1);
  row(&t, INT32_MAX, 1, 1);
  assert_true(t.left_out);
  row(&t, MANTA__TRIALS - 1, 1, 1);
  assert_int_equal(t.count, MANTA__TRIALS);
  happen(&t, 5, "something new");
  assert_string_equal(t.trial[5].state, "pending");
  manta__dash_trials_fini(&t);
}

static void test_many_improvements(void **state)
{
  struct manta__dash_trials t = {0};
  begin(&t, true);
  for (int i = 1; i <= MANTA__TRIAL_STEPS + 50; i++)
    row(&t, 0, i, i);
  assert_int_equal(t.steps, MANTA__TRIAL_STEPS);
  assert_near(t.step[MANTA__TRIAL_STEPS - 1].value, MANTA__TRIAL_STEPS + 50, 0);
  assert_true(t.trial[0].curve.count <= MANTA__CURVE_FEWEST);
  manta__dash_trials_fini(&t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_trials),
      cmocka_unit_test(test_the_least_and_copies),
      cmocka_unit_test(test_nonsense_and_too_many),
      cmocka_unit_test(test_many_improvements),
  };
  return cmocka_run_group_tests_name("dash/trials", tests, NULL, NULL);
}
