/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/bridge_near.c - the near half of a bridge: looks like an agent to its driver.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/manta.h>

#include "agent/bridge.h"
#include "base/clock.h"
#include "base/log.h"
#include "sys/proc.h"
#include "sys/sock.h"

#define END_S    2.0 /* for the command to end after its input has */
#define MAX_RUNS 256 /* whose writers are listened to */

double manta__bridge_beat(double timeout_s)
{
  double s = timeout_s / 5;
  return s > 1 ? 1 : s < 0.02 ? 0.02 : s;
}

void manta__near_to_driver(struct manta__near *n, const struct manta__msg *m)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = n->driver ? manta__conn_send(n->driver, m, &err) : MANTA_OK;
  if (st < 0 && st != MANTA_ECLOSED)
    manta__warn("bridge to %s: %s", n->name, err.message);
}

// Messages of one trainer keep their order, also behind what travels by value.
void manta__near_to_far(struct manta__near *n, const struct manta__msg *m, const manta_value *v)
{
  manta_error err = MANTA_ERROR_INIT;
  uint64_t lane = m->group;
  if (!n->far)
    return;
  manta_status st = v ? manta__stream_send_value(n->far, m, lane, v, &err)
                      : manta__stream_send(n->far, m, lane, &err);
  if (st < 0 && st != MANTA_ECLOSED)
    manta__warn("bridge to %s: %s", n->name, err.message);
}

// --- the command --------------------------------------------------------------------------------

_Noreturn static void become_command(const char *command, int io, int err, pid_t parent)
{
  // Whatever happens to us, it must not stay: a shell that waits for its child, say.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent)
    _exit(127);
  setsid();
  manta__proc_reset_signals();
  dup2(io, STDIN_FILENO);
  dup2(io, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  closefrom(3);
  unsetenv("SSH_CONNECTION"); // of the driver: one that is there at the end was made on the way
  execl("/bin/sh", "sh", "-c", command, (char *)NULL);
  dprintf(STDERR_FILENO, "/bin/sh: %m\n");
  _exit(127);
}

static manta_status start_command(struct manta__near *n, manta_error *err)
{
  int io[2], words[2];
  pid_t self = getpid();
  MANTA_TRY(manta__sock_pair(io, err));
  if (pipe2(words, O_CLOEXEC) < 0) {
    manta__fd_close_all(io, 2);
    return manta_error_set(err, MANTA_EIO, "pipe: %m");
  }
  n->command_pid = fork(); // one thread: as good as spawn, which cannot tie it to our life
  if (n->command_pid == 0)
    become_command(n->command, io[1], words[1], self);
  close(io[1]);
  close(words[1]);
  n->err_fd = words[0];
  if (n->command_pid < 0) {
    close(io[0]);
    return manta_error_set(err, MANTA_EIO, "fork: %m");
  }
  n->command_pidfd = manta__pidfd_open(n->command_pid);
  MANTA_TRY(manta__fd_nonblock(n->err_fd, true, err));
  return manta__stream_create(&n->far, io[0], io[0], manta__proto_end(MANTA__NEAR_TO_FAR), err);
}

static void remember(struct manta__near *n, const char *p, size_t len)
{
  size_t room = sizeof n->words - 1;
  if (len > room) {
    p += len - room;
    len = room;
  }
  size_t keep = n->words_len < room - len ? n->words_len : room - len;
  memmove(n->words, n->words + n->words_len - keep, keep);
  memcpy(n->words + keep, p, len);
  n->words_len = keep + len;
  n->words[n->words_len] = 0;
}

static void end_line(struct manta__near *n)
{
  fprintf(stderr, "[%s] %.*s\n", n->name, (int)n->line_len, n->line);
  n->line_len = 0;
}

// By lines, though they come in pieces; one that is too long for us is shown in parts.
static void show(struct manta__near *n, const char *p, size_t len)
{
  for (size_t i = 0; i < len; i++) {
    if (p[i] == '\n' || n->line_len == sizeof n->line)
      end_line(n);
    if (p[i] != '\n')
      n->line[n->line_len++] = p[i];
  }
}

static void read_words(struct manta__near *n)
{
  char buf[4096];
  ssize_t got;
  while (n->err_fd >= 0 && (got = read(n->err_fd, buf, sizeof buf)) != 0) {
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return;
    remember(n, buf, (size_t)got);
    show(n, buf, (size_t)got);
  }
  if (n->line_len > 0)
    end_line(n);
  manta__fd_close(&n->err_fd);
}

// --- messages -----------------------------------------------------------------------------------

static void on_hello(struct manta__near *n, struct manta__msg *m)
{
  n->wake_fd = manta__msg_take_fd(m, 0);
  m->fds = 0;
  manta__near_to_far(n, m, NULL);
}

static void on_disband(struct manta__near *n, struct manta__msg *m)
{
  manta__near_to_far(n, m, NULL);
  manta__bridge_run_disband(n, m->group);
}

static void on_driver(struct manta__near *n, struct manta__msg *m)
{
  static void (*const handlers[MANTA__M_KINDS])(struct manta__near * n, struct manta__msg * m) = {
      [MANTA__M_HELLO] = on_hello,
      [MANTA__M_RUN] = manta__bridge_run_begin,
      [MANTA__M_ATTEMPT] = manta__bridge_run_attempt,
      [MANTA__M_DISBAND] = on_disband,
  };
  if (m->kind < MANTA__M_KINDS && handlers[m->kind])
    handlers[m->kind](n, m);
  else
    manta__near_to_far(n, m, NULL);
}

static void driver_lost(struct manta__near *n)
{
  manta__conn_destroy(n->driver);
  n->driver = NULL;
  n->leave_by = manta__deadline(BRIDGE_LAST_S);
  manta__fd_close(&n->driver_pidfd);
  manta__fd_mute();
  manta__near_to_far(n, &(struct manta__msg){.kind = MANTA__M_LOST}, NULL);
  manta__bridge_run_driver_lost(n);
}

static void read_driver(struct manta__near *n)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  int rc = 0;
  while (n->driver && (rc = manta__conn_recv(n->driver, &m, &err)) == 1) {
    on_driver(n, &m);
    manta__msg_close(&m);
  }
  if (n->driver && rc < 0)
    driver_lost(n);
}

