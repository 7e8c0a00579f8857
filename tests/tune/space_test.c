/* SPDX-License-Identifier: Apache-2.0
 *
 * Search spaces: what is drawn, what configs look like, what is refused.
 */
#include "tune/space.h"

#include <manta/tune.h>

#include "test.h"

static void read_space(struct manta__space *sp, const char *json)
{
  manta_value spec = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_from_json(&spec, json, strlen(json), &err), &err);
  assert_ok(manta__space_init(sp, &spec, &err), &err);
  manta_value_fini(&spec);
}

static void assert_refused(const char *json, const char *why)
{
  manta_value spec = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct manta__space sp;
  assert_ok(manta_value_from_json(&spec, json, strlen(json), &err), &err);
  assert_true(manta__space_init(&sp, &spec, &err) < 0);
  if (!strstr(err.message, why))
    fail_msg("%s: \"%s\" does not say \"%s\"", json, err.message, why);
  manta_value_fini(&spec);
}

static void assert_config(const struct manta__space *sp, const double *point, const char *json)
{
  manta_value config = {0};
  manta_error err = MANTA_ERROR_INIT;
  char *text = NULL;
  assert_ok(manta__space_config(sp, point, &config, &err), &err);
  assert_ok(manta_value_to_json(&config, -1, &text, &err), &err);
  assert_string_equal(text, json);
  manta_free(text);
  manta_value_fini(&config);
}

#define CONDITIONAL                                                                                \
  "{\"opt\":{\"$choice\":[{\"sgd\":{\"m\":{\"$range\":{\"low\":0,\"high\":1}}}},\"adam\"]},"       \
  "\"n\":{\"$range\":{\"low\":1,\"high\":3,\"int\":true}},\"keep\":[1,\"x\"]}"

static void a_config_has_what_was_chosen(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, CONDITIONAL);
  assert_int_equal(sp.count, 3);
  assert_string_equal(sp.dims[1].path, "opt/sgd/m");
  assert_int_equal(sp.dims[1].parent, 0);
  assert_config(&sp, (double[]){0, 0.5, 2},
                "{\"opt\":{\"sgd\":{\"m\":0.5}},\"n\":2,\"keep\":[1,\"x\"]}");
  assert_config(&sp, (double[]){1, NAN, 3}, "{\"opt\":\"adam\",\"n\":3,\"keep\":[1,\"x\"]}");
  manta__space_fini(&sp);
  manta__space_fini(&sp);
}

static void a_dimension_counts_under_its_option(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, CONDITIONAL);
  int counted = 0;
  for (uint64_t i = 0; i < 100; i++) {
    double point[3];
    manta__space_draw(&sp, 1, i, point);
    assert_true((point[0] == 0) == !isnan(point[1]));
    counted += point[0] == 0;
  }
  assert_in_range(counted, 30, 70);
  manta__space_fini(&sp);
}

static void draws_follow_from_seed_number_and_path(void **state)
{
  (void)state;
  struct manta__space one, two;
  read_space(&one, "{\"a\":{\"$range\":{\"low\":0,\"high\":1}}}");
  read_space(&two, "{\"b\":{\"$normal\":{}},\"a\":{\"$range\":{\"low\":0,\"high\":1}}}");
  double p[2], q[2], r[2];
  manta__space_draw(&one, 7, 3, p);
  manta__space_draw(&two, 7, 3, q);
  assert_true(p[0] == q[1]);
  manta__space_draw(&one, 8, 3, r);
  assert_true(p[0] != r[0]);
  manta__space_draw(&one, 7, 4, r);
  assert_true(p[0] != r[0]);
  manta__space_fini(&one);
  manta__space_fini(&two);
}

