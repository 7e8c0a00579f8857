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
  if (m->id.attempt != g->run.attempt || !g->ctl || manta__msg_value(m, &v, NULL) < 0)
    return;
  int64_t rank = manta_value_as_int(manta_value_get(&v, "rank"), -1);
  uint32_t cause = rank < 0 ? MANTA__ABORT_STOP : MANTA__ABORT_RANK + (uint32_t)rank;
  if (rank >= 0)
    manta__ctl_explain(g->ctl, cause, manta_value_as_string(manta_value_get(&v, "host"), "?"),
                       manta_value_as_string(manta_value_get(&v, "cause"), "it died"));
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

struct plan {
  uint64_t key;
  int count, min, must; /* must: the host as a whole has to have room for so many */
  bool trains;          /* a train function, not a call between runs */
  struct manta__request rq;
  const manta_value *wids;  /* who takes part, by rank; NULL: we choose */
  int first, world, node;   /* of several hosts: our first rank, all ranks, which host */
  const manta_value *hosts; /* … and what they are called; NULL: there is only ours */
  int planned;              /* workers of the run that this host is to have */
  int job_fd;
  struct manta__origin from; /* borrowed from the message */
};

static void read_plan(struct plan *p, const manta_value *v)
{
  *p = (struct plan){.key = (uint64_t)manta_value_as_int(manta_value_get(v, "key"), 0),
                     .count = (int)manta_value_as_int(manta_value_get(v, "count"), 1),
                     .min = (int)manta_value_as_int(manta_value_get(v, "min"), 1),
                     .must = (int)manta_value_as_int(manta_value_get(v, "must"), 1),
                     .trains = manta_value_as_bool(manta_value_get(v, "trains"), true),
                     .rq = {.cpus = manta_value_as_real(manta_value_get(v, "cpus"), 0),
                            .strict = manta_value_as_bool(manta_value_get(v, "strict"), false),
                            .pin = manta_value_as_bool(manta_value_get(v, "pin"), false),
                            .gpus = manta_value_as_real(manta_value_get(v, "gpus"), 0),
                            .custom = manta_value_get(v, "resources")},
                     .wids = manta_value_get(v, "wids"),
                     .first = (int)manta_value_as_int(manta_value_get(v, "first"), 0),
                     .world = (int)manta_value_as_int(manta_value_get(v, "world"), 0),
                     .node = (int)manta_value_as_int(manta_value_get(v, "node"), 0),
                     .hosts = manta_value_get(v, "hosts"),
                     .planned = (int)manta_value_as_int(manta_value_get(v, "planned"), 1)};
}

// A request is also the end of its trainer's idleness. A start without a run begins it anew.
static void note_trainer(struct manta__agent_group *g, const struct manta__msg *m,
                         const manta_value *v)
{
  const char *name = manta_value_as_string(manta_value_get(v, "name"), NULL);
  if (name && (!g->name || strcmp(name, g->name) != 0)) {
    manta__free(g->name);
    g->name = manta__strdup(name);
  }
  g->hold = manta_value_as_bool(manta_value_get(v, "hold"), false);
  g->rest_ns = m->kind == MANTA__M_SPAWN && m->id.run == 0 ? manta__now() : 0;
}

// One that stays inside its train function takes part in no other call.
static bool usable(const struct manta__agent_worker *w, const struct plan *p)
{
  return (w->state == WORKER_IDLE || w->state == WORKER_STARTING) && !w->exit_asked &&
         !w->cause[0] && !manta__agent_spent(w) && (p->trains || !w->stays);
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
  int want = p->count - idle, min = p->min - idle, granted = 0;
  *out = NULL;
  if (want <= 0)
    return MANTA_OK;
  MANTA_TRY(list_gpus(g->agent, &p->rq, err));
  int must = p->must - idle;
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
  idle += manta__agent_heirs_make(g, p->key, p->count - idle, err);
  MANTA_TRY(find_room(g, p, idle, &room, err));
  manta_status st = room ? start_workers(g, p->key, room, err) : MANTA_OK;
  // Half of them is an attempt too, if it is enough.
  idle = idle_count(g, p);
  return st < 0 && (idle < p->min || idle == 0) ? st : MANTA_OK;
}

// Workers keep the rank they had if it is still there; the rest fill the gaps, in order of age.
static int fill_cells(struct manta__agent_group *g, const struct plan *p,
                      struct manta__agent_worker **by_cell)
{
  struct manta__agent_worker *rest[MANTA__LEDGER_MAX_WORKERS];
  int rests = 0, world = 0, count = p->count;
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
  return s && s->cores ? s->core_count : manta__omp_share(w->group->agent->cpus, p->planned);
}

