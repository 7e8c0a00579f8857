/* SPDX-License-Identifier: Apache-2.0
 *
 * What a user sees when processes die, hang or are asked to stop. Each test proves that its fault
 * fired.
 */
#include <errno.h>

#include "ckpt/store.h"
#include "rig.h"
#include "sys/proc.h"

static void assert_all(const struct rig *r, int workers, int64_t n)
{
  assert_int_equal(r->results.count, workers);
  for (int i = 0; i < workers; i++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r->results, (size_t)i), -1), n);
  assert_int_equal(r->last, n);
}

// --- workers ------------------------------------------------------------------------------------

static void revive(const char *fault, bool keep)
{
  struct rig r;
  rig_init(&r, 4);
  r.cfg.keep_workers = keep;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 60), MANTA_KV_STR("fault", fault),
                            MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 37));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(board->fired, 1);
  assert_int_equal(board->attempts, 1);
  assert_int_equal(r.rewinds, 1);
  assert_all(&r, 4, 60);
  assert_renewed(&r, 4, 1, 1);
  rig_fini(&r);
  assert_nothing_left();
}

static void lose_a_worker(const char *fault, const char *cause)
{
  struct rig r;
  rig_init(&r, 4);
  r.cfg.max_retries = -2;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 60), MANTA_KV_STR("fault", fault),
                            MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 37));
  assert_status(rig_run(&r, &c), MANTA_EWORKER); // first without retries: the message
  assert_int_equal(board->fired, 1);
  assert_has(r.err.message, cause);
  assert_has(r.err.message, "rank 1 (pid ");
  assert_has(r.err.message, "its last output:\n");
  if (strcmp(fault, "segv")) {
    assert_has(r.err.message, "about to ");
    assert_has(r.err.message, "logs/rank-1.log");
  } else if (!SANITIZED) {
    assert_has(r.err.message, "train_fault("); // a line of the backtrace, as its log has it
  }
  assert_int_equal(r.err.rank, 1);
  rig_fini(&r);
  revive(fault, false);
}

static void a_killed_worker_is_revived(void **state)
{
  lose_a_worker("kill", "killed by signal 9 (SIGKILL)");
}

static void survivors_keep_their_process_if_asked(void **state)
{
  revive("kill", true);
}

// --- successors ---------------------------------------------------------------------------------

static int open_slots(void)
{
  char path[64], to[128];
  int n = 0;
  for (int fd = 3; fd < 128; fd++) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(path, to, sizeof to - 1);
    n += len > 0 && memmem(to, (size_t)len, "manta-slot", 10) != NULL;
  }
  return n;
}

// Three saves, then rank 1 dies; the successor of rank 0 has slots before it has saved anything.
static manta_status saving(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t value = 7;
  manta_tensor t = MANTA_VECTOR("value", MANTA_I64, &value, 1);
  manta_state state = {&t, 1, NULL};
  board_open();
  int slots = open_slots();
  for (int i = 0; i < 4; i++) {
    MANTA_TRY(manta_session_save(s, &state, err));
    MANTA_TRY(manta_comm_barrier(manta_session_comm(s), err));
  }
  if (manta_session_rank(s) == 1 && manta_session_attempt(s) == 0) {
    usleep(200000); // one of two slots is free when the first of them is on disk
    board->fired++;
    raise(SIGKILL);
  }
  MANTA_TRY(manta_comm_barrier(manta_session_comm(s), err));
  return manta_value_set_int(result, slots);
}

