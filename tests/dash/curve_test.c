/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/curve.h"

#include "test.h"

static struct manta__curve make(void)
{
  struct manta__curve s;
  assert_int_equal(manta__curve_init(&s, "loss/train", 4, 3), MANTA_OK);
  assert_string_equal(s.name, "loss");
  assert_int_equal(s.rank, 3);
  return s;
}

static void add(struct manta__curve *s, int64_t x, double value)
{
  assert_int_equal(manta__curve_add(s, x, (double)x / 10, value), MANTA_OK);
}

static void test_few_points_are_themselves(void **state)
{
  struct manta__curve s = make();
  for (int64_t x = 5; x < 25; x++)
    add(&s, x, (double)(x * x));
  assert_int_equal(s.count, 20);
  assert_int_equal(s.width, 1);
  assert_int_equal(s.base, 5);
  for (uint32_t i = 0; i < s.count; i++) {
    assert_int_equal(s.bucket[i].n, 1);
    assert_near(s.bucket[i].sum, (double)((i + 5) * (i + 5)), 0);
    assert_near(s.bucket[i].t, (i + 5) / 10.0, 1e-12);
  }
  assert_near(s.last, 24 * 24, 0);
  assert_int_equal(s.low.x, 5);
  assert_int_equal(s.high.x, 24);
  manta__curve_fini(&s);
  manta__curve_fini(&s);
}

// Every bucket must hold exactly what the plain points of its range hold.
static void compare(const struct manta__curve *s, const double *value, int64_t count)
{
  for (uint32_t i = 0; i < s->count; i++) {
    const struct manta__chart_bucket *b = &s->bucket[i];
    double sum = 0, min = INFINITY, max = -INFINITY;
    uint32_t n = 0, odd = 0;
    for (int64_t x = s->base + i * s->width; x < s->base + (i + 1) * s->width && x <= count; x++) {
      if (!isfinite(value[x])) {
        odd++;
        continue;
      }
      sum += value[x];
      min = fmin(min, value[x]);
      max = fmax(max, value[x]);
      n++;
    }
    assert_int_equal(b->n, n);
    assert_int_equal(b->odd, odd);
    if (n > 0) {
      assert_near(b->min, min, 0);
      assert_near(b->max, max, 0);
      assert_near(b->sum / n, sum / n, 1e-9 * (1 + fabs(sum / n)));
    }
  }
}

static void test_many_points_keep_their_spikes(void **state)
{
  enum { COUNT = 100000 };
  double *value = calloc(COUNT + 1, sizeof *value);
  assert_non_null(value);
  struct manta__curve s = make();
  for (int64_t x = 1; x <= COUNT; x++) {
    value[x] = x == 31337 ? 1e6 : x == 77777 ? -1e6 : x % 5003 == 0 ? NAN : sin((double)x / 999);
    add(&s, x, value[x]);
  }
  assert_true(s.count > MANTA__CURVE_BUCKETS / 4 && s.count <= MANTA__CURVE_BUCKETS);
  assert_true(s.cap <= MANTA__CURVE_BUCKETS);
  assert_int_equal(s.width, 256);
  compare(&s, value, COUNT);
  assert_int_equal(s.high.x, 31337);
  assert_int_equal(s.low.x, 77777);
  assert_int_equal(s.odd, COUNT / 5003);
  assert_int_equal(s.finite + s.odd, COUNT);
  manta__curve_fini(&s);
  free(value);
}

static void test_a_lower_limit_folds(void **state)
{
  double value[301] = {0};
  struct manta__curve s = make();
  for (int64_t x = 1; x <= 300; x++)
    add(&s, x, value[x] = (double)(x % 17));
  uint32_t before = s.generation;
  manta__curve_set_limit(&s, 64);
  assert_true(s.count <= 64 && s.generation > before);
  assert_int_equal(s.width, 8);
  compare(&s, value, 300);
  add(&s, 1000, 1);
  assert_true(s.count <= 64);
  manta__curve_fini(&s);
}

