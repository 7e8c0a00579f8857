/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/tune.c - the public calls of experiments: beginning, going on with one, the end.
 */
#include <manta/tune.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/knob.h"
#include "base/value.h"
#include "event/lock.h"
#include "event/rundir.h"
#include "sys/proc.h"
#include "train/driver.h"
#include "tune/experiment.h"

#define drv           manta__drv
#define RESUME_WAIT_S 40.0 /* for the agent of a lost driver to end */

// --- the plan ------------------------------------------------------------------------------------

static manta_status copy_text(char **out, const char *text, manta_error *err)
{
  *out = text ? manta__strdup(text) : NULL;
  return text && !*out ? manta_error_set(err, MANTA_ENOMEM, "no memory for an experiment")
                       : MANTA_OK;
}

static manta_status check_config(const manta_tune_config *c, manta_error *err)
{
  if (c->samples < -1)
    return manta_error_set(err, MANTA_EINVAL, "samples is at least 1, or -1: not %lld",
                           (long long)c->samples);
  if (c->concurrency < 0 || c->max_failures < -1 || !(c->time_budget_s >= 0) ||
      !(c->trial_time_s >= 0))
    return manta_error_set(
        err, MANTA_EINVAL,
        "concurrency, max_failures, time_budget_s and trial_time_s are not negative");
  if (c->stop && c->stop->type != MANTA_MAP)
    return manta_error_set(err, MANTA_ETYPE, "stop is a map of metrics and limits");
  for (uint32_t i = 0; c->stop && i < c->stop->count; i++) {
    const manta_value *v = &c->stop->u.pairs[i].value;
    if (v->type != MANTA_INT && v->type != MANTA_REAL && v->type != MANTA_BOOL)
      return manta_error_set(err, MANTA_ETYPE, "the limit of \"%s\" in stop is a number",
                             c->stop->u.pairs[i].key);
  }
  if (c->keep_best < 0 || (c->keep_best > 0 && !c->score))
    return manta_error_set(err, MANTA_EINVAL,
                           "keep_best is not negative, and needs score: the metric to compare by");
  if (c->maximize && !c->metric)
    return manta_error_set(err, MANTA_EINVAL, "maximize needs metric, what is to be maximized");
  return MANTA_OK;
}

static const char *name_of(const manta_tune_config *c)
{
  if (c->name)
    return c->name;
  if (c->trainer && c->trainer->name)
    return c->trainer->name;
  return program_invocation_short_name;
}

