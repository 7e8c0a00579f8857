/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/experiment.c - what is due: trials that can begin, decisions to carry out, and what those
 * that run tell.
 */
#include "tune/experiment.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

static const struct manta__runner_ops *ops(const manta_tune *t)
{
  return manta__runner_ops(t->runner);
}

void manta__trial_dir(char name[MANTA__TRIAL_DIR_MAX], uint64_t number)
{
  snprintf(name, MANTA__TRIAL_DIR_MAX, "trial_%05llu", (unsigned long long)number);
}

void manta__experiment_tell(manta_tune *t, manta_event_kind kind, uint64_t trial, uint64_t from,
                            const manta_value *row, const char *message)
{
  struct manta__outbox *o = &t->out;
  if (o->next == o->count)
    o->next = o->count = 0;
  if (o->count == (int)(sizeof o->at / sizeof *o->at))
    return; // not more than a step can say
  snprintf(o->message, sizeof o->message, "%s", message ? message : "");
  o->at[o->count++] = (manta_tune_event){kind, trial, from, row, o->message};
}

static bool note(manta_tune *t, struct manta__event_rec e, manta_status *st, manta_error *err)
{
  *st = manta__experiment_note(t, &e, NULL, err);
  return *st == MANTA_OK;
}

// --- captures ------------------------------------------------------------------------------------

static struct manta__capture *capture_of(manta_tune *t, uint64_t number)
{
  for (int i = 0; i < t->capture_count; i++)
    if (t->captured[i] == number)
      return &t->captures[i];
  return NULL;
}

static void drop_capture(manta_tune *t, uint64_t number)
{
  struct manta__capture *c = capture_of(t, number);
  if (!c)
    return;
  close(c->fd);
  t->captured[c - t->captures] = MANTA__NO_TRIAL;
}

static manta_status keep_capture(manta_tune *t, uint64_t number, struct manta__capture c,
                                 manta_error *err)
{
  struct manta__capture *place = capture_of(t, MANTA__NO_TRIAL);
  if (!place) {
    size_t n = (size_t)t->capture_count + 1;
    struct manta__capture *all = manta__realloc(t->captures, n * sizeof *all);
    t->captures = all ? all : t->captures;
    uint64_t *whose = manta__realloc(t->captured, n * sizeof *whose);
    t->captured = whose ? whose : t->captured;
    if (!all || !whose) {
      close(c.fd);
      return manta_error_set(err, MANTA_ENOMEM, "no memory for a copy");
    }
    place = &t->captures[t->capture_count++];
  }
  *place = c;
  t->captured[place - t->captures] = number;
  return MANTA_OK;
}

// --- beginning -----------------------------------------------------------------------------------

// 1: there is a new one; 0: not now, or no more.
static int make_trial(manta_tune *t, manta_error *err)
{
  manta_value config = {0};
  manta_status st;
  int rc = t->trials.count >= t->plan.total
               ? 0
               : manta__choice_suggest(&t->choice, t->trials.count, false, &config, err);
  if (rc == 0)
    note(t, (struct manta__event_rec){.what = MANTA__T_CLOSED}, &st, err);
  else if (rc == 1)
    note(
        t,
        (struct manta__event_rec){.what = MANTA__T_NEW, .trial = t->trials.count, .value = &config},
        &st, err);
  else
    st = rc < 0 ? (manta_status)rc : MANTA_OK;
  manta_value_fini(&config);
  t->waits = rc == 2;
  return st < 0 ? (int)st : rc == 1;
}

static uint64_t choose_pending(const manta_tune *t)
{
  const manta_scheduler *own = &t->choice.own_scheduler;
  int at = own->choose ? own->choose(own->ctx, t->pending, t->pending_count) : -1;
  if (at >= 0 && (size_t)at < t->pending_count)
    return t->pending[at];
  uint64_t least = t->pending[0];
  for (size_t i = 1; i < t->pending_count; i++)
    least = t->pending[i] < least ? t->pending[i] : least;
  return least;
}

