/* SPDX-License-Identifier: Apache-2.0
 *
 * What holds under every scheduler, also under one that decides at random, with trials that fail,
 * pause, change their resources and are copied, and with drivers that are gone at any moment:
 * everybody ends, who has had the fewest turns begins first, no row is missing, and nobody is a
 * copy of one without a checkpoint, or of itself.
 */
#include "setting.h"

#define TRIALS 40
#define CALLS  60 /* of a trial, after which it is left alone */

// --- a scheduler without a plan ------------------------------------------------------------------

struct chaos {
  uint64_t seed, trials;
  uint64_t calls[TRIALS];
  bool paused[TRIALS], closed;
};

// The same in the same order, so that the log can be read again.
static struct manta__rng draw(struct chaos *c, uint64_t trial)
{
  return manta__rng_of(c->seed * TRIALS + trial, c->calls[trial]++);
}

static manta_status begin_chaos(void *ctx, uint64_t trial, const manta_value *config,
                                manta_error *err)
{
  ((struct chaos *)ctx)->trials = trial + 1;
  return MANTA_OK;
}

static manta_status report_chaos(void *ctx, uint64_t trial, const manta_value *row,
                                 manta_decision *out, manta_error *err)
{
  struct chaos *c = ctx;
  struct manta__rng rng = draw(c, trial);
  double u = manta__rng_unit(&rng);
  if (c->calls[trial] > CALLS)
    return MANTA_OK;
  if (u < 0.15) {
    out->verdict = MANTA_TRIAL_PAUSE;
    c->paused[trial] = true;
  } else if (u < 0.35) { // also of itself, of one that has not saved, and of one that is not there
    out->verdict = MANTA_TRIAL_COPY;
    out->from = manta__rng_below(&rng, c->trials + 1);
  } else if (u < 0.37) {
    out->verdict = MANTA_TRIAL_STOP;
  } else if (u < 0.45) {
    MANTA_TRY(manta_value_set_map(&out->config));
    return manta_value_put_int(&out->config, "cpus", 1 + (int64_t)manta__rng_below(&rng, 3));
  }
  return MANTA_OK;
}

static void end_chaos(void *ctx, uint64_t trial, const manta_value *row)
{
  ((struct chaos *)ctx)->paused[trial] = false;
}

static void close_chaos(void *ctx)
{
  ((struct chaos *)ctx)->closed = true;
}

static int next_chaos(void *ctx, manta_decision *out, manta_error *err)
{
  struct chaos *c = ctx;
  uint64_t paused = 0, lowest = TRIALS;
  for (uint64_t i = c->trials; i-- > 0;)
    if (c->paused[i]) {
      paused++;
      lowest = i;
    }
  if (paused == 0 || (!c->closed && paused < 3))
    return 0;
  struct manta__rng rng = draw(c, lowest);
  c->paused[lowest] = false;
  out->trial = lowest;
  out->verdict = manta__rng_unit(&rng) < 0.1 ? MANTA_TRIAL_STOP : MANTA_TRIAL_GO_ON;
  return 1;
}

// --- what must hold ------------------------------------------------------------------------------

struct watch {
  manta_tune *t;
  struct sim *sim;
  int64_t at[TRIALS]; /* iteration of the newest row, or of what a copy began from */
  uint64_t events, copies, pauses, begins;
};

// Copies that the last driver had decided upon were made when the log was read.
static void begin_watch(struct watch *w)
{
  for (uint64_t i = 0; i < w->t->trials.count; i++) {
    const struct manta__trial *x = &w->t->trials.at[i];
    w->at[i] = x->iteration;
    if (x->copied > 0 && x->copied == x->attempt)
      w->sim->disk[i] = 0;
  }
}

static void check(struct watch *w, const manta_tune_event *e)
{
  const struct manta__trial *x = &w->t->trials.at[e->trial];
  w->events++;
  w->pauses += e->kind == MANTA_TUNE_PAUSED;
  if (e->kind == MANTA_TUNE_ROW)
    assert_int_equal(x->iteration, w->at[e->trial] + 1);
  if (e->kind == MANTA_TUNE_ROW || e->kind == MANTA_TUNE_BEGAN || e->kind == MANTA_TUNE_COPIED)
    w->at[e->trial] = x->iteration; // others may be told behind a row, and taken before it
  if (e->kind == MANTA_TUNE_COPIED) {
    assert_true(e->from != e->trial && e->from < w->t->trials.count);
    assert_true(w->t->trials.at[e->from].attempt > 0);
    w->sim->disk[e->trial] = 0; // what it saved before is none of its own any more
    w->copies++;
  }
  for (size_t i = 0; e->kind == MANTA_TUNE_BEGAN && i < w->t->pending_count; i++) {
    uint64_t other = w->t->pending[i], turns = w->t->trials.at[other].turns;
    assert_true(turns > x->turns || (turns == x->turns && other > e->trial)); // else it may starve
  }
  w->begins += e->kind == MANTA_TUNE_BEGAN;
}

