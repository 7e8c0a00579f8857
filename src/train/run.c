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
#include "train/light.h"
#include "train/muster.h"
#include "train/newest.h"
#include "train/recall.h"
#include "train/rows.h"
#include "train/say.h"
#include "train/sinks.h"
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

static void take_worker(manta_trainer *t, struct manta__link *n, struct manta__msg *m,
                        const struct manta__worker_msg *in)
{
  struct manta__peer *p = find_peer(t, in->wid);
  if (!p) {
    if (!(p = manta__calloc(1, sizeof *p)))
      return;
    p->wid = in->wid;
    p->before = in->before;
    p->seat = in->seat;
    p->link = n;
    p->next = t->peers;
    t->peers = p;
  }
  int ring = manta__msg_take_fd(m, 0);
  manta_error err = MANTA_ERROR_INIT;
  if (ring >= 0 && manta__ring_open(&p->ring, ring, &err) < 0)
    manta__warn("worker %lld: %s", (long long)in->wid, err.message);
  else if (ring >= 0)
    manta__fd_close(&p->ring.fd); // mapped; a descriptor per worker would add up
  p->pid = in->pid;
  if (p->pid > 0 && t->door && t->run)
    manta__run_tell_door(t, false);
}

static void on_worker(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__worker_msg in;
  if (manta__worker_msg_unpack(m, &v, &in, NULL) == MANTA_OK)
    take_worker(t, n, m, &in);
  manta_value_fini(&v);
}

