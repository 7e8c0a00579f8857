/* SPDX-License-Identifier: Apache-2.0
 *
 * train/run.c - what happens to a run, seen from the driver's I/O thread.
 *
 * Messages and rows come in, the state machine (group/group.h) says what to do, the log records it,
 * the aligned rows go to the user's thread. Everything here runs with the driver's lock held.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ckpt/slot.h"
#include "ckpt/store.h"
#include "sys/sock.h"
#include "train/run.h"

#define PROBE_S       5.0 /* how often a run that is smaller than it should be asks for room */
#define REQUEST_PAIRS 9

#define drv manta__drv

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

static void on_worker(manta_trainer *t, struct manta__msg *m, const manta_value *v)
{
  int64_t wid = manta_value_as_int(manta_value_get(v, "wid"), -1);
  struct manta__peer *p = find_peer(t, wid);
  if (!p) {
    if (!(p = manta__calloc(1, sizeof *p)))
      return;
    p->wid = wid;
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

static void describe_loss(manta_error *out, const manta_run *r, int rank, const manta_value *v)
{
  const char *last = manta_value_as_string(manta_value_get(v, "last"), "");
  bool hung = manta_value_as_bool(manta_value_get(v, "hung"), false);
  manta_status st = hung ? MANTA_EHUNG : MANTA_EWORKER;
  manta_error_set(out, st, "rank %d (pid %lld on %s) %s%s%s", rank,
                  (long long)manta_value_as_int(manta_value_get(v, "pid"), 0),
                  manta_value_as_string(manta_value_get(v, "host"), drv.host),
                  manta_value_as_string(manta_value_get(v, "cause"), "?"),
                  *last ? "\nits last output:\n" : "", last);
  char log[32];
  snprintf(log, sizeof log, "rank-%d.log", rank);
  if (r->logs < 0 || faccessat(r->logs, log, F_OK, 0) < 0)
    return; // it printed nothing
  size_t n = strlen(out->message);
  snprintf(out->message + n, sizeof out->message - n, "\nits log: %s/logs/%s", r->dir, log);
}

static void on_gone(manta_trainer *t, const manta_value *v, int64_t now)
{
  manta_run *r = t->run;
  int64_t wid = manta_value_as_int(manta_value_get(v, "wid"), -1);
  struct manta__peer *p = find_peer(t, wid);
  int rank = r ? manta__group_rank(&r->group, wid) : -1;
  if (p && r)
    manta__rows_read(t, p, MANTA__IGNORE); // its last rows
  manta__rows_release(t);
  if (r && rank >= 0 && r->group.member[rank].state == MANTA__MB_RUNNING) {
    manta_error why = MANTA_ERROR_INIT;
    describe_loss(&why, r, rank, v);
    if (!r->group.killed)
      manta__run_log(r, MANTA__EV_LOST, v);
    manta__group_gone(&r->group, wid, &why, now);
    manta__exchange_settle(r);
  }
  drop_peer(t, wid);
}

// Of a rank of the attempt that is going on?
static bool is_current(const manta_run *r, const struct manta__msg *m)
{
  return r && m->id.run == r->id && m->id.attempt == r->group.attempt && m->id.rank >= 0 &&
         m->id.rank < r->group.world;
}

static void on_done(manta_trainer *t, struct manta__msg *m, manta_value *v)
{
  manta_run *r = t->run;
  int rank = m->id.rank;
  if (!is_current(r, m))
    return;
  manta__exchange_left(r, rank);
  int64_t wid = r->group.member[rank].wid;
  struct manta__peer *p = find_peer(t, wid);
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = (manta_status)manta_value_as_int(manta_value_get(v, "status"), 0);
  snprintf(err.message, sizeof err.message, "%s",
           manta_value_as_string(manta_value_get(v, "message"), ""));
  const manta_value *result = manta_value_get(v, "result");
  if (result && r->result)
    manta_value_copy(&r->result[rank], result);
  if (p && st >= 0) {
    p->done = true; // the next drain reads its last rows, and then says so
    manta__rows_drain(t);
    return;
  }
  if (p)
    manta__rows_read(t, p, MANTA__IGNORE);
  manta__rows_release(t);
  manta__group_done(&r->group, wid, st, &err);
}

// --- attempts -----------------------------------------------------------------------------------

static void forget_results(manta_run *r)
{
  for (int i = 0; r->result && i < r->group.places; i++)
    manta_value_fini(&r->result[i]);
}

static void on_formed(manta_trainer *t, struct manta__msg *m, const manta_value *v, int64_t now)
{
  manta_run *r = t->run;
  int world = (int)manta_value_as_int(manta_value_get(v, "world"), 0);
  if (t->spawning && !manta_value_get(v, "wids")) {
    t->spawning = false;
    return;
  }
  if (!r || m->id.run != r->id || m->id.attempt != r->group.attempt || world > MANTA_MAX_RANKS)
    return;
  const manta_value *wids = manta_value_get(v, "wids");
  drv.host_gpus = manta_value_as_real(manta_value_get(v, "gpus"), 0);
  for (int i = 0; i < world; i++)
    t->wids[i] = manta_value_as_int(manta_value_at(wids, (size_t)i), -1);
  t->world = world;
  manta_error err = MANTA_ERROR_INIT;
  forget_results(r);
  if (manta__align_begin(&r->align, world, r->base, r->rewind, &err) < 0)
    manta__warn("%s", err.message);
  manta__rows_queue(r);
  if (world < r->group.policy.want)
    manta__run_warn(t, "going on with %d of %d workers: there is no room for more", world,
                    r->group.policy.want);
  manta_value rec = MANTA_MAP(MANTA_KV_INT("world", world), MANTA_KV_INT("from", r->base));
  manta__run_log(r, MANTA__EV_ATTEMPT, &rec);
  if (manta__exchange_begin(&r->exchange, world, &err) < 0)
    manta__warn("%s", err.message);
  manta__group_formed(&r->group, t->wids, world);
  if (r->timeline.formed == 0)
    r->timeline.formed = now - r->timeline.began;
  r->told_noroom = false;
}

static void on_noroom(manta_trainer *t, const manta_value *v, int64_t now)
{
  manta_run *r = t->run;
  manta_error why = MANTA_ERROR_INIT;
  why.status = (manta_status)manta_value_as_int(manta_value_get(v, "status"), MANTA_ENOROOM);
  snprintf(why.message, sizeof why.message, "%s",
           manta_value_as_string(manta_value_get(v, "message"), ""));
  if (t->spawning) {
    t->spawning = false;
    t->spawn_error = why;
    return;
  }
  if (!r)
    return;
  if (why.status == MANTA_ENOROOM && !r->told_noroom) {
    r->told_noroom = true;
    manta__run_warn(t, "waiting for room: %s", why.message);
  }
  manta__group_noroom(&r->group, &why, now);
}

// A slot whose content went on since we were told of it may still be whole, and newer.
static bool usable_slot(const struct manta__newest *n, int64_t *iteration)
{
  struct manta__slot_meta *meta;
  if (n->fd < 0 || manta__slot_map_meta(n->fd, &meta, NULL) < 0)
    return false;
  uint32_t state = atomic_load_explicit(&meta->state, memory_order_acquire);
  bool whole =
      state == MANTA__SLOT_READY || state == MANTA__SLOT_WRITING || state == MANTA__SLOT_RETIRED;
  *iteration = meta->iteration;
  munmap(meta, MANTA__SLOT_META);
  return whole;
}

// What the attempt begins from: memory, else disk, else what the user gave, else nothing (-1).
static int choose_checkpoint(manta_run *r, int64_t *iteration, bool *own)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__manifest man;
  int fd;
  *own = false;
  *iteration = 0;
  if (r->exec)
    return -1;
  if (usable_slot(&r->trainer->newest, iteration))
    return r->trainer->newest.fd;
  if (manta__store_newest(r->rundir, &fd, &man, &err) == MANTA_OK) {
    *own = true;
    *iteration = man.iteration;
    return fd;
  }
  *iteration = r->initial_iteration;
  return r->initial_fd;
}

// What a worker of this trainer asks for. Borrows from the trainer.
static manta_value request(const manta_trainer *t, manta_pair *pairs, uint64_t key, int count,
                           int min)
{
  manta_value none = {0};
  pairs[0] = MANTA_KV_INT("key", (int64_t)key);
  pairs[1] = MANTA_KV_INT("count", count);
  pairs[2] = MANTA_KV_INT("min", min);
  pairs[3] = MANTA_KV_REAL("cpus", t->cpus);
  pairs[4] = MANTA_KV_BOOL("strict", t->strict_cpus);
  pairs[5] = MANTA_KV_BOOL("pin", t->pin);
  pairs[6] = MANTA_KV_REAL("gpus", t->gpus);
  pairs[7] = MANTA_KV("resources", t->resources.type == MANTA_MAP ? t->resources : none);
  pairs[8] = MANTA_KV_INT("must", t->elastic ? min : count);
  return (manta_value){.type = MANTA_MAP, .count = REQUEST_PAIRS, .u.pairs = pairs};
}

manta_status manta__run_spawn(manta_trainer *t, manta_error *err)
{
  uint64_t key;
  manta_pair pairs[REQUEST_PAIRS];
  struct manta__msg m = {.kind = MANTA__M_SPAWN, .group = t->group};
  MANTA_TRY(manta__driver_up(err));
  MANTA_TRY(manta__driver_program(&key, t->threads, err));
  manta_value v = request(t, pairs, key, t->workers, t->min_workers);
  t->spawning = true;
  t->spawn_error = (manta_error)MANTA_ERROR_INIT;
  return manta__driver_send(&m, &v, err);
}

static manta_status announce(manta_run *r, manta_error *err)
{
  manta_trainer *t = r->trainer;
  struct manta__msg m = {.kind = MANTA__M_RUN,
                         .group = t->group,
                         .id = {r->id, r->group.attempt, -1, 0},
                         .fd = {r->rundir, r->logs},
                         .fds = r->exec ? 0 : 2};
  manta_value v =
      MANTA_MAP(MANTA_KV_STR("path", r->dir ? r->dir : ""), MANTA_KV_INT("log_limit", t->log_limit),
                MANTA_KV_BOOL("show_all", t->show_all), MANTA_KV_INT("keep_last", r->keep_last),
                MANTA_KV_INT("keep_best", r->keep_best), MANTA_KV_BOOL("score_min", r->score_min));
  r->announced = true;
  return manta__driver_send(&m, &v, err);
}

static void form(manta_run *r)
{
  manta_trainer *t = r->trainer;
  manta_error err = MANTA_ERROR_INIT;
  uint64_t key;
  bool own, memory = false;
  manta__exchange_end(&r->exchange);
  manta_status st = manta__driver_up(&err);
  if (st == MANTA_OK)
    st = manta__driver_program(&key, t->threads, &err);
  if (st == MANTA_OK && !r->announced)
    st = announce(r, &err);
  if (st < 0) {
    manta__group_noroom(&r->group, &err, manta__now());
    return;
  }
  int ckpt = choose_checkpoint(r, &r->base, &own);
  memory = ckpt >= 0 && ckpt == t->newest.fd;
  manta_pair pairs[REQUEST_PAIRS + 3];
  manta_value v = request(t, pairs, key, r->group.policy.want, r->group.policy.min);
  pairs[v.count++] = MANTA_KV_REAL("step_timeout", t->step_timeout);
  pairs[v.count++] = MANTA_KV_INT("retire_wid", memory ? t->newest.wid : -1);
  pairs[v.count++] = MANTA_KV_INT("retire_slot", memory ? t->newest.slot : -1);
  struct manta__msg m = {.kind = MANTA__M_ATTEMPT,
                         .group = t->group,
                         .id = {r->id, r->group.attempt, -1, 0},
                         .fd = {r->job_fd, ckpt},
                         .fds = ckpt >= 0 ? 2 : 1};
  if (r->rewind && !r->exec) {
    manta_value to = MANTA_MAP(MANTA_KV_INT("to", r->base));
    manta__run_log(r, MANTA__EV_REWIND, &to);
  }
  st = manta__driver_send(&m, &v, &err);
  if (own)
    manta__fd_close(&ckpt);
  if (st < 0)
    manta__group_noroom(&r->group, &err, manta__now());
}

void manta__run_begin(manta_run *r, uint32_t attempt)
{
  manta__group_begin(&r->group, attempt, manta__now());
  form(r);
}

// --- growing back --------------------------------------------------------------------------------

static void on_room(void *ctx, manta_status st, struct manta__msg *reply)
{
  manta_run *r = ctx;
  manta_value v = {0};
  r->probing = false;
  if (st == MANTA_OK && manta__msg_value(reply, &v, NULL) == MANTA_OK)
    manta__group_room(&r->group, (int)manta_value_as_int(manta_value_get(&v, "room"), 0),
                      manta__now());
  manta_value_fini(&v);
}

// A run that is smaller than it should be asks from time to time whether there is room again.
static int64_t probe(manta_run *r, int64_t now)
{
  manta_pair pairs[REQUEST_PAIRS];
  manta_error err = MANTA_ERROR_INIT;
  int missing = r->group.policy.want - r->group.world;
  if (r->exec || r->group.phase != MANTA__G_RUNNING || missing <= 0 || !drv.agent)
    return MANTA__NEVER;
  double every = r->group.policy.grow_after_s / 4;
  every = every > PROBE_S ? PROBE_S : every < 0.01 ? 0.01 : every;
  if (now < r->probe_ns || r->probing)
    return r->probe_ns > now ? r->probe_ns : now + (int64_t)(every * 1e9);
  struct manta__msg m = {.kind = MANTA__M_PROBE, .group = r->trainer->group};
  manta_value v = request(r->trainer, pairs, 0, missing, 1);
  r->probe_ns = now + (int64_t)(every * 1e9);
  r->probing = manta__rpc_call(&drv.rpc, drv.agent, &m, &v, manta__deadline(PROBE_S), on_room, r,
                               &err) == MANTA_OK;
  return r->probe_ns;
}

// --- snapshots ----------------------------------------------------------------------------------

static void on_snap(manta_trainer *t, struct manta__msg *m, int64_t now)
{
  struct manta__snap_msg s;
  manta_run *r = t->run;
  if (!r || m->len != sizeof s || m->id.run != r->id || m->id.attempt != r->group.attempt)
    return;
  memcpy(&s, m->data, sizeof s);
  manta__fd_close(&t->newest.fd);
  t->newest = (struct manta__newest){.fd = manta__msg_take_fd(m, 0),
                                     .wid = s.wid,
                                     .slot = s.slot,
                                     .iteration = s.iteration,
                                     .capacity = s.capacity};
  manta__group_checkpoint(&r->group, now);
}

static void on_storefail(manta_trainer *t, const manta_value *v)
{
  manta__run_warn(t,
                  "the checkpoint of iteration %lld was not written: %s\nthe run goes on; earlier "
                  "checkpoints are as they were",
                  (long long)manta_value_as_int(manta_value_get(v, "iteration"), -1),
                  manta_value_as_string(manta_value_get(v, "message"), ""));
}

// --- steps --------------------------------------------------------------------------------------

static void send_abort(manta_run *r)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {
      .kind = MANTA__M_ABORT, .group = r->trainer->group, .id = {r->id, r->group.attempt, -1, 0}};
  manta__driver_send(&m, NULL, &err);
}

