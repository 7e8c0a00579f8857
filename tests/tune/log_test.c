/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of an experiment that is cut short anywhere, that meets a full disk, or that two drivers
 * want: a clear message or the experiment itself, nothing else.
 */
#include "setting.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/file.h"
#include "sys/proc.h"

static struct {
  char *dir;
  char path[PATH_MAX]; /* of the experiment */
  struct setting s;
  struct sim sim;
} bed;

static int set_up(void **state)
{
  bed.dir = scratch_make();
  bed.sim = make_sim(0);
  bed.sim.seats = 2;
  bed.sim.length = 3;
  bed.sim.fail = bed.sim.forgets = 0;
  make_setting(&bed.s, bed.dir, "asha", 3);
  bed.s.c.samples = 4;
  return 0;
}

static int tear_down(void **state)
{
  manta__file_fault(0, 0, 0);
  drop_setting(&bed.s);
  scratch_remove(bed.dir);
  return 0;
}

static manta_tune *begin(void)
{
  manta_tune *t = open_experiment(&bed.sim, &bed.s);
  snprintf(bed.path, sizeof bed.path, "%s", manta_tune_dir(t));
  bed.s.c.resume = bed.path;
  return t;
}

static void run_to_end(manta_tune *t)
{
  assert_true(take(t, 100000));
  assert_all_ended(t, bed.s.c.samples);
  manta_tune_close(t);
}

static int open_log(void)
{
  char file[PATH_MAX + 32];
  snprintf(file, sizeof file, "%s/experiment/run.log", bed.path);
  int fd = open(file, O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  return fd;
}

// --- cut short -----------------------------------------------------------------------------------

static void cut_at_every_byte_it_goes_on(void **state)
{
  static char whole[1 << 16];
  run_to_end(begin());
  int fd = open_log(), resumed = 0;
  ssize_t n = read(fd, whole, sizeof whole);
  assert_in_range(n, 500, (ssize_t)sizeof whole - 1);
  for (ssize_t at = 0; at <= n; at++) {
    manta_error err = MANTA_ERROR_INIT;
    manta_tune *t;
    assert_int_equal(pwrite(fd, whole, (size_t)n, 0), n);
    assert_int_equal(ftruncate(fd, at), 0);
    memset(bed.sim.seat, 0, sizeof bed.sim.seat);
    manta_status st =
        manta__experiment_start(&t, NULL, &bed.s.c, (struct manta__runner *)(void *)&bed.sim, &err);
    if (st < 0) {
      fail_msg("cut at %zd of %zd: %s", at, n, err.message);
    } else {
      run_to_end(t);
      resumed++;
    }
  }
  assert_int_equal(resumed, n + 1);
  close(fd);
}

// --- a full disk ---------------------------------------------------------------------------------

// The disk is full after so many bytes; true: that happened.
static bool run_until_full(int64_t room)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_tune *t = NULL;
  int rc;
  manta__file_fault(room, ENOSPC, 0);
  memset(bed.sim.seat, 0, sizeof bed.sim.seat);
  rc = manta__experiment_start(&t, NULL, &bed.s.c, (struct manta__runner *)(void *)&bed.sim, &err);
  while (rc >= 0 && (rc = manta_tune_next(t, -1, NULL, &err)) == 1)
    ;
  if (rc < 0) {
    assert_has(err.message, "No space left");
    assert_has(err.message, "run.log");
  }
  if (t)
    manta_tune_close(t);
  manta__file_fault(0, 0, 0);
  return rc < 0;
}

static void on_a_full_disk_it_ends_and_goes_on_later(void **state)
{
  int full = 0;
  for (int64_t room = 0;; room += 41) {
    assert_true(room < 100000);
    bed.s.c.resume = NULL;
    bed.s.c.samples = 1; // the directory and the head of its log
    manta_tune *t = begin();
    manta_tune_close(t);
    bed.s.c.samples = 4;
    if (!run_until_full(room))
      break;
    full++;
    run_to_end(open_experiment(&bed.sim, &bed.s));
  }
  assert_true(full > 10);
}

// --- two drivers ---------------------------------------------------------------------------------

static pid_t hold_elsewhere(void)
{
  int told[2];
  char byte = 0;
  assert_int_equal(pipe(told), 0);
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    manta_tune *t = begin();
    take(t, 3);
    if (write(told[1], &byte, 1) == 1)
      pause();
    _exit(1);
  }
  close(told[1]);
  assert_int_equal(read(told[0], &byte, 1), 1);
  close(told[0]);
  return pid;
}

static void the_second_driver_is_refused(void **state)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_tune *t;
  char text[64];
  manta_tune *first = begin();
  manta_tune_close(first);
  pid_t pid = hold_elsewhere();
  manta_status st =
      manta__experiment_start(&t, NULL, &bed.s.c, (struct manta__runner *)(void *)&bed.sim, &err);
  assert_int_equal(st, MANTA_ESTATE);
  snprintf(text, sizeof text, "process (pid %d)", (int)pid);
  assert_has(err.message, text);
  assert_has(err.message, "has a driver");
  assert_ok(manta_tune_open(&t, bed.path, &err), &err); // whoever only reads may
  manta_tune_close(t);
  manta__proc_signal(pid, SIGKILL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
  run_to_end(open_experiment(&bed.sim, &bed.s)); // the lock of a dead one is none
}

int main(int argc, char **argv)
{
  manta_set_log(say_nothing, NULL);
#define log_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      log_test(cut_at_every_byte_it_goes_on),
      log_test(on_a_full_disk_it_ends_and_goes_on_later),
      log_test(the_second_driver_is_refused),
  };
  return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
