/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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
#include "sys/oom.h"
#include "sys/proc.h"
#include "sys/runtime.h"
#include "sys/sock.h"

#define REAP_S 0.5

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
  g->reader_lifeline = -1;
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
  manta__agent_timer_stop(&g->usage);
  manta__agent_timer_stop(&g->gone_limit);
  manta__agent_output_close_files(g);
  manta__agent_snap_run_ended(g);
  manta__agent_reads_end(g);
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

void manta__agent_group_disband(struct manta__agent_group *g)
{
  g->disband = true;
  manta__agent_room_forget(g);
  manta__agent_attempt_abort(g, MANTA__ABORT_STOP);
  for (struct manta__agent_worker *w = g->workers, *next; w; w = next) {
    next = w->next;
    manta__agent_worker_ask_exit(w);
  }
  manta__agent_heirs_release(g);
  manta__agent_reads_end(g);
  manta__agent_group_ended(g);
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
  for (struct manta__agent_group *g = a->groups; g; g = g->next) {
    manta__agent_reads_end(g);
    manta__agent_disconnect(g->writer);
  }
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

void manta__agent_driver_lost(struct manta__agent *a)
{
  if (a->driver_lost)
    return;
  a->driver_lost = true;
  manta__fd_mute();
  manta__agent_timer(a, AGENT_LAST_WRITE_S, 0, on_last_limit, a);
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    for (struct manta__agent_worker *w = g->workers; w; w = w->next)
      manta__agent_worker_kill(w, "the driver is gone");
  for (struct manta__agent_group *g = a->groups; g; g = g->next) {
    manta__agent_reads_end(g);
    manta__agent_snap_driver_lost(g);
  }
  manta__agent_zygotes_end(a); // may be all that the agent stayed for
  manta__agent_maybe_leave(a);
}

static void on_driver_end(struct manta__loop_conn *l)
{
  struct manta__agent *a = l->owner;
  a->driver = NULL;
  manta__agent_driver_lost(a);
}

// A forked child of the driver may hold the socket open: its end is then seen here only.
static void on_driver_pidfd(uv_poll_t *h, int status, int events)
{
  uv_poll_stop(h);
  manta__agent_driver_lost(h->data);
}

// --- signals -------------------------------------------------------------------------------------

static void reap_one(struct manta__agent *a, pid_t pid, int status)
{
  if (manta__agent_zygote_exited(a, pid, status) || manta__agent_writer_exited(a, pid, status) ||
      manta__agent_reader_exited(a, pid))
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
    manta__proc_signal_group(si.si_pid, SIGKILL);
    int status = 0;
    if (waitpid(si.si_pid, &status, WNOHANG) == si.si_pid)
      reap_one(h->data, si.si_pid, status);
  }
}

static void on_sigterm(uv_signal_t *h, int signum)
{
  struct manta__agent *a = h->data;
  if (a->sigterms++ > 0) {
    manta__agent_driver_lost(a); // the second one: end all
    return;
  }
  for (struct manta__agent_group *g = a->groups; g; g = g->next) {
    manta_value v = MANTA__PACK(asked_msg, .what = "notice");
    if (g->ctl)
      atomic_store(&g->ctl->notice, 1);
    manta__agent_send_value(a->driver, &(struct manta__msg){.kind = MANTA__M_ASKED, .group = g->id},
                            &v);
  }
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
  a->driver = manta__agent_connect(a, conn, MANTA__AGENT_TO_DRIVER, manta__agent_on_driver,
                                   on_driver_end, a, err);
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
  manta_value v = MANTA__PACK(refused_msg, .status = why->status, .message = why->message);
  if (manta__conn_create(&c, conn, manta__proto_end(MANTA__AGENT_TO_DRIVER), NULL) == MANTA_OK) {
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
