/* SPDX-License-Identifier: Apache-2.0
 *
 * Alignment: the rules of train/align.h one by one, then against a model that keeps everything and
 * is too simple to be wrong.
 */
#include "test.h"
#include "train/align.h"

static uint64_t rng_state = 42;

static uint32_t pick(uint32_t n)
{
  rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(rng_state >> 33) % n;
}

static void start(struct manta__align *a, int world, bool drop)
{
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__align_init(a, drop, &err), &err);
  assert_ok(manta__align_begin(a, world, 0, false, &err), &err);
}

/* The payload says who and when, so that a row in a wrong place is seen. */
static void push(struct manta__align *a, int rank, int64_t i)
{
  manta_error err = MANTA_ERROR_INIT;
  int64_t data[2] = {rank, i};
  assert_ok(manta__align_push(a, rank, i, data, sizeof data, &err), &err);
}

static void check_rows(const struct manta__rowset *s)
{
  int have = 0;
  for (int r = 0; r < s->world; r++) {
    int64_t data[2];
    if (!s->row[r])
      continue;
    have++;
    assert_int_equal(s->row[r]->len, sizeof data);
    memcpy(data, s->row[r]->data, sizeof data);
    assert_int_equal(data[0], r);
    assert_int_equal(data[1], s->iteration);
  }
  assert_int_equal(s->have, have);
}

/* Takes what is ready: which must be iterations from..to, `have` rows each (-1: any). */
static void take(struct manta__align *a, int64_t from, int64_t to, int have)
{
  struct manta__rowset *last, *s = manta__align_take(a, &last), *next;
  for (int64_t i = from; i <= to; i++, s = next) {
    if (!s)
      fail_msg("iteration %lld is missing", (long long)i);
    assert_int_equal(s->iteration, i);
    check_rows(s);
    if (have >= 0)
      assert_int_equal(s->have, have);
    if (i == to)
      assert_ptr_equal(s, last);
    next = s->next;
    manta__rowset_free(s);
  }
  if (s)
    fail_msg("iteration %lld came too early", (long long)s->iteration);
}

static void an_iteration_goes_out_with_its_last_row(void **ctx)
{
  struct manta__align a;
  start(&a, 3, false);
  push(&a, 2, 1);
  push(&a, 2, 2);
  push(&a, 0, 1);
  take(&a, 1, 0, 0);
  push(&a, 1, 1);
  take(&a, 1, 1, 3);
  push(&a, 1, 2);
  push(&a, 0, 2);
  take(&a, 2, 2, 3);
  assert_string_equal(a.warning, "");
  manta__align_fini(&a);
  manta__align_fini(&a);
}

static void any_interleaving_gives_each_iteration_once(void **ctx)
{
  for (int round = 0; round < 50; round++) {
    struct manta__align a;
    int world = 1 + (int)pick(6);
    int64_t at[6] = {0}, taken = 0;
    start(&a, world, false);
    for (int left = world * 200; left > 0;) {
      int r = (int)pick((uint32_t)world);
      for (uint32_t burst = pick(20); burst > 0 && at[r] < 200; burst--, left--)
        push(&a, r, ++at[r]);
      int64_t least = 200;
      for (int k = 0; k < world; k++)
        least = at[k] < least ? at[k] : least;
      take(&a, taken + 1, least, world);
      taken = least;
    }
    assert_int_equal(taken, 200);
    assert_int_equal(a.bytes, 0);
    manta__align_fini(&a);
  }
}

static void too_far_behind_goes_out_with_gaps_and_one_warning(void **ctx)
{
  struct manta__align a;
  start(&a, 3, false);
  for (int64_t i = 1; i <= MANTA__ALIGN_WINDOW; i++) {
    push(&a, 0, i);
    push(&a, 2, i);
  }
  take(&a, 1, 0, 0);
  push(&a, 0, MANTA__ALIGN_WINDOW + 1);
  take(&a, 1, 1, 2);
  assert_has(a.warning, "iteration 1 has no row of rank 1;");
  a.warning[0] = 0;
  push(&a, 0, MANTA__ALIGN_WINDOW + 2);
  take(&a, 2, 2, 2);
  assert_string_equal(a.warning, ""); // once
  push(&a, 1, 1);                     // late: counted
  push(&a, 1, 2);
  take(&a, 3, 2, 0);
  push(&a, 1, 3);
  take(&a, 3, 3, 3);
  manta__align_fini(&a);
}