static manta_status start_trial(manta_tune *t, uint64_t number, manta_error *err)
{
  struct manta__trial *x = &t->trials.at[number];
  char name[MANTA__TRIAL_DIR_MAX], dir[4200];
  manta_value config = {0}, resources = {0};
  manta__trial_dir(name, number);
  snprintf(dir, sizeof dir, "%s/%s", t->dir, name);
  if (mkdirat(t->dirfd, name, 0755) < 0 && errno != EEXIST)
    return manta_error_set(err, MANTA_EIO, "mkdir %s: %m", dir);
  MANTA_TRY(manta__packed_get(&x->config, &config, err));
  manta_status st = manta__packed_get(&x->resources, &resources, err);
  struct manta__launch l = {.trial = number,
                            .attempt = x->attempt,
                            .config = &config,
                            .dir = dir,
                            .fresh = x->attempt == 0,
                            .adopted = x->ran,
                            .from = capture_of(t, number),
                            .resources = resources.type == MANTA_MAP ? &resources : NULL};
  if (st == MANTA_OK)
    st = ops(t)->start(t->runner, &l, err);
  manta_value_fini(&config);
  manta_value_fini(&resources);
  return st;
}

static manta_status begin_trial(manta_tune *t, uint64_t number, manta_error *err)
{
  manta_status st = start_trial(t, number, err);
  if (st < 0)
    return st;
  drop_capture(t, number);
  note(t,
       (struct manta__event_rec){
           .what = MANTA__T_BEGAN, .trial = number, .attempt = t->trials.at[number].attempt},
       &st, err);
  manta__experiment_tell(t, MANTA_TUNE_BEGAN, number, MANTA__NO_TRIAL, NULL, NULL);
  return st;
}

// Fills the room that there is, one at a time: what is told is told before more begins.
static manta_status begin_due(manta_tune *t, manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  uint64_t running = t->trials.in_state[MANTA_TRIAL_RUNNING];
  if (t->ending || (int)running >= ops(t)->room(t->runner))
    return MANTA_OK;
  if (t->pending_count == 0 && !t->closed && !t->waits) {
    int rc = make_trial(t, err);
    if (rc < 0)
      return (manta_status)rc;
  }
  if (t->pending_count == 0)
    return MANTA_OK;
  manta_status st = begin_trial(t, choose_pending(t), &why);
  if (st == MANTA_ENOROOM && running > 0)
    return MANTA_OK; // when others have ended
  return st < 0 ? manta_error_set(err, st, "%s", why.message) : MANTA_OK;
}

// --- decisions about those that are paused -------------------------------------------------------

static manta_status pop_decisions(manta_tune *t, manta_error *err)
{
  manta_decision d;
  int rc;
  while (!t->ending && (rc = manta__choice_next(&t->choice, &d, err)) != 0) {
    manta_status st;
    manta_value_fini(&d.config);
    if (rc < 0)
      return (manta_status)rc;
    if (d.trial >= t->trials.count)
      return manta_error_set(err, MANTA_EINVAL, "the scheduler decides about trial %llu of %llu",
                             (unsigned long long)d.trial, (unsigned long long)t->trials.count);
    note(t,
         (struct manta__event_rec){
             .what = MANTA__T_POPPED, .trial = d.trial, .verdict = (int)d.verdict, .from = d.from},
         &st, err);
    MANTA_TRY(st);
    if (manta__trial_ended(&t->trials.at[d.trial])) {
      manta__experiment_tell(t, MANTA_TUNE_ENDED, d.trial, MANTA__NO_TRIAL, NULL, NULL);
      return MANTA_OK; // it is told first
    }
  }
  return MANTA_OK;
}

// --- what those that run tell --------------------------------------------------------------------

static manta_status note_saved(manta_tune *t, const struct manta__happening *h, manta_error *err)
{
  manta_status st = MANTA_OK;
  const struct manta__trial *x = &t->trials.at[h->trial];
  if (h->saved > 0 && (h->saved > x->saved_at || !x->saved) &&
      note(t,
           (struct manta__event_rec){
               .what = MANTA__T_SAVED, .trial = h->trial, .iteration = h->saved},
           &st, err))
    manta__experiment_tell(t, MANTA_TUNE_SAVED, h->trial, MANTA__NO_TRIAL, NULL, NULL);
  return st;
}

// The names there are, for one that is not.
static manta_status refuse_row(const manta_tune *t, const struct manta__happening *h,
                               manta_error *err)
{
  char names[512] = "";
  size_t at = 0;
  for (uint32_t i = 0; i < h->row->count && at < sizeof names; i++) {
    int n = snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", h->row->u.pairs[i].key);
    at += n > 0 ? (size_t)n : 0;
  }
  return manta_error_set(err, MANTA_EINVAL,
                         "trial %llu does not report the metric \"%s\"; it reports %s",
                         (unsigned long long)h->trial, t->plan.metric, names);
}

