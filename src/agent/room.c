/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/room.c - room for a request that does not fit: who gives way.
 *
 * (1) Workers of a trainer of the same driver that is idle are ended for another one's sake; those
 *     of the trainer that has been idle for longest first. Its next run starts new ones.
 * (2) Never those of a trainer that says hold: something of the user's lives in them.
 * (3) A request waits while workers are ending that hold what it needs, and is tried again whenever
 *     one is gone: each of them is gone within AGENT_EXIT_S.
 * (4) If nobody gives way the answer says who holds what there is too little of.
 */
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

void manta__agent_room_rest(struct manta__agent_group *g, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__rest_msg in;
  if (manta__rest_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  g->hold = in.hold;
  g->rest_ns = manta__now();
  if (in.left)
    manta__agent_snap_run_ended(g);
  manta_value_fini(&v);
}

// --- who gives way -------------------------------------------------------------------------------

static bool eases(const struct manta__agent_worker *w, const struct manta__request *rq, int workers)
{
  return w->state != WORKER_GONE && w->grant &&
         manta__ledger_eases(w->group->agent->ledger, rq, workers, w->grant);
}

// Workers in it that hold what is needed, and that are ending or not.
static bool group_eases(const struct manta__agent_group *o, const struct manta__request *rq,
                        int workers, bool ending)
{
  for (const struct manta__agent_worker *w = o->workers; w; w = w->next)
    if (w->exit_asked == ending && eases(w, rq, workers))
      return true;
  return false;
}

static bool may_be_ended(const struct manta__agent_group *o)
{
  for (const struct manta__agent_worker *w = o->workers; w; w = w->next)
    if (w->state == WORKER_RUNNING)
      return false;
  return o->rest_ns > 0 && !o->hold && o->waiting.kind == 0;
}

static struct manta__agent_group *longest_idle(const struct manta__agent_group *g,
                                               const struct manta__request *rq, int workers)
{
  struct manta__agent_group *found = NULL;
  for (struct manta__agent_group *o = g->agent->groups; o; o = o->next)
    if (o != g && may_be_ended(o) && (!found || o->rest_ns < found->rest_ns) &&
        group_eases(o, rq, workers, false))
      found = o;
  return found;
}

static bool is_ending(const struct manta__agent_group *g, const struct manta__request *rq,
                      int workers)
{
  for (const struct manta__agent_group *o = g->agent->groups; o; o = o->next)
    if (o != g && group_eases(o, rq, workers, true))
      return true;
  return false;
}

bool manta__agent_room_can(const struct manta__agent_group *g, const struct manta__request *rq,
                           int workers)
{
  return is_ending(g, rq, workers) || longest_idle(g, rq, workers);
}

bool manta__agent_room_make(struct manta__agent_group *g, const struct manta__request *rq,
                            int workers)
{
  struct manta__agent_group *o = longest_idle(g, rq, workers);
  if (!o)
    return false;
  manta__debug("trainer %s is idle and gives way to trainer %s", o->name ? o->name : "?",
               g->name ? g->name : "?");
  for (struct manta__agent_worker *w = o->workers, *next; w; w = next) {
    next = w->next;
    manta__agent_worker_ask_exit(w);
  }
  return true;
}

// --- requests that wait --------------------------------------------------------------------------

static void drop(struct manta__msg *m)
{
  manta__free((void *)(uintptr_t)m->data);
  manta__msg_close(m);
  *m = (struct manta__msg){0};
}

// Its data are borrowed from the connection, its descriptors are ours to take.
static bool put_off(struct manta__agent_group *g, struct manta__msg *m)
{
  void *data = manta__malloc(m->len + 1);
  if (!data)
    return false;
  if (m->len)
    memcpy(data, m->data, m->len);
  g->waiting = *m;
  g->waiting.data = data;
  m->fds = 0;
  return true;
}

static void add_own_holders(const struct manta__agent_group *g, const struct manta__request *rq,
                            int workers, manta_error *err)
{
  for (const struct manta__agent_group *o = g->agent->groups; o; o = o->next) {
    char line[400];
    size_t n = strlen(err->message);
    if (o == g || !group_eases(o, rq, workers, false))
      continue;
    manta__agent_holders_own(o, line, sizeof line);
    snprintf(err->message + n, sizeof err->message - n, "\nheld by %s", line);
  }
}

bool manta__agent_room_wait(struct manta__agent_group *g, struct manta__msg *m,
                            const struct manta__request *rq, int workers, manta_error *err)
{
  bool wait = is_ending(g, rq, workers) || manta__agent_room_make(g, rq, workers);
  if (wait)
    return put_off(g, m);
  add_own_holders(g, rq, workers, err);
  return manta__agent_holders_ask(g, err);
}

static void on_room(uv_timer_t *t)
{
  struct manta__agent *a = t->data;
  manta__agent_timer_stop(&a->room);
  for (struct manta__agent_group *g = a->groups, *next; g; g = next) {
    next = g->next;
    struct manta__msg m = g->waiting;
    if (m.kind == 0)
      continue;
    g->waiting = (struct manta__msg){0};
    if (m.kind == MANTA__M_ATTEMPT)
      manta__agent_attempt(g, &m);
    else
      manta__agent_spawn(g, &m);
    drop(&m);
  }
}

// From the loop: whoever ends a worker may be in the middle of something.
void manta__agent_room_freed(struct manta__agent *a)
{
  bool waiting = false;
  for (const struct manta__agent_group *g = a->groups; g; g = g->next)
    waiting |= g->waiting.kind != 0;
  if (waiting && !a->room)
    a->room = manta__agent_timer(a, 0, 0, on_room, a);
}

void manta__agent_room_forget(struct manta__agent_group *g)
{
  manta_error err = MANTA_ERROR_INIT;
  bool waits = g->waiting.kind != 0 || g->holders;
  drop(&g->waiting);
  manta__agent_holders_forget(g);
  if (!waits)
    return;
  manta_error_set(&err, MANTA_ECANCELED, "the trainer was shut down while it waited for room");
  manta__agent_attempt_noroom(g, &err);
}
