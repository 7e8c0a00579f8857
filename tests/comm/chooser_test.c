/* SPDX-License-Identifier: Apache-2.0
 *
 * Which way calls go, by what they are said to have taken.
 */
#include <stdlib.h>

#include "comm/shm/chooser.h"
#include "test.h"

#define BYTES (256u << 10)
#define RING  (2u << 20)

enum { CACHED = MANTA__WAY_CACHED, PAST = MANTA__WAY_PAST, REMOTE = MANTA__WAY_REMOTE };

static int went[MANTA__COMM_WAYS]; // by the last `calls`

// So many all-reduces, each way at its price. As in a team: what is told holds a call later.
static void calls_of(struct manta__chooser *s, int n, size_t bytes,
                     const int64_t price[MANTA__COMM_WAYS])
{
  int choice = manta__chooser_find(true, bytes);
  memset(went, 0, sizeof went);
  for (int i = 0; i < n; i++) {
    enum manta__comm_way way = manta__chooser_way(s, choice);
    s->now = s->next;
    went[way]++;
    manta__chooser_note(s, choice, way, price[way] * (int64_t)(bytes / 1024), bytes, RING);
  }
}

static void calls(struct manta__chooser *s, int n, int64_t cached, int64_t past, int64_t remote)
{
  calls_of(s, n, BYTES, (int64_t[]){cached, past, remote});
}

static void the_fastest_way_is_taken(void **state)
{
  static const int64_t price[][MANTA__COMM_WAYS] = {{100, 200, 300}, {200, 300, 100},
                                                    {300, 100, 200}, {100, 110, 105},
                                                    {110, 105, 100}, {105, 100, 110}};
  for (size_t i = 0; i < sizeof price / sizeof *price; i++) {
    struct manta__chooser s = {0};
    int best = 0;
    for (int w = 1; w < MANTA__COMM_WAYS; w++)
      best = price[i][w] < price[i][best] ? w : best;
    calls_of(&s, 100, BYTES, price[i]);
    calls_of(&s, 2000, BYTES, price[i]);
    assert_true(went[best] > 1800);
    for (int w = 0; w < MANTA__COMM_WAYS; w++)
      assert_true(went[w] > 0); // each is tried again now and then
  }
}

// A way that is half as slow again is not tried out to the end.
static void a_slow_way_is_left_at_once(void **state)
{
  struct manta__chooser s = {0};
  calls(&s, 100, 10, 100, 100);
  calls(&s, 1000, 10, 100, 100);
  assert_true(went[PAST] + went[REMOTE] <= 16);
}

static void a_slow_first_call_does_not_decide(void **state)
{
  struct manta__chooser s = {0};
  calls(&s, 1, 100000, 20, 20);
  calls(&s, 100, 10, 20, 20);
  calls(&s, 1000, 10, 20, 20);
  assert_true(went[CACHED] > 950);
}

static void it_changes_with_the_prices(void **state)
{
  struct manta__chooser s = {0};
  calls(&s, 500, 10, 20, 30);
  calls(&s, 900, 90, 20, 30);
  calls(&s, 1000, 90, 20, 30);
  assert_true(went[PAST] > 900);
  calls(&s, 900, 90, 70, 30);
  calls(&s, 1000, 90, 70, 30);
  assert_true(went[REMOTE] > 900);
}

// What went another way than the one that is being tried says nothing of it.
static void only_the_way_that_was_gone_counts(void **state)
{
  struct manta__chooser s = {0};
  int choice = manta__chooser_find(true, BYTES);
  for (int i = 0; i < 1000; i++)
    manta__chooser_note(&s, choice, MANTA__WAY_REMOTE, 1, BYTES, RING);
  assert_int_equal(s.next, 0);
}

