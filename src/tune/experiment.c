/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/experiment.c - what is due: trials that can begin, decisions to carry out, and what those
 * that run tell.
 */
#include "tune/experiment.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#define ORIGIN_TRIES 5

static const struct manta__runner_ops *ops(const manta_tune *t)
{
  return manta__runner_ops(t->runner);
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

// --- beginning -----------------------------------------------------------------------------------

static manta_status note_new(manta_tune *t, const manta_value *config, manta_error *err)
{
  char name[MANTA__TRIAL_DIR_MAX];
  MANTA_TRY(manta__trial_name(t, config, name, err));
  return manta__experiment_note(t,
                                &(struct manta__event_rec){.what = MANTA__T_NEW,
                                                           .trial = t->trials.count,
                                                           .value = config,
                                                           .message = name[0] ? name : NULL},
                                NULL, err);
}

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
    st = note_new(t, &config, err);
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
  const struct manta__trial *all = t->trials.at;
  uint64_t least = t->pending[0];
  for (size_t i = 1; i < t->pending_count; i++) {
    uint64_t n = t->pending[i];
    if (all[n].turns != all[least].turns ? all[n].turns < all[least].turns : n < least)
      least = n;
  }
  return least;
}

// Whether a new trial is due before those that have had a turn. Of trials without end all would be.
static bool new_is_due(const manta_tune *t)
{
  if (t->pending_count > 0 && t->plan.total >= INT32_MAX)
    return false;
  for (size_t i = 0; i < t->pending_count; i++)
    if (t->trials.at[t->pending[i]].turns == 0)
      return false;
  return !t->closed && !t->waits;
}

static manta_status start_trial(manta_tune *t, uint64_t number, manta_error *err)
{
  struct manta__trial *x = &t->trials.at[number];
  char name[MANTA__TRIAL_DIR_MAX], dir[4400], origin[PATH_MAX];
  manta_value config = {0}, resources = {0};
  const struct manta__capture *captured = manta__capture_of(t, number);
  manta__trial_dir(t, name, number);
  snprintf(dir, sizeof dir, "%s/%s", t->dir, name);
  MANTA_TRY(manta__trial_make_dir(t, number, name, err));
  MANTA_TRY(manta__packed_get(&x->config, &config, err));
  manta_status st = manta__packed_get(&x->resources, &resources, err);
  struct manta__launch l = {.trial = number,
                            .attempt = x->attempt,
                            .config = &config,
                            .dir = dir,
                            .fresh = x->attempt == 0,
                            .adopted = x->ran,
                            .from = captured,
                            .resources = resources.type == MANTA_MAP ? &resources : NULL};
  bool gone = st == MANTA_OK; // the other may delete what we have found: then it has a newer one
  int64_t at = x->iteration;
  for (int i = 0; gone && i < ORIGIN_TRIES; i++) {
    l.origin = !captured && manta__copy_origin(t, number, origin, &at) ? origin : NULL;
    st = ops(t)->start(t->runner, &l, err);
    gone = l.origin && (st == MANTA_ENOENT || st == MANTA_ECORRUPT);
  }
  manta_value_fini(&config);
  manta_value_fini(&resources);
  // It may have made rows as a copy already: those it makes again are known.
  if (st == MANTA_OK && (at > x->iteration || (at < x->iteration && x->iteration == x->base)))
    note(t, (struct manta__event_rec){.what = MANTA__T_ORIGIN, .trial = number, .iteration = at},
         &st, err);
  return st;
}

static manta_status begin_trial(manta_tune *t, uint64_t number, manta_error *err)
{
  manta_status st = start_trial(t, number, err);
  if (st < 0)
    return st;
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
  if (new_is_due(t)) {
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
      manta__capture_drop(t, d.trial);
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
           &st, err)) {
    manta__experiment_tell(t, MANTA_TUNE_SAVED, h->trial, MANTA__NO_TRIAL, NULL, NULL);
    if (x->copied < x->attempt && x->asked != MANTA_TRIAL_COPY) // as what it is now
      manta__capture_drop(t, h->trial);
  }
  return st;
}

// The names there are, for one that is not.
static manta_status refuse_row(const manta_tune *t, uint64_t trial, const manta_value *row,
                               manta_error *err)
{
  char names[512];
  manta__row_names(row, names, sizeof names);
  return manta_error_set(err, MANTA_EINVAL,
                         "trial %llu does not report the metric \"%s\"; it reports %s",
                         (unsigned long long)trial, t->plan.metric, names);
}

// For good.
static void stop_trial(manta_tune *t, uint64_t number)
{
  (t->plan.soft_stop ? ops(t)->pause : ops(t)->stop)(t->runner, number);
}

