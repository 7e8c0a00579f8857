/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/orphans.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/knob.h"
#include "base/log.h"
#include "sys/runtime.h"
#include "sys/sock.h"

#define REAP_S 0.5

// --- links ---------------------------------------------------------------------------------------

static void link_events(struct manta__loop_conn *l);

static void link_free(uv_handle_t *h)
{
  struct manta__loop_conn *l = h->data;
  manta__conn_destroy(l->conn);
  manta__free(l);
}

void manta__agent_disconnect(struct manta__loop_conn *l)
{
  if (!l || l->closing)
    return;
  l->closing = true;
  uv_close((uv_handle_t *)&l->poll, link_free);
}

static void link_read(struct manta__loop_conn *l)
{
  struct manta__msg m;
  manta_error err = MANTA_ERROR_INIT;
  int rc = 0;
  while (!l->closing && (rc = manta__conn_recv(l->conn, &m, &err)) == 1) {
    l->on_msg(l, &m);
    manta__msg_close(&m);
  }
  if (rc < 0 && !l->closing) {
    if (rc != MANTA_ECLOSED)
      manta__warn("agent: %s", err.message);
    manta__agent_disconnect(l);
    l->on_end(l);
  }
}

static void on_link(uv_poll_t *h, int status, int events)
{
  struct manta__loop_conn *l = h->data;
  manta_error err = MANTA_ERROR_INIT;
  if (events & UV_WRITABLE)
    manta__conn_flush(l->conn, &err); // a failure shows when reading
  if (status < 0 || (events & UV_READABLE))
    link_read(l);
  if (!l->closing)
    link_events(l);
}

static void link_events(struct manta__loop_conn *l)
{
  uv_poll_start(&l->poll, UV_READABLE | (manta__conn_pending(l->conn) ? UV_WRITABLE : 0), on_link);
}

struct manta__loop_conn *
manta__agent_connect(struct manta__agent *a, int sock,
                     void (*on_msg)(struct manta__loop_conn *, struct manta__msg *),
                     void (*on_end)(struct manta__loop_conn *), void *owner, manta_error *err)
{
  struct manta__loop_conn *l = manta__calloc(1, sizeof *l);
  if (!l) {
    manta_error_set(err, MANTA_ENOMEM, "no memory for a link");
    return NULL;
  }
  if (manta__conn_create(&l->conn, sock, NULL, err) < 0) {
    manta__free(l);
    return NULL;
  }
  l->on_msg = on_msg;
  l->on_end = on_end;
  l->owner = owner;
  l->poll.data = l;
  uv_poll_init(&a->loop, &l->poll, sock);
  link_events(l);
  return l;
}

void manta__agent_send(struct manta__loop_conn *l, const struct manta__msg *m)
{
  manta_error err = MANTA_ERROR_INIT;
  if (!l || l->closing)
    return;
  manta_status st = manta__conn_send(l->conn, m, &err);
  if (st < 0 && st != MANTA_ECLOSED)
    manta__warn("agent: %s", err.message);
  link_events(l);
}

void manta__agent_send_value(struct manta__loop_conn *l, const struct manta__msg *m, manta_value *v)
{
  struct manta__msg full = *m;
  void *bytes;
  if (manta_value_pack(v, &bytes, &full.len, NULL) == MANTA_OK) {
    full.data = bytes;
    manta__agent_send(l, &full);
    manta_free(bytes);
  }
  manta_value_fini(v);
}

void manta__agent_warn(struct manta__agent *a, uint32_t group, const char *fmt, ...)
{
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  manta_value v = MANTA_MAP(MANTA_KV_STR("text", text));
  manta__agent_send_value(a->driver, &(struct manta__msg){.kind = MANTA__M_WARN, .group = group},
                          &v);
}

// --- timers --------------------------------------------------------------------------------------

uv_timer_t *manta__agent_timer(struct manta__agent *a, double first_s, double repeat_s,
                               uv_timer_cb cb, void *data)
{
  uv_timer_t *t = manta__calloc(1, sizeof *t);
  if (!t)
    return NULL;
  uv_timer_init(&a->loop, t);
  t->data = data;
  uv_timer_start(t, cb, (uint64_t)(first_s * 1e3), (uint64_t)(repeat_s * 1e3));
  return t;
}