static void slots_pass_to_the_successor(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  rig_make(&r);
  assert_ok(manta_trainer_run(r.t, saving, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(board->fired, 1);
  // Beside the one that both load from.
  assert_true(manta_value_as_int(manta_value_at(&r.results, 0), 0) >= 2);
  assert_int_equal(manta_value_as_int(manta_value_at(&r.results, 1), -1), 1);
  rig_fini(&r);
  assert_nothing_left();
}

static int called; // in this process

static manta_status call_process(manta_session *s, manta_value *result, manta_error *err)
{
  called++;
  return MANTA_OK;
}

static manta_status call_all(void *ctx, int attempt, manta_error *err)
{
  struct rig *r = ctx;
  board->counts = attempt;
  return manta_trainer_execute(r->t, call_process, NULL, NULL, err);
}

static manta_status refuse_to_go_on(void *ctx, int attempt, manta_error *err)
{
  return manta_error_set(err, MANTA_ENOROOM, "not again");
}

static manta_status tells_its_calls(manta_session *s, manta_value *result, manta_error *err)
{
  board_open();
  MANTA_TRY(manta_comm_barrier(manta_session_comm(s), err));
  if (manta_session_rank(s) == 1 && manta_session_attempt(s) == 0) {
    board->fired++;
    raise(SIGKILL);
  }
  MANTA_TRY(manta_comm_barrier(manta_session_comm(s), err));
  return manta_value_set_int(result, called);
}

static void fresh_processes_can_be_called_before_an_attempt(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  rig_make(&r);
  r.rc.renew = call_all;
  r.rc.renew_ctx = &r;
  assert_ok(manta_trainer_run(r.t, tells_its_calls, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(board->fired, 1);
  assert_int_equal(board->counts, 1);
  for (size_t i = 0; i < 2; i++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r.results, i), -1), 1);
  r.rc.renew = refuse_to_go_on;
  assert_status(manta_trainer_run(r.t, tells_its_calls, &r.rc, NULL, &r.err), MANTA_EUSER);
  assert_has(r.err.message, "not again");
  rig_fini(&r);
  assert_nothing_left();
}

// The kernel needs longer to take the first rank 1 apart than it is given.
static manta_status dies_heavily(manta_session *s, manta_value *result, manta_error *err)
{
  enum { BYTES = 1 << 30 };
  board_open();
  if (manta_session_rank(s) == 1 && manta_session_attempt(s) == 0) {
    char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, BYTES, MADV_NOHUGEPAGE); // small pages take longer to free
    for (size_t i = 0; p != MAP_FAILED && i < BYTES; i += 4096)
      p[i] = 1;
    board->fired++;
    raise(SIGKILL);
  }
  MANTA_TRY(manta_comm_barrier(manta_session_comm(s), err));
  return manta_value_set_int(result, manta_session_attempt(s));
}

static void a_predecessor_that_does_not_end_is_named(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  setenv("MANTA_GONE_AFTER", "0.01", 1); // the others, which are small, are gone by then
  rig_make(&r);
  manta_status st = manta_trainer_run(r.t, dies_heavily, &r.rc, &r.results, &r.err);
  unsetenv("MANTA_GONE_AFTER");
  assert_ok(st, &r.err);
  assert_int_equal(board->fired, 1);
  assert_logged(&r, "which was rank 1, has not ended 0.01 s after it was killed: what it holds is "
                    "not used again");
  assert_true(manta_value_as_int(manta_value_at(&r.results, 1), 0) >= 1);
  rig_fini(&r);
  assert_nothing_left();
}

static void a_crashed_worker_is_revived(void **state)
{
  lose_a_worker("segv", "killed by signal 11 (SIGSEGV)");
}

static void a_worker_that_exits_is_revived(void **state)
{
  lose_a_worker("exit", "exit code 3");
}

static void a_worker_without_connection_is_revived(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 40), MANTA_KV_STR("fault", "drop"),
                            MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 15));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(board->fired, 1);
  assert_int_equal(board->attempts, 1);
  assert_all(&r, 2, 40);
  rig_fini(&r);
}

static void rank_0_may_be_lost_too(void **state)
{
  struct rig r;
  rig_init(&r, 3);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 60), MANTA_KV_STR("fault", "kill"),
                            MANTA_KV_INT("rank", 0), MANTA_KV_INT("at", 37));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(board->fired, 1);
  assert_all(&r, 3, 60);
  // Its last snapshot served the revival: 30 counts were not made again.
  assert_true(board->counts < 3 * (60 + 37));
  rig_fini(&r);
}

static void without_a_checkpoint_it_starts_over(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  manta_value c =
      MANTA_MAP(MANTA_KV_INT("n", 20), MANTA_KV_INT("every", 0), MANTA_KV_STR("fault", "kill"),
                MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 15));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(board->fired, 1);
  assert_all(&r, 2, 20);
  rig_fini(&r);
}

