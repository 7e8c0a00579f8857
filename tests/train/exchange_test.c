/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of an attempt tell each other over the control connection, over real processes.
 */
#include "rig.h"
#include "train/session.h"

#define SOON 20.0

// Rank r gives r + 1 times `size` bytes (or none), all of them r.
static size_t size_of(int rank, size_t size)
{
  size_t n = (size_t)(rank + 1) * size;
  return rank == 1 ? 0 : n > MANTA__GIVE_MAX ? MANTA__GIVE_MAX : n;
}

static manta_status check(const struct manta__blobs *all, int world, int round, size_t size,
                          manta_error *err)
{
  if (all->count != world)
    return manta_error_set(err, MANTA_EUSER, "%d blobs", all->count);
  for (int r = 0; r < world; r++) {
    if (all->bytes[r] != size_of(r, size))
      return manta_error_set(err, MANTA_EUSER, "rank %d gave %zu bytes", r, all->bytes[r]);
    for (size_t i = 0; i < all->bytes[r]; i++)
      if (all->data[r][i] != (uint8_t)(r + round))
        return manta_error_set(err, MANTA_EUSER, "rank %d gave %d", r, all->data[r][i]);
  }
  return MANTA_OK;
}

static manta_status exchanging(manta_session *s, manta_value *result, manta_error *err)
{
  struct manta__job *job = manta__session_job(s);
  size_t size = (size_t)manta_session_config_int(s, "size", 100);
  static uint8_t mine[MANTA__GIVE_MAX];
  for (int round = 0; round < 5; round++) {
    struct manta__blobs all;
    memset(mine, job->id.rank + round, sizeof mine);
    usleep((useconds_t)(job->id.rank * 3000));
    MANTA_TRY(manta__worker_exchange(job, mine, size_of(job->id.rank, size), &all,
                                     manta__deadline(SOON), err));
    manta_status st = check(&all, job->world, round, size, err);
    manta__blobs_fini(&all);
    MANTA_TRY(st);
  }
  return manta_value_set_int(result, 5);
}

static void all_get_what_all_give(void **state)
{
  static const int64_t sizes[] = {0, 100, 20000, MANTA__GIVE_MAX};
  for (int workers = 1; workers <= 5; workers += 2)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      struct rig r;
      rig_init(&r, workers);
      rig_make(&r);
      manta_value c = MANTA_MAP(MANTA_KV_INT("size", sizes[i]));
      r.rc.config = &c;
      assert_ok(manta_trainer_run(r.t, exchanging, &r.rc, &r.results, &r.err), &r.err);
      assert_int_equal(r.results.count, workers);
      for (int k = 0; k < workers; k++)
        assert_int_equal(manta_value_as_int(manta_value_at(&r.results, (size_t)k), 0), 5);
      rig_fini(&r);
    }
}

// Rank 1 is late: the others give up, and find the answer when they ask again.
static manta_status impatient(manta_session *s, manta_value *result, manta_error *err)
{
  struct manta__job *job = manta__session_job(s);
  struct manta__blobs all;
  int64_t waits = 0;
  board_open();
  if (job->id.rank == 1)
    while (board->fired < job->world - 1)
      usleep(500);
  for (;; waits++) {
    double s1 = waits == 0 && job->id.rank != 1 ? 0.01 : SOON;
    manta_status st = manta__worker_exchange(job, &job->id.rank, 4, &all, manta__deadline(s1), err);
    if (st == MANTA_OK)
      break;
    if (st != MANTA_ETIMEDOUT || waits > 0)
      return st;
    board->fired++;
  }
  bool right = all.count == job->world;
  for (int r = 0; right && r < all.count; r++)
    right = all.bytes[r] == 4 && !memcmp(all.data[r], &r, 4);
  manta__blobs_fini(&all);
  return right ? manta_value_set_int(result, waits)
               : manta_error_set(err, MANTA_EUSER, "not what was given");
}

static void a_late_rank_is_waited_for_again(void **state)
{
  struct rig r;
  rig_init(&r, 3);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, impatient, &r.rc, &r.results, &r.err), &r.err);
  for (int k = 0; k < 3; k++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, (size_t)k), -1), k != 1);
  rig_fini(&r);
}