static void test_gaps_and_repeats(void **state)
{
  struct manta__curve s = make();
  add(&s, 10, 1);
  add(&s, 14, 2);
  assert_int_equal(s.count, 5);
  assert_int_equal(s.bucket[2].n + s.bucket[2].odd, 0);
  uint32_t generation = s.generation;
  add(&s, 14, 4);
  assert_int_equal(s.generation, generation); // the last bucket only
  assert_int_equal(s.bucket[4].n, 2);
  add(&s, 12, 9);
  assert_true(s.generation > generation);
  assert_near(s.last, 4, 0);
  add(&s, 9, 5); // before the first
  assert_int_equal(s.finite, 4);
  add(&s, INT64_MAX, 7);
  assert_true(s.count <= MANTA__CURVE_BUCKETS);
  assert_int_equal(s.last_x, INT64_MAX);
  manta__curve_fini(&s);
}

static void test_not_finite(void **state)
{
  struct manta__curve s = make();
  add(&s, 1, NAN);
  add(&s, 2, INFINITY);
  assert_int_equal(s.finite, 0);
  assert_int_equal(s.odd, 2);
  assert_true(isnan(s.last));
  add(&s, 3, -4);
  assert_near(s.low.value, -4, 0);
  assert_near(s.high.value, -4, 0);
  add(&s, 4, -INFINITY);
  assert_near(s.low.value, -4, 0);
  assert_true(isnan(s.last));
  manta__curve_fini(&s);
}

static void test_rewind(void **state)
{
  struct manta__curve s = make();
  for (int64_t x = 1; x <= 50; x++)
    add(&s, x, x == 45 ? 1000 : (double)x);
  assert_true(manta__curve_rewind(&s, 60)); // nothing to forget
  assert_int_equal(s.count, 50);
  assert_true(manta__curve_rewind(&s, 40));
  assert_int_equal(s.count, 40);
  assert_int_equal(s.last_x, 40);
  assert_near(s.last, 40, 0);
  assert_near(s.high.value, 40, 0);
  assert_int_equal(s.finite, 40);
  add(&s, 41, -1);
  assert_int_equal(s.low.x, 41);
  assert_true(manta__curve_rewind(&s, 0)); // all of it
  assert_int_equal(s.finite, 0);
  add(&s, 1, 3);
  assert_int_equal(s.count, 1);
  for (int64_t x = 2; x <= 5000; x++)
    add(&s, x, 1);
  uint32_t count = s.count;
  assert_false(manta__curve_rewind(&s, 2501)); // not known any more
  assert_int_equal(s.count, count);
  manta__curve_fini(&s);
}

static void test_shed(void **state)
{
  struct manta__curve s = make();
  for (int64_t x = 1; x <= 100; x++)
    add(&s, x, (double)x);
  manta__curve_shed(&s);
  assert_null(s.bucket);
  assert_near(s.last, 100, 0);
  assert_near(s.low.value, 1, 0);
  manta__curve_fini(&s);
}

static manta_status fill(struct manta__curve *s)
{
  manta_status st = manta__curve_init(s, "x", 1, 0);
  for (int64_t x = 0; x < 40 && st == MANTA_OK; x++)
    st = manta__curve_add(s, x, 0, 1);
  if (st < 0)
    manta__curve_fini(s);
  return st;
}

static void test_no_memory(void **state)
{
  struct manta__curve s;
  FOR_EACH_OOM(fill(&s), manta__curve_fini(&s));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_few_points_are_themselves),
      cmocka_unit_test(test_many_points_keep_their_spikes),
      cmocka_unit_test(test_a_lower_limit_folds),
      cmocka_unit_test(test_gaps_and_repeats),
      cmocka_unit_test(test_not_finite),
      cmocka_unit_test(test_rewind),
      cmocka_unit_test(test_shed),
      cmocka_unit_test(test_no_memory),
  };
  return cmocka_run_group_tests_name("dash/curve", tests, NULL, NULL);
}
