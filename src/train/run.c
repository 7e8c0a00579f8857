/* SPDX-License-Identifier: Apache-2.0
 *
 * train/run.c - what happens to a run, seen from the driver's I/O thread.
 *
 * Messages and rows come in, the state machine (group/membership.h) says what to do, the log
 * records it, the aligned rows go to the user's thread. Everything here runs with the driver's
 * lock held. */
#include "train/run.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "sys/sock.h"
#include "train/form.h"
#include "train/muster.h"
#include "train/rows.h"
#include "train/say.h"
#include "train/trainer.h"

// --- workers ------------------------------------------------------------------------------------

static struct manta__peer *find_peer(manta_trainer *t, int64_t wid)
{
  for (struct manta__peer *p = t->peers; p; p = p->next)
    if (p->wid == wid)
      return p;
  return NULL;
}

void manta__peer_free(struct manta__peer *p)
{
  manta__ring_close(&p->ring);
  manta__free(p);
}

static void on_worker(manta_trainer *t, struct manta__link *n, struct manta__msg *m,
                      const manta_value *v)
{
  int64_t wid = manta_value_as_int(manta_value_get(v, "wid"), -1);
  struct manta__peer *p = find_peer(t, wid);
  if (!p) {
    if (!(p = manta__calloc(1, sizeof *p)))
      return;
    p->wid = wid;
    p->before = manta_value_as_int(manta_value_get(v, "before"), -1);
    p->seat = (int)manta_value_as_int(manta_value_get(v, "seat"), -1);
    p->link = n;
    p->next = t->peers;
    t->peers = p;
  }
  int ring = manta__msg_take_fd(m, 0);
  manta_error err = MANTA_ERROR_INIT;
  if (ring >= 0 && manta__ring_open(&p->ring, ring, &err) < 0)
    manta__warn("worker %lld: %s", (long long)wid, err.message);
  else if (ring >= 0)
    manta__fd_close(&p->ring.fd); // mapped; a descriptor per worker would add up
  p->pid = (pid_t)manta_value_as_int(manta_value_get(v, "pid"), p->pid);
  if (p->pid > 0 && t->door && t->run)
    manta__run_tell_door(t, false);
}

static void drop_peer(manta_trainer *t, int64_t wid)
{
  for (struct manta__peer **at = &t->peers; *at; at = &(*at)->next)
    if ((*at)->wid == wid) {
      struct manta__peer *p = *at;
      *at = p->next;
      manta__peer_free(p);
      return;
    }
}

// --- losses -------------------------------------------------------------------------------------

void manta__run_tell_all(manta_trainer *t, const struct manta__msg *m, const manta_value *v)
{
  manta_error err = MANTA_ERROR_INIT;
  for (int i = 0; i < t->hosts; i++)
    if (t->host[i].link->conn && manta__link_send(t->host[i].link, m, v, &err) < 0)
      manta__warn("%s", err.message);
}

static manta_status list_elsewhere(const manta_trainer *t, manta_value *out)
{
  MANTA_TRY(manta_value_set_list(out));
  for (const struct manta__peer *p = t->peers; p; p = p->next) {
    int rank = t->run ? manta__membership_rank(&t->run->membership, p->wid) : -1;
    manta_value one = {0};
    manta_value v = MANTA_MAP(MANTA_KV_INT("rank", rank), MANTA_KV_INT("pid", p->pid),
                              MANTA_KV_STR("host", manta__link_name(p->link)),
                              MANTA_KV_STR("state", "running"));
    if (p->link == t->door || rank < 0)
      continue;
    MANTA_TRY(manta_value_copy(&one, &v));
    MANTA_TRY(manta_value_append(out, &one));
  }
  return MANTA_OK;
}

void manta__run_tell_door(manta_trainer *t, bool none)
{
  manta_value list = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {.kind = MANTA__M_ELSEWHERE, .group = t->group};
  if (!t->door || !t->door->conn)
    return;
  if ((none ? manta_value_set_list(&list) : list_elsewhere(t, &list)) == MANTA_OK)
    manta__link_send(t->door, &m, &list, &err);
  manta_value_fini(&list);
}