static void send_kill(manta_run *r)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value v = {0}, wids = {0};
  manta_value_set_map(&v);
  manta_value_set_list(&wids);
  for (int i = 0; i < r->group.world; i++)
    if (r->group.member[i].state == MANTA__MB_RUNNING) {
      manta_value wid = manta_value_int(r->group.member[i].wid);
      manta_value_append(&wids, &wid);
    }
  manta_value_put(&v, "wids", &wids);
  manta_value_put_string(&v, "cause", "ended: it did not leave its function in time");
  struct manta__msg m = {.kind = MANTA__M_KILL, .group = r->trainer->group};
  manta__driver_send(&m, &v, &err);
  manta_value_fini(&v);
}

static void pass_notice(manta_run *r)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {.kind = MANTA__M_NOTICE, .group = r->trainer->group};
  manta__group_notice(&r->group);
  manta__driver_send(&m, NULL, &err);
}

static void tell_revival(manta_run *r)
{
  if (r->trainer->quiet || r->exec)
    return;
  if (!r->last_root[0]) {
    manta__info("resizing to %d workers", r->group.policy.want);
    return;
  }
  manta__run_warn(r->trainer, "%s\nreviving from %s", r->last_root,
                  r->trainer->newest.fd >= 0 ? "the newest checkpoint" : "the start");
}

