/* SPDX-License-Identifier: Apache-2.0
 *
 * Which snapshots are worth writing for their score: against what retention keeps in the end.
 */
#include "ckpt/retain.h"

#include <math.h>

#include "base/alloc.h"
#include "test.h"

#define MOST 40

struct bed {
  struct manta__best_scores best;
  struct manta__retention keep;
};

static bool wants(struct bed *b, double score)
{
  return manta__retain_wants(&b->best, &b->keep, true, score);
}

static void what_is_better_than_the_worst_of_the_best_is_wanted(void **state)
{
  struct bed b = {.keep = {1, 2, true}};
  assert_true(wants(&b, 100)); // there is nothing yet
  assert_true(wants(&b, 3));
  assert_true(wants(&b, 5)); // 3 and 5 now
  assert_false(wants(&b, 100));
  assert_false(wants(&b, 5)); // as good a one is there
  assert_true(wants(&b, 4));
  assert_false(wants(&b, 4.5)); // 5 is no longer among them
  manta__best_scores_fini(&b.best);
  manta__best_scores_fini(&b.best);
  assert_true(wants(&b, 100));
  manta__best_scores_fini(&b.best);
}

static void what_has_no_score_is_not_wanted(void **state)
{
  struct bed b = {.keep = {1, 2, false}};
  assert_false(manta__retain_wants(&b.best, &b.keep, false, 1));
  assert_false(wants(&b, NAN));
  assert_int_equal(b.best.count, 0);
  assert_true(wants(&b, -INFINITY));
  manta__best_scores_fini(&b.best);
  b.keep.keep_best = 0;
  assert_false(wants(&b, 1));
  assert_null(b.best.score);
}

static void without_memory_it_is_written_like_any_other(void **state)
{
  struct bed b = {.keep = {1, 2, false}};
  manta__alloc_fail_after(0);
  assert_false(wants(&b, 1));
  manta__alloc_fail_after(-1);
  assert_true(wants(&b, 1));
  manta__best_scores_fini(&b.best);
}

static double sum_of_best(const struct manta__manifest *list, size_t count,
                          const struct manta__retention *keep)
{
  bool taken[MOST] = {false};
  double sum = 0;
  for (int k = 0; k < keep->keep_best; k++) {
    int64_t i = manta__retain_best(list, count, keep->score_min, taken);
    if (i < 0)
      break;
    taken[i] = true;
    sum += list[i].score;
  }
  return sum;
}

// If only the wanted ones were written, the best on disk are as good as if all had been.
static void the_wanted_ones_hold_the_best_of_all(void **state)
{
  static struct manta__manifest all[MOST], written[MOST];
  uint64_t x = 88172645463325252u;
  for (int round = 0; round < 2000; round++) {
    struct bed b = {.keep = {1, round % 5, round % 2}};
    size_t count = (size_t)(round % MOST), kept = 0;
    for (size_t i = 0; i < count; i++) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      all[i] = (struct manta__manifest){.has_score = x % 7 > 0, .score = (double)(x >> 8 & 15)};
      if (manta__retain_wants(&b.best, &b.keep, all[i].has_score, all[i].score))
        written[kept++] = all[i];
    }
    assert_near(sum_of_best(written, kept, &b.keep), sum_of_best(all, count, &b.keep), 0);
    assert_int_equal(b.best.count, (int)kept < b.keep.keep_best ? (int)kept : b.keep.keep_best);
    manta__best_scores_fini(&b.best);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_better_than_the_worst_of_the_best_is_wanted),
      cmocka_unit_test(what_has_no_score_is_not_wanted),
      cmocka_unit_test(without_memory_it_is_written_like_any_other),
      cmocka_unit_test(the_wanted_ones_hold_the_best_of_all),
  };
  cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
