/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of rows: each row exactly once, for any number of ranks and from any position, the same
 * whatever the number of ranks; folds that divide and balance.
 */
#include "data/order/order.h"

#include "cells.h"

// --- permutations -------------------------------------------------------------------------------

static void shuffles_are_permutations(void **state)
{
  static uint8_t seen[5000];
  for (uint64_t n = 1; n <= 5000; n = n < 300 ? n + 1 : n * 2 - 7) {
    struct manta__shuffle s = manta__shuffle_make(n, 42, n % 5, n % 3);
    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < n; i++) {
      uint64_t x = manta__shuffle_at(&s, i);
      assert_true(x < n && !seen[x]);
      seen[x] = 1;
      assert_true(manta__shuffle_find(&s, x) == i);
    }
  }
}

static void large_shuffles_find_their_way_back(void **state)
{
  static const uint64_t sizes[] = {1000000007,        UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1,
                                   UINT64_C(1) << 62, UINT64_MAX,        1000000000000};
  uint64_t seed = 50;
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    struct manta__shuffle s = manta__shuffle_make(sizes[k], 7, 1, 0);
    for (int i = 0; i < 2000; i++) {
      uint64_t x = cells_random(&seed) % sizes[k], y = manta__shuffle_at(&s, x);
      assert_true(y < sizes[k] && manta__shuffle_find(&s, y) == x);
    }
  }
}

// Where one number lands, over many seeds: each place about equally often. Chi-square with 15
// degrees of freedom stays below 45 but once in ten thousand; the seeds are fixed.
static void places_are_equally_likely(void **state)
{
  for (uint64_t x = 0; x < 16; x += 5) {
    int count[16] = {0};
    double chi = 0;
    for (uint64_t seed = 0; seed < 16000; seed++) {
      struct manta__shuffle s = manta__shuffle_make(16, seed, 3, 1);
      count[manta__shuffle_at(&s, x)]++;
    }
    for (int i = 0; i < 16; i++)
      chi += (count[i] - 1000.0) * (count[i] - 1000.0) / 1000.0;
    assert_true(chi < 45);
  }
}

static void neighbours_part(void **state)
{
  struct manta__shuffle s = manta__shuffle_make(10000, 1, 1, 1);
  int close = 0;
  for (uint64_t i = 0; i + 1 < 10000; i++) {
    int64_t d = (int64_t)(manta__shuffle_at(&s, i) - manta__shuffle_at(&s, i + 1));
    close += d >= -5 && d <= 5;
  }
  assert_true(close < 30); // ten are to be expected
}

// These numbers are in saved positions: they never change.
static void the_functions_stay_what_they_are(void **state)
{
  static const uint64_t want[] = {949, 434, 619, 73, 993, 204, 268, 396};
  struct manta__shuffle s = manta__shuffle_make(1000, 1234, 5, 6);
  for (uint64_t i = 0; i < sizeof want / sizeof *want; i++)
    assert_int_equal(manta__shuffle_at(&s, i), want[i]);
  int64_t rows[] = {10, 20, 5};
  static const int64_t stream[] = {5, 0, 4, 3, 7, 1, 6, 2, 14, 15, 11, 13, 10, 8, 12, 9};
  struct manta__row_order o;
  assert_status(manta__order_make(&o, rows, 3, true, 99, 2, 8, NULL), MANTA_OK);
  for (int64_t q = 0; q < (int64_t)(sizeof stream / sizeof *stream); q++)
    assert_int_equal(manta__order_stream(&o, q), stream[q]);
  assert_int_equal(manta__fold_plain(17, 100, 5, true, 3), 4);
  assert_int_equal(manta__fold_stratified(2, 7, 5, true, 3), 4);
  manta__order_fini(&o);
  manta__order_fini(&o);
}

// --- orders -------------------------------------------------------------------------------------

#define ROWS_MAX 600

struct set {
  int64_t rows[12], blocks, total, base[12]; // base: the number of each block's first row
};

static struct set random_set(uint64_t *seed)
{
  struct set s = {.blocks = 1 + (int64_t)(cells_random(seed) % 12)};
  for (int64_t b = 0; b < s.blocks; b++) {
    s.rows[b] = (int64_t)(cells_random(seed) % 50) * (cells_random(seed) % 5 != 0);
    s.base[b] = s.total;
    s.total += s.rows[b];
  }
  return s;
}

// The source row that order row q is.
static int64_t source_of(const struct manta__row_order *o, const struct set *s, int64_t q)
{
  int64_t k, row;
  manta__order_find(o, manta__order_stream(o, q), &k, &row);
  int64_t block = manta__order_block(o, k);
  assert_in_range(block, 0, s->blocks - 1);
  assert_in_range(row, 0, s->rows[block] - 1);
  return s->base[block] + row;
}

