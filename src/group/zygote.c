/* SPDX-License-Identifier: Apache-2.0 */
#include "group/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "group/proto.h"
#include "sys/lifeline.h"
#include "sys/proc.h"
#include "sys/sock.h"

#define NEWBORN_MAX 64
#define NEWBORN_S   5.0 // for a child to begin a session of its own

struct zygote {
  manta__conn *conn;
  int lifeline;
  char *const *argv;
  const struct manta__job_ops *ops;
  pid_t newborn[NEWBORN_MAX]; // forked, and perhaps still of our process group
  int newborns;
};

#define LOW_PRIORITY "3" // nice level of its session while it warms up
#define ONE_THREAD_S 2.0 // the kernel may still list a thread that was joined

// An eventfd, written by a handler. Not a signalfd: a library's thread, whose mask is not ours,
// would take the signal and drop it.
static int child_ended = -1;

static void on_sigchld(int sig)
{
  int saved = errno;
  ssize_t n = write(child_ended, &(uint64_t){1}, 8);
  (void)n; // the counter is full: then it is seen anyway
  errno = saved;
}

static void send_msg(struct zygote *z, uint16_t kind, const void *p, size_t n, int fd)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {.kind = kind, .data = p, .len = n, .fd = {fd}, .fds = fd >= 0};
  if (manta__conn_send(z->conn, &m, &err) < 0 ||
      manta__conn_drain(z->conn, manta__deadline(30), &err) < 0)
    _exit(0); // the agent is gone
}

static pid_t start_by_exec(struct zygote *z, enum manta__role role, const int *fds, int count)
{
  // a copy: exec must not depend on what the program does with its environment later
  char **env = manta__role_environment(role);
  pid_t pid = -1;
  manta_error err = MANTA_ERROR_INIT;
  if (!env)
    errno = ENOMEM;
  else if (manta__proc_spawn(&pid, "/proc/self/exe", z->argv, env, fds, count, -1, &err) < 0)
    pid = -1;
  manta__free(env);
  return pid;
}

static void call(void (*hook)(void))
{
  if (hook)
    hook();
}

static void leave_zygote(struct zygote *z)
{
  manta__conn_destroy(z->conn);
  close(z->lifeline);
  close(child_ended);
}

static void become_worker(struct zygote *z, const int *fds)
{
  leave_zygote(z);
  call(z->ops->fork.child);
  manta__worker_main(fds, z->ops);
}

static pid_t fork_between_hooks(struct zygote *z)
{
  call(z->ops->fork.before);
  pid_t pid = fork();
  int saved = errno;
  if (pid != 0)
    call(z->ops->fork.parent);
  errno = saved;
  return pid;
}

static void forget_grown(struct zygote *z)
{
  int kept = 0;
  for (int i = 0; i < z->newborns; i++)
    if (getpgid(z->newborn[i]) == getpgrp())
      z->newborn[kept++] = z->newborn[i];
  z->newborns = kept;
}

static void note_newborn(struct zygote *z, pid_t pid)
{
  forget_grown(z);
  if (z->newborns < NEWBORN_MAX)
    z->newborn[z->newborns++] = pid;
}

// True: we are a worker whose work is over.
static bool serve_fork(struct zygote *z, struct manta__msg *m)
{
  struct manta__fork_msg in;
  if (!manta__msg_copy(m, &in, sizeof in) || m->fds != MANTA__W_FDS)
    return false;
  struct manta__forked_msg out = {.wid = in.wid, .threads = manta__proc_threads()};
  pid_t pid = out.threads > 1 ? start_by_exec(z, MANTA__ROLE_WORKER, m->fd, MANTA__W_FDS)
                              : fork_between_hooks(z);
  if (pid == 0) {
    become_worker(z, m->fd);
    return true;
  }
  int pidfd = -1;
  if (pid > 0) {
    out.pid = pid;
    // Ours until we reap it: the number cannot be another process yet.
    pidfd = manta__pidfd_open(pid);
    note_newborn(z, pid);
  } else {
    out.error = errno;
  }
  send_msg(z, MANTA__M_FORKED, &out, sizeof out, pidfd);
  manta__fd_close(&pidfd);
  return false;
}

_Noreturn static void become_caller(struct zygote *z, const int *fds)
{
  leave_zygote(z);
  setsid();
  manta__proc_reset_signals();
  call(z->ops->fork.child);
  z->ops->serve_reader(fds, z->ops->fork.callers);
  _exit(0);
}

// One that cannot be made closes its descriptors: the reader sees that.
static void serve_caller(struct zygote *z, struct manta__msg *m)
{
  if (!z->ops->fork.callers)
    return;
  pid_t pid = manta__proc_threads() > 1
                  ? start_by_exec(z, MANTA__ROLE_CALLER, m->fd, MANTA__ROLE_CALLER_FDS)
                  : fork_between_hooks(z);
  if (pid == 0)
    become_caller(z, m->fd);
  if (pid > 0)
    note_newborn(z, pid);
}

