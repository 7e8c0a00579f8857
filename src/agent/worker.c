/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/worker.c - workers as the agent knows them: birth by a zygote, messages, death.
 *
 * A death is seen three times: by the watcher of its life (agent/watch.c), by its pidfd, and by its
 * status, which its zygote sends, or the agent reaps if that zygote is gone. Only the last two make
 * it gone; a status that is late is not waited for longer than STATUS_LATE_S.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/orphans.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ckpt/random.h"
#include "group/worker.h"
#include "group/zygote.h"
#include "sys/lifeline.h"
#include "sys/oom.h"
#include "sys/proc.h"
#include "sys/sock.h"

#define STATUS_LATE_S 1.0 /* a dead worker's status may take so long to arrive from its zygote */

struct manta__agent_worker *manta__agent_worker_find(struct manta__agent *a, int64_t wid)
{
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    for (struct manta__agent_worker *w = g->workers; w; w = w->next)
      if (w->wid == wid)
        return w;
  return NULL;
}

struct manta__agent_worker *manta__agent_worker_of_pid(struct manta__agent *a, pid_t pid)
{
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    for (struct manta__agent_worker *w = g->workers; w; w = w->next)
      if (w->pid == pid)
        return w;
  return NULL;
}

// --- messages ------------------------------------------------------------------------------------

static void on_ready(struct manta__agent_worker *w, struct manta__msg *m)
{
  manta__agent_watch_begin(w);
}

static void on_stays(struct manta__agent_worker *w, struct manta__msg *m)
{
  w->stays = true;
}

static void on_leaves(struct manta__agent_worker *w, struct manta__msg *m)
{
  w->exit_asked = true;
}

static void forward(struct manta__agent_worker *w, struct manta__msg *m)
{
  struct manta__msg out = *m;
  out.group = w->group->id;
  manta__agent_send(w->group->agent->driver, &out);
}

static void on_done(struct manta__agent_worker *w, struct manta__msg *m)
{
  w->state = WORKER_IDLE;
  manta__agent_output_flush(w->output);
  forward(w, m);
  manta__agent_fetch_look(w->group);
}

static void on_fetch(struct manta__agent_worker *w, struct manta__msg *m)
{
  if (w->rank == w->cell) // rank 0 is on this host
    manta__agent_fetch(w->group, m);
  else
    forward(w, m);
}

// Here as long as there is a directory: what has arrived survives the driver.
static void on_random(struct manta__agent_worker *w, struct manta__msg *m)
{
  struct manta__random_msg head;
  manta_error err = MANTA_ERROR_INIT;
  if (w->group->rundir < 0) {
    forward(w, m);
    return;
  }
  if (m->len < sizeof head || m->len > sizeof head + MANTA_RANDOM_MAX)
    return;
  memcpy(&head, m->data, sizeof head);
  if (manta__random_put(w->group->rundir, m->id.attempt, head.iteration, w->rank,
                        (const uint8_t *)m->data + sizeof head, m->len - sizeof head, &err) < 0)
    manta__agent_warn(w->group->agent, w->group->id, "random states of rank %d are not kept: %s",
                      w->rank, err.message);
}

static void (*const handlers[MANTA__M_KINDS])(struct manta__agent_worker *w,
                                              struct manta__msg *m) = {
    [MANTA__M_READY] = on_ready,   [MANTA__M_STAYS] = on_stays, [MANTA__M_LEAVES] = on_leaves,
    [MANTA__M_DONE] = on_done,     [MANTA__M_FETCH] = on_fetch, [MANTA__M_SNAP] = manta__agent_snap,
    [MANTA__M_GIVE] = forward,     [MANTA__M_AGREE] = forward,  [MANTA__M_READ] = manta__agent_read,
    [MANTA__M_RANDOM] = on_random, [MANTA__M_RECALL] = forward,
};

