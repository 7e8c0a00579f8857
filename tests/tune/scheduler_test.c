/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedulers: single decisions, and whole experiments with trials that end, fail and pause in any
 * order, in which nothing may hang and nobody may be forgotten.
 */
#include "tune/scheduler.h"

#include "tune/choice.h"
#include "tune/pb2.h"

#include "base/rng.h"
#include "test.h"

static const char *const names[] = {"fifo", "asha", "median", "hyperband", "pbt"};
#define NAMES (sizeof names / sizeof *names)

static struct manta__scheduler *make(const char *name, struct manta__schedule_config config)
{
  struct manta__scheduler *s = NULL;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__scheduler_create(&s, name, &config, &err), &err);
  return s;
}

static void begin(struct manta__scheduler *s, uint64_t trials)
{
  manta_error err = MANTA_ERROR_INIT;
  for (uint64_t i = 0; i < trials; i++)
    assert_ok(manta__scheduler_begin(s, i, &err), &err);
}

static struct manta__decision report(struct manta__scheduler *s, uint64_t trial, double time,
                                     double value)
{
  struct manta__decision d;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__scheduler_report(s, trial, time, value, &d, &err), &err);
  assert_int_equal(d.trial, trial);
  return d;
}

/* --- single decisions ------------------------------------------------------------------------- */

static void asha_stops_all_but_the_best_part(void **state)
{
  (void)state;
  struct manta__scheduler *s =
      make("asha", (struct manta__schedule_config){.max_time = 16, .grace = 1, .factor = 4});
  begin(s, 8);
  assert_int_equal(report(s, 0, 1, 5).verdict, MANTA__GO_ON); // nobody was there before
  assert_int_equal(report(s, 1, 1, 4).verdict, MANTA__GO_ON);
  assert_int_equal(report(s, 2, 1, 6).verdict, MANTA__STOP);
  assert_int_equal(report(s, 3, 1, 4.6).verdict, MANTA__STOP); // a quarter of 4, 5, 6 is 4.5
  assert_int_equal(report(s, 0, 2, 9).verdict, MANTA__GO_ON);  // between two rungs
  assert_int_equal(report(s, 0, 4, 9).verdict, MANTA__GO_ON);
  assert_int_equal(report(s, 1, 5, 9.5).verdict, MANTA__STOP); // the rung at 4, a bit late
  assert_int_equal(report(s, 4, 1, NAN).verdict, MANTA__STOP);
  assert_int_equal(report(s, 0, 16, 0).verdict, MANTA__STOP);
  manta__scheduler_destroy(s);
}

static void the_median_stops_what_is_worse_than_most(void **state)
{
  (void)state;
  struct manta__scheduler *s =
      make("median", (struct manta__schedule_config){.grace = 2, .least_trials = 3});
  begin(s, 5);
  for (uint64_t i = 0; i < 4; i++)
    for (int t = 1; t <= 3; t++)
      assert_int_equal(report(s, i, t, (double)i).verdict,
                       i == 3 && t >= 2 ? MANTA__STOP : MANTA__GO_ON);
  assert_int_equal(report(s, 4, 1, 100).verdict, MANTA__GO_ON); // in its grace period
  assert_int_equal(report(s, 4, 2, 1.4).verdict, MANTA__GO_ON); // the median is 1.5
  assert_int_equal(report(s, 4, 3, 100).verdict, MANTA__GO_ON); // its best counts
  manta__scheduler_destroy(s);
}