// The other hosts raise their abort words: they learn of a death from us alone.
static void spread_loss(manta_run *r, const struct manta__link *from, int rank, const char *cause)
{
  manta_trainer *t = r->trainer;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {
      .kind = MANTA__M_ABORT, .group = t->group, .id = {r->id, r->membership.attempt, -1, 0}};
  manta_value v =
      MANTA_MAP(MANTA_KV_INT("rank", rank), MANTA_KV_STR("host", manta__link_name(from)),
                MANTA_KV_STR("cause", cause));
  for (int i = 0; t->hosts > 1 && i < t->hosts; i++)
    if (t->host[i].link != from && t->host[i].link->conn && t->host[i].count > 0)
      manta__link_send(t->host[i].link, &m, &v, &err);
}

static void describe_loss(manta_error *out, const manta_run *r, int rank, const manta_value *v)
{
  const char *last = manta_value_as_string(manta_value_get(v, "last"), "");
  bool hung = manta_value_as_bool(manta_value_get(v, "hung"), false);
  manta_status st = hung ? MANTA_EHUNG : MANTA_EWORKER;
  int64_t pid = manta_value_as_int(manta_value_get(v, "pid"), 0);
  char is[32] = ""; // nothing if it never was
  if (pid > 0)
    snprintf(is, sizeof is, "pid %lld ", (long long)pid);
  manta_error_set(out, st, "rank %d (%son %s) %s%s%s", rank, is,
                  manta_value_as_string(manta_value_get(v, "host"), "?"),
                  manta_value_as_string(manta_value_get(v, "cause"), "?"),
                  *last ? "\nits last output:\n" : "", last);
  char log[32];
  snprintf(log, sizeof log, "rank-%d.log", rank);
  if (r->logs < 0 || faccessat(r->logs, log, F_OK, 0) < 0)
    return; // it printed nothing
  size_t n = strlen(out->message);
  snprintf(out->message + n, sizeof out->message - n, "\nits log: %s/logs/%s", r->dir, log);
}

static void on_gone(manta_trainer *t, const struct manta__link *n, const manta_value *v,
                    int64_t now)
{
  manta_run *r = t->run;
  int64_t wid = manta_value_as_int(manta_value_get(v, "wid"), -1);
  struct manta__peer *p = find_peer(t, wid);
  int rank = r ? manta__membership_rank(&r->membership, wid) : -1;
  if (p && r)
    manta__rows_read(t, p, MANTA__IGNORE); // its last rows
  manta__rows_release(t);
  if (r && rank >= 0 && r->membership.member[rank].state == MANTA__MB_RUNNING) {
    manta_error why = MANTA_ERROR_INIT;
    describe_loss(&why, r, rank, v);
    if (!r->membership.killed)
      manta__run_log(r, MANTA__EV_LOST, v);
    spread_loss(r, n, rank, manta_value_as_string(manta_value_get(v, "cause"), "it died"));
    manta__membership_gone(&r->membership, wid, &why, now);
    manta__exchange_settle(r);
  }
  drop_peer(t, wid);
  manta__muster_gone(t, wid);
}

static void on_dying(manta_trainer *t, const struct manta__link *n, const manta_value *v)
{
  manta_run *r = t->run;
  int64_t wid = manta_value_as_int(manta_value_get(v, "wid"), -1);
  int rank = r ? manta__membership_rank(&r->membership, wid) : -1;
  if (rank < 0)
    return;
  spread_loss(r, n, rank, "it died"); // how, comes with GONE, and later
  manta__membership_dying(&r->membership, wid);
  manta__exchange_settle(r);
}

// Of a rank of the attempt that is going on?
static bool is_current(const manta_run *r, const struct manta__msg *m)
{
  return r && m->id.run == r->id && m->id.attempt == r->membership.attempt && m->id.rank >= 0 &&
         m->id.rank < r->membership.world;
}

