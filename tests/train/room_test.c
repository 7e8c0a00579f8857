/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainers of one driver that need the same room: idle ones give way, others are named.
 */
#include <glob.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "scratch.h"
#include "sys/proc.h"
#include "test.h"

static char *results;

static manta_status tell_pid(manta_session *s, manta_value *result, manta_error *err)
{
  return manta_value_set_int(result, getpid());
}
MANTA_TRAIN("tell_pid", tell_pid)

// Until it is asked to stop.
static manta_status go_on(manta_session *s, manta_value *result, manta_error *err)
{
  while (!manta_session_preempted(s)) {
    MANTA_TRY(manta_session_check(s, err));
    usleep(1000);
  }
  return manta_error_set(err, MANTA_EPREEMPTED, "asked to");
}
MANTA_TRAIN("go_on", go_on)

static manta_trainer_config one_gpu(const char *name)
{
  manta_trainer_config c = MANTA_TRAINER_CONFIG_INIT;
  c.workers = 1;
  c.gpus_per_worker = 1;
  c.name = name;
  c.quiet = true;
  c.logdir = results;
  return c;
}

static manta_trainer *make(manta_trainer_config c)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *t = NULL;
  assert_ok(manta_trainer_create(&t, &c, &err), &err);
  return t;
}

static int64_t run(manta_trainer *t)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = {0};
  assert_ok(manta_trainer_run(t, tell_pid, NULL, &v, &err), &err);
  int64_t pid = manta_value_as_int(manta_value_at(&v, 0), -1);
  manta_value_fini(&v);
  return pid;
}

static bool alive(int64_t pid)
{
  return manta__proc_signal((pid_t)pid, 0) == 0;
}

// The host has one GPU. Each trainer in turn gets it, as a notebook's cell that is run again and
// again; nobody calls shutdown.
static void idle_trainers_give_way_in_turn(void **state)
{
  manta_trainer *t[3];
  int64_t pid[3];
  const char *const names[] = {"first", "second", "third"};
  for (int i = 0; i < 3; i++) {
    t[i] = make(one_gpu(names[i]));
    pid[i] = run(t[i]);
    assert_true(i == 0 || !alive(pid[i - 1]));
  }
  for (int i = 0; i < 3; i++) // their own again, in new processes
    assert_int_not_equal(run(t[i]), pid[i]);
  for (int i = 0; i < 3; i++)
    manta_trainer_destroy(t[i]);
}

// The same for a start, which does not wait for room; and only who holds what is needed goes.
static void a_start_makes_room_as_well(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config plain = one_gpu("plain");
  plain.gpus_per_worker = 0;
  plain.keep_workers = true;
  manta_trainer *bystander = make(plain), *a = make(one_gpu("a")), *b = make(one_gpu("b"));
  int64_t stays = run(bystander), goes = run(a);
  assert_ok(manta_trainer_start(b, &err), &err);
  assert_false(alive(goes));
  assert_int_equal(run(bystander), stays);
  assert_ok(manta_trainer_start(a, &err), &err); // b was started, and is idle since
  manta_trainer_destroy(a);
  manta_trainer_destroy(b);
  manta_trainer_destroy(bystander);
}

static void strict_cpus_and_named_resources_are_room_too(void **state)
{
  manta_value disk = MANTA_MAP(MANTA_KV_INT("disk", 2));
  for (int i = 0; i < 2; i++) {
    manta_trainer_config c = one_gpu("a");
    c.gpus_per_worker = 0;
    c.cpus_per_worker = i == 0 ? 4 : 0;
    c.resources = i == 0 ? NULL : &disk;
    manta_trainer *a = make(c), *b = make(c);
    int64_t goes = run(a);
    run(b);
    assert_false(alive(goes));
    manta_trainer_destroy(a);
    manta_trainer_destroy(b);
  }
}

// An elastic run takes all that idle ones can give, not only what was free at once.
static void an_elastic_run_gets_its_whole_size(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = {0}, disk = MANTA_MAP(MANTA_KV_INT("disk", 1));
  manta_trainer_config c = one_gpu("idle");
  c.gpus_per_worker = 0;
  c.resources = &disk;
  manta_trainer *idle = make(c);
  run(idle);
  c.name = "elastic";
  c.workers = 2;
  c.min_workers = 1;
  manta_trainer *elastic = make(c);
  assert_ok(manta_trainer_run(elastic, tell_pid, NULL, &v, &err), &err);
  assert_int_equal(v.count, 2);
  manta_value_fini(&v);
  manta_trainer_destroy(elastic);
  manta_trainer_destroy(idle);
}

// Whoever must not be ended is named, with what it holds.
static void one_that_holds_is_named(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config keeping = one_gpu("keeper");
  keeping.keep_workers = true; // as a trainer that has an instance does
  manta_trainer *keeper = make(keeping), *other = make(one_gpu("other"));
  int64_t pid = run(keeper);
  manta_trainer_hold(keeper, true);
  assert_status(manta_trainer_start(other, &err), MANTA_ENOROOM);
  assert_has(err.message, "asked for 1 GPU");
  assert_has(err.message, "held by trainer keeper");
  assert_has(err.message, "1 GPU");
  assert_has(err.message, "kept for its instance");
  assert_true(alive(pid));
  assert_int_equal(run(keeper), pid);
  manta_trainer_hold(keeper, false);
  assert_ok(manta_trainer_start(other, &err), &err);
  assert_false(alive(pid));
  manta_trainer_destroy(other);
  manta_trainer_destroy(keeper);
}