static void hyperband_pauses_until_all_are_there(void **state)
{
  (void)state;
  struct manta__scheduler *s =
      make("hyperband", (struct manta__schedule_config){.max_time = 9, .factor = 3});
  struct manta__decision d;
  begin(s, 9); // the first bracket: 9 trials, rungs at 1 and 3
  for (uint64_t i = 0; i < 9; i++) {
    assert_false(manta__scheduler_next(s, &d));
    assert_int_equal(report(s, i, 1, (double)((i * 4) % 9)).verdict, MANTA__PAUSE);
  }
  int go_on = 0, stop = 0;
  while (manta__scheduler_next(s, &d)) {
    bool best = (d.trial * 4) % 9 < 3;
    assert_int_equal(d.verdict, best ? MANTA__GO_ON : MANTA__STOP);
    go_on += best;
    stop += !best;
  }
  assert_true(go_on == 3 && stop == 6);
  manta__scheduler_end(s, 0); // one of the three fails
  assert_int_equal(report(s, 7, 3, 1).verdict, MANTA__PAUSE);
  assert_int_equal(report(s, 5, 2, 0).verdict, MANTA__GO_ON);
  assert_false(manta__scheduler_next(s, &d));
  assert_int_equal(report(s, 5, 3, 0).verdict, MANTA__PAUSE);
  assert_true(manta__scheduler_next(s, &d) && d.trial == 5 && d.verdict == MANTA__GO_ON);
  assert_true(manta__scheduler_next(s, &d) && d.trial == 7 && d.verdict == MANTA__STOP);
  assert_int_equal(report(s, 5, 9, 0).verdict, MANTA__STOP);
  manta__scheduler_destroy(s);
}

static void pbt_copies_the_best_that_has_a_checkpoint(void **state)
{
  (void)state;
  struct manta__scheduler *s = make("pbt", (struct manta__schedule_config){.interval = 5});
  begin(s, 4);
  manta__scheduler_saved(s, 1);
  assert_int_equal(report(s, 0, 5, 0).verdict, MANTA__GO_ON);
  assert_int_equal(report(s, 1, 5, 1).verdict, MANTA__GO_ON);
  assert_int_equal(report(s, 2, 5, 2).verdict, MANTA__GO_ON); // 0 is best, and has saved nothing
  assert_int_equal(report(s, 3, 4, 9).verdict, MANTA__GO_ON); // too early
  manta__scheduler_saved(s, 0);
  struct manta__decision d = report(s, 3, 6, 9);
  assert_true(d.verdict == MANTA__COPY && d.from == 0);
  assert_int_equal(report(s, 3, 7, 9).verdict, MANTA__GO_ON);
  manta__scheduler_end(s, 0);
  d = report(s, 3, 11, 9);
  assert_true(d.verdict == MANTA__COPY && d.from == 1);
  manta__scheduler_destroy(s);
}

static void pbt_lets_others_have_their_turn(void **state)
{
  (void)state;
  struct manta__scheduler *s =
      make("pbt", (struct manta__schedule_config){.interval = 2, .grace = 5});
  begin(s, 2);
  manta__scheduler_saved(s, 0);
  for (int t = 1; t <= 4; t++)
    for (uint64_t i = 0; i < 2; i++) {
      struct manta__decision d = report(s, i, t, (double)i);
      assert_true(d.verdict == MANTA__GO_ON && !d.yields); // they burn in
    }
  struct manta__decision d = report(s, 0, 5, 0);
  assert_true(d.verdict == MANTA__GO_ON && d.yields);
  d = report(s, 0, 6, 0);
  assert_true(d.verdict == MANTA__GO_ON && !d.yields);
  d = report(s, 1, 5, 1);
  assert_true(d.verdict == MANTA__COPY && d.from == 0 && !d.yields);
  manta__scheduler_destroy(s);
}

/* --- experiments ------------------------------------------------------------------------------ */

#define TRIALS 200
#define SLOTS  7

enum life { WAITS, RUNS, PAUSED, OVER };

struct experiment {
  struct manta__scheduler *s;
  struct manta__rng rng;
  enum life life[TRIALS];
  double time[TRIALS];
  bool saved[TRIALS];
  uint64_t begun;
  int running, stopped, copied, resumed;
};

static void end(struct experiment *x, uint64_t i)
{
  assert_true(x->life[i] == RUNS || x->life[i] == PAUSED);
  x->running -= x->life[i] == RUNS;
  x->life[i] = OVER;
  manta__scheduler_end(x->s, i);
}

