/* SPDX-License-Identifier: Apache-2.0 */
#include "group/membership.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define BACKOFF_FIRST_S 0.1
#define BACKOFF_MAX_S   10.0
#define NOTICE_GRACES   4   /* grace times for those that have not left after a notice */
#define ROOT_WAIT_S     0.2 /* how much later than its consequences a root may be known */

static int64_t after(int64_t now, double s)
{
  return now + (int64_t)(s * 1e9);
}

void manta__membership_init(struct manta__membership *g, const struct manta__policy *p,
                            struct manta__member *places, int count)
{
  *g = (struct manta__membership){
      .policy = *p, .member = places, .places = count, .by = MANTA__NEVER};
  g->root.rank = -1;
}

void manta__membership_extend(struct manta__membership *g, struct manta__member *places, int count)
{
  g->member = places;
  g->places = count;
}

void manta__membership_begin(struct manta__membership *g, uint32_t attempt, int64_t now)
{
  g->attempt = attempt;
  g->phase = MANTA__PHASE_FORMING;
  g->by = MANTA__NEVER;
  g->resized_ns = now;
  g->world = 0;
}

int manta__membership_rank(const struct manta__membership *g, int64_t wid)
{
  for (int r = 0; r < g->world; r++)
    if (g->member[r].wid == wid)
      return r;
  return -1;
}

static int running(const struct manta__membership *g)
{
  int n = 0;
  for (int r = 0; r < g->world; r++)
    n += g->member[r].state == MANTA__MB_RUNNING;
  return n;
}

static void set_root(struct manta__membership *g, const manta_error *why, manta_status st, int rank)
{
  if (g->root.status < 0)
    return; // the first one wins
  g->root = *why;
  g->root.status = st;
  g->root.rank = rank;
}

static bool is_echo(manta_status st)
{
  return st == MANTA_EPEERLOST || st == MANTA_EABORTED || st == MANTA_EPREEMPTED;
}

// --- events -------------------------------------------------------------------------------------

void manta__membership_formed(struct manta__membership *g, const int64_t *wids, int world)
{
  if (g->phase != MANTA__PHASE_FORMING || world > g->places)
    return;
  for (int r = 0; r < world; r++)
    g->member[r] = (struct manta__member){.wid = wids[r]};
  g->world = world;
  g->backoffs = 0;
  g->phase = MANTA__PHASE_RUNNING;
  g->resize &= world != g->policy.want;
  g->by = g->resize ? 0 : MANTA__NEVER; // nothing is lost yet: no checkpoint need be waited for
}

void manta__membership_noroom(struct manta__membership *g, const manta_error *why, int64_t now)
{
  if (g->phase != MANTA__PHASE_FORMING)
    return;
  g->resize = false; // whoever is asked next is asked for the new number
  if (why->status != MANTA_ENOROOM) {
    set_root(g, why, why->status, -1);
    g->failed = true;
    g->phase = MANTA__PHASE_ENDING;
    return;
  }
  double s = BACKOFF_FIRST_S;
  for (int i = 0; i < g->backoffs && s < BACKOFF_MAX_S; i++)
    s *= 2;
  g->backoffs++;
  g->by = after(now, s < BACKOFF_MAX_S ? s : BACKOFF_MAX_S);
  g->phase = MANTA__PHASE_BACKOFF;
}

void manta__membership_done(struct manta__membership *g, int64_t wid, manta_status st,
                            const manta_error *err)
{
  int r = manta__membership_rank(g, wid);
  if (r < 0 || g->member[r].state != MANTA__MB_RUNNING)
    return;
  g->member[r].state = MANTA__MB_DONE;
  g->member[r].status = st;
  if (st >= 0)
    return;
  if (is_echo(st)) {
    if (!g->peer_trouble && err)
      snprintf(g->echo, sizeof g->echo, "%s", err->message);
    g->peer_trouble = true;
    // A signal to one worker reaches the others through their segment, not through us.
    g->notice |= st == MANTA_EPREEMPTED;
    return;
  }
  if (g->lost)
    return; // it stumbled over the loss
  g->failed = true;
  set_root(g, err, st, r);
}

// A function may fail because a peer died before its death has reached us: the loss is the root
// then.
static bool is_root(const struct manta__membership *g, int64_t now)
{
  return g->phase != MANTA__PHASE_ENDING || now <= after(g->ending_ns, ROOT_WAIT_S);
}

void manta__membership_dying(struct manta__membership *g, int64_t wid)
{
  int r = manta__membership_rank(g, wid);
  if (r >= 0 && !g->killed)
    g->member[r].dying = true;
}