static void on_msg(struct manta__loop_conn *l, struct manta__msg *m)
{
  struct manta__agent_worker *w = l->owner;
  if (m->id.attempt != w->attempt || m->id.run != w->group->run.run)
    return; // of an older attempt
  if (m->kind < MANTA__M_KINDS && handlers[m->kind])
    handlers[m->kind](w, m);
  else
    manta__warn("agent: message of kind %u (%s) from a worker", m->kind,
                manta__proto_name(m->kind));
}

void manta__agent_worker_tell_all(struct manta__agent_group *g, const struct manta__msg *m)
{
  for (struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (w->state == WORKER_RUNNING && w->attempt == m->id.attempt)
      manta__agent_send(w->conn, m);
}

static void on_silent(uv_timer_t *t)
{
  struct manta__agent_worker *w = t->data;
  manta__agent_timer_stop(&w->last_words);
  manta__agent_worker_kill(w, "it closed its control connection");
}

// Most likely it is dying, and its exit status is on its way; one that only closed its socket is
// useless.
static void on_end(struct manta__loop_conn *l)
{
  struct manta__agent_worker *w = l->owner;
  w->conn = NULL;
  manta__agent_heirs_expect_end(w);
  if (!w->last_words)
    w->last_words = manta__agent_timer(w->group->agent, STATUS_LATE_S, 0, on_silent, w);
}

// --- birth ---------------------------------------------------------------------------------------

struct birth {
  int sock[2], life[2], out[2], err[2], ring;
};

static void abandon(struct birth *b)
{
  manta__fd_close_all(b->sock, 2);
  manta__fd_close_all(b->life, 2);
  manta__fd_close_all(b->out, 2);
  manta__fd_close_all(b->err, 2);
  manta__fd_close(&b->ring);
}

static manta_status conceive(struct birth *b, manta_error *err)
{
  MANTA_TRY(manta__sock_pair(b->sock, err));
  MANTA_TRY(manta__lifeline_create(b->life, err));
  if (pipe2(b->out, O_CLOEXEC) < 0 || pipe2(b->err, O_CLOEXEC) < 0)
    return manta_error_set(err, MANTA_EIO, "pipe: %m");
  return manta__ring_create(&b->ring, err);
}

// The zygote forks it when it gets there; what is sent to the worker meanwhile waits in its socket.
static void ask_zygote(struct manta__agent_worker *w, struct birth *b)
{
  struct manta__fork_msg f = {w->wid};
  struct manta__msg m = {
      .kind = MANTA__M_FORK,
      .data = &f,
      .len = sizeof f,
      .fd = {b->sock[1], b->life[1], b->out[1], b->err[1], b->ring, w->group->agent->wake_fd},
      .fds = MANTA__W_FDS};
  manta__agent_send(w->zygote->now.conn, &m);
}

static void announce(struct manta__agent_worker *w, int ring_fd)
{
  manta_value v = MANTA__PACK(worker_msg, .wid = w->wid, .seat = w->rank,
                              .before = w->before ? w->before->wid : -1, .pid = w->pid);
  struct manta__msg m = {
      .kind = MANTA__M_WORKER, .group = w->group->id, .fd = {ring_fd}, .fds = ring_fd >= 0};
  manta__agent_send_value(w->group->agent->driver, &m, &v);
}

struct manta__agent_worker *manta__agent_worker_start(struct manta__agent_group *g,
                                                      struct manta__agent_zygote *z,
                                                      struct manta__grant *grant,
                                                      struct manta__agent_worker *before,
                                                      manta_error *err)
{
  struct birth b = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}, -1};
  struct manta__agent_worker *w = manta__calloc(1, sizeof *w);
  manta_status st = w ? conceive(&b, err) : manta_error_set(err, MANTA_ENOMEM, "no memory");
  if (st < 0)
    goto err_free;
  *w = (struct manta__agent_worker){.group = g,
                                    .wid = ++g->agent->wids,
                                    .pidfd = -1,
                                    .lifeline = b.life[0],
                                    .ring_fd = b.ring,
                                    .rank = before ? before->rank : -1,
                                    .before = before,
                                    .zygote = z,
                                    .zygote_pid = z->now.pid};
  for (int i = 0; i < MANTA__SLOTS; i++)
    w->slot[i].fd = -1;
  manta__snapq_init(&w->snapq);
  if (!(w->conn = manta__agent_connect(g->agent, b.sock[0], MANTA__AGENT_TO_WORKER, on_msg, on_end,
                                       w, err)))
    goto err_free;
  if (!(w->output = manta__agent_output_start(w, b.out[0], b.err[0], err))) {
    manta__agent_disconnect(w->conn);
    b.sock[0] = -1;
    goto err_free;
  }
  w->grant = grant;
  ask_zygote(w, &b);
  manta__fd_close(&b.sock[1]);
  manta__fd_close(&b.life[1]);
  manta__fd_close(&b.out[1]);
  manta__fd_close(&b.err[1]);
  w->next = g->workers;
  g->workers = w;
  announce(w, w->ring_fd);
  return w;