static manta_status put_ranks(manta_value *v, const struct manta__agent_worker *w,
                              const struct plan *p, int local_world)
{
  char mark[48];
  manta__orphans_mark(mark, sizeof mark, getpid(), w->wid);
  manta_value head = MANTA_MAP(
      MANTA_KV_INT("world", p->world ? p->world : local_world), MANTA_KV_INT("local_rank", w->cell),
      MANTA_KV_INT("local_world", local_world), MANTA_KV_INT("node_rank", p->node),
      MANTA_KV_STR("mark", mark), MANTA_KV_BOOL("keep", w->group->keep),
      MANTA_KV_BOOL("await", w->awaits_go), MANTA_KV_BOOL("given", p->from.given),
      MANTA_KV_INT("threads", threads_of(w, p)),
      p->hosts ? MANTA_KV("hosts", *p->hosts) : MANTA_KV_STR("host", w->group->agent->host));
  return manta_value_copy(v, &head);
}

static void send_job(struct manta__agent_worker *w, int cell, int local_world, const struct plan *p)
{
  struct manta__agent_group *g = w->group;
  manta_value v = {0};
  w->cell = cell;
  w->rank = p->first + cell;
  w->used |= p->trains;
  w->stays = false;
  w->turn = g->turn;
  w->awaits_go = manta__agent_heirs_awaited(g);
  if (put_ranks(&v, w, p, local_world) < 0)
    return;
  const struct manta__share *s = manta__agent_heir_share(w);
  if (s && s->gpus && s->gpus[0])
    manta_value_put_string(&v, "gpus", s->gpus);
  if (s && s->cores) {
    manta_value list = {0};
    manta_value_set_list(&list);
    for (int i = 0; i < s->core_count; i++) {
      manta_value id = manta_value_int(s->cores[i]);
      manta_value_append(&list, &id);
    }
    manta_value_put(&v, "cpus", &list);
  }
  w->attempt = g->run.attempt;
  w->state = WORKER_RUNNING;
  struct manta__msg m = {.kind = MANTA__M_JOB,
                         .id = g->run,
                         .fd = {g->ctl_fd, p->job_fd, g->heap_fd},
                         .fds = 3 + p->from.count};
  for (int i = 0; i < p->from.count; i++)
    m.fd[3 + i] = p->from.fd[i];
  m.id.rank = w->rank;
  manta__agent_output_terminal(w);
  manta__agent_send_value(w->conn, &m, &v);
}

static void tell_formed(struct manta__agent_group *g, struct manta__agent_worker **by_cell,
                        int world)
{
  manta_value v = {0}, list = {0};
  manta_value_set_map(&v);
  manta_value_set_list(&list);
  for (int r = 0; r < world; r++) {
    manta_value wid = manta_value_int(by_cell[r]->wid);
    manta_value_append(&list, &wid);
  }
  struct manta__ledger_totals t;
  manta__ledger_totals(g->agent->ledger, &t);
  manta_value_put_int(&v, "world", world);
  manta_value_put_real(&v, "gpus", t.gpus);
  manta_value_put(&v, "wids", &list);
  manta__agent_send_value(
      g->agent->driver, &(struct manta__msg){.kind = MANTA__M_FORMED, .group = g->id, .id = g->run},
      &v);
}

void manta__agent_attempt_noroom(struct manta__agent_group *g, const manta_error *err)
{
  manta_value v =
      MANTA_MAP(MANTA_KV_INT("status", err->status), MANTA_KV_STR("message", err->message));
  manta__agent_send_value(
      g->agent->driver, &(struct manta__msg){.kind = MANTA__M_NOROOM, .group = g->id, .id = g->run},
      &v);
}

