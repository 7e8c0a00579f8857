/* SPDX-License-Identifier: Apache-2.0
 *
 * A trial that the kernel kills for want of memory fails alone, and says why.
 */
#include "train/rig.h"

#include <errno.h>
#include <sys/prctl.h>

#include <manta/tune.h>

#define STEP ((size_t)64 << 20)

static manta_status trial(manta_session *s, manta_value *result, manta_error *err)
{
  manta_value row = MANTA_MAP(MANTA_KV_REAL("loss", 1));
  if (!board)
    board_open();
  MANTA_TRY(manta_session_report(s, &row, err));
  if (manta_session_config_int(s, "eats", 0) == 0)
    return manta_session_report(s, &row, err);
  board->fired++;
  for (int i = 0; i < 32; i++) { // four times the limit
    void *p = mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      return manta_error_set(err, MANTA_ENOMEM, "mmap: %m");
    memset(p, 1, STEP);
  }
  return MANTA_OK;
}

// This program in the group: its exit code says what was not as it should be.
static int drive(const char *dir, const char *cgroup, bool reuse)
{
  manta_tune *t = NULL;
  manta_error err = MANTA_ERROR_INIT;
  manta_tune_config c = MANTA_TUNE_CONFIG_INIT;
  static const char text[] = "{\"eats\": {\"$grid\": [0, 1, 0, 0]}}";
  manta_value space = {0};
  manta_trial x;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  board_open();
  if (!join_cgroup(cgroup) || manta_value_from_json(&space, text, strlen(text), &err) < 0)
    return 2;
  c.space = &space;
  c.logdir = dir;
  c.name = "exp";
  c.concurrency = 2;
  c.max_failures = 1;
  c.reuse = reuse;
  if (manta_tune_run(&t, trial, &c, &err) < 0)
    return 3;
  for (uint64_t i = 0; i < 4; i++) {
    if (manta_tune_trial(t, i, &x, &err) < 0 ||
        x.state != (i == 1 ? MANTA_TRIAL_FAILED : MANTA_TRIAL_FINISHED))
      return 10 + (int)i;
    if (i == 1 && (x.failures != 2 || !strstr(x.message, "out of memory")))
      return 20;
  }
  manta_tune_close(t);
  manta_value_fini(&space);
  return 0;
}

static void it_fails_alone(const char *how)
{
  char cgroup[600], dir[64] = "/tmp/manta-test-XXXXXX", cmd[160];
  int status = -1;
  memory_cgroup(cgroup, sizeof cgroup);
  assert_non_null(mkdtemp(dir));
  memset(board, 0, sizeof *board);
  pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "oom_test", how, dir, cgroup, (char *)NULL);
    _exit(127);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  assert_int_equal(board->fired, 2); // tried again, once
  assert_true(within(5, rmdir(cgroup) == 0 || errno == ENOENT));
  snprintf(cmd, sizeof cmd, "rm -rf %s 2>/dev/null", dir);
  assert_true(within(5, system(cmd) == 0));
}

static void a_trial_in_its_own_process_fails_alone(void **state)
{
  it_fails_alone("--apart");
}

static void so_does_one_in_a_worker_that_serves_many(void **state)
{
  it_fails_alone("--reuse");
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  if (argc > 3)
    return drive(argv[2], argv[3], !strcmp(argv[1], "--reuse"));
  board_open();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_trial_in_its_own_process_fails_alone),
      cmocka_unit_test(so_does_one_in_a_worker_that_serves_many),
  };
  int failed = cmocka_run_group_tests_name("oom", tests, NULL, NULL);
  board_close();
  return failed;
}