// The other end is gone, or speaks another language.
static void far_ended(struct manta__near *n, const manta_error *err)
{
  if (n->why.status == MANTA_OK && err->status == MANTA_EPROTO)
    manta_error_set(
        &n->why, MANTA_EPROTO,
        "its command printed something that is not a message of an agent (%s)\nhint: it must "
        "print nothing before `manta agent --stdio` does",
        err->message);
  manta__stream_destroy(n->far);
  n->far = NULL;
}

static manta_status on_refused(struct manta__near *n, struct manta__msg *m, manta_error *err)
{
  manta_value v = {0};
  struct manta__refused_msg in;
  MANTA_TRY(manta__refused_msg_unpack(m, &v, &in, err));
  n->why.status = (manta_status)in.status;
  snprintf(n->why.message, sizeof n->why.message, "%s", in.message);
  manta_value_fini(&v);
  return MANTA_OK;
}

static manta_status on_far(struct manta__near *n, struct manta__msg *m, manta_error *err)
{
  if (m->kind == MANTA__M_REFUSED)
    return on_refused(n, m, err);
  n->spoke |= m->kind == MANTA__M_HELLO;
  if (manta__bridge_run_takes(m->kind))
    return manta__bridge_run_take(n, m, err);
  MANTA_TRY(manta__proto_check(m, MANTA__FAR_TO_NEAR, err));
  if (m->kind != MANTA__M_BEAT)
    manta__near_to_driver(n, m);
  return MANTA_OK;
}

static bool paused(const struct manta__near *n)
{
  return n->driver && manta__conn_queued(n->driver) > BRIDGE_PAUSE;
}

