/* SPDX-License-Identifier: Apache-2.0 */
#include "train/form.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "ckpt/slot.h"
#include "ckpt/store.h"
#include "train/muster.h"
#include "train/rows.h"
#include "train/run.h"
#include "train/say.h"
#include "train/trainer.h"

#define PROBE_S      5.0 /* how often a run that is smaller than it should be asks for room */
#define NEWEST_TRIES 5

// --- what it begins from -------------------------------------------------------------------------

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

// Retention may delete the one that is being opened: then there is a newer one.
static manta_status open_newest(manta_run *r, int64_t *iteration, struct manta__origin *out,
                                manta_error *err)
{
  struct manta__manifest man;
  manta_status st = MANTA_ECORRUPT;
  int fd;
  for (int i = 0; i < NEWEST_TRIES && (st == MANTA_ECORRUPT || st == MANTA_ENOENT); i++) {
    MANTA_TRY(manta__store_newest(r->rundir, &fd, &man, err));
    st = manta__origin_open(out, fd, err);
    close(fd);
  }
  *iteration = man.iteration;
  return st;
}

// Memory, else disk, else what the user gave, else nothing.
static manta_status choose_checkpoint(manta_run *r, int64_t *iteration, struct manta__origin *out,
                                      manta_error *err)
{
  *iteration = 0;
  if (r->exec)
    return MANTA_OK;
  if (usable_slot(&r->trainer->newest, iteration)) {
    struct manta__origin slot = {.fd = {r->trainer->newest.fd}, .count = 1, .memory = true};
    return manta__origin_dup(out, &slot, err);
  }
  if (!r->afresh && open_newest(r, iteration, out, err) == MANTA_OK)
    return MANTA_OK;
  *iteration = r->initial_iteration;
  return manta__origin_dup(out, &r->initial, err);
}

// --- what is asked for ---------------------------------------------------------------------------

struct manta__order manta__form_order(const manta_trainer *t, uint64_t key, int count, int min)
{
  return (struct manta__order){
      .key = key,
      .count = count,
      .min = min,
      .must = t->elastic || min == 0 ? min : count,
      .cpus = t->cpus,
      .strict = t->strict_cpus,
      .pin = t->pin,
      .gpus = t->gpus,
      .resources = t->resources.type == MANTA_MAP ? &t->resources : NULL,
      .keep = t->keep,
      .trains = t->run && !t->run->exec,
      .name = t->name ? t->name : "",
      .hold = t->hold,
  };
}

manta_status manta__run_spawn(manta_trainer *t, manta_error *err)
{
  uint64_t key;
  struct manta__msg m = {.kind = MANTA__M_SPAWN, .group = t->group};
  struct manta__link *n = t->host[0].link;
  t->spawning = true;
  t->spawn_error = (manta_error)MANTA_ERROR_INIT;
  if (t->hosts > 1)
    return manta__muster_begin(t, err);
  MANTA_TRY(manta__link_up(n, err));
  MANTA_TRY(manta__link_program(n, &t->program, t->threads, &key, err));
  manta_value v =
      MANTA__PACK(spawn_msg, .order = manta__form_order(t, key, t->workers, t->min_workers));
  return manta__link_send(n, &m, &v, err);
}

// Where a run has ended well there may be another; its workers are there then.
static int successors(const manta_run *r, const struct manta__trainer_host *p)
{
  const manta_trainer *t = r->trainer;
  if (r->finishing)
    return r->error.status == 0 ? p->count : 0;
  return t->hosts > 1 ? p->count : r->membership.policy.want;
}

void manta__form_renew(manta_run *r)
{
  manta_trainer *t = r->trainer;
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {
      .kind = MANTA__M_RENEW, .group = t->group, .id = {r->id, r->membership.attempt, -1, 0}};
  for (int i = 0; i < t->hosts && !t->keep && !r->exec; i++) {
    struct manta__trainer_host *p = &t->host[i];
    uint64_t key = 0;
    int count = successors(r, p);
    if (!p->link->conn ||
        (count > 0 && manta__link_program(p->link, &t->program, t->threads, &key, &err) < 0))
      continue;
    manta_value v =
        MANTA__PACK(renew_msg, .order = manta__form_order(t, key, count, 0), .over = r->finishing);
    if (manta__link_send(p->link, &m, &v, &err) < 0)
      manta__warn("%s", err.message);
  }
}

static struct manta__run_msg describe_run(const manta_run *r)
{
  return (struct manta__run_msg){.path = r->dir ? r->dir : "",
                                 .log_limit = r->trainer->log_limit,
                                 .show_all = r->trainer->show_all,
                                 .live = r->moves,
                                 .pdb = r->tty.rank,
                                 .keep_last = r->keep_last,
                                 .keep_best = r->keep_best,
                                 .score_min = r->score_min,
                                 .exec = r->exec,
                                 .light = r->light};
}