static void follow(struct experiment *x, struct manta__decision d)
{
  if (d.verdict == MANTA__STOP) {
    x->stopped++;
    end(x, d.trial);
  } else if (d.verdict == MANTA__PAUSE) {
    assert_int_equal(x->life[d.trial], RUNS);
    x->life[d.trial] = PAUSED;
    x->running--;
  } else if (d.verdict == MANTA__COPY) {
    assert_true(d.from != d.trial && x->saved[d.from] && x->life[d.from] != OVER);
    x->copied++;
  }
}

static void resume_some(struct experiment *x)
{
  struct manta__decision d;
  while (manta__scheduler_next(x->s, &d)) {
    assert_int_equal(x->life[d.trial], PAUSED);
    if (d.verdict == MANTA__GO_ON) { // here it does not wait for a slot
      x->life[d.trial] = RUNS;
      x->running++;
      x->resumed++;
    } else {
      follow(x, d);
    }
  }
}

static void fill_slots(struct experiment *x)
{
  manta_error err = MANTA_ERROR_INIT;
  while (x->running < SLOTS && x->begun < TRIALS) {
    assert_ok(manta__scheduler_begin(x->s, x->begun, &err), &err);
    x->life[x->begun++] = RUNS;
    x->running++;
    if (x->begun == TRIALS)
      manta__scheduler_close(x->s);
  }
}

/* One that runs takes a step: it reports, saves, fails or finishes. */
static void step(struct experiment *x)
{
  uint64_t skip = manta__rng_below(&x->rng, (uint64_t)x->running), i = 0;
  while (x->life[i] != RUNS || skip-- > 0)
    i++;
  double chance = manta__rng_unit(&x->rng);
  if (chance < 0.01 || x->time[i] >= 27) {
    end(x, i);
    return;
  }
  if (chance < 0.5 && !x->saved[i]) {
    x->saved[i] = true;
    manta__scheduler_saved(x->s, i);
  }
  x->time[i] += 1;
  double value = chance > 0.98 ? NAN : (double)((i * 37) % 101) / x->time[i];
  follow(x, report(x->s, i, x->time[i], value));
}

static void run(const char *name, uint64_t seed, struct experiment *x)
{
  *x = (struct experiment){.rng = manta__rng_of(seed, 0)};
  x->s = make(name, (struct manta__schedule_config){
                        .max_time = 27, .factor = 3, .interval = 3, .seed = seed, .brackets = 2});
  for (int steps = 0;; steps++) {
    resume_some(x);
    fill_slots(x);
    resume_some(x);
    if (x->running == 0)
      break;
    assert_true(steps < 40 * TRIALS);
    step(x);
  }
  for (int i = 0; i < TRIALS; i++)
    assert_int_equal(x->life[i], OVER); // nobody waits for ever
  manta__scheduler_destroy(x->s);
}

static void nothing_hangs_and_nobody_is_forgotten(void **state)
{
  (void)state;
  for (size_t n = 0; n < NAMES; n++) {
    int stopped = 0, copied = 0, resumed = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
      struct experiment x;
      run(names[n], seed, &x);
      stopped += x.stopped;
      copied += x.copied;
      resumed += x.resumed;
    }
    assert_true((stopped > 0) == (strcmp(names[n], "fifo") != 0));
    assert_true((copied > 0) == (strcmp(names[n], "pbt") == 0));
    assert_true((resumed > 0) == (strcmp(names[n], "hyperband") == 0));
  }
}

static void the_same_calls_give_the_same_decisions(void **state)
{
  (void)state;
  for (size_t n = 0; n < NAMES; n++) {
    struct experiment a, b;
    run(names[n], 3, &a);
    run(names[n], 3, &b);
    assert_true(a.stopped == b.stopped && a.copied == b.copied && a.resumed == b.resumed);
    assert_memory_equal(a.time, b.time, sizeof a.time);
  }
}

/* --- exploring -------------------------------------------------------------------------------- */

