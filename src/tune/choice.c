/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/choice.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

#define RESAMPLE     0.25
#define PB2_INTERVAL 60 /* as PBT's */

// --- options -------------------------------------------------------------------------------------

struct option {
  const char *name;
  double *real;
  int *integer;
  const manta_value **list;
};

static manta_status take_one(const struct option *all, size_t count, const manta_pair *p,
                             const char *whose, manta_error *err)
{
  for (size_t i = 0; i < count; i++) {
    if (strcmp(all[i].name, p->key) != 0)
      continue;
    if (all[i].list) {
      *all[i].list = &p->value;
      return MANTA_OK;
    }
    double x = manta_value_as_real(&p->value, NAN);
    if (!isfinite(x) || (all[i].integer && x != floor(x)))
      return manta_error_set(err, MANTA_ETYPE, "option \"%s\" of the %s is a number", p->key,
                             whose);
    if (all[i].integer)
      *all[i].integer = (int)x;
    else
      *all[i].real = x;
    return MANTA_OK;
  }
  return manta_error_set(err, MANTA_EINVAL, "the %s has no option \"%s\"", whose, p->key);
}

static manta_status take_options(const struct option *all, size_t count, const manta_value *v,
                                 const char *whose, manta_error *err)
{
  if (!v || v->type == MANTA_NIL)
    return MANTA_OK;
  if (v->type != MANTA_MAP)
    return manta_error_set(err, MANTA_ETYPE, "the options of the %s are a map", whose);
  for (uint32_t i = 0; i < v->count; i++)
    MANTA_TRY(take_one(all, count, &v->u.pairs[i], whose, err));
  return MANTA_OK;
}

static manta_status make_searcher(struct manta__choosers *c, const manta_tune_config *cfg,
                                  manta_error *err)
{
  struct manta__search_config sc = {.seed = cfg->seed};
  const struct option options[] = {{"startup", NULL, &sc.startup, NULL},
                                   {"candidates", NULL, &sc.candidates, NULL},
                                   {"population", NULL, &sc.population, NULL},
                                   {"sigma", &sc.sigma, NULL, NULL}};
  const char *name = cfg->searcher ? cfg->searcher : "random";
  MANTA_TRY(take_options(options, 4, cfg->searcher_options, "searcher", err));
  c->learns |= strcmp(name, "random") != 0;
  return manta__searcher_create(&c->searcher, name, &c->space, &sc, err);
}

/* Every dimension that the list does not name keeps its value when a trial is copied. */
static manta_status name_fixed(struct manta__choosers *c, const manta_value *only, manta_error *err)
{
  int n = c->space.count;
  if (only->type != MANTA_LIST)
    return manta_error_set(err, MANTA_ETYPE, "option \"only\" of the scheduler is a list of paths");
  c->fixed = manta__calloc((size_t)n + 1, sizeof *c->fixed);
  if (!c->fixed)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a scheduler");
  for (int i = 0; i < n; i++)
    c->fixed[i] = true;
  for (uint32_t k = 0; k < only->count; k++) {
    const char *path = manta_value_as_string(&only->u.items[k], "");
    bool found = false;
    for (int i = 0; i < n; i++)
      if (strcmp(c->space.dims[i].path, path) == 0) {
        c->fixed[i] = false;
        found = true;
      }
    if (!found)
      return manta_error_set(err, MANTA_EINVAL,
                             "the scheduler is to change \"%s\", which the space "
                             "has no domain for",
                             path);
  }
  return MANTA_OK;
}

