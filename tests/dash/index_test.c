/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/index.h"

#include "base/pack.h"
#include "dash/best.h"
#include "test.h"

#define NS 1000000000ll

// The next record of a log that is never written. Time runs a second per record.
static manta_status feed(struct manta__index *x, enum manta__event kind, uint32_t attempt, int rank,
                         uint64_t seq, manta_value v)
{
  uint8_t bytes[2048];
  size_t n = manta__pack_size(&v);
  assert_true(n > 0 && n <= sizeof bytes);
  manta__pack_into(bytes, &v);
  struct manta__record h = {.kind = (uint32_t)kind,
                            .len = (uint32_t)n,
                            .id = {0x77, attempt, rank, seq},
                            .wall_ns = 1000 * NS + x->records * NS};
  return manta__index_take(x, &h, bytes);
}

static void row(struct manta__index *x, uint32_t attempt, int rank, int64_t iteration, double loss)
{
  assert_int_equal(
      feed(x, MANTA__EV_ROW, attempt, rank, (uint64_t)iteration,
           MANTA_MAP(MANTA_KV_REAL("loss", loss), MANTA_KV_REAL("acc", 1 - loss),
                     MANTA_KV_INT("_timestamp", 5), MANTA_KV_REAL("_time_this_iter_s", 0.25),
                     MANTA_KV_INT("_training_iteration", iteration))),
      MANTA_OK);
}

static void begin(struct manta__index *x, uint32_t attempt, int world, int64_t from)
{
  feed(x, MANTA__EV_ATTEMPT, attempt, -1, 1,
       MANTA_MAP(MANTA_KV_INT("world", world), MANTA_KV_INT("from", from)));
}

static void test_rows_become_series(void **state)
{
  struct manta__index x = {0};
  feed(&x, MANTA__EV_RUN, 0, -1, 1,
       MANTA_MAP(MANTA_KV_STR("name", "digits"), MANTA_KV_STR("score", "")));
  begin(&x, 0, 2, 0);
  for (int64_t i = 1; i <= 10; i++)
    for (int rank = 0; rank < 2; rank++)
      row(&x, 0, rank, i, 1.0 / (double)i + rank);
  assert_int_equal(x.series_count, 6); // loss, acc and the step time of two ranks
  assert_int_equal(x.rows, 20);
  const struct manta__curve *s = manta__index_find(&x, "loss", 1);
  assert_non_null(s);
  assert_int_equal(s->count, 10);
  assert_near(s->last, 1.1, 1e-12);
  assert_null(manta__index_find(&x, "loss", 2));
  assert_null(manta__index_find(&x, "_timestamp", 0));
  assert_int_equal(x.rank[1].iteration, 10);
  assert_near(manta__rank_step(&x.rank[0]), 0.25, 0);
  struct manta__best b = manta__best_of(&x);
  assert_string_equal(b.series->name, "loss");
  assert_true(b.lowest);
  assert_near(b.at.value, 0.1, 1e-12);
  manta__index_fini(&x);
}

static void test_best_by_score(void **state)
{
  struct manta__index x = {0};
  assert_null(manta__best_of(&x).series);
  feed(&x, MANTA__EV_RUN, 0, -1, 1,
       MANTA_MAP(MANTA_KV_STR("score", "acc"), MANTA_KV_BOOL("score_min", false)));
  row(&x, 0, 0, 1, 0.5);
  row(&x, 0, 0, 2, 0.1);
  row(&x, 0, 0, 3, 0.2);
  struct manta__best b = manta__best_of(&x);
  assert_string_equal(b.series->name, "acc");
  assert_false(b.lowest);
  assert_near(b.at.value, 0.9, 1e-12);
  assert_int_equal(b.at.x, 2);
  manta__index_fini(&x);
}

static void test_rows_that_come_twice(void **state)
{
  struct manta__index x = {0};
  begin(&x, 0, 1, 0);
  row(&x, 0, 0, 1, 1);
  row(&x, 0, 0, 2, 2);
  row(&x, 0, 0, 2, 3); // salvaged twice
  row(&x, 0, 0, 1, 3);
  assert_int_equal(x.rows, 2);
  assert_near(manta__index_find(&x, "loss", 0)->last, 2, 0);
  begin(&x, 1, 1, 2);
  row(&x, 1, 0, 3, 4);
  row(&x, 0, 0, 9, 5); // of an attempt that is over
  assert_near(manta__index_find(&x, "loss", 0)->last, 4, 0);
  manta__index_fini(&x);
}

