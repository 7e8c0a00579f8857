/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "group/agent.h"
#include "group/zygote.h"
#include "sys/lifeline.h"
#include "sys/sock.h"

static struct zygote *find(struct agent *a, uint64_t key)
{
  for (int i = 0; i < AGENT_ZYGOTES; i++)
    if (a->zygote[i].key == key)
      return &a->zygote[i];
  return NULL;
}

static void free_list(char **list)
{
  for (size_t i = 0; list && list[i]; i++)
    manta__free(list[i]);
  manta__free(list);
}

static char **string_list(const manta_value *v, const char *extra, const char *more)
{
  size_t n = v && v->type == MANTA_LIST ? v->count : 0;
  char **list = manta__calloc(n + 3, sizeof *list);
  for (size_t i = 0; list && i < n; i++)
    if (!(list[i] = manta__strdup(manta_value_as_string(manta_value_at(v, i), "")))) {
      free_list(list);
      return NULL;
    }
  if (list && extra)
    list[n] = manta__strdup(extra);
  if (list && more && list[n])
    list[n + 1] = manta__strdup(more);
  return list;
}

// Closing the lifeline ends the process; the workers it forked go on, and become our children.
static void stop(struct zygote *z)
{
  agent_unlink(z->link);
  z->link = NULL;
  manta__fd_close(&z->lifeline);
  z->pid = 0;
}

static void forget(struct zygote *z)
{
  stop(z);
  free_list(z->argv);
  free_list(z->env);
  manta__fd_close(&z->cwd_fd);
  manta__free(z->why);
  *z = (struct zygote){.lifeline = -1, .cwd_fd = -1};
}

// A free entry, or the one not used for longest.
static struct zygote *make_place(struct agent *a)
{
  struct zygote *oldest = &a->zygote[0];
  for (int i = 0; i < AGENT_ZYGOTES; i++) {
    if (a->zygote[i].key == 0)
      return &a->zygote[i];
    if (a->zygote[i].used_ns < oldest->used_ns)
      oldest = &a->zygote[i];
  }
  forget(oldest);
  return oldest;
}

void agent_program(struct agent *a, struct manta__msg *m)
{
  manta_value v = {0};
  if (manta__msg_value(m, &v, NULL) < 0)
    return;
  uint64_t key = (uint64_t)manta_value_as_int(manta_value_get(&v, "key"), 0);
  if (key != 0 && !find(a, key)) {
    struct zygote *z = make_place(a);
    *z = (struct zygote){.key = key, .lifeline = -1, .used_ns = manta__now()};
    z->cwd_fd = manta__msg_take_fd(m, 0);
    z->argv = string_list(manta_value_get(&v, "argv"), NULL, NULL);
    z->env = string_list(manta_value_get(&v, "env"), MANTA__ROLE_ENV "=zygote",
                         MANTA__MARK_ENV "=" MANTA__MARK_ROOM);
    z->exe.dev = (uint64_t)manta_value_as_int(manta_value_get(&v, "dev"), 0);
    z->exe.ino = (uint64_t)manta_value_as_int(manta_value_get(&v, "ino"), 0);
    z->exe.size = (uint64_t)manta_value_as_int(manta_value_get(&v, "size"), 0);
    z->exe.mtime_ns = manta_value_as_int(manta_value_get(&v, "mtime_ns"), 0);
    snprintf(z->exe.path, sizeof z->exe.path, "%s",
             manta_value_as_string(manta_value_get(&v, "path"), ""));
    const char *why = manta_value_as_string(manta_value_get(&v, "why"), NULL);
    z->why = why ? manta__strdup(why) : NULL;
  }
  manta_value_fini(&v);
}

static void on_forked(struct agent *a, struct zygote *z, struct manta__msg *m)
{
  struct manta__forked_msg f;
  if (m->len != sizeof f)
    return;
  memcpy(&f, m->data, sizeof f);
  struct worker *w = agent_worker_find(a, f.wid);
  if (f.threads > 1 && !z->warned && w) {
    z->warned = true;
    agent_warn(
        a, w->group->id,
        "%s has %d threads before manta_init (a library starts them), so workers are started by "
        "exec instead of fork: slower, otherwise the same",
        z->exe.path, f.threads);
  }
  if (w)
    agent_worker_forked(w, f.pid, manta__msg_take_fd(m, 0), f.error);
  else if (f.pid > 0)
    kill(f.pid, SIGKILL);
}

