/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/child.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "sink/process.h"
#include "sys/proc.h"
#include "sys/sock.h"

#define PAUSE_S    0.2 /* before it is started again; doubled each time */
#define MAX_STRAYS 256
#define MAX_LIVE   256

// --- those that were left behind -----------------------------------------------------------------

static struct {
  pthread_mutex_t lock;
  pid_t pid[MAX_STRAYS];
  int count;
} strays = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void reap_strays(void)
{
  pthread_mutex_lock(&strays.lock);
  for (int i = 0; i < strays.count;)
    if (waitpid(strays.pid[i], NULL, WNOHANG) != 0)
      strays.pid[i] = strays.pid[--strays.count];
    else
      i++;
  pthread_mutex_unlock(&strays.lock);
}

static void leave_behind(pid_t pid)
{
  reap_strays();
  pthread_mutex_lock(&strays.lock);
  if (waitpid(pid, NULL, WNOHANG) == 0 && strays.count < MAX_STRAYS)
    strays.pid[strays.count++] = pid;
  pthread_mutex_unlock(&strays.lock);
}

// --- sockets of those that live ------------------------------------------------------------------

// A child that the user forks must not keep them open: a sink process whose driver is gone would
// wait for it.
static struct {
  pthread_mutex_t lock;
  pthread_once_t hooked;
  int fd[MAX_LIVE];
  int count;
} live = {.lock = PTHREAD_MUTEX_INITIALIZER, .hooked = PTHREAD_ONCE_INIT};

static void forget_in_child(void)
{
  for (int i = 0; i < live.count; i++)
    close(live.fd[i]);
  live.count = 0;
}

static void hook(void)
{
  pthread_atfork(NULL, NULL, forget_in_child);
}

static void keep_socket(int fd)
{
  pthread_once(&live.hooked, hook);
  pthread_mutex_lock(&live.lock);
  if (live.count < MAX_LIVE)
    live.fd[live.count++] = fd;
  pthread_mutex_unlock(&live.lock);
}

static void close_socket(int *fd)
{
  pthread_mutex_lock(&live.lock);
  for (int i = 0; i < live.count; i++)
    if (live.fd[i] == *fd)
      live.fd[i] = live.fd[--live.count];
  pthread_mutex_unlock(&live.lock);
  manta__fd_close(fd);
}

// --- life ----------------------------------------------------------------------------------------

manta_status manta__sink_child_start(struct manta__sink_child *c, int rundir, manta_error *err)
{
  char *argv[] = {(char *)"manta-sink", NULL};
  int end[2];
  reap_strays();
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, end) < 0)
    return manta_error_set(err, MANTA_EIO, "socketpair: %m");
  int fds[MANTA__ROLE_SINK_FDS] = {end[1], rundir};
  manta_status st =
      manta__engine_spawn_role(MANTA__ROLE_SINK, argv, fds, MANTA__ROLE_SINK_FDS, &c->pid, err);
  close(end[1]);
  if (st < 0) {
    close(end[0]);
    return st;
  }
  c->sock = end[0];
  keep_socket(c->sock);
  c->wanted = true;
  c->start_ns = 0;
  if (c->finishing)
    send(c->sock, (char[]){MANTA__SINK_FINISH}, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  return MANTA_OK;
}

// What its end was, once the socket says that it is gone.
static int reap(struct manta__sink_child *c)
{
  int status = -1;
  close_socket(&c->sock);
  while (c->pid > 0 && waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
    ;
  c->pid = 0;
  return status;
}

static void on_death(struct manta__sink_child *c, int64_t now,
                     void (*warn)(void *ctx, const char *text), void *ctx)
{
  char how[64], text[256];
  int status = reap(c);
  manta__proc_explain(status, how, sizeof how);
  if (c->restarts == MANTA__SINK_RESTARTS) {
    snprintf(text, sizeof text,
             "the process of the sinks died again (%s): it is not started any more\nhint: `manta "
             "sink` writes their files when the run is over",
             how);
    warn(ctx, text);
    c->wanted = false;
    return;
  }
  snprintf(text, sizeof text, "the process of the sinks died (%s); it is started again", how);
  warn(ctx, text);
  c->start_ns = now + ((int64_t)(PAUSE_S * 1e9) << c->restarts++);
}

static void start_again(struct manta__sink_child *c, int rundir,
                        void (*warn)(void *ctx, const char *text), void *ctx)
{
  manta_error err = MANTA_ERROR_INIT;
  c->start_ns = 0;
  if (manta__sink_child_start(c, rundir, &err) == MANTA_OK)
    return;
  c->wanted = false;
  warn(ctx, err.message);
}

static void hear(struct manta__sink_child *c, int64_t now,
                 void (*warn)(void *ctx, const char *text), void *ctx)
{
  char packet[MANTA__SINK_PACKET + 1];
  ssize_t n;
  while (c->sock >= 0 && (n = recv(c->sock, packet, sizeof packet - 1, MSG_DONTWAIT)) >= 0) {
    packet[n] = 0;
    if (n > 0 && packet[0] == MANTA__SINK_WARN) {
      warn(ctx, packet + 1);
    } else if (n > 0 && packet[0] == MANTA__SINK_DONE) {
      c->wanted = false;
      reap(c); // it is at its end
    } else if (n == 0) {
      on_death(c, now, warn, ctx);
    }
  }
  if (c->sock >= 0 && errno == ECONNRESET)
    on_death(c, now, warn, ctx);
}

int64_t manta__sink_child_step(struct manta__sink_child *c, int rundir, int64_t now,
                               void (*warn)(void *ctx, const char *text), void *ctx)
{
  if (!c->wanted)
    return MANTA__NEVER;
  if (c->sock >= 0)
    hear(c, now, warn, ctx);
  if (c->start_ns && (now >= c->start_ns || c->finishing))
    start_again(c, rundir, warn, ctx);
  if (c->finishing && c->wanted && now >= c->by) {
    warn(ctx, "the sinks are not done yet; they work on by themselves");
    c->wanted = false;
  }
  int64_t next = c->start_ns ? c->start_ns : MANTA__NEVER;
  return c->finishing && c->wanted && c->by < next ? c->by : next;
}

void manta__sink_child_finish(struct manta__sink_child *c, double limit_s)
{
  c->finishing = true;
  c->by = manta__deadline(limit_s);
  if (c->sock >= 0)
    send(c->sock, (char[]){MANTA__SINK_FINISH}, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool manta__sink_child_over(const struct manta__sink_child *c)
{
  return !c->wanted;
}

void manta__sink_child_leave(struct manta__sink_child *c)
{
  close_socket(&c->sock);
  if (c->pid > 0)
    leave_behind(c->pid);
  *c = (struct manta__sink_child){.sock = -1};
}