static void sizes_and_kinds_are_apart(void **state)
{
  assert_int_equal(manta__chooser_find(true, 8191), -1);
  assert_int_equal(manta__chooser_find(false, 8192), 0);
  assert_int_equal(manta__chooser_find(true, 8192), MANTA__CHOICE_SIZES);
  assert_int_equal(manta__chooser_find(true, (size_t)1 << 40), MANTA__CHOICES - 1);
  assert_int_equal(manta__chooser_find(false, (size_t)1 << 40), MANTA__CHOICE_SIZES - 1);
  struct manta__chooser s = {0};
  int choice = manta__chooser_find(true, BYTES);
  calls(&s, 500, 90, 20, 90);
  s.now = s.next;
  for (int i = 0; i < MANTA__CHOICES; i++) // larger ones of the kind begin where this one is
    assert_int_equal(manta__chooser_way(&s, i), i >= choice ? PAST : CACHED);
  calls_of(&s, 500, 2 * BYTES, (int64_t[]){90, 20, 10});
  calls_of(&s, 500, BYTES, (int64_t[]){90, 20, 90});
  assert_true(went[PAST] > 450);
}

static void only_large_all_reduces_are_remote(void **state)
{
  struct manta__chooser s = {0};
  calls_of(&s, 2000, 64u << 10, (int64_t[]){90, 90, 1});
  assert_int_equal(went[REMOTE], 0);
  calls_of(&s, 2000, 128u << 10, (int64_t[]){90, 90, 1});
  assert_true(went[REMOTE] > 1500);
}

static void what_cannot_go_remote_does_not(void **state)
{
  struct manta__chooser s = {0};
  calls(&s, 500, 90, 90, 10);
  manta__chooser_bar(&s);
  s.now = s.next;
  calls(&s, 1000, 90, 90, 10);
  assert_int_equal(went[REMOTE], 0);
}

// Memory that cannot be reached now and then: such calls go another way until the next try.
static void a_miss_ends_the_try(void **state)
{
  struct manta__chooser s = {0};
  int choice = manta__chooser_find(true, BYTES), missed = 0;
  for (int i = 0; i < 2000; i++) {
    enum manta__comm_way way = manta__chooser_way(&s, choice);
    s.now = s.next;
    missed += way == MANTA__WAY_REMOTE;
    if (way == MANTA__WAY_REMOTE)
      manta__chooser_miss(&s, choice, way);
    else
      manta__chooser_note(&s, choice, way, 1000, BYTES, RING);
  }
  assert_in_range(missed, 1, 20);
}

static void a_way_can_be_fixed(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__chooser s = {0}, t = {0}, none = {0}, wrong = {0};
  int choice = manta__chooser_find(true, BYTES);
  setenv("MANTA_COMM_WAY", "remote", 1);
  assert_ok(manta__chooser_init(&s, &err), &err);
  calls(&s, 1000, 10, 10, 90);
  assert_int_equal(went[REMOTE], 1000);
  assert_int_equal(manta__chooser_way(&s, manta__chooser_find(false, BYTES)), CACHED);
  manta__chooser_bar(&s);
  s.now = s.next;
  assert_int_equal(manta__chooser_way(&s, choice), CACHED);
  setenv("MANTA_COMM_WAY", "past", 1);
  assert_ok(manta__chooser_init(&t, &err), &err);
  assert_int_equal(manta__chooser_way(&t, manta__chooser_find(false, 8192)), PAST);
  setenv("MANTA_COMM_WAY", "sideways", 1);
  assert_status(manta__chooser_init(&wrong, &err), MANTA_EINVAL);
  unsetenv("MANTA_COMM_WAY");
  assert_ok(manta__chooser_init(&none, &err), &err);
  assert_int_equal(none.fixed, 0);
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_fastest_way_is_taken),
      cmocka_unit_test(a_slow_way_is_left_at_once),
      cmocka_unit_test(a_slow_first_call_does_not_decide),
      cmocka_unit_test(it_changes_with_the_prices),
      cmocka_unit_test(only_the_way_that_was_gone_counts),
      cmocka_unit_test(sizes_and_kinds_are_apart),
      cmocka_unit_test(only_large_all_reduces_are_remote),
      cmocka_unit_test(what_cannot_go_remote_does_not),
      cmocka_unit_test(a_miss_ends_the_try),
      cmocka_unit_test(a_way_can_be_fixed),
  };
  cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