static manta_status act(manta_tune *t, uint64_t number, const struct manta__outcome *o,
                        manta_error *err)
{
  struct manta__trial *x = &t->trials.at[number];
  struct manta__capture c = {.fd = -1};
  switch (o->verdict) {
  case MANTA_TRIAL_STOP:
    ops(t)->stop(t->runner, number);
    return MANTA_OK;
  case MANTA_TRIAL_PAUSE:
    ops(t)->pause(t->runner, number);
    return MANTA_OK;
  case MANTA_TRIAL_COPY:
    MANTA_TRY(ops(t)->capture(t->runner, x->from, &c, err));
    if (c.fd >= 0)
      MANTA_TRY(keep_capture(t, number, c, err));
    ops(t)->stop(t->runner, number);
    return MANTA_OK;
  default:
    ops(t)->go_on(t->runner, number);
    return MANTA_OK;
  }
}

static manta_status ask_resources(manta_tune *t, const struct manta__happening *h,
                                  struct manta__outcome *o, manta_error *err)
{
  const struct manta__plan *p = &t->plan;
  manta_value want = {0};
  manta_status st = MANTA_OK;
  if (p->resources_fn && p->resources_fn(p->resources_ctx, h->trial, h->row, &want) == 1) {
    note(t,
         (struct manta__event_rec){.what = MANTA__T_RESOURCES, .trial = h->trial, .value = &want},
         &st, err);
    o->verdict = MANTA_TRIAL_PAUSE;
  }
  manta_value_fini(&want);
  return st;
}

static void end_all(manta_tune *t, bool save)
{
  if (t->ending)
    return;
  t->ending = true;
  t->saving = save;
  for (uint64_t i = 0; i < t->trials.count; i++)
    if (t->trials.at[i].state == MANTA_TRIAL_RUNNING)
      (save ? ops(t)->pause : ops(t)->stop)(t->runner, i);
}

static manta_status on_row(manta_tune *t, const struct manta__happening *h, manta_error *err)
{
  const struct manta__trial *x = &t->trials.at[h->trial];
  struct manta__outcome o;
  MANTA_TRY(note_saved(t, h, err));
  if (h->iteration <= x->iteration) { // seen before it was begun again
    ops(t)->go_on(t->runner, h->trial);
    return MANTA_OK;
  }
  bool first = x->last.bytes == NULL;
  if (first && t->choice.learns && t->plan.metric && !manta__row_metric(h->row, t->plan.metric))
    return refuse_row(t, h, err);
  bool leaving = x->asked != MANTA_TRIAL_GO_ON;
  struct manta__event_rec e = {.what = MANTA__T_ROW,
                               .trial = h->trial,
                               .attempt = x->attempt,
                               .iteration = h->iteration,
                               .value = h->row};
  MANTA_TRY(manta__experiment_note(t, &e, &o, err));
  t->waits = false;
  manta__experiment_tell(t, MANTA_TUNE_ROW, h->trial, MANTA__NO_TRIAL, h->row, NULL);
  MANTA_TRY(manta__journal_flush(&t->journal, err));
  if (o.end_all)
    end_all(t, false);
  if (leaving || t->ending) {
    ops(t)->go_on(t->runner, h->trial);
    return MANTA_OK;
  }
  if (o.verdict == MANTA_TRIAL_GO_ON)
    MANTA_TRY(ask_resources(t, h, &o, err));
  return act(t, h->trial, &o, err);
}

// The config of a copy: the scheduler's, or the caller's, or one near that of the other trial.
static manta_status explore(manta_tune *t, uint64_t number, manta_value *config, manta_error *err)
{
  const struct manta__plan *p = &t->plan;
  const struct manta__trial *x = &t->trials.at[number], *from = &t->trials.at[x->from];
  double *point = NULL;
  MANTA_TRY(manta__packed_get(&x->wanted, config, err));
  if (config->type == MANTA_MAP)
    return MANTA_OK;
  if (!p->explore_fn)
    MANTA_TRY(manta__choice_explore(&t->choice, x->from, from->point,
                                    manta__copy_turn(number, x->attempt), &point, config, err));
  manta__free(point);
  if (config->type != MANTA_MAP)
    MANTA_TRY(manta__packed_get(&from->config, config, err));
  return p->explore_fn ? p->explore_fn(p->explore_ctx, number, config, err) : MANTA_OK;
}

