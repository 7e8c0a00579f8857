/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/apply.c - events of an experiment, and what they change: the same whether they happen now or
 * are read from the log.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "tune/experiment.h"

manta_status manta__experiment_pend(manta_tune *t, uint64_t number, manta_error *err)
{
  if (t->pending_count == t->pending_cap) {
    size_t cap = t->pending_cap ? 2 * t->pending_cap : 16;
    uint64_t *list = manta__realloc(t->pending, cap * sizeof *list);
    if (!list)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for a list of trials");
    t->pending = list;
    t->pending_cap = cap;
  }
  t->pending[t->pending_count++] = number;
  return MANTA_OK;
}

static void unpend(manta_tune *t, uint64_t number)
{
  for (size_t i = 0; i < t->pending_count; i++)
    if (t->pending[i] == number) {
      t->pending[i] = t->pending[--t->pending_count];
      return;
    }
}

static manta_status move(manta_tune *t, uint64_t number, manta_trial_state to, manta_error *err)
{
  struct manta__trial *x = &t->trials.at[number];
  unpend(t, number);
  MANTA_TRY(manta__trials_move(&t->trials, number, to, err));
  x->asked = MANTA_TRIAL_GO_ON;
  return to == MANTA_TRIAL_PENDING ? manta__experiment_pend(t, number, err) : MANTA_OK;
}

static manta_status keep_message(struct manta__trial *x, const char *message, manta_error *err)
{
  manta__free(x->message);
  x->message = message ? manta__strdup(message) : NULL;
  return message && !x->message ? manta_error_set(err, MANTA_ENOMEM, "no memory for a message")
                                : MANTA_OK;
}

// --- one after the other -------------------------------------------------------------------------