static void rewind_to(struct manta__index *x, uint32_t attempt, int64_t to)
{
  feed(x, MANTA__EV_REWIND, attempt, -1, 1, MANTA_MAP(MANTA_KV_INT("to", to)));
}

static void test_rewind_takes_rows_back(void **state)
{
  struct manta__index x = {0};
  begin(&x, 0, 1, 0);
  for (int64_t i = 1; i <= 20; i++)
    row(&x, 0, 0, i, i > 15 ? -100 : (double)i);
  rewind_to(&x, 1, 15);
  assert_false(x.dirty);
  begin(&x, 1, 1, 15);
  const struct manta__curve *s = manta__index_find(&x, "loss", 0);
  assert_int_equal(s->count, 15);
  assert_near(s->low.value, 1, 0);
  assert_int_equal(x.rank[0].iteration, 15);
  row(&x, 1, 0, 16, 16);
  assert_near(manta__index_find(&x, "loss", 0)->last, 16, 0);
  assert_int_equal(x.attempts, 2);
  manta__index_fini(&x);
}

static void play_long(struct manta__index *x)
{
  begin(x, 0, 1, 0);
  for (int64_t i = 1; i <= 3000; i++)
    row(x, 0, 0, i, i > 2001 ? -100 : (double)i);
  rewind_to(x, 1, 2001);
  begin(x, 1, 1, 2001);
  for (int64_t i = 2002; i <= 4000; i++)
    row(x, 1, 0, i, (double)i);
}

static void test_rewind_of_wide_buckets_reads_again(void **state)
{
  struct manta__index x = {0};
  play_long(&x);
  assert_true(x.dirty);
  manta__index_restart(&x, false);
  assert_false(x.dirty);
  assert_int_equal(x.records, 0);
  play_long(&x);
  assert_false(x.dirty);
  const struct manta__curve *s = manta__index_find(&x, "loss", 0);
  assert_near(s->low.value, 1, 0); // no void row
  assert_int_equal(s->finite, 4000);
  manta__index_restart(&x, true);
  assert_int_equal(x.cuts, 0);
  manta__index_fini(&x);
}

static void test_what_happened(void **state)
{
  struct manta__index x = {0};
  begin(&x, 0, 2, 0);
  row(&x, 0, 0, 1, 1);
  row(&x, 0, 1, 1, 1);
  feed(&x, MANTA__EV_CKPT, 0, -1, 2,
       MANTA_MAP(MANTA_KV_STR("dir", "ckpt-1"), MANTA_KV_INT("iteration", 1),
                 MANTA_KV_INT("bytes", 77)));
  feed(&x, MANTA__EV_LOST, 0, -1, 3,
       MANTA_MAP(MANTA_KV_INT("rank", 1), MANTA_KV_STR("host", "h"), MANTA_KV_STR("cause", "why")));
  assert_true(x.rank[1].lost);
  begin(&x, 1, 2, 1);
  assert_false(x.rank[1].lost);
  feed(&x, MANTA__EV_FINISH, 1, -1, 4,
       MANTA_MAP(MANTA_KV_STR("status", "EUSER"), MANTA_KV_STR("message", "it broke")));
  assert_int_equal(x.marks, 4);
  assert_int_equal(x.mark[1].kind, MANTA__MARK_LOST);
  assert_string_equal(x.mark[1].text, "rank 1 on h: why");
  assert_int_equal(x.mark[1].rank, 1);
  assert_true(x.ended && x.failed);
  assert_string_equal(x.message, "it broke");
  assert_int_equal(x.ckpt[0].bytes, 77);
  assert_true(isnan(x.ckpt[0].score));
  begin(&x, 2, 1, 1); // resumed
  assert_false(x.ended || x.failed);
  assert_int_equal(x.world, 1);
  manta__index_fini(&x);
}

static void test_lists_keep_the_newest(void **state)
{
  struct manta__index x = {0};
  for (int i = 0; i < MANTA__INDEX_MARKS + 40; i++) {
    char text[32];
    snprintf(text, sizeof text, "note %d", i);
    feed(&x, MANTA__EV_NOTE, 0, -1, 1, MANTA_MAP(MANTA_KV_STR("text", text)));
    feed(&x, MANTA__EV_CKPT, 0, -1, 1, MANTA_MAP(MANTA_KV_INT("iteration", i)));
  }
  assert_int_equal(x.marks, MANTA__INDEX_MARKS + 40);
  assert_string_equal(x.mark[39].text, "note 551");
  assert_string_equal(x.mark[40].text, "note 40");
  assert_int_equal(x.ckpt[(x.ckpts - 1) % MANTA__INDEX_CKPTS].iteration, 551);
  manta__index_fini(&x);
}