static void timer_free(uv_handle_t *h)
{
  manta__free(h);
}

void manta__agent_timer_stop(uv_timer_t **t)
{
  if (*t)
    uv_close((uv_handle_t *)*t, timer_free);
  *t = NULL;
}

// --- groups --------------------------------------------------------------------------------------

struct manta__agent_group *manta__agent_group(struct manta__agent *a, uint32_t id, bool make)
{
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    if (g->id == id)
      return g;
  struct manta__agent_group *g = make ? manta__calloc(1, sizeof *g) : NULL;
  if (!g)
    return NULL;
  g->agent = a;
  g->id = id;
  g->rundir = g->logdir = g->ctl_fd = g->heap_fd = g->tty = g->tty_rank = -1;
  g->next = a->groups;
  a->groups = g;
  return g;
}

bool manta__agent_group_alive(const struct manta__agent_group *g)
{
  for (const struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (w->state != WORKER_GONE)
      return true;
  return manta__agent_snap_busy(g);
}

static void group_free(struct manta__agent_group *g)
{
  for (struct manta__agent_group **p = &g->agent->groups; *p; p = &(*p)->next)
    if (*p == g) {
      *p = g->next;
      break;
    }
  manta__agent_room_forget(g);
  manta__agent_attempt_leave(g);
  manta__agent_timer_stop(&g->health);
  manta__agent_timer_stop(&g->gone_limit);
  manta__agent_output_close_files(g);
  manta__agent_snap_run_ended(g);
  manta__fd_close(&g->rundir);
  manta__fd_close(&g->logdir);
  manta__fd_close(&g->tty);
  manta__free(g->path);
  manta__free(g->name);
  manta__best_scores_fini(&g->best);
  manta_value_fini(&g->elsewhere);
  manta__free(g);
}

void manta__agent_group_ended(struct manta__agent_group *g)
{
  struct manta__agent *a = g->agent;
  if (g->disband && !manta__agent_group_alive(g)) {
    if (g->drain.kind)
      manta__agent_drain(g, NULL);
    group_free(g);
  }
  manta__agent_maybe_leave(a);
}

static void disband(struct manta__agent_group *g)
{
  g->disband = true;
  manta__agent_room_forget(g);
  manta__agent_attempt_abort(g, MANTA__ABORT_STOP);
  for (struct manta__agent_worker *w = g->workers, *next; w; w = next) {
    next = w->next;
    manta__agent_worker_ask_exit(w);
  }
  manta__agent_heirs_release(g);
  manta__agent_group_ended(g);
}

// --- the driver's messages -----------------------------------------------------------------------

static void begin_run(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  if (manta__msg_value(m, &v, &err) < 0)
    return;
  g->run = m->id;
  g->rest_ns = 0;
  g->show_all = manta_value_as_bool(manta_value_get(&v, "show_all"), false);
  g->live = manta_value_as_bool(manta_value_get(&v, "live"), false);
  if (manta_value_as_bool(manta_value_get(&v, "exec"), false)) {
    manta_value_fini(&v); // a call between runs, or between two attempts of one
    return;
  }
  manta__agent_snap_run_ended(g);
  manta__agent_output_close_files(g);
  manta__fd_close(&g->rundir);
  manta__fd_close(&g->logdir);
  manta__fd_close(&g->tty);
  manta__free(g->path);
  g->rundir = manta__msg_take_fd(m, 0);
  g->logdir = manta__msg_take_fd(m, 1);
  g->tty = manta__msg_take_fd(m, 2);
  g->tty_rank = (int)manta_value_as_int(manta_value_get(&v, "pdb"), -1);
  g->path = manta__strdup(manta_value_as_string(manta_value_get(&v, "path"), ""));
  g->log_limit = manta_value_as_int(manta_value_get(&v, "log_limit"), 64 << 20);
  g->keep_last = (int)manta_value_as_int(manta_value_get(&v, "keep_last"), 2);
  g->keep_best = (int)manta_value_as_int(manta_value_get(&v, "keep_best"), 0);
  g->score_min = manta_value_as_bool(manta_value_get(&v, "score_min"), false);
  manta_value_fini(&v);
}

static void kill_workers(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  if (manta__msg_value(m, &v, NULL) < 0)
    return;
  const manta_value *wids = manta_value_get(&v, "wids");
  const char *cause = manta_value_as_string(manta_value_get(&v, "cause"), "ended by the driver");
  for (size_t i = 0; wids && i < wids->count; i++) {
    struct manta__agent_worker *w =
        manta__agent_worker_find(g->agent, manta_value_as_int(manta_value_at(wids, i), -1));
    if (w && w->group == g)
      manta__agent_worker_kill(w, cause);
  }
  manta_value_fini(&v);
}

// "client port server port": where the host was reached, if SSH led here. On the driver's own host
// it tells how the user came there, which is another matter.
static const char *own_address(const struct manta__agent *a, char *buf, size_t size)
{
  const char *s = a->far ? getenv("SSH_CONNECTION") : NULL;
  buf[0] = 0;
  for (int i = 0; s && i < 2; i++)
    s = strchr(s, ' ') ? strchr(s, ' ') + 1 : NULL;
  if (s)
    snprintf(buf, size, "%.*s", (int)strcspn(s, " "), s);
  return buf;
}

static void hello(struct manta__agent *a, struct manta__msg *m)
{
  char address[64];
  manta_value in = {0};
  a->wake_fd = manta__msg_take_fd(m, 0);
  if (manta__msg_value(m, &in, NULL) == MANTA_OK)
    a->wids = manta_value_as_int(manta_value_get(&in, "wids"), 0);
  a->far = manta_value_as_bool(manta_value_get(&in, "far"), false);
  const char *name = manta_value_as_string(manta_value_get(&in, "name"), a->host);
  if (name != a->host)
    snprintf(a->host, sizeof a->host, "%s", name);
  manta_value_fini(&in);
  struct manta__ledger_totals t = {0};
  if (a->ledger)
    manta__ledger_totals(a->ledger, &t);
  manta_value v = MANTA_MAP(MANTA_KV_INT("version", MANTA__PROTO_VERSION),
                            MANTA_KV_INT("pid", getpid()), MANTA_KV_STR("host", a->host),
                            MANTA_KV_STR("address", own_address(a, address, sizeof address)),
                            MANTA_KV_REAL("cpus", t.cpus), MANTA_KV_REAL("gpus", t.gpus));
  struct manta__msg out = {.kind = MANTA__M_HELLO, .flags = MANTA__FRAME_REPLY, .call = m->call};
  manta__agent_send_value(a->driver, &out, &v);
}

static void notice(struct manta__agent *a)
{
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    if (g->ctl)
      atomic_store(&g->ctl->notice, 1);
}

static void driver_lost(struct manta__agent *a);

static void on_driver_msg(struct manta__loop_conn *l, // style: one case a message
                          struct manta__msg *m)
{
  struct manta__agent *a = l->owner;
  if (m->kind == MANTA__M_HELLO) {
    hello(a, m);
    return;
  }
  if (m->kind == MANTA__M_PROGRAM) {
    manta__agent_program(a, m);
    return;
  }
  if (m->kind == MANTA__M_WARM) {
    manta__agent_warm(a, m);
    return;
  }
  if (m->kind == MANTA__M_LOST) {
    driver_lost(a);
    return;
  }
  // A request is answered also by an agent that has not heard of its trainer yet.
  struct manta__agent_group *g =
      manta__agent_group(a, m->group,
                         m->call > 0 || m->kind == MANTA__M_RUN || m->kind == MANTA__M_SPAWN ||
                             m->kind == MANTA__M_ATTEMPT);
  if (!g)
    return;
  switch (m->kind) {
  case MANTA__M_RUN:
    begin_run(g, m);
    break;
  case MANTA__M_SPAWN:
    manta__agent_spawn(g, m);
    break;
  case MANTA__M_ATTEMPT:
    manta__agent_attempt(g, m);
    break;
  case MANTA__M_ABORT:
    manta__agent_attempt_end(g, m);
    break;
  case MANTA__M_KILL:
    kill_workers(g, m);
    break;
  case MANTA__M_NOTICE:
    if (g->ctl)
      atomic_store(&g->ctl->notice, 1);
    break;
  case MANTA__M_DRAIN:
    manta__agent_drain(g, m);
    break;
  case MANTA__M_PROBE:
    manta__agent_probe(g, m);
    break;
  case MANTA__M_RENEW:
    manta__agent_renew(g, m);
    break;
  case MANTA__M_DISBAND:
    disband(g);
    break;
  case MANTA__M_REST:
    manta__agent_room_rest(g, m);
    break;
  case MANTA__M_ELSEWHERE:
    manta__msg_value(m, &g->elsewhere, NULL);
    break;
  case MANTA__M_STORED:
  case MANTA__M_STOREFAIL:
    manta__agent_snap_written(g);
    break;
  case MANTA__M_GIVEN:
  case MANTA__M_AGREED:
    manta__agent_worker_tell_all(g, m);
    break;
  case MANTA__M_FETCH:
    manta__agent_fetch(g, m);
    break;
  case MANTA__M_FETCHED:
    manta__agent_fetched(g, m);
    break;
  default:
    manta__warn("agent: message of unknown kind %u from the driver", m->kind);
  }
}

// --- the end -------------------------------------------------------------------------------------

// Zygotes die with their lifelines; not every init reaps what is left to it.
static void reap_children(void)
{
  int64_t by = manta__deadline(REAP_S);
  while (manta__now() < by) {
    pid_t pid = waitpid(-1, NULL, WNOHANG);
    if (pid < 0)
      return;
    if (pid == 0)
      usleep(200);
  }
}

_Noreturn static void leave(struct manta__agent *a)
{
  manta__agent_door_close(a->door);
  manta__agent_zygotes_end(a);
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    manta__agent_disconnect(g->writer);
  uv_run(&a->loop, UV_RUN_NOWAIT); // closes what was given up: the writers see the end
  reap_children();
  manta__ledger_destroy(a->ledger); // nobody runs here any more: the leases are free for others
  _exit(0);
}

// True while something must still happen before the agent may go.
static bool busy(struct manta__agent *a)
{
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    if (manta__agent_group_alive(g))
      return true;
  return false;
}

void manta__agent_maybe_leave(struct manta__agent *a)
{
  if (a->driver_lost && !busy(a))
    leave(a);
}

static void on_last_limit(uv_timer_t *t)
{
  leave(t->data);
}

static void driver_lost(struct manta__agent *a)
{
  if (a->driver_lost)
    return;
  a->driver_lost = true;
  manta__fd_mute();
  manta__agent_timer(a, AGENT_LAST_WRITE_S, 0, on_last_limit, a);
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    for (struct manta__agent_worker *w = g->workers; w; w = w->next)
      manta__agent_worker_kill(w, "the driver is gone");
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    manta__agent_snap_driver_lost(g);
  manta__agent_zygotes_end(a); // may be all that the agent stayed for
  manta__agent_maybe_leave(a);
}

static void on_driver_end(struct manta__loop_conn *l)
{
  struct manta__agent *a = l->owner;
  a->driver = NULL;
  driver_lost(a);
}

// A forked child of the driver may hold the socket open: its end is then seen here only.
static void on_driver_pidfd(uv_poll_t *h, int status, int events)
{
  uv_poll_stop(h);
  driver_lost(h->data);
}

// --- signals -------------------------------------------------------------------------------------

static void reap_one(struct manta__agent *a, pid_t pid, int status)
{
  if (manta__agent_zygote_exited(a, pid, status) || manta__agent_writer_exited(a, pid, status))
    return;
  struct manta__agent_worker *w = manta__agent_worker_of_pid(a, pid);
  if (w)
    manta__agent_worker_exited(w, status);
}

static void on_sigchld(uv_signal_t *h, int signum)
{
  siginfo_t si;
  for (;;) {
    si.si_pid = 0;
    if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
      return;
    // While it is a zombie its number is its own: what is left of its group can be ended safely.
    kill(-si.si_pid, SIGKILL);
    int status = 0;
    if (waitpid(si.si_pid, &status, WNOHANG) == si.si_pid)
      reap_one(h->data, si.si_pid, status);
  }
}

static void on_sigterm(uv_signal_t *h, int signum)
{
  struct manta__agent *a = h->data;
  if (a->sigterms++ > 0) {
    driver_lost(a); // the second one: end all
    return;
  }
  notice(a);
  manta_value v = MANTA_MAP(MANTA_KV_STR("what", "notice"));
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    manta__agent_send_value(a->driver, &(struct manta__msg){.kind = MANTA__M_ASKED, .group = g->id},
                            &v);
}

// --- the beginning -------------------------------------------------------------------------------

static manta_status open_ledger(struct manta__agent *a, manta_error *err)
{
  struct manta__host host = {0};
  MANTA_TRY(manta__host_read(&host, "", err));
  snprintf(a->host, sizeof a->host, "%s", host.name);
  a->cpus = host.cpus;
  int dirfd = -1;
  manta_error ignored;
  bool nested = manta__knob_is_set(MANTA__KNOB_WORKER); // it draws on what its worker's agent holds
  if (!nested && manta__runtime_dir(&dirfd, NULL, 0, &ignored) < 0)
    manta__warn("no leases: %s", ignored.message);
  struct manta__ledger_config cfg = {.host = &host, .lease_dirfd = dirfd};
  manta__ledger_config_env(&cfg);
  manta_status st = manta__ledger_create(&a->ledger, &cfg, err);
  manta__fd_close(&dirfd);
  manta__host_fini(&host);
  return st;
}

static void raise_limits(void)
{
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
  }
}