static void exploring_stays_in_the_space(void **state)
{
  (void)state;
  const char *json = "{\"lr\":{\"$range\":{\"low\":1e-3,\"high\":1,\"log\":true}},"
                     "\"n\":{\"$range\":{\"low\":1,\"high\":3,\"int\":true}},"
                     "\"c\":{\"$choice\":[{\"m\":{\"$range\":{\"low\":0,\"high\":1}}},2,3]}}";
  manta_value spec = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct manta__space sp;
  assert_ok(manta_value_from_json(&spec, json, strlen(json), &err), &err);
  assert_ok(manta__space_init(&sp, &spec, &err), &err);
  double from[4] = {0.01, 2, 1, NAN}, p[4];
  int same = 0, factor = 0;
  for (uint64_t i = 0; i < 400; i++) {
    manta__explore(&sp, from, NULL, 0.25, 1, i, p);
    assert_true(p[0] >= 1e-3 && p[0] <= 1 && p[1] >= 1 && p[1] <= 3 && p[1] == round(p[1]));
    assert_true(p[2] == 0 ? p[3] >= 0 && p[3] <= 1 : isnan(p[3]));
    factor += fabs(p[0] - 0.012) < 1e-9 || fabs(p[0] - 0.008) < 1e-9;
    same += p[1] == 2;
  }
  assert_in_range(factor, 260, 340); // three quarters
  assert_in_range(same, 10, 70);     // a third of the quarter
  for (uint64_t i = 0; i < 100; i++) {
    manta__explore(&sp, from, (bool[]){true, false, true, true}, 0.25, 1, i, p);
    assert_true(p[0] == 0.01 && p[2] == 1 && isnan(p[3]));
    same += p[1] == 2;
  }
  assert_in_range(same, 10, 100); // that one may change
  manta__space_fini(&sp);
  manta_value_fini(&spec);
}

/* --- what is refused -------------------------------------------------------------------------- */

/* What gains most is at x = 0.3, whatever the others do. */
static void pb2_proposes_what_has_gained(void **state)
{
  (void)state;
  static const char text[] = "{\"x\": {\"$range\": {\"low\": 0, \"high\": 1}}, "
                             "\"o\": {\"$choice\": [1, 2, 3]}}";
  manta_value spec = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct manta__space sp;
  struct manta__pb2 p;
  double near = 0;
  assert_ok(manta_value_from_json(&spec, text, sizeof text - 1, &err), &err);
  assert_ok(manta__space_init(&sp, &spec, &err), &err);
  assert_ok(manta__pb2_init(&p, &sp, 1, &err), &err);
  for (uint64_t i = 0; i < 40; i++) {
    double point[2] = {(double)i / 39, (double)(i % 3)}, gain = exp(-20 * pow(point[0] - 0.3, 2));
    assert_ok(manta__pb2_observe(&p, i, point, 1, 5, &err), &err);
    assert_ok(manta__pb2_observe(&p, i, point, 2, 5 - gain, &err), &err);
  }
  assert_int_equal(p.count, 40);
  for (uint64_t turn = 0; turn < 20; turn++) {
    double point[2] = {0.9, 1}, again[2] = {0.9, 1};
    assert_ok(manta__pb2_propose(&p, 3, turn, point, &err), &err);
    assert_ok(manta__pb2_propose(&p, 3, turn, again, &err), &err);
    assert_near(point[0], again[0], 0);
    assert_near(point[1], 1, 0);
    near += fabs(point[0] - 0.3) / 20;
  }
  assert_true(near < 0.15);
  p.fixed = (bool[]){true, true};
  double kept[2] = {0.9, 1};
  assert_ok(manta__pb2_propose(&p, 3, 0, kept, &err), &err);
  assert_true(kept[0] == 0.9 && kept[1] == 1);
  manta__pb2_forget(&p, 0);
  assert_ok(manta__pb2_observe(&p, 0, (double[]){0, 0}, 9, 0, &err), &err);
  assert_int_equal(p.count, 40); // no gain: it came with another one's state
  manta__pb2_fini(&p);
  manta__space_fini(&sp);
  manta_value_fini(&spec);
}

