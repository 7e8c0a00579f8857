/* SPDX-License-Identifier: Apache-2.0
 *
 * What people read while a run goes on: a block, a line, HTML, and the summary.
 */
#include "base/pack.h"
#include "event/bed.h"
#include "view/progress.h"

#define S 1000000000ll

static manta__buf out;

static const char *text(void)
{
  manta__buf_terminate(&out);
  return (const char *)out.data;
}

static void row(struct manta__stats *s, int rank, int64_t at, double loss)
{
  manta_value v = MANTA_MAP(MANTA_KV_REAL("loss", loss), MANTA_KV_INT("_training_iteration", at),
                            MANTA_KV_INT("a<b>\033[2J", at));
  uint8_t bytes[256];
  size_t n = (size_t)(manta__pack_into(bytes, &v) - bytes);
  struct manta__ident id = ident(0, rank, (uint64_t)at);
  manta__stats_row(s, &id, at * S, bytes, n);
}

static void event(struct manta__stats *s, enum manta__event kind, int64_t at, manta_value v)
{
  struct manta__ident id = ident(0, -1, 1);
  manta__stats_event(s, kind, &id, at * S, &v);
}

static struct manta__stats two_workers(void)
{
  struct manta__stats s;
  manta__stats_init(&s);
  manta__buf_init(&out, 1u << 20);
  event(&s, MANTA__EV_ATTEMPT, 1, MANTA_MAP(MANTA_KV_INT("world", 2)));
  for (int i = 1; i <= 10; i++) {
    row(&s, 0, i, 1.0 / i);
    row(&s, 1, i, 2.0 / i);
  }
  event(&s, MANTA__EV_CKPT, 9,
        MANTA_MAP(MANTA_KV_INT("iteration", 8), MANTA_KV_INT("bytes", 2000000)));
  return s;
}

static void end(struct manta__stats *s)
{
  manta__stats_fini(s);
  manta__buf_fini(&out);
}

static void a_narrow_block_has_the_iteration(void **state)
{
  struct manta__stats s = two_workers();
  struct manta__look look = {
      .name = "a_train_0001_2026-11-17_10-00-00", .verbose = 1, .columns = 39, .now_ns = 10 * S};
  manta__progress_block(&out, &s, &look);
  const char *found = strstr(text(), "iteration 10,");
  assert_true(found && found - text() <= 39 - 12);
  look.columns = 100;
  out.len = 0;
  manta__progress_block(&out, &s, &look);
  assert_non_null(strstr(text(), look.name));
  end(&s);
}

static void a_block_has_all_of_it(void **state)
{
  struct manta__stats s = two_workers();
  struct manta__look look = {.name = "r_0001", .verbose = 1, .now_ns = 10 * S};
  manta__progress_block(&out, &s, &look);
  assert_string_equal(text(), "r_0001 running 9.0s: iteration 10, 1.0 it/s, 2 workers\n"
                              "  loss              0.1  best 0.1 at 10  mean 0.15, 0.1 to 0.2\n"
                              "  a<b>?[2J           10\n"
                              "  checkpoint iteration 8, 2.0 MB, 1.0s ago (1 written)");
  end(&s);
}

static void each_worker_is_shown_if_asked(void **state)
{
  struct manta__stats s = two_workers();
  struct manta__look look = {
      .name = "r", .verbose = 2, .colours = true, .rows = 3, .now_ns = 10 * S};
  manta__progress_block(&out, &s, &look);
  assert_non_null(strstr(text(), "best 0.1 at 10  ranks 0.1 0.2"));
  assert_non_null(strstr(text(), "\033[1mr\033[0m \033[32mrunning\033[0m"));
  assert_null(strstr(text(), "a<b>")); // three rows: head, one metric, the checkpoint
  end(&s);
}

static void a_line_is_one(void **state)
{
  struct manta__stats s = two_workers();
  struct manta__look look = {.name = "r", .verbose = 1, .now_ns = 10 * S};
  event(&s, MANTA__EV_LOST, 10, MANTA_MAP(MANTA_KV_INT("rank", 1)));
  manta__progress_line(&out, &s, &look);
  assert_string_equal(text(), "r: iteration 10, 9.0s, 1.0 it/s, loss 0.1 (best 0.1), a<b>?[2J 10, "
                              "2 workers, checkpoint 8, recovering");
  end(&s);
}

static void html_is_escaped(void **state)
{
  struct manta__stats s = two_workers();
  struct manta__look look = {.name = "<r>", .verbose = 1, .now_ns = 10 * S};
  manta__progress_html(&out, &s, &look);
  assert_non_null(strstr(text(), "<b>&lt;r&gt;</b> running"));
  assert_non_null(strstr(text(), "a&lt;b&gt;?[2J"));
  assert_null(strchr(text(), '\033'));
  end(&s);
}

static void a_summary_says_what_restarts_cost(void **state)
{
  struct manta__stats s = two_workers();
  struct manta__look look = {.name = "r", .verbose = 2, .now_ns = 20 * S};
  manta_value start = MANTA_MAP(MANTA_KV_REAL("formed_s", 0.5), MANTA_KV_REAL("first_row_s", 1.25));
  s.restarts = 1;
  s.repeated = 3;
  s.cost_ns = 2 * S;
  event(&s, MANTA__EV_FINISH, 12,
        MANTA_MAP(MANTA_KV_STR("status", "OK"), MANTA_KV("start", start)));
  manta__progress_summary(&out, &s, &look);
  assert_non_null(strstr(text(), "r finished 11s: iteration 10, "));
  assert_non_null(strstr(text(), "\nrestarts: 1, 2.0s lost, 3 iterations done twice\n"));
  assert_non_null(strstr(text(), "\nstart: workers after 500 ms, first row after 1250 ms\n"));
  end(&s);
}

static void before_the_first_row(void **state)
{
  struct manta__stats s;
  struct manta__look look = {.name = "r", .verbose = 1, .now_ns = S};
  manta__stats_init(&s);
  manta__buf_init(&out, 1u << 20);
  event(&s, MANTA__EV_RUN, 1, MANTA_MAP(MANTA_KV_STR("name", "x")));
  manta__progress_block(&out, &s, &look);
  assert_string_equal(text(), "r starting 0.0s: iteration 0, - it/s, 0 workers");
  end(&s);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_narrow_block_has_the_iteration),
      cmocka_unit_test(a_block_has_all_of_it),
      cmocka_unit_test(each_worker_is_shown_if_asked),
      cmocka_unit_test(a_line_is_one),
      cmocka_unit_test(html_is_escaped),
      cmocka_unit_test(a_summary_says_what_restarts_cost),
      cmocka_unit_test(before_the_first_row),
  };
  return cmocka_run_group_tests_name("view_progress", tests, NULL, NULL);
}