// The directory goes along: an agent behind a bridge leaves it there.
manta_status manta__form_announce(manta_run *r, struct manta__trainer_host *p, manta_error *err)
{
  manta_trainer *t = r->trainer;
  if (p->announced && !r->exec)
    return MANTA_OK;
  struct manta__msg m = {.kind = MANTA__M_RUN,
                         .group = t->group,
                         .id = {r->id, r->membership.attempt, -1, 0},
                         .fd = {r->rundir, r->logs, r->tty.fd},
                         .fds = r->exec         ? 0
                                : r->tty.fd < 0 ? 2
                                                : 3};
  manta_pair pairs[MANTA__PROTO_PAIRS];
  struct manta__run_msg body = describe_run(r);
  manta_value v = manta__run_msg_map(pairs, &body);
  p->announced |= !r->exec;
  return manta__link_send(p->link, &m, &v, err);
}

manta_status manta__form_send(manta_run *r, struct manta__trainer_host *p,
                              struct manta__attempt_msg *a, const struct manta__origin *from,
                              manta_error *err)
{
  manta_trainer *t = r->trainer;
  manta_pair pairs[MANTA__PROTO_PAIRS];
  a->step_timeout = t->step_timeout;
  a->planned = p->planned;
  a->retire_wid = from->memory ? t->newest.wid : -1;
  a->retire_slot = from->memory ? t->newest.slot : -1;
  a->given = from->given;
  struct manta__msg m = {.kind = MANTA__M_ATTEMPT,
                         .group = t->group,
                         .id = {r->id, r->membership.attempt, -1, 0},
                         .fd = {r->job_fd},
                         .fds = 1 + from->count};
  for (int i = 0; i < from->count; i++)
    m.fd[1 + i] = from->fd[i];
  manta_value v = manta__attempt_msg_map(pairs, a);
  return manta__link_send(p->link, &m, &v, err);
}

void manta__form_checkpoint(manta_run *r, struct manta__origin *out)
{
  manta_error err = MANTA_ERROR_INIT;
  *out = (struct manta__origin){0};
  if (choose_checkpoint(r, &r->base, out, &err) < 0)
    manta__run_warn(r->trainer, "no checkpoint to begin from: %s", err.message);
  if (r->rewind && !r->exec) {
    manta_value to = MANTA_MAP(MANTA_KV_INT("to", r->base));
    manta__run_log(r, MANTA__EV_REWIND, &to);
  }
}

static manta_status form_here(manta_run *r, manta_error *err)
{
  manta_trainer *t = r->trainer;
  struct manta__trainer_host *p = &t->host[0];
  uint64_t key;
  struct manta__origin from;
  MANTA_TRY(manta__link_up(p->link, err));
  MANTA_TRY(manta__link_program(p->link, &t->program, t->threads, &key, err));
  MANTA_TRY(manta__form_announce(r, p, err));
  if (p->planned == 0)
    p->planned = r->membership.policy.want;
  struct manta__attempt_msg a = {
      .order = manta__form_order(t, key, r->membership.policy.want, r->membership.policy.min)};
  manta__form_checkpoint(r, &from);
  manta_status st = manta__form_send(r, p, &a, &from, err);
  manta__origin_close(&from);
  return st;
}

void manta__form(manta_run *r)
{
  manta_error err = MANTA_ERROR_INIT;
  manta__exchange_end(&r->exchange);
  manta_status st =
      r->trainer->hosts > 1 ? manta__muster_begin(r->trainer, &err) : form_here(r, &err);
  if (st < 0)
    manta__membership_noroom(&r->membership, &err, manta__now());
}

// The agent on this host knows of a run that has no workers here, too: it keeps the named socket.
static void open_door(manta_run *r)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__link *n = r->trainer->door;
  struct manta__msg m = {.kind = MANTA__M_RUN,
                         .group = r->trainer->group,
                         .id = {r->id, r->membership.attempt, -1, 0}};
  manta_pair pairs[MANTA__PROTO_PAIRS];
  struct manta__run_msg body = describe_run(r);
  manta_value v = manta__run_msg_map(pairs, &body);
  for (int i = 0; i < r->trainer->hosts; i++)
    if (r->trainer->host[i].link == n)
      return; // it has workers here, and is told anyway
  if (manta__link_up(n, &err) < 0 || manta__link_send(n, &m, &v, &err) < 0)
    manta__warn("manta ps will not show this run: %s", err.message);
}

static void begin_at(struct manta__trainer_host *p)
{
  p->announced = false;
  p->planned = 0;
}

void manta__run_begin(manta_run *r, uint32_t attempt)
{
  if (r->trainer->door && !r->exec)
    open_door(r);
  for (int i = 0; i < r->trainer->hosts && !r->exec; i++)
    begin_at(&r->trainer->host[i]);
  manta__membership_begin(&r->membership, attempt, manta__now());
  manta__form(r);
}

// --- what comes of it ----------------------------------------------------------------------------

