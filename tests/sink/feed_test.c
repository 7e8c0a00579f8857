/* SPDX-License-Identifier: Apache-2.0
 *
 * Sinks fed from a log: each iteration once, whatever happens to the run, the sink or the disk.
 */
#include <errno.h>

#include "pot.h"

static int64_t iteration_at(const manta_value *v, size_t at)
{
  return manta_value_as_int(pot_cell(v, at, 0, "_training_iteration"), -1);
}

// results.json has exactly the iterations 1 to n.
static void assert_counts(struct bed *b, size_t n)
{
  manta_value v = pot_json(b, "results.json");
  assert_int_equal(v.type, MANTA_LIST);
  assert_int_equal(v.count, n);
  for (size_t i = 0; i < n; i++)
    assert_int_equal(iteration_at(&v, i), i + 1);
  manta_value_fini(&v);
}

static manta__log_writer *begin(struct bed *b, int world)
{
  manta_sink json = {"json", NULL};
  manta__log_writer *w = bed_writer(b, true);
  pot_sinks(b, &json, 1);
  pot_attempt(w, 0, world, 0);
  return w;
}

static void writes_each_iteration_once(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = begin(b, 1);
  bed_flush(w);
  pot_feed(b);
  assert_counts(b, 0); // JSON before the first row
  for (int i = 1; i <= 1000; i++) {
    bed_row(w, 0, 0, i);
    if (i % 100 == 0) {
      bed_flush(w);
      pot_feed(b);
      assert_counts(b, (size_t)i);
    }
  }
  bed_row(w, 0, 0, 1000); // salvaged twice
  bed_flush(w);
  pot_feed(b);
  assert_counts(b, 1000);
  char *lines = pot_text(b, "results.jsonl");
  size_t count = 0;
  for (const char *p = lines; (p = strchr(p, '\n')); p++)
    count++;
  assert_int_equal(count, 1000);
  manta_free(lines);
  manta__log_writer_close(w);
}

static void a_rewind_cuts_back(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = begin(b, 1);
  for (uint32_t attempt = 0; attempt < 20; attempt++) {
    int from = (int)attempt * 10;
    if (attempt > 0)
      pot_rewind(w, attempt, 1, from);
    for (int i = from + 1; i <= from + 25; i++)
      bed_row(w, attempt, 0, i);
    if (attempt % 3 == 0) {
      bed_flush(w);
      pot_feed(b);
      assert_counts(b, (size_t)from + 25);
    }
  }
  pot_rewind(w, 20, 1, 7); // before every bookmark but the first
  bed_row(w, 20, 0, 8);
  bed_row(w, 19, 0, 9); // late, and void
  bed_flush(w);
  pot_feed(b);
  assert_counts(b, 8);
  manta__log_writer_close(w);
}

static void starts_anew_where_the_file_is_another(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = begin(b, 1);
  for (int i = 1; i <= 50; i++)
    bed_row(w, 0, 0, i);
  bed_flush(w);
  pot_feed(b);
  scratch_write(b->path, "results.json", "[[]]");
  pot_feed(b);
  assert_counts(b, 50);
  unlinkat(b->dir, "results.json", 0);
  pot_feed(b);
  assert_counts(b, 50);
  scratch_write(b->path, ".sinks/0-json", "{\"options\": {}, \"bookmark\": [1, 2]}");
  pot_feed(b);
  assert_counts(b, 50);
  manta__log_writer_close(w);
}

static void a_full_disk_is_waited_for(void **state)
{
  struct bed *b = *state;
  manta_error err = MANTA_ERROR_INIT;
  manta__log_writer *w = begin(b, 1);
  for (int i = 1; i <= 100; i++)
    bed_row(w, 0, 0, i);
  bed_flush(w);
  pot_feed(b);
  for (int i = 101; i <= 200; i++)
    bed_row(w, 0, 0, i);
  bed_flush(w);
  manta__file_fault(3000, ENOSPC, 0);
  b->warnings = 0;
  assert_status(manta__sink_replay(b->dir, NULL, &err), MANTA_EIO);
  assert_true(manta__file_fault(0, 0, 0) > 0);
  assert_true(b->warnings >= 2); // that it fails, and what it lacks
  assert_counts(b, 100);
  pot_feed(b);
  assert_counts(b, 200);
  manta__log_writer_close(w);
}