static void one_that_runs_is_named(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *busy = make(one_gpu("busy")), *other = make(one_gpu("other"));
  manta_run *r;
  assert_ok(manta_run_start(&r, busy, go_on, NULL, &err), &err);
  for (int64_t by = manta__deadline(30); manta_trainer_pid(busy, 0) <= 0; usleep(1000))
    assert_true(manta__now() < by);
  assert_status(manta_trainer_start(other, &err), MANTA_ENOROOM);
  assert_has(err.message, "held by trainer busy");
  assert_has(err.message, "running");
  manta_trainer_notice(busy);
  assert_status(manta_run_next(r, 30, NULL, &err), MANTA_EPREEMPTED);
  manta_run_close(r);
  assert_ok(manta_trainer_start(other, &err), &err);
  manta_trainer_destroy(other);
  manta_trainer_destroy(busy);
}

// Sees the notice, and ends well all the same: that the run was asked to stop is the driver's word.
static manta_status serene(manta_session *s, manta_value *result, manta_error *err)
{
  manta_value row = MANTA_MAP(MANTA_KV_INT("there", 1));
  MANTA_TRY(manta_session_report(s, &row, err));
  while (!manta_session_preempted(s)) {
    MANTA_TRY(manta_session_check(s, err));
    usleep(1000);
  }
  return MANTA_OK;
}
MANTA_TRAIN("serene", serene)

// By its socket: all trainers of this driver have the same.
static pid_t find_agent(void)
{
  char pattern[512];
  glob_t found;
  int pid = 0;
  snprintf(pattern, sizeof pattern, "%s/manta/agent-*.sock", results);
  assert_int_equal(glob(pattern, 0, NULL, &found), 0);
  assert_int_equal(found.gl_pathc, 1);
  assert_int_equal(sscanf(strrchr(found.gl_pathv[0], '/'), "/agent-%d.sock", &pid), 1);
  globfree(&found);
  return pid;
}

static void sigterm_to_the_agent_is_a_notice_to_all(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *t[2];
  manta_run *r[2];
  for (int i = 0; i < 2; i++) {
    manta_trainer_config c = one_gpu(i ? "second" : "first");
    c.gpus_per_worker = 0;
    t[i] = make(c);
    assert_ok(manta_run_start(&r[i], t[i], serene, NULL, &err), &err);
    assert_int_equal(manta_run_next(r[i], 30, NULL, &err), 1);
  }
  assert_int_equal(manta__proc_signal(find_agent(), SIGTERM), 0);
  for (int i = 0; i < 2; i++) {
    assert_status(manta_run_next(r[i], 30, NULL, &err), MANTA_EPREEMPTED);
    manta_run_close(r[i]);
  }
  for (int i = 0; i < 2; i++)
    manta_trainer_destroy(t[i]);
}

// Another driver: a process of its own, whose trainer is idle until its pipe is closed.
static int other_driver(const char *dir)
{
  char c;
  results = strdup(dir);
  manta_trainer *t = make(one_gpu("stranger"));
  run(t);
  if (write(STDOUT_FILENO, "x", 1) != 1 || read(STDIN_FILENO, &c, 1) < 0)
    return 1;
  manta_trainer_destroy(t);
  return 0;
}

static void another_driver_is_named(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  char expected[64], c;
  int in[2], out[2];
  assert_int_equal(pipe(in), 0);
  assert_int_equal(pipe(out), 0);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    close(in[1]);
    execl("/proc/self/exe", "room", "--driver", results, (char *)NULL);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  assert_int_equal(read(out[0], &c, 1), 1);
  manta_trainer *t = make(one_gpu("waits"));
  assert_status(manta_trainer_start(t, &err), MANTA_ENOROOM);
  snprintf(expected, sizeof expected, "driver pid %d", (int)pid);
  assert_has(err.message, "held by trainer stranger");
  assert_has(err.message, expected);
  assert_has(err.message, results);
  close(in[1]);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  assert_ok(manta_trainer_start(t, &err), &err);
  manta_trainer_destroy(t);
  close(out[0]);
}

static int set_up(void **state)
{
  results = scratch_make();
  return setenv("XDG_RUNTIME_DIR", results, 1); // leases of our own
}

static int tear_down(void **state)
{
  scratch_remove(results);
  return 0;
}

int main(int argc, char **argv)
{
  setenv("MANTA_NUM_GPUS", "1", 1);
  setenv("MANTA_NUM_CPUS", "4", 1);
  setenv("MANTA_RESOURCES", "{\"disk\": 2}", 1);
  if (manta_init(&argc, &argv) < 0)
    return 1;
  if (argc == 3 && !strcmp(argv[1], "--driver"))
    return other_driver(argv[2]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(idle_trainers_give_way_in_turn),
      cmocka_unit_test(a_start_makes_room_as_well),
      cmocka_unit_test(strict_cpus_and_named_resources_are_room_too),
      cmocka_unit_test(an_elastic_run_gets_its_whole_size),
      cmocka_unit_test(one_that_holds_is_named),
      cmocka_unit_test(one_that_runs_is_named),
      cmocka_unit_test(sigterm_to_the_agent_is_a_notice_to_all),
      cmocka_unit_test(another_driver_is_named),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