// A survivor may be faster to say so than the agent that saw the death.
static void spread_echo(manta_run *r, const manta_value *v)
{
  manta_trainer *t = r->trainer;
  int64_t lost = manta_value_as_int(manta_value_get(v, "lost"), -1);
  for (int i = 0; lost >= 0 && i < t->hosts; i++)
    if (lost >= t->host[i].first && lost < t->host[i].first + t->host[i].count)
      spread_loss(r, t->host[i].link, (int)lost, "it died");
}

static void on_done(manta_trainer *t, struct manta__msg *m, manta_value *v)
{
  manta_run *r = t->run;
  int rank = m->id.rank;
  if (!is_current(r, m))
    return;
  spread_echo(r, v);
  manta__exchange_left(r, rank);
  int64_t wid = r->membership.member[rank].wid;
  struct manta__peer *p = find_peer(t, wid);
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = (manta_status)manta_value_as_int(manta_value_get(v, "status"), 0);
  snprintf(err.message, sizeof err.message, "%s",
           manta_value_as_string(manta_value_get(v, "message"), ""));
  manta_error lost = MANTA_ERROR_INIT;
  if (manta__results_give(r, m, v, &lost) < 0 && st >= 0) {
    st = lost.status;
    snprintf(err.message, sizeof err.message, "%s", lost.message);
  }
  if (p && st >= 0) {
    p->done = true; // the next drain reads its last rows, and then says so
    manta__rows_drain(t);
    return;
  }
  if (p)
    manta__rows_read(t, p, MANTA__IGNORE);
  manta__rows_release(t);
  manta__membership_done(&r->membership, wid, st, &err);
}

// --- snapshots ----------------------------------------------------------------------------------

static void on_snap(manta_trainer *t, struct manta__msg *m, int64_t now)
{
  struct manta__snap_msg s;
  manta_run *r = t->run;
  if (!r || m->len != sizeof s || m->id.run != r->id || m->id.attempt != r->membership.attempt)
    return;
  memcpy(&s, m->data, sizeof s);
  manta__fd_close(&t->newest.fd);
  t->newest = (struct manta__newest){.fd = manta__msg_take_fd(m, 0),
                                     .wid = s.wid,
                                     .slot = s.slot,
                                     .iteration = s.iteration,
                                     .capacity = s.capacity};
  manta__membership_checkpoint(&r->membership, now);
}

static void on_storefail(manta_trainer *t, const manta_value *v)
{
  manta__run_warn(
      t,
      "the checkpoint of iteration %lld was not written: %s\nthe run continues; earlier "
      "checkpoints are unchanged",
      (long long)manta_value_as_int(manta_value_get(v, "iteration"), -1),
      manta_value_as_string(manta_value_get(v, "message"), ""));
}

// --- steps --------------------------------------------------------------------------------------

static void send_abort(manta_run *r)
{
  struct manta__msg m = {.kind = MANTA__M_ABORT,
                         .group = r->trainer->group,
                         .id = {r->id, r->membership.attempt, -1, 0}};
  manta__run_tell_all(r->trainer, &m, NULL);
}

static void send_kill(manta_run *r)
{
  manta_value v = {0}, wids = {0};
  manta_value_set_map(&v);
  manta_value_set_list(&wids);
  for (int i = 0; i < r->membership.world; i++)
    if (r->membership.member[i].state == MANTA__MB_RUNNING) {
      manta_value wid = manta_value_int(r->membership.member[i].wid);
      manta_value_append(&wids, &wid);
    }
  manta_value_put(&v, "wids", &wids);
  manta_value_put_string(&v, "cause", "ended: it did not leave its function in time");
  struct manta__msg m = {.kind = MANTA__M_KILL, .group = r->trainer->group};
  manta__run_tell_all(r->trainer, &m, &v);
  manta_value_fini(&v);
}