static manta_status act(manta_tune *t, uint64_t number, const struct manta__outcome *o,
                        manta_error *err)
{
  const struct manta__trial *x = &t->trials.at[number];
  switch (o->verdict) {
  case MANTA_TRIAL_STOP:
    stop_trial(t, number);
    return MANTA_OK;
  case MANTA_TRIAL_PAUSE:
    ops(t)->pause(t->runner, number);
    return MANTA_OK;
  case MANTA_TRIAL_COPY:
    MANTA_TRY(manta__capture_take(t, number, x->from, err));
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

// If others wait for a seat. `waits`: the searcher had no further trial.
static manta_status ask_turn(manta_tune *t, uint64_t trial, bool waits, struct manta__outcome *o,
                             manta_error *err)
{
  manta_status st = MANTA_OK;
  bool more = t->trials.count < t->plan.total && t->plan.total < INT32_MAX && !t->closed && !waits;
  bool full = (int)t->trials.in_state[MANTA_TRIAL_RUNNING] >= ops(t)->room(t->runner);
  if (!full || (t->pending_count == 0 && !more))
    return MANTA_OK;
  if (note(t, (struct manta__event_rec){.what = MANTA__T_YIELDED, .trial = trial}, &st, err))
    o->verdict = MANTA_TRIAL_PAUSE;
  return st;
}

static void end_all(manta_tune *t, bool save)
{
  if (t->ending)
    return;
  t->ending = true;
  t->saving = save;
  for (uint64_t i = 0; i < t->trials.count; i++)
    if (t->trials.at[i].state != MANTA_TRIAL_RUNNING)
      continue;
    else if (save)
      ops(t)->pause(t->runner, i);
    else
      stop_trial(t, i);
}

static manta_status on_row(manta_tune *t, const struct manta__happening *h, manta_error *err)
{
  const struct manta__trial *x = &t->trials.at[h->trial];
  struct manta__outcome o;
  bool of_this = h->saved >= h->iteration; // the row is in the log before what was saved with it
  if (!of_this)
    MANTA_TRY(note_saved(t, h, err));
  if (h->iteration <= x->iteration) { // seen before it was begun again
    ops(t)->go_on(t->runner, h->trial);
    return MANTA_OK;
  }
  bool first = x->last.bytes == NULL;
  if (first && t->choice.learns && t->plan.metric && !manta__row_metric(h->row, t->plan.metric))
    return refuse_row(t, h->trial, h->row, err);
  bool leaving = x->asked != MANTA_TRIAL_GO_ON, waits = t->waits;
  struct manta__event_rec e = {.what = MANTA__T_ROW,
                               .trial = h->trial,
                               .attempt = x->attempt,
                               .iteration = h->iteration,
                               .value = h->row};
  MANTA_TRY(manta__experiment_note(t, &e, &o, err));
  t->waits = false;
  manta__experiment_tell(t, MANTA_TUNE_ROW, h->trial, MANTA__NO_TRIAL, h->row, NULL);
  if (of_this)
    MANTA_TRY(note_saved(t, h, err));
  if (h->more && !o.end_all && o.verdict == MANTA_TRIAL_GO_ON && !t->plan.resources_fn)
    return MANTA_OK; // written and answered with the last of them
  MANTA_TRY(manta__journal_flush(&t->journal, err));
  if (o.end_all)
    end_all(t, false);
  if (t->ending && !t->saving && !t->plan.soft_stop)
    return MANTA_OK; // it was stopped, and is to make no further row
  if (leaving || t->ending) {
    ops(t)->go_on(t->runner, h->trial);
    return MANTA_OK;
  }
  if (o.verdict == MANTA_TRIAL_GO_ON)
    MANTA_TRY(ask_resources(t, h, &o, err));
  if (o.verdict == MANTA_TRIAL_GO_ON && o.yields)
    MANTA_TRY(ask_turn(t, h->trial, waits, &o, err));
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
  const struct manta__trial *x = &t->trials.at[number], *from = &t->trials.at[x->from];
  const struct manta__capture *c = manta__capture_of(t, number);
  manta_value config = {0};
  manta_status st = explore(t, number, &config, err);
  if (st == MANTA_OK &&
      note(t,
           (struct manta__event_rec){.what = MANTA__T_COPIED,
                                     .trial = number,
                                     .from = x->from,
                                     .iteration = c ? c->iteration : from->saved_at,
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
  manta__capture_drop(t, number);
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
  if (st == MANTA_OK && manta__trial_ended(&t->trials.at[number])) {
    manta__capture_drop(t, number);
    manta__experiment_tell(t, MANTA_TUNE_ENDED, number, MANTA__NO_TRIAL, NULL, NULL);
  }
  return st;
}

// Not in the log: whoever goes on with the experiment finds it running, and runs it again.
static manta_status leave_trial(manta_tune *t, uint64_t number, manta_error *err)
{
  return manta__trials_move(&t->trials, number, MANTA_TRIAL_PENDING, err);
}

// The first trial that has come to its end without the metric, where nothing needed it so far.
static manta_status check_metric(manta_tune *t, uint64_t number, manta_error *err)
{
  const struct manta__trial *x = &t->trials.at[number];
  manta_value row = {0};
  if (!t->plan.metric || t->measured || !x->last.bytes)
    return MANTA_OK;
  manta_status st = manta__packed_get(&x->last, &row, err);
  if (st == MANTA_OK)
    st = refuse_row(t, number, &row, err);
  manta_value_fini(&row);
  return st;
}

static manta_status on_end(manta_tune *t, const struct manta__happening *h, manta_error *err)
{
  const struct manta__trial *x = &t->trials.at[h->trial];
  manta_status how = h->error.status;
  bool told = how == MANTA_ECANCELED || how == MANTA_EPREEMPTED; // by us
  MANTA_TRY(note_saved(t, h, err));
  if (how >= 0) {
    MANTA_TRY(check_metric(t, h->trial, err));
    return end_trial(t, h->trial, MANTA_TRIAL_FINISHED, h->result, NULL, err);
  }
  if (told && t->ending && t->saving)
    return leave_trial(t, h->trial, err);
  if ((told && (t->ending || h->overdue)) || x->asked == MANTA_TRIAL_STOP)
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
  t->more = h.kind == MANTA__HAPPENED_ROW && h.more;
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
    if (!t->more)
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
    stop_trial(t, trial);
  } else if (!manta__trial_ended(x) &&
             end_trial(t, trial, MANTA_TRIAL_STOPPED, NULL, NULL, &err) < 0) {
    manta__warn("trial %llu: %s", (unsigned long long)trial, err.message);
  }
}
