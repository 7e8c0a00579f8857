/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run has done so far: metrics and their best, restarts and what they cost, goals by name.
 */
#include "base/alloc.h"
#include "base/pack.h"
#include "event/bed.h"
#include "view/stats.h"
#include "view/text.h"

#define S 1000000000ll

static void row(struct manta__stats *t, uint32_t attempt, int rank, int64_t at, double s,
                double loss)
{
  manta_value nested = MANTA_MAP(MANTA_KV_REAL("accuracy", 1 - loss));
  manta_value v = MANTA_MAP(MANTA_KV_REAL("loss", loss), MANTA_KV_INT("_training_iteration", at),
                            MANTA_KV("val", nested), MANTA_KV_INT("lr", 1));
  uint8_t bytes[256];
  assert_in_range(manta__pack_size(&v), 1, sizeof bytes);
  size_t n = (size_t)(manta__pack_into(bytes, &v) - bytes);
  struct manta__ident id = ident(attempt, rank, (uint64_t)at);
  manta__stats_row(t, &id, (int64_t)(s * S), bytes, n);
}

static void event(struct manta__stats *t, uint32_t attempt, enum manta__event kind, double s,
                  manta_value v)
{
  struct manta__ident id = ident(attempt, -1, 1);
  manta__stats_event(t, kind, &id, (int64_t)(s * S), &v);
}

static void attempt(struct manta__stats *t, uint32_t k, double s, int world)
{
  event(t, k, MANTA__EV_ATTEMPT, s, MANTA_MAP(MANTA_KV_INT("world", world)));
}

static const struct manta__metric *metric(const struct manta__stats *t, const char *name)
{
  for (size_t i = 0; i < t->metric_count; i++)
    if (!strcmp(t->metrics[i].name, name))
      return &t->metrics[i];
  fail_msg("there is no %s", name);
  return NULL;
}

static void the_best_is_rank_0s(void **state)
{
  struct manta__stats t;
  manta__stats_init(&t);
  attempt(&t, 0, 1, 2);
  for (int i = 1; i <= 4; i++) {
    row(&t, 0, 0, i, i, i == 2 ? 0.1 : 0.5);
    row(&t, 0, 1, i, i, 0.01);
  }
  assert_int_equal(t.metric_count, 3);
  assert_int_equal(t.rows, 8);
  const struct manta__metric *loss = metric(&t, "loss"), *acc = metric(&t, "val/accuracy");
  assert_near(manta__metric_best(loss)->value, 0.1, 0);
  assert_int_equal(manta__metric_best(loss)->at, 2);
  assert_near(manta__metric_best(acc)->value, 0.9, 1e-12);
  assert_null(manta__metric_best(metric(&t, "lr")));
  assert_near(loss->last, 0.5, 0);
  assert_near(loss->of_rank[1], 0.01, 0);
  assert_ptr_equal(manta__stats_main(&t), loss);
  manta__stats_fini(&t);
  manta__stats_fini(&t);
}

static void the_score_comes_first(void **state)
{
  struct manta__stats t;
  manta__stats_init(&t);
  event(&t, 0, MANTA__EV_RUN, 1,
        MANTA_MAP(MANTA_KV_STR("score", "lr"), MANTA_KV_BOOL("score_min", true)));
  attempt(&t, 0, 1, 1);
  row(&t, 0, 0, 1, 2, 0.5);
  assert_string_equal(manta__stats_main(&t)->name, "lr");
  assert_near(manta__metric_best(manta__stats_main(&t))->value, 1, 0);
  manta__stats_fini(&t);
}

// Iterations 1 to 6, a death at 7 s, back at 4: 5 and 6 are done again and are there at 11 s.
static void a_restart_costs_time_and_iterations(void **state)
{
  struct manta__stats t;
  manta__stats_init(&t);
  attempt(&t, 0, 0.5, 2);
  for (int i = 1; i <= 6; i++)
    row(&t, 0, 0, i, i, 1.0 / i);
  event(&t, 0, MANTA__EV_LOST, 7,
        MANTA_MAP(MANTA_KV_INT("rank", 1), MANTA_KV_STR("cause", "killed by signal 9")));
  event(&t, 1, MANTA__EV_REWIND, 8, MANTA_MAP(MANTA_KV_INT("to", 4)));
  assert_near(manta__metric_best(metric(&t, "loss"))->value, 0.25, 0);
  attempt(&t, 1, 8, 1);
  row(&t, 0, 1, 6, 8.5, 0.0001); // of the attempt before: void
  row(&t, 1, 0, 5, 10, 2);
  assert_true(t.behind);
  row(&t, 1, 0, 6, 11, 2);
  assert_false(t.behind);
  assert_int_equal(t.cost_ns, 4 * S);
  assert_int_equal(t.repeated, 2);
  assert_int_equal(t.restarts, 1);
  assert_int_equal(t.world, 1);
  assert_int_equal(t.stop_count, 1);
  assert_int_equal(t.stops[0].rank, 1);
  assert_int_equal(t.stops[0].iteration, 6);
  assert_near(manta__metric_best(metric(&t, "loss"))->value, 0.25, 0);
  manta__stats_fini(&t);
}

