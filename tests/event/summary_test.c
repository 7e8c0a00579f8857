/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run's log says: rewinds applied, rows counted once, the end told from the middle.
 */
#include "bed.h"
#include "event/rundir.h"

static struct manta__run_summary sum(struct bed *b)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__run_summary s = {0};
  assert_ok(manta__run_summary_read(&s, b->dir, NULL, &err), &err);
  return s;
}

static void begin(manta__log_writer *w)
{
  bed_add(w, MANTA__EV_RUN, ident(0, -1, 1),
          MANTA_MAP(MANTA_KV_STR("name", "mnist"), MANTA_KV_INT("session", 5)));
}

static void attempt(manta__log_writer *w, uint32_t k, int world)
{
  bed_add(w, MANTA__EV_ATTEMPT, ident(k, -1, 2), MANTA_MAP(MANTA_KV_INT("world", world)));
}

static void rewind_to(manta__log_writer *w, uint32_t k, int64_t to)
{
  bed_add(w, MANTA__EV_REWIND, ident(k, -1, 3), MANTA_MAP(MANTA_KV_INT("to", to)));
}

static void rows(manta__log_writer *w, uint32_t k, int world, int from, int to)
{
  for (int i = from; i <= to; i++)
    for (int r = 0; r < world; r++)
      bed_row(w, k, r, i);
}

static void finish(manta__log_writer *w, uint32_t k, const char *status)
{
  bed_add(w, MANTA__EV_FINISH, ident(k, -1, 9), MANTA_MAP(MANTA_KV_STR("status", status)));
}

static void a_run_that_went_well(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  begin(w);
  attempt(w, 0, 4);
  rows(w, 0, 4, 1, 10);
  bed_add(w, MANTA__EV_CKPT, ident(0, 0, 7), MANTA_MAP(MANTA_KV_INT("iteration", 7)));
  bed_add(w, MANTA__EV_CKPT, ident(0, 0, 5), MANTA_MAP(MANTA_KV_INT("iteration", 9)));
  finish(w, 0, "OK");
  manta__log_writer_close(w);
  struct manta__run_summary s = sum(b);
  assert_string_equal(s.path, b->path);
  assert_int_equal(s.id, 0x1234);
  assert_int_equal(s.state, MANTA__RUN_DONE);
  assert_int_equal(s.rows, 40);
  assert_int_equal(s.iteration, 10);
  assert_int_equal(s.world, 4);
  assert_int_equal(s.attempts, 1);
  assert_int_equal(s.lost, 0);
  assert_near(manta_value_as_real(manta_value_get(&s.last, "loss"), 0), 0.1, 0);
  assert_string_equal(manta_value_as_string(manta_value_get(&s.start, "name"), ""), "mnist");
  assert_int_equal(manta_value_as_int(manta_value_get(&s.ckpt, "iteration"), 0), 9);
  assert_true(s.begin_ns > 0 && s.end_ns >= s.begin_ns);
  manta__run_summary_fini(&s);
  manta__run_summary_fini(&s);
}

static void an_empty_log_and_none(void **state)
{
  struct bed *b = *state;
  struct manta__run_summary s = {0};
  assert_status(manta__run_summary_read(&s, b->dir, NULL, NULL), MANTA_ENOENT);
  manta__log_writer_close(bed_writer(b, true));
  s = sum(b);
  assert_int_equal(s.state, MANTA__RUN_EMPTY);
  assert_int_equal(s.last.type, MANTA_NIL);
  manta__run_summary_fini(&s);
}

static void a_rewind_voids_later_rows(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  begin(w);
  attempt(w, 0, 4);
  rows(w, 0, 4, 1, 10);
  bed_add(w, MANTA__EV_LOST, ident(0, 3, 0), MANTA_MAP(MANTA_KV_INT("rank", 3)));
  attempt(w, 1, 2);
  rewind_to(w, 1, 6);
  bed_flush(w);
  struct manta__run_summary s = sum(b); // nothing new yet: row 6 of the first attempt is the newest
  assert_int_equal(s.rows, 24);
  assert_int_equal(s.iteration, 6);
  assert_near(manta_value_as_real(manta_value_get(&s.last, "loss"), 0), 1.0 / 6, 0);
  assert_int_equal(s.state, MANTA__RUN_GOING);
  manta__run_summary_fini(&s);
  rows(w, 1, 2, 7, 8);
  manta__log_writer_close(w);
  s = sum(b);
  assert_int_equal(s.rows, 24 + 4);
  assert_int_equal(s.iteration, 8);
  assert_int_equal(s.attempts, 2);
  assert_int_equal(s.world, 2);
  assert_int_equal(s.lost, 1);
  manta__run_summary_fini(&s);
}