static manta_status make_scheduler(struct manta__choosers *c, const manta_tune_config *cfg,
                                   manta_error *err)
{
  struct manta__schedule_config sc = {.seed = cfg->seed};
  const manta_value *only = NULL;
  const struct option options[] = {{"max_time", &sc.max_time, NULL, NULL},
                                   {"grace", &sc.grace, NULL, NULL},
                                   {"factor", &sc.factor, NULL, NULL},
                                   {"brackets", NULL, &sc.brackets, NULL},
                                   {"interval", &sc.interval, NULL, NULL},
                                   {"least_trials", NULL, &sc.least_trials, NULL},
                                   {"quantile", &sc.quantile, NULL, NULL},
                                   {"resample", &sc.resample, NULL, NULL},
                                   {"only", NULL, NULL, &only}};
  const char *name = cfg->scheduler ? cfg->scheduler : "fifo";
  sc.resample = RESAMPLE;
  MANTA_TRY(take_options(options, 9, cfg->scheduler_options, "scheduler", err));
  c->resample = sc.resample;
  c->decides = strcmp(name, "fifo") != 0;
  c->learns |= c->decides;
  bool pb2 = !strcmp(name, "pb2"); // decides as PBT does, and explores in its own way
  if (pb2 && !c->searcher)
    return manta_error_set(err, MANTA_EINVAL, "pb2 needs a space, which own_searcher has not");
  if (only)
    MANTA_TRY(name_fixed(c, only, err));
  if (pb2)
    MANTA_TRY(
        manta__pb2_init(&c->pb2, &c->space, sc.interval > 0 ? sc.interval : PB2_INTERVAL, err));
  c->pb2.fixed = c->fixed;
  return manta__scheduler_create(&c->scheduler, pb2 ? "pbt" : name, &sc, err);
}

manta_status manta__choice_init(struct manta__choosers *c, const manta_tune_config *cfg,
                                manta_error *err)
{
  static const manta_value empty = {.type = MANTA_MAP};
  *c = (struct manta__choosers){.seed = cfg->seed};
  MANTA_TRY(manta__space_init(&c->space, cfg->space ? cfg->space : &empty, err));
  if (cfg->own_searcher) {
    c->own_searcher = *cfg->own_searcher;
    c->learns = true;
    if (!c->own_searcher.suggest)
      return manta_error_set(err, MANTA_EINVAL, "own_searcher has no `suggest`");
  } else {
    MANTA_TRY(make_searcher(c, cfg, err));
  }
  if (cfg->own_scheduler) {
    c->own_scheduler = *cfg->own_scheduler;
    c->decides = true;
  } else {
    MANTA_TRY(make_scheduler(c, cfg, err));
  }
  if (c->learns && !cfg->metric && !cfg->own_searcher)
    return manta_error_set(
        err, MANTA_EINVAL,
        "this searcher or scheduler compares trials: metric must name what they report");
  return MANTA_OK;
}

void manta__choice_fini(struct manta__choosers *c)
{
  manta__searcher_destroy(c->searcher);
  manta__scheduler_destroy(c->scheduler);
  manta__pb2_fini(&c->pb2);
  manta__free(c->fixed);
  manta__space_fini(&c->space);
  *c = (struct manta__choosers){0};
}

// --- calls ---------------------------------------------------------------------------------------

int manta__choice_suggest(struct manta__choosers *c, uint64_t number, bool again,
                          manta_value *config, manta_error *err)
{
  if (!c->searcher) {
    int rc = c->own_searcher.suggest(c->own_searcher.ctx, number, again, config, err);
    if (rc == 1 && config->type != MANTA_MAP)
      return manta_error_set(err, MANTA_ETYPE, "the searcher's config of trial %llu is no map",
                             (unsigned long long)number);
    return rc;
  }
  double *point = manta__calloc((size_t)c->space.count + 1, sizeof *point);
  if (!point)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a trial");
  manta_status st = manta__searcher_propose(c->searcher, number, point, err);
  if (st == MANTA_OK && !again)
    st = manta__space_config(&c->space, point, config, err);
  manta__free(point);
  return st < 0 ? (int)st : 1;
}

manta_status manta__choice_begin(struct manta__choosers *c, uint64_t number,
                                 const manta_value *config, manta_error *err)
{
  if (c->scheduler)
    return manta__scheduler_begin(c->scheduler, number, err);
  return c->own_scheduler.begin ? c->own_scheduler.begin(c->own_scheduler.ctx, number, config, err)
                                : MANTA_OK;
}

