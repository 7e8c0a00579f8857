/* SPDX-License-Identifier: Apache-2.0
 *
 * A process on a lifeline dies when the other end closes, whatever it is doing, and not before.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "base/clock.h"
#include "holder.h"
#include "sys/lifeline.h"

struct life {
  int end[2];
  int mood; /* what the supervised process does */
};

enum { ASLEEP, SPINNING, DEAF, FORKED };

static int hang_on(void *p)
{
  struct life *l = p;
  manta_error err = MANTA_ERROR_INIT;
  close(l->end[0]);
  if (l->mood == DEAF) { // SIGKILL cannot be blocked
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
  }
  manta_status st = manta__lifeline_hang_on(l->end[1], &err);
  if (l->mood == FORKED && fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) // a child that keeps the descriptor open does not keep the parent alive
      pause();
  }
  return st;
}

static bool dies_within(pid_t pid, int64_t ns, int *status)
{
  int64_t by = manta__now() + ns;
  while (waitpid(pid, status, WNOHANG) == 0) {
    if (manta__now() > by)
      return false;
    usleep(200);
  }
  return true;
}

static void it_dies_with_the_supervisors_end(void **ctx)
{
  int killed = 0;
  for (int mood = ASLEEP; mood <= FORKED; mood++) {
    struct life l = {.mood = mood};
    manta_error err = MANTA_ERROR_INIT;
    int said = -1, status = 0;
    assert_ok(manta__lifeline_create(l.end, &err), &err);
    assert_int_equal(fcntl(l.end[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(l.end[1], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    pid_t pid = holder_start(hang_on, &l, &said);
    assert_int_equal(said, MANTA_OK);
    close(l.end[1]);
    assert_false(dies_within(pid, 5000000, &status)); // it lives as long as we hold on
    close(l.end[0]);
    assert_true(dies_within(pid, 5000000000, &status));
    killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }
  assert_int_equal(killed, FORKED + 1);
}

static void one_that_spins_dies_too(void **ctx)
{
  struct life l;
  manta_error err = MANTA_ERROR_INIT;
  int ready[2], status = 0;
  assert_ok(manta__lifeline_create(l.end, &err), &err);
  assert_int_equal(pipe(ready), 0);
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(l.end[0]);
    if (manta__lifeline_hang_on(l.end[1], NULL) == MANTA_OK && write(ready[1], "x", 1) == 1)
      for (volatile unsigned i = 0;; i++)
        ;
    _exit(1);
  }
  char x;
  close(l.end[1]);
  assert_int_equal(read(ready[0], &x, 1), 1);
  close(l.end[0]);
  assert_true(dies_within(pid, 5000000000, &status));
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  close(ready[0]);
  close(ready[1]);
}

static void one_that_comes_too_late_dies_at_once(void **ctx)
{
  int end[2], status;
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__lifeline_create(end, &err), &err);
  close(end[0]);
  pid_t pid = fork();
  if (pid == 0) {
    manta__lifeline_hang_on(end[1], NULL);
    _exit(0); // not reached
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  close(end[1]);
}

// No moment between arming and looking is left open.
static void closing_while_it_arms_never_misses(void **ctx)
{
  int killed = 0;
  for (int round = 0; round < 100; round++) {
    int end[2], status = 0;
    manta_error err = MANTA_ERROR_INIT;
    assert_ok(manta__lifeline_create(end, &err), &err);
    pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(end[0]);
      for (int i = round % 10; i > 0; i--)
        sched_yield();
      manta__lifeline_hang_on(end[1], NULL);
      for (;;)
        pause();
    }
    close(end[1]);
    for (int i = round / 10; i > 0; i--)
      sched_yield();
    close(end[0]);
    assert_true(dies_within(pid, 5000000000, &status));
    killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }
  assert_int_equal(killed, 100);
}

static void a_bad_descriptor_is_told(void **ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  assert_status(manta__lifeline_hang_on(-1, &err), MANTA_EIO);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_dies_with_the_supervisors_end),
      cmocka_unit_test(one_that_spins_dies_too),
      cmocka_unit_test(one_that_comes_too_late_dies_at_once),
      cmocka_unit_test(closing_while_it_arms_never_misses),
      cmocka_unit_test(a_bad_descriptor_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