static void peaks_are_bounded(void **state)
{
  struct manta__stats t;
  manta__stats_init(&t);
  attempt(&t, 0, 0, 1);
  for (int i = 1; i <= 10000; i++)
    row(&t, 0, 0, i, i, 1.0 / i);
  const struct manta__metric *m = metric(&t, "loss");
  assert_true(m->peak_count <= MANTA__PEAKS_MAX);
  assert_int_equal(manta__metric_best(m)->at, 10000);
  event(&t, 1, MANTA__EV_REWIND, 10001, MANTA_MAP(MANTA_KV_INT("to", 5000)));
  int64_t at = manta__metric_best(m)->at;
  assert_true(at <= 5000 && at > 4000);
  manta__stats_fini(&t);
}

static void the_rate_is_the_newest(void **state)
{
  struct manta__stats t;
  manta__stats_init(&t);
  attempt(&t, 0, 0, 1);
  for (int i = 1; i <= 200; i++)
    row(&t, 0, 0, i, i < 50 ? i : 50 + (i - 50) * 0.1, 1);
  assert_near(manta__stats_rate(&t, t.now_ns), 10, 0.5);
  assert_true(manta__stats_rate(&t, t.now_ns + 100 * S) < 1);
  assert_near(manta__stats_mean_rate(&t), 200 / 64.0, 1e-9);
  manta__stats_fini(&t);
}

static void a_log_is_read(void **state)
{
  struct bed *b = *state;
  struct manta__stats t = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta__stats_read(&t, b->dir, NULL), MANTA_ENOENT);
  manta__log_writer *w = bed_writer(b, true);
  bed_add(w, MANTA__EV_ATTEMPT, ident(0, -1, 2), MANTA_MAP(MANTA_KV_INT("world", 2)));
  for (int i = 1; i <= 10; i++)
    bed_row(w, 0, 0, i);
  bed_add(w, MANTA__EV_CKPT, ident(0, 0, 7),
          MANTA_MAP(MANTA_KV_INT("iteration", 7), MANTA_KV_INT("bytes", 99)));
  manta_value start = MANTA_MAP(MANTA_KV_REAL("first_row_s", 0.5));
  bed_add(w, MANTA__EV_FINISH, ident(0, -1, 9),
          MANTA_MAP(MANTA_KV_STR("status", "OK"), MANTA_KV("start", start)));
  manta__log_writer_close(w);
  assert_ok(manta__stats_read(&t, b->dir, &err), &err);
  assert_int_equal(t.iteration, 10);
  assert_int_equal(t.checkpoints, 1);
  assert_int_equal(t.ckpt_bytes, 99);
  assert_true(t.over && !t.failed);
  assert_near(t.first_row_s, 0.5, 0);
  assert_near(manta__metric_best(metric(&t, "loss"))->value, 0.1, 0);
  manta__stats_fini(&t);
}

static void goals_by_name(void **state)
{
  static const char *const least[] = {"loss", "val/loss", "Train_Loss", "rmse", "reward_loss"};
  static const char *const most[] = {"accuracy", "val acc", "F1", "top1_acc", "eval/mean_reward"};
  static const char *const none[] = {"lr", "epoch", "glossary", "count", "", "/"};
  for (size_t i = 0; i < 5; i++)
    assert_int_equal(manta__goal_of(least[i]), MANTA__GOAL_MIN);
  for (size_t i = 0; i < 5; i++)
    assert_int_equal(manta__goal_of(most[i]), MANTA__GOAL_MAX);
  for (size_t i = 0; i < 6; i++)
    assert_int_equal(manta__goal_of(none[i]), MANTA__GOAL_NONE);
}

static void numbers_and_rates(void **state)
{
  char b[MANTA__TEXT];
  assert_string_equal(manta__text_number(b, 0.123456789), "0.12346");
  assert_string_equal(manta__text_number(b, 1200), "1200");
  assert_string_equal(manta__text_number(b, 123456.7), "123457");
  assert_string_equal(manta__text_number(b, 3.14159e-7), "3.14e-07");
  assert_string_equal(manta__text_number(b, 0), "0");
  assert_string_equal(manta__text_number(b, NAN), "nan");
  assert_string_equal(manta__text_rate(b, 12345), "12k it/s");
  assert_string_equal(manta__text_rate(b, 3.14), "3.1 it/s");
  assert_string_equal(manta__text_rate(b, 0.25), "4.0 s/it");
  assert_string_equal(manta__text_rate(b, 0), "- it/s");
}

static void metrics_survive_oom(void **state)
{
  for (long limit = 0;; limit++) {
    struct manta__stats t;
    manta__stats_init(&t);
    manta__alloc_fail_after(limit);
    row(&t, 0, 0, 1, 1, 0.5);
    long made = manta__alloc_fail_after(-1);
    manta__stats_fini(&t);
    if (made <= limit)
      return;
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_best_is_rank_0s),
      cmocka_unit_test(the_score_comes_first),
      cmocka_unit_test(a_restart_costs_time_and_iterations),
      cmocka_unit_test(peaks_are_bounded),
      cmocka_unit_test(the_rate_is_the_newest),
      cmocka_unit_test_setup_teardown(a_log_is_read, bed_setup, bed_teardown),
      cmocka_unit_test(goals_by_name),
      cmocka_unit_test(numbers_and_rates),
      cmocka_unit_test(metrics_survive_oom),
  };
  return cmocka_run_group_tests_name("view_stats", tests, NULL, NULL);
}
