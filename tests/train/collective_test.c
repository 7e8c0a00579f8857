/* SPDX-License-Identifier: Apache-2.0
 *
 * A training whose ranks share gradients, over real processes: a death inside a collective, and the
 * same bits whatever happens.
 */
#include "base/hash.h"
#include "rig.h"

#define WEIGHTS 50000

struct model {
  float *w, *g;
};

static void gradient(struct model *m, int rank, int64_t step)
{
  for (int i = 0; i < WEIGHTS; i++)
    m->g[i] = m->w[i] * 0.1f + (float)((i + rank * 7 + (int)step * 13) % 101) / 97.0f;
}

static manta_status train_step(manta_session *s, struct model *m, int64_t step, manta_error *err)
{
  gradient(m, manta_session_rank(s), step);
  MANTA_TRY(
      manta_comm_allreduce(manta_session_comm(s), m->g, m->g, WEIGHTS, MANTA_F32, MANTA_MEAN, err));
  for (int i = 0; i < WEIGHTS; i++)
    m->w[i] -= 0.05f * m->g[i];
  manta_value row = MANTA_MAP(MANTA_KV_INT("count", step));
  MANTA_TRY(manta_session_report(s, &row, err));
  manta_tensor t = MANTA_VECTOR("w", MANTA_F32, m->w, WEIGHTS);
  manta_state state = {&t, 1, NULL};
  return step % 5 == 0 ? manta_session_save(s, &state, err) : MANTA_OK;
}

static manta_status sharing(manta_session *s, manta_value *result, manta_error *err)
{
  manta_comm *comm = manta_session_comm(s);
  struct model m = {.w = calloc(WEIGHTS, 4)};
  manta_checkpoint *c;
  board_open();
  board->pid[manta_session_rank(s)] = getpid();
  if (manta_session_config_bool(s, "heap", false))
    MANTA_TRY(manta_shm_alloc(comm, WEIGHTS * 4, (void **)&m.g, err));
  else
    m.g = calloc(WEIGHTS, 4);
  MANTA_TRY(manta_session_load(s, &c, err));
  if (c)
    MANTA_TRY(manta_checkpoint_copy(c, "w", m.w, WEIGHTS * 4, err));
  manta_checkpoint_close(c);
  for (int64_t step = manta_session_iteration(s) + 1; step <= 40; step++) {
    if (manta_session_rank(s) == manta_session_config_int(s, "victim", -1) &&
        manta_session_attempt(s) == 0 && step == 23) {
      board->fired++;
      raise(SIGKILL);
    }
    MANTA_TRY(train_step(s, &m, step, err));
  }
  return manta_value_set_int(result, (int64_t)(manta__hash(m.w, WEIGHTS * 4) >> 1));
}

static int64_t weights_of(int workers, bool heap, int victim)
{
  struct rig r;
  rig_init(&r, workers);
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_BOOL("heap", heap), MANTA_KV_INT("victim", victim));
  r.rc.config = &c;
  assert_ok(manta_trainer_run(r.t, sharing, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(board->fired, victim >= 0);
  int64_t first = manta_value_as_int(manta_value_at(&r.results, 0), -1);
  for (int i = 1; i < workers; i++) // the replicas are equal
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, (size_t)i), -2), first);
  rig_fini(&r);
  return first;
}

static void a_kill_does_not_change_a_bit(void **state)
{
  for (int n = 2; n <= 4; n++) {
    int64_t quiet = weights_of(n, false, -1);
    assert_int_equal(weights_of(n, false, 1), quiet);
    assert_int_equal(weights_of(n, true, 0), quiet);
    assert_int_equal(weights_of(n, true, -1), quiet);
  }
}

static manta_status leaves_early(manta_session *s, manta_value *result, manta_error *err)
{
  if (manta_session_rank(s) == 1)
    return MANTA_OK;
  return manta_comm_barrier(manta_session_comm(s), err);
}

static void who_waits_for_a_rank_that_returned_is_told(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.max_retries = -2;
  rig_make(&r);
  assert_status(manta_trainer_run(r.t, leaves_early, &r.rc, NULL, &r.err), MANTA_EPEERLOST);
  assert_has(r.err.message, "barrier: rank 1 has left its train function");
  rig_fini(&r);
}

static manta_status hangs(manta_session *s, manta_value *result, manta_error *err)
{
  board_open();
  int r = manta_session_rank(s);
  if (manta_session_attempt(s) == 0)
    board->born[r] = getpid();
  board->pid[r] = getpid();
  if (r == 1 && manta_session_attempt(s) == 0) {
    board->fired++;
    pause();
  }
  return manta_comm_barrier(manta_session_comm(s), err);
}

static void only_the_rank_that_hangs_is_replaced(void **state)
{
  struct rig r;
  rig_init(&r, 3);
  r.cfg.step_timeout_s = 0.3;
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, hangs, &r.rc, NULL, &r.err), &r.err);
  assert_int_equal(board->fired, 1);
  for (int i = 0; i < 3; i++)
    assert_true((board->born[i] == board->pid[i]) == (i != 1));
  rig_fini(&r);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(a_kill_does_not_change_a_bit),
      rig_test(who_waits_for_a_rank_that_returned_is_told),
      rig_test(only_the_rank_that_hangs_is_replaced),
  };
  cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
