/* SPDX-License-Identifier: Apache-2.0
 *
 * Processors with more ranks than others: who moves where, seen from one rank whose peers are made
 * up.
 */
#include <sched.h>

#include "comm/shm/team.h"
#include "sys/thread.h"
#include "test.h"

#define N 6

static cpu_set_t allowed;
static int first = -1, second = -1;

static int find_two(void **ctx)
{
  assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  for (int i = 0; i < CPU_SETSIZE && second < 0; i++) {
    if (!CPU_ISSET(i, &allowed))
      continue;
    if (first < 0)
      first = i;
    else
      second = i;
  }
  return 0;
}

// As rank `rank` on the first processor, with `there` of N ranks (the lowest) on the second.
static bool moves(int rank, int there, int host_size)
{
  static struct manta__line line[N];
  struct manta__fabric f = {.host = {.size = host_size}};
  struct manta__team t = {
      .fabric = &f, .rank = rank, .size = N, .line = line, .turn = 1, .looks = 7};
  for (int r = 0; r < N; r++)
    atomic_store(&line[r].cpu, (uint32_t)(r < there ? second : first) + 1);
  do // the scheduler may have other plans
    manta__thread_move(first);
  while (sched_getcpu() != first);
  manta__team_even_out(&t);
  assert_int_equal(t.looks, 0);
  return sched_getcpu() == second;
}

// Now and then the scheduler moves us itself: most of the times count.
static bool mostly_moves(int rank, int there, int host_size)
{
  int moved = 0;
  for (int i = 0; i < 9; i++)
    moved += moves(rank, there, host_size);
  return moved > 4;
}

static void nobody_is_bound_by_it(void **ctx)
{
  cpu_set_t mask;
  if (second < 0)
    skip_because("this takes two processors");
  for (int there = 0; there <= N; there++)
    moves(N - 1, there, N);
  sched_getaffinity(0, sizeof mask, &mask);
  assert_true(CPU_EQUAL(&mask, &allowed));
}

static void the_last_of_too_many_moves(void **ctx)
{
  if (second < 0)
    skip_because("this takes two processors");
  assert_true(mostly_moves(N - 1, 0, N));
  assert_true(mostly_moves(N - 1, 2, N));
}

static void others_stay(void **ctx)
{
  if (second < 0)
    skip_because("this takes two processors");
  assert_false(mostly_moves(N - 1, 3, N));     // even
  assert_false(mostly_moves(N - 1, 5, N));     // the other has more
  assert_false(mostly_moves(N - 2, 1, N));     // not the last
  assert_false(mostly_moves(N - 1, 0, N + 1)); // a part of the host's ranks
}

static void a_processor_that_is_not_ours_is_left_alone(void **ctx)
{
  cpu_set_t one;
  if (second < 0)
    skip_because("this takes two processors");
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  assert_false(moves(N - 1, 0, N));
  manta__thread_move(second);
  assert_int_equal(sched_getcpu(), first);
  assert_int_equal(sched_setaffinity(0, sizeof allowed, &allowed), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nobody_is_bound_by_it),
      cmocka_unit_test(the_last_of_too_many_moves),
      cmocka_unit_test(others_stay),
      cmocka_unit_test(a_processor_that_is_not_ours_is_left_alone),
  };
  return cmocka_run_group_tests(tests, find_two, NULL);
}
