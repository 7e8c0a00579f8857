/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.csv: columns that come late, cells that need quotes, rows of several workers.
 */
#include <errno.h>

#include "pot.h"

static manta__log_writer *begin(struct bed *b, int world, const manta_value *options)
{
  manta_sink csv = {"csv", options};
  manta__log_writer *w = bed_writer(b, true);
  pot_sinks(b, &csv, 1);
  pot_attempt(w, 0, world, 0);
  return w;
}

static void add(manta__log_writer *w, int rank, int64_t i, manta_value row)
{
  bed_add(w, MANTA__EV_ROW, ident(0, rank, (uint64_t)i), row);
}

static void assert_text(struct bed *b, const char *want)
{
  char *text = pot_text(b, "progress.csv");
  assert_string_equal(text, want);
  manta_free(text);
}

static void the_header_is_that_of_the_first_row(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = begin(b, 1, NULL);
  manta_value inner = MANTA_MAP(MANTA_KV_INT("b", 7), MANTA_KV_BOOL("c", true));
  add(w, 0, 1,
      MANTA_MAP(MANTA_KV_INT("_training_iteration", 1), MANTA_KV_REAL("loss", 0.1),
                MANTA_KV("a", inner), MANTA_KV_STR("s", "plain")));
  add(w, 0, 2,
      MANTA_MAP(MANTA_KV_STR("s", "a, \"b\"\nc"), MANTA_KV_INT("_training_iteration", 2),
                MANTA_KV_REAL("loss", NAN)));
  add(w, 0, 3, MANTA_MAP(MANTA_KV_INT("_training_iteration", 3), MANTA_KV_REAL("loss", -INFINITY)));
  bed_flush(w);
  pot_feed(b);
  assert_text(b, "_training_iteration,loss,a/b,a/c,s\n"
                 "1,0.1,7,true,plain\n"
                 "2,nan,,,\"a, \"\"b\"\"\nc\"\n"
                 "3,-inf,,,\n");
  manta__log_writer_close(w);
}

static void a_late_key_widens_the_file(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = begin(b, 1, NULL);
  add(w, 0, 1, MANTA_MAP(MANTA_KV_INT("_training_iteration", 1), MANTA_KV_STR("s", "a\n\"b")));
  add(w, 0, 2, MANTA_MAP(MANTA_KV_INT("_training_iteration", 2)));
  bed_flush(w);
  pot_feed(b);
  add(w, 0, 3,
      MANTA_MAP(MANTA_KV_INT("_training_iteration", 3), MANTA_KV_REAL("a,b", 2),
                MANTA_KV_INT("c", 4)));
  bed_flush(w);
  pot_feed(b);
  const char *want = "_training_iteration,s,\"a,b\",c\n"
                     "1,\"a\n\"\"b\",,\n"
                     "2,,,\n"
                     "3,,2.0,4\n";
  assert_text(b, want);
  pot_feed(b);
  assert_text(b, want);
  scratch_write(b->path, "progress.csv", "x"); // not ours: written again, with all columns
  pot_feed(b);
  assert_text(b, want);
  pot_rewind(w, 1, 1, 1);
  bed_row(w, 1, 0, 2);
  bed_flush(w);
  pot_feed(b);
  assert_text(b, "_training_iteration,s,\"a,b\",c,loss,note\n"
                 "1,\"a\n\"\"b\",,,,\n"
                 "2,,,,0.5,x\n");
  manta__log_writer_close(w);
}

static void a_full_disk_while_widening_loses_nothing(void **state)
{
  struct bed *b = *state;
  manta_error err = MANTA_ERROR_INIT;
  manta__log_writer *w = begin(b, 1, NULL);
  for (int i = 1; i <= 50; i++)
    add(w, 0, i, MANTA_MAP(MANTA_KV_INT("_training_iteration", i)));
  bed_flush(w);
  pot_feed(b);
  add(w, 0, 51, MANTA_MAP(MANTA_KV_INT("_training_iteration", 51), MANTA_KV_INT("late", 1)));
  bed_flush(w);
  manta__file_fault(60, ENOSPC, 0);
  assert_status(manta__sink_replay(b->dir, NULL, &err), MANTA_EIO);
  assert_true(manta__file_fault(0, 0, 0) > 0);
  char *text = pot_text(b, "progress.csv");
  assert_non_null(strstr(text, "\n50\n"));
  assert_null(strstr(text, "late"));
  manta_free(text);
  pot_feed(b);
  text = pot_text(b, "progress.csv");
  assert_int_equal(strncmp(text, "_training_iteration,late\n1,\n2,\n", 31), 0);
  assert_non_null(strstr(text, "\n50,\n51,1\n"));
  manta_free(text);
  assert_int_equal(bed_size(b, "progress.csv.wider"), -1);
  manta__log_writer_close(w);
}

static void rows_of_several_workers_have_their_rank(void **state)
{
  struct bed *b = *state;
  manta_value all = MANTA_MAP(MANTA_KV_STR("workers", "all"));
  manta__log_writer *w = begin(b, 2, &all);
  for (int i = 1; i <= 2; i++)
    for (int r = 1; r >= 0; r--)
      add(w, r, i,
          MANTA_MAP(MANTA_KV_INT("_training_iteration", i), MANTA_KV_INT("x", 10 * r + i)));
  bed_flush(w);
  pot_feed(b);
  assert_text(b, "_rank,_training_iteration,x\n0,1,1\n1,1,11\n0,2,2\n1,2,12\n");
  manta__log_writer_close(w);
}

static void names_of_any_bytes_are_text(void **state)
{
  struct bed *b = *state;
  manta__log_writer *w = begin(b, 1, NULL);
  add(w, 0, 1, MANTA_MAP(MANTA_KV_INT("_training_iteration", 1), MANTA_KV_STR("a\xff/b", "\xc3(")));
  bed_flush(w);
  pot_feed(b);
  assert_text(b, "_training_iteration,a\xef\xbf\xbd/b\n1,\xef\xbf\xbd(\n");
  manta__log_writer_close(w);
}

#define bed_test(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

int main(void)
{
  const struct CMUnitTest tests[] = {
      bed_test(the_header_is_that_of_the_first_row),
      bed_test(a_late_key_widens_the_file),
      bed_test(a_full_disk_while_widening_loses_nothing),
      bed_test(rows_of_several_workers_have_their_rank),
      bed_test(names_of_any_bytes_are_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