void manta__membership_gone(struct manta__membership *g, int64_t wid, const manta_error *why,
                            int64_t now)
{
  int r = manta__membership_rank(g, wid);
  if (r < 0)
    return;
  bool was = g->member[r].state == MANTA__MB_RUNNING;
  g->member[r].state = g->member[r].state == MANTA__MB_DONE ? MANTA__MB_DONE : MANTA__MB_GONE;
  bool ours = g->killed && !g->member[r].dying;
  if (!was || ours || (g->failed && !is_root(g, now)))
    return; // we killed it, or it had finished, or it is a consequence
  if (!g->lost && g->failed && !g->stop) {
    g->failed = false;
    g->root = (manta_error){.rank = -1};
  }
  g->lost = true;
  set_root(g, why, why->status < 0 ? why->status : MANTA_EWORKER, r);
}

void manta__membership_agent_lost(struct manta__membership *g, const manta_error *why)
{
  if (g->phase == MANTA__PHASE_IDLE || g->phase == MANTA__PHASE_OVER)
    return;
  for (int r = 0; r < g->world; r++)
    if (g->member[r].state == MANTA__MB_RUNNING)
      g->member[r].state = MANTA__MB_GONE;
  g->lost = true;
  set_root(g, why, MANTA_EAGENT, -1);
  g->phase = MANTA__PHASE_ENDING;
  g->by = MANTA__NEVER;
}

void manta__membership_host_lost(struct manta__membership *g, int first, int count,
                                 const manta_error *why)
{
  int were = 0;
  for (int r = first; r < first + count && r < g->world; r++)
    if (g->member[r].state == MANTA__MB_RUNNING) {
      g->member[r].state = MANTA__MB_GONE;
      were++;
    }
  if (were == 0 || g->failed)
    return;
  g->lost = true;
  set_root(g, why, why->status < 0 ? why->status : MANTA_EAGENT, first);
}

void manta__membership_stop(struct manta__membership *g, manta_status st, const char *why)
{
  manta_error e = {.status = st, .rank = -1};
  if (g->phase == MANTA__PHASE_OVER || g->stop)
    return;
  snprintf(e.message, sizeof e.message, "%s", why);
  g->stop = true;
  if (g->root.status == 0 || !g->failed)
    g->root = e;
}

void manta__membership_notice(struct manta__membership *g)
{
  g->notice = true;
}

void manta__membership_resize(struct manta__membership *g, int want)
{
  if (want < 1)
    return;
  if (want > g->places)
    want = g->places;
  if (g->phase == MANTA__PHASE_RUNNING) {
    g->resize = want != g->world; // a wish may be taken back
    if (g->by == 0 && !g->resize)
      g->by = MANTA__NEVER;
  } else if (g->phase == MANTA__PHASE_FORMING) {
    g->resize |= want != g->policy.want; // the old number was asked for already
  }
  g->policy.want = want;
  if (g->policy.min > want)
    g->policy.min = want;
}

void manta__membership_room(struct manta__membership *g, int n, int64_t now)
{
  if (n <= 0 || g->phase != MANTA__PHASE_RUNNING || g->world >= g->policy.want)
    g->room_since_ns = 0;
  else if (g->room_since_ns == 0)
    g->room_since_ns = now;
}

static bool may_grow(const struct manta__membership *g, int64_t now)
{
  return g->room_since_ns > 0 && after(g->room_since_ns, g->policy.grow_after_s) <= now &&
         after(g->resized_ns, g->policy.resize_every_s) <= now;
}

void manta__membership_checkpoint(struct manta__membership *g, int64_t now)
{
  if (g->phase != MANTA__PHASE_RUNNING || g->stop || g->notice)
    return;
  if (!g->resize && !may_grow(g, now))
    return;
  g->resize = true;
  g->by = 0; // the next step takes it up
}

// --- what to do ---------------------------------------------------------------------------------

static enum manta__membership_do finish(struct manta__membership *g)
{
  g->phase = MANTA__PHASE_OVER;
  g->by = MANTA__NEVER;
  return MANTA__DO_FINISH;
}

static enum manta__membership_do form_again(struct manta__membership *g, int64_t now)
{
  g->attempt++;
  g->world = 0;
  g->lost = g->failed = g->killed = g->resize = g->peer_trouble = g->renewed = false;
  g->echo[0] = 0;
  g->root = (manta_error){.rank = -1};
  g->room_since_ns = 0;
  g->resized_ns = now;
  g->phase = MANTA__PHASE_FORMING;
  g->by = MANTA__NEVER;
  return MANTA__DO_FORM;
}

// Ranks left because of a peer, and no loss is known: we killed the lost one before we heard of it,
// or a function made it up. Either way it is no success.
static void blame_nobody(struct manta__membership *g)
{
  manta_error why = {.rank = -1};
  snprintf(why.message, sizeof why.message, "%s",
           g->echo[0] ? g->echo
                      : "ranks left because of a lost peer, and none is known to be lost");
  g->lost = true;
  set_root(g, &why, MANTA_EPEERLOST, -1);
}

