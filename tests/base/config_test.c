/* SPDX-License-Identifier: Apache-2.0
 *
 * Config structs of programs that were compiled against another header.
 */
#include "base/config.h"

#include "test.h"

struct old {
  size_t size;
  int workers;
};

struct new
{
  size_t size;
  int workers;
  double wait_s;
};

static void an_older_struct_gets_defaults_for_what_it_lacks(void **state)
{
  struct old given = {sizeof given, 3};
  struct new took = {1, 1, 1};
  manta_error err = MANTA_ERROR_INIT;
  size_t used = offsetof(struct old, workers) + sizeof given.workers;
  given.size = used;
  assert_ok(manta__config_take(&took, sizeof took, &given, "NEW_INIT", &err), &err);
  assert_int_equal(took.workers, 3);
  assert_true(took.wait_s == 0 && took.size == used);
}

static void what_is_not_initialised_or_newer_is_refused(void **state)
{
  struct new none = {0}, newer = {sizeof newer, 1, 2};
  struct old took;
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta__config_take(&took, sizeof took, &none, "OLD_INIT", &err), MANTA_EINVAL);
  assert_has(err.message, "use OLD_INIT");
  assert_status(manta__config_take(&took, sizeof took, &newer, "OLD_INIT", &err), MANTA_EINVAL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_older_struct_gets_defaults_for_what_it_lacks),
      cmocka_unit_test(what_is_not_initialised_or_newer_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