static void numbers_that_json_has_not_are_null(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = begin(b, 1);
  for (int i = 1; i <= 3; i++)
    bed_add(w, MANTA__EV_ROW, ident(0, 0, (uint64_t)i),
            MANTA_MAP(MANTA_KV_REAL("loss", i == 1   ? 1.5
                                            : i == 2 ? NAN
                                                     : -INFINITY),
                      MANTA_KV_STR("a\nb/\"c", "x"), MANTA_KV_STR("\xff", "\xfe"),
                      MANTA_KV_INT("_training_iteration", i)));
  bed_flush(w);
  b->warnings = 0;
  pot_feed(b);
  assert_int_equal(b->warnings, 1);
  assert_counts(b, 3);
  manta_value v = pot_json(b, "results.json");
  assert_near(manta_value_as_real(pot_cell(&v, 0, 0, "loss"), 0), 1.5, 0);
  assert_int_equal(pot_cell(&v, 1, 0, "loss")->type, MANTA_NIL);
  assert_int_equal(pot_cell(&v, 2, 0, "loss")->type, MANTA_NIL);
  assert_string_equal(manta_value_as_string(pot_cell(&v, 0, 0, "a\nb/\"c"), ""), "x");
  manta_value_fini(&v);
  v = pot_json(b, "params.json");
  assert_int_equal(manta_value_get(&v, "bad")->type, MANTA_NIL);
  manta_value_fini(&v);
  manta__log_writer_close(w);
}

// --- several ranks -------------------------------------------------------------------------------

static void a_rank_that_is_late_is_waited_for(void **state)
{
  struct bed *b = *state;
  manta_value all = MANTA_MAP(MANTA_KV_STR("workers", "all"));
  manta_sink json = {"json", &all};
  manta__log_writer *w = bed_writer(b, true);
  pot_sinks(b, &json, 1);
  pot_attempt(w, 0, 3, 0);
  for (int i = 1; i <= 40; i++)
    bed_row(w, 0, 0, i);
  for (int i = 1; i <= 30; i++) {
    bed_row(w, 0, 2, i);
    bed_row(w, 0, 1, i);
  }
  bed_flush(w);
  pot_feed(b);
  manta_value v = pot_json(b, "results.json");
  assert_int_equal(v.count, 40);
  for (size_t i = 0; i < 40; i++)
    assert_int_equal(manta_value_at(&v, i)->count, i < 30 ? 3 : 1);
  manta_value_fini(&v);
  manta__log_writer_close(w);
}

static void ranks_are_chosen_and_put_together(void **state)
{
  struct bed *b = *state;
  static const char *const names[] = {"mean", "min", "max", "last"};
  static const double want[] = {2.5, 1, 4, 3};
  manta_value ranks = {0}, option[5];
  manta_pair pairs[5][3];
  manta_sink sinks[5];
  char file[5][16];
  assert_int_equal(manta_value_set_list(&ranks), MANTA_OK);
  for (int i = 1; i <= 2; i++) {
    manta_value rank = manta_value_int(i);
    assert_int_equal(manta_value_append(&ranks, &rank), MANTA_OK);
  }
  for (int i = 0; i < 5; i++) {
    snprintf(file[i], sizeof file[i], "%d.json", i);
    pairs[i][0] = MANTA_KV_STR("filename", file[i]);
    pairs[i][1] = i < 4 ? MANTA_KV_STR("workers", "all") : MANTA_KV("workers", ranks);
    pairs[i][2] = MANTA_KV_STR("aggregate", names[i % 4]);
    option[i] = (manta_value){.type = MANTA_MAP, .count = i < 4 ? 3 : 2, .u.pairs = pairs[i]};
    sinks[i] = (manta_sink){"json", &option[i]};
  }
  manta__log_writer *w = bed_writer(b, true);
  pot_sinks(b, sinks, 5);
  pot_attempt(w, 0, 4, 0);
  for (int r = 3; r >= 0; r--) {
    struct manta__ident id = ident(0, r, 1);
    manta_value inner = MANTA_MAP(MANTA_KV_INT("n", r + 1), MANTA_KV_STR("s", r ? "x" : "first"));
    manta_value row = MANTA_MAP(MANTA_KV_REAL("loss", r + 1), MANTA_KV("deep", inner),
                                MANTA_KV_INT("_training_iteration", 1));
    size_t len = manta__pack_size(&row);
    uint8_t bytes[512];
    assert_true(len > 0 && len < sizeof bytes);
    manta__pack_into(bytes, &row);
    assert_ok(manta__log_add(w, MANTA__EV_ROW, &id, r == 2 ? 99 : 1 + r, bytes, len, NULL),
              (&(manta_error){0}));
  }
  bed_flush(w);
  pot_feed(b);
  for (int i = 0; i < 4; i++) {
    manta_value v = pot_json(b, file[i]);
    assert_int_equal(manta_value_at(&v, 0)->count, 1);
    assert_near(manta_value_as_real(pot_cell(&v, 0, 0, "loss"), 0), want[i], 0);
    const manta_value *deep = pot_cell(&v, 0, 0, "deep");
    assert_near(manta_value_as_real(manta_value_get(deep, "n"), 0), want[i], 0);
    assert_string_equal(manta_value_as_string(manta_value_get(deep, "s"), ""), "first");
    assert_int_equal(manta_value_as_int(pot_cell(&v, 0, 0, "_training_iteration"), 0), 1);
    manta_value_fini(&v);
  }
  manta_value v = pot_json(b, file[4]);
  assert_int_equal(manta_value_at(&v, 0)->count, 2);
  assert_near(manta_value_as_real(pot_cell(&v, 0, 1, "loss"), 0), 3, 0);
  manta_value_fini(&v);
  manta_value_fini(&ranks);
  manta__log_writer_close(w);
}

