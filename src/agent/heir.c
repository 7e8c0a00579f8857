/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/heir.c - successors: every call of a train function begins in a fresh process.
 *
 * A worker that a train function was in is used. In a group that does not keep its workers it is
 * spent when the attempt is over, unless it waits inside manta_comm_rebuild. Its successor is
 * forked as soon as the end of the attempt is certain, and enters its function when all spent
 * workers of the group on this host are gone: their GPU memory and their ports are free then.
 * (1) A share of the host belongs to one worker at a time: a successor has none until its
 *     predecessor is gone. Of one that is gone before its successor was asked for, it is kept until
 *     the driver has said how the run goes on.
 * (2) So do slots: a process that may still write never shares one with its successor.
 * (3) A worker that is not gone MANTA_GONE_AFTER seconds after it was killed (the kernel takes it
 *     apart) is named and abandoned: the driver counts it as gone, its share is not given out
 *     again, and its successor is ended. */
#include <stdio.h>

#include "agent/agent.h"
#include "base/clock.h"
#include "base/knob.h"
#include "base/log.h"

#define LOOK_S 0.001

bool manta__agent_spent(const struct manta__agent_worker *w)
{
  return w->stopped || (w->used && !w->stays && !w->group->keep && w->turn != w->group->turn);
}

static bool is_there(const struct manta__agent_worker *w)
{
  return manta__agent_spent(w) && w->state != WORKER_GONE && !w->abandoned;
}

static struct manta__agent_worker *heir_of(const struct manta__agent_worker *w)
{
  for (struct manta__agent_worker *h = w->group->workers; h; h = h->next)
    if (h->before == w && h->state != WORKER_GONE)
      return h;
  return NULL;
}

const struct manta__share *manta__agent_heir_share(const struct manta__agent_worker *w)
{
  const struct manta__grant *grant = w->grant ? w->grant : w->before ? w->before->grant : NULL;
  return grant ? &grant->shares[0] : NULL;
}

// --- making them ---------------------------------------------------------------------------------