static manta_status too_much(manta_session *s, manta_value *result, manta_error *err)
{
  static uint8_t mine[MANTA__GIVE_MAX + 1];
  struct manta__blobs all;
  return manta__worker_exchange(manta__session_job(s), mine, sizeof mine, &all,
                                manta__deadline(SOON), err);
}

static void what_is_given_has_a_limit(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  rig_make(&r);
  assert_status(manta_trainer_run(r.t, too_much, &r.rc, &r.results, &r.err), MANTA_ETOOBIG);
  assert_has(r.err.message, "65536");
  rig_fini(&r);
}

// One dies while the others wait for it: in the first attempt they leave, in the second all give.
static manta_status dying(manta_session *s, manta_value *result, manta_error *err)
{
  struct manta__job *job = manta__session_job(s);
  struct manta__blobs all;
  board_open();
  if (job->id.rank == 1 && job->id.attempt == 0) {
    board->fired++;
    raise(SIGKILL);
  }
  manta_status st = manta__worker_exchange(job, "x", 1, &all, manta__deadline(SOON), err);
  if (job->id.attempt == 0 && st != MANTA_EPEERLOST)
    return manta_error_set(err, MANTA_EUSER, "%s: %s", manta_status_name(st), err->message);
  MANTA_TRY(st);
  manta__blobs_fini(&all);
  return manta_value_set_int(result, job->id.attempt);
}

static void a_death_ends_an_exchange(void **state)
{
  struct rig r;
  rig_init(&r, 3);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, dying, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(board->fired, 1);
  for (int k = 0; k < 3; k++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, (size_t)k), -1), 1);
  rig_fini(&r);
}

// --- agreement ----------------------------------------------------------------------------------

// Rank 0 leaves before the others vote, rank 1 dies; those who are left agree, twice, after the
// abort.
static manta_status agreeing(manta_session *s, manta_value *result, manta_error *err)
{
  struct manta__job *job = manta__session_job(s);
  int64_t by = manta__deadline(SOON), first = 100 + job->id.rank, second = -job->id.rank;
  board_open();
  bool fault = manta_session_config_bool(s, "fault", false) && job->id.attempt == 0;
  if (fault && job->id.rank == 1) {
    board->fired++;
    raise(SIGKILL);
  }
  while (fault && manta_session_check(s, err) == MANTA_OK)
    usleep(200);
  if (job->id.rank == 0)
    return fault ? MANTA_EPEERLOST : manta_value_set_int(result, -1);
  MANTA_TRY(manta__worker_agree(job, &first, by, err));
  MANTA_TRY(manta__worker_agree(job, &second, by, err));
  if (fault) {
    board->at[job->id.rank] = first;
    board->born[job->id.rank] = second;
    return manta_session_check(s, err);
  }
  return manta_value_set_int(result, first * 1000 - second);
}

static void those_inside_agree_on_the_least(void **state)
{
  struct rig r;
  rig_init(&r, 4);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, agreeing, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(manta_value_as_int(manta_value_at(&r.results, 0), 0), -1);
  for (size_t k = 1; k < 4; k++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, k), 0), 101003);
  rig_fini(&r);
}

static void survivors_agree_after_an_abort(void **state)
{
  struct rig r;
  rig_init(&r, 4);
  r.cfg.grace_s = SOON; // no race with the end of the attempt
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_BOOL("fault", true));
  r.rc.config = &c;
  assert_ok(manta_trainer_run(r.t, agreeing, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(board->fired, 1);
  for (int k = 2; k < 4; k++) {
    assert_int_equal(board->at[k], 102);
    assert_int_equal(board->born[k], -3);
  }
  for (size_t k = 1; k < 4; k++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, k), 0), 101003);
  rig_fini(&r);
  assert_nothing_left();
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(all_get_what_all_give),           rig_test(a_late_rank_is_waited_for_again),
      rig_test(what_is_given_has_a_limit),       rig_test(a_death_ends_an_exchange),
      rig_test(those_inside_agree_on_the_least), rig_test(survivors_agree_after_an_abort),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
