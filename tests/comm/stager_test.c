/* SPDX-License-Identifier: Apache-2.0
 *
 * Which way staging goes, by what calls are said to have taken.
 */
#include "comm/shm/team.h"
#include "test.h"

#define BYTES (256u << 10)
#define RING  (2u << 20)

// So many calls, each way at its price; how many went past the caches.
static int calls(struct manta__stager *s, int n, int64_t plain, int64_t past)
{
  int class = manta__stager_class(BYTES), went = 0;
  for (int i = 0; i < n; i++) {
    s->now = s->next >> class & 1;
    went += s->now;
    manta__stager_note(s, class, s->now ? past : plain, BYTES, RING);
  }
  return went;
}

static void the_cheaper_way_is_taken(void **state)
{
  struct manta__stager near = {0}, far = {0};
  calls(&near, 100, 10, 20);
  assert_true(calls(&near, 1000, 10, 20) < 50);
  calls(&far, 100, 90, 20);
  assert_true(calls(&far, 1000, 90, 20) > 950);
}

static void a_slow_first_call_does_not_decide(void **state)
{
  struct manta__stager s = {0};
  calls(&s, 1, 100000, 20);
  calls(&s, 100, 10, 20);
  assert_true(calls(&s, 1000, 10, 20) < 50);
}

static void it_changes_with_the_prices(void **state)
{
  struct manta__stager s = {0};
  calls(&s, 500, 10, 20);
  calls(&s, 600, 90, 20);
  assert_true(calls(&s, 1000, 90, 20) > 950);
  calls(&s, 600, 10, 20);
  assert_true(calls(&s, 1000, 10, 20) < 50);
}

static void sizes_are_apart(void **state)
{
  assert_int_equal(manta__stager_class(8191), -1);
  assert_int_equal(manta__stager_class(8192), 0);
  assert_int_equal(manta__stager_class((size_t)1 << 40), MANTA__STAGE_SIZES - 1);
  struct manta__stager s = {0};
  calls(&s, 500, 90, 20);
  assert_int_equal(s.next & ~(1u << manta__stager_class(BYTES)), 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_cheaper_way_is_taken),
      cmocka_unit_test(a_slow_first_call_does_not_decide),
      cmocka_unit_test(it_changes_with_the_prices),
      cmocka_unit_test(sizes_are_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
