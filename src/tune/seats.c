/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/seats.c - trials as light runs, on trainers that stay from trial to trial.
 *
 * A trial of one worker is called in a fork of it, unless workers are reused; one of several has
 * fresh workers from the zygote, unless they are. Seats are made when they are first needed; the
 * host's accounts say how many there is room for.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "sys/host.h"
#include "train/light.h"
#include "tune/runner.h"

struct seats;

struct seat {
  const struct seats *all;
  manta_trainer *t; /* NULL: not made yet */
  manta_run *run;   /* NULL: it is free */
  uint64_t trial;
  int64_t by;            /* when the trial has run too long */
  bool overdue;          /* it was told to end, for it did */
  manta_value resources; /* nil: the experiment's */
};

struct seats {
  const struct manta__runner_ops *ops;
  struct manta__seats_config c;
  manta_trainer_config trainer;
  struct seat *seat;
  manta_run **runs; /* by seat, for manta_run_next_any */
  int most;         /* trials at once: as many seats */
  int room;         /* … that there turned out to be room for */
  bool soft;        /* nobody has said how many CPUs a trial needs: at worst it shares them */
  manta_value result;
};

static struct seats *seats_of(struct manta__runner *r)
{
  return (struct seats *)(void *)r;
}

// --- seats ---------------------------------------------------------------------------------------

static bool alone(const manta_trainer_config *tc)
{
  return tc->workers == 1;
}

static void apply_resources(manta_trainer_config *tc, const manta_value *r)
{
  tc->cpus_per_worker = manta_value_as_real(manta_value_get(r, "cpus"), tc->cpus_per_worker);
  tc->gpus_per_worker = manta_value_as_real(manta_value_get(r, "gpus"), tc->gpus_per_worker);
  tc->workers = (int)manta_value_as_int(manta_value_get(r, "workers"), tc->workers);
}

static void empty_seat(struct seat *s)
{
  manta_trainer_destroy(s->t);
  manta_value_fini(&s->resources);
  s->t = NULL;
}

