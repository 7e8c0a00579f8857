/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/snap.c - snapshots: kept in memory, given to the writer, told to the driver.
 *
 * (1) The newest snapshot of a run stays in memory until a newer one is there, also when the
 *     worker that made it is dead: a dead worker is kept as long as one of its slots is the
 *     newest or being written.
 * (2) The writer has one snapshot at a time; what it is given next the queue says.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/writer.h"
#include "base/alloc.h"
#include "base/log.h"
#include "sys/sock.h"

// --- slots --------------------------------------------------------------------------------------

static void slot_close(struct manta__slot_dup *s)
{
  if (s->meta)
    munmap(s->meta, MANTA__SLOT_META);
  manta__fd_close(&s->fd);
  *s = (struct manta__slot_dup){.fd = -1};
}

// A slot that is no longer needed goes back to its worker; one that is being read never does.
static void slot_free(struct manta__agent_worker *w, int i)
{
  struct manta__slot_dup *s = &w->slot[i];
  if (!s->meta)
    return;
  uint32_t to = s->retire ? MANTA__SLOT_RETIRED : MANTA__SLOT_FREE;
  if (!manta__slot_move(s->meta, MANTA__SLOT_READY, to))
    manta__slot_move(s->meta, MANTA__SLOT_WRITING, to);
  if (s->retire)
    slot_close(s); // whoever loads it has a descriptor of its own
}

static struct manta__agent_worker *newest_holder(const struct manta__agent_group *g)
{
  struct manta__agent_worker *best = NULL;
  for (struct manta__agent_worker *w = g->workers; w; w = w->next) {
    if (w->snapq.newest < 0)
      continue;
    if (!best ||
        w->slot[w->snapq.newest].meta->id.attempt > best->slot[best->snapq.newest].meta->id.attempt)
      best = w;
  }
  return best;
}

static void worker_free(struct manta__agent_worker *w)
{
  struct manta__agent_group *g = w->group;
  for (int i = 0; i < MANTA__SLOTS; i++)
    slot_close(&w->slot[i]);
  manta__fd_close(&w->ring_fd);
  for (struct manta__agent_worker **p = &g->workers; *p; p = &(*p)->next)
    if (*p == w) {
      *p = w->next;
      break;
    }
  manta__free(w);
}

// Those whose snapshots and share of the host nobody needs any more.
void manta__agent_snap_bury(struct manta__agent_group *g)
{
  struct manta__agent_worker *keep = newest_holder(g);
  for (struct manta__agent_worker *w = g->workers, *next; w; w = next) {
    next = w->next;
    if (w->state == WORKER_GONE && !w->grant && w != keep && w != g->writing &&
        !manta__snapq_busy(&w->snapq))
      worker_free(w);
  }
}

// --- the writer ---------------------------------------------------------------------------------

static void act(struct manta__agent_worker *w, struct manta__snapq_do what);

static void tell_driver(struct manta__agent_group *g, uint16_t kind, const struct manta__msg *from)
{
  struct manta__msg m = *from;
  m.kind = kind;
  m.group = g->id;
  m.id = g->run;
  m.fds = 0;
  manta__agent_send(g->agent->driver, &m);
}

static void drain_now(struct manta__agent_group *g)
{
  if (g->drain.kind && !manta__agent_snap_busy(g)) {
    struct manta__msg m = g->drain;
    g->drain.kind = 0;
    m.flags = MANTA__FRAME_REPLY;
    manta__agent_send(g->agent->driver, &m);
  }
}

static void write_ended(struct manta__agent_group *g)
{
  struct manta__agent_worker *w = g->writing;
  int i = g->writing_slot;
  g->writing = NULL;
  if (!w)
    return;
  if (w->slot[i].meta)
    manta__slot_move(w->slot[i].meta, MANTA__SLOT_WRITING, MANTA__SLOT_READY);
  act(w, manta__snapq_written(&w->snapq, i));
  // Another worker's snapshot may wait: the writer takes one at a time.
  for (struct manta__agent_worker *o = g->workers; o && !g->writing; o = o->next)
    for (int k = 0; k < MANTA__SLOTS && !g->writing; k++)
      if (o->snapq.slot[k].state == MANTA__Q_WRITING)
        act(o, (struct manta__snapq_do){.write = k});
  manta__agent_snap_bury(g);
  drain_now(g);
  manta__agent_group_ended(g);
}

static void on_writer_msg(struct manta__loop_conn *l, struct manta__msg *m)
{
  struct manta__agent_group *g = l->owner;
  if (m->kind == MANTA__M_WARN)
    tell_driver(g, m->kind, m);
  if (m->kind != MANTA__M_STORED && m->kind != MANTA__M_STOREFAIL)
    return;
  tell_driver(g, m->kind, m);
  write_ended(g);
}

