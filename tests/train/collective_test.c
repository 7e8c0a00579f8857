/* SPDX-License-Identifier: Apache-2.0
 *
 * A training whose ranks share gradients, over real processes: a death inside a collective, and the
 * same bits whatever happens.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/embed.h>

#include "base/hash.h"
#include "rig.h"

#define WEIGHTS 50000
#define PARTS   10
#define PART    (WEIGHTS / PARTS)

struct model {
  float *w, *g;
  manta_ddp *ddp; // NULL: one all-reduce
};

static void gradient(struct model *m, int rank, int64_t step)
{
  for (int i = 0; i < WEIGHTS; i++)
    m->g[i] = m->w[i] * 0.1f + (float)((i + rank * 7 + (int)step * 13) % 101) / 97.0f;
  for (size_t i = 0; m->ddp && i < PARTS; i++)
    memcpy((void *)(uintptr_t)manta_ddp_grad(m->ddp, i)->data, m->g + i * PART, PART * 4);
}

static manta_status make_ddp(manta_session *s, struct model *m, manta_error *err)
{
  manta_ddp_config cfg = MANTA_DDP_CONFIG_INIT;
  cfg.bucket_bytes = (size_t)manta_session_config_int(s, "bucket", 0);
  cfg.overlap = cfg.bucket_bytes % 2 ? MANTA_DDP_OVERLAP_OFF : MANTA_DDP_OVERLAP_ON;
  MANTA_TRY(manta_ddp_create(&m->ddp, manta_session_comm(s), &cfg, err));
  for (int i = 0; i < PARTS; i++) {
    char name[16];
    snprintf(name, sizeof name, "part %d", i);
    MANTA_TRY(manta_ddp_add(m->ddp, name, PART, MANTA_F32, NULL, NULL, err));
  }
  return manta_ddp_begin(m->ddp, err);
}

static manta_status share(manta_session *s, struct model *m, manta_error *err)
{
  manta_comm *comm = manta_session_comm(s);
  if (!m->ddp)
    return manta_comm_allreduce(comm, m->g, m->g, WEIGHTS, MANTA_F32, MANTA_MEAN, err);
  for (size_t i = PARTS; i-- > 0;)
    MANTA_TRY(manta_ddp_ready(m->ddp, i, err));
  MANTA_TRY(manta_ddp_sync(m->ddp, NULL, err));
  for (size_t i = 0; i < PARTS; i++)
    memcpy(m->g + i * PART, manta_ddp_grad(m->ddp, i)->data, PART * 4);
  return MANTA_OK;
}

static manta_status train_step(manta_session *s, struct model *m, int64_t step, manta_error *err)
{
  gradient(m, manta_session_rank(s), step);
  MANTA_TRY(share(s, m, err));
  for (int i = 0; i < WEIGHTS; i++)
    m->w[i] -= 0.05f * m->g[i];
  manta_value row = MANTA_MAP(MANTA_KV_INT("count", step));
  MANTA_TRY(manta_session_report(s, &row, err));
  manta_tensor t = MANTA_VECTOR("w", MANTA_F32, m->w, WEIGHTS);
  manta_state state = {&t, 1, NULL};
  return step % 5 == 0 ? manta_session_save(s, &state, err) : MANTA_OK;
}

static manta_status load(manta_session *s, struct model *m, manta_error *err)
{
  manta_checkpoint *c;
  MANTA_TRY(manta_session_load(s, &c, err));
  manta_status st = c ? manta_checkpoint_copy(c, "w", m->w, WEIGHTS * 4, err) : MANTA_OK;
  manta_checkpoint_close(c);
  return st;
}

static manta_status train(manta_session *s, struct model *m, manta_error *err)
{
  if (manta_session_config_int(s, "bucket", 0) > 0)
    MANTA_TRY(make_ddp(s, m, err));
  MANTA_TRY(load(s, m, err));
  for (int64_t step = manta_session_iteration(s) + 1; step <= 40; step++) {
    if (manta_session_rank(s) == manta_session_config_int(s, "victim", -1) &&
        manta_session_attempt(s) == 0 && step == 23) {
      board->fired++;
      raise(SIGKILL);
    }
    MANTA_TRY(train_step(s, m, step, err));
  }
  return MANTA_OK;
}

// Survivors come here again: what a failed attempt took is given back.
static manta_status sharing(manta_session *s, manta_value *result, manta_error *err)
{
  bool heap = manta_session_config_bool(s, "heap", false);
  struct model m = {0};
  board_open();
  board->pid[manta_session_rank(s)] = getpid();
  if (heap)
    MANTA_TRY(manta_shm_alloc(manta_session_comm(s), WEIGHTS * 4, (void **)&m.g, err));
  else
    m.g = calloc(WEIGHTS, 4);
  m.w = calloc(WEIGHTS, 4);
  manta_status st = train(s, &m, err);
  uint64_t hash = manta__hash(m.w, WEIGHTS * 4);
  manta_ddp_destroy(m.ddp);
  free(heap ? NULL : m.g);
  free(m.w);
  return st < 0 ? st : manta_value_set_int(result, (int64_t)(hash >> 1));
}

// hosts: how many; a host is a command on this machine, and what is between them is UCX.
// bucket: of manta_ddp in bytes, odd: without overlap; 0: without it.
static int64_t weights_by(int hosts, int workers, bool heap, int victim, int bucket)
{
  static char command[600];
  static manta_host list[3];
  struct rig r;
  rig_init(&r, workers);
  snprintf(command, sizeof command, "exec %s agent --stdio", getenv("MANTA_BIN"));
  for (int i = 0; i < hosts; i++)
    list[i] = (manta_host){.name = i == 0   ? "a"
                                   : i == 1 ? "b"
                                            : "c",
                           .command = command,
                           .slots = workers / hosts + (i < workers % hosts)};
  if (hosts > 1) {
    r.cfg.hosts = list;
    r.cfg.host_count = (size_t)hosts;
  }
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_BOOL("heap", heap), MANTA_KV_INT("victim", victim),
                            MANTA_KV_INT("bucket", bucket));
  r.rc.config = &c;
  assert_ok(manta_trainer_run(r.t, sharing, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(board->fired, victim >= 0);
  int64_t first = manta_value_as_int(manta_value_at(&r.results, 0), -1);
  for (int i = 1; i < workers; i++) // the replicas are equal
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, (size_t)i), -2), first);
  rig_fini(&r);
  return first;
}

static int64_t weights_on(int hosts, int workers, bool heap, int victim)
{
  return weights_by(hosts, workers, heap, victim, 0);
}

static int64_t weights_of(int workers, bool heap, int victim)
{
  return weights_on(1, workers, heap, victim);
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

static void need_ucx(void)
{
  char path[700];
  const char *dir = getenv("MANTA_MODULES");
  snprintf(path, sizeof path, "%s/libmanta-ucx.so", dir ? dir : ".");
  if (access(path, R_OK) < 0)
    skip_because("the module libmanta-ucx.so was not built");
}

static void hosts_do_not_change_a_bit(void **state)
{
  need_ucx();
  for (int n = 2; n <= 5; n++) {
    int64_t quiet = weights_of(n, false, -1);
    assert_int_equal(weights_on(2, n, n % 2, -1), quiet);
    assert_int_equal(weights_on(2, n, n % 2 == 0, n - 1), quiet); // killed on the second host
    if (n >= 3)
      assert_int_equal(weights_on(3, n, true, 0), quiet);
  }
}

// The mean of a gradient is the same by one call or by buckets, with overlap or without.
static void buckets_do_not_change_a_bit(void **state)
{
  static const int buckets[] = {30000, 30001, 1 << 20, (1 << 20) + 1, 25 << 20};
  need_ucx();
  int64_t plain = weights_of(3, true, -1);
  for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++) {
    assert_int_equal(weights_by(1, 3, false, -1, buckets[i]), plain);
    assert_int_equal(weights_by(2, 3, false, i % 2 ? 2 : -1, buckets[i]), plain);
  }
}

// --- going on inside the function ---------------------------------------------------------------

static manta_status one_step(manta_session *s, manta_comm *comm, int64_t step, manta_error *err)
{
  int r = manta_session_rank(s), n = manta_session_world_size(s);
  float x = (float)(r + step);
  manta_state state = {0};
  if (r == 1 && manta_session_attempt(s) < 3 && step == 10 + 7 * manta_session_attempt(s)) {
    board->fired++;
    raise(SIGKILL);
  }
  MANTA_TRY(manta_comm_allreduce(comm, &x, &x, 1, MANTA_F32, MANTA_SUM, err));
  if (x != (float)(n * (n - 1) / 2 + n * step))
    return manta_error_set(err, MANTA_EUSER, "%g at %lld", (double)x, (long long)step);
  manta_value row = MANTA_MAP(MANTA_KV_INT("count", step + 1));
  MANTA_TRY(manta_session_report(s, &row, err));
  return manta_session_save(s, &state, err);
}

// One call of the function per process, whatever happens to others.
static manta_status rebuilding(manta_session *s, manta_value *result, manta_error *err)
{
  manta_comm *comm = manta_session_comm(s);
  int64_t lost = 0, least = 0;
  board_open();
  while (manta_session_iteration(s) < 40) {
    manta_status st = one_step(s, comm, manta_session_iteration(s), err);
    if (st == MANTA_EPEERLOST) {
      lost++;
      least = 1000 * lost + manta_session_rank(s);
      MANTA_TRY(manta_comm_agree(comm, &least, err));
      st = manta_comm_rebuild(&comm, err);
    }
    MANTA_TRY(st);
  }
  if (manta_comm_rebuild(&comm, err) != MANTA_ESTATE)
    return manta_error_set(err, MANTA_EUSER, "rebuilt though nobody was lost");
  return manta_value_set_int(result, lost * 10000 + least);
}

static void survivors_go_on_inside_their_function(void **state)
{
  for (int n = 2; n <= 4; n += 2) {
    struct rig r;
    rig_init(&r, n);
    r.cfg.max_retries = 5;
    rig_make(&r);
    assert_ok(manta_trainer_run(r.t, rebuilding, &r.rc, &r.results, &r.err), &r.err);
    assert_int_equal(board->fired, 3);
    assert_int_equal(r.last, 40);
    // Three losses seen by one call, rank 0 had the least each time; the newcomer saw none.
    for (int i = 0; i < n; i++)
      assert_int_equal(manta_value_as_int(manta_value_at(&r.results, (size_t)i), -1),
                       i == 1 ? 0 : 3 * 10000 + 3000);
    rig_fini(&r);
  }
}

static manta_status gives_up(manta_session *s, manta_value *result, manta_error *err)
{
  manta_comm *comm = manta_session_comm(s);
  board_open();
  if (manta_session_rank(s) == 1) {
    board->fired++;
    raise(SIGKILL);
  }
  manta_status st = manta_comm_barrier(comm, err);
  if (st == MANTA_EPEERLOST)
    st = manta_comm_rebuild(&comm, err);
  board->at[0] = st;
  return st;
}

// No retry is left: who waits to go on is told, and its process serves the next run.
static void a_run_that_does_not_go_on_ends_the_wait(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.max_retries = -2;
  rig_make(&r);
  assert_status(manta_trainer_run(r.t, gives_up, &r.rc, NULL, &r.err), MANTA_EWORKER);
  assert_int_equal(board->fired, 1);
  manta_value c = MANTA_MAP(MANTA_KV_INT("victim", -1));
  r.rc.config = &c;
  assert_ok(manta_trainer_run(r.t, sharing, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(board->at[0], MANTA_EABORTED);
  rig_fini(&r);
}

// --- who does not come --------------------------------------------------------------------------

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

enum { BY_MAIN, BY_THREAD, BY_CHILD, BY_EXIT };

static void *leave(void *none)
{
  manta_leave();
  return none;
}

// A child may not leave for us.
static manta_status let_child_try(manta_error *err)
{
  int status;
  pid_t child = fork();
  if (child == 0)
    _exit(manta_leave() ? 1 : 42);
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 42)
    return manta_error_set(err, MANTA_EUSER, "the child left");
  return MANTA_OK;
}

static manta_status leaves_at_once(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t how = manta_session_config_int(s, "how", BY_MAIN);
  pthread_t thread;
  board_open();
  if (manta_session_rank(s) == 1) {
    board->fired++;
    if (how == BY_CHILD)
      MANTA_TRY(let_child_try(err));
    if (how == BY_EXIT)
      _exit(0);
    if (how == BY_THREAD && pthread_create(&thread, NULL, leave, NULL) == 0)
      pause();
    manta_leave();
  }
  while (how == BY_THREAD && manta_session_departed(s) != 1)
    usleep(1000);
  if (manta_session_config_int(s, "waits", 0))
    MANTA_TRY(manta_comm_barrier(manta_session_comm(s), err));
  return manta_value_set_int(result, 7);
}

static void a_rank_may_end_its_process(void **state)
{
  for (int how = BY_MAIN; how <= BY_CHILD; how++) {
    struct rig r;
    manta_value c = MANTA_MAP(MANTA_KV_INT("how", how));
    manta_value waits = MANTA_MAP(MANTA_KV_INT("how", how), MANTA_KV_INT("waits", 1));
    rig_init(&r, 2);
    r.cfg.max_retries = -2;
    r.rc.config = &c;
    rig_make(&r);
    assert_ok(manta_trainer_run(r.t, leaves_at_once, &r.rc, &r.results, &r.err), &r.err);
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, 0), -1), 7);
    assert_int_equal(manta_value_at(&r.results, 1)->type, MANTA_NIL);
    r.rc.config = &waits;
    assert_status(manta_trainer_run(r.t, leaves_at_once, &r.rc, NULL, &r.err), MANTA_EPEERLOST);
    assert_has(r.err.message, "barrier: rank 1 has left its train function");
    assert_int_equal(board->fired, 2);
    rig_fini(&r);
  }
}

static void to_exit_from_c_is_a_death(void **state)
{
  struct rig r;
  manta_value c = MANTA_MAP(MANTA_KV_INT("how", BY_EXIT));
  rig_init(&r, 2);
  r.cfg.max_retries = -2;
  r.rc.config = &c;
  rig_make(&r);
  assert_status(manta_trainer_run(r.t, leaves_at_once, &r.rc, NULL, &r.err), MANTA_EWORKER);
  assert_int_equal(board->fired, 1);
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
  r.cfg.keep_workers = true;
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
      rig_test(hosts_do_not_change_a_bit),
      rig_test(buckets_do_not_change_a_bit),
      rig_test(survivors_go_on_inside_their_function),
      rig_test(a_run_that_does_not_go_on_ends_the_wait),
      rig_test(who_waits_for_a_rank_that_returned_is_told),
      rig_test(a_rank_may_end_its_process),
      rig_test(to_exit_from_c_is_a_death),
      rig_test(only_the_rank_that_hangs_is_replaced),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