int64_t manta__run_step(manta_trainer *t, int64_t now)
{
  manta_run *r = t->run;
  if (!r || r->over || r->finishing)
    return MANTA__NEVER;
  if (__atomic_exchange_n(&t->notice, 0, __ATOMIC_ACQUIRE))
    pass_notice(r);
  for (;;) {
    if (r->group.root.status < 0)
      snprintf(r->last_root, sizeof r->last_root, "%s", r->group.root.message);
    bool again = r->group.phase == MANTA__G_RUNNING || r->group.phase == MANTA__G_ENDING;
    switch (manta__group_next(&r->group, now)) {
    case MANTA__DO_FORM:
      if (again) {
        r->rewind = true;
        tell_revival(r);
        r->last_root[0] = 0;
      }
      form(r);
      break;
    case MANTA__DO_ABORT:
      send_abort(r);
      break;
    case MANTA__DO_KILL:
      send_kill(r);
      break;
    case MANTA__DO_FINISH:
      manta__run_finish(r);
      return MANTA__NEVER;
    default: {
      int64_t again_at = probe(r, now);
      return again_at < r->group.by ? again_at : r->group.by;
    }
    }
  }
}

// --- messages -----------------------------------------------------------------------------------

static void on_asked(manta_trainer *t, const manta_value *v)
{
  const char *what = manta_value_as_string(manta_value_get(v, "what"), "");
  int64_t n = manta_value_as_int(manta_value_get(v, "n"), 0);
  manta_run *r = t->run;
  if (!r)
    return;
  if (!strcmp(what, "kill"))
    manta__group_stop(&r->group, MANTA_ECANCELED, "ended by `manta kill`");
  else if (!strcmp(what, "notice"))
    manta__group_notice(&r->group);
  else if (!strcmp(what, "resize") && n >= 1 && n <= MANTA_MAX_RANKS)
    manta__group_resize(&r->group, (int)n);
}