static void on_writer_end(struct manta__loop_conn *l)
{
  struct manta__agent_group *g = l->owner;
  g->writer = NULL;
  if (g->writing) {
    manta_value v =
        MANTA__PACK(storefail_msg, .iteration = g->writing->slot[g->writing_slot].snap.iteration,
                    .message = "the process that writes checkpoints died");
    manta__agent_send_value(
        g->agent->driver,
        &(struct manta__msg){.kind = MANTA__M_STOREFAIL, .group = g->id, .id = g->run}, &v);
  }
  write_ended(g);
}

static manta_status start_writer(struct manta__agent_group *g, manta_error *err)
{
  struct manta__writer_job job = {g->rundir, g->keep_last, g->keep_best, g->score_min};
  int sock;
  MANTA_TRY(manta__writer_start(&job, &sock, &g->writer_pid, err));
  g->writer = manta__agent_connect(g->agent, sock, MANTA__AGENT_TO_WRITER, on_writer_msg,
                                   on_writer_end, g, err);
  if (g->writer)
    return MANTA_OK;
  close(sock);
  return MANTA_ENOMEM;
}

// Without a run directory there is no writer here: the bridge takes it to where there is one.
static void give_to_bridge(struct manta__agent_worker *w, struct manta__slot_dup *s)
{
  struct manta__msg m = {.kind = MANTA__M_WRITE,
                         .group = w->group->id,
                         .id = s->meta->id,
                         .data = &s->snap,
                         .len = sizeof s->snap,
                         .fd = {s->fd},
                         .fds = 1};
  manta__slot_move(s->meta, MANTA__SLOT_READY, MANTA__SLOT_WRITING);
  manta__agent_send(w->group->agent->driver, &m);
}

void manta__agent_snap_written(struct manta__agent_group *g)
{
  write_ended(g);
}

static void give_to_writer(struct manta__agent_worker *w, int i)
{
  struct manta__agent_group *g = w->group;
  struct manta__slot_dup *s = &w->slot[i];
  manta_error err = MANTA_ERROR_INIT;
  g->writing = w;
  g->writing_slot = i;
  if (g->agent->far) {
    give_to_bridge(w, s);
    return;
  }
  if (!g->writer && start_writer(g, &err) < 0) {
    manta__agent_warn(g->agent, g->id, "no checkpoint is written: %s", err.message);
    write_ended(g);
    return;
  }
  manta__slot_move(s->meta, MANTA__SLOT_READY, MANTA__SLOT_WRITING);
  struct manta__msg m = {.kind = MANTA__M_WRITE,
                         .id = s->meta->id,
                         .data = &s->snap,
                         .len = sizeof s->snap,
                         .fd = {s->fd, w->ring_fd},
                         .fds = 2};
  manta__agent_send(g->writer, &m);
}

static void act(struct manta__agent_worker *w, struct manta__snapq_do what)
{
  for (int i = 0; i < MANTA__SLOTS; i++)
    if (what.free & (1u << i))
      slot_free(w, i);
  if (what.write >= 0 && !w->group->writing)
    give_to_writer(w, what.write);
}

bool manta__agent_writer_exited(struct manta__agent *a, pid_t pid, int status)
{
  for (struct manta__agent_group *g = a->groups; g; g = g->next)
    if (g->writer_pid == pid) {
      g->writer_pid = 0; // its link's end says the rest
      return true;
    }
  return false;
}

// --- events -------------------------------------------------------------------------------------

// An older worker's newest is superseded by one of a later attempt.
static void supersede(struct manta__agent_worker *w)
{
  for (struct manta__agent_worker *o = w->group->workers; o; o = o->next)
    if (o != w && o->snapq.newest >= 0 && o->state == WORKER_GONE &&
        o->snapq.slot[o->snapq.newest].state != MANTA__Q_WRITING)
      o->snapq.newest = -1;
}

// Three slots are shared memory that counts against the limit of our cgroup.
static void weigh(struct manta__agent_group *g, int64_t capacity)
{
  struct manta__host h = {0};
  if (g->weighed >= capacity || manta__host_read(&h, "", NULL) < 0)
    return;
  g->weighed = capacity;
  int64_t have = h.mem_limit > 0 ? h.mem_limit : h.mem_total;
  if (have > 0 && MANTA__SLOTS * capacity > have / 2)
    manta__agent_warn(
        g->agent, g->id,
        "the snapshots of a state of this size take 3 x %.1f GB of the %.1f GB of memory "
        "that this run may use",
        (double)capacity / 1e9, (double)have / 1e9);
  manta__host_fini(&h);
}

static enum manta__snapq_worth worth(struct manta__agent_group *g, const struct manta__slot_meta *m)
{
  struct manta__retention keep = {g->keep_last, g->keep_best, g->score_min};
  bool scored = manta__retain_wants(&g->best, &keep, m->has_score, m->score);
  if (m->directory) // of the user's; what is in it would be lost with the snapshot
    return MANTA__Q_NEEDED;
  if (!scored)
    return MANTA__Q_PASSING;
  return g->keep_best == 1 ? MANTA__Q_BEST : MANTA__Q_SCORED;
}