static manta_status finish_copy(manta_tune *t, uint64_t number, manta_error *err)
{
  struct manta__trial *x = &t->trials.at[number];
  const struct manta__capture *c = capture_of(t, number);
  manta_value config = {0};
  manta_status st = explore(t, number, &config, err);
  if (st == MANTA_OK && note(t,
                             (struct manta__event_rec){.what = MANTA__T_COPIED,
                                                       .trial = number,
                                                       .from = x->from,
                                                       .iteration = c ? c->iteration : x->saved_at,
                                                       .value = &config},
                             &st, err))
    manta__experiment_tell(t, MANTA_TUNE_COPIED, number, x->from, NULL, NULL);
  manta_value_fini(&config);
  return st;
}

static manta_status end_trial(manta_tune *t, uint64_t number, manta_trial_state state,
                              const manta_value *result, const char *message, manta_error *err)
{
  manta_status st;
  drop_capture(t, number);
  if (note(t,
           (struct manta__event_rec){.what = MANTA__T_ENDED,
                                     .trial = number,
                                     .state = (int)state,
                                     .value = result && result->type != MANTA_NIL ? result : NULL,
                                     .message = message},
           &st, err))
    manta__experiment_tell(t, MANTA_TUNE_ENDED, number, MANTA__NO_TRIAL, NULL, message);
  t->waits = false;
  return st;
}

static manta_status fail_trial(manta_tune *t, const struct manta__happening *h, manta_error *err)
{
  manta_status st;
  int most = t->plan.max_failures;
  if (most >= 0 && t->trials.at[h->trial].failures >= most) {
    st = end_trial(t, h->trial, MANTA_TRIAL_FAILED, h->result, h->error.message, err);
    if (t->plan.fail_fast)
      end_all(t, false);
    return st;
  }
  if (note(t,
           (struct manta__event_rec){
               .what = MANTA__T_FAILED, .trial = h->trial, .message = h->error.message},
           &st, err))
    manta__experiment_tell(t, MANTA_TUNE_FAILED, h->trial, MANTA__NO_TRIAL, NULL, h->error.message);
  return st;
}

static manta_status pause_trial(manta_tune *t, uint64_t number, manta_error *err)
{
  manta_status st;
  if (note(t, (struct manta__event_rec){.what = MANTA__T_PAUSED, .trial = number}, &st, err))
    manta__experiment_tell(t, MANTA_TUNE_PAUSED, number, MANTA__NO_TRIAL, NULL, NULL);
  if (st == MANTA_OK && manta__trial_ended(&t->trials.at[number]))
    manta__experiment_tell(t, MANTA_TUNE_ENDED, number, MANTA__NO_TRIAL, NULL, NULL);
  return st;
}

// Not in the log: whoever goes on with the experiment finds it running, and runs it again.
static manta_status leave_trial(manta_tune *t, uint64_t number, manta_error *err)
{
  return manta__trials_move(&t->trials, number, MANTA_TRIAL_PENDING, err);
}

static manta_status on_end(manta_tune *t, const struct manta__happening *h, manta_error *err)
{
  const struct manta__trial *x = &t->trials.at[h->trial];
  manta_status how = h->error.status;
  bool told = how == MANTA_ECANCELED || how == MANTA_EPREEMPTED; // by us
  MANTA_TRY(note_saved(t, h, err));
  if (how >= 0)
    return end_trial(t, h->trial, MANTA_TRIAL_FINISHED, h->result, NULL, err);
  if (told && t->ending && t->saving)
    return leave_trial(t, h->trial, err);
  if ((told && t->ending) || x->asked == MANTA_TRIAL_STOP)
    return end_trial(t, h->trial, MANTA_TRIAL_STOPPED, h->result, NULL, err);
  if (x->asked == MANTA_TRIAL_COPY) // how it left its own state makes no difference
    return finish_copy(t, h->trial, err);
  if (told && x->asked == MANTA_TRIAL_PAUSE)
    return pause_trial(t, h->trial, err);
  return fail_trial(t, h, err);
}

// --- one step ------------------------------------------------------------------------------------

// Nothing runs. 1: something can begin, or has been told; 0: it is over.
static int idle(manta_tune *t, manta_error *err)
{
  uint64_t paused = t->trials.in_state[MANTA_TRIAL_PAUSED];
  if (t->out.next < t->out.count || (!t->ending && t->pending_count > 0))
    return 1;
  if (t->ending || (t->closed && paused == 0)) {
    t->over = true;
    if (!t->saving)
      MANTA_TRY(manta__journal_finish(&t->journal, "", err));
    return 0;
  }
  if (t->waits)
    return manta_error_set(err, MANTA_ESTATE,
                           "no trial runs, and the searcher has none now: it would wait for ever");
  if (t->closed)
    return manta_error_set(err, MANTA_ESTATE,
                           "all %llu trials that have not ended are paused, and the scheduler does "
                           "not decide about them",
                           (unsigned long long)paused);
  return 1;
}