// The naive truth: every row is kept, and voided one by one.
static int64_t naive_rows(const int (*log)[3], int n)
{
  int64_t count = 0;
  for (int i = 0; i < n; i++) {
    bool is_void = log[i][0] < 0;
    for (int j = 0; j < n && !is_void; j++)
      is_void = log[j][0] < 0 && log[j][1] > log[i][1] && log[i][2] > log[j][2];
    count += !is_void;
  }
  return count;
}

static void many_rewinds_agree_with_the_naive_count(void **state)
{
  struct bed *b = *state;
  unsigned seed = 1;
  for (int round = 0; round < 200; round++) {
    manta__log_writer *w = bed_writer(b, true);
    begin(w);
    static int log[400][3]; // -1 for a rewind, attempt, iteration
    int n = 0, at = 0;
    uint64_t seq = 0;
    for (int k = 0; k < 12; k++) {
      for (int i = rand_r(&seed) % 20; i > 0; i--) {
        log[n][0] = 0, log[n][1] = k, log[n++][2] = ++at;
        bed_add(w, MANTA__EV_ROW, ident((uint32_t)k, 1, ++seq),
                MANTA_MAP(MANTA_KV_INT("_training_iteration", at)));
      }
      at = at ? rand_r(&seed) % (at + 1) : 0;
      // A rewind of an attempt out of order, now and then: the rule holds in any order.
      int of = rand_r(&seed) % 5 ? k + 1 : rand_r(&seed) % 12;
      log[n][0] = -1, log[n][1] = of, log[n++][2] = at;
      rewind_to(w, (uint32_t)of, at);
    }
    manta__log_writer_close(w);
    struct manta__run_summary s = sum(b);
    assert_int_equal(s.rows, naive_rows(log, n));
    manta__run_summary_fini(&s);
    assert_int_equal(unlinkat(b->dir, "run.log", 0), 0);
  }
}

static void rows_salvaged_twice_count_once(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  begin(w);
  rows(w, 0, 3, 1, 10);
  rows(w, 0, 3, 6, 12); // what was found in memory after the driver died
  rows(w, 1, 1, 13, 14);
  rows(w, 0, 1, 1, 3); // of an attempt that rank 0 has left behind
  bed_row(w, 1, MANTA_MAX_RANKS, 1);
  bed_row(w, 1, -1, 1);
  manta__log_writer_close(w);
  struct manta__run_summary s = sum(b);
  assert_int_equal(s.rows, 3 * 12 + 2);
  assert_int_equal(s.iteration, 14);
  manta__run_summary_fini(&s);
}

static void a_finish_is_one_only_at_the_end(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  begin(w);
  attempt(w, 0, 1);
  finish(w, 0, "EUSER");
  bed_flush(w);
  struct manta__run_summary s = sum(b);
  assert_int_equal(s.state, MANTA__RUN_FAILED);
  assert_int_equal(s.finish.type, MANTA_MAP);
  manta__run_summary_fini(&s);
  attempt(w, 1, 1); // resumed
  manta__log_writer_close(w);
  s = sum(b);
  assert_int_equal(s.state, MANTA__RUN_GOING);
  assert_int_equal(s.finish.type, MANTA_NIL);
  manta__run_summary_fini(&s);
}

static void a_torn_tail_is_counted(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  begin(w);
  rows(w, 0, 1, 1, 5);
  rewind_to(w, 1, 2);
  manta__log_writer_close(w);
  int fd = openat(b->dir, "run.log", O_WRONLY | O_APPEND | O_CLOEXEC);
  assert_int_equal(write(fd, "garbage", 7), 7);
  close(fd);
  struct manta__run_summary s = sum(b);
  assert_int_equal(s.torn, 7);
  assert_int_equal(s.rows, 2);
  manta__run_summary_fini(&s);
}

static void any_oom_is_survived(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = bed_writer(b, true);
  begin(w);
  attempt(w, 0, 1);
  rows(w, 0, 1, 1, 3);
  bed_add(w, MANTA__EV_CKPT, ident(0, 0, 7), MANTA_MAP(MANTA_KV_STR("dir", "000001")));
  attempt(w, 1, 1);
  rewind_to(w, 1, 2);
  finish(w, 1, "OK");
  manta__log_writer_close(w);
  struct manta__run_summary s = {0};
  FOR_EACH_OOM(manta__run_summary_read(&s, b->dir, NULL, NULL), manta__run_summary_fini(&s));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(a_run_that_went_well),           TEST(an_empty_log_and_none),
      TEST(a_rewind_voids_later_rows),      TEST(many_rewinds_agree_with_the_naive_count),
      TEST(rows_salvaged_twice_count_once), TEST(a_finish_is_one_only_at_the_end),
      TEST(a_torn_tail_is_counted),         TEST(any_oom_is_survived),
  };
  return cmocka_run_group_tests_name("event_summary", tests, NULL, NULL);
}