static manta_status on_new(manta_tune *t, const struct manta__event_rec *e, bool again,
                           manta_error *err)
{
  manta_value config = {0};
  if (e->trial != t->trials.count || !e->value)
    return manta_error_set(err, MANTA_ECORRUPT, "the log has trial %llu after %llu trials",
                           (unsigned long long)e->trial, (unsigned long long)t->trials.count);
  if (again) {
    MANTA_TRY(manta_value_copy(&config, e->value));
    int rc = manta__choice_suggest(&t->choice, e->trial, true, &config, err);
    manta_value_fini(&config);
    if (rc < 0)
      return (manta_status)rc;
  }
  if (e->message && !manta__rundir_fits_trial(e->message))
    return manta_error_set(err, MANTA_ECORRUPT, "the log has a trial whose directory is \"%s\"",
                           e->message);
  MANTA_TRY(manta__trials_add(&t->trials, e->value, err));
  if (e->message && !(t->trials.at[e->trial].dir = manta__strdup(e->message)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a trial");
  MANTA_TRY(manta__choice_begin(&t->choice, e->trial, e->value, err));
  return manta__experiment_pend(t, e->trial, err);
}

static manta_status on_began(manta_tune *t, struct manta__trial *x,
                             const struct manta__event_rec *e, manta_error *err)
{
  MANTA_TRY(move(t, e->trial, MANTA_TRIAL_RUNNING, err));
  x->attempt = e->attempt + 1;
  if (x->began_ns == 0)
    x->began_ns = e->wall_ns;
  x->ran = false;
  return MANTA_OK;
}

// A metric of the newest row; the time that the trial has trained is known without one.
static double measure(const struct manta__trial *x, const manta_value *row, const char *key,
                      double dflt)
{
  const manta_value *v = manta_value_get(row, key);
  if (!v && strcmp(key, "time_total_s") == 0)
    return x->trained_s;
  v = v ? v : manta__row_metric(row, key);
  return v && v->type == MANTA_BOOL ? v->u.b : manta_value_as_real(v, dflt);
}

static bool meets(const manta_value *stop, const struct manta__trial *x, const manta_value *row)
{
  for (uint32_t i = 0; stop->type == MANTA_MAP && i < stop->count; i++) {
    const manta_value *limit = &stop->u.pairs[i].value;
    double least = limit->type == MANTA_BOOL ? 1 : manta_value_as_real(limit, NAN);
    if (measure(x, row, stop->u.pairs[i].key, -INFINITY) >= least)
      return true;
  }
  return false;
}

static manta_status keep_row(manta_tune *t, struct manta__trial *x,
                             const struct manta__event_rec *e, manta_error *err)
{
  const struct manta__plan *p = &t->plan;
  const manta_value *m = p->metric ? manta__row_metric(e->value, p->metric) : NULL;
  x->iteration = e->iteration;
  x->trained_s += manta_value_as_real(manta_value_get(e->value, "_time_this_iter_s"), 0);
  x->time = measure(x, e->value, p->time_key, (double)e->iteration);
  x->value = manta_value_as_real(m, NAN);
  t->measured |= m != NULL;
  MANTA_TRY(manta__packed_set(&x->last, e->value, err));
  if (!manta__value_better(x->value, x->top, p->maximize))
    return MANTA_OK;
  x->top = x->value;
  return manta__packed_set(&x->best, e->value, err);
}

// A copy of one that has saved nothing, or of itself, is none: invariant (4).
static void check_copy(const manta_tune *t, uint64_t number, manta_decision *d)
{
  if (d->verdict == MANTA_TRIAL_COPY &&
      (d->from == number || d->from >= t->trials.count || !t->trials.at[d->from].saved))
    d->verdict = MANTA_TRIAL_GO_ON;
}

// With other resources it begins anew, from what it saves now.
static manta_status take_resources(struct manta__trial *x, manta_decision *d, manta_error *err)
{
  if (d->verdict != MANTA_TRIAL_GO_ON || d->config.type != MANTA_MAP)
    return MANTA_OK;
  MANTA_TRY(manta__packed_set(&x->resources, &d->config, err));
  d->verdict = MANTA_TRIAL_PAUSE;
  x->again = true;
  x->popped = MANTA_TRIAL_GO_ON;
  return MANTA_OK;
}

static manta_status on_row(manta_tune *t, struct manta__trial *x, const struct manta__event_rec *e,
                           bool again, struct manta__outcome *out, manta_error *err)
{
  const struct manta__plan *p = &t->plan;
  manta_decision d = {0};
  MANTA_TRY(keep_row(t, x, e, err));
  if (x->asked != MANTA_TRIAL_GO_ON || x->outside)
    return MANTA_OK; // on its way out
  double value = p->maximize ? -x->value : x->value;
  MANTA_TRY(
      manta__choice_report(&t->choice, e->trial, x->time, value, x->point, e->value, &d, err));
  check_copy(t, e->trial, &d);
  manta_status st = take_resources(x, &d, err);
  if (st == MANTA_OK && d.verdict == MANTA_TRIAL_COPY && d.config.type == MANTA_MAP)
    st = manta__packed_set(&x->wanted, &d.config, err);
  manta_value_fini(&d.config);
  MANTA_TRY(st);
  // What a function says now it need not say again: who reads the log is told by what follows.
  int said = p->stop_fn && !again ? p->stop_fn(p->stop_ctx, e->trial, e->value) : 0;
  if (said == 1 || meets(&p->stop, x, e->value))
    d.verdict = MANTA_TRIAL_STOP;
  x->asked = (uint8_t)d.verdict;
  if (d.verdict == MANTA_TRIAL_COPY)
    x->from = d.from;
  out->verdict = d.verdict;
  out->end_all = said == 2;
  out->yields = d.verdict == MANTA_TRIAL_GO_ON && t->choice.yields && x->saved;
  return MANTA_OK;
}

static manta_status on_yielded(struct manta__trial *x)
{
  x->turns++;
  x->asked = MANTA_TRIAL_PAUSE;
  x->again = true;
  x->popped = MANTA_TRIAL_GO_ON;
  return MANTA_OK;
}

// It saves, and goes on at once when it has ended.
static manta_status on_resources(struct manta__trial *x, const struct manta__event_rec *e,
                                 manta_error *err)
{
  x->asked = MANTA_TRIAL_PAUSE;
  x->again = true;
  x->popped = MANTA_TRIAL_GO_ON;
  return manta__packed_set(&x->resources, e->value, err);
}

static manta_status on_saved(manta_tune *t, struct manta__trial *x,
                             const struct manta__event_rec *e, manta_error *err)
{
  x->saved = true;
  x->saved_at = e->iteration;
  if (!x->outside)
    manta__choice_saved(&t->choice, e->trial);
  return MANTA_OK;
}

static manta_status end(manta_tune *t, uint64_t number, manta_trial_state state, int64_t wall_ns,
                        manta_error *err)
{
  struct manta__trial *x = &t->trials.at[number];
  manta_value row = {0};
  MANTA_TRY(move(t, number, state, err));
  x->ended_ns = wall_ns;
  if (x->outside)
    return MANTA_OK;
  MANTA_TRY(manta__packed_get(&x->last, &row, err));
  bool failed = state == MANTA_TRIAL_FAILED;
  double value = t->plan.maximize ? -x->value : x->value;
  manta_status st = manta__choice_end(&t->choice, number, value, &row, failed, err);
  manta_value_fini(&row);
  return st;
}

static manta_status on_ended(manta_tune *t, struct manta__trial *x,
                             const struct manta__event_rec *e, manta_error *err)
{
  if (e->state == MANTA_TRIAL_FAILED)
    x->failures++;
  if (e->message)
    MANTA_TRY(keep_message(x, e->message, err));
  if (e->value)
    MANTA_TRY(manta__packed_set(&x->result, e->value, err));
  return end(t, e->trial, (manta_trial_state)e->state, e->wall_ns, err);
}

// A paused one goes on, or has done enough.
static manta_status release(manta_tune *t, uint64_t number, int verdict, int64_t wall_ns,
                            manta_error *err)
{
  t->trials.at[number].again = false;
  if (verdict == MANTA_TRIAL_STOP)
    return end(t, number, MANTA_TRIAL_STOPPED, wall_ns, err);
  return move(t, number, MANTA_TRIAL_PENDING, err);
}

static manta_status on_paused(manta_tune *t, struct manta__trial *x,
                              const struct manta__event_rec *e, manta_error *err)
{
  MANTA_TRY(move(t, e->trial, MANTA_TRIAL_PAUSED, err));
  return x->again ? release(t, e->trial, x->popped, e->wall_ns, err) : MANTA_OK;
}

static manta_status on_popped(manta_tune *t, struct manta__trial *x,
                              const struct manta__event_rec *e, bool again, manta_error *err)
{
  manta_decision d = {0};
  if (again) {
    int rc = manta__choice_next(&t->choice, &d, err);
    manta_value_fini(&d.config);
    if (rc < 0)
      return (manta_status)rc;
    if (rc == 1 && d.trial != e->trial)
      return manta_error_set(err, MANTA_ECORRUPT,
                             "the scheduler does not decide as the log says: trial %llu, not %llu",
                             (unsigned long long)d.trial, (unsigned long long)e->trial);
  }
  if (x->state == MANTA_TRIAL_PAUSED)
    return release(t, e->trial, e->verdict, e->wall_ns, err);
  x->again = x->state == MANTA_TRIAL_RUNNING; // it is still saving
  x->popped = (uint8_t)e->verdict;
  return MANTA_OK;
}

uint64_t manta__copy_turn(uint64_t number, uint32_t attempt)
{
  return number << 20 ^ attempt;
}

static manta_status on_copied(manta_tune *t, struct manta__trial *x,
                              const struct manta__event_rec *e, manta_error *err)
{
  manta_value config = {0};
  double *point = NULL;
  if (e->from >= t->trials.count || !e->value)
    return manta_error_set(err, MANTA_ECORRUPT, "the log has a copy of no trial");
  if (!t->plan.explore_fn) // a config of the caller's has no point
    MANTA_TRY(manta__choice_explore(&t->choice, e->from, t->trials.at[e->from].point,
                                    manta__copy_turn(e->trial, x->attempt), &point, &config, err));
  manta_value_fini(&config);
  manta__free(x->point);
  x->point = point;
  x->from = e->from;
  x->copied = x->attempt;
  x->turns++;
  x->iteration = x->base = e->iteration;
  x->saved = false; // it has the other's state, until it saves
  x->saved_at = 0;
  manta__packed_fini(&x->wanted);
  manta__choice_copied(&t->choice, e->trial);
  MANTA_TRY(manta__packed_set(&x->config, e->value, err));
  return move(t, e->trial, MANTA_TRIAL_PENDING, err);
}

static manta_status on_failed(manta_tune *t, struct manta__trial *x,
                              const struct manta__event_rec *e, manta_error *err)
{
  bool pausing = x->asked == MANTA_TRIAL_PAUSE; // then it waits for a decision all the same
  x->failures++;
  MANTA_TRY(keep_message(x, e->message, err));
  return pausing ? on_paused(t, x, e, err) : move(t, e->trial, MANTA_TRIAL_PENDING, err);
}

static manta_status on_revived(manta_tune *t, struct manta__trial *x,
                               const struct manta__event_rec *e, manta_error *err)
{
  x->failures = 0;
  x->ended_ns = 0;
  x->outside = true; // searcher and scheduler have done with it
  return move(t, e->trial, MANTA_TRIAL_PENDING, err);
}

// --- all -----------------------------------------------------------------------------------------

manta_status manta__experiment_apply(manta_tune *t, const struct manta__event_rec *e, bool again,
                                     struct manta__outcome *out, manta_error *err)
{
  struct manta__outcome unused;
  out = out ? out : &unused;
  *out = (struct manta__outcome){0};
  if (e->what == MANTA__T_NEW)
    return on_new(t, e, again, err);
  if (e->what == MANTA__T_CLOSED) {
    t->closed = true;
    manta__choice_close(&t->choice);
    return MANTA_OK;
  }
  if (e->trial >= t->trials.count)
    return manta_error_set(err, MANTA_ECORRUPT, "the log has an event of trial %llu of %llu",
                           (unsigned long long)e->trial, (unsigned long long)t->trials.count);
  struct manta__trial *x = &t->trials.at[e->trial];
  switch (e->what) {
  case MANTA__T_BEGAN:
    // A driver that was killed did not say that its trials ended; and whoever only reads does not
    // know what a scheduler of the caller's has decided.
    if (again && (x->state == MANTA_TRIAL_RUNNING || x->state == MANTA_TRIAL_PAUSED))
      MANTA_TRY(move(t, e->trial, MANTA_TRIAL_PENDING, err));
    return on_began(t, x, e, err);
  case MANTA__T_ROW:
    return on_row(t, x, e, again, out, err);
  case MANTA__T_SAVED:
    return on_saved(t, x, e, err);
  case MANTA__T_PAUSED:
    return on_paused(t, x, e, err);
  case MANTA__T_POPPED:
    return on_popped(t, x, e, again, err);
  case MANTA__T_COPIED:
    return on_copied(t, x, e, err);
  case MANTA__T_FAILED:
    return on_failed(t, x, e, err);
  case MANTA__T_ENDED:
    return on_ended(t, x, e, err);
  case MANTA__T_RESOURCES:
    return on_resources(x, e, err);
  case MANTA__T_YIELDED:
    return on_yielded(x);
  case MANTA__T_ORIGIN:
    x->iteration = x->base = e->iteration; // its rows from there on are new
    return MANTA_OK;
  default:
    return on_revived(t, x, e, err);
  }
}

manta_status manta__experiment_note(manta_tune *t, const struct manta__event_rec *e,
                                    struct manta__outcome *out, manta_error *err)
{
  struct manta__event_rec now = *e;
  now.wall_ns = manta__wall();
  MANTA_TRY(manta__journal_add(&t->journal, &now, err));
  return manta__experiment_apply(t, &now, false, out, err);
}