static void read_far(struct manta__near *n)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  bool heard = paused(n); // it may have spoken: we do not listen
  int rc = 0;
  while (n->far && rc >= 0 && !paused(n) &&
         (rc = manta__stream_recv(n->far, &m, &heard, &err)) == 1) {
    rc = on_far(n, &m, &err);
    manta__msg_close(&m);
  }
  if (heard)
    n->heard_ns = manta__now();
  if (n->far && rc < 0)
    far_ended(n, &err);
}

// --- beats --------------------------------------------------------------------------------------

void manta__near_beat(void *ctx)
{
  struct manta__near *n = ctx;
  int64_t now = manta__now();
  if (now < n->beat_ns)
    return;
  n->beat_ns = now + (int64_t)(manta__bridge_beat(n->timeout_s) * 1e9);
  manta__near_to_far(n, &(struct manta__msg){.kind = MANTA__M_BEAT}, NULL);
  manta__near_to_driver(n, &(struct manta__msg){.kind = MANTA__M_BEAT});
}

// Before it has spoken, the driver's patience counts: a login takes its time.
static void notice_silence(struct manta__near *n, int64_t now)
{
  double silent = (double)(now - n->heard_ns) * 1e-9;
  if (!n->far || !n->spoke || silent <= n->timeout_s)
    return;
  manta_error_set(&n->why, MANTA_EAGENT, "silent for %.1f s", silent);
  manta__proc_signal_group(n->command_pid, SIGKILL);
  manta__stream_destroy(n->far);
  n->far = NULL;
}

// --- the end ------------------------------------------------------------------------------------

// Its status as waitpid gives it.
static int end_command(struct manta__near *n)
{
  int status = -1;
  manta__stream_destroy(n->far);
  n->far = NULL;
  if (n->command_pid <= 0)
    return -1;
  if (n->command_pidfd < 0 || manta__fd_wait(n->command_pidfd, false, manta__deadline(END_S)) <= 0)
    manta__proc_signal(n->command_pid, SIGKILL);
  waitpid(n->command_pid, &status, 0);
  manta__proc_signal_group(n->command_pid, SIGKILL); // what it left behind
  read_words(n);
  return status;
}

static void tell_why(struct manta__near *n, int status)
{
  char how[64] = "cause unknown", message[MANTA_ERROR_MESSAGE_MAX];
  if (status >= 0)
    manta__proc_explain(status, how, sizeof how);
  if (n->why.status < 0)
    snprintf(message, sizeof message, "host %.100s %s: %.880s", n->name,
             n->spoke ? "was lost" : "cannot be used", n->why.message);
  else if (n->spoke)
    snprintf(message, sizeof message, "host %s was lost: its command ended: %s", n->name, how);
  else
    snprintf(message, sizeof message,
             "host %s: its command ended before an agent answered: %s\nthe command: %.300s%s%.500s",
             n->name, how, n->command, n->words_len ? "\nits last output: " : "", n->words);
  manta_value v = MANTA__PACK(
      refused_msg, .status = n->why.status < 0 ? n->why.status : MANTA_EAGENT, .message = message);
  struct manta__msg m = {.kind = MANTA__M_REFUSED};
  if (n->driver && manta__conn_send_value(n->driver, &m, &v, NULL) == MANTA_OK)
    manta__conn_drain(n->driver, manta__deadline(1), NULL);
}

// --- the loop -----------------------------------------------------------------------------------

static nfds_t fill_polls(struct manta__near *n, struct pollfd *p)
{
  nfds_t k = 0;
  if (n->driver) {
    short out = manta__conn_pending(n->driver) ? POLLOUT : 0;
    p[k++] = (struct pollfd){.fd = manta__conn_fd(n->driver), .events = (short)(POLLIN | out)};
    p[k++] = (struct pollfd){.fd = n->driver_pidfd, .events = POLLIN};
  }
  short in = paused(n) ? 0 : POLLIN, out = manta__stream_pending(n->far) ? POLLOUT : 0;
  p[k++] = (struct pollfd){.fd = manta__stream_in(n->far), .events = (short)(in | out)};
  p[k++] = (struct pollfd){.fd = n->command_pidfd, .events = POLLIN};
  p[k++] = (struct pollfd){.fd = n->err_fd, .events = POLLIN};
  for (struct manta__bridge_run *r = n->runs; r && k < MAX_RUNS; r = r->next)
    if (r->writer)
      p[k++] = (struct pollfd){.fd = manta__conn_fd(r->writer), .events = POLLIN};
  return k;
}