static struct manta__agent_worker *next_heirless(const struct manta__agent_group *g)
{
  struct manta__agent_worker *best = NULL;
  for (struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (manta__agent_spent(w) && !w->abandoned && w->grant && !heir_of(w) &&
        (!best || w->rank < best->rank))
      best = w;
  return best;
}

static void take_over(struct manta__agent_worker *h, struct manta__agent_worker *w)
{
  h->before = NULL;
  h->grant = w->grant;
  w->grant = NULL;
  manta__agent_snap_inherit(w, h);
}

int manta__agent_heirs_make(struct manta__agent_group *g, uint64_t key, int count, manta_error *err)
{
  int made = 0;
  for (struct manta__agent_worker *w; made < count && (w = next_heirless(g)); made++) {
    struct manta__agent_zygote *z = manta__agent_zygote(g->agent, key, err);
    struct manta__agent_worker *h = z ? manta__agent_worker_start(g, z, NULL, w, err) : NULL;
    if (!h)
      break;
    if (w->state == WORKER_GONE)
      take_over(h, w);
  }
  return made;
}

bool manta__agent_heirs_keep_share(const struct manta__agent_worker *w)
{
  const struct manta__agent_group *g = w->group;
  return w->grant && w->used && !g->keep && !g->disband && w->turn == g->turn &&
         !g->agent->driver_lost;
}

// Only what was released is told: two groups that wait would call each other for ever.
void manta__agent_heirs_release(struct manta__agent_group *g)
{
  bool freed = false;
  for (struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (w->state == WORKER_GONE && w->grant) {
      manta__ledger_release(g->agent->ledger, w->grant);
      w->grant = NULL;
      freed = true;
    }
  manta__agent_snap_bury(g);
  if (freed)
    manta__agent_room_freed(g->agent);
}

void manta__agent_heirs_retire(struct manta__agent_group *g)
{
  for (struct manta__agent_worker *w = g->workers, *next; w; w = next) {
    next = w->next;
    if (is_there(w) && w->state != WORKER_RUNNING)
      manta__agent_worker_ask_exit(w);
  }
}

// Successors of those that stay after all are not needed.
static void drop_needless(struct manta__agent_group *g)
{
  for (struct manta__agent_worker *w = g->workers, *next; w; w = next) {
    next = w->next;
    if (w->before && w->before->stays)
      manta__agent_worker_kill(w, "not needed: its predecessor stays");
  }
}

void manta__agent_heirs_turn(struct manta__agent_group *g, bool keep)
{
  g->keep = keep;
  g->turn++;
  drop_needless(g);
}

// --- taking over ---------------------------------------------------------------------------------

void manta__agent_heirs_inherit(struct manta__agent_worker *w)
{
  struct manta__agent_worker *h = heir_of(w);
  if (h)
    take_over(h, w);
  w->before = NULL;
  manta__agent_heirs_admit(w->group);
}

static double gone_limit(void)
{
  return manta__knob_seconds(MANTA__KNOB_GONE_AFTER);
}

static void abandon(struct manta__agent_worker *w, double after_s)
{
  char cause[160];
  const struct manta__share *s = manta__agent_heir_share(w);
  const char *gpus = s && s->gpus && s->gpus[0] ? s->gpus : NULL;
  struct manta__agent_worker *h = heir_of(w);
  w->abandoned = true;
  manta__agent_warn(
      w->group->agent, w->group->id,
      "pid %d, which was rank %d, has not ended %.3g s after it was killed: %s%s not used "
      "again",
      (int)w->pid, w->rank, after_s, gpus ? "GPU " : "what it holds is", gpus ? gpus : "");
  if (h) {
    h->before = NULL;
    snprintf(cause, sizeof cause, "could not begin: pid %d, which was rank %d, does not end",
             (int)w->pid, w->rank);
    manta__agent_worker_kill(h, cause);
  }
  manta__agent_worker_give_up(w);
}

static void on_gone_limit(uv_timer_t *t)
{
  struct manta__agent_group *g = t->data;
  double limit = gone_limit();
  int64_t before = manta__now() - (int64_t)(limit * 1e9);
  bool more = false;
  for (struct manta__agent_worker *w = g->workers, *next; w; w = next) {
    next = w->next;
    bool ending = w->state != WORKER_GONE && !w->abandoned && w->ending_ns > 0;
    if (ending && w->ending_ns <= before)
      abandon(w, limit);
    else
      more |= ending;
  }
  if (!more)
    manta__agent_timer_stop(&g->gone_limit);
  manta__agent_heirs_admit(g);
}

void manta__agent_heirs_expect_end(struct manta__agent_worker *w)
{
  struct manta__agent_group *g = w->group;
  double every = gone_limit() > 4 * LOOK_S ? gone_limit() / 4 : LOOK_S;
  if (w->ending_ns == 0)
    w->ending_ns = manta__now();
  if (!g->gone_limit)
    g->gone_limit = manta__agent_timer(g->agent, every, every, on_gone_limit, g);
}

bool manta__agent_heirs_awaited(const struct manta__agent_group *g)
{
  for (const struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (is_there(w))
      return true;
  return false;
}

void manta__agent_heirs_admit(struct manta__agent_group *g)
{
  if (manta__agent_heirs_awaited(g))
    return;
  for (struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (w->awaits_go) {
      w->awaits_go = false;
      manta__agent_send(w->conn, &(struct manta__msg){.kind = MANTA__M_GO, .id = g->run});
    }
}

// --- the driver's word ---------------------------------------------------------------------------

void manta__agent_renew(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__renew_msg in;
  manta_error err = MANTA_ERROR_INIT;
  if (m->id.run != g->run.run || manta__renew_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  int count = in.order.count;
  if (in.over)
    manta__agent_reads_end(g);
  g->turn++;
  for (struct manta__agent_worker *w = g->workers; w; w = w->next)
    w->stays &= !in.over;
  if (manta__agent_heirs_make(g, in.order.key, count, &err) < count && err.status < 0)
    manta__debug("no successors ahead of their use: %s", err.message);
  manta__agent_heirs_retire(g);
  manta__agent_heirs_release(g);
  manta_value_fini(&v);
}