// Those that the driver has chosen. One that is gone meanwhile it knows to be lost.
static int take_chosen(struct manta__agent_group *g, const struct plan *p,
                       struct manta__agent_worker **by_cell)
{
  int found = 0;
  for (struct manta__agent_worker *w = g->workers; w; w = w->next) {
    int at = -1;
    for (int i = 0; i < p->count && at < 0; i++)
      if (manta_value_as_int(manta_value_at(p->wids, (size_t)i), -1) == w->wid)
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
  MANTA_TRY(make_ctl(g, p->count, err));
  g->world = p->count;
  for (int r = 0; r < p->count; r++)
    if (by_cell[r])
      send_job(by_cell[r], r, p->count, p);
  return MANTA_OK;
}

static manta_status form(struct manta__agent_group *g, const struct plan *p, manta_error *err)
{
  struct manta__agent_worker *by_cell[MANTA__LEDGER_MAX_WORKERS];
  if (p->wids)
    return form_chosen(g, p, err);
  MANTA_TRY(have_workers(g, p, err));
  int world = fill_cells(g, p, by_cell);
  if (world < p->min || world == 0)
    return manta_error_set(err, MANTA_ENOROOM, "only %d of at least %d workers have started", world,
                           p->min);
  close_gaps(by_cell, p->count);
  MANTA_TRY(make_ctl(g, world, err));
  g->world = world;
  for (int r = 0; r < world; r++)
    send_job(by_cell[r], r, world, p);
  tell_formed(g, by_cell, world);
  return MANTA_OK;
}

// Behind the job; a blob, if there is one, is the last descriptor.
static void take_origin(struct manta__origin *o, const struct manta__msg *m, const manta_value *v)
{
  int n = m->fds - 1 - (m->flags & MANTA__FRAME_BLOB ? 1 : 0);
  o->given = manta_value_as_bool(manta_value_get(v, "given"), false);
  for (o->count = 0; o->count < n && o->count < MANTA__ORIGIN_FDS; o->count++)
    o->fd[o->count] = m->fd[1 + o->count];
}

void manta__agent_attempt(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct plan p;
  manta__agent_attempt_leave(g);
  manta__agent_fetch_reset(g);
  g->run = m->id;
  manta_status st = manta__msg_value(m, &v, &err);
  if (st == MANTA_OK) {
    read_plan(&p, &v);
    manta__agent_heirs_turn(g, &v);
    note_trainer(g, m, &v);
    manta__agent_snap_retire(g, manta_value_as_int(manta_value_get(&v, "retire_wid"), -1),
                             (int)manta_value_as_int(manta_value_get(&v, "retire_slot"), -1));
    if (p.count < 1 || p.count > MANTA__LEDGER_MAX_WORKERS)
      st = manta_error_set(&err, MANTA_EINVAL, "%d workers", p.count);
    p.job_fd = m->fd[0];
    take_origin(&p.from, m, &v);
    if (st == MANTA_OK)
      st = form(g, &p, &err);
    manta__agent_heirs_retire(g);
    manta__agent_heirs_release(g);
    watch_health(g, manta_value_as_real(manta_value_get(&v, "step_timeout"), 0));
  }
  if (st < 0 && !(st == MANTA_ENOROOM && manta__agent_room_wait(g, m, &p.rq, p.count, &err)))
    manta__agent_attempt_noroom(g, &err);
  manta_value_fini(&v);
}

// The eldest first: they are the ones that had a rank before.
static void list_ready(const struct manta__agent_group *g, const struct plan *p, manta_value *out)
{
  const struct manta__agent_worker *ready[MANTA__LEDGER_MAX_WORKERS];
  manta_value list = {0};
  int n = 0;
  for (const struct manta__agent_worker *w = g->workers; w && n < MANTA__LEDGER_MAX_WORKERS;
       w = w->next)
    if (usable(w, p))
      ready[n++] = w;
  manta_value_set_map(out);
  manta_value_set_list(&list);
  manta_value_put_int(out, "world", n);
  while (n-- > 0) {
    manta_value wid = manta_value_int(ready[n]->wid);
    manta_value_append(&list, &wid);
  }
  manta_value_put(out, "ready", &list);
}

void manta__agent_spawn(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct plan p;
  manta_status st = manta__msg_value(m, &v, &err);
  g->run = m->id;
  if (st == MANTA_OK) {
    read_plan(&p, &v);
    manta__agent_heirs_turn(g, &v);
    note_trainer(g, m, &v);
    st = have_workers(g, &p, &err);
  }
  if (st == MANTA_ENOROOM && manta__agent_room_wait(g, m, &p.rq, p.count, &err)) {
    manta_value_fini(&v);
    return;
  }
  if (st < 0)
    manta__agent_attempt_noroom(g, &err);
  else {
    manta_value done = {0};
    list_ready(g, &p, &done);
    manta__agent_send_value(
        g->agent->driver,
        &(struct manta__msg){.kind = MANTA__M_FORMED, .group = g->id, .id = g->run}, &done);
  }
  manta_value_fini(&v);
}

void manta__agent_probe(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  struct plan p;
  struct manta__grant *grant = NULL;
  int room = 0;
  if (manta__msg_value(m, &v, NULL) < 0)
    return;
  read_plan(&p, &v);
  if (p.count >= 1)
    manta__ledger_reserve(g->agent->ledger, &p.rq, p.count, 1, &grant, &room, NULL);
  manta__ledger_release(g->agent->ledger, grant);
  if (room < p.count)
    manta__agent_room_make(g, &p.rq, p.count); // for the next time
  manta_value_fini(&v);
  manta_value out = MANTA_MAP(MANTA_KV_INT("room", room));
  struct manta__msg r = {
      .kind = MANTA__M_PROBE, .flags = MANTA__FRAME_REPLY, .group = g->id, .call = m->call};
  manta__agent_send_value(g->agent->driver, &r, &out);
}