void manta__form_done(manta_run *r, int world, int64_t now)
{
  manta_trainer *t = r->trainer;
  manta_error err = MANTA_ERROR_INIT;
  t->world = world;
  manta__results_forget(r);
  if (manta__align_begin(&r->align, world, r->base, r->rewind, &err) < 0)
    manta__warn("%s", err.message);
  manta__rows_queue(r);
  if (world < r->membership.policy.want && !r->membership.resize)
    manta__run_warn(t, "continuing with %d of %d workers: there is no room for more", world,
                    r->membership.policy.want);
  manta_value rec = MANTA_MAP(MANTA_KV_INT("world", world), MANTA_KV_INT("from", r->base));
  manta__run_log(r, MANTA__EV_ATTEMPT, &rec);
  if (manta__exchange_begin(&r->exchange, world, &err) < 0)
    manta__warn("%s", err.message);
  manta__membership_formed(&r->membership, t->wids, world);
  if (r->timeline.formed == 0)
    r->timeline.formed = now - r->timeline.began;
  r->told_noroom = false;
  manta__run_tell_door(t, false);
}

void manta__form_on_formed(manta_trainer *t, struct manta__link *n, struct manta__msg *m,
                           const struct manta__formed_msg *in, int64_t now)
{
  manta_run *r = t->run;
  if (t->hosts > 1) {
    manta__muster_answer(t, n, in->ready, NULL);
    return;
  }
  if (t->spawning && !in->wids) {
    t->spawning = false;
    return;
  }
  if (!r || m->id.run != r->id || m->id.attempt != r->membership.attempt || in->world < 0 ||
      in->world > r->membership.places)
    return;
  n->gpus = in->gpus;
  for (int i = 0; i < in->world; i++)
    t->wids[i] = manta_value_as_int(manta_value_at(in->wids, (size_t)i), -1);
  t->host[0].count = in->world;
  manta__form_done(r, in->world, now);
}

void manta__form_noroom(manta_run *r, const manta_error *why, int64_t now)
{
  if (why->status == MANTA_ENOROOM && !r->told_noroom) {
    r->told_noroom = true;
    manta__run_warn(r->trainer, "waiting for room: %s", why->message);
  }
  manta__membership_noroom(&r->membership, why, now);
}

void manta__form_on_noroom(manta_trainer *t, struct manta__link *n,
                           const struct manta__noroom_msg *in, int64_t now)
{
  manta_error why = MANTA_ERROR_INIT;
  why.status = (manta_status)in->status;
  snprintf(why.message, sizeof why.message, "%s", in->message);
  if (t->hosts > 1) {
    manta__muster_answer(t, n, NULL, &why);
    return;
  }
  if (t->spawning) {
    t->spawning = false;
    t->spawn_error = why;
    return;
  }
  if (t->run)
    manta__form_noroom(t->run, &why, now);
}

// --- growing back --------------------------------------------------------------------------------

static void on_room(void *ctx, manta_status st, struct manta__msg *reply)
{
  manta_run *r = ctx;
  manta_value v = {0};
  struct manta__probe_reply in;
  if (st == MANTA_OK && manta__probe_reply_unpack(reply, &v, &in, NULL) == MANTA_OK)
    r->room += in.room;
  manta_value_fini(&v);
  if (--r->probing == 0)
    manta__membership_room(&r->membership, r->room, manta__now());
}

static void ask_room(manta_run *r, struct manta__trainer_host *p, int missing)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__msg m = {.kind = MANTA__M_PROBE, .group = r->trainer->group};
  manta_value v = MANTA__PACK(probe_msg, .order = manta__form_order(r->trainer, 0, missing, 1));
  if (p->link->conn && manta__rpc_call(&p->link->rpc, p->link->conn, &m, &v,
                                       manta__deadline(PROBE_S), on_room, r, &err) == MANTA_OK)
    r->probing++;
}

// A run that is smaller than it should be asks from time to time whether there is room again.
int64_t manta__form_probe(manta_run *r, int64_t now)
{
  manta_trainer *t = r->trainer;
  int missing = r->membership.policy.want - r->membership.world;
  if (r->exec || r->membership.phase != MANTA__PHASE_RUNNING || missing <= 0)
    return MANTA__NEVER;
  double every = r->membership.policy.grow_after_s / 4;
  every = every > PROBE_S ? PROBE_S : every < 0.01 ? 0.01 : every;
  if (now < r->probe_ns || r->probing)
    return r->probe_ns > now ? r->probe_ns : now + (int64_t)(every * 1e9);
  r->probe_ns = now + (int64_t)(every * 1e9);
  r->room = 0;
  if (t->hosts > 1)
    manta__muster_tend(t, now);
  for (int i = 0; i < t->hosts; i++) {
    int more = t->hosts > 1 ? manta__muster_spare(t, i, r->membership.policy.want) : missing;
    if (more > 0)
      ask_room(r, &t->host[i], more);
  }
  if (r->probing == 0)
    manta__membership_room(&r->membership, 0, now);
  return r->probe_ns;
}
