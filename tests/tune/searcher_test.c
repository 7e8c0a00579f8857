/* SPDX-License-Identifier: Apache-2.0
 *
 * Searchers: they find what is there to be found, repeat themselves, and bear what trials do.
 */
#include <manta/tune.h>

#include "tune/searcher.h"

#include "test.h"

#define MIXED                                                                                      \
  "{\"x\":{\"$range\":{\"low\":-5,\"high\":5}},\"n\":{\"$range\":{\"low\":0,\"high\":10,"          \
  "\"int\":true}},\"g\":{\"$normal\":{\"mean\":1,\"sd\":2}},\"c\":{\"$choice\":[\"a\",{\"y\":"     \
  "{\"$range\":{\"low\":1e-3,\"high\":10,\"log\":true}}},\"b\"]}}"
#define DIMS 5

static const char *const learners[] = {"tpe", "cmaes", "gp"};

static void read_space(struct manta__space *sp, const char *json)
{
  manta_value spec = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_from_json(&spec, json, strlen(json), &err), &err);
  assert_ok(manta__space_init(sp, &spec, &err), &err);
  manta_value_fini(&spec);
}

static struct manta__searcher *make(const char *name, const struct manta__space *sp, uint64_t seed)
{
  struct manta__searcher *s = NULL;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__search_config config = {.seed = seed};
  assert_ok(manta__searcher_create(&s, name, sp, &config, &err), &err);
  return s;
}

/* Least, 0, at x = 2, n = 7, g = 0, c = {"y": 0.1}. */
static double bowl(const double *p)
{
  double far = p[3] == 1 ? fabs(log10(p[4]) + 1) : 2;
  return (p[0] - 2) * (p[0] - 2) + (p[1] - 7) * (p[1] - 7) / 4 + p[2] * p[2] + far;
}

static void check_point(const struct manta__space *sp, const double *p)
{
  assert_true(p[0] >= -5 && p[0] <= 5);
  assert_true(p[1] >= 0 && p[1] <= 10 && p[1] == round(p[1]));
  assert_true(isfinite(p[2]));
  assert_true(p[3] == 0 || p[3] == 1 || p[3] == 2);
  assert_true(p[3] == 1 ? p[4] >= 1e-3 && p[4] <= 10 : isnan(p[4]));
  assert_int_equal(sp->count, DIMS);
}

static double search(struct manta__searcher *s, const struct manta__space *sp, int trials)
{
  double best = INFINITY;
  manta_error err = MANTA_ERROR_INIT;
  for (int i = 0; i < trials; i++) {
    double p[DIMS];
    assert_ok(manta__searcher_propose(s, (uint64_t)i, p, &err), &err);
    check_point(sp, p);
    best = fmin(best, bowl(p));
    manta__searcher_observe(s, (uint64_t)i, bowl(p));
  }
  return best;
}

#define UNIT "{\"$range\":{\"low\":0,\"high\":1}}"

/* Each is 0 where it is least. */
static double branin(const double *p)
{
  double u = p[0] * 15 - 5, v = p[1] * 15 - 5.1 / (4 * M_PI * M_PI) * u * u + 5 / M_PI * u - 6;
  return v * v + 10 * (1 - 1 / (8 * M_PI)) * cos(u) + 10 - 0.397887;
}

static double valley(const double *p)
{
  double sum = 0;
  for (int i = 0; i < 3; i++) {
    double a = p[i] * 4 - 2, b = p[i + 1] * 4 - 2;
    sum += 100 * (b - a * a) * (b - a * a) + (1 - a) * (1 - a);
  }
  return sum;
}

static double branches(const double *p)
{
  return p[0] == 0 ? 0.3 + pow(p[1] - 0.2, 2) + pow(p[2] - 0.7, 2)
                   : pow(p[3] - 0.6, 2) + pow(p[4] - 0.3, 2);
}

static const struct {
  const char *name, *space;
  double (*f)(const double *p);
} functions[] = {
    {"branin", "{\"u\":" UNIT ",\"v\":" UNIT "}", branin},
    {"valley", "{\"a\":" UNIT ",\"b\":" UNIT ",\"c\":" UNIT ",\"d\":" UNIT "}", valley},
    {"branches",
     "{\"k\":{\"$choice\":[{\"a\":" UNIT ",\"b\":" UNIT "},{\"c\":" UNIT ",\"d\":" UNIT "}]}}",
     branches},
};

/* What is left of a function after 100 trials, median of 3 seeds. */
static double what_is_left(const char *name, const char *space, double (*f)(const double *p))
{
  struct manta__space sp;
  double best[3];
  manta_error err = MANTA_ERROR_INIT;
  read_space(&sp, space);
  for (int seed = 0; seed < 3; seed++) {
    struct manta__searcher *s = make(name, &sp, (uint64_t)seed);
    double found = INFINITY, p[DIMS];
    for (uint64_t i = 0; i < 100; i++) {
      assert_ok(manta__searcher_propose(s, i, p, &err), &err);
      found = fmin(found, f(p));
      manta__searcher_observe(s, i, f(p));
    }
    manta__searcher_destroy(s);
    int at = seed;
    for (; at > 0 && best[at - 1] > found; at--)
      best[at] = best[at - 1];
    best[at] = found;
  }
  manta__space_fini(&sp);
  return best[1];
}