static void on_msg(struct link *l, struct manta__msg *m)
{
  struct zygote *z = l->owner;
  struct agent *a = l->poll.loop->data;
  if (m->kind == MANTA__M_FORKED)
    on_forked(a, z, m);
  struct manta__exited_msg e;
  if (m->kind == MANTA__M_EXITED && m->len == sizeof e) {
    memcpy(&e, m->data, sizeof e);
    struct worker *w = agent_worker_of_pid(a, e.pid);
    if (w)
      agent_worker_exited(w, e.status);
  }
}

// Workers that it was asked for and that it never made will not come any more.
static void disappoint(struct agent *a, struct zygote *z, pid_t pid)
{
  for (struct group *g = a->groups, *after; g; g = after) {
    after = g->next; // the group may end with its last worker
    for (struct worker *w = g->workers, *next; w; w = next) {
      next = w->next;
      if (w->zygote == z && w->zygote_pid == pid && w->pid == 0)
        agent_worker_forked(w, 0, -1, ECHILD);
    }
  }
}

static void on_end(struct link *l)
{
  struct zygote *z = l->owner;
  struct agent *a = l->poll.loop->data;
  pid_t pid = z->pid;
  z->link = NULL;
  stop(z);
  disappoint(a, z, pid);
}

static manta_status start(struct agent *a, struct zygote *z, manta_error *err)
{
  int sock[2], life[2];
  if (z->why)
    return manta_error_set(err, MANTA_ESTATE, "%s", z->why);
  MANTA_TRY(manta__exe_check(&z->exe, err));
  if (!z->argv || !z->env)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a zygote");
  MANTA_TRY(manta__sock_pair(sock, err));
  manta_status st = manta__lifeline_create(life, err);
  if (st < 0) {
    manta__fd_close_all(sock, 2);
    return st;
  }
  int fds[] = {sock[1], life[1]};
  st = manta__proc_spawn(&z->pid, z->exe.path, z->argv, z->env, fds, 2, z->cwd_fd, err);
  close(sock[1]);
  close(life[1]);
  if (st == MANTA_OK && (z->link = agent_link(a, sock[0], on_msg, on_end, z, err))) {
    z->lifeline = life[0];
    return MANTA_OK;
  }
  close(sock[0]);
  close(life[0]);
  z->pid = 0;
  return st < 0 ? st : MANTA_ENOMEM;
}

struct zygote *agent_zygote(struct agent *a, uint64_t key, manta_error *err)
{
  struct zygote *z = key ? find(a, key) : NULL;
  if (!z) {
    manta_error_set(err, MANTA_EPROTO, "no such program");
    return NULL;
  }
  z->used_ns = manta__now();
  if (z->pid == 0 && start(a, z, err) < 0)
    return NULL;
  return z;
}

// What goes wrong is told to whoever asks for a worker.
void agent_warm(struct agent *a, struct manta__msg *m)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  if (manta__msg_value(m, &v, NULL) < 0)
    return;
  if (!agent_zygote(a, (uint64_t)manta_value_as_int(manta_value_get(&v, "key"), 0), &err))
    manta__debug("no zygote ahead of its use: %s", err.message);
  manta_value_fini(&v);
}

bool agent_zygote_exited(struct agent *a, pid_t pid, int status)
{
  for (int i = 0; i < AGENT_ZYGOTES; i++) {
    struct zygote *z = &a->zygote[i];
    if (z->key && z->pid == pid) {
      // Its last messages (exits of its workers) may still be in the socket: on_end comes after
      // them.
      manta__debug("zygote %d ended", (int)pid);
      return true;
    }
  }
  return false;
}

void agent_zygotes_end(struct agent *a)
{
  for (int i = 0; i < AGENT_ZYGOTES; i++) {
    struct zygote *z = &a->zygote[i];
    pid_t pid = z->pid;
    if (!z->key)
      continue;
    forget(z);
    if (pid > 0)
      disappoint(a, z, pid);
  }
}
