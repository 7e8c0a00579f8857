/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/omp.h"

#include "test.h"

// In the place of a library that the program was linked with: main's symbols are found first.
static int told_omp, told_blas;

__attribute__((visibility("default"))) void omp_set_num_threads(int n);
__attribute__((visibility("default"))) void openblas_set_num_threads(int n);

void omp_set_num_threads(int n)
{
  told_omp = n;
}

void openblas_set_num_threads(int n)
{
  told_blas = n;
}

static void libraries_and_children_learn_the_number(void **state)
{
  setenv("OMP_NUM_THREADS", "64", 1);
  for (int n = 3; n > 0; n--) {
    char want[8];
    snprintf(want, sizeof want, "%d", n);
    manta__omp_set_threads(n);
    assert_string_equal(getenv("OMP_NUM_THREADS"), want);
    assert_int_equal(told_omp, n);
    assert_int_equal(told_blas, n);
  }
}

static void a_worker_has_its_part_of_the_cpus(void **state)
{
  assert_int_equal(manta__omp_share(16, 1), 16);
  assert_int_equal(manta__omp_share(16, 3), 5);
  assert_int_equal(manta__omp_share(2, 4), 1);
  assert_int_equal(manta__omp_share(3.9, 1), 3); // by quota
  assert_int_equal(manta__omp_share(0.5, 1), 1);
  assert_int_equal(manta__omp_share(8, 0), 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(libraries_and_children_learn_the_number),
      cmocka_unit_test(a_worker_has_its_part_of_the_cpus),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
