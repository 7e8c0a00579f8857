/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker that is long in dying: its peers leave, the grace time passes, and only then is it gone.
 */
#include "group/membership.h"
#include "test.h"

#define SECOND 1000000000ll

struct bed {
  struct manta__membership g;
  struct manta__member places[2];
  int64_t now;
};

// Two ranks, of which rank 1 has left because of a lost peer and the grace time is over.
static void laggard_is_killed(struct bed *b, int retries, bool dying)
{
  struct manta__policy p = {.want = 2, .min = 2, .max_retries = retries, .grace_s = 0.25};
  manta_error err = MANTA_ERROR_INIT;
  manta__membership_init(&b->g, &p, b->places, 2);
  manta__membership_begin(&b->g, 0, b->now);
  manta__membership_formed(&b->g, (int64_t[]){7, 8}, 2);
  if (dying)
    manta__membership_dying(&b->g, 7);
  manta__membership_done(&b->g, 8, MANTA_EPEERLOST, &err);
  assert_int_equal(manta__membership_next(&b->g, b->now), MANTA__DO_ABORT);
  assert_int_equal(manta__membership_next(&b->g, b->now += SECOND), MANTA__DO_KILL);
}

static void gone(struct bed *b)
{
  manta_error why = MANTA_ERROR_INIT;
  manta_error_set(&why, MANTA_EWORKER, "rank 0 was killed by signal 9");
  manta__membership_gone(&b->g, 7, &why, b->now);
}

static void it_is_a_loss(void **state)
{
  struct bed b = {.now = SECOND};
  laggard_is_killed(&b, 1, true);
  gone(&b);
  assert_int_equal(manta__membership_next(&b.g, b.now), MANTA__DO_FORM);
  assert_int_equal(b.g.retries, 1);
}

static void it_is_named_when_retries_are_used_up(void **state)
{
  struct bed b = {.now = SECOND};
  laggard_is_killed(&b, 0, true);
  gone(&b);
  assert_int_equal(manta__membership_next(&b.g, b.now), MANTA__DO_FINISH);
  assert_int_equal(b.g.root.status, MANTA_EWORKER);
  assert_has(b.g.root.message, "signal 9");
}

// Nobody told of a death: a run that ranks gave up is still not one that went well.
static void without_word_of_it_the_run_still_fails(void **state)
{
  struct bed b = {.now = SECOND};
  laggard_is_killed(&b, 0, false);
  gone(&b);
  assert_int_equal(manta__membership_next(&b.g, b.now), MANTA__DO_FINISH);
  assert_int_equal(b.g.root.status, MANTA_EPEERLOST);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_is_a_loss),
      cmocka_unit_test(it_is_named_when_retries_are_used_up),
      cmocka_unit_test(without_word_of_it_the_run_still_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