static void test_samples_and_stragglers(void **state)
{
  struct manta__index x = {0};
  bool slow[4];
  begin(&x, 0, 4, 0);
  for (int64_t i = 1; i <= 5; i++)
    for (int rank = 0; rank < 4; rank++)
      feed(&x, MANTA__EV_ROW, 0, rank, (uint64_t)i,
           MANTA_MAP(MANTA_KV_REAL("_time_this_iter_s", rank == 2 ? 0.2 : 0.1),
                     MANTA_KV_INT("_training_iteration", i)));
  manta_value worker = MANTA_MAP(MANTA_KV_INT("rank", 2), MANTA_KV_INT("pid", 41),
                                 MANTA_KV_REAL("cpu", 0.5), MANTA_KV_INT("rss", 1 << 20));
  manta_value list = {.type = MANTA_LIST, .count = 1, .u.items = &worker};
  feed(&x, MANTA__EV_SAMPLE, 0, -1, 9,
       MANTA_MAP(MANTA_KV_STR("host", "node"), MANTA_KV("workers", list)));
  assert_int_equal(x.rank[2].pid, 41);
  assert_string_equal(x.rank[2].host, "node");
  assert_near(manta__index_find(&x, MANTA__RSS_NAME, 2)->last, 1 << 20, 0);
  assert_null(manta__index_find(&x, MANTA__GPU_NAME, 2));
  manta__index_stragglers(&x, slow);
  assert_true(slow[2] && !slow[0] && !slow[1] && !slow[3]);
  manta__index_fini(&x);
}

static void test_many_series_share_the_memory(void **state)
{
  struct manta__index x = {0};
  for (int64_t i = 1; i <= 600; i++)
    for (int rank = 0; rank < 100 && (i % 100 == 0 || rank == 0); rank++) {
      char name[40][16];
      manta_pair pairs[41];
      for (int k = 0; k < 40; k++) {
        snprintf(name[k], sizeof name[k], "metric_%d", k);
        pairs[k] = MANTA_KV_REAL(name[k], k);
      }
      pairs[40] = MANTA_KV_INT("_training_iteration", i);
      feed(&x, MANTA__EV_ROW, 0, rank, (uint64_t)i,
           (manta_value){.type = MANTA_MAP, .count = 41, .u.pairs = pairs});
    }
  assert_int_equal(x.series_count, 4000);
  assert_true(manta__index_bytes(&x) <= MANTA__INDEX_BYTES);
  assert_int_equal(manta__index_find(&x, "metric_7", 0)->finite, 600);
  manta__index_shed(&x);
  assert_int_equal(manta__index_bytes(&x), 0);
  assert_near(manta__index_find(&x, "metric_7", 99)->last, 7, 0);
  manta__index_fini(&x);
}

static void test_nonsense(void **state)
{
  struct manta__index x = {0};
  struct manta__record h = {.kind = MANTA__EV_ROW, .len = 3, .id = {1, 0, 0, 1}};
  for (uint32_t kind = 0; kind < 20; kind++) {
    h.kind = kind;
    h.id.seq = kind;
    assert_int_equal(manta__index_take(&x, &h, (const uint8_t *)"\xdf\xff\xff"), MANTA_OK);
    h.id.rank = kind % 2 ? INT32_MAX : -5;
    assert_int_equal(manta__index_take(&x, &h, (const uint8_t *)"\x81\xa1x"), MANTA_OK);
  }
  feed(&x, MANTA__EV_REWIND, 0, -1, 1, MANTA_MAP(MANTA_KV_STR("to", "x")));
  feed(&x, MANTA__EV_SAMPLE, 0, -1, 1, MANTA_MAP(MANTA_KV_INT("workers", 3)));
  feed(&x, MANTA__EV_LOST, 0, -1, 1, MANTA_MAP(MANTA_KV_INT("rank", INT64_MAX)));
  assert_true(x.ranks <= 1);
  manta__index_fini(&x);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows_become_series),
      cmocka_unit_test(test_best_by_score),
      cmocka_unit_test(test_rows_that_come_twice),
      cmocka_unit_test(test_rewind_takes_rows_back),
      cmocka_unit_test(test_rewind_of_wide_buckets_reads_again),
      cmocka_unit_test(test_what_happened),
      cmocka_unit_test(test_lists_keep_the_newest),
      cmocka_unit_test(test_samples_and_stragglers),
      cmocka_unit_test(test_many_series_share_the_memory),
      cmocka_unit_test(test_nonsense),
  };
  return cmocka_run_group_tests_name("dash/index", tests, NULL, NULL);
}