static void every_row_comes_once_in_an_epoch(void **state)
{
  uint64_t seed = 51;
  for (int round = 0; round < 300; round++) {
    struct set s = random_set(&seed);
    struct manta__row_order o;
    uint8_t seen[ROWS_MAX] = {0};
    int64_t window = (int64_t)(cells_random(&seed) % 100);
    assert_status(manta__order_make(&o, s.rows, s.blocks, round % 4 != 0, seed, (uint64_t)round,
                                    window, NULL),
                  MANTA_OK);
    assert_int_equal(o.rows, s.total);
    for (int64_t q = 0; q < o.rows; q++) {
      int64_t x = source_of(&o, &s, q);
      assert_false(seen[x]++);
      if (round % 4 == 0)
        assert_int_equal(x, q);
      if (window > 1)
        assert_int_equal(manta__order_stream(&o, q) / window, q / window); // bounded memory
    }
    manta__order_fini(&o);
  }
}

static void epochs_and_seeds_differ(void **state)
{
  int64_t rows[] = {100, 100, 100};
  struct manta__row_order a, b, c;
  int same_epoch = 0, same_seed = 0;
  assert_status(manta__order_make(&a, rows, 3, true, 1, 0, 50, NULL), MANTA_OK);
  assert_status(manta__order_make(&b, rows, 3, true, 1, 1, 50, NULL), MANTA_OK);
  assert_status(manta__order_make(&c, rows, 3, true, 2, 0, 50, NULL), MANTA_OK);
  for (int64_t q = 0; q < 300; q++) {
    same_epoch += manta__order_stream(&a, q) == manta__order_stream(&b, q);
    same_seed += manta__order_stream(&a, q) == manta__order_stream(&c, q);
  }
  assert_true(same_epoch < 30 && same_seed < 30);
  manta__order_fini(&a);
  manta__order_fini(&b);
  manta__order_fini(&c);
}

// --- steps and parts ----------------------------------------------------------------------------

// All parts of all steps, in the order of steps and ranks, are the order rows from the position on.
static void check_steps(int64_t rows, int64_t position, int64_t batch, enum manta__tail tail,
                        int ranks)
{
  int64_t steps = manta__steps_count(rows, position, batch, tail), next = position, padding = 0;
  for (int64_t step = 0; step < steps; step++) {
    int64_t least = INT64_MAX, most = 0;
    for (int rank = 0; rank < ranks; rank++) {
      struct manta__part p = manta__steps_part(rows, position, batch, tail, step, rank, ranks);
      assert_int_equal(p.from, next);
      assert_true(p.to >= p.from);
      least = p.to - p.from < least ? p.to - p.from : least;
      most = p.to - p.from > most ? p.to - p.from : most;
      padding += p.padding;
      next = p.to;
    }
    assert_true(most - least <= 1);
    if (tail != MANTA__TAIL_SHORT || step + 1 < steps)
      assert_int_equal(next, position + (step + 1) * batch);
  }
  if (tail == MANTA__TAIL_SHORT)
    assert_int_equal(next, rows > position ? rows : position);
  if (tail == MANTA__TAIL_DROP)
    assert_true(next <= rows || steps == 0);
  if (tail == MANTA__TAIL_DROP && rows >= position)
    assert_true(rows - next < batch);
  if (tail == MANTA__TAIL_PAD && steps)
    assert_int_equal(next - rows, padding);
  else
    assert_int_equal(padding, 0);
}

static void parts_cover_the_order_for_any_ranks_and_positions(void **state)
{
  uint64_t seed = 52;
  for (int round = 0; round < 3000; round++) {
    int64_t rows = (int64_t)(cells_random(&seed) % 300),
            position = (int64_t)(cells_random(&seed) % 310),
            batch = 1 + (int64_t)(cells_random(&seed) % 40);
    int ranks = 1 + (int)(cells_random(&seed) % 9);
    check_steps(rows, position, batch, (enum manta__tail)(round % 3), ranks);
  }
  check_steps(INT64_C(10000000000), 17, INT64_C(1000000007), MANTA__TAIL_SHORT, 4096);
}