// However it came: from a signal to a worker, too, whose segment is only its own host's.
static void pass_notice(manta_run *r)
{
  struct manta__msg m = {.kind = MANTA__M_NOTICE, .group = r->trainer->group};
  manta__run_tell_all(r->trainer, &m, NULL);
  r->noticed = true;
  if (r->exec)
    return;
  char how[MANTA__OUTLOOK_MAX];
  manta__run_outlook(r, how, sizeof how);
  manta__run_tell(r->trainer, "asked to stop: the ranks are to save and return; %s", how);
}

static void tell_revival(manta_run *r)
{
  if (r->trainer->quiet || r->exec)
    return;
  if (!r->last_root[0]) {
    manta__info("resizing to %d workers", r->membership.policy.want);
    return;
  }
  manta__run_warn(r->trainer, "%s\nreviving from %s", r->last_root,
                  r->trainer->newest.fd >= 0 ? "the newest checkpoint" : "the start");
}

int64_t manta__run_step(manta_trainer *t, int64_t now)
{
  manta_run *r = t->run;
  int64_t muster = manta__muster_step(t, now);
  if (!r || r->over || r->finishing)
    return r && r->storing.busy && manta__ending_step(r) ? now : muster;
  if (__atomic_exchange_n(&t->notice, 0, __ATOMIC_ACQUIRE))
    manta__membership_notice(&r->membership);
  if (r->membership.notice && !r->noticed)
    pass_notice(r);
  for (;;) {
    if (r->membership.root.status < 0)
      snprintf(r->last_root, sizeof r->last_root, "%s", r->membership.root.message);
    bool again =
        r->membership.phase == MANTA__PHASE_RUNNING || r->membership.phase == MANTA__PHASE_ENDING;
    switch (manta__membership_next(&r->membership, now)) {
    case MANTA__DO_FORM:
      if (again) {
        r->rewind = true;
        tell_revival(r);
        r->last_root[0] = 0;
      }
      if (again && r->renew && !t->keep) {
        r->paused = true;
        return MANTA__NEVER;
      }
      manta__form(r);
      muster = manta__muster_step(t, now);
      break;
    case MANTA__DO_ABORT:
      send_abort(r);
      break;
    case MANTA__DO_RENEW:
      manta__form_renew(r);
      break;
    case MANTA__DO_KILL:
      send_kill(r);
      break;
    case MANTA__DO_FINISH:
      manta__run_finish(r);
      return MANTA__NEVER;
    default: {
      int64_t next = manta__form_probe(r, now);
      next = muster < next ? muster : next;
      return next < r->membership.by ? next : r->membership.by;
    }
    }
  }
}

// --- messages -----------------------------------------------------------------------------------

static void on_asked(manta_trainer *t, const manta_value *v)
{
  const char *what = manta_value_as_string(manta_value_get(v, "what"), "");
  int64_t n = manta_value_as_int(manta_value_get(v, "n"), 0);
  manta_error err = MANTA_ERROR_INIT;
  manta_run *r = t->run;
  if (!r)
    return;
  if (!strcmp(what, "kill"))
    manta__membership_stop(&r->membership, MANTA_ECANCELED, "ended by `manta kill`");
  else if (!strcmp(what, "notice"))
    manta__membership_notice(&r->membership);
  else if (!strcmp(what, "resize") && n >= 1 && n <= MANTA_MAX_RANKS &&
           manta__ranks_resize(r, (int)n, &err) < 0)
    manta__run_warn(t, "not resized: %s", err.message);
}

