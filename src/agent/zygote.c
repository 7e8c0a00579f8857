/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/zygote.c - programs and their zygotes.
 *
 * A zygote that says it is cold is asked for a successor as soon as nobody waits for a worker of
 * it.
 * (1) Workers are forked by `now`, at any moment: nobody waits for a warm-up.
 * (2) A successor takes over when it says it serves. The one before it ends when it has answered
 *     what it was asked for; its workers become our children, as when a zygote is killed.
 * (3) A successor that ends, or takes longer than AGENT_WARM_S, changes nothing.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "group/zygote.h"
#include "sys/lifeline.h"
#include "sys/proc.h"
#include "sys/sock.h"

static struct manta__agent_zygote *find(struct manta__agent *a, uint64_t key)
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
  size_t n = v->count;
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
static void stop(struct manta__zygote_proc *p)
{
  manta__agent_disconnect(p->conn);
  manta__fd_close(&p->lifeline);
  *p = (struct manta__zygote_proc){.lifeline = -1};
}

static void clear(struct manta__agent_zygote *z)
{
  *z = (struct manta__agent_zygote){
      .cwd_fd = -1, .now.lifeline = -1, .next.lifeline = -1, .old.lifeline = -1};
}

static void forget(struct manta__agent_zygote *z)
{
  stop(&z->now);
  stop(&z->next);
  stop(&z->old);
  manta__agent_timer_stop(&z->limit);
  free_list(z->argv);
  free_list(z->env);
  manta__fd_close(&z->cwd_fd);
  manta__free(z->why);
  clear(z);
}

// A free entry, or the one not used for longest.
static struct manta__agent_zygote *make_place(struct manta__agent *a)
{
  struct manta__agent_zygote *oldest = &a->zygote[0];
  for (int i = 0; i < AGENT_ZYGOTES; i++) {
    if (a->zygote[i].key == 0)
      return &a->zygote[i];
    if (a->zygote[i].used_ns < oldest->used_ns)
      oldest = &a->zygote[i];
  }
  forget(oldest);
  return oldest;
}