static void await_events(struct manta__near *n, bool unread)
{
  struct pollfd p[MAX_RUNS + 8];
  int64_t silent = n->heard_ns + (int64_t)(n->timeout_s * 1e9) + 1000000;
  int64_t until = n->beat_ns < silent || !n->spoke ? n->beat_ns : silent;
  if (unread && manta__deadline(BRIDGE_BATCH_S) < until)
    until = manta__deadline(BRIDGE_BATCH_S);
  if (n->leave_by < until)
    until = n->leave_by;
  poll(p, fill_polls(n, p), manta__stream_more(n->far) ? 0 : manta__left_ms(until));
}

static bool is_over(int pidfd)
{
  struct pollfd p = {.fd = pidfd, .events = POLLIN};
  return pidfd >= 0 && poll(&p, 1, 0) > 0;
}

static void flush(struct manta__near *n)
{
  if (n->driver && manta__conn_pending(n->driver))
    manta__conn_flush(n->driver, NULL); // a failure shows when reading
  if (n->far && manta__stream_pending(n->far))
    manta__stream_flush(n->far, NULL);
}

static void serve(struct manta__near *n)
{
  while (n->far && manta__now() < n->leave_by) {
    int64_t now = manta__now();
    bool ended = is_over(n->command_pidfd);
    read_driver(n);
    if (n->driver && is_over(n->driver_pidfd))
      driver_lost(n);
    read_far(n);
    read_words(n);
    manta__bridge_run_writers(n);
    manta__near_beat(n);
    notice_silence(n, now);
    bool unread = manta__bridge_run_tails(n);
    flush(n);
    if (ended || !n->far)
      return; // what it had said until then was read
    await_events(n, unread);
  }
}

static manta_status begin(struct manta__near *n, int conn, char *const argv[], manta_error *err)
{
  char *end = NULL;
  if (!argv[0] || !argv[1] || !argv[2] || !argv[3])
    return manta_error_set(err, MANTA_EINVAL, "a bridge needs a host, a command and a timeout");
  n->name = argv[1];
  n->command = argv[2];
  n->timeout_s = strtod(argv[3], &end);
  if (*end || !(n->timeout_s > 0))
    return manta_error_set(err, MANTA_EINVAL, "the timeout must be a number of seconds, not %s",
                           argv[3]);
  MANTA_TRY(manta__conn_create(&n->driver, conn, manta__proto_end(MANTA__AGENT_TO_DRIVER), err));
  n->driver_pidfd = manta__pidfd_open(getppid());
  n->heard_ns = manta__now();
  MANTA_TRY(start_command(n, err));
  manta_value v = MANTA__PACK(open_msg, .version = manta_version(),
                              .protocol = MANTA__PROTO_VERSION, .timeout = n->timeout_s);
  manta__near_to_far(n, &(struct manta__msg){.kind = MANTA__M_OPEN}, &v);
  return MANTA_OK;
}

int manta__bridge_near_main(int conn, char *const argv[])
{
  static struct manta__near n = {.driver_pidfd = -1,
                                 .wake_fd = -1,
                                 .command_pidfd = -1,
                                 .err_fd = -1,
                                 .leave_by = MANTA__NEVER};
  prctl(PR_SET_NAME, "manta-bridge");
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, SIG_IGN); // a notice to the whole job; the driver decides
  if (begin(&n, conn, argv, &n.why) == MANTA_OK)
    serve(&n);
  tell_why(&n, end_command(&n));
  if (!n.driver)
    manta__bridge_run_driver_lost(&n); // rows that came since
  manta__bridge_run_free(&n);
  manta__conn_destroy(n.driver);
  return 0;
}