void manta__run_on_msg(manta_trainer *t, struct manta__link *n,
                       struct manta__msg *m) // style: one case a message
{
  manta_value v = {0};
  int64_t now = manta__now();
  if (m->kind == MANTA__M_OUTPUT || m->kind == MANTA__M_LIVE) {
    manta__run_show(t, m);
    return;
  }
  if (m->kind == MANTA__M_SNAP) {
    on_snap(t, m, now);
    return;
  }
  if (m->kind == MANTA__M_FETCH || m->kind == MANTA__M_FETCHED) {
    if (is_current(t->run, m))
      manta__exchange_fetch(t->run, m);
    return;
  }
  if (m->kind == MANTA__M_GIVE || m->kind == MANTA__M_AGREE) {
    if (is_current(t->run, m) && m->id.rank < t->run->exchange.world)
      (m->kind == MANTA__M_GIVE ? manta__exchange_give : manta__exchange_vote)(t->run, m);
    return;
  }
  if (manta__msg_value(m, &v, NULL) < 0)
    return;
  switch (m->kind) {
  case MANTA__M_WORKER:
    on_worker(t, n, m, &v);
    break;
  case MANTA__M_FORMED:
    manta__form_on_formed(t, n, m, &v, now);
    break;
  case MANTA__M_NOROOM:
    manta__form_on_noroom(t, n, &v, now);
    break;
  case MANTA__M_DYING: // what follows from it on its own host comes with GONE
    on_dying(t, n, &v);
    break;
  case MANTA__M_GONE:
    on_gone(t, n, &v, now);
    break;
  case MANTA__M_DONE:
    on_done(t, m, &v);
    break;
  case MANTA__M_STORED:
    if (t->parked || t->run)
      manta__run_log(t->parked ? t->parked : t->run, MANTA__EV_CKPT, &v);
    break;
  case MANTA__M_STOREFAIL:
    on_storefail(t, &v);
    break;
  case MANTA__M_WARN:
    manta__run_warn(t, "%s", manta_value_as_string(manta_value_get(&v, "text"), ""));
    break;
  case MANTA__M_ASKED:
    on_asked(t, &v);
    break;
  default:
    break;
  }
  manta_value_fini(&v);
}

// --- a lost agent -------------------------------------------------------------------------------

static void drop_peers(manta_trainer *t, const struct manta__link *n)
{
  for (struct manta__peer *p = t->peers, *next; p; p = next) {
    next = p->next;
    if (p->link == n)
      drop_peer(t, p->wid);
  }
}

// One of several hosts: its ranks are lost, the others are told.
static void lose_host(manta_run *r, struct manta__link *n, const manta_error *why, bool final)
{
  manta_trainer *t = r->trainer;
  bool forming = r->membership.phase == MANTA__PHASE_FORMING;
  if (final) {
    manta__membership_stop(&r->membership, why->status, why->message);
    if (forming) {
      manta__muster_end(t);
      manta__membership_noroom(&r->membership, why, manta__now());
    }
  }
  for (int i = 0; i < t->hosts && !forming; i++) {
    struct manta__trainer_host *p = &t->host[i];
    if (p->link != n || p->count == 0)
      continue;
    spread_loss(r, n, p->first, why->message);
    manta__membership_host_lost(&r->membership, p->first, p->count, why);
    p->count = 0;
  }
  manta__exchange_settle(r);
}

void manta__run_link_lost(manta_trainer *t, struct manta__link *n, const manta_error *why,
                          bool final)
{
  bool ours = false;
  for (int i = 0; i < t->hosts; i++)
    ours |= t->host[i].link == n;
  if (!ours)
    return;
  manta__rows_drain(t);
  drop_peers(t, n);
  manta__muster_link_lost(t, n);
  if (t->spawning && (t->hosts == 1 || final)) {
    t->spawning = false;
    t->spawn_error = *why;
    manta__muster_end(t);
  }
  manta_run *r = t->run;
  if (!r || r->over)
    return;
  manta_value v = MANTA_MAP(MANTA_KV_STR("cause", why->message));
  manta__run_log(r, MANTA__EV_LOST, &v);
  if (t->hosts > 1) {
    lose_host(r, n, why, final);
    return;
  }
  if (final)
    manta__membership_stop(&r->membership, why->status, why->message);
  manta__membership_agent_lost(&r->membership, why);
}