static void learning_beats_chance(void **state)
{
  (void)state;
  for (size_t k = 0; k < 3; k++) {
    double chance = what_is_left("random", functions[k].space, functions[k].f);
    for (size_t i = 0; i < 3; i++) {
      double found = what_is_left(learners[i], functions[k].space, functions[k].f);
      if (!(found < chance / 2))
        fail_msg("%s on %s: %g, chance %g", learners[i], functions[k].name, found, chance);
    }
  }
}

/* Two searchers with the same calls; several trials run at once and end in another order. */
static void the_same_calls_give_the_same_points(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, MIXED);
  manta_error err = MANTA_ERROR_INIT;
  for (size_t i = 0; i < 3; i++) {
    struct manta__searcher *a = make(learners[i], &sp, 4), *b = make(learners[i], &sp, 4);
    for (uint64_t n = 0; n < 48; n++) {
      double p[DIMS], q[DIMS];
      assert_ok(manta__searcher_propose(a, n, p, &err), &err);
      assert_ok(manta__searcher_propose(b, n, q, &err), &err);
      for (int k = 0; k < DIMS; k++)
        assert_true(p[k] == q[k] || (isnan(p[k]) && isnan(q[k])));
      uint64_t ends = n ^ 3;
      manta__searcher_observe(a, ends, bowl(p));
      manta__searcher_observe(b, ends, bowl(p));
    }
    manta__searcher_destroy(a);
    manta__searcher_destroy(b);
  }
  manta__space_fini(&sp);
}

static void trials_at_once_do_not_try_the_same(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, MIXED);
  manta_error err = MANTA_ERROR_INIT;
  for (size_t i = 0; i < 3; i++) {
    struct manta__searcher *s = make(learners[i], &sp, 2);
    search(s, &sp, 30);
    double last[DIMS] = {0};
    for (uint64_t n = 30; n < 38; n++) {
      double p[DIMS];
      assert_ok(manta__searcher_propose(s, n, p, &err), &err);
      assert_true(p[0] != last[0]);
      memcpy(last, p, sizeof p);
    }
    manta__searcher_destroy(s);
  }
  manta__space_fini(&sp);
}

static void failed_trials_count_as_bad(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, MIXED);
  manta_error err = MANTA_ERROR_INIT;
  for (size_t i = 0; i < 3; i++) {
    struct manta__searcher *s = make(learners[i], &sp, 6);
    int right = 0;
    for (uint64_t n = 0; n < 100; n++) { // what is left of 0 fails
      double p[DIMS];
      assert_ok(manta__searcher_propose(s, n, p, &err), &err);
      manta__searcher_observe(s, n, p[0] < 0 ? NAN : bowl(p));
      right += n >= 50 && p[0] >= 0;
    }
    if (right < 40)
      fail_msg("%s tries what fails: %d of 50 did not", learners[i], right);
    manta__searcher_destroy(s);
  }
  manta__space_fini(&sp);
}

static void nothing_but_failures_is_borne(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, MIXED);
  manta_error err = MANTA_ERROR_INIT;
  for (size_t i = 0; i < 3; i++) {
    struct manta__searcher *s = make(learners[i], &sp, 6);
    for (uint64_t n = 0; n < 60; n++) {
      double p[DIMS];
      assert_ok(manta__searcher_propose(s, n, p, &err), &err);
      check_point(&sp, p);
      manta__searcher_observe(s, n, n % 2 ? INFINITY : NAN);
      manta__searcher_observe(s, n, 1);   // it has ended
      manta__searcher_observe(s, 999, 1); // there is none
    }
    manta__searcher_destroy(s);
  }
  manta__space_fini(&sp);
}

static void equal_values_are_borne(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, "{\"c\":{\"$choice\":[1,2]},\"n\":{\"$range\":{\"low\":3,\"high\":3}}}");
  manta_error err = MANTA_ERROR_INIT;
  for (size_t i = 0; i < 3; i++) {
    struct manta__searcher *s = make(learners[i], &sp, 6);
    for (uint64_t n = 0; n < 40; n++) {
      double p[2];
      assert_ok(manta__searcher_propose(s, n, p, &err), &err);
      assert_true(p[1] == 3 && (p[0] == 0 || p[0] == 1));
      manta__searcher_observe(s, n, 5);
    }
    manta__searcher_destroy(s);
  }
  manta__space_fini(&sp);
}