static void retries_are_bounded(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.max_retries = 2;
  manta_value c =
      MANTA_MAP(MANTA_KV_INT("n", 60), MANTA_KV_STR("fault", "kill"), MANTA_KV_INT("rank", 1),
                MANTA_KV_INT("at", 5), MANTA_KV_INT("attempts", 100), MANTA_KV_INT("every", 0));
  assert_status(rig_run(&r, &c), MANTA_EWORKER);
  assert_int_equal(board->fired, 3);
  assert_has(r.err.message, "retries used up: 2");
  assert_int_equal(r.finished_with, MANTA_EWORKER);
  rig_fini(&r);
}

// --- memory -------------------------------------------------------------------------------------

// This program as `train_fault oom DIR CGROUP`: its exit code says whether all was as it should be.
static int be_eater(char *dir, const char *cgroup)
{
  struct rig r;
  if (!join_cgroup(cgroup))
    return 2;
  board_open();
  rig_init(&r, 2);
  r.cfg.logdir = dir;
  r.cfg.callback_count = 0;
  r.cfg.max_retries = -2;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 20), MANTA_KV_STR("fault", "eat"),
                            MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 5));
  if (rig_run(&r, &c) != MANTA_EWORKER || !strstr(r.err.message, "out of memory"))
    return 3;
  manta_trainer_destroy(r.t);
  return 0;
}

static void out_of_memory_is_named(void **state)
{
  struct rig r;
  char cgroup[600];
  int status = -1;
  memory_cgroup(cgroup, sizeof cgroup);
  rig_init(&r, 2);
  pid_t pid = vfork();
  if (pid == 0) {
    execl("/proc/self/exe", "train_fault", "oom", r.dir, cgroup, (char *)NULL);
    _exit(127);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(board->fired, 1);
  assert_int_equal(status, 0);
  assert_true(within(5, rmdir(cgroup) == 0 || errno == ENOENT));
  rig_fini(&r);
}

// --- hangs --------------------------------------------------------------------------------------

static void a_rank_that_hangs(const char *fault)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.step_timeout_s = 0.3;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 40), MANTA_KV_STR("fault", fault),
                            MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 25));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(board->fired, 1);
  assert_int_equal(board->attempts, 1);
  assert_all(&r, 2, 40);
  rig_fini(&r);
  assert_nothing_left();
}

static void a_rank_that_waits_forever_is_revived(void **state)
{
  a_rank_that_hangs("hang");
}

static void a_stopped_rank_is_revived(void **state)
{
  a_rank_that_hangs("stop");
}

static void a_hang_is_named(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.step_timeout_s = 0.2;
  r.cfg.max_retries = -2;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 40), MANTA_KV_STR("fault", "hang"),
                            MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 5));
  assert_status(rig_run(&r, &c), MANTA_EHUNG);
  assert_int_equal(board->fired, 1);
  assert_has(r.err.message, "hung: no sign of life");
  rig_fini(&r);
}

static manta_status slow_survivor(manta_session *s, manta_value *result, manta_error *err)
{
  board_open();
  int r = manta_session_rank(s);
  board->pid[r] = getpid();
  if (manta_session_attempt(s) > 0)
    return MANTA_OK;
  board->born[r] = getpid();
  if (r == 1) {
    board->fired++;
    raise(SIGKILL);
  }
  usleep(30000000); // does not look at manta: longer than the grace time
  return MANTA_OK;
}

static void a_survivor_that_does_not_leave_is_replaced(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.grace_s = 0.1;
  rig_make(&r);
  int64_t t0 = manta__now();
  assert_ok(manta_trainer_run(r.t, slow_survivor, &r.rc, NULL, &r.err), &r.err);
  assert_true(manta__now() - t0 < 10000000000);
  assert_int_equal(board->fired, 1);
  assert_true(board->pid[0] != board->born[0]);
  rig_fini(&r);
  assert_nothing_left();
}

static manta_status heavy(manta_session *s, manta_value *result, manta_error *err)
{
  enum { BYTES = 512 << 20 };
  board_open();
  char *p = manta_session_rank(s) == 1 ? malloc(BYTES) : NULL;
  if (p) {
    memset(p, 1, BYTES); // freeing it takes longer than the grace time
    board->fired++;
    raise(SIGKILL);
  }
  for (;;) {
    manta_value row = MANTA_MAP(MANTA_KV_INT("rank", 0));
    MANTA_TRY(manta_session_report(s, &row, err));
    usleep(100);
  }
}