static manta_status open_agent(struct manta__agent *a, int conn, manta_error *err)
{
  MANTA_TRY(manta__knobs_check(err));
  uv_loop_init(&a->loop);
  a->loop.data = a;
  pthread_mutex_init(&a->death_lock, NULL);
  a->wake_fd = -1;
  a->driver_pid = getppid();
  a->driver_pidfd = manta__pidfd_open(a->driver_pid);
  a->sigchld.data = a->sigterm.data = a->death.data = a->driver_poll.data = a;
  uv_signal_init(&a->loop, &a->sigchld);
  uv_signal_start(&a->sigchld, on_sigchld, SIGCHLD);
  uv_signal_init(&a->loop, &a->sigterm);
  uv_signal_start(&a->sigterm, on_sigterm, SIGTERM);
  uv_async_init(&a->loop, &a->death, manta__agent_watch_deaths);
  if (a->driver_pidfd >= 0) {
    uv_poll_init(&a->loop, &a->driver_poll, a->driver_pidfd);
    uv_poll_start(&a->driver_poll, UV_READABLE, on_driver_pidfd);
  }
  manta__oom_happened(&a->ooms); // those before our time do not count
  MANTA_TRY(open_ledger(a, err));
  a->driver = manta__agent_connect(a, conn, on_driver_msg, on_driver_end, a, err);
  if (!a->driver)
    return err->status;
  manta_error ignored;
  a->door = manta__agent_door_open(a, &ignored);
  if (!a->door)
    manta__warn("no socket for manta ps: %s", ignored.message);
  return MANTA_OK;
}

// Tells the driver why; it will not try again.
static void refuse(int conn, const manta_error *why)
{
  manta__conn *c;
  manta_value v =
      MANTA_MAP(MANTA_KV_INT("status", why->status), MANTA_KV_STR("message", why->message));
  if (manta__conn_create(&c, conn, NULL, NULL) == MANTA_OK) {
    manta__conn_send_value(c, &(struct manta__msg){.kind = MANTA__M_REFUSED}, &v, NULL);
    manta__conn_drain(c, manta__deadline(1), NULL);
    manta__conn_destroy(c);
  }
}

int manta__agent_main(int conn, char *const argv[])
{
  static struct manta__agent a;
  manta_error err = MANTA_ERROR_INIT;
  (void)argv;
  prctl(PR_SET_NAME, "manta-agent");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signal(SIGPIPE, SIG_IGN);
  raise_limits();
  if (open_agent(&a, conn, &err) < 0) {
    refuse(conn, &err);
    return 1;
  }
  uv_run(&a.loop, UV_RUN_DEFAULT);
  return 0;
}