static manta_status make_seat(struct seats *all, struct seat *s, const manta_value *resources,
                              manta_error *err)
{
  manta_trainer_config tc = all->trainer;
  apply_resources(&tc, resources);
  tc.keep_workers = all->c.reuse || alone(&tc);
  if (alone(&tc))
    tc.max_retries = -2;
  if (resources && manta_value_copy(&s->resources, resources) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a seat");
  MANTA_TRY(manta_trainer_create(&s->t, &tc, err));
  manta_trainer_hold(s->t, true);
  manta_status st = manta_trainer_start(s->t, err);
  if (st < 0)
    empty_seat(s);
  return st;
}

static bool fits(const struct seat *s, const manta_value *resources)
{
  static const manta_value nil = {0};
  return s->t && manta_value_equal(&s->resources, resources ? resources : &nil);
}

// A free one that fits, or a new one, or one that is made anew.
static struct seat *take_seat(struct seats *all, const manta_value *resources, manta_error *err)
{
  struct seat *other = NULL, *empty = NULL;
  for (int i = 0; i < all->most; i++) {
    struct seat *s = &all->seat[i];
    if (!s->run && fits(s, resources))
      return s;
    if (!s->run && s->t)
      other = s;
    if (!s->t)
      empty = empty ? empty : s;
  }
  struct seat *s = other ? other : empty;
  if (!s) {
    manta_error_set(err, MANTA_ENOROOM, "every seat is taken");
    return NULL;
  }
  if (other)
    empty_seat(other);
  return make_seat(all, s, resources, err) < 0 ? NULL : s;
}

static struct seat *seat_of(struct seats *all, uint64_t trial)
{
  for (int i = 0; i < all->most; i++)
    if (all->seat[i].run && all->seat[i].trial == trial)
      return &all->seat[i];
  return NULL;
}

// --- trials --------------------------------------------------------------------------------------

static int room(const struct manta__runner *r)
{
  return ((const struct seats *)(const void *)r)->room;
}

static int running(const struct seats *all)
{
  int n = 0;
  for (int i = 0; i < all->most; i++)
    n += all->seat[i].run != NULL;
  return n;
}

static void on_output(void *ctx, int rank, const char *text, size_t len)
{
  const struct seat *s = ctx;
  s->all->c.output_fn(s->all->c.output_ctx, s->trial, rank, text, len);
}

static manta_status start(struct manta__runner *r, const struct manta__launch *l, manta_error *err)
{
  struct seats *all = seats_of(r);
  struct seat *s = take_seat(all, l->resources, err);
  if (!s && err && err->status == MANTA_ENOROOM && running(all) > 0)
    all->room = running(all); // no more will fit, as long as these are there
  if (!s)
    return err ? err->status : MANTA_ENOROOM;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  rc.config = l->config;
  rc.keep_last = all->c.keep_last;
  rc.keep_best = all->c.keep_best;
  rc.score = all->c.score;
  rc.score_min = all->c.score_min;
  rc.payload = all->c.payload;
  rc.payload_bytes = all->c.payload_bytes;
  rc.checkpoint = l->origin;
  const manta_callbacks shown = {.ctx = s, .output = on_output};
  if (all->c.output_fn) {
    rc.callbacks = &shown;
    rc.callback_count = 1;
  }
  struct manta__light light = {.dir = l->dir,
                               .fresh = l->fresh || l->origin,
                               .adopted = l->adopted,
                               .attempt = l->attempt,
                               .apart = !all->c.reuse && manta_trainer_workers(s->t) == 1,
                               .lockstep = all->c.lockstep,
                               .score_optional = all->c.score_optional,
                               .from = l->from ? l->from->fd : -1};
  MANTA_TRY(manta__light_start(&s->run, s->t, all->c.fn, &rc, &light, err));
  s->trial = l->trial;
  s->by = all->c.trial_s > 0 ? manta__deadline(all->c.trial_s) : MANTA__NEVER;
  s->overdue = false;
  all->runs[s - all->seat] = s->run;
  return MANTA_OK;
}

static void take_result(struct seats *all, const struct seat *s)
{
  const manta_value *results = manta_run_results(s->run);
  const manta_value *first = results ? manta_value_at(results, 0) : manta_run_failure(s->run);
  if (!first || manta_value_copy(&all->result, first) < 0)
    manta_value_set_nil(&all->result);
}

static void end_run(struct seats *all, struct seat *s)
{
  manta_run_close(s->run);
  s->run = NULL;
  all->runs[s - all->seat] = NULL;
  all->room = all->most; // perhaps there is room now
}

// With the rows that it has given out.
static void end_trial(struct seat *s)
{
  manta_trainer_cancel(s->t);
  manta__light_dealt(s->run);
}

// Ends those that have run too long; when the next one will have, at most `by`.
static int64_t end_overdue(struct seats *all, int64_t by)
{
  int64_t now = manta__now();
  for (int i = 0; i < all->most; i++) {
    struct seat *s = &all->seat[i];
    if (!s->run || s->overdue)
      continue;
    s->overdue = s->by <= now;
    if (s->overdue)
      end_trial(s);
    else
      by = s->by < by ? s->by : by;
  }
  return by;
}

// As manta_run_next_any over all seats, and not longer than until a trial has run too long.
static int wait_any(struct seats *all, int64_t by, size_t *at, manta_rows *rows, manta_error *why)
{
  for (;;) {
    int64_t until = all->c.trial_s > 0 ? end_overdue(all, by) : by;
    double left = until == MANTA__NEVER ? -1 : fmax(0, (double)(until - manta__now()) * 1e-9);
    int rc = manta_run_next_any(all->runs, (size_t)all->most, left, at, rows, why);
    if (rc != MANTA_ETIMEDOUT || *at != (size_t)all->most || until == by)
      return rc;
  }
}

static int next(struct manta__runner *r, double timeout_s, struct manta__happening *out,
                manta_error *err)
{
  struct seats *all = seats_of(r);
  manta_rows rows;
  size_t at;
  manta_error why = MANTA_ERROR_INIT;
  int64_t by = manta__deadline(timeout_s);
  *out = (struct manta__happening){.error = MANTA_ERROR_INIT};
  if (running(all) == 0)
    return 0;
  for (;;) {
    int rc = wait_any(all, by, &at, &rows, &why);
    if (rc < 0 && at == (size_t)all->most)
      return manta_error_set(err, why.status, "%s", why.message);
    struct seat *s = &all->seat[at];
    out->trial = s->trial;
    out->saved = manta__light_saved(s->run);
    if (rc == 1) {
      out->kind = MANTA__HAPPENED_ROW;
      out->row = &rows.rows[0];
      out->iteration = rows.iteration;
      out->more = !all->c.lockstep && manta__light_more(s->run);
      if (out->row->type == MANTA_MAP)
        return 1;
      manta__light_answer(s->run, false); // rank 0 has not reported this one
      continue;
    }
    out->kind = MANTA__HAPPENED_END;
    if (rc < 0)
      out->error = why;
    out->overdue = s->overdue;
    take_result(all, s);
    out->result = &all->result;
    end_run(all, s);
    return 1;
  }
}

static void go_on(struct manta__runner *r, uint64_t trial)
{
  struct seat *s = seat_of(seats_of(r), trial);
  if (s)
    manta__light_answer(s->run, false);
}

static void stop(struct manta__runner *r, uint64_t trial)
{
  struct seat *s = seat_of(seats_of(r), trial);
  if (s)
    end_trial(s);
}

static void pause_trial(struct manta__runner *r, uint64_t trial)
{
  struct seat *s = seat_of(seats_of(r), trial);
  if (!s)
    return;
  manta_trainer_notice(s->t); // ranks of other hosts, and one that does not wait for an answer
  manta__light_answer(s->run, true);
}

static manta_status capture(struct manta__runner *r, uint64_t trial, int into,
                            struct manta__capture *out, manta_error *err)
{
  struct seat *s = seat_of(seats_of(r), trial);
  *out = (struct manta__capture){.fd = -1};
  return s ? manta__light_capture(s->run, into, &out->fd, &out->iteration, err) : MANTA_OK;
}

static void close_seats(struct manta__runner *r)
{
  struct seats *all = seats_of(r);
  for (int i = 0; i < all->most && all->seat; i++) {
    manta_run_close(all->seat[i].run);
    empty_seat(&all->seat[i]);
  }
  manta_value_fini(&all->result);
  manta__free(all->seat);
  manta__free(all->runs);
  manta__free(all);
}

static const struct manta__runner_ops seats_ops = {.room = room,
                                                   .start = start,
                                                   .next = next,
                                                   .go_on = go_on,
                                                   .stop = stop,
                                                   .pause = pause_trial,
                                                   .capture = capture,
                                                   .close = close_seats};

// --- opening -------------------------------------------------------------------------------------

static manta_status plan_trainer(struct seats *all, manta_error *err)
{
  manta_trainer_config *tc = &all->trainer;
  static const manta_trainer_config dflt = MANTA_TRAINER_CONFIG_INIT;
  MANTA_TRY(manta__config_take(tc, sizeof *tc, all->c.trainer ? all->c.trainer : &dflt,
                               "MANTA_TRAINER_CONFIG_INIT", err));
  if (tc->workers < 0)
    return manta_error_set(err, MANTA_EINVAL, "a trial has at least one worker, not %d",
                           tc->workers);
  if (tc->workers == 0)
    tc->workers = 1;
  all->soft = tc->cpus_per_worker == 0 && tc->gpus_per_worker == 0;
  if (all->soft)
    tc->cpus_per_worker = 1; // strict: so many trials as there are CPUs
  tc->quiet = true;
  tc->callbacks = NULL;
  tc->callback_count = 0;
  tc->name = all->c.name;
  tc->logdir = all->c.logdir;
  return MANTA_OK;
}

static double host_cpus(void)
{
  struct manta__host h = {0};
  double cpus = manta__host_read(&h, "", NULL) < 0 ? 1 : h.cpus;
  manta__host_fini(&h);
  return cpus;
}

// A ceiling; the accounts of the hosts say what really fits.
static int most_trials(const struct seats *all)
{
  const manta_trainer_config *tc = &all->trainer;
  if (all->c.concurrency > 0)
    return all->c.concurrency;
  double cpus = tc->cpus_per_worker * tc->workers, have = host_cpus();
  if (tc->host_count > 0 || !(cpus > 0) || have / cpus > MANTA_MAX_RANKS)
    return 256;
  return have / cpus < 1 ? 1 : (int)(have / cpus);
}

// What other runs hold, or a host that is too small, is no reason to fail where nobody has asked
// for CPUs: a trainer without cpus_per_worker shares them, and so do trials.
static manta_status share_cpus(struct seats *all, bool taken, manta_error *err)
{
  all->trainer.cpus_per_worker = 0;
  MANTA_TRY(make_seat(all, &all->seat[0], NULL, err));
  if (taken)
    manta__warn("other runs use the CPUs of this host (manta ps lists them): trials share them");
  return MANTA_OK;
}

// Without room there is no experiment; but who held it may be about to end.
static manta_status make_first(struct seats *all, manta_error *err)
{
  int64_t by = manta__deadline(all->c.wait_s);
  manta_error why = MANTA_ERROR_INIT;
  manta_status st;
  while ((st = make_seat(all, &all->seat[0], NULL, &why)) == MANTA_ENOROOM && manta__now() < by)
    usleep(10000);
  if (all->soft && (st == MANTA_ENOROOM || st == MANTA_EINVAL))
    st = share_cpus(all, st == MANTA_ENOROOM, &why);
  return st < 0 ? manta_error_set(err, st, "%s", why.message) : MANTA_OK;
}

manta_status manta__seats_open(struct manta__runner **out, const struct manta__seats_config *c,
                               manta_error *err)
{
  struct seats *all = manta__calloc(1, sizeof *all);
  if (!all)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for an experiment");
  *all = (struct seats){.ops = &seats_ops, .c = *c};
  manta_status st = plan_trainer(all, err);
  if (st == MANTA_OK) {
    all->most = all->room = most_trials(all);
    all->seat = manta__calloc((size_t)all->most, sizeof *all->seat);
    all->runs = manta__calloc((size_t)all->most, sizeof *all->runs);
    if (!all->seat || !all->runs)
      st = manta_error_set(err, MANTA_ENOMEM, "no memory for %d seats", all->most);
    for (int i = 0; st == MANTA_OK && i < all->most; i++)
      all->seat[i].all = all;
  }
  if (st == MANTA_OK)
    st = make_first(all, err);
  if (st < 0) {
    close_seats((struct manta__runner *)(void *)all);
    return st;
  }
  *out = (struct manta__runner *)(void *)all;
  return MANTA_OK;
}