static const double *point_of(const struct manta__choosers *c, uint64_t number)
{
  const struct manta__search *h = c->searcher ? manta__search_of(c->searcher) : NULL;
  return h && number < (uint64_t)h->count ? h->samples[number].point : NULL;
}

manta_status manta__choice_report(struct manta__choosers *c, uint64_t number, double time,
                                  double value, const double *point, const manta_value *row,
                                  manta_decision *out, manta_error *err)
{
  struct manta__decision d = {0};
  *out = (manta_decision){.trial = number};
  c->yields = false;
  if (!c->searcher && c->own_searcher.report)
    MANTA_TRY(c->own_searcher.report(c->own_searcher.ctx, number, row, err));
  if (!c->scheduler)
    return c->own_scheduler.report
               ? c->own_scheduler.report(c->own_scheduler.ctx, number, row, out, err)
               : MANTA_OK;
  if (!c->decides)
    return MANTA_OK;
  if (c->pb2.seen)
    MANTA_TRY(
        manta__pb2_observe(&c->pb2, number, point ? point : point_of(c, number), time, value, err));
  MANTA_TRY(manta__scheduler_report(c->scheduler, number, time, value, &d, err));
  out->verdict = (manta_verdict)d.verdict; // the same in the same order
  out->from = d.from;
  c->yields = d.yields;
  return MANTA_OK;
}

void manta__choice_copied(struct manta__choosers *c, uint64_t number)
{
  if (c->pb2.seen)
    manta__pb2_forget(&c->pb2, number);
  if (c->scheduler)
    manta__scheduler_copied(c->scheduler, number);
}

void manta__choice_saved(struct manta__choosers *c, uint64_t number)
{
  if (c->scheduler)
    manta__scheduler_saved(c->scheduler, number);
  else if (c->own_scheduler.saved)
    c->own_scheduler.saved(c->own_scheduler.ctx, number);
}

manta_status manta__choice_end(struct manta__choosers *c, uint64_t number, double value,
                               const manta_value *row, bool failed, manta_error *err)
{
  if (c->scheduler)
    manta__scheduler_end(c->scheduler, number);
  else if (c->own_scheduler.end)
    c->own_scheduler.end(c->own_scheduler.ctx, number, row);
  if (c->searcher)
    manta__searcher_observe(c->searcher, number, failed ? INFINITY : value);
  else if (c->own_searcher.complete)
    return c->own_searcher.complete(c->own_searcher.ctx, number, row, failed, err);
  return MANTA_OK;
}

void manta__choice_close(struct manta__choosers *c)
{
  if (c->scheduler)
    manta__scheduler_close(c->scheduler);
  else if (c->own_scheduler.close)
    c->own_scheduler.close(c->own_scheduler.ctx);
}

int manta__choice_next(struct manta__choosers *c, manta_decision *out, manta_error *err)
{
  struct manta__decision d;
  *out = (manta_decision){0};
  if (!c->scheduler)
    return c->own_scheduler.next ? c->own_scheduler.next(c->own_scheduler.ctx, out, err) : 0;
  if (!manta__scheduler_next(c->scheduler, &d))
    return 0;
  *out = (manta_decision){.trial = d.trial, .verdict = (manta_verdict)d.verdict, .from = d.from};
  return 1;
}

manta_status manta__choice_explore(struct manta__choosers *c, uint64_t number, const double *from,
                                   uint64_t turn, double **point, manta_value *config,
                                   manta_error *err)
{
  *point = NULL;
  if (!c->searcher)
    return MANTA_OK;
  from = from ? from : point_of(c, number);
  double *to = manta__calloc((size_t)c->space.count + 1, sizeof *to);
  if (!to || !from) {
    manta__free(to);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a trial");
  }
  manta__explore(&c->space, from, c->fixed, c->resample, c->seed, turn, to);
  manta_status st = c->pb2.seen ? manta__pb2_propose(&c->pb2, c->seed, turn, to, err) : MANTA_OK;
  if (st == MANTA_OK)
    st = manta__space_config(&c->space, to, config, err);
  if (st < 0)
    manta__free(to);
  else
    *point = to;
  return st;
}
