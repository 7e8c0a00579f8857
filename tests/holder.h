/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/holder.h - another process that does something, says so, and stays until it is killed.
 */
#ifndef MANTA_TEST_HOLDER_H
#define MANTA_TEST_HOLDER_H

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/proc.h"
#include "test.h"

/* Forks a process that runs fn(ctx) and then sleeps; returns when fn has returned. *said gets what
 * fn returned. */
static inline pid_t holder_start(int (*fn)(void *), void *ctx, int *said)
{
  int p[2];
  assert_int_equal(pipe(p), 0);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); // a test that fails leaves nobody behind
    int answer = fn(ctx);
    if (write(p[1], &answer, sizeof answer) != sizeof answer)
      _exit(1);
    for (;;)
      pause();
  }
  close(p[1]);
  struct pollfd f = {p[0], POLLIN, 0};
  assert_int_equal(poll(&f, 1, 10000), 1);
  assert_int_equal(read(p[0], said, sizeof *said), sizeof *said);
  close(p[0]);
  return pid;
}

static inline void holder_kill(pid_t pid)
{
  int status;
  assert_int_equal(manta__proc_signal(pid, SIGKILL), 0);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

#endif
