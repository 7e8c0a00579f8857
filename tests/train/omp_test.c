/* SPDX-License-Identifier: Apache-2.0
 *
 * With how many threads workers compute: what OMP_NUM_THREADS is in them, and what a library that
 * the program was linked with is told.
 */
#include "sys/omp.h"

#include <sched.h>

#include "rig.h"
#include "sys/host.h"

static int told;

__attribute__((visibility("default"))) void omp_set_num_threads(int n);

void omp_set_num_threads(int n)
{
  told = n;
}

// The two must agree: as a number; -1 if they do not.
static int64_t threads_here(void)
{
  const char *s = getenv("OMP_NUM_THREADS");
  long n = s ? strtol(s, NULL, 10) : 0;
  return told == n || told == 0 ? n : -1;
}

static manta_status look(manta_session *s, manta_value *result, manta_error *err)
{
  return manta_value_set_int(result, threads_here());
}

// Until the driver has made it one worker.
static manta_status shrinking(manta_session *s, manta_value *result, manta_error *err)
{
  manta_value nothing = {0};
  manta_state data = {.value = &nothing};
  for (int i = 0; i < 20000 && manta_session_world_size(s) > 1; i++) {
    manta_value row = MANTA_MAP(MANTA_KV_INT("i", i));
    MANTA_TRY(manta_session_report(s, &row, err));
    MANTA_TRY(manta_session_save(s, &data, err));
    usleep(1000);
  }
  if (manta_session_world_size(s) > 1)
    return manta_error_set(err, MANTA_EUSER, "there are %d workers", manta_session_world_size(s));
  return look(s, result, err);
}

// Two workers of its own, in a worker.
static manta_status nest(manta_session *s, manta_value *result, manta_error *err)
{
  manta_trainer *t;
  manta_value inner = {0};
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  cfg.workers = 2;
  cfg.quiet = true;
  cfg.logdir = manta_session_config_string(s, "dir", NULL);
  MANTA_TRY(manta_trainer_create(&t, &cfg, err));
  manta_status st = manta_trainer_run(t, look, NULL, &inner, err);
  if (st == MANTA_OK)
    st = manta_value_copy(result, manta_value_at(&inner, 1));
  manta_value_fini(&inner);
  manta_trainer_destroy(t);
  return st;
}

static double cpus(void)
{
  struct manta__host h = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__host_read(&h, "", &err), &err);
  double n = h.cpus;
  manta__host_fini(&h);
  return n;
}

// Makes a trainer, runs `look` on it, and checks what each worker says.
static void assert_threads(struct rig *r, int workers, int64_t want)
{
  if (!r->t)
    rig_make(r);
  r->rc.workers = workers;
  assert_ok(manta_trainer_run(r->t, look, &r->rc, &r->results, &r->err), &r->err);
  assert_int_equal(r->results.count, workers);
  for (int i = 0; i < workers; i++)
    assert_int_equal(manta_value_as_int(manta_value_at(&r->results, (size_t)i), 0), want);
}

static void the_cpus_are_shared_out(void **state)
{
  struct rig r;
  rig_init(&r, 2);
  assert_threads(&r, 2, manta__omp_share(cpus(), 2));
  assert_threads(&r, 1, manta__omp_share(cpus(), 1)); // the same program, and other processes
  assert_threads(&r, 3, manta__omp_share(cpus(), 3));
  rig_fini(&r);
}

static void only_what_may_be_used_counts(void **state)
{
  struct rig r;
  cpu_set_t all, one;
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &all))
      CPU_SET(i, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  rig_init(&r, 1);
  setenv("MANTA_NUM_CPUS", "64", 1); // declared, but not there
  assert_threads(&r, 1, 1);
  unsetenv("MANTA_NUM_CPUS");
  rig_fini(&r);
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void argument_beats_environment_beats_default(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  setenv("OMP_NUM_THREADS", "5", 1);
  assert_threads(&r, 1, 5);
  rig_fini(&r);
  rig_init(&r, 1);
  r.cfg.threads_per_worker = 3;
  assert_threads(&r, 1, 3);
  rig_fini(&r);
  unsetenv("OMP_NUM_THREADS");
  rig_init(&r, 1);
  setenv("MANTA_NUM_CPUS", "8", 1);
  r.cfg.cpus_per_worker = 7;
  assert_threads(&r, 1, 7);
  unsetenv("MANTA_NUM_CPUS");
  rig_fini(&r);
}

static void a_nested_trainer_shares_out_what_its_worker_has(void **state)
{
  struct rig r;
  rig_init(&r, 1);
  r.cfg.threads_per_worker = 6;
  rig_make(&r);
  manta_value c = MANTA_MAP(MANTA_KV_STR("dir", r.dir));
  r.rc.config = &c;
  assert_ok(manta_trainer_run(r.t, nest, &r.rc, &r.results, &r.err), &r.err);
  assert_int_equal(manta_value_as_int(manta_value_at(&r.results, 0), 0), 3);
  rig_fini(&r);
}

static void fewer_workers_keep_their_number(void **state)
{
  struct rig r;
  manta_run *run;
  manta_rows rows;
  int st;
  rig_init(&r, 4);
  rig_make(&r);
  assert_ok(manta_run_start(&run, r.t, shrinking, &r.rc, &r.err), &r.err);
  assert_int_equal(manta_run_next(run, 30, &rows, &r.err), 1);
  assert_ok(manta_trainer_resize(r.t, 1, &r.err), &r.err);
  while ((st = manta_run_next(run, 30, &rows, &r.err)) == 1)
    ;
  assert_ok(st, &r.err);
  const manta_value *results = manta_run_results(run);
  assert_int_equal(results->count, 1);
  assert_int_equal(manta_value_as_int(manta_value_at(results, 0), 0), manta__omp_share(cpus(), 4));
  manta_run_close(run);
  rig_fini(&r);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  unsetenv("OMP_NUM_THREADS");
  board_open();
  const struct CMUnitTest tests[] = {
      rig_test(the_cpus_are_shared_out),
      rig_test(only_what_may_be_used_counts),
      rig_test(argument_beats_environment_beats_default),
      rig_test(a_nested_trainer_shares_out_what_its_worker_has),
      rig_test(fewer_workers_keep_their_number),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  board_close();
  return failed;
}
