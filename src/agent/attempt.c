/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/attempt.c - attempts: who takes part, hangs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/orphans.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ckpt/origin.h"
#include "comm/comm.h"
#include "sys/omp.h"
#include "sys/pages.h"
#include "sys/robust.h"
#include "sys/shm.h"
#include "sys/sock.h"

#define HEAP_SPACE   (1ull << 44) /* addresses that all heaps of an attempt may take */
#define WARN_AFTER_S 60.0         /* a silence worth a word, when no step_timeout is set */

void manta__agent_attempt_abort(struct manta__agent_group *g, uint32_t cause)
{
  if (g->ctl)
    manta__ctl_abort(g->ctl, cause);
}

void manta__agent_attempt_end(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__abort_msg in;
  if (m->id.attempt != g->run.attempt || !g->ctl || manta__abort_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  uint32_t cause = in.rank < 0 ? MANTA__ABORT_STOP : MANTA__ABORT_RANK + (uint32_t)in.rank;
  if (in.rank >= 0)
    manta__ctl_explain(g->ctl, cause, in.host ? in.host : "?", in.cause ? in.cause : "it died");
  manta__ctl_abort(g->ctl, cause);
  manta_value_fini(&v);
}

void manta__agent_attempt_leave(struct manta__agent_group *g)
{
  for (struct manta__agent_worker *w = g->workers; w; w = w->next)
    w->watched = false;
  manta__agent_watch_unref(g->shared);
  g->shared = NULL;
  g->ctl = NULL;
  manta__fd_close(&g->ctl_fd);
  manta__fd_close(&g->heap_fd);
}

// As much per worker as the host has memory: pages come when they are touched.
static uint64_t heap_region(int world)
{
  uint64_t most = HEAP_SPACE / (uint64_t)world;
  uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  return (memory < most ? memory : most) & ~(uint64_t)(MANTA__LARGE_PAGE - 1);
}

static manta_status make_ctl(struct manta__agent_group *g, int world, manta_error *err)
{
  struct manta__shared_ctl *s = manta__calloc(1, sizeof *s);
  if (!s)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a control segment");
  manta_status st =
      manta__ctl_create(&g->ctl_fd, g->run.run, g->run.attempt, world, g->agent->host, err);
  if (st == MANTA_OK)
    st = manta__ctl_map(&s->ctl, &s->bytes, g->ctl_fd, err);
  if (st == MANTA_OK)
    st = manta__shm_create("manta-heap", manta__comm_segment(world, heap_region(world)),
                           &g->heap_fd, err);
  if (st < 0) {
    manta__free(s);
    return st;
  }
  s->refs = 1;
  g->shared = s;
  g->ctl = s->ctl;
  return MANTA_OK;
}

// --- hangs --------------------------------------------------------------------------------------

static void look_at(struct manta__agent_group *g, struct manta__agent_worker *w, int64_t now)
{
  struct manta__cell *c = &g->ctl->cell[w->cell];
  if (w->state != WORKER_RUNNING || !atomic_load(&c->running) || atomic_load(&c->stalled))
    return;
  double silent = (double)(now - atomic_load(&c->beat_ns)) * 1e-9;
  if (g->step_timeout > 0 && silent > g->step_timeout) {
    char cause[160];
    snprintf(cause, sizeof cause, "hung: no sign of life for %.1f s (step_timeout %.1f s)", silent,
             g->step_timeout);
    w->hung = true;
    manta__agent_worker_kill(w, cause);
    manta__agent_reads_end(g); // it may have waited for that: the next attempt has another one
    return;
  }
  double typical = (double)atomic_load(&c->step_ns) * 1e-9;
  double limit = 10 * typical > WARN_AFTER_S ? 10 * typical : WARN_AFTER_S;
  if (g->step_timeout <= 0 && silent > limit && now - g->health_warned_ns > (int64_t)60e9) {
    g->health_warned_ns = now;
    manta__agent_warn(
        g->agent, g->id,
        "rank %d has given no sign of life for %.0f s (a step typically takes %.2g s)\n"
        "hint: step_timeout ends and revives a rank that hangs",
        w->rank, silent, typical);
  }
}

static void on_health(uv_timer_t *t)
{
  struct manta__agent_group *g = t->data;
  int64_t now = manta__now();
  if (!g->ctl || g->tty >= 0) // a debugger takes its time, and all ranks wait for it
    return;
  for (struct manta__agent_worker *w = g->workers, *next; w; w = next) {
    next = w->next;
    if (w->attempt == g->run.attempt && w->rank >= 0)
      look_at(g, w, now);
  }
}

static void watch_health(struct manta__agent_group *g, double step_timeout)
{
  g->step_timeout = step_timeout;
  manta__agent_timer_stop(&g->health);
  double every = step_timeout > 0 ? step_timeout / 8 : 5.0;
  if (every < 0.02)
    every = 0.02;
  g->health = manta__agent_timer(g->agent, every, every, on_health, g);
}

// --- forming ------------------------------------------------------------------------------------

struct plan { /* all of it borrowed from the message */
  const struct manta__order *order;
  struct manta__request rq;      /* what each of its workers needs */
  struct manta__attempt_msg job; /* of an ATTEMPT */
  int job_fd;
  struct manta__origin from;
};

static void begin_plan(struct plan *p, const struct manta__order *o)
{
  p->order = o;
  p->rq = (struct manta__request){
      .cpus = o->cpus, .strict = o->strict, .pin = o->pin, .gpus = o->gpus, .custom = o->resources};
}
// A request is also the end of its trainer's idleness. A start without a run begins it anew.
static void note_trainer(struct manta__agent_group *g, const struct manta__msg *m,
                         const struct manta__order *o)
{
  if (!g->name || strcmp(o->name, g->name) != 0) {
    manta__free(g->name);
    g->name = manta__strdup(o->name);
  }
  g->hold = o->hold;
  g->rest_ns = m->kind == MANTA__M_SPAWN && m->id.run == 0 ? manta__now() : 0;
}

// One that stays inside its train function takes part in no other call.
static bool usable(const struct manta__agent_worker *w, const struct plan *p)
{
  return (w->state == WORKER_IDLE || w->state == WORKER_STARTING) && !w->exit_asked &&
         !w->cause[0] && !manta__agent_spent(w) && (p->order->trains || !w->stays);
}

// Who would never take its job is replaced before it gets one.
static void replace_stopped(struct manta__agent_group *g)
{
  for (struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (w->state == WORKER_IDLE && !w->stopped && manta__proc_stopped(w->pid)) {
      w->stopped = true;
      manta__agent_warn(g->agent, g->id, "worker %d was stopped by a signal: it is replaced",
                        (int)w->pid);
      manta__agent_worker_kill(w, "it was stopped by a signal");
    }
}

static int idle_count(const struct manta__agent_group *g, const struct plan *p)
{
  int n = 0;
  for (const struct manta__agent_worker *w = g->workers; w; w = w->next)
    n += usable(w, p);
  return n;
}

static manta_status list_gpus(struct manta__agent *a, const struct manta__request *rq,
                              manta_error *err)
{
  static struct manta__gpus gpus;
  if (a->gpus_listed || !(rq->gpus > 0))
    return MANTA_OK;
  a->gpus_listed = true;
  manta__gpu_list(&gpus);
  return manta__ledger_add_gpus(a->ledger, &gpus, err);
}

// Room for as many of the missing workers as there is; *out is NULL if none is needed or possible.
static manta_status find_room(struct manta__agent_group *g, const struct plan *p, int idle,
                              struct manta__grant **out, manta_error *err)
{
  int want = p->order->count - idle, min = p->order->min - idle, granted = 0;
  *out = NULL;
  if (want <= 0)
    return MANTA_OK;
  MANTA_TRY(list_gpus(g->agent, &p->rq, err));
  int must = p->order->must - idle;
  manta_status st = MANTA_ENOROOM;
  if (must > min && must > 0) // asked as a whole first: what can never be is an error at once
    st = manta__ledger_reserve(g->agent->ledger, &p->rq, want, must, out, &granted, err);
  if (st == MANTA_ENOROOM)
    st = manta__ledger_reserve(g->agent->ledger, &p->rq, want, min > 0 ? min : 1, out, &granted,
                               err);
  if ((st == MANTA_OK || st == MANTA_ENOROOM) && granted < want &&
      manta__agent_room_can(g, &p->rq, want)) {
    manta__ledger_release(g->agent->ledger, *out);
    *out = NULL;
    return manta_error_set(err, MANTA_ENOROOM, "room for %d of %d workers", granted, want);
  }
  if (st == MANTA_OK && (*out)->warning[0])
    manta__agent_warn(g->agent, g->id, "%s", (*out)->warning);
  return st == MANTA_ENOROOM && min <= 0 ? MANTA_OK : st; // those that are there will do
}

// Starts a worker for every share of the grant, which is used up.
static manta_status start_workers(struct manta__agent_group *g, uint64_t key,
                                  struct manta__grant *room, manta_error *err)
{
  manta__ledger *ledger = g->agent->ledger;
  struct manta__grant *one[MANTA__LEDGER_MAX_WORKERS];
  struct manta__agent_zygote *z = manta__agent_zygote(g->agent, key, err);
  manta_status st = z ? MANTA_OK : err->status;
  int n = 0;
  while (st == MANTA_OK && room->workers > 0)
    if ((st = manta__ledger_split(ledger, room, &one[n], err)) == MANTA_OK)
      n++;
  manta__ledger_release(ledger, room);
  while (n-- > 0) { // split off from the end: the first worker gets the first share
    if (st == MANTA_OK && !manta__agent_worker_start(g, z, one[n], NULL, err))
      st = err->status;
    if (st < 0)
      manta__ledger_release(ledger, one[n]);
  }
  return st;
}

static manta_status have_workers(struct manta__agent_group *g, const struct plan *p,
                                 manta_error *err)
{
  struct manta__grant *room;
  int idle = idle_count(g, p);
  idle += manta__agent_heirs_make(g, p->order->key, p->order->count - idle, err);
  MANTA_TRY(find_room(g, p, idle, &room, err));
  manta_status st = room ? start_workers(g, p->order->key, room, err) : MANTA_OK;
  // Half of them is an attempt too, if it is enough.
  idle = idle_count(g, p);
  return st < 0 && (idle < p->order->min || idle == 0) ? st : MANTA_OK;
}

// Workers keep the rank they had if it is still there; the rest fill the gaps, in order of age.
static int fill_cells(struct manta__agent_group *g, const struct plan *p,
                      struct manta__agent_worker **by_cell)
{
  struct manta__agent_worker *rest[MANTA__LEDGER_MAX_WORKERS];
  int rests = 0, world = 0, count = p->order->count;
  memset(by_cell, 0, sizeof *by_cell * (size_t)count);
  for (struct manta__agent_worker *w = g->workers; w; w = w->next) {
    if (!usable(w, p))
      continue;
    if (w->rank >= 0 && w->rank < count && !by_cell[w->rank])
      by_cell[w->rank] = w;
    else if (rests < MANTA__LEDGER_MAX_WORKERS)
      rest[rests++] = w;
  }
  for (int r = 0; r < count; r++) {
    if (!by_cell[r] && rests > 0)
      by_cell[r] = rest[--rests]; // the list is youngest first
    world += by_cell[r] != NULL;
  }
  while (rests > 0)
    manta__agent_worker_ask_exit(rest[--rests]); // more than were asked for
  return world;
}

// Fewer than asked for: close the gaps, so that ranks are 0 … world - 1.
static void close_gaps(struct manta__agent_worker **by_cell, int count)
{
  int to = 0;
  for (int r = 0; r < count; r++)
    if (by_cell[r])
      by_cell[to++] = by_cell[r];
}

// Of a worker that is pinned, as many as it has cores.
static int threads_of(const struct manta__agent_worker *w, const struct plan *p)
{
  const struct manta__share *s = manta__agent_heir_share(w);
  return s && s->cores ? s->core_count : manta__omp_share(w->group->agent->cpus, p->job.planned);
}

static manta_status list_cores(manta_value *out, const struct manta__share *s)
{
  MANTA_TRY(manta_value_set_list(out));
  for (int i = 0; i < s->core_count; i++) {
    manta_value id = manta_value_int(s->cores[i]);
    MANTA_TRY(manta_value_append(out, &id));
  }
  return MANTA_OK;
}

// Marks the worker as the one that has the job.
static void enlist(struct manta__agent_worker *w, int cell, const struct plan *p)
{
  struct manta__agent_group *g = w->group;
  w->cell = cell;
  w->rank = p->job.first + cell;
  w->used |= p->order->trains;
  w->stays = false;
  w->turn = g->turn;
  w->awaits_go = manta__agent_heirs_awaited(g);
  w->attempt = g->run.attempt;
  w->state = WORKER_RUNNING;
}

static void send_job(struct manta__agent_worker *w, int cell, int local_world, const struct plan *p)
{
  struct manta__agent_group *g = w->group;
  const struct manta__share *s = manta__agent_heir_share(w);
  manta_value cores = {0};
  char mark[48];
  struct manta__msg m = {.kind = MANTA__M_JOB,
                         .id = g->run,
                         .fd = {g->ctl_fd, p->job_fd, g->heap_fd},
                         .fds = 3 + p->from.count};
  if (s && s->cores && list_cores(&cores, s) < 0)
    manta_value_fini(&cores); // not pinned, then
  enlist(w, cell, p);
  m.id.rank = w->rank;
  for (int i = 0; i < p->from.count; i++)
    m.fd[3 + i] = p->from.fd[i];
  manta__orphans_mark(mark, sizeof mark, getpid(), w->wid);
  manta_value v = MANTA__PACK(
      job_msg, .world = p->job.world ? p->job.world : local_world, .local_rank = w->cell,
      .local_world = local_world, .node_rank = p->job.node, .mark = mark, .keep = g->keep,
      .await = w->awaits_go, .given = p->from.given, .threads = threads_of(w, p),
      .host = g->agent->host, .hosts = p->job.hosts, .addresses = p->job.addresses,
      .firsts = p->job.firsts, .gpus = s && s->gpus && s->gpus[0] ? s->gpus : NULL,
      .cpus = cores.type == MANTA_LIST ? &cores : NULL);
  manta__agent_output_terminal(w);
  manta__agent_send_value(w->conn, &m, &v);
  manta_value_fini(&cores);
}

static void send_formed(struct manta__agent_group *g, manta_value *v)
{
  struct manta__msg m = {.kind = MANTA__M_FORMED, .group = g->id, .id = g->run};
  manta__agent_send_value(g->agent->driver, &m, v);
}

static void tell_formed(struct manta__agent_group *g, struct manta__agent_worker **by_cell,
                        int world)
{
  manta_value wids = {0};
  struct manta__ledger_totals t;
  manta_value_set_list(&wids);
  for (int r = 0; r < world; r++) {
    manta_value wid = manta_value_int(by_cell[r]->wid);
    manta_value_append(&wids, &wid);
  }
  manta__ledger_totals(g->agent->ledger, &t);
  manta_value v = MANTA__PACK(formed_msg, .world = world, .gpus = t.gpus, .wids = &wids);
  send_formed(g, &v);
  manta_value_fini(&wids);
}

void manta__agent_attempt_noroom(struct manta__agent_group *g, const manta_error *err)
{
  struct manta__msg m = {.kind = MANTA__M_NOROOM, .group = g->id, .id = g->run};
  manta_value v = MANTA__PACK(noroom_msg, .status = err->status, .message = err->message);
  manta__agent_send_value(g->agent->driver, &m, &v);
}

// Those that the driver has chosen. One that is gone meanwhile it knows to be lost.
static int take_chosen(struct manta__agent_group *g, const struct plan *p,
                       struct manta__agent_worker **by_cell)
{
  int found = 0;
  for (struct manta__agent_worker *w = g->workers; w; w = w->next) {
    int at = -1;
    for (int i = 0; i < p->order->count && at < 0; i++)
      if (manta_value_as_int(manta_value_at(p->job.wids, (size_t)i), -1) == w->wid)
        at = i;
    if (at >= 0 && usable(w, p)) {
      by_cell[at] = w;
      found++;
    } else if (usable(w, p)) {
      manta__agent_worker_ask_exit(w);
    }
  }
  return found;
}

static manta_status form_chosen(struct manta__agent_group *g, const struct plan *p,
                                manta_error *err)
{
  struct manta__agent_worker *by_cell[MANTA__LEDGER_MAX_WORKERS] = {0};
  take_chosen(g, p, by_cell);
  int count = p->order->count;
  MANTA_TRY(make_ctl(g, count, err));
  g->cells = count;
  for (int r = 0; r < count; r++)
    if (by_cell[r])
      send_job(by_cell[r], r, count, p);
  return MANTA_OK;
}

static manta_status form(struct manta__agent_group *g, const struct plan *p, manta_error *err)
{
  struct manta__agent_worker *by_cell[MANTA__LEDGER_MAX_WORKERS];
  if (p->job.wids)
    return form_chosen(g, p, err);
  replace_stopped(g);
  MANTA_TRY(have_workers(g, p, err));
  int world = fill_cells(g, p, by_cell);
  if (world < p->order->min || world == 0)
    return manta_error_set(err, MANTA_ENOROOM, "only %d of at least %d workers have started", world,
                           p->order->min);
  close_gaps(by_cell, p->order->count);
  MANTA_TRY(make_ctl(g, world, err));
  g->cells = world;
  for (int r = 0; r < world; r++)
    send_job(by_cell[r], r, world, p);
  tell_formed(g, by_cell, world);
  return MANTA_OK;
}

// Behind the job; a blob, if there is one, is the last descriptor.
static void take_origin(struct manta__origin *o, const struct manta__msg *m, bool given)
{
  int n = m->fds - 1 - (m->flags & MANTA__FRAME_BLOB ? 1 : 0);
  o->given = given;
  for (o->count = 0; o->count < n && o->count < MANTA__ORIGIN_FDS; o->count++)
    o->fd[o->count] = m->fd[1 + o->count];
}

static manta_status begin_attempt(struct manta__agent_group *g, struct plan *p,
                                  const struct manta__msg *m, manta_error *err)
{
  const struct manta__order *o = &p->job.order;
  begin_plan(p, o);
  p->job_fd = m->fd[0];
  take_origin(&p->from, m, p->job.given);
  manta__agent_heirs_turn(g, o->keep);
  note_trainer(g, m, o);
  manta__agent_snap_retire(g, p->job.retire_wid, p->job.retire_slot);
  manta_status st = o->count < 1 || o->count > MANTA__LEDGER_MAX_WORKERS
                        ? manta_error_set(err, MANTA_EINVAL, "%d workers", o->count)
                        : form(g, p, err);
  manta__agent_heirs_retire(g);
  manta__agent_heirs_release(g);
  watch_health(g, p->job.step_timeout);
  manta__agent_usage_begin(g);
  return st;
}

void manta__agent_attempt(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct plan p = {0};
  manta__agent_attempt_leave(g);
  manta__agent_fetch_reset(g);
  g->run = m->id;
  manta_status st = manta__attempt_msg_unpack(m, &v, &p.job, &err);
  if (st == MANTA_OK)
    st = begin_attempt(g, &p, m, &err);
  if (st < 0 && !(st == MANTA_ENOROOM && manta__agent_room_wait(g, m, &p.rq, p.order->count, &err)))
    manta__agent_attempt_noroom(g, &err);
  manta_value_fini(&v);
}

// The eldest first: they are the ones that had a rank before.
static void tell_ready(struct manta__agent_group *g, const struct plan *p)
{
  const struct manta__agent_worker *ready[MANTA__LEDGER_MAX_WORKERS];
  manta_value list = {0};
  int n = 0;
  for (const struct manta__agent_worker *w = g->workers; w && n < MANTA__LEDGER_MAX_WORKERS;
       w = w->next)
    if (usable(w, p))
      ready[n++] = w;
  manta_value_set_list(&list);
  for (int i = n; i-- > 0;) {
    manta_value wid = manta_value_int(ready[i]->wid);
    manta_value_append(&list, &wid);
  }
  manta_value v = MANTA__PACK(formed_msg, .world = n, .ready = &list);
  send_formed(g, &v);
  manta_value_fini(&list);
}

void manta__agent_spawn(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct manta__spawn_msg in;
  struct plan p = {0};
  manta_status st = manta__spawn_msg_unpack(m, &v, &in, &err);
  g->run = m->id;
  if (st == MANTA_OK) {
    begin_plan(&p, &in.order);
    manta__agent_heirs_turn(g, in.order.keep);
    note_trainer(g, m, &in.order);
    st = have_workers(g, &p, &err);
  }
  if (st == MANTA_OK)
    tell_ready(g, &p);
  else if (!(st == MANTA_ENOROOM && manta__agent_room_wait(g, m, &p.rq, in.order.count, &err)))
    manta__agent_attempt_noroom(g, &err);
  manta_value_fini(&v);
}

void manta__agent_probe(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__probe_msg in;
  struct plan p = {0};
  struct manta__grant *grant = NULL;
  int room = 0;
  if (manta__probe_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  begin_plan(&p, &in.order);
  int count = in.order.count;
  if (count >= 1)
    manta__ledger_reserve(g->agent->ledger, &p.rq, count, 1, &grant, &room, NULL);
  manta__ledger_release(g->agent->ledger, grant);
  if (room < count)
    manta__agent_room_make(g, &p.rq, count); // for the next time
  manta_value_fini(&v);
  manta_value out = MANTA__PACK(probe_reply, .room = room);
  manta__agent_reply(g->agent->driver, m, &out);
}