static void a_death_is_not_taken_for_a_slow_survivor(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.grace_s = 0.001;
  r.cfg.max_retries = -2;
  rig_make(&r);
  assert_status(manta_trainer_run(r.t, heavy, &r.rc, NULL, &r.err), MANTA_EWORKER);
  assert_int_equal(board->fired, 1);
  assert_has(r.err.message, "killed by signal 9 (SIGKILL)");
  rig_fini(&r);
  assert_nothing_left();
}

// --- zygote, agent ------------------------------------------------------------------------------

struct assault {
  const char *who; // "zygote", "agent"
  int at;          // rows of all ranks, since the last one
  int times, done;
};

static pid_t victim(const char *who)
{
  pid_t agent = child_named(getpid(), "manta-agent");
  return !strcmp(who, "agent") ? agent : child_named(agent, "manta-zygote");
}

static void *assail(void *arg)
{
  struct assault *a = arg;
  int64_t from = 0;
  pid_t last = 0, pid = 0;
  for (int i = 0; i < a->times; i++) {
    if (!within(20, board->counts >= from + a->at) ||
        !within(20, (pid = victim(a->who)) > 0 && pid != last)) // the next one, not a dead one
      return NULL;
    from = board->counts;
    last = pid;
    a->done += manta__proc_signal(pid, SIGKILL) == 0;
  }
  return NULL;
}

static void workers_outlive_their_zygote(void **state)
{
  struct rig r;
  struct assault a = {.who = "zygote", .at = 40, .times = 1};
  pthread_t th;
  rig_init(&r, 2);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 120), MANTA_KV_STR("fault", "kill"),
                            MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 80));
  rig_make(&r);
  pthread_create(&th, NULL, assail, &a);
  assert_ok(rig_run(&r, &c), &r.err);
  pthread_join(th, NULL);
  assert_int_equal(a.done, 1);
  assert_int_equal(board->fired, 1);    // and the worker killed later came from a new zygote
  assert_int_equal(board->attempts, 1); // the zygote's death alone cost nothing
  assert_all(&r, 2, 120);
  rig_fini(&r);
  assert_nothing_left();
}

static void a_lost_agent_is_replaced(void **state)
{
  struct rig r;
  struct assault a = {.who = "agent", .at = 60, .times = 2};
  pthread_t th;
  rig_init(&r, 2);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 600)); // not over before the second, on a busy host
  rig_make(&r);
  pthread_create(&th, NULL, assail, &a);
  assert_ok(rig_run(&r, &c), &r.err);
  pthread_join(th, NULL);
  assert_int_equal(a.done, 2);
  assert_int_equal(board->attempts, 2);
  assert_all(&r, 2, 600);
  assert_true(r.rewinds >= 1);
  rig_fini(&r);
  assert_nothing_left();
}

// --- what is left behind ------------------------------------------------------------------------

static void daemons_of_a_worker_end_with_it(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  r.cfg.keep_workers = true;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 20), MANTA_KV_STR("fault", "daemon"),
                            MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 5));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_int_equal(board->fired, 1);
  assert_true(alive((pid_t)board->orphan)); // the run is over, its worker is not
  pid_t orphan = (pid_t)board->orphan;
  rig_fini(&r);
  assert_true(within(2, !alive(orphan)));
  assert_nothing_left();
}

// A driver in a process of its own, which can be killed: this program as `train_fault driver DIR`.
static int be_driver(char *dir)
{
  struct rig r;
  board_open();
  rig_init(&r, 2);
  return rig_drive(&r, dir);
}