static bool any_dying(const struct manta__membership *g)
{
  for (int r = 0; r < g->world; r++)
    if (g->member[r].dying)
      return true;
  return false;
}

static bool retries_left(const struct manta__membership *g)
{
  return g->policy.max_retries < 0 || g->retries < g->policy.max_retries;
}

// Only what a rank did can go better next time; what cannot be started (rank -1) will not.
static bool worth_a_retry(const struct manta__membership *g)
{
  return g->policy.retry_errors && g->root.rank >= 0 && g->root.status != MANTA_EINVAL;
}

// Whether decide() will ask for another attempt, as far as it is known.
static bool goes_on(const struct manta__membership *g)
{
  if (g->stop || g->notice || (g->failed && !worth_a_retry(g)))
    return false;
  if (g->lost || g->failed || any_dying(g))
    return retries_left(g);
  return g->phase == MANTA__PHASE_ENDING && g->resize;
}

// Everyone is accounted for: go on, or end?
static enum manta__membership_do decide(struct manta__membership *g, int64_t now)
{
  if (g->stop || g->notice) {
    if (g->notice && !g->stop && !g->failed) {
      g->root = (manta_error){.status = MANTA_EPREEMPTED, .rank = -1};
      snprintf(g->root.message, sizeof g->root.message,
               "asked to stop; the run can be resumed from its newest checkpoint");
    }
    return finish(g);
  }
  if (g->peer_trouble && !g->lost && !g->failed && !g->resize)
    blame_nobody(g);
  bool retry = g->lost || (g->failed && worth_a_retry(g));
  if (g->failed && !g->policy.retry_errors)
    return finish(g);
  if (retry) {
    if (!retries_left(g))
      return finish(g);
    g->retries++;
    return form_again(g, now);
  }
  if (g->resize)
    return form_again(g, now);
  return finish(g);
}

// A rank left after a notice. The others may do so in their own time, but not if they wait for it;
// and when rank 0, which saves, is gone, there is nothing left to do for them.
static bool others_may_follow(struct manta__membership *g, int64_t now)
{
  if (g->member[0].state != MANTA__MB_RUNNING)
    return false;
  if (g->by == MANTA__NEVER)
    g->by = after(now, NOTICE_GRACES * g->policy.grace_s);
  return now < g->by;
}

static enum manta__membership_do next_running(struct manta__membership *g, int64_t now)
{
  if (running(g) == 0) {
    g->phase = MANTA__PHASE_ENDING;
    g->resize = false; // too late: nobody was interrupted for it
    return decide(g, now);
  }
  bool resize = g->resize && g->by == 0;
  if (!g->lost && !g->failed && !g->peer_trouble && !g->stop && !resize)
    return MANTA__DO_NOTHING;
  bool noticed = g->notice && !g->lost && !g->failed && !g->stop && !resize;
  if (noticed && others_may_follow(g, now))
    return MANTA__DO_NOTHING;
  g->phase = MANTA__PHASE_ENDING;
  g->ending_ns = now;
  g->by = after(now, g->policy.grace_s);
  return MANTA__DO_ABORT;
}

static enum manta__membership_do next_ending(struct manta__membership *g, int64_t now)
{
  if (running(g) == 0)
    return decide(g, now);
  if (g->killed || now < g->by)
    return MANTA__DO_NOTHING;
  g->killed = true;
  g->by = MANTA__NEVER;
  return MANTA__DO_KILL;
}

enum manta__membership_do manta__membership_next(struct manta__membership *g, int64_t now)
{
  bool there = g->phase == MANTA__PHASE_RUNNING || g->phase == MANTA__PHASE_ENDING;
  if (there && g->policy.fresh && !g->renewed && goes_on(g)) {
    g->renewed = true;
    return MANTA__DO_RENEW;
  }
  switch (g->phase) {
  case MANTA__PHASE_FORMING:
    return MANTA__DO_NOTHING; // formed or noroom comes for certain, or the agent's loss
  case MANTA__PHASE_RUNNING:
    return next_running(g, now);
  case MANTA__PHASE_ENDING:
    return next_ending(g, now);
  case MANTA__PHASE_BACKOFF:
    if (g->stop || g->notice)
      return decide(g, now);
    if (now < g->by)
      return MANTA__DO_NOTHING;
    g->phase = MANTA__PHASE_FORMING;
    g->by = MANTA__NEVER;
    return MANTA__DO_FORM;
  default:
    return MANTA__DO_NOTHING;
  }
}
