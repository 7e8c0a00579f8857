/* SPDX-License-Identifier: Apache-2.0 */
#include "group/apart.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/oom.h"
#include "sys/proc.h"

static uint64_t ooms; // kills for want of memory in our cgroup, when last looked at

bool manta__apart_can(void)
{
  return manta__proc_threads() == 1;
}

static void call(void (*hook)(void))
{
  if (hook)
    hook();
}

static void begin_apart(pid_t worker)
{
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != worker)
    _exit(0); // it was gone before that
}

pid_t manta__apart_fork(const manta_fork_hooks *hooks)
{
  static bool looked;
  pid_t worker = getpid();
  if (!looked)
    manta__oom_happened(&ooms); // those before our time do not count
  looked = true;
  call(hooks->before);
  pid_t pid = fork();
  int saved = errno;
  if (pid == 0) {
    begin_apart(worker);
    call(hooks->child);
    return 0;
  }
  call(hooks->parent);
  if (pid > 0)
    setpgid(pid, pid); // whoever of both is first
  errno = saved;
  return pid;
}

int manta__apart_wait(pid_t pid)
{
  siginfo_t dead;
  int status = 0;
  while (waitid(P_PID, (id_t)pid, &dead, WEXITED | WNOWAIT) < 0 && errno == EINTR)
    ;
  // While it is a zombie its number is its own: what is left of its group can be ended safely.
  manta__proc_signal_group(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  return status;
}

void manta__apart_explain(int status, char *buf, size_t size)
{
  bool oom = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && manta__oom_happened(&ooms);
  manta__proc_explain(status, buf, size);
  size_t n = strlen(buf);
  if (oom)
    snprintf(buf + n, size - n, ", out of memory: the kernel's OOM killer");
}