// --- setting up ----------------------------------------------------------------------------------

static void wrong_sinks_are_refused(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value list = {0};
  manta_value a = MANTA_MAP(MANTA_KV_INT("workers", -1));
  manta_value c = MANTA_MAP(MANTA_KV_STR("aggregate", "median"));
  manta_value d = MANTA_MAP(MANTA_KV_STR("filename", "../x"));
  manta_value e = MANTA_MAP(MANTA_KV_STR("logdr", "x"));
  manta_value f = MANTA_MAP(MANTA_KV_INT("workers", 1));
  manta_sink sinks[] = {{"jsn", NULL}, {"json", &a}, {"json", &c}, {"json", &d}, {"json", &e}};
  for (size_t i = 0; i < sizeof sinks / sizeof *sinks; i++)
    assert_status(manta__setup_add(&list, &sinks[i], &err), MANTA_EINVAL);
  assert_non_null(strstr(err.message, "logdr"));
  manta_sink json = {"json", NULL}, other = {"json", &f};
  assert_ok(manta__setup_add(&list, &json, &err), &err);
  assert_ok(manta__setup_add(&list, &json, &err), &err);
  assert_int_equal(list.count, 1); // the same twice
  assert_status(manta__setup_add(&list, &other, &err), MANTA_EINVAL);
  manta_value_fini(&list);
}

static void a_sink_can_be_checked_before_a_run(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value good = MANTA_MAP(MANTA_KV_STR("logdir", "/tmp/x"), MANTA_KV_STR("aggregate", "mean"));
  manta_value typo = MANTA_MAP(MANTA_KV_STR("logdr", "x"));
  manta_value number = MANTA_MAP(MANTA_KV_INT("logdir", 3));
  manta_value text = manta_value_borrow_string("logdir");
  assert_ok(manta_sink_check(&(manta_sink){"json", NULL}, &err), &err);
  assert_ok(manta_sink_check(&(manta_sink){"csv", &good}, &err), &err);
  assert_status(manta_sink_check(&(manta_sink){"jsn", NULL}, &err), MANTA_EINVAL);
  assert_has(err.message, "jsn");
  assert_status(manta_sink_check(&(manta_sink){"json", &typo}, &err), MANTA_EINVAL);
  assert_has(err.message, "sink json has no option \"logdr\"\nhint: logdir");
  assert_status(manta_sink_check(&(manta_sink){"json", &number}, &err), MANTA_ETYPE);
  assert_has(err.message, "logdir must be a path");
  assert_status(manta_sink_check(&(manta_sink){"json", &text}, &err), MANTA_ETYPE);
  assert_status(manta_sink_check(&(manta_sink){"json", &typo}, NULL), MANTA_EINVAL);
}

#define bed_test(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      bed_test(writes_each_iteration_once),
      bed_test(a_rewind_cuts_back),
      bed_test(starts_anew_where_the_file_is_another),
      bed_test(a_full_disk_is_waited_for),
      bed_test(numbers_that_json_has_not_are_null),
      bed_test(a_rank_that_is_late_is_waited_for),
      bed_test(ranks_are_chosen_and_put_together),
      bed_test(wrong_sinks_are_refused),
      cmocka_unit_test(a_sink_can_be_checked_before_a_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