// At most `events` of them; true: it is over.
static bool take_checked(struct watch *w, uint64_t events)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_tune_event e;
  int rc = 1;
  for (uint64_t i = 0; i < events && rc == 1; i++)
    if ((rc = manta_tune_next(w->t, -1, &e, &err)) == 1)
      check(w, &e);
  assert_ok(rc, &err);
  return rc == 0;
}

// Other resources now and then; not asked again for what is in the log.
static int any_resources(void *ctx, uint64_t trial, const manta_value *row, manta_value *out)
{
  struct manta__rng *rng = ctx;
  if (manta__rng_unit(rng) >= 0.05)
    return 0;
  assert_int_equal(manta_value_set_map(out), MANTA_OK);
  assert_int_equal(manta_value_put_int(out, "cpus", 2), MANTA_OK);
  return 1;
}

struct case_of {
  struct setting s;
  struct sim sim;
  struct manta__rng rng;
  struct chaos chaos;
  manta_scheduler own;
  char *dir, path[PATH_MAX];
  uint64_t apart; /* events of a driver, at most; 0: it lives */
};

// Its copies take a while, also when they are read.
static bool is_pb2(size_t which)
{
  return which < SCHEDULERS && !strcmp(schedulers[which], "pb2");
}

// `which`: a scheduler of ours, or one more: chaos.
static void make_case(struct case_of *k, uint64_t seed, size_t which, bool dies)
{
  *k = (struct case_of){.dir = scratch_make(), .rng = manta__rng_of(seed, 9)};
  k->sim = make_sim(seed);
  make_setting(&k->s, k->dir, which < SCHEDULERS ? schedulers[which] : "fifo", seed);
  k->s.c.samples = is_pb2(which) ? 8 : 1 + (int64_t)(seed % TRIALS);
  k->apart = !dies ? 0 : is_pb2(which) ? 300 : 60;
  k->s.c.max_failures = -1;
  k->sim.fail *= 2;
  if (seed % 2) {
    k->s.c.resources_fn = any_resources;
    k->s.c.resources_ctx = &k->rng;
  }
  k->own = (manta_scheduler){.ctx = &k->chaos,
                             .begin = begin_chaos,
                             .report = report_chaos,
                             .end = end_chaos,
                             .close = close_chaos,
                             .next = next_chaos};
  k->chaos.seed = seed;
  if (which == SCHEDULERS)
    k->s.c.own_scheduler = &k->own;
}

static void die(struct case_of *k, struct watch *w)
{
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta__journal_flush(&w->t->journal, &err), &err);
  for (int i = 0; i < k->sim.seats; i++)
    if (k->sim.seat[i].taken)
      k->sim.disk[k->sim.seat[i].trial] = k->sim.seat[i].saved;
  manta_tune_close(w->t);
  k->s.c.resume = k->path;
  k->chaos = (struct chaos){.seed = k->chaos.seed};
  w->t = open_experiment(&k->sim, &k->s);
  begin_watch(w);
}

static void run_case(struct case_of *k, struct watch *w)
{
  *w = (struct watch){.sim = &k->sim,
                      .events = w->events,
                      .copies = w->copies,
                      .pauses = w->pauses,
                      .begins = w->begins};
  w->t = open_experiment(&k->sim, &k->s);
  snprintf(k->path, sizeof k->path, "%s", manta_tune_dir(w->t));
  while (!take_checked(w, k->apart > 0 ? 1 + manta__rng_below(&k->rng, k->apart) : 1000000))
    die(k, w);
  assert_all_ended(w->t, k->s.c.samples);
  manta_tune_close(w->t);
  drop_setting(&k->s);
  scratch_remove(k->dir);
}

static void try_all(uint64_t cases, bool dies)
{
  for (size_t which = 0; which <= SCHEDULERS; which++) {
    bool pb2 = is_pb2(which), copies = which >= SCHEDULERS - 2; // pbt, pb2, chaos
    struct watch w = {0};
    for (uint64_t i = 0; i < cases; i += pb2 ? 16 : 1) {
      struct case_of k;
      make_case(&k, 7 + i + 100 * which, which, dies);
      run_case(&k, &w);
    }
    assert_true(w.events > (pb2 ? 100 : 100 * cases));
    assert_true(!copies || w.copies > 5);
    assert_true(which != SCHEDULERS || w.pauses > 10);
  }
}

static void it_holds_under_every_scheduler(void **state)
{
  try_all(32, false);
}

static void it_holds_when_drivers_die(void **state)
{
  try_all(16, true);
}

int main(int argc, char **argv)
{
  manta_set_log(say_nothing, NULL);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_holds_under_every_scheduler),
      cmocka_unit_test(it_holds_when_drivers_die),
  };
  return cmocka_run_group_tests_name("property", tests, NULL, NULL);
}