static void integers_are_equally_likely(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, "{\"n\":{\"$range\":{\"low\":-1,\"high\":3,\"int\":true}}}");
  int seen[5] = {0};
  for (uint64_t i = 0; i < 5000; i++) {
    double x;
    manta__space_draw(&sp, 5, i, &x);
    assert_true(x == round(x) && x >= -1 && x <= 3);
    seen[(int)x + 1]++;
  }
  for (int i = 0; i < 5; i++)
    assert_in_range(seen[i], 880, 1120); // four deviations of 28
  manta__space_fini(&sp);
}

static void steps_and_logarithms_are_kept(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, "{\"q\":{\"$range\":{\"low\":0.3,\"high\":1.1,\"q\":0.25}},"
                  "\"l\":{\"$range\":{\"low\":1e-4,\"high\":1,\"log\":true}},"
                  "\"g\":{\"$normal\":{\"mean\":10,\"sd\":2,\"q\":0.5}}}");
  int small = 0;
  double sum = 0;
  for (uint64_t i = 0; i < 4000; i++) {
    double p[3];
    manta__space_draw(&sp, 9, i, p);
    assert_true(p[0] == 0.5 || p[0] == 0.75 || p[0] == 1.0);
    assert_true(p[1] >= 1e-4 && p[1] <= 1);
    assert_true(p[2] * 2 == round(p[2] * 2));
    small += p[1] < 1e-2;
    sum += p[2];
  }
  assert_in_range(small, 1870, 2130);
  assert_near(sum / 4000, 10, 0.15);
  manta__space_fini(&sp);
}

static void the_scale_goes_there_and_back(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp,
             "{\"a\":{\"$range\":{\"low\":2,\"high\":9,\"int\":true}},"
             "\"b\":{\"$range\":{\"low\":0.001,\"high\":5,\"log\":true}},\"c\":{\"$normal\":{}},"
             "\"d\":{\"$range\":{\"low\":1,\"high\":64,\"int\":true,\"log\":true}}}");
  for (uint64_t i = 0; i < 200; i++) {
    double p[4];
    manta__space_draw(&sp, 3, i, p);
    for (int k = 0; k < 4; k++) {
      double u = manta__dim_to_scale(&sp.dims[k], p[k]), from, to;
      assert_near(manta__dim_from_scale(&sp.dims[k], u), p[k], 1e-12 * fabs(p[k]) + 1e-12);
      manta__dim_cell(&sp.dims[k], p[k], &from, &to);
      assert_true(sp.dims[k].q > 0 ? from < u && u < to : from == u && to == u);
    }
  }
  manta__space_fini(&sp);
}

static void a_grid_is_walked_in_order(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, "{\"a\":{\"$grid\":[10,20]},\"r\":{\"$range\":{\"low\":0,\"high\":1}},"
                  "\"b\":{\"$grid\":[\"x\",\"y\",\"z\"]}}");
  assert_int_equal(sp.grid, 6);
  for (uint64_t i = 0; i < 12; i++) {
    double p[3];
    manta__space_draw(&sp, 1, i, p);
    assert_true(p[0] == (double)(i % 6 / 3) && p[2] == (double)(i % 3));
  }
  manta__space_fini(&sp);
}

static void literals_and_calls_stay(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, "{\"a\":{\"$literal\":{\"$choice\":[]}},\"f\":{\"$call\":3}}");
  assert_int_equal(sp.count, 0);
  assert_config(&sp, NULL, "{\"a\":{\"$choice\":[]},\"f\":{\"$call\":3}}");
  manta__space_fini(&sp);
}

static void what_makes_no_sense_is_refused(void **state)
{
  (void)state;
  assert_refused("{\"a\":{\"b\":{\"$choice\":[]}}}", "a/b: a choice needs at least one option");
  assert_refused("{\"a\":{\"$grid\":[]}}", "a: a grid needs at least one value");
  assert_refused("{\"a\":{\"$range\":{\"low\":2,\"high\":1}}}", "ends at 1, before it begins (2)");
  assert_refused("{\"a\":{\"$range\":{\"low\":0,\"high\":1,\"log\":true}}}", "begins above 0");
  assert_refused("{\"a\":{\"$range\":{\"low\":0.1,\"high\":0.2,\"q\":1}}}", "no multiple of 1");
  assert_refused("{\"a\":{\"$range\":{\"low\":0,\"high\":1,\"q\":-1}}}", "positive");
  assert_refused("{\"a\":{\"$range\":{\"low\":0}}}", "two finite ends");
  assert_refused("{\"a\":{\"$normal\":{\"sd\":0}}}", "deviation above 0");
  assert_refused("{\"a\":{\"$choice\":[{\"$grid\":[1]}]}}", "a grid inside of a choice");
  assert_refused("[1]", "a map");
}