static void drop_peer(manta_trainer *t, int64_t wid)
{
  for (struct manta__peer **at = &t->peers; *at; at = &(*at)->next)
    if ((*at)->wid == wid) {
      struct manta__peer *p = *at;
      *at = p->next;
      manta__newest_settle(t, p);
      if (t->run && t->run->light)
        manta__light_part(t->run, p);
      else
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
    manta_value v = MANTA__PACK(far_worker, .rank = rank, .pid = p->pid,
                                .host = manta__link_name(p->link), .state = "running");
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
  if ((none ? manta_value_set_list(&list) : list_elsewhere(t, &list)) == MANTA_OK) {
    manta_value v = MANTA__PACK(elsewhere_msg, .workers = &list);
    manta__link_send(t->door, &m, &v, &err);
  }
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
      MANTA__PACK(abort_msg, .rank = rank, .host = manta__link_name(from), .cause = cause);
  for (int i = 0; t->hosts > 1 && i < t->hosts; i++)
    if (t->host[i].link != from && t->host[i].link->conn && t->host[i].count > 0)
      manta__link_send(t->host[i].link, &m, &v, &err);
}

static void describe_loss(manta_error *out, const manta_run *r, int rank,
                          const struct manta__gone_msg *in)
{
  char is[32] = ""; // nothing if it never was
  if (in->pid > 0)
    snprintf(is, sizeof is, "pid %d ", in->pid);
  manta_error_set(out, in->hung ? MANTA_EHUNG : MANTA_EWORKER, "rank %d (%son %s) %s%s%s", rank, is,
                  in->host, in->cause, in->last[0] ? "\nits last output:\n" : "", in->last);
  char log[32];
  snprintf(log, sizeof log, "rank-%d.log", rank);
  if (r->logs < 0 || faccessat(r->logs, log, F_OK, 0) < 0)
    return; // it printed nothing
  size_t n = strlen(out->message);
  snprintf(out->message + n, sizeof out->message - n, "\nits log: %s/%s%s", r->dir,
           r->light ? "" : "logs/", log);
}

// `v`: the same, as run.log records it.
static void take_loss(manta_trainer *t, const struct manta__link *n,
                      const struct manta__gone_msg *in, const manta_value *v)
{
  manta_run *r = t->run;
  struct manta__peer *p = find_peer(t, in->wid);
  int rank = r ? manta__membership_rank(&r->membership, in->wid) : -1;
  if (p && r)
    manta__rows_read(t, p, MANTA__IGNORE); // its last rows
  manta__rows_release(t);
  if (r && rank >= 0 && r->membership.member[rank].state == MANTA__MB_RUNNING) {
    manta_error why = MANTA_ERROR_INIT;
    describe_loss(&why, r, rank, in);
    if (!r->membership.killed)
      manta__run_log(r, MANTA__EV_LOST, v);
    spread_loss(r, n, rank, in->cause);
    manta__membership_gone(&r->membership, in->wid, &why, manta__now());
    manta__exchange_settle(r);
  }
  drop_peer(t, in->wid);
  manta__muster_gone(t, in->wid);
}

static void on_gone(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__gone_msg in;
  if (manta__gone_msg_unpack(m, &v, &in, NULL) == MANTA_OK)
    take_loss(t, n, &in, &v);
  manta_value_fini(&v);
}

// What follows from it on its own host comes with GONE.
static void on_dying(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta_run *r = t->run;
  manta_value v = {0};
  struct manta__dying_msg in;
  if (manta__dying_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  int rank = r ? manta__membership_rank(&r->membership, in.wid) : -1;
  if (rank >= 0) {
    spread_loss(r, n, rank, "it died"); // how, comes later
    manta__membership_dying(&r->membership, in.wid);
    manta__exchange_settle(r);
  }
  manta_value_fini(&v);
}

// Of a rank of the attempt that is going on?
static bool is_current(const manta_run *r, const struct manta__msg *m)
{
  return r && m->id.run == r->id && m->id.attempt == r->membership.attempt && m->id.rank >= 0 &&
         m->id.rank < r->membership.world;
}

// A survivor may be faster to say so than the agent that saw the death.
static void spread_echo(manta_run *r, int lost)
{
  manta_trainer *t = r->trainer;
  for (int i = 0; lost >= 0 && i < t->hosts; i++)
    if (lost >= t->host[i].first && lost < t->host[i].first + t->host[i].count)
      spread_loss(r, t->host[i].link, lost, "it died");
}

static void take_end(manta_run *r, struct manta__msg *m, const struct manta__done_msg *in)
{
  manta_trainer *t = r->trainer;
  int rank = m->id.rank;
  spread_echo(r, in->lost);
  manta__exchange_left(r, rank);
  int64_t wid = r->membership.member[rank].wid;
  struct manta__peer *p = find_peer(t, wid);
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = (manta_status)in->status;
  snprintf(err.message, sizeof err.message, "%s", in->message);
  manta_error lost = MANTA_ERROR_INIT;
  if (manta__results_give(r, m, in, &lost) < 0 && st >= 0) {
    st = lost.status;
    snprintf(err.message, sizeof err.message, "%s", lost.message);
  }
  if (p && st >= 0) {
    p->done = true; // the next drain reads its last rows, and then says so
    manta__rows_drain(t);
    return;
  }
  if (p) {
    manta__rows_read(t, p, MANTA__IGNORE);
    manta__newest_settle(t, p);
  }
  manta__rows_release(t);
  manta__membership_done(&r->membership, wid, st, &err);
}

static void on_done(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__done_msg in;
  if (is_current(t->run, m) && manta__done_msg_unpack(m, &v, &in, NULL) == MANTA_OK)
    take_end(t->run, m, &in);
  manta_value_fini(&v);
}

// --- snapshots ----------------------------------------------------------------------------------

static void on_snap(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  struct manta__snap_msg s;
  manta_run *r = t->run;
  if (!r || m->id.run != r->id || m->id.attempt != r->membership.attempt ||
      !manta__msg_copy(m, &s, sizeof s))
    return;
  manta__newest_take(t, m, &s, find_peer(t, s.wid));
  manta__membership_checkpoint(&r->membership, manta__now());
}

static void on_stored(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__stored_msg in;
  manta_run *r = t->parked ? t->parked : t->run;
  if (r && manta__stored_msg_unpack(m, &v, &in, NULL) == MANTA_OK) {
    r->afresh = false; // what is newest on disk is its own
    manta__run_log(r, MANTA__EV_CKPT, &v);
  }
  manta_value_fini(&v);
}

static void on_storefail(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__storefail_msg in;
  if (manta__storefail_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  manta__run_warn(
      t,
      "the checkpoint of iteration %lld was not written: %s\nthe run continues; earlier "
      "checkpoints are unchanged",
      (long long)in.iteration, in.message);
  manta_value_fini(&v);
}

// --- what workers use ---------------------------------------------------------------------------

static void on_sample(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__sample_msg in;
  manta_run *r = t->run;
  if (r && m->id.run == r->id && m->id.attempt == r->membership.attempt &&
      manta__sample_msg_unpack(m, &v, &in, NULL) == MANTA_OK) {
    manta__run_log(r, MANTA__EV_SAMPLE, &v);
    if (r->log)
      manta__log_flush(r->log, NULL); // no row may come for long
  }
  manta_value_fini(&v);
}

// --- steps --------------------------------------------------------------------------------------

static void send_abort(manta_run *r)
{
  struct manta__msg m = {.kind = MANTA__M_ABORT,
                         .group = r->trainer->group,
                         .id = {r->id, r->membership.attempt, -1, 0}};
  manta_value v = MANTA__PACK(abort_msg, .rank = -1);
  manta__run_tell_all(r->trainer, &m, &v);
}

static void send_kill(manta_run *r)
{
  manta_value wids = {0};
  manta_value_set_list(&wids);
  for (int i = 0; i < r->membership.world; i++)
    if (r->membership.member[i].state == MANTA__MB_RUNNING) {
      manta_value wid = manta_value_int(r->membership.member[i].wid);
      manta_value_append(&wids, &wid);
    }
  struct manta__msg m = {.kind = MANTA__M_KILL, .group = r->trainer->group};
  manta_value v =
      MANTA__PACK(kill_msg, .wids = &wids, .cause = "ended: it did not leave its function in time");
  manta__run_tell_all(r->trainer, &m, &v);
  manta_value_fini(&wids);
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

static int64_t step(manta_trainer *t, int64_t now)
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

int64_t manta__run_step(manta_trainer *t, int64_t now)
{
  int64_t next = step(t, now);
  int64_t sinks = t->run ? manta__run_sinks_step(t->run, now) : MANTA__NEVER;
  int64_t look = t->run && !t->run->over ? manta__upload_step(t->run, now) : MANTA__NEVER;
  next = sinks < next ? sinks : next;
  return look < next ? look : next;
}

// --- messages -----------------------------------------------------------------------------------

static void on_formed(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__formed_msg in;
  if (manta__formed_msg_unpack(m, &v, &in, NULL) == MANTA_OK)
    manta__form_on_formed(t, n, m, &in, manta__now());
  manta_value_fini(&v);
}

static void on_noroom(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__noroom_msg in;
  if (manta__noroom_msg_unpack(m, &v, &in, NULL) == MANTA_OK)
    manta__form_on_noroom(t, n, &in, manta__now());
  manta_value_fini(&v);
}

static void on_output(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta__run_show(t, m);
}

static void on_warn(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__warn_msg in;
  if (manta__warn_msg_unpack(m, &v, &in, NULL) == MANTA_OK)
    manta__run_warn(t, "%s", in.text);
  manta_value_fini(&v);
}

static void on_asked(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  manta_value v = {0};
  struct manta__asked_msg in;
  manta_error err = MANTA_ERROR_INIT;
  manta_run *r = t->run;
  if (!r || manta__asked_msg_unpack(m, &v, &in, NULL) < 0)
    return;
  if (!strcmp(in.what, "kill"))
    manta__membership_stop(&r->membership, MANTA_ECANCELED, "ended by `manta kill`");
  else if (!strcmp(in.what, "notice"))
    manta__membership_notice(&r->membership);
  else if (!strcmp(in.what, "resize") && in.n >= 1 && in.n <= MANTA_MAX_RANKS &&
           manta__ranks_resize(r, (int)in.n, &err) < 0)
    manta__run_warn(t, "not resized: %s", err.message);
  manta_value_fini(&v);
}

static void on_give(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  if (is_current(t->run, m) && m->id.rank < t->run->exchange.world)
    (m->kind == MANTA__M_GIVE ? manta__exchange_give : manta__exchange_vote)(t->run, m);
}

static void on_fetch(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  if (is_current(t->run, m))
    manta__exchange_fetch(t->run, m);
}

static void on_random(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  if (is_current(t->run, m))
    manta__recall_take(t->run, m);
}

static void on_recall(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  if (is_current(t->run, m))
    manta__recall_answer(t->run, n, m);
}

void manta__run_on_msg(manta_trainer *t, struct manta__link *n, struct manta__msg *m)
{
  static void (*const handlers[MANTA__M_KINDS])(manta_trainer *, struct manta__link *,
                                                struct manta__msg *) = {
      [MANTA__M_WORKER] = on_worker,       [MANTA__M_FORMED] = on_formed,
      [MANTA__M_NOROOM] = on_noroom,       [MANTA__M_DYING] = on_dying,
      [MANTA__M_GONE] = on_gone,           [MANTA__M_DONE] = on_done,
      [MANTA__M_SNAP] = on_snap,           [MANTA__M_STORED] = on_stored,
      [MANTA__M_STOREFAIL] = on_storefail, [MANTA__M_OUTPUT] = on_output,
      [MANTA__M_LIVE] = on_output,         [MANTA__M_WARN] = on_warn,
      [MANTA__M_ASKED] = on_asked,         [MANTA__M_GIVE] = on_give,
      [MANTA__M_AGREE] = on_give,          [MANTA__M_FETCH] = on_fetch,
      [MANTA__M_FETCHED] = on_fetch,       [MANTA__M_SAMPLE] = on_sample,
      [MANTA__M_RANDOM] = on_random,       [MANTA__M_RECALL] = on_recall,
  };
  if (m->kind < MANTA__M_KINDS && handlers[m->kind])
    handlers[m->kind](t, n, m);
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