void manta__agent_program(struct manta__agent *a, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__program_msg in;
  if (manta__program_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  if (in.key != 0 && !find(a, in.key)) {
    struct manta__agent_zygote *z = make_place(a);
    clear(z);
    z->key = in.key;
    z->used_ns = manta__now();
    z->cwd_fd = manta__msg_take_fd(m, 0);
    z->argv = string_list(in.argv, NULL, NULL);
    z->env = string_list(in.env, manta__role_env(MANTA__ROLE_ZYGOTE),
                         MANTA__MARK_ENV "=" MANTA__MARK_ROOM);
    z->exe =
        (struct manta__exe){.dev = in.dev, .ino = in.ino, .size = in.size, .mtime_ns = in.mtime_ns};
    snprintf(z->exe.path, sizeof z->exe.path, "%s", in.path);
    z->why = in.why ? manta__strdup(in.why) : NULL;
  }
  manta_value_fini(&v);
}

static void maybe_succeed(struct manta__agent *a, struct manta__agent_zygote *z);

static void on_forked(struct manta__agent *a, struct manta__zygote_proc *p, struct manta__msg *m)
{
  struct manta__forked_msg f;
  struct manta__agent_zygote *z = p->zygote;
  if (!manta__msg_copy(m, &f, sizeof f))
    return;
  struct manta__agent_worker *w = manta__agent_worker_find(a, f.wid);
  if (f.threads > 1 && !z->warned && w) {
    z->warned = true;
    manta__agent_warn(
        a, w->group->id,
        "%s has %d threads before manta_init (a library starts them), so workers are started by "
        "exec instead of fork: slower, otherwise the same",
        z->exe.path, f.threads);
  }
  if (w)
    manta__agent_worker_forked(w, f.pid, manta__msg_take_fd(m, 0), f.error);
  else if (f.pid > 0)
    manta__proc_signal(f.pid, SIGKILL);
  maybe_succeed(a, z);
}

static void on_exited(struct manta__agent *a, struct manta__zygote_proc *p, struct manta__msg *m)
{
  struct manta__exited_msg e;
  struct manta__agent_worker *w =
      manta__msg_copy(m, &e, sizeof e) ? manta__agent_worker_of_pid(a, e.pid) : NULL;
  if (w)
    manta__agent_worker_exited(w, e.status);
}

// --- the successor -------------------------------------------------------------------------------

// Whether a worker is still to come from this process.
static bool owes(const struct manta__agent *a, const struct manta__agent_zygote *z, pid_t pid)
{
  for (const struct manta__agent_group *g = a->groups; g; g = g->next)
    for (const struct manta__agent_worker *w = g->workers; w; w = w->next)
      if (w->zygote == z && w->zygote_pid == pid && w->pid == 0 && w->state != WORKER_GONE)
        return true;
  return false;
}

static void on_warm_limit(uv_timer_t *t)
{
  struct manta__agent_zygote *z = t->data;
  manta__debug("zygote %d keeps forking: its successor was not warm within %.0f s", (int)z->now.pid,
               AGENT_WARM_S);
  manta__agent_timer_stop(&z->limit);
  stop(&z->next);
}

static void on_msg(struct manta__loop_conn *l, struct manta__msg *m);
static void on_end(struct manta__loop_conn *l);

static manta_status ask_successor(struct manta__agent *a, struct manta__agent_zygote *z,
                                  manta_error *err)
{
  int sock[2], life[2];
  MANTA_TRY(manta__sock_pair(sock, err));
  manta_status st = manta__lifeline_create(life, err);
  if (st < 0) {
    manta__fd_close_all(sock, 2);
    return st;
  }
  struct manta__msg m = {.kind = MANTA__M_SUCCEED, .fd = {sock[1], life[1]}, .fds = 2};
  manta__agent_send(z->now.conn, &m);
  close(sock[1]);
  close(life[1]);
  z->next = (struct manta__zygote_proc){.zygote = z, .lifeline = life[0]};
  z->next.conn =
      manta__agent_connect(a, sock[0], MANTA__AGENT_TO_ZYGOTE, on_msg, on_end, &z->next, err);
  if (!z->next.conn) {
    close(sock[0]);
    stop(&z->next);
    return MANTA_ENOMEM;
  }
  z->limit = manta__agent_timer(a, AGENT_WARM_S, 0, on_warm_limit, z);
  return MANTA_OK;
}

// Not while somebody waits for a worker: to fork a successor takes as long as to fork one.
static void maybe_succeed(struct manta__agent *a, struct manta__agent_zygote *z)
{
  manta_error err = MANTA_ERROR_INIT;
  if (!z->cold || z->next.conn || owes(a, z, z->now.pid))
    return;
  z->cold = false;
  if (ask_successor(a, z, &err) < 0)
    manta__debug("zygote %d gets no successor: %s", (int)z->now.pid, err.message);
}

static void disappoint(struct manta__agent *a, struct manta__agent_zygote *z, pid_t pid);

static void retire_old(struct manta__agent *a, struct manta__agent_zygote *z)
{
  pid_t pid = z->old.pid;
  stop(&z->old);
  if (pid > 0)
    disappoint(a, z, pid);
}

static void take_over(struct manta__agent *a, struct manta__agent_zygote *z, pid_t pid)
{
  manta__agent_timer_stop(&z->limit);
  retire_old(a, z); // has not ended in all that time
  if (z->now.conn) {
    z->old = z->now;
    z->old.conn->owner = &z->old;
    manta__agent_send(z->old.conn, &(struct manta__msg){.kind = MANTA__M_RETIRE});
  }
  z->now = z->next;
  z->now.pid = pid;
  z->now.conn->owner = &z->now;
  z->next = (struct manta__zygote_proc){.lifeline = -1};
  z->cold = false;
  manta__debug("zygote %d is warm, and takes over from %d", (int)pid, (int)z->old.pid);
}

static void on_serving(struct manta__agent *a, struct manta__zygote_proc *p, struct manta__msg *m)
{
  struct manta__serving_msg s;
  struct manta__agent_zygote *z = p->zygote;
  if (!manta__msg_copy(m, &s, sizeof s))
    return;
  if (p == &z->now)
    z->cold = s.cold == 1;
  else if (p == &z->next && s.pid > 0)
    take_over(a, z, s.pid);
  maybe_succeed(a, z);
}

// --- messages ------------------------------------------------------------------------------------

static void (*const handlers[MANTA__M_KINDS])(struct manta__agent *a, struct manta__zygote_proc *p,
                                              struct manta__msg *m) = {
    [MANTA__M_FORKED] = on_forked,
    [MANTA__M_SERVING] = on_serving,
    [MANTA__M_EXITED] = on_exited,
};

static void on_msg(struct manta__loop_conn *l, struct manta__msg *m)
{
  if (m->kind < MANTA__M_KINDS && handlers[m->kind])
    handlers[m->kind](l->poll.loop->data, l->owner, m);
}

// Workers that it was asked for and that it never made will not come any more.
static void disappoint(struct manta__agent *a, struct manta__agent_zygote *z, pid_t pid)
{
  for (struct manta__agent_group *g = a->groups, *after; g; g = after) {
    after = g->next; // the group may end with its last worker
    for (struct manta__agent_worker *w = g->workers, *next; w; w = next) {
      next = w->next;
      if (w->zygote == z && w->zygote_pid == pid && w->pid == 0)
        manta__agent_worker_forked(w, 0, -1, ECHILD);
    }
  }
}

static void on_end(struct manta__loop_conn *l)
{
  struct manta__zygote_proc *p = l->owner;
  struct manta__agent_zygote *z = p->zygote;
  struct manta__agent *a = l->poll.loop->data;
  pid_t pid = p->pid;
  p->conn = NULL; // closed already
  if (p == &z->next) {
    manta__debug("zygote %d keeps forking: its successor ended before it was warm",
                 (int)z->now.pid);
    manta__agent_timer_stop(&z->limit);
  }
  stop(p);
  if (pid > 0)
    disappoint(a, z, pid);
}

static manta_status start(struct manta__agent *a, struct manta__agent_zygote *z, manta_error *err)
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
  z->now = (struct manta__zygote_proc){.zygote = z, .lifeline = -1};
  z->cold = false; // until it says so
  st = manta__proc_spawn(&z->now.pid, z->exe.path, z->argv, z->env, fds, 2, z->cwd_fd, err);
  close(sock[1]);
  close(life[1]);
  if (st == MANTA_OK && (z->now.conn = manta__agent_connect(a, sock[0], MANTA__AGENT_TO_ZYGOTE,
                                                            on_msg, on_end, &z->now, err))) {
    z->now.lifeline = life[0];
    return MANTA_OK;
  }
  close(sock[0]);
  close(life[0]);
  z->now.pid = 0;
  return st < 0 ? st : MANTA_ENOMEM;
}