static void memory_may_run_out(void **state)
{
  (void)state;
  manta_value spec = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_from_json(&spec, CONDITIONAL, strlen(CONDITIONAL), &err), &err);
  manta_status st = MANTA_ENOMEM;
  long failed = -1;
  for (long n = 0; st == MANTA_ENOMEM; n++, failed++) {
    struct manta__space sp;
    manta__alloc_fail_after(n);
    st = manta__space_init(&sp, &spec, &err);
    manta__alloc_fail_after(-1);
    if (st >= 0)
      manta__space_fini(&sp);
  }
  assert_ok(st, &err);
  assert_true(failed > 3);
  manta_value_fini(&spec);
}

static void put(manta_value *space, const char *key, manta_status st, manta_value *domain)
{
  assert_int_equal(st, MANTA_OK);
  assert_int_equal(manta_value_put(space, key, domain), MANTA_OK);
  manta_value_fini(domain);
}

// What the public calls make is what a space is read from.
static void domains_are_made_by_calls(void **state)
{
  (void)state;
  manta_value items[] = {manta_value_int(4), manta_value_int(8)}, space = {0}, d = {0};
  manta_value list = {.type = MANTA_LIST, .count = 2, .u.items = items};
  manta_value odd = MANTA_MAP(MANTA_KV("$grid", list));
  manta_error err = MANTA_ERROR_INIT;
  struct manta__space sp;
  assert_int_equal(manta_value_set_map(&space), MANTA_OK);
  put(&space, "u", manta_space_uniform(&d, 0, 1, 0.25, false), &d);
  put(&space, "n", manta_space_normal(&d, 2, 0.5, 0), &d);
  put(&space, "i", manta_space_randint(&d, 1, 9, 0, true), &d);
  put(&space, "c", manta_space_choice(&d, &list), &d);
  put(&space, "g", manta_space_grid(&d, &list), &d);
  put(&space, "l", manta_space_literal(&d, &odd), &d);
  assert_ok(manta__space_init(&sp, &space, &err), &err);
  assert_int_equal(sp.count, 5);
  assert_int_equal((int)sp.grid, 2);
  assert_int_equal(sp.dims[1].kind, MANTA__DIM_NORMAL);
  assert_near(sp.dims[1].low, 2, 0);
  assert_near(sp.dims[1].high, 0.5, 0);
  assert_true(sp.dims[2].integer && sp.dims[2].log);
  assert_config(&sp, (double[]){0.5, 1.5, 9, 1, 0},
                "{\"u\":0.5,\"n\":1.5,\"i\":9,\"c\":8,\"g\":4,\"l\":{\"$grid\":[4,8]}}");
  manta__space_fini(&sp);
  manta_value_fini(&space);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_config_has_what_was_chosen),
      cmocka_unit_test(a_dimension_counts_under_its_option),
      cmocka_unit_test(draws_follow_from_seed_number_and_path),
      cmocka_unit_test(integers_are_equally_likely),
      cmocka_unit_test(steps_and_logarithms_are_kept),
      cmocka_unit_test(the_scale_goes_there_and_back),
      cmocka_unit_test(a_grid_is_walked_in_order),
      cmocka_unit_test(literals_and_calls_stay),
      cmocka_unit_test(what_makes_no_sense_is_refused),
      cmocka_unit_test(memory_may_run_out),
      cmocka_unit_test(domains_are_made_by_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
