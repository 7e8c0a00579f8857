/* SPDX-License-Identifier: Apache-2.0
 *
 * The linear algebra of the searchers against its definition, and the descent on known functions.
 */
#include "tune/matrix.h"

#include "base/rng.h"
#include "test.h"
#include "tune/descend.h"

#define MOST 40

/* A symmetric positive definite matrix: r rᵀ + diagonal. */
static void make_spd(double *a, int n, uint64_t seed)
{
  double r[MOST * MOST];
  struct manta__rng rng = manta__rng_of(seed, (uint64_t)n);
  for (int i = 0; i < n * n; i++)
    r[i] = manta__rng_normal(&rng);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      a[i * n + j] = i == j;
      for (int k = 0; k < n; k++)
        a[i * n + j] += r[i * n + k] * r[j * n + k];
    }
}

static void a_factor_gives_back_its_matrix(void **state)
{
  (void)state;
  for (int n = 1; n <= MOST; n += 13) {
    double a[MOST * MOST], l[MOST * MOST], inverse[MOST * MOST];
    make_spd(a, n, 1);
    memcpy(l, a, sizeof a);
    assert_true(manta__matrix_factor(l, n));
    manta__matrix_invert(l, n, inverse);
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++) {
        double sum = 0, unit = 0;
        for (int k = 0; k <= (i < j ? i : j); k++)
          sum += l[i * n + k] * l[j * n + k];
        for (int k = 0; k < n; k++)
          unit += a[i * n + k] * inverse[k * n + j];
        assert_near(sum, a[i * n + j], 1e-9 * n);
        assert_near(unit, i == j, 1e-7 * n);
      }
  }
}

static void an_indefinite_matrix_has_none(void **state)
{
  (void)state;
  double a[4] = {1, 2, 2, 1}, nan[1] = {NAN};
  assert_false(manta__matrix_factor(a, 2));
  assert_false(manta__matrix_factor(nan, 1));
}

static void eigenvectors_give_back_their_matrix(void **state)
{
  (void)state;
  for (int n = 1; n <= 27; n += 13) {
    double a[MOST * MOST], used[MOST * MOST], values[MOST], v[MOST * MOST];
    make_spd(a, n, 2);
    memcpy(used, a, sizeof a);
    manta__matrix_eigen(used, n, values, v);
    for (int i = 0; i < n; i++)
      for (int j = 0; j < n; j++) {
        double sum = 0, unit = 0;
        for (int k = 0; k < n; k++) {
          sum += v[i * n + k] * values[k] * v[j * n + k];
          unit += v[k * n + i] * v[k * n + j];
        }
        assert_near(sum, a[i * n + j], 1e-9 * n);
        assert_near(unit, i == j, 1e-10 * n);
      }
  }
}

static double valley(void *ctx, const double *x, double *grad)
{
  ++*(int *)ctx;
  double a = x[1] - x[0] * x[0], b = 1 - x[0];
  grad[0] = -400 * x[0] * a - 2 * b;
  grad[1] = 200 * a;
  return 100 * a * a + b * b;
}

static void the_descent_finds_the_bottom_of_a_valley(void **state)
{
  (void)state;
  int calls = 0;
  double room[2 * (2 * MANTA__DESCEND_MEMORY + 6)], x[2] = {-1.2, 1};
  struct manta__descent to = {valley, &calls, 2, -5, 5, 200, room};
  assert_near(manta__descend(&to, x), 0, 1e-8);
  assert_near(x[0], 1, 1e-3);
  assert_true(calls < 150);
}

static void the_descent_stays_in_its_box(void **state)
{
  (void)state;
  int calls = 0;
  double room[2 * (2 * MANTA__DESCEND_MEMORY + 6)], x[2] = {-0.5, 0.5};
  struct manta__descent to = {valley, &calls, 2, -0.5, 0.5, 200, room};
  assert_near(manta__descend(&to, x), 0.25, 1e-3); // at (0.5, 0.25)
  assert_near(x[0], 0.5, 1e-9);
  assert_near(x[1], 0.25, 1e-2);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_factor_gives_back_its_matrix),
      cmocka_unit_test(an_indefinite_matrix_has_none),
      cmocka_unit_test(eigenvectors_give_back_their_matrix),
      cmocka_unit_test(the_descent_finds_the_bottom_of_a_valley),
      cmocka_unit_test(the_descent_stays_in_its_box),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