static manta_status keep_budget(manta_tune *t)
{
  if (manta__now() >= t->deadline_ns)
    end_all(t, false);
  return MANTA_OK;
}

static int await(manta_tune *t, int64_t by, manta_error *err)
{
  struct manta__happening h;
  manta_error why = MANTA_ERROR_INIT;
  int64_t until = t->ending || t->deadline_ns > by ? by : t->deadline_ns;
  double left = until == MANTA__NEVER ? -1 : (double)(until - manta__now()) * 1e-9;
  int rc = ops(t)->next(t->runner, until == MANTA__NEVER ? -1 : left > 0 ? left : 0, &h, &why);
  if (rc == MANTA_ETIMEDOUT && until < by)
    return 1; // the budget is used up
  if (rc < 0)
    return manta_error_set(err, (manta_status)rc, "%s", why.message);
  if (rc == 0)
    return 1;
  manta_status st = MANTA_OK;
  if (h.kind == MANTA__HAPPENED_NOTE)
    manta__experiment_tell(t, MANTA_TUNE_NOTE, h.trial, MANTA__NO_TRIAL, NULL, h.error.message);
  else
    st = h.kind == MANTA__HAPPENED_ROW ? on_row(t, &h, err) : on_end(t, &h, err);
  return st < 0 ? (int)st : 1;
}

int manta__experiment_step(manta_tune *t, int64_t by, manta_error *err)
{
  while (t->out.next == t->out.count) {
    if (t->over)
      return 0;
    MANTA_TRY(keep_budget(t));
    MANTA_TRY(pop_decisions(t, err));
    if (t->out.next < t->out.count)
      break;
    bool closed = t->closed;
    MANTA_TRY(begin_due(t, err));
    if (t->out.next < t->out.count)
      break;
    if (t->closed != closed)
      continue; // the scheduler may decide now
    MANTA_TRY(manta__journal_flush(&t->journal, err));
    bool runs = t->trials.in_state[MANTA_TRIAL_RUNNING] > 0;
    int rc = runs ? await(t, by, err) : idle(t, err);
    if (rc <= 0)
      return rc;
  }
  return 1;
}

// --- after a driver that is gone -----------------------------------------------------------------

static manta_status recover_trial(manta_tune *t, uint64_t number, manta_error *err)
{
  struct manta__trial *x = &t->trials.at[number];
  if (x->asked == MANTA_TRIAL_STOP)
    return end_trial(t, number, MANTA_TRIAL_STOPPED, NULL, NULL, err);
  if (x->asked == MANTA_TRIAL_PAUSE)
    return pause_trial(t, number, err);
  if (x->asked == MANTA_TRIAL_COPY)
    return finish_copy(t, number, err);
  MANTA_TRY(manta__trials_move(&t->trials, number, MANTA_TRIAL_PENDING, err));
  return manta__experiment_pend(t, number, err);
}

manta_status manta__experiment_recover(manta_tune *t, bool retry_failed, manta_error *err)
{
  for (uint64_t i = 0; i < t->trials.count; i++) {
    struct manta__trial *x = &t->trials.at[i];
    manta_status st = MANTA_OK;
    x->ran = !manta__trial_ended(x) && x->attempt > 0;
    if (x->state == MANTA_TRIAL_RUNNING)
      st = recover_trial(t, i, err);
    else if (x->state == MANTA_TRIAL_FAILED && retry_failed)
      note(t, (struct manta__event_rec){.what = MANTA__T_REVIVED, .trial = i}, &st, err);
    MANTA_TRY(st);
  }
  t->out.next = t->out.count; // what was told then is old
  return manta__journal_flush(&t->journal, err);
}

void manta__experiment_end(manta_tune *t, bool save)
{
  end_all(t, save);
}

void manta__experiment_stop(manta_tune *t, uint64_t trial)
{
  struct manta__trial *x = &t->trials.at[trial];
  manta_error err = MANTA_ERROR_INIT;
  if (x->state == MANTA_TRIAL_RUNNING) {
    x->asked = MANTA_TRIAL_STOP;
    ops(t)->stop(t->runner, trial);
  } else if (!manta__trial_ended(x) &&
             end_trial(t, trial, MANTA_TRIAL_STOPPED, NULL, NULL, &err) < 0) {
    manta__warn("trial %llu: %s", (unsigned long long)trial, err.message);
  }
}