// One that a signal has stopped would never fork; its workers become our children.
static void end_stopped(struct manta__agent *a, struct manta__agent_zygote *z)
{
  pid_t pid = z->now.pid;
  if (pid == 0 || !manta__proc_stopped(pid))
    return;
  manta__warn("zygote %d was stopped by a signal: it is replaced", (int)pid);
  manta__proc_signal(pid, SIGKILL);
  stop(&z->now);
  disappoint(a, z, pid);
}

struct manta__agent_zygote *manta__agent_zygote(struct manta__agent *a, uint64_t key,
                                                manta_error *err)
{
  struct manta__agent_zygote *z = key ? find(a, key) : NULL;
  if (!z) {
    manta_error_set(err, MANTA_EPROTO, "no such program");
    return NULL;
  }
  z->used_ns = manta__now();
  end_stopped(a, z);
  if (z->now.pid == 0 && start(a, z, err) < 0)
    return NULL;
  return z;
}

// What goes wrong is told to whoever asks for a worker.
void manta__agent_warm(struct manta__agent *a, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__warm_msg in;
  manta_error err = MANTA_ERROR_INIT;
  if (manta__warm_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  if (!manta__agent_zygote(a, in.key, &err))
    manta__debug("no zygote ahead of its use: %s", err.message);
  manta_value_fini(&v);
}

bool manta__agent_zygote_exited(struct manta__agent *a, pid_t pid, int status)
{
  for (int i = 0; i < AGENT_ZYGOTES; i++) {
    struct manta__agent_zygote *z = &a->zygote[i];
    if (z->key && (z->now.pid == pid || z->old.pid == pid)) {
      // Its last messages (exits of its workers) may still be in the socket: on_end comes after
      // them.
      manta__debug("zygote %d ended", (int)pid);
      return true;
    }
  }
  return false;
}

void manta__agent_zygotes_end(struct manta__agent *a)
{
  for (int i = 0; i < AGENT_ZYGOTES; i++) {
    struct manta__agent_zygote *z = &a->zygote[i];
    pid_t now = z->now.pid, old = z->old.pid;
    if (!z->key)
      continue;
    forget(z);
    if (now > 0)
      disappoint(a, z, now);
    if (old > 0)
      disappoint(a, z, old);
  }
}