static void who_has_ended_is_not_waited_for(void **ctx)
{
  struct manta__align a;
  start(&a, 2, false);
  push(&a, 0, 1);
  push(&a, 0, 2);
  push(&a, 1, 1);
  take(&a, 1, 1, 2);
  manta__align_end(&a, 1);
  take(&a, 2, 2, 1);
  push(&a, 0, 3);
  take(&a, 3, 3, 1);
  assert_has(a.warning, "rank 1");
  manta__align_end(&a, 5); // no such rank
  manta__align_end(&a, -1);
  manta__align_fini(&a);
}

static void a_rewind_voids_what_lies_beyond(void **ctx)
{
  struct manta__align a;
  struct manta__rowset *last, *s;
  manta_error err = MANTA_ERROR_INIT;
  start(&a, 2, false);
  for (int64_t i = 1; i <= 10; i++)
    push(&a, 0, i);
  for (int64_t i = 1; i <= 4; i++)
    push(&a, 1, i);
  take(&a, 1, 4, 2);
  assert_ok(manta__align_begin(&a, 3, 6, true, &err), &err);
  take(&a, 5, 6, 1); // before the checkpoint: with gaps
  for (int r = 0; r < 3; r++)
    push(&a, r, 7);
  s = manta__align_take(&a, &last);
  assert_int_equal(s->iteration, 7);
  assert_int_equal(s->world, 3);
  assert_int_equal(s->rewound_to, 6);
  check_rows(s);
  manta__rowset_free(s);
  for (int r = 0; r < 3; r++)
    push(&a, r, 8);
  s = manta__align_take(&a, &last);
  assert_int_equal(s->rewound_to, -1);
  manta__rowset_free(s);
  manta__align_fini(&a);
}

static void a_rewind_voids_what_is_aligned_and_not_taken(void **ctx)
{
  struct manta__align a;
  manta_error err = MANTA_ERROR_INIT;
  start(&a, 1, false);
  for (int64_t i = 1; i <= 9; i++)
    push(&a, 0, i);
  assert_ok(manta__align_begin(&a, 1, 4, true, &err), &err);
  take(&a, 1, 4, 1);
  push(&a, 0, 5);
  struct manta__rowset *last, *s = manta__align_take(&a, &last);
  assert_int_equal(s->iteration, 5);
  assert_int_equal(s->rewound_to, 4);
  manta__rowset_free(s);
  manta__align_fini(&a);
}

static void rows_out_of_order_are_refused(void **ctx)
{
  struct manta__align a;
  manta_error err = MANTA_ERROR_INIT;
  start(&a, 2, false);
  push(&a, 0, 1);
  static const struct {
    int rank;
    int64_t i;
  } bad[] = {{0, 1}, {0, 3}, {1, 2}, {1, 0}, {1, -1}, {2, 1}, {-1, 1}, {1, INT64_MAX}};
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
    assert_status(manta__align_push(&a, bad[k].rank, bad[k].i, "", 0, &err), MANTA_EPROTO);
    assert_has(err.message, "out of order");
  }
  push(&a, 1, 1);
  take(&a, 1, 1, 2);
  manta__align_fini(&a);
}

static void uneven_counts_are_named(void **ctx)
{
  struct manta__align a;
  manta_error err = MANTA_ERROR_INIT;
  start(&a, 3, false);
  push(&a, 0, 1);
  push(&a, 0, 2);
  push(&a, 1, 1);
  push(&a, 1, 2);
  // A rank that never reports is common (`if rank == 0`): a warning, an error only if asked.
  assert_ok(manta__align_check(&a, false, &err), &err);
  assert_has(a.warning, "1 of 3 ranks reported nothing");
  assert_status(manta__align_check(&a, true, &err), MANTA_EUNEVEN);
  push(&a, 2, 1);
  assert_status(manta__align_check(&a, false, &err), MANTA_EUNEVEN);
  assert_has(err.message, "rank 0: 2, rank 1: 2, rank 2: 1");
  push(&a, 2, 2);
  assert_ok(manta__align_check(&a, true, &err), &err);
  manta__align_fini(&a);
}

