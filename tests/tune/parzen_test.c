/* SPDX-License-Identifier: Apache-2.0
 *
 * Densities: their functions are those of libm, with the same bits everywhere; they integrate to 1,
 * and do not remember what has been taken out of them.
 */
#include "tune/lanes.h"
#include "tune/parzen.h"

#include "test.h"

#define SPACE                                                                                      \
  "{\"x\":{\"$range\":{\"low\":-5,\"high\":5}},\"n\":{\"$range\":{\"low\":1,\"high\":6,"           \
  "\"int\":true}},\"g\":{\"$normal\":{\"mean\":1,\"sd\":2}},\"c\":{\"$choice\":[\"a\",{\"y\":"     \
  "{\"$range\":{\"low\":0.01,\"high\":1,\"log\":true}}}]}}"
#define DIMS    5
#define SAMPLES 120

static void read_space(struct manta__space *sp, const char *json)
{
  manta_value spec = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_from_json(&spec, json, strlen(json), &err), &err);
  assert_ok(manta__space_init(sp, &spec, &err), &err);
  manta_value_fini(&spec);
}

static uint64_t add_bits(uint64_t sum, float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return manta__rng_mix(sum ^ bits);
}

static void lanes_are_close_to_libm(void **state)
{
  (void)state;
  for (double x = -80; x <= 0; x += 0.37) {
    double off = manta__lane_exp((float)x) / exp((float)x) - 1;
    assert_true(fabs(off) < 2e-6);
  }
  assert_true(manta__lane_exp(-INFINITY) < 1e-37f);
  for (double x = 1e-30; x < 1e30; x *= 1.7)
    assert_true(fabs(manta__lane_log((float)x) - log((float)x)) < 4e-7 * fmax(1, fabs(log(x))));
  for (double x = -6; x <= 6; x += 0.01)
    assert_true(fabs(manta__lane_erf((float)x) - erf((float)x)) < 1e-6);
}

/* The sums were taken once; a CPU, a compiler or an option that gives other bits shows here. */
static void lanes_have_the_same_bits_everywhere(void **state)
{
  (void)state;
  uint64_t sum = 0;
  float many[MANTA__LANES];
  for (int i = 0; i < 4096; i++) {
    float x = (float)(manta__rng_mix((uint64_t)i) >> 40) * 0x1p-20f; // in [0, 16)
    sum = add_bits(sum, manta__lane_exp(-x));
    sum = add_bits(sum, manta__lane_log(x + 0x1p-10f));
    sum = add_bits(sum, manta__lane_erf(x / 4));
    many[i % MANTA__LANES] = manta__lane_exp(-x);
    if (i % MANTA__LANES == MANTA__LANES - 1)
      sum = add_bits(add_bits(sum, manta__lanes_sum(many)), manta__lanes_max(many));
  }
  assert_int_equal(sum, UINT64_C(0x803a3027b897a89c));
}

static void draw_points(const struct manta__space *sp, double points[][DIMS], int n)
{
  for (int i = 0; i < n; i++)
    manta__space_draw(sp, 7, (uint64_t)i, points[i]);
}

/* Over one dimension of the space at a time, on the scale of its draws. */
static double integral(const struct manta__parzen *p, double from, double to, int steps)
{
  double sum = 0;
  for (int i = 0; i < steps; i++) {
    double x = from + (to - from) * (i + 0.5) / steps, log;
    manta__parzen_log(p, &x, 1, &log);
    sum += exp(log) / steps;
  }
  return sum;
}

static void a_density_integrates_to_one(void **state)
{
  (void)state;
  static const struct {
    const char *space;
    double from, to;
    int steps;
  } cases[] = {{"{\"x\":{\"$range\":{\"low\":-5,\"high\":5}}}", -5, 5, 4000},
               {"{\"n\":{\"$range\":{\"low\":1,\"high\":8,\"int\":true}}}", 0.5, 8.5, 8}};
  double points[SAMPLES][DIMS];
  const double *where[SAMPLES];
  manta_error err = MANTA_ERROR_INIT;
  for (size_t i = 0; i < 2; i++) {
    struct manta__space sp;
    struct manta__parzen near, far;
    read_space(&sp, cases[i].space);
    assert_ok(manta__parzen_init(&near, &sp, 20, &err), &err);
    assert_ok(manta__parzen_init(&far, &sp, SAMPLES, &err), &err);
    for (int k = 0; k < SAMPLES; k++) {
      manta__space_draw(&sp, 3, (uint64_t)k, points[k]);
      where[k] = points[k];
      manta__parzen_add(&far, k, points[k]);
    }
    manta__parzen_age(&far, SAMPLES - 1);
    manta__parzen_surround(&near, where, 20);
    assert_true(fabs(integral(&near, cases[i].from, cases[i].to, cases[i].steps) - 1) < 1e-3);
    assert_true(fabs(integral(&far, cases[i].from, cases[i].to, cases[i].steps) - 1) < 1e-3);
    manta__parzen_fini(&near);
    manta__parzen_fini(&far);
    manta__space_fini(&sp);
  }
}

/* A density that has lost samples is the one that never had them. */
static void what_was_dropped_is_forgotten(void **state)
{
  (void)state;
  double points[SAMPLES][DIMS], at[10][DIMS], one[10], other[10];
  struct manta__space sp;
  struct manta__parzen a, b;
  manta_error err = MANTA_ERROR_INIT;
  read_space(&sp, SPACE);
  draw_points(&sp, points, SAMPLES);
  for (int i = 0; i < 10; i++)
    manta__space_draw(&sp, 9, (uint64_t)i, at[i]);
  assert_ok(manta__parzen_init(&a, &sp, SAMPLES, &err), &err);
  assert_ok(manta__parzen_init(&b, &sp, SAMPLES, &err), &err);
  for (int i = 0; i < SAMPLES; i++)
    manta__parzen_add(&a, i, points[i]);
  manta__parzen_age(&a, SAMPLES - 1);
  manta__parzen_log(&a, at[0], 10, other);
  manta__parzen_drop_oldest(&a);
  for (int i = 1; i < SAMPLES; i++)
    if (i % 3 == 0)
      manta__parzen_drop(&a, i);
    else
      manta__parzen_add(&b, i, points[i]);
  manta__parzen_drop(&a, 3); // it has gone
  assert_int_equal(a.kernels, b.kernels);
  manta__parzen_age(&a, SAMPLES - 1);
  manta__parzen_age(&b, SAMPLES - 1);
  manta__parzen_log(&a, at[0], 10, one);
  double changed = 0;
  for (int i = 0; i < 10; i++)
    changed += fabs(one[i] - other[i]);
  assert_true(changed > 0.01);
  manta__parzen_log(&b, at[0], 10, other);
  for (int i = 0; i < 10; i++)
    assert_true(fabs(one[i] - other[i]) < 1e-4);
  manta__parzen_fini(&a);
  manta__parzen_fini(&b);
  manta__space_fini(&sp);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lanes_are_close_to_libm),
      cmocka_unit_test(lanes_have_the_same_bits_everywhere),
      cmocka_unit_test(a_density_integrates_to_one),
      cmocka_unit_test(what_was_dropped_is_forgotten),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