static void what_was_tried_elsewhere_counts(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, "{\"x\":{\"$range\":{\"low\":0,\"high\":1}}}");
  manta_error err = MANTA_ERROR_INIT;
  for (size_t i = 0; i < 3; i++) {
    struct manta__searcher *s = make(learners[i], &sp, 1);
    for (uint64_t n = 0; n < 24; n++) {
      double x = (double)n / 24;
      assert_ok(manta__searcher_add(s, n, &x, (x - 0.9) * (x - 0.9), &err), &err);
    }
    double sum = 0;
    for (uint64_t n = 24; n < 34; n++) {
      double x;
      assert_ok(manta__searcher_propose(s, n, &x, &err), &err);
      sum += x;
    }
    assert_true(sum / 10 > 0.6);
    manta__searcher_destroy(s);
  }
  manta__space_fini(&sp);
}

static void what_cannot_be_searched_is_refused(void **state)
{
  (void)state;
  struct manta__space grid, choice;
  struct manta__searcher *s = NULL;
  struct manta__search_config config = {0};
  manta_error err = MANTA_ERROR_INIT;
  read_space(&grid, "{\"deep\":{\"g\":{\"$grid\":[1,2]}}}");
  read_space(&choice, "{\"c\":{\"$choice\":[1,2]}}");
  assert_status(manta__searcher_create(&s, "tpe", &grid, &config, &err), MANTA_EINVAL);
  assert_non_null(strstr(err.message, "deep/g is a grid"));
  assert_status(manta__searcher_create(&s, "cmaes", &choice, &config, &err), MANTA_EINVAL);
  assert_non_null(strstr(err.message, "at least one range"));
  assert_status(manta__searcher_create(&s, "tpw", &choice, &config, &err), MANTA_EINVAL);
  assert_non_null(strstr(err.message, "hint: tpe"));
  assert_null(s);
  manta__space_fini(&grid);
  manta__space_fini(&choice);
}

static void memory_may_run_out(void **state)
{
  (void)state;
  struct manta__space sp;
  read_space(&sp, MIXED);
  manta_error err = MANTA_ERROR_INIT;
  struct manta__search_config config = {.seed = 1, .startup = 2};
  for (size_t i = 0; i < 3; i++) {
    manta_status st = MANTA_ENOMEM;
    long failed = -1;
    for (long n = 0; st == MANTA_ENOMEM; n++, failed++) {
      struct manta__searcher *s = NULL;
      manta__alloc_fail_after(n);
      st = manta__searcher_create(&s, learners[i], &sp, &config, &err);
      for (uint64_t t = 0; st >= 0 && t < 4; t++) {
        double p[DIMS];
        if ((st = manta__searcher_propose(s, t, p, &err)) >= 0)
          manta__searcher_observe(s, t, bowl(p));
      }
      manta__alloc_fail_after(-1);
      manta__searcher_destroy(s);
    }
    assert_ok(st, &err);
    assert_true(failed > 4);
  }
  manta__space_fini(&sp);
}

static void a_searcher_works_without_an_experiment(void **state)
{
  static const char json[] = "{\"x\":{\"$range\":{\"low\":-5,\"high\":5}},\"k\":7}";
  manta_value space = {0}, config = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_search *s = NULL;
  double best = INFINITY;
  assert_ok(manta_value_from_json(&space, json, sizeof json - 1, &err), &err);
  assert_ok(manta_search_open(&s, "tpe", &space, NULL, 3, &err), &err);
  assert_int_equal(manta_search_grid(s), 1);
  for (uint64_t i = 0; i < 60; i++) {
    assert_ok(manta_search_propose(s, i, &config, &err), &err);
    assert_int_equal(manta_value_as_int(manta_value_get(&config, "k"), 0), 7);
    double x = manta_value_as_real(manta_value_get(&config, "x"), NAN);
    best = fmin(best, (x - 2) * (x - 2));
    manta_search_observe(s, i, (x - 2) * (x - 2));
  }
  assert_true(best < 0.01);
  manta_search_close(s);
  s = NULL;
  assert_int_equal(manta_search_open(&s, "nosuch", &space, NULL, 3, &err), MANTA_EINVAL);
  assert_null(s);
  manta_search_close(s);
  manta_value_fini(&config);
  manta_value_fini(&space);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(learning_beats_chance),
      cmocka_unit_test(the_same_calls_give_the_same_points),
      cmocka_unit_test(trials_at_once_do_not_try_the_same),
      cmocka_unit_test(failed_trials_count_as_bad),
      cmocka_unit_test(nothing_but_failures_is_borne),
      cmocka_unit_test(equal_values_are_borne),
      cmocka_unit_test(what_was_tried_elsewhere_counts),
      cmocka_unit_test(what_cannot_be_searched_is_refused),
      cmocka_unit_test(memory_may_run_out),
      cmocka_unit_test(a_searcher_works_without_an_experiment),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