// A run that is cut and goes on with other numbers of ranks sees each row of the epoch once, in the
// same order.
static void resizes_change_nothing_of_the_order(void **state)
{
  uint64_t seed = 53;
  for (int round = 0; round < 200; round++) {
    struct set s = random_set(&seed);
    struct manta__row_order o;
    int64_t position = 0, got[ROWS_MAX], n = 0;
    assert_status(manta__order_make(&o, s.rows, s.blocks, true, 5, (uint64_t)round, 20, NULL),
                  MANTA_OK);
    while (position < o.rows) {
      int ranks = 1 + (int)(cells_random(&seed) % 5);
      int64_t batch = ranks * (1 + (int64_t)(cells_random(&seed) % 6));
      int64_t steps = manta__steps_count(o.rows, position, batch, MANTA__TAIL_SHORT);
      int64_t run = 1 + (int64_t)(cells_random(&seed) % (uint64_t)steps), last = position;
      for (int64_t step = 0; step < run; step++)
        for (int rank = 0; rank < ranks; rank++) {
          struct manta__part p =
              manta__steps_part(o.rows, position, batch, MANTA__TAIL_SHORT, step, rank, ranks);
          for (int64_t q = p.from; q < p.to; q++)
            got[n++] = source_of(&o, &s, q);
          last = p.to;
        }
      position = last;
    }
    assert_int_equal(n, s.total);
    for (int64_t q = 0; q < n; q++)
      assert_int_equal(got[q], source_of(&o, &s, q));
    manta__order_fini(&o);
  }
}

// --- folds --------------------------------------------------------------------------------------

static void plain_folds_are_even(void **state)
{
  for (int shuffles = 0; shuffles <= 1; shuffles++)
    for (int64_t rows = 7; rows < 200; rows += 11)
      for (int folds = 2; folds <= 7; folds++) {
        int64_t count[7] = {0};
        int before = 0;
        for (int64_t i = 0; i < rows; i++) {
          int f = manta__fold_plain(i, rows, folds, shuffles, 9);
          assert_in_range(f, 0, folds - 1);
          count[f]++;
          assert_true(shuffles || f >= before); // runs
          before = f;
        }
        for (int f = 0; f < folds; f++)
          assert_in_range(count[f], rows / folds, rows / folds + 1);
      }
}

static void stratified_folds_divide_each_class(void **state)
{
  for (int shuffles = 0; shuffles <= 1; shuffles++) {
    int64_t total[5] = {0};
    for (uint64_t class = 0; class < 40; class ++) {
      int64_t count[5] = {0}, rows = 3 + (int64_t)(class * 7 % 50);
      for (int64_t nth = 0; nth < rows; nth++)
        count[manta__fold_stratified(class, nth, 5, shuffles, 4)]++;
      for (int f = 0; f < 5; f++) {
        assert_in_range(count[f], rows / 5, rows / 5 + 1);
        total[f] += count[f];
      }
    }
    for (int f = 0; f < 5; f++) // and what does not divide is spread over the folds
      assert_in_range(total[f], total[0] - 20, total[0] + 20);
  }
}

static void groups_stay_whole_and_balance(void **state)
{
  static const int64_t rows[] = {50, 1, 1, 30, 20, 10, 40, 5, 3};
  int fold[9];
  int64_t count[3] = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__fold_groups(rows, 9, 3, fold, &err), &err);
  for (int g = 0; g < 9; g++) {
    assert_in_range(fold[g], 0, 2);
    count[fold[g]] += rows[g];
  }
  for (int f = 0; f < 3; f++)
    assert_in_range(count[f], 50, 57);
  assert_status(manta__fold_groups(rows, 2, 3, fold, &err), MANTA_EINVAL);
  assert_has(err.message, "3 folds of 2 groups");
  FOR_EACH_OOM(manta__fold_groups(rows, 9, 3, fold, NULL), (void)0);
}

static void series_train_on_the_past(void **state)
{
  int64_t train, test, before = 0;
  manta_error err = MANTA_ERROR_INIT;
  for (int split = 0; split < 4; split++) {
    assert_ok(manta__fold_series(103, 4, split, &train, &test, &err), &err);
    assert_int_equal(test - train, 20);
    assert_true(split == 0 || train == before);
    before = test;
  }
  assert_int_equal(before, 103);
  assert_status(manta__fold_series(4, 4, 0, &train, &test, &err), MANTA_EINVAL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shuffles_are_permutations),
      cmocka_unit_test(large_shuffles_find_their_way_back),
      cmocka_unit_test(places_are_equally_likely),
      cmocka_unit_test(neighbours_part),
      cmocka_unit_test(the_functions_stay_what_they_are),
      cmocka_unit_test(every_row_comes_once_in_an_epoch),
      cmocka_unit_test(epochs_and_seeds_differ),
      cmocka_unit_test(parts_cover_the_order_for_any_ranks_and_positions),
      cmocka_unit_test(resizes_change_nothing_of_the_order),
      cmocka_unit_test(plain_folds_are_even),
      cmocka_unit_test(stratified_folds_divide_each_class),
      cmocka_unit_test(groups_stay_whole_and_balance),
      cmocka_unit_test(series_train_on_the_past),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