static void a_lost_driver_takes_everything_along(void **state)
{
  struct rig r;
  rig_init(&r, 2); // for its directory
  pid_t pid = rig_start_driver(&r);
  assert_true(within(10, board->counts > 50));
  pid_t agent = child_named(pid, "manta-agent"), zygote = child_named(agent, "manta-zygote");
  assert_true(alive(agent) && alive(zygote));
  manta__proc_signal(pid, SIGKILL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_true(within(1, !alive((pid_t)board->pid[0]) && !alive((pid_t)board->pid[1])));
  assert_true(within(1, !alive(zygote)));
  assert_true(within(5, !alive(agent)));
  rig_fini(&r);
}

// --- asked to stop ------------------------------------------------------------------------------

static void *notice_soon(void *t)
{
  within(10, board->counts > 200);
  manta_trainer_notice(t);
  return NULL;
}

static void a_notice_ends_the_run_after_a_checkpoint(void **state)
{
  struct rig r;
  pthread_t th;
  manta_checkpoint *c;
  rig_init(&r, 2);
  rig_make(&r);
  pthread_create(&th, NULL, notice_soon, r.t);
  manta_value cfg = MANTA_MAP(MANTA_KV_INT("n", 1000000));
  assert_status(rig_run(&r, &cfg), MANTA_EPREEMPTED);
  pthread_join(th, NULL);
  assert_int_equal(r.finished_with, MANTA_EPREEMPTED);
  assert_ok(manta_trainer_checkpoint(r.t, &c, &r.err), &r.err);
  assert_non_null(c);
  assert_true(manta_checkpoint_iteration(c) >= 10);
  assert_true(r.last <= manta_checkpoint_iteration(c));
  manta_checkpoint_close(c);
  rig_fini(&r);
}

static void sigterm_to_a_worker_is_a_notice(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  manta_value cfg = MANTA_MAP(MANTA_KV_INT("n", 1000000), MANTA_KV_STR("fault", "term"),
                              MANTA_KV_INT("rank", 1), MANTA_KV_INT("at", 15));
  assert_status(rig_run(&r, &cfg), MANTA_EPREEMPTED);
  assert_int_equal(board->fired, 1);
  assert_int_equal(board->attempts, 0);
  rig_fini(&r);
}

// --- elasticity ---------------------------------------------------------------------------------

static void *resize_soon(void *t)
{
  within(10, board->counts > 60);
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_resize(t, 4, &err);
  if (within(10, alive((pid_t)board->pid[3])))
    board->fired++;
  int64_t n = board->counts;
  within(10, board->counts > n + 60);
  manta_trainer_resize(t, 1, &err);
  return NULL;
}

static void a_run_grows_and_shrinks_at_checkpoints(void **state)
{
  struct rig r;
  pthread_t th;
  rig_init(&r, 2);
  rig_make(&r);
  pthread_create(&th, NULL, resize_soon, r.t);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 400), MANTA_KV_INT("pause_us", 500));
  assert_ok(rig_run(&r, &c), &r.err);
  pthread_join(th, NULL);
  assert_int_equal(board->fired, 1);
  assert_int_equal(board->attempts, 2);
  assert_all(&r, 1, 400);
  rig_fini(&r);
  assert_nothing_left();
}

static manta_status loiter(manta_session *s, manta_value *result, manta_error *err)
{
  for (;;) {
    MANTA_TRY(manta_session_check(s, err));
    usleep(1000);
  }
}

// Another trainer of this program, that holds CPUs until it is told not to.
struct tenant {
  manta_trainer *t;
  manta_run *run;
};

static void tenant_start(struct tenant *k, struct rig *r, int workers)
{
  manta_trainer_config cfg = r->cfg;
  cfg.callback_count = 0;
  cfg.workers = workers;
  cfg.min_workers = 0;
  assert_ok(manta_trainer_create(&k->t, &cfg, &r->err), &r->err);
  assert_ok(manta_run_start(&k->run, k->t, loiter, NULL, &r->err), &r->err);
  assert_true(within(10, manta_trainer_pid(k->t, workers - 1) > 0));
}

static void *tenant_leaves(void *arg)
{
  struct tenant *k = arg;
  usleep(200000);
  manta_run_close(k->run);
  manta_trainer_destroy(k->t);
  return NULL;
}

static void a_run_shrinks_to_what_is_there_and_grows_back(void **state)
{
  struct rig r;
  struct tenant k;
  pthread_t th;
  setenv("MANTA_NUM_CPUS", "4", 1);
  setenv("MANTA_GROW_AFTER", "0.05", 1);
  setenv("MANTA_RESIZE_EVERY", "0", 1);
  rig_init(&r, 3);
  r.cfg.cpus_per_worker = 1;
  tenant_start(&k, &r, 2);
  board->counts = 0;
  pthread_create(&th, NULL, tenant_leaves, &k);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 700), MANTA_KV_INT("pause_us", 1000));
  assert_ok(rig_run(&r, &c), &r.err);
  pthread_join(th, NULL);
  assert_int_equal(board->attempts, 1); // began with 2, went on with 3
  assert_all(&r, 3, 700);
  rig_fini(&r);
  unsetenv("MANTA_NUM_CPUS");
  unsetenv("MANTA_GROW_AFTER");
  unsetenv("MANTA_RESIZE_EVERY");
  assert_nothing_left();
}