err_free:
  abandon(&b);
  manta__free(w);
  return NULL;
}

static void on_pidfd(uv_poll_t *h, int status, int events);

void manta__agent_worker_forked(struct manta__agent_worker *w, pid_t pid, int pidfd, int error)
{
  if (pid <= 0) {
    snprintf(w->cause, sizeof w->cause, "could not be started: %s",
             error == ECHILD
                 ? "the process that forks workers has ended; its standard error says why"
                 : strerror(error));
    manta__agent_worker_exited(w, -1);
    return;
  }
  w->pid = pid;
  w->pidfd = pidfd;
  w->pidfd_poll = pidfd >= 0 ? manta__calloc(1, sizeof *w->pidfd_poll) : NULL;
  if (w->pidfd_poll) {
    w->pidfd_poll->data = w;
    uv_poll_init(&w->group->agent->loop, w->pidfd_poll, pidfd);
    uv_poll_start(w->pidfd_poll, UV_READABLE, on_pidfd);
  }
  if (w->state == WORKER_STARTING)
    w->state = WORKER_IDLE;
  announce(w, -1);
  if (w->cause[0])
    manta__proc_signal(pid, SIGKILL); // it was to be killed before it was born
}

// --- death ---------------------------------------------------------------------------------------

// Its zygote has not waited for it: one that imports a framework is busy for seconds.
static void on_status_late(uv_timer_t *t)
{
  struct manta__agent_worker *w = t->data;
  manta__agent_worker_exited(w, manta__proc_zombie_status(w->pid));
}

static void on_pidfd(uv_poll_t *h, int status, int events)
{
  struct manta__agent_worker *w = h->data;
  uv_poll_stop(h);
  manta__agent_timer_stop(&w->last_words);
  w->last_words = manta__agent_timer(w->group->agent, STATUS_LATE_S, 0, on_status_late, w);
}

static void poll_free(uv_handle_t *h)
{
  manta__free(h);
}

// What it said before it died still counts.
static void hear_last_words(struct manta__agent_worker *w)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  while (w->conn && manta__conn_recv(w->conn->conn, &m, &err) == 1) {
    on_msg(w->conn, &m);
    manta__msg_close(&m);
  }
  manta__agent_output_flush(w->output);
}

static void describe_end(const struct manta__agent_worker *w, int status, char *buf, size_t size)
{
  snprintf(buf, size, "%s", w->cause[0] ? w->cause : "died; cause unknown");
  if (!w->cause[0] && status >= 0)
    manta__proc_explain(status, buf, size);
}

// What its peers on this host are told.
static void explain_loss(const struct manta__agent_worker *w, int status)
{
  char how[160];
  struct manta__agent_group *g = w->group;
  if (!g->ctl || w->attempt != g->run.attempt)
    return;
  describe_end(w, status, how, sizeof how);
  manta__ctl_explain(g->ctl, MANTA__ABORT_RANK + (uint32_t)w->rank, NULL, how);
}