void manta__agent_snap(struct manta__agent_worker *w, struct manta__msg *m)
{
  struct manta__snap_msg s;
  manta_error err = MANTA_ERROR_INIT;
  if (!manta__msg_copy(m, &s, sizeof s))
    return;
  if (w->rank == 0 && s.saves > w->group->saves)
    w->group->saves = s.saves;
  if (s.slot < 0 || s.slot >= MANTA__SLOTS) {
    manta__agent_fetch_look(w->group);
    return;
  }
  struct manta__slot_dup *d = &w->slot[s.slot];
  if (m->fds > 0) {
    slot_close(d);
    d->fd = manta__msg_take_fd(m, 0);
    if (manta__slot_map_meta(d->fd, &d->meta, &err) < 0) {
      manta__agent_warn(w->group->agent, w->group->id, "a snapshot is unusable: %s", err.message);
      slot_close(d);
      return;
    }
  }
  if (!d->meta)
    return;
  if (m->fds > 0)
    weigh(w->group, (int64_t)d->meta->capacity);
  s.wid = w->wid;
  d->snap = s;
  struct manta__msg out = {.kind = MANTA__M_SNAP,
                           .group = w->group->id,
                           .id = m->id,
                           .data = &s,
                           .len = sizeof s,
                           .fd = {d->fd},
                           .fds = 1};
  if (!w->group->agent->far) // there it is in memory when it has come
    manta__agent_send(w->group->agent->driver, &out);
  supersede(w);
  act(w, manta__snapq_ready(&w->snapq, s.slot, worth(w->group, d->meta)));
  manta__agent_fetch_look(w->group);
  manta__agent_snap_bury(w->group);
}

void manta__agent_snap_retire(struct manta__agent_group *g, int64_t wid, int slot)
{
  if (slot < 0 || slot >= MANTA__SLOTS || g->agent->far)
    return; // what is loaded is a copy there
  for (struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (w->wid == wid && w->slot[slot].meta)
      w->slot[slot].retire = true;
}

// One that it was filling when it died holds nothing either.
static bool is_free(const struct manta__slot_dup *s, const struct manta__snapq_slot *q)
{
  if (!s->meta || s->retire || q->state != MANTA__Q_NONE)
    return false;
  manta__slot_move(s->meta, MANTA__SLOT_FILLING, MANTA__SLOT_FREE);
  return atomic_load(&s->meta->state) == MANTA__SLOT_FREE;
}

void manta__agent_snap_inherit(struct manta__agent_worker *from, struct manta__agent_worker *to)
{
  for (int i = 0; i < MANTA__SLOTS; i++) {
    struct manta__slot_msg slot = {.slot = i};
    if (!is_free(&from->slot[i], &from->snapq.slot[i]))
      continue;
    to->slot[i] = from->slot[i];
    from->slot[i] = (struct manta__slot_dup){.fd = -1};
    struct manta__msg m = {
        .kind = MANTA__M_SLOT, .data = &slot, .len = sizeof slot, .fd = {to->slot[i].fd}, .fds = 1};
    manta__agent_send(to->conn, &m);
  }
}

void manta__agent_snap_worker_gone(struct manta__agent_worker *w)
{
  struct manta__agent_group *g = w->group;
  manta__agent_snap_bury(g);
  manta__agent_group_ended(g);
}

bool manta__agent_snap_busy(const struct manta__agent_group *g)
{
  if (g->agent->far && !g->agent->driver)
    return false; // nobody takes it any more
  for (const struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (manta__snapq_busy(&w->snapq))
      return true;
  return false;
}

void manta__agent_drain(struct manta__agent_group *g, struct manta__msg *m)
{
  if (m) {
    g->drain = *m;
    g->drain.data = NULL;
    g->drain.len = 0;
    g->drain.fds = 0;
  }
  drain_now(g);
}

// A new run begins in the same group: what the last one left in memory is of no use to it.
void manta__agent_snap_run_ended(struct manta__agent_group *g)
{
  for (struct manta__agent_worker *w = g->workers; w; w = w->next) {
    for (int i = 0; i < MANTA__SLOTS; i++)
      if (w->snapq.slot[i].state != MANTA__Q_NONE)
        slot_free(w, i);
    manta__snapq_init(&w->snapq);
  }
  g->writing = NULL;
  manta__best_scores_fini(&g->best);
  manta__agent_disconnect(g->writer); // it ends when its socket closes
  g->writer = NULL;
  manta__agent_snap_bury(g);
}

// The writer saves the rows that the driver can no longer fetch, then what waits to be written.
void manta__agent_snap_driver_lost(struct manta__agent_group *g)
{
  manta_error err = MANTA_ERROR_INIT;
  if (g->rundir < 0 || !g->workers || (!g->writer && start_writer(g, &err) < 0))
    return;
  for (struct manta__agent_worker *w = g->workers; w; w = w->next) {
    struct manta__msg m = {
        .kind = MANTA__M_DRIVER_LOST, .id = g->run, .fd = {w->ring_fd}, .fds = w->ring_fd >= 0};
    manta__agent_send(g->writer, &m);
  }
}