static void a_run_waits_for_room(void **state)
{
  struct rig r;
  struct tenant k;
  pthread_t th;
  setenv("MANTA_NUM_CPUS", "4", 1);
  rig_init(&r, 3);
  r.cfg.cpus_per_worker = 1;
  r.cfg.min_workers = 3; // no fewer
  tenant_start(&k, &r, 2);
  pthread_create(&th, NULL, tenant_leaves, &k);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 20));
  int64_t t0 = manta__now();
  assert_ok(rig_run(&r, &c), &r.err);
  assert_true(manta__now() - t0 > 150000000);
  pthread_join(th, NULL);
  assert_all(&r, 3, 20);
  rig_fini(&r);
  unsetenv("MANTA_NUM_CPUS");
}

// --- checkpoints --------------------------------------------------------------------------------

static void the_last_checkpoints_are_on_disk(void **state)
{
  struct rig r;
  struct manta__manifest *list;
  size_t count;
  rig_init(&r, 2);
  r.rc.keep_last = 3;
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 60), MANTA_KV_INT("pause_us", 3000));
  assert_ok(rig_run(&r, &c), &r.err);
  int fd = open(manta_trainer_run_dir(r.t), O_RDONLY | O_DIRECTORY);
  assert_ok(manta__store_list(fd, true, &list, &count, &r.err), &r.err);
  assert_true(count >= 1 && count <= 3);
  assert_int_equal(list[count - 1].iteration, 60); // the last one is never dropped
  manta_free(list);
  close(fd);
  rig_fini(&r);
}

static void the_best_are_kept_by_their_score(void **state)
{
  struct rig r;
  struct manta__manifest m;
  char path[512];
  rig_init(&r, 1);
  r.rc.keep_last = 1;
  r.rc.keep_best = 2;
  r.rc.score = "half";
  r.rc.score_min = true; // the first ones are best
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 50), MANTA_KV_INT("pause_us", 3000));
  assert_ok(rig_run(&r, &c), &r.err);
  int fd = open(manta_trainer_run_dir(r.t), O_RDONLY | O_DIRECTORY);
  assert_ok(manta__store_best(fd, true, &m, &r.err), &r.err);
  assert_int_equal(m.iteration, 10);
  close(fd);
  assert_ok(manta_trainer_best_checkpoint(r.t, path, sizeof path, &r.err), &r.err);
  assert_has(path, "/checkpoints/");
  rig_fini(&r);
}

static void a_score_that_nobody_reports_is_refused(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  r.rc.keep_best = 2;
  r.rc.score = "nope";
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 50));
  assert_status(rig_run(&r, &c), MANTA_EINVAL);
  assert_has(r.err.message, "by the score \"nope\", which no report before this save has");
  rig_fini(&r);
}

static void a_run_begins_from_a_given_checkpoint(void **state)
{
  struct rig r;
  char path[600];
  rig_init(&r, 2);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 20));
  assert_ok(rig_run(&r, &c), &r.err);
  struct manta__manifest m;
  int dir, fd = open(manta_trainer_run_dir(r.t), O_RDONLY | O_DIRECTORY);
  assert_ok(manta__store_newest(fd, &dir, &m, &r.err), &r.err);
  close(dir);
  close(fd);
  snprintf(path, sizeof path, "%s/checkpoints/%s", manta_trainer_run_dir(r.t), m.name);
  r.rc.checkpoint = path;
  r.last = 20;
  board->counts = 0;
  manta_value more = MANTA_MAP(MANTA_KV_INT("n", 30));
  assert_ok(rig_run(&r, &more), &r.err);
  assert_int_equal(board->counts, 2 * 10);
  assert_all(&r, 2, 30);
  rig_fini(&r);
}

