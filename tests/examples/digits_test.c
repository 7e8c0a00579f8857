/* SPDX-License-Identifier: Apache-2.0
 *
 * The digits of the quickstart: the same for ever, no two alike, and no task for a linear model.
 */
#include "test.h"

#include "digits.h"
#include "random.h"

static uint64_t hash_of(const void *p, size_t n) // FNV-1a
{
  const uint8_t *bytes = p;
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < n; i++)
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

static void test_sets_never_change(void **state)
{
  static const struct {
    uint64_t seed, hash;
  } known[] = {{1, 0x432f61fef1f2eb10},
               {2, 0x7ad0052db3c1ad24},
               {0, 0x937879546f2e6c99},
               {UINT64_MAX, 0xf6697d36155ae71e}};
  static struct digit d[500];
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    digits_fill(d, 500, known[i].seed);
    uint64_t hash = hash_of(d, sizeof d);
    if (hash != known[i].hash)
      fail_msg("seed %llu: 0x%016llx", (unsigned long long)known[i].seed, (unsigned long long)hash);
  }
}

static void test_a_digit_needs_no_others(void **state)
{
  static struct digit set[200], one;
  digits_fill(set, 200, 7);
  for (int i = 199; i >= 0; i--) {
    digits_draw(&one, 7, (uint64_t)i);
    assert_memory_equal(&one, &set[i], sizeof one);
    assert_int_equal(one.label, i % 10);
  }
}

static int ink_of(const struct digit *d)
{
  int n = 0;
  for (int i = 0; i < DIGIT_PIXELS; i++)
    n += d->pixels[i] > 60;
  return n;
}

static void test_every_digit_has_ink_and_paper(void **state)
{
  static struct digit d[10000];
  digits_fill(d, 10000, 11);
  for (int i = 0; i < 10000; i++)
    assert_in_range(ink_of(&d[i]), 10, DIGIT_PIXELS / 2);
}

static double distance(const struct digit *a, const struct digit *b)
{
  double sum = 0;
  for (int i = 0; i < DIGIT_PIXELS; i++)
    sum += pow((a->pixels[i] - b->pixels[i]) / 255.0, 2);
  return sqrt(sum);
}

/* The same digit by the same hand is nearer than by another hand, and never the same. */
static void test_a_hand_is_like_itself(void **state)
{
  double same = 0, other = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    struct digit a, b, c, d;
    digits_draw(&a, 1, i);
    digits_draw(&b, 1, i + 10 * DIGIT_HANDS);
    digits_draw(&c, 1, i + 10);
    digits_draw(&d, 2, i);
    assert_true(distance(&a, &b) > 1 && distance(&a, &c) > 1 && distance(&a, &d) > 1);
    same += distance(&a, &b);
    other += distance(&a, &c) / 2 + distance(&a, &d) / 2;
  }
  if (!(same < 0.95 * other))
    fail_msg("%.2f from the same hand, %.2f from others", same / 1000, other / 1000);
}

// --- a linear model -----------------------------------------------------------------------------

enum { BIAS = DIGIT_PIXELS, TRAIN = 40000, TEST = 4000 }; // the sets of the quickstart

static float weights[10][DIGIT_PIXELS + 1];

static int linear_scores(const struct digit *d, float *scores)
{
  int best = 0;
  for (int j = 0; j < 10; j++) {
    scores[j] = weights[j][BIAS];
    for (int i = 0; i < DIGIT_PIXELS; i++)
      if (d->pixels[i])
        scores[j] += weights[j][i] * (float)d->pixels[i] / 255;
    best = scores[j] > scores[best] ? j : best;
  }
  return best;
}

/* One step of softmax regression. */
static void linear_learn(const struct digit *d, float rate)
{
  float scores[10], p[10], sum = 0;
  int best = linear_scores(d, scores);
  for (int j = 0; j < 10; j++)
    sum += p[j] = expf(scores[j] - scores[best]);
  for (int j = 0; j < 10; j++) {
    float step = rate * (p[j] / sum - (float)(j == d->label));
    weights[j][BIAS] -= step;
    for (int i = 0; i < DIGIT_PIXELS; i++)
      if (d->pixels[i])
        weights[j][i] -= step * (float)d->pixels[i] / 255;
  }
}

/* More than guessing, less than nine of ten: what the quickstart's network is for. */
static void test_a_linear_model_is_not_enough(void **state)
{
  static struct digit train[TRAIN], test[TEST];
  struct random r = random_of(5, 0, 0);
  float scores[10];
  int right = 0;
  digits_fill(train, TRAIN, 1);
  digits_fill(test, TEST, 2);
  for (int i = 0; i < 5 * TRAIN; i++)
    linear_learn(&train[random_below(&r, TRAIN)], 0.05f * (1 - (float)i / (5 * TRAIN)));
  for (int i = 0; i < TEST; i++)
    right += linear_scores(&test[i], scores) == test[i].label;
  print_message("# a linear model reads %.2f %%\n", 100.0 * right / TEST);
  assert_in_range(right, TEST * 0.7, TEST * 0.9);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sets_never_change),
      cmocka_unit_test(test_a_digit_needs_no_others),
      cmocka_unit_test(test_every_digit_has_ink_and_paper),
      cmocka_unit_test(test_a_hand_is_like_itself),
      cmocka_unit_test(test_a_linear_model_is_not_enough),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
