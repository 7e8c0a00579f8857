/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/door.c - the one named socket: `manta ps`, `kill`, `resize`, `notice`.
 *
 * It lies in the user's runtime directory as agent-PID.sock; whoever connects must be the same
 * user.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/alloc.h"
#include "base/log.h"
#include "sys/runtime.h"
#include "sys/sock.h"

#define MAX_VISITORS 32

struct manta__door {
  struct manta__agent *agent;
  int fd, dirfd, visitors;
  char name[64];
  uv_poll_t poll;
};

static void on_end(struct manta__loop_conn *l)
{
  struct manta__door *d = l->owner;
  d->visitors--;
}

static const char *state_of(const struct manta__agent_worker *w)
{
  if (manta__agent_spent(w))
    return "ending";
  if (w->awaits_go)
    return "waiting";
  return w->state == WORKER_RUNNING ? "running" : "idle";
}

// A copy of its own, appended.
static void add(manta_value *list, const manta_value *v)
{
  manta_value one = {0};
  if (manta_value_copy(&one, v) == MANTA_OK)
    manta_value_append(list, &one);
  manta_value_fini(&one);
}

static void describe_workers(const struct manta__agent_group *g, manta_value *list)
{
  manta_value_set_list(list);
  for (const struct manta__agent_worker *w = g->workers; w; w = w->next) {
    manta_value one = MANTA__PACK(ps_worker, .rank = w->rank, .pid = w->pid, .attempt = w->attempt,
                                  .state = state_of(w));
    if (w->state != WORKER_GONE)
      add(list, &one);
  }
  for (size_t i = 0; i < g->elsewhere.count && g->elsewhere.type == MANTA_LIST; i++)
    add(list, manta_value_at(&g->elsewhere, i));
}

static void describe_runs(struct manta__agent *a, manta_value *runs)
{
  manta_value_set_list(runs);
  for (struct manta__agent_group *g = a->groups; g; g = g->next) {
    char holds[400];
    manta_value workers = {0};
    describe_workers(g, &workers);
    manta__agent_holders_own(g, holds, sizeof holds);
    manta_value one = MANTA__PACK(ps_run, .path = g->path ? g->path : "", .attempt = g->run.attempt,
                                  .world = g->cells, .holds = holds, .workers = &workers);
    add(runs, &one);
    manta_value_fini(&workers);
  }
}

static bool same_run(const struct manta__agent_group *g, const char *path)
{
  return g->path && g->path[0] && !strcmp(g->path, path);
}

// What the driver must do is passed on to it; the answer says only that it was.
static bool pass_on(struct manta__agent *a, const struct manta__ask_msg *ask)
{
  bool found = false;
  for (struct manta__agent_group *g = a->groups; g; g = g->next) {
    if (!ask->run || !same_run(g, ask->run))
      continue;
    found = true;
    manta_value v = MANTA__PACK(asked_msg, .what = ask->what, .n = ask->n);
    manta__agent_send_value(a->driver, &(struct manta__msg){.kind = MANTA__M_ASKED, .group = g->id},
                            &v);
    if (g->ctl && !strcmp(ask->what, "notice"))
      atomic_store(&g->ctl->notice, 1);
  }
  return found;
}

// Whoever speaks another language has no business here.
static void on_msg(struct manta__loop_conn *l, struct manta__msg *m)
{
  struct manta__door *d = l->owner;
  struct manta__agent *a = d->agent;
  manta_value v = {0}, runs = {0};
  struct manta__ask_msg ask;
  if (manta__ask_msg_unpack(m, &v, &ask, NULL) < 0) {
    manta__agent_disconnect(l);
    d->visitors--;
    return;
  }
  struct manta__ask_reply out = {.agent = getpid(),
                                 .driver = a->driver_lost ? -1
                                           : a->far       ? 0
                                                          : a->driver_pid};
  if (!strcmp(ask.what, "ps")) {
    describe_runs(a, &runs);
    out.runs = &runs;
  } else {
    out.found = pass_on(a, &ask);
  }
  manta_value reply = manta__ask_reply_map((manta_pair[MANTA__PROTO_PAIRS]){{0}}, &out);
  manta__agent_reply(l, m, &reply);
  manta_value_fini(&runs);
  manta_value_fini(&v);
}

static bool same_user(int fd)
{
  struct ucred c;
  socklen_t n = sizeof c;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 && c.uid == geteuid();
}

static void on_visitor(uv_poll_t *h, int status, int events)
{
  struct manta__door *d = h->data;
  manta_error err = MANTA_ERROR_INIT;
  int fd = accept4(d->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0)
    return;
  if (d->visitors >= MAX_VISITORS || !same_user(fd) ||
      !manta__agent_connect(d->agent, fd, MANTA__AGENT_TO_COMMAND, on_msg, on_end, d, &err)) {
    close(fd);
    return;
  }
  d->visitors++;
}

// Through /proc/self/fd, so that the path is short and the directory the one that was checked.
static int bind_in(int dirfd, const char *name)
{
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -1;
  unlinkat(dirfd, name, 0);
  snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/%s", dirfd, name);
  if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 16) < 0)
    manta__fd_close(&fd);
  return fd;
}

struct manta__door *manta__agent_door_open(struct manta__agent *a, manta_error *err)
{
  struct manta__door *d = manta__calloc(1, sizeof *d);
  if (!d) {
    manta_error_set(err, MANTA_ENOMEM, "no memory");
    return NULL;
  }
  d->agent = a;
  snprintf(d->name, sizeof d->name, "agent-%d.sock", (int)getpid());
  if (manta__runtime_dir(&d->dirfd, NULL, 0, err) < 0) {
    manta__free(d);
    return NULL;
  }
  d->fd = bind_in(d->dirfd, d->name);
  if (d->fd < 0) {
    manta_error_set(err, MANTA_EIO, "bind %s: %m", d->name);
    manta__fd_close(&d->dirfd);
    manta__free(d);
    return NULL;
  }
  d->poll.data = d;
  uv_poll_init(&a->loop, &d->poll, d->fd);
  uv_poll_start(&d->poll, UV_READABLE, on_visitor);
  return d;
}

void manta__agent_door_close(struct manta__door *d)
{
  if (d)
    unlinkat(d->dirfd, d->name, 0);
}
