/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/ckpt/random_test.c - random states beside checkpoints.
 */
#include "ckpt/random.h"
#include "store_fixture.h"

static void give(struct fixture *f, uint32_t attempt, int64_t iteration, int rank, const char *text)
{
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__random_put(f->run, attempt, iteration, rank, text, strlen(text), &err), &err);
}

static void assert_got(struct fixture *f, uint32_t attempt, int64_t iteration, int rank, int owner,
                       const char *text)
{
  void *bytes;
  size_t len;
  assert_int_equal(manta__random_get(f->run, attempt, iteration, rank, &bytes, &len), owner);
  assert_int_equal(len, strlen(text));
  if (len)
    assert_memory_equal(bytes, text, len);
  manta_free(bytes);
}

static void the_newest_attempt_before_counts(void **ctx)
{
  struct fixture *f = *ctx;
  assert_got(f, 1, 10, 0, -1, "");
  give(f, 0, 10, 0, "first");
  give(f, 0, 10, 1, "other");
  assert_got(f, 0, 10, 0, -1, ""); // of the attempt itself
  assert_got(f, 1, 10, 0, 0, "first");
  assert_got(f, 1, 10, 1, 1, "other");
  assert_got(f, 1, 10, 2, 0, "first"); // was not there
  assert_got(f, 1, 11, 0, -1, "");
  give(f, 3, 10, 0, "again");
  assert_got(f, 5, 10, 0, 0, "again");
  assert_got(f, 5, 10, 1, 0, "again"); // not what it gave in an attempt that was undone
  give(f, 3, 10, 0, "more");
  assert_got(f, 5, 10, 0, 0, "more");
}

static void what_is_damaged_is_not_believed(void **ctx)
{
  struct fixture *f = *ctx;
  char path[160];
  give(f, 0, 10, 0, "zero");
  give(f, 0, 10, 1, "one");
  snprintf(path, sizeof path, "%s/checkpoints/random_000010/rank-1", f->path);
  assert_int_equal(truncate(path, 18), 0);
  assert_got(f, 1, 10, 1, 0, "zero");
  assert_int_equal(truncate(path, 3), 0);
  assert_got(f, 1, 10, 1, 0, "zero");
  snprintf(path, sizeof path, "%s/checkpoints/random_000010/rank-0", f->path);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  assert_int_equal(pwrite(fd, "Z", 1, 16), 1);
  close(fd);
  assert_got(f, 1, 10, 0, -1, "");
}

// All samples are of attempt 3, and of iteration 10 x seed.
static void they_go_with_their_checkpoint(void **ctx)
{
  struct fixture *f = *ctx;
  manta__store *s = open_store(f, &(struct manta__retention){.keep_last = 1});
  give(f, 3, 50, 0, "of a snapshot that was never made");
  give(f, 2, 90, 0, "of an attempt that was undone");
  give(f, 3, 60, 0, "its own");
  give(f, 3, 70, 1, "still to come");
  put(f, s, 6);
  assert_string_equal(names(f), "000001 random_000060-3 random_000070-3");
  put(f, s, 6); // saved twice between two reports
  assert_string_equal(names(f), "000002 random_000060-3 random_000070-3");
  put(f, s, 7);
  assert_string_equal(names(f), "000003 random_000070-3");
  assert_got(f, 4, 70, 1, 1, "still to come");
  assert_int_equal(f->warnings, 0);
  manta__store_close(s);
}

static void names_say_attempt_and_iteration(void **ctx)
{
  uint32_t attempt;
  int64_t iteration;
  char name[48];
  manta__random_name(name, 2, 12);
  assert_string_equal(name, "random_000012-2");
  assert_true(manta__random_parse(name, &attempt, &iteration));
  assert_int_equal(attempt, 2);
  assert_int_equal(iteration, 12);
  static const char *const others[] = {"random_12", "random_000012-0", "random_", "000012"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_false(manta__random_parse(others[i], &attempt, &iteration));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      TEST(the_newest_attempt_before_counts),
      TEST(what_is_damaged_is_not_believed),
      TEST(they_go_with_their_checkpoint),
      cmocka_unit_test(names_say_attempt_and_iteration),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