static void names_of_many_ranks_stay_in_bounds(void **ctx)
{
  struct manta__align a;
  manta_error err = MANTA_ERROR_INIT;
  start(&a, 3000, false);
  push(&a, 0, 1);
  push(&a, 0, 2);
  for (int r = 1; r < 3000; r++)
    if (r % 2)
      push(&a, r, 1);
  for (int r = 1; r < 3000; r++)
    manta__align_end(&a, r);
  assert_true(strlen(a.warning) < sizeof a.warning);
  assert_has(a.warning, "rank 2 4 6 ");
  assert_has(a.warning, "delivered with gaps"); // the sentence has its end
  assert_status(manta__align_check(&a, false, &err), MANTA_EUNEVEN);
  assert_has(err.message, "rank 1: 1");
  manta__align_fini(&a);
}

static void waiting_rows_are_capped_in_bytes(void **ctx)
{
  struct manta__align a;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__rowset *last, *s, *next;
  size_t size = 1 << 20;
  void *data = calloc(1, size);
  int64_t out = 0;
  start(&a, 2, false);
  for (int64_t i = 1; i <= 200; i++) {
    assert_ok(manta__align_push(&a, 0, i, data, size, &err), &err);
    assert_true(a.bytes <= MANTA__ALIGN_BYTES);
    for (s = manta__align_take(&a, &last); s; s = next, out++) {
      assert_int_equal(s->iteration, out + 1);
      next = s->next;
      manta__rowset_free(s);
    }
  }
  assert_true(out >= 200 - (int64_t)(MANTA__ALIGN_BYTES / size) && out < 200);
  assert_has(a.warning, "iteration 1 has no row of rank 1");
  free(data);
  manta__align_fini(&a);
}

static void without_a_listener_rows_are_only_counted(void **ctx)
{
  struct manta__align a;
  manta_error err = MANTA_ERROR_INIT;
  start(&a, 2, true);
  for (int64_t i = 1; i <= 5000; i++)
    push(&a, 0, i);
  assert_int_equal(a.bytes, 0);
  for (int64_t i = 1; i <= 4999; i++)
    push(&a, 1, i);
  take(&a, 1, 0, 0);
  assert_int_equal(a.next, 5000);
  assert_status(manta__align_check(&a, false, &err), MANTA_EUNEVEN);
  push(&a, 1, 5000);
  assert_ok(manta__align_check(&a, true, &err), &err);
  assert_string_equal(a.warning, "");
  manta__align_fini(&a);
}

static void starving_leaves_no_half_state(void **ctx)
{
  struct manta__align a;
  manta_error err = MANTA_ERROR_INIT;
  FOR_EACH_OOM(manta__align_init(&a, false, &err), (void)0);
  FOR_EACH_OOM(manta__align_begin(&a, 3, 0, false, &err), (void)0);
  // A row that found no memory is counted and missing; nothing else is.
  int starved = 0;
  for (int64_t i = 1; i <= 50; i++) {
    manta__alloc_fail_after((long)(i % 4));
    starved += manta__align_push(&a, 0, i, "x", 1, &err) == MANTA_ENOMEM;
    manta__alloc_fail_after(-1);
    for (int r = 1; r < 3; r++) {
      manta__alloc_fail_after((long)(i % 3));
      starved += manta__align_push(&a, r, i, "x", 1, &err) == MANTA_ENOMEM;
      manta__alloc_fail_after(-1);
    }
  }
  assert_true(starved > 10);
  struct manta__rowset *last, *s = manta__align_take(&a, &last), *next;
  int64_t before = 0;
  for (; s; s = next) {
    assert_true(s->iteration > before);
    before = s->iteration;
    int have = 0;
    for (int r = 0; r < 3; r++)
      have += s->row[r] != NULL;
    assert_int_equal(s->have, have);
    assert_true(have > 0);
    next = s->next;
    manta__rowset_free(s);
  }
  assert_int_equal(a.bytes, 0);
  assert_ok(manta__align_check(&a, true, &err), &err);
  manta__align_fini(&a);
}

// --- against a model ----------------------------------------------------------------------------

#define RANKS 4
#define LONG  6000