static void make_choosers(struct manta__choosers *c, const char *options, manta_status expected,
                          manta_error *err)
{
  static const char space[] = "{\"deep\":{\"lr\":{\"$range\":{\"low\":0,\"high\":1}}},"
                              "\"n\":{\"$range\":{\"low\":0,\"high\":1}}}";
  manta_value spec = {0}, how = {0};
  manta_tune_config cfg = MANTA_TUNE_CONFIG_INIT;
  assert_ok(manta_value_from_json(&spec, space, sizeof space - 1, err), err);
  assert_ok(manta_value_from_json(&how, options, strlen(options), err), err);
  cfg.space = &spec;
  cfg.metric = "loss";
  cfg.scheduler = "pb2";
  cfg.scheduler_options = &how;
  assert_status(manta__choice_init(c, &cfg, err), expected);
  manta_value_fini(&spec);
  manta_value_fini(&how);
}

static void copies_change_only_what_is_named(void **state)
{
  (void)state;
  struct manta__choosers c;
  manta_error err = MANTA_ERROR_INIT;
  make_choosers(&c, "{\"only\":[\"deep/lr\"]}", MANTA_OK, &err);
  double from[2] = {0.5, 0.5}, *to, changed = 0;
  for (uint64_t turn = 0; turn < 10; turn++) {
    manta_value config = {0};
    assert_ok(manta__choice_explore(&c, 0, from, turn, &to, &config, &err), &err);
    assert_true(to[1] == 0.5);
    changed += fabs(to[0] - 0.5);
    manta__free(to);
    manta_value_fini(&config);
  }
  assert_true(changed > 0.1);
  manta__choice_fini(&c);
  make_choosers(&c, "{\"only\":[\"lr\"]}", MANTA_EINVAL, &err);
  assert_non_null(strstr(err.message, "\"lr\", which the space has no domain for"));
  manta__choice_fini(&c);
  make_choosers(&c, "{\"only\":\"n\"}", MANTA_ETYPE, &err);
  manta__choice_fini(&c);
}

static void what_makes_no_sense_is_refused(void **state)
{
  (void)state;
  struct manta__scheduler *s = NULL;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__schedule_config bad[] = {{.max_time = -1},  {.max_time = 2, .grace = 3},
                                         {.factor = 1},     {.quantile = 0.6},
                                         {.resample = 1.5}, {.grace = NAN}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    assert_status(manta__scheduler_create(&s, "asha", &bad[i], &err), MANTA_EINVAL);
  struct manta__schedule_config good = {0};
  assert_status(manta__scheduler_create(&s, "ashe", &good, &err), MANTA_EINVAL);
  assert_non_null(strstr(err.message, "there are fifo, asha"));
  assert_null(s);
}

static void memory_may_run_out(void **state)
{
  (void)state;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__schedule_config config = {.max_time = 9, .factor = 3};
  for (size_t k = 0; k < NAMES; k++) {
    manta_status st = MANTA_ENOMEM;
    for (long n = 0; st == MANTA_ENOMEM; n++) {
      struct manta__scheduler *s = NULL;
      struct manta__decision d;
      manta__alloc_fail_after(n);
      st = manta__scheduler_create(&s, names[k], &config, &err);
      for (uint64_t i = 0; st >= 0 && i < 20; i++) {
        st = manta__scheduler_begin(s, i, &err);
        if (st >= 0)
          st = manta__scheduler_report(s, i, 1, (double)i, &d, &err);
      }
      manta__alloc_fail_after(-1);
      manta__scheduler_destroy(s);
    }
    assert_ok(st, &err);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(asha_stops_all_but_the_best_part),
      cmocka_unit_test(the_median_stops_what_is_worse_than_most),
      cmocka_unit_test(hyperband_pauses_until_all_are_there),
      cmocka_unit_test(pbt_copies_the_best_that_has_a_checkpoint),
      cmocka_unit_test(pbt_lets_others_have_their_turn),
      cmocka_unit_test(nothing_hangs_and_nobody_is_forgotten),
      cmocka_unit_test(the_same_calls_give_the_same_decisions),
      cmocka_unit_test(exploring_stays_in_the_space),
      cmocka_unit_test(pb2_proposes_what_has_gained),
      cmocka_unit_test(copies_change_only_what_is_named),
      cmocka_unit_test(what_makes_no_sense_is_refused),
      cmocka_unit_test(memory_may_run_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