void manta__run_on_msg(manta_trainer *t, struct manta__msg *m)
{
  manta_value v = {0};
  int64_t now = manta__now();
  if (m->kind == MANTA__M_OUTPUT) {
    manta__run_show(t, m->id.rank, m->data, m->len);
    return;
  }
  if (m->kind == MANTA__M_SNAP) {
    on_snap(t, m, now);
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
    on_worker(t, m, &v);
    break;
  case MANTA__M_FORMED:
    on_formed(t, m, &v, now);
    break;
  case MANTA__M_NOROOM:
    on_noroom(t, &v, now);
    break;
  case MANTA__M_DYING: // what follows from it comes with GONE
    if (t->run) {
      manta__group_dying(&t->run->group, manta_value_as_int(manta_value_get(&v, "wid"), -1));
      manta__exchange_settle(t->run);
    }
    break;
  case MANTA__M_GONE:
    on_gone(t, &v, now);
    break;
  case MANTA__M_DONE:
    on_done(t, m, &v);
    break;
  case MANTA__M_STORED:
    if (t->run)
      manta__run_log(t->run, MANTA__EV_CKPT, &v);
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

void manta__run_agent_lost(manta_trainer *t, const manta_error *why, bool final)
{
  manta__rows_drain(t);
  while (t->peers)
    drop_peer(t, t->peers->wid);
  if (t->spawning) {
    t->spawning = false;
    t->spawn_error = *why;
  }
  if (!t->run || t->run->over)
    return;
  t->run->announced = false;
  manta_value v = MANTA_MAP(MANTA_KV_STR("cause", why->message));
  manta__run_log(t->run, MANTA__EV_LOST, &v);
  if (final)
    manta__group_stop(&t->run->group, why->status, why->message);
  manta__group_agent_lost(&t->run->group, why);
}