static void forward_exits(struct zygote *z)
{
  uint64_t count;
  ssize_t n = read(child_ended, &count, sizeof count);
  (void)n; // nothing there: looking costs little
  for (;;) {
    siginfo_t dead = {.si_pid = 0};
    if (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) < 0 || dead.si_pid == 0)
      return;
    // While it is a zombie its number is its own: what is left of its group can be ended safely.
    manta__proc_signal_group(dead.si_pid, SIGKILL);
    struct manta__exited_msg out = {.pid = dead.si_pid};
    waitpid(dead.si_pid, &out.status, 0);
    send_msg(z, MANTA__M_EXITED, &out, sizeof out, -1);
  }
}

// --- the successor -------------------------------------------------------------------------------

// Where sessions share the CPUs by autogroup, nice levels count inside one only. Unlike a nice
// level, that of an autogroup may be raised again.
static void set_session_priority(const char *nice)
{
  int fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? write(fd, nice, strlen(nice)) : 0;
  (void)n; // not every kernel has it
  manta__fd_close(&fd);
}

static bool has_one_thread(void)
{
  int64_t by = manta__deadline(ONE_THREAD_S);
  while (manta__proc_threads() != 1) {
    if (manta__now() >= by)
      return false;
    usleep(1000);
  }
  return true;
}

static void say_serving(struct zygote *z, bool cold)
{
  struct manta__serving_msg out = {.pid = getpid(), .cold = cold};
  send_msg(z, MANTA__M_SERVING, &out, sizeof out, -1);
}

static manta_status set_up(struct zygote *z, int conn, manta_error *err);

static void become_successor(struct zygote *z, int conn, int lifeline)
{
  manta_error err = MANTA_ERROR_INIT;
  leave_zygote(z);
  z->lifeline = lifeline;
  setsid();
  if (set_up(z, conn, &err) < 0) {
    manta__error("zygote: %s", err.message);
    _exit(70);
  }
  set_session_priority(LOW_PRIORITY);
  bool warm = z->ops->fork.warm();
  set_session_priority("0");
  if (!warm || !has_one_thread())
    _exit(1); // the agent says so, and stays with the one we come from
  say_serving(z, false);
}

static void serve_succeed(struct zygote *z, struct manta__msg *m)
{
  if (m->fds != 2 || !z->ops->fork.warm || manta__proc_threads() > 1)
    return; // that the connection is closed tells the agent
  pid_t pid = fork_between_hooks(z);
  if (pid == 0)
    become_successor(z, manta__msg_take_fd(m, 0), manta__msg_take_fd(m, 1));
}

// --- the loop ------------------------------------------------------------------------------------

// What it has reaped is told; whoever is left becomes a child of the agent. That ends our process
// group when we are gone: no worker may still be in it.
_Noreturn static void retire(struct zygote *z)
{
  int64_t by = manta__deadline(NEWBORN_S);
  for (forget_grown(z); z->newborns > 0 && manta__now() < by; forget_grown(z))
    usleep(1000);
  forward_exits(z);
  _exit(0);
}

static bool serve_messages(struct zygote *z)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  int rc;
  while ((rc = manta__conn_recv(z->conn, &m, &err)) == 1) {
    if (m.kind == MANTA__M_FORK && serve_fork(z, &m))
      return true;
    if (m.kind == MANTA__M_CALLER)
      serve_caller(z, &m);
    if (m.kind == MANTA__M_SUCCEED)
      serve_succeed(z, &m);
    if (m.kind == MANTA__M_RETIRE)
      retire(z);
    manta__msg_close(&m);
  }
  if (rc < 0)
    _exit(0);
  return false;
}

static manta_status set_up(struct zygote *z, int conn, manta_error *err)
{
  struct sigaction sa = {.sa_handler = on_sigchld, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
  child_ended = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (child_ended < 0 || sigaction(SIGCHLD, &sa, NULL) < 0)
    return manta_error_set(err, MANTA_EIO, "eventfd: %m");
  prctl(PR_SET_NAME, "manta-zygote");
  MANTA_TRY(manta__lifeline_hang_on(z->lifeline, err));
  return manta__conn_create(&z->conn, conn, manta__proto_end(MANTA__ZYGOTE_TO_AGENT), err);
}

void manta__zygote_main(int conn, int lifeline, char *const argv[],
                        const struct manta__job_ops *ops)
{
  struct zygote z = {.lifeline = lifeline, .argv = argv, .ops = ops};
  manta_error err = MANTA_ERROR_INIT;
  if (set_up(&z, conn, &err) < 0) {
    manta__error("zygote: %s", err.message);
    _exit(70);
  }
  if (ops->fork.warm)
    say_serving(&z, true);
  for (;;) {
    struct pollfd p[2] = {{.fd = manta__conn_fd(z.conn), .events = POLLIN},
                          {.fd = child_ended, .events = POLLIN}};
    if (poll(p, 2, -1) < 0 && errno != EINTR)
      _exit(70);
    forward_exits(&z);
    if (serve_messages(&z))
      return;
  }
}
