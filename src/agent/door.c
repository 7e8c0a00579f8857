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

static manta_value describe_group(struct manta__agent_group *g)
{
  manta_value v = {0}, list = {0};
  char holds[400];
  manta_value_set_map(&v);
  manta_value_set_list(&list);
  manta_value_put_string(&v, "path", g->path ? g->path : "");
  manta_value_put_int(&v, "attempt", g->run.attempt);
  manta_value_put_int(&v, "world", g->world);
  manta__agent_holders_own(g, holds, sizeof holds);
  manta_value_put_string(&v, "holds", holds);
  for (struct manta__agent_worker *w = g->workers; w; w = w->next) {
    manta_value one = {0};
    if (w->state == WORKER_GONE)
      continue;
    manta_value_set_map(&one);
    manta_value_put_int(&one, "rank", w->rank);
    manta_value_put_int(&one, "pid", w->pid);
    manta_value_put_int(&one, "attempt", w->attempt);
    manta_value_put_string(&one, "state", state_of(w));
    manta_value_append(&list, &one);
  }
  for (size_t i = 0; i < g->elsewhere.count && g->elsewhere.type == MANTA_LIST; i++) {
    manta_value one = {0};
    if (manta_value_copy(&one, manta_value_at(&g->elsewhere, i)) == MANTA_OK)
      manta_value_append(&list, &one);
  }
  manta_value_put(&v, "workers", &list);
  return v;
}

static void answer_ps(struct manta__agent *a, manta_value *out)
{
  manta_value runs = {0};
  manta_value_set_list(&runs);
  for (struct manta__agent_group *g = a->groups; g; g = g->next) {
    manta_value one = describe_group(g);
    manta_value_append(&runs, &one);
  }
  manta_value_put_int(out, "agent", getpid());
  manta_value_put_int(out, "driver", a->driver_lost ? -1 : a->far ? 0 : a->driver_pid);
  manta_value_put(out, "runs", &runs);
}

static bool same_run(const struct manta__agent_group *g, const char *path)
{
  return g->path && g->path[0] && !strcmp(g->path, path);
}

// What the driver must do is passed on to it; the answer says only that it was.
static void pass_on(struct manta__agent *a, const manta_value *ask, manta_value *out)
{
  const char *path = manta_value_as_string(manta_value_get(ask, "run"), "");
  bool found = false;
  for (struct manta__agent_group *g = a->groups; g; g = g->next) {
    if (!same_run(g, path))
      continue;
    found = true;
    manta_value copy = {0};
    if (manta_value_copy(&copy, ask) == MANTA_OK)
      manta__agent_send_value(a->driver,
                              &(struct manta__msg){.kind = MANTA__M_ASKED, .group = g->id}, &copy);
    if (g->ctl && !strcmp(manta_value_as_string(manta_value_get(ask, "what"), ""), "notice"))
      atomic_store(&g->ctl->notice, 1);
  }
  manta_value_put_bool(out, "found", found);
}

static void on_msg(struct manta__loop_conn *l, struct manta__msg *m)
{
  struct manta__door *d = l->owner;
  manta_value ask = {0}, out = {0};
  if (m->kind != MANTA__M_ASK || manta__msg_value(m, &ask, NULL) < 0)
    return;
  manta_value_set_map(&out);
  if (!strcmp(manta_value_as_string(manta_value_get(&ask, "what"), ""), "ps"))
    answer_ps(d->agent, &out);
  else
    pass_on(d->agent, &ask, &out);
  struct manta__msg r = {.kind = MANTA__M_ASK, .flags = MANTA__FRAME_REPLY, .call = m->call};
  manta__agent_send_value(l, &r, &out);
  manta_value_fini(&ask);
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
      !manta__agent_connect(d->agent, fd, on_msg, on_end, d, &err)) {
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