// The directory of checkpoints is replaced by a file: nothing can be written, and the run goes on.
static void a_disk_that_fails_does_not_stop_the_run(void **state)
{
  struct rig r;
  manta_run *run;
  manta_rows rows;
  char path[600];
  rig_init(&r, 1);
  r.cfg.callback_count = 0;
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 40));
  r.rc.config = &c;
  board->hold = 1;
  assert_ok(manta_run_start(&run, r.t, counting, &r.rc, &r.err), &r.err);
  snprintf(path, sizeof path, "%s/checkpoints", manta_trainer_run_dir(r.t));
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  assert_true(fd >= 0);
  close(fd);
  board->hold = 0;
  int n = 0, st;
  while ((st = manta_run_next(run, 20, &rows, &r.err)) == 1)
    n++;
  assert_ok(st, &r.err);
  assert_int_equal(n, 40);
  manta_run_close(run);
  snprintf(path, sizeof path, "grep -q 'was not written' %s/run.log", manta_trainer_run_dir(r.t));
  assert_int_equal(system(path), 0);
  rig_fini(&r);
}

// A file system that is full after a few checkpoints and rows.
static void a_full_disk_does_not_stop_the_run(void **state)
{
  struct rig r;
  char cmd[200];
  rig_init(&r, 2);
  snprintf(cmd, sizeof cmd, "mount -t tmpfs -o size=64k none %s 2>/dev/null", r.dir);
  if (system(cmd) != 0) {
    rig_fini(&r);
    skip_because("no tmpfs can be mounted here");
  }
  manta_value c = MANTA_MAP(MANTA_KV_INT("n", 3000), MANTA_KV_INT("pause_us", 0));
  assert_ok(rig_run(&r, &c), &r.err);
  assert_all(&r, 2, 3000);
  snprintf(cmd, sizeof cmd, "test $(stat -f -c %%a %s) -le 2", r.dir); // blocks left: it was full
  int full = system(cmd);
  rig_destroy(&r);
  snprintf(cmd, sizeof cmd, "umount -l %s", r.dir);
  assert_int_equal(system(cmd), 0);
  assert_int_equal(full, 0);
  rig_fini(&r);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  if (argc == 3 && !strcmp(argv[1], "driver"))
    return be_driver(argv[2]);
  if (argc == 4 && !strcmp(argv[1], "oom"))
    return be_eater(argv[2], argv[3]);
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(a_killed_worker_is_revived),
      rig_test(survivors_keep_their_process_if_asked),
      rig_test(slots_pass_to_the_successor),
      rig_test(fresh_processes_can_be_called_before_an_attempt),
      rig_test(a_predecessor_that_does_not_end_is_named),
      rig_test(a_crashed_worker_is_revived),
      rig_test(a_worker_that_exits_is_revived),
      rig_test(a_worker_without_connection_is_revived),
      rig_test(rank_0_may_be_lost_too),
      rig_test(without_a_checkpoint_it_starts_over),
      rig_test(retries_are_bounded),
      rig_test(out_of_memory_is_named),
      rig_test(a_rank_that_waits_forever_is_revived),
      rig_test(a_stopped_rank_is_revived),
      rig_test(a_hang_is_named),
      rig_test(a_survivor_that_does_not_leave_is_replaced),
      rig_test(a_death_is_not_taken_for_a_slow_survivor),
      rig_test(workers_outlive_their_zygote),
      rig_test(a_lost_agent_is_replaced),
      rig_test(daemons_of_a_worker_end_with_it),
      rig_test(a_lost_driver_takes_everything_along),
      rig_test(a_notice_ends_the_run_after_a_checkpoint),
      rig_test(sigterm_to_a_worker_is_a_notice),
      rig_test(a_run_grows_and_shrinks_at_checkpoints),
      rig_test(a_run_shrinks_to_what_is_there_and_grows_back),
      rig_test(a_run_waits_for_room),
      rig_test(the_last_checkpoints_are_on_disk),
      rig_test(the_best_are_kept_by_their_score),
      rig_test(a_score_that_nobody_reports_is_refused),
      rig_test(a_run_begins_from_a_given_checkpoint),
      rig_test(a_disk_that_fails_does_not_stop_the_run),
      rig_test(a_full_disk_does_not_stop_the_run),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