static manta_status make_plan(manta_tune *t, const manta_tune_config *c, manta_error *err)
{
  struct manta__plan *p = &t->plan;
  uint64_t samples = c->samples < 0 ? UINT64_MAX : c->samples == 0 ? 1 : (uint64_t)c->samples;
  MANTA_TRY(copy_text(&p->metric, c->metric, err));
  MANTA_TRY(copy_text(&p->time_key, c->time_key ? c->time_key : "_training_iteration", err));
  MANTA_TRY(copy_text(&p->name, name_of(c), err));
  MANTA_TRY(copy_text(&p->score, c->score, err));
  p->maximize = c->maximize;
  p->stop_fn = c->stop_fn;
  p->stop_ctx = c->stop_ctx;
  p->resources_fn = c->resources_fn;
  p->resources_ctx = c->resources_ctx;
  p->explore_fn = c->explore_fn;
  p->explore_ctx = c->explore_ctx;
  p->dir_fn = c->dir_fn;
  p->dir_ctx = c->dir_ctx;
  p->max_failures = c->max_failures;
  p->fail_fast = c->fail_fast;
  p->soft_stop = c->soft_stop;
  p->budget_s = c->time_budget_s;
  if (c->stop && manta_value_copy(&p->stop, c->stop) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for an experiment");
  MANTA_TRY(manta__choice_init(&t->choice, c, err));
  p->total =
      samples > INT32_MAX / t->choice.space.grid ? INT32_MAX : samples * t->choice.space.grid;
  return MANTA_OK;
}

// Whether a trial waits for a decision about each of its rows.
static bool needs_lockstep(const manta_tune *t)
{
  const struct manta__plan *p = &t->plan;
  return t->choice.decides || p->stop_fn || p->resources_fn || p->stop.count > 0;
}

// --- what it begins with -------------------------------------------------------------------------

static manta_status describe(manta_value *v, const manta_tune_config *c, const manta_tune *t,
                             manta_error *err)
{
  manta_value argv = {0}, space = {0};
  char cwd[4096] = "";
  struct manta__exe exe;
  MANTA_TRY(manta_value_set_map(v));
  MANTA_TRY(manta__strings_to_value(&argv, drv.argv, (size_t)drv.argc));
  MANTA_TRY(manta_value_put(v, "argv", &argv));
  MANTA_TRY(manta__exe_self(&exe, err));
  MANTA_TRY(manta_value_put_string(v, "exe", exe.path));
  MANTA_TRY(manta_value_put_string(v, "cwd", getcwd(cwd, sizeof cwd) ? cwd : ""));
  MANTA_TRY(manta_value_put_int(v, "pid", getpid()));
  MANTA_TRY(manta_value_put_string(v, "metric", t->plan.metric));
  MANTA_TRY(manta_value_put_bool(v, "maximize", t->plan.maximize));
  MANTA_TRY(manta_value_put_string(v, "searcher",
                                   c->own_searcher ? "own"
                                   : c->searcher   ? c->searcher
                                                   : "random"));
  MANTA_TRY(manta_value_put_string(v, "scheduler",
                                   c->own_scheduler ? "own"
                                   : c->scheduler   ? c->scheduler
                                                    : "fifo"));
  MANTA_TRY(manta_value_put_int(v, "samples", c->samples));
  MANTA_TRY(manta_value_put_int(v, "total", (int64_t)t->plan.total));
  MANTA_TRY(manta_value_put_int(v, "seed", (int64_t)c->seed));
  MANTA_TRY(manta_value_copy(&space, &t->choice.space.spec));
  return manta_value_put(v, "space", &space);
}

// An object of another language, with a text for people: neither is the same in the next process.
static bool is_object(const manta_value *v)
{
  return v->type == MANTA_MAP && v->count == 2 &&
         (v->u.pairs[0].value.type == MANTA_BYTES || v->u.pairs[1].value.type == MANTA_BYTES);
}

static bool same(const manta_value *a, const manta_value *b)
{
  bool deep = a->type == b->type && a->count == b->count;
  if (is_object(a) && is_object(b))
    return true;
  if (!deep || (a->type != MANTA_LIST && a->type != MANTA_MAP))
    return manta_value_equal(a, b);
  for (uint32_t i = 0; deep && i < a->count; i++) {
    const manta_value *x = a->type == MANTA_LIST ? &a->u.items[i] : &a->u.pairs[i].value;
    const manta_value *y =
        a->type == MANTA_LIST ? &b->u.items[i] : manta_value_get(b, a->u.pairs[i].key);
    deep = y && same(x, y);
  }
  return deep;
}

// What would make another experiment of it.
static manta_status check_same(const manta_value *was, const manta_value *now, manta_error *err)
{
  static const char *const keys[] = {"metric",    "maximize", "searcher",
                                     "scheduler", "seed",     "space"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const manta_value *a = manta_value_get(was, keys[i]), *b = manta_value_get(now, keys[i]);
    if (a && b && !same(a, b))
      return manta_error_set(err, MANTA_EINVAL,
                             "the experiment has another %s than this program: it cannot go on "
                             "with it",
                             keys[i]);
  }
  return MANTA_OK;
}

// --- reading the log -----------------------------------------------------------------------------

struct replay {
  manta_tune *t;
  bool strict; // searcher and scheduler are there, and make the same calls
  int64_t since_ns, last_ns;
};

static manta_status read_begin(void *ctx, const manta_value *info, int64_t wall_ns,
                               manta_error *err)
{
  struct replay *r = ctx;
  if (r->since_ns)
    r->t->used_s += (double)(r->last_ns - r->since_ns) * 1e-9;
  r->since_ns = r->last_ns = wall_ns;
  r->t->over = false;
  if (r->strict && r->t->info.type == MANTA_MAP)
    MANTA_TRY(check_same(info, &r->t->info, err));
  if (r->strict)
    return MANTA_OK;
  if (manta_value_copy(&r->t->info, info) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for an experiment");
  manta__free(r->t->plan.metric);
  r->t->plan.maximize = manta_value_as_bool(manta_value_get(info, "maximize"), false);
  return copy_text(&r->t->plan.metric, manta_value_as_string(manta_value_get(info, "metric"), NULL),
                   err);
}

static manta_status read_event(void *ctx, const struct manta__event_rec *e, manta_error *err)
{
  struct replay *r = ctx;
  r->last_ns = e->wall_ns;
  return manta__experiment_apply(r->t, e, true, NULL, err);
}

static manta_status read_finish(void *ctx, int64_t wall_ns, manta_error *err)
{
  struct replay *r = ctx;
  r->last_ns = wall_ns;
  r->t->over = true;
  return MANTA_OK;
}

static manta_status read_log(manta_tune *t, bool strict, manta_error *err)
{
  struct replay r = {.t = t, .strict = strict};
  struct manta__journal_reader reader = {
      .ctx = &r, .begin = read_begin, .event = read_event, .finish = read_finish};
  MANTA_TRY(manta__journal_read(&t->journal, &reader, err));
  t->used_s += (double)(r.last_ns - r.since_ns) * 1e-9;
  return MANTA_OK;
}

// --- beginning -----------------------------------------------------------------------------------

static manta_tune *tune_alloc(void)
{
  manta_tune *t = manta__calloc(1, sizeof *t);
  if (t) {
    t->dirfd = t->journal.dirfd = -1;
    t->deadline_ns = MANTA__NEVER;
    t->sink.sock = -1;
  }
  return t;
}

static manta_status new_directory(manta_tune *t, const manta_tune_config *c, manta_error *err)
{
  char *dflt = NULL;
  const char *logdir = c->logdir ? c->logdir : c->trainer ? c->trainer->logdir : NULL;
  if (!logdir) {
    MANTA_TRY(manta__rundir_default(&dflt, err));
    logdir = dflt;
  }
  manta_status st = manta__rundir_create(logdir, name_of(c), &t->dirfd, &t->dir, err);
  manta_free(dflt);
  return st;
}

// An experiment that is named, or that `manta tune resume` goes on with; NULL: a new one.
static const char *what_to_resume(const manta_tune_config *c)
{
  static bool taken;
  if (c->resume || taken)
    return c->resume;
  taken = true;
  return manta__knob_text(MANTA__KNOB_TUNE_RESUME);
}

// One driver at a time. The lock is the kernel's: that of a dead one is gone.
static manta_status own_journal(manta_tune *t, bool create, manta_error *err)
{
  manta_status st = manta__journal_open(&t->journal, t->dirfd, create, true, err);
  pid_t pid = st == MANTA_ESTATE ? manta__runlock_holder(t->journal.dirfd) : 0;
  if (pid > 0)
    return manta_error_set(err, st,
                           "the experiment %s has a driver: process (pid %d)\nhint: it can be "
                           "resumed when that one has ended",
                           t->dir, (int)pid);
  return st;
}

static manta_status open_log(manta_tune *t, const manta_tune_config *c, manta_error *err)
{
  const char *resume = what_to_resume(c);
  t->resumed = resume != NULL; // from here on what is there is not ours to discard
  MANTA_TRY(describe(&t->info, c, t, err));
  if (resume)
    MANTA_TRY(manta__experiment_find(resume, &t->dirfd, &t->dir, err));
  else
    MANTA_TRY(new_directory(t, c, err));
  MANTA_TRY(own_journal(t, !resume, err));
  if (resume)
    MANTA_TRY(read_log(t, true, err));
  t->over &= !c->retry_failed;
  if (t->over)
    return MANTA_OK;
  MANTA_TRY(manta__journal_begin(&t->journal, &t->info, err));
  return resume ? manta__experiment_recover(t, c->retry_failed, err) : MANTA_OK;
}

// Nobody has said what is kept: the best one, too, which is what an experiment looks for.
static bool keeps_by_metric(const manta_tune_config *c)
{
  return c->metric && !c->score && c->keep_last == 0;
}

static manta_status open_runner(manta_tune *t, manta_train_fn fn, const manta_tune_config *c,
                                manta_error *err)
{
  bool by_metric = keeps_by_metric(c);
  struct manta__seats_config sc = {.fn = fn,
                                   .trainer = c->trainer,
                                   .payload = c->payload,
                                   .payload_bytes = c->payload_bytes,
                                   .name = t->plan.name,
                                   .logdir = t->dir,
                                   .concurrency = c->concurrency,
                                   .reuse = c->reuse,
                                   .lockstep = needs_lockstep(t),
                                   .keep_last = c->keep_last ? c->keep_last : 1,
                                   .keep_best = by_metric ? 1 : c->keep_best,
                                   .score = by_metric ? t->plan.metric : t->plan.score,
                                   .score_min = by_metric ? !c->maximize : c->score_min,
                                   .score_optional = by_metric,
                                   .trial_s = c->trial_time_s,
                                   .wait_s = t->resumed ? RESUME_WAIT_S : 0,
                                   .output_fn = c->output_fn,
                                   .output_ctx = c->output_ctx};
  return manta__seats_open(&t->runner, &sc, err);
}

static manta_status begin(manta_tune *t, manta_train_fn fn, const manta_tune_config *c,
                          struct manta__runner *runner, manta_error *err)
{
  MANTA_TRY(check_config(c, err));
  MANTA_TRY(manta__knobs_check(err));
  MANTA_TRY(manta__experiment_check_sinks(c, err));
  MANTA_TRY(make_plan(t, c, err));
  MANTA_TRY(open_log(t, c, err));
  manta__experiment_start_sinks(t, c);
  if (t->over)
    return MANTA_OK;
  if (t->plan.budget_s > 0)
    t->deadline_ns =
        manta__deadline(t->plan.budget_s > t->used_s ? t->plan.budget_s - t->used_s : 0);
  t->runner = runner;
  return runner ? MANTA_OK : open_runner(t, fn, c, err);
}

// A wrong argument leaves nothing behind: the newest experiment is what `resume` goes on with. If
// there is more than its log in the directory, that stays.
static void discard(manta_tune *t)
{
  if (t->resumed || t->dirfd < 0)
    return;
  manta__journal_discard(&t->journal, t->dirfd);
  rmdir(t->dir);
}

manta_status manta__experiment_start(manta_tune **out, manta_train_fn fn,
                                     const manta_tune_config *cfg, struct manta__runner *runner,
                                     manta_error *err)
{
  static const manta_tune_config dflt = MANTA_TUNE_CONFIG_INIT;
  manta_tune_config c;
  MANTA_TRY(manta__config_take(&c, sizeof c, cfg ? cfg : &dflt, "MANTA_TUNE_CONFIG_INIT", err));
  manta_tune *t = tune_alloc();
  if (!t)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for an experiment");
  manta_status st = begin(t, fn, &c, runner, err);
  if (st < 0) {
    discard(t);
    manta_tune_close(t);
  } else {
    *out = t;
  }
  return st;
}

manta_status manta_tune_start(manta_tune **out, manta_train_fn fn, const manta_tune_config *cfg,
                              manta_error *err)
{
  return manta__experiment_start(out, fn, cfg, NULL, err);
}

manta_status manta_tune_open(manta_tune **out, const char *what, manta_error *err)
{
  manta_tune_config c = MANTA_TUNE_CONFIG_INIT;
  manta_tune *t = tune_alloc();
  if (!t)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for an experiment");
  manta_status st = make_plan(t, &c, err);
  if (st == MANTA_OK)
    st = manta__experiment_find(what, &t->dirfd, &t->dir, err);
  if (st == MANTA_OK)
    st = manta__journal_open(&t->journal, t->dirfd, false, false, err);
  if (st == MANTA_OK)
    st = read_log(t, false, err);
  if (st < 0)
    manta_tune_close(t);
  else
    *out = t;
  return st;
}

// --- going on ------------------------------------------------------------------------------------

// Whoever keeps an experiment that is over, for its results, holds no CPUs with it, and others may
// go on with it.
static void let_go(manta_tune *t)
{
  t->over = true;
  manta__journal_stop(&t->journal);
  if (t->runner)
    manta__runner_ops(t->runner)->close(t->runner);
  t->runner = NULL;
  manta__experiment_end_sinks(t, t->saving);
}

int manta_tune_next(manta_tune *t, double timeout_s, manta_tune_event *out, manta_error *err)
{
  if (!t->runner && !t->over)
    return manta_error_set(err, MANTA_ESTATE, "an experiment that is only read does not go on");
  manta__experiment_step_sinks(t);
  int rc = t->over && t->out.next == t->out.count
               ? 0
               : manta__experiment_step(t, manta__deadline(timeout_s), err);
  if (rc == 1 && out)
    *out = t->out.at[t->out.next];
  t->out.next += rc == 1;
  if (rc == 0)
    let_go(t);
  return rc;
}

manta_status manta_tune_run(manta_tune **out, manta_train_fn fn, const manta_tune_config *cfg,
                            manta_error *err)
{
  manta_tune *t;
  int rc;
  MANTA_TRY(manta_tune_start(&t, fn, cfg, err));
  while ((rc = manta_tune_next(t, -1, NULL, err)) == 1)
    ;
  if (rc < 0) {
    manta_tune_close(t);
    return (manta_status)rc;
  }
  *out = t;
  return MANTA_OK;
}

void manta_tune_stop(manta_tune *t, bool save)
{
  if (t->runner)
    manta__experiment_end(t, save);
}

void manta_tune_stop_trial(manta_tune *t, uint64_t trial)
{
  if (t->runner && trial < t->trials.count)
    manta__experiment_stop(t, trial);
}

void manta_tune_close(manta_tune *t)
{
  if (!t || drv.dead) // a forked child: what runs is its parent's
    return;
  let_go(t);
  manta__journal_close(&t->journal);
  manta__choice_fini(&t->choice);
  manta__trials_fini(&t->trials);
  manta__captures_fini(t);
  manta__free(t->pending);
  manta__free(t->plan.metric);
  manta__free(t->plan.time_key);
  manta__free(t->plan.name);
  manta__free(t->plan.score);
  manta_value_fini(&t->plan.stop);
  manta_value_fini(&t->info);
  for (size_t i = 0; i < sizeof t->view / sizeof *t->view; i++)
    manta_value_fini(&t->view[i]);
  if (t->dirfd >= 0)
    close(t->dirfd);
  manta_free(t->dir);
  manta__free(t);
}