/* All rows that ever came, and what has gone out. */
struct model {
  int world;
  int64_t base, out, newest; /* out: the last iteration that went out */
  int64_t have[RANKS];       /* the last row of each rank */
  bool ended[RANKS];
  bool row[RANKS][LONG + 1]; /* came before its iteration went out */
};

static bool model_ready(const struct model *m, int64_t i)
{
  for (int r = 0; r < m->world; r++)
    if (!m->ended[r] && m->have[r] < i)
      return false;
  return true;
}

// What must come out now; `at_least`: so far it must go, complete or not.
static int64_t model_goal(const struct model *m, int64_t at_least)
{
  int64_t to = m->out;
  while (to < m->newest && (to < at_least || model_ready(m, to + 1)))
    to++;
  return to;
}

static void compare(struct manta__align *a, struct model *m, int64_t to)
{
  struct manta__rowset *last, *s = manta__align_take(a, &last), *next;
  for (; m->out < to; s = next) {
    m->out++;
    assert_non_null(s);
    assert_int_equal(s->iteration, m->out);
    check_rows(s);
    for (int r = 0; r < s->world; r++)
      assert_int_equal(s->row[r] != NULL, m->row[r][m->out]);
    next = s->next;
    manta__rowset_free(s);
  }
  assert_null(s);
}

static void model_push(struct manta__align *a, struct model *m, int r)
{
  int64_t i = m->have[r] + 1;
  if (i > LONG || m->ended[r])
    return;
  push(a, r, i);
  m->have[r] = i;
  m->newest = i > m->newest ? i : m->newest;
  int64_t forced = i - MANTA__ALIGN_WINDOW;
  if (i > m->out && i > forced)
    m->row[r][i] = true;
  compare(a, m, model_goal(m, forced));
}

static void model_rewind(struct manta__align *a, struct model *m)
{
  manta_error err = MANTA_ERROR_INIT;
  int64_t base = (int64_t)pick((uint32_t)m->newest + 1);
  assert_ok(manta__align_begin(a, 1 + (int)pick(RANKS), base, true, &err), &err);
  compare(a, m, base > m->out ? base : m->out); // with gaps, as it was
  memset(m->ended, 0, sizeof m->ended);
  m->world = a->world;
  m->base = m->out = m->newest = base;
  for (int r = 0; r < RANKS; r++) {
    m->have[r] = base;
    memset(&m->row[r][base + 1], 0, (size_t)(LONG - base));
  }
}

static void random_runs_agree_with_the_model(void **ctx)
{
  static struct model m;
  long rewinds = 0, forced = 0;
  for (int round = 0; round < 60; round++) {
    struct manta__align a;
    m = (struct model){.world = 1 + (int)pick(RANKS)};
    start(&a, m.world, false);
    for (int k = 0; k < 800; k++) {
      int r = (int)pick((uint32_t)m.world);
      int64_t before = m.out;
      for (uint32_t burst = pick(pick(8) ? 10 : 1500); burst > 0; burst--)
        model_push(&a, &m, r);
      forced += m.out > before && !model_ready(&m, m.out);
      if (pick(200) == 0) {
        m.ended[r] = true;
        manta__align_end(&a, r);
        compare(&a, &m, model_goal(&m, 0));
      }
      if (pick(100) == 0 && m.newest > 0) {
        model_rewind(&a, &m);
        rewinds++;
      }
    }
    manta__align_fini(&a);
  }
  assert_true(rewinds > 100 && forced > 100);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_iteration_goes_out_with_its_last_row),
      cmocka_unit_test(any_interleaving_gives_each_iteration_once),
      cmocka_unit_test(too_far_behind_goes_out_with_gaps_and_one_warning),
      cmocka_unit_test(who_has_ended_is_not_waited_for),
      cmocka_unit_test(a_rewind_voids_what_lies_beyond),
      cmocka_unit_test(a_rewind_voids_what_is_aligned_and_not_taken),
      cmocka_unit_test(rows_out_of_order_are_refused),
      cmocka_unit_test(uneven_counts_are_named),
      cmocka_unit_test(names_of_many_ranks_stay_in_bounds),
      cmocka_unit_test(waiting_rows_are_capped_in_bytes),
      cmocka_unit_test(without_a_listener_rows_are_only_counted),
      cmocka_unit_test(starving_leaves_no_half_state),
      cmocka_unit_test(random_runs_agree_with_the_model),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