static void tell_gone(struct manta__agent_worker *w, int status, bool oom)
{
  char how[160], cause[320];
  describe_end(w, status, how, sizeof how);
  snprintf(cause, sizeof cause, "%s%s", how,
           oom && !w->cause[0] ? ", out of memory: the kernel's OOM killer" : "");
  manta_value v = MANTA__PACK(gone_msg, .wid = w->wid, .pid = w->pid, .rank = w->rank,
                              .status = status, .cause = cause, .host = w->group->agent->host,
                              .last = manta__agent_output_last(w->output), .hung = w->hung);
  struct manta__msg m = {.kind = MANTA__M_GONE, .group = w->group->id};
  m.id = w->group->run;
  m.id.attempt = w->attempt;
  m.id.rank = w->rank;
  manta__agent_send_value(w->group->agent->driver, &m, &v);
}

void manta__agent_worker_exited(struct manta__agent_worker *w, int status)
{
  struct manta__agent_group *g = w->group;
  if (w->state == WORKER_GONE)
    return;
  bool oom = status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !w->cause[0] &&
             manta__oom_happened(&g->agent->ooms);
  hear_last_words(w);
  bool ran = w->state == WORKER_RUNNING;
  w->state = WORKER_GONE;
  if (ran)
    explain_loss(w, status);
  if (ran && g->ctl && w->attempt == g->run.attempt)
    manta__agent_attempt_abort(g, MANTA__ABORT_RANK + (uint32_t)w->rank);
  if (w->pid > 0)
    manta__orphans_end(getpid(), w->wid, w->pid);
  manta__agent_timer_stop(&w->last_words);
  manta__agent_disconnect(w->conn);
  w->conn = NULL;
  tell_gone(w, status, oom);
  manta__agent_output_end(w->output);
  w->output = NULL;
  if (w->pidfd_poll)
    uv_close((uv_handle_t *)w->pidfd_poll, poll_free);
  manta__fd_close(&w->pidfd);
  manta__fd_close(&w->lifeline);
  manta__agent_heirs_inherit(w);
  if (!manta__agent_heirs_keep_share(w)) {
    manta__ledger_release(g->agent->ledger, w->grant);
    w->grant = NULL;
  }
  manta__agent_room_freed(g->agent);
  manta__agent_fetch_look(g);
  manta__agent_snap_worker_gone(w); // frees it, now or after its snapshot is written
}

void manta__agent_worker_kill(struct manta__agent_worker *w, const char *cause)
{
  if (w->state == WORKER_GONE)
    return;
  manta__agent_heirs_expect_end(w);
  if (!w->cause[0] && !w->dying) // else how it ended is its own affair
    snprintf(w->cause, sizeof w->cause, "%s", cause);
  if (w->state == WORKER_RUNNING && !w->dying)
    explain_loss(w, -1);
  if (w->pid == 0) { // its zygote may be busy for seconds yet: what it forks for us is killed then
    manta__agent_timer_stop(&w->last_words);
    w->last_words = manta__agent_timer(w->group->agent, 0, 0, on_status_late, w);
    return;
  }
  // Closing the lifeline would do, but a signal to the group also meets its children.
  if (manta__proc_signal_group(w->pid, SIGKILL) < 0)
    manta__proc_signal(w->pid, SIGKILL);
}

void manta__agent_worker_give_up(struct manta__agent_worker *w)
{
  snprintf(w->cause, sizeof w->cause, "was killed, but does not end");
  tell_gone(w, -1, false);
}

static void on_exit_limit(uv_timer_t *t)
{
  struct manta__agent_worker *w = t->data;
  manta__agent_timer_stop(&w->last_words);
  manta__agent_worker_kill(w, "it did not end within 5 s of being asked to");
}

void manta__agent_worker_ask_exit(struct manta__agent_worker *w)
{
  if (w->exit_asked || w->state == WORKER_GONE)
    return;
  w->exit_asked = true;
  if (w->state == WORKER_RUNNING || w->pid == 0) {
    manta__agent_worker_kill(w, "the run was ended");
    return;
  }
  manta__agent_send(w->conn, &(struct manta__msg){.kind = MANTA__M_EXIT});
  if (!w->last_words)
    w->last_words = manta__agent_timer(w->group->agent, AGENT_EXIT_S, 0, on_exit_limit, w);
}
