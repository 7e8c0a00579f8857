/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/child.c - the program that `manta run` starts, and its signals.
 * (1) The program dies with us, however we end.
 * (2) Signals are read from a descriptor between two looks at the child: nothing happens inside a
 *     handler.
 * (3) A notice goes to the runs of the program through their agents, for libmanta puts no handler
 *     into the user's program; a program that has no run gets the SIGTERM itself.
 */
#include "cmd/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/knob.h"
#include "cmd/ask.h"
#include "cmd/format.h"
#include "cmd/options.h"
#include "event/lock.h"
#include "sys/proc.h"
#include "sys/sock.h"

#define AGAIN_S 0.5 /* a run that begins after the notice is told of it within this */

struct child {
  pid_t pid;
  int signals;     // signalfd
  sigset_t before; // our mask, for the program
  bool noticed, killed;
  int64_t kill_at, again_at;
};

manta_status manta__child_prepare(manta_error *err)
{
  char self[PATH_MAX];
  if (manta__knob_is_set(MANTA__KNOB_BIN))
    return MANTA_OK;
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n < 0)
    return manta_error_set(err, MANTA_EIO, "/proc/self/exe: %m");
  self[n] = 0;
  setenv("MANTA_BIN", self, 1);
  return MANTA_OK;
}

// --- Beginning -----------------------------------------------------------------------------------

static manta_status catch_signals(struct child *c, manta_error *err)
{
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, SIGCHLD);
  sigaddset(&ours, SIGTERM);
  sigaddset(&ours, SIGINT);
  sigaddset(&ours, SIGQUIT);
  sigprocmask(SIG_BLOCK, &ours, &c->before);
  c->signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
  return c->signals < 0 ? manta_error_set(err, MANTA_EIO, "signalfd: %m") : MANTA_OK;
}

// In the child. The parent may have died before the kernel was told to watch it.
_Noreturn static void become(const struct child *c, pid_t parent, int tell, const char *path,
                             char *const argv[])
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent)
    _exit(MANTA__EXIT_FAILED);
  sigprocmask(SIG_SETMASK, &c->before, NULL);
  execvp(path, argv);
  ssize_t n = write(tell, &errno, sizeof errno);
  (void)n;
  _exit(MANTA__EXIT_FAILED);
}

static manta_status start(struct child *c, const char *path, char *const argv[], manta_error *err)
{
  int tell[2], error = 0;
  pid_t parent = getpid();
  if (pipe2(tell, O_CLOEXEC) < 0)
    return manta_error_set(err, MANTA_EIO, "pipe: %m");
  fflush(NULL);
  c->pid = fork();
  if (c->pid == 0)
    become(c, parent, tell[1], path, argv);
  close(tell[1]);
  ssize_t n = c->pid < 0 ? 0 : read(tell[0], &error, sizeof error); // ends when exec closes it
  close(tell[0]);
  if (c->pid < 0)
    return manta_error_set(err, MANTA_EIO, "fork: %m");
  if (n != sizeof error)
    return MANTA_OK;
  waitpid(c->pid, NULL, 0);
  errno = error;
  return manta_error_set(err, error == ENOENT ? MANTA_ENOENT : MANTA_EIO, "cannot run %s: %m",
                         path);
}

// --- Notices -------------------------------------------------------------------------------------

// A program that keeps its workers between two runs has none that could end.
static bool goes_on(const char *path)
{
  int fd = path[0] ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  bool held = fd >= 0 && manta__runlock_holder(fd) != 0;
  manta__fd_close(&fd);
  return held;
}

// How many runs of the program were told.
static int notice_runs(const struct child *c)
{
  manta_value ps = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct manta__live_at at = {0};
  struct manta__live live;
  int told = 0;
  manta__ask_ps(&ps, true, &err);
  while (manta__live_next(&ps, &at, &live))
    if (manta__is_below(live.driver, c->pid) && goes_on(live.path))
      told += manta__ask_run(live.agent, "notice", live.path, 0, &err) == MANTA_OK;
  manta_value_fini(&ps);
  return told;
}

// The drivers themselves too: the program may be a script that started them.
static void kill_all(struct child *c)
{
  manta_value ps = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct manta__live_at at = {0};
  struct manta__live live;
  manta__ask_ps(&ps, true, &err);
  while (manta__live_next(&ps, &at, &live))
    if (live.driver > 0 && manta__is_below(live.driver, c->pid))
      manta__proc_signal(live.driver, SIGKILL);
  manta__proc_signal(c->pid, SIGKILL);
  manta_value_fini(&ps);
  c->killed = true;
  c->kill_at = MANTA__NEVER;
}

static double grace(void)
{
  return manta__knob_seconds(MANTA__KNOB_GRACE);
}

static void first_notice(struct child *c)
{
  int told = notice_runs(c);
  c->noticed = true;
  c->kill_at = manta__deadline(grace());
  c->again_at = manta__deadline(AGAIN_S);
  if (told == 0)
    manta__proc_signal(c->pid, SIGTERM);
  else
    manta__say("asked to stop: %s told to save and end; in %.3g s, or at the next SIGTERM, the "
               "program is killed",
               told == 1 ? "the run was" : "its runs were", grace());
}

static void on_signal(struct child *c, int number)
{
  if (number != SIGTERM)
    return; // SIGCHLD: waitpid follows; SIGINT, SIGQUIT: the program has them from the terminal
  if (c->noticed && !c->killed)
    kill_all(c);
  else if (!c->noticed)
    first_notice(c);
}

// --- The loop ------------------------------------------------------------------------------------

static void read_signals(struct child *c)
{
  struct signalfd_siginfo si;
  while (read(c->signals, &si, sizeof si) == sizeof si)
    on_signal(c, (int)si.ssi_signo);
}

static int64_t tick(struct child *c)
{
  int64_t now = manta__now();
  if (!c->noticed || c->killed)
    return MANTA__NEVER;
  if (now >= c->kill_at) {
    manta__say("the program did not end in time: it is killed");
    kill_all(c);
    return MANTA__NEVER;
  }
  if (now >= c->again_at) {
    notice_runs(c);
    c->again_at = manta__deadline(AGAIN_S);
  }
  return c->again_at < c->kill_at ? c->again_at : c->kill_at;
}

static int wait_for_end(struct child *c)
{
  int status;
  while (waitpid(c->pid, &status, WNOHANG) == 0) {
    struct pollfd p = {.fd = c->signals, .events = POLLIN};
    int64_t next = tick(c);
    poll(&p, 1, manta__left_ms(next));
    read_signals(c);
  }
  if (WIFSIGNALED(status))
    return MANTA__EXIT_SIGNAL + WTERMSIG(status);
  return WEXITSTATUS(status);
}

int manta__child_run(const char *path, char *const argv[])
{
  manta_error err = MANTA_ERROR_INIT;
  struct child c = {.signals = -1, .kill_at = MANTA__NEVER, .again_at = MANTA__NEVER};
  manta_status st = catch_signals(&c, &err);
  if (st == MANTA_OK)
    st = start(&c, path, argv, &err);
  int code = st < 0 ? manta__complain(&err) : wait_for_end(&c);
  manta__fd_close(&c.signals);
  return code;
}
