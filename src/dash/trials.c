/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/trials.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/value.h"
#include "event/row.h"

#define BUCKETS MANTA__CURVE_FEWEST /* of a trial's curve */

void manta__dash_trials_fini(struct manta__dash_trials *t)
{
  for (uint32_t i = 0; i < t->count; i++) {
    manta_value_fini(&t->trial[i].config);
    manta__curve_fini(&t->trial[i].curve);
    manta__free(t->trial[i].message);
  }
  manta__free(t->trial);
  manta_value_fini(&t->info);
  *t = (struct manta__dash_trials){0};
}

const char *manta__dash_trials_metric(const struct manta__dash_trials *t, bool *maximize)
{
  *maximize = manta_value_as_bool(manta_value_get(&t->info, "maximize"), false);
  return manta_value_as_string(manta_value_get(&t->info, "metric"), "");
}

bool manta__dash_trial_best(const struct manta__dash_trials *t, const struct manta__dash_trial *one,
                            struct manta__extreme *out)
{
  bool maximize;
  manta__dash_trials_metric(t, &maximize);
  *out = maximize ? one->curve.high : one->curve.low;
  return one->curve.finite > 0;
}

// --- Trials --------------------------------------------------------------------------------------

static void set_state(struct manta__dash_trial *one, const char *state)
{
  snprintf(one->state, sizeof one->state, "%.11s", state);
}

// Trial `number`, with all before it, made if need be.
static manta_status find(struct manta__dash_trials *t, int64_t number,
                         struct manta__dash_trial **out)
{
  if (number < 0 || number >= MANTA__TRIALS) {
    t->left_out |= number >= MANTA__TRIALS;
    return MANTA_ETOOBIG;
  }
  if (number >= t->cap) {
    uint32_t cap = t->cap ? 2 * t->cap : 16;
    while (number >= cap)
      cap *= 2;
    struct manta__dash_trial *p = manta__realloc(t->trial, cap * sizeof *p);
    if (!p)
      return MANTA_ENOMEM;
    t->trial = p;
    t->cap = cap;
  }
  bool maximize;
  const char *metric = manta__dash_trials_metric(t, &maximize);
  while (t->count <= number) {
    struct manta__dash_trial *one = &t->trial[t->count];
    *one = (struct manta__dash_trial){0};
    MANTA_TRY(manta__curve_init(&one->curve, metric, strlen(metric), (int)t->count));
    manta__curve_set_limit(&one->curve, BUCKETS);
    set_state(one, "pending");
    t->count++;
  }
  *out = &t->trial[number];
  (*out)->version = ++t->version;
  return MANTA_OK;
}

static bool is_better(const struct manta__dash_trials *t, double value)
{
  bool maximize;
  manta__dash_trials_metric(t, &maximize);
  if (t->steps == 0)
    return true;
  double best = t->step[t->steps - 1].value;
  return maximize ? value > best : value < best;
}

static void note_best(struct manta__dash_trials *t, int64_t wall_ns, uint32_t trial, double value)
{
  if (!isfinite(value) || !is_better(t, value))
    return;
  t->steps += t->steps < MANTA__TRIAL_STEPS;
  t->step[t->steps - 1] = (struct manta__dash_step){wall_ns, value, trial};
}

static manta_status take_row(struct manta__dash_trials *t, const struct manta__record *h,
                             const uint8_t *payload)
{
  struct manta__dash_trial *one;
  struct manta__row_walk walk;
  double value;
  bool maximize;
  MANTA_TRY(find(t, h->id.rank, &one));
  const char *metric = manta__dash_trials_metric(t, &maximize);
  int64_t iteration = manta__row_iteration(payload, h->len);
  one->iteration = iteration;
  for (manta__row_walk(&walk, payload, h->len); manta__row_next(&walk, &value);)
    if (!strcmp(walk.name, metric)) {
      note_best(t, h->wall_ns, (uint32_t)h->id.rank, value);
      return iteration < 0 ? MANTA_OK
                           : manta__curve_add(&one->curve, iteration,
                                              (double)(h->wall_ns - t->begin_ns) / 1e9, value);
    }
  return MANTA_OK;
}

// --- What happens to them ------------------------------------------------------------------------

static manta_status set_config(struct manta__dash_trial *one, const manta_value *v)
{
  manta_value config = {0};
  if (!v || v->type != MANTA_MAP)
    return MANTA_OK;
  manta_status st = manta__value_abridge(&config, v);
  if (st == MANTA_OK)
    manta_value_move(&one->config, &config);
  manta_value_fini(&config);
  return st;
}

static manta_status set_message(struct manta__dash_trial *one, const char *text)
{
  if (!*text)
    return MANTA_OK;
  char *copy = manta__strndup(text, strnlen(text, MANTA__TRIAL_MESSAGE));
  if (!copy)
    return MANTA_ENOMEM;
  manta__free(one->message);
  one->message = copy;
  return MANTA_OK;
}

// One that begins again does so at a checkpoint: what came after it is reported once more.
static void begin_again(struct manta__dash_trial *one, int64_t wall_ns, int64_t iteration)
{
  set_state(one, "running");
  if (!one->began_ns)
    one->began_ns = wall_ns;
  one->ended_ns = 0;
  if (iteration > 0)
    manta__curve_rewind(&one->curve, iteration);
}

static manta_status take_trial(struct manta__dash_trials *t, const struct manta__record *h,
                               const manta_value *v)
{
  struct manta__dash_trial *one;
  const char *what = manta_value_as_string(manta_value_get(v, "what"), "");
  const char *message = manta_value_as_string(manta_value_get(v, "message"), "");
  int64_t iteration = manta_value_as_int(manta_value_get(v, "iteration"), 0);
  int64_t from = manta_value_as_int(manta_value_get(v, "from"), -1);
  if (!strcmp(what, "closed")) // of no trial
    return MANTA_OK;
  MANTA_TRY(find(t, h->id.rank, &one));
  if (!strcmp(what, "new") || !strcmp(what, "copied")) {
    one->from = from >= 0 ? (uint64_t)from + 1 : one->from;
    return set_config(one, manta_value_get(v, "value"));
  }
  if (!strcmp(what, "began")) {
    begin_again(one, h->wall_ns, iteration);
  } else if (!strcmp(what, "paused")) {
    set_state(one, "paused");
  } else if (!strcmp(what, "failed") || !strcmp(what, "revived")) {
    one->failures += what[0] == 'f';
    set_state(one, "pending");
  } else if (!strcmp(what, "ended")) {
    one->ended_ns = h->wall_ns;
    set_state(one, manta_value_as_string(manta_value_get(v, "state"), "finished"));
  }
  return set_message(one, message);
}

static manta_status take_map(struct manta__dash_trials *t, const struct manta__record *h,
                             manta_value *v)
{
  switch (h->kind) {
  case MANTA__EV_EXPERIMENT:
    t->ended = false;
    if (t->info.type == MANTA_NIL)
      manta_value_move(&t->info, v);
    return MANTA_OK;
  case MANTA__EV_TRIAL:
    return take_trial(t, h, v);
  case MANTA__EV_FINISH:
    t->ended = true;
    return MANTA_OK;
  default:
    return MANTA_OK;
  }
}

manta_status manta__dash_trials_take(struct manta__dash_trials *t, const struct manta__record *h,
                                     const uint8_t *payload)
{
  manta_value v = {0};
  if (t->records++ == 0)
    t->begin_ns = h->wall_ns;
  t->version++;
  if (h->wall_ns > t->end_ns)
    t->end_ns = h->wall_ns;
  manta_status st = MANTA_OK;
  if (h->kind == MANTA__EV_ROW)
    st = take_row(t, h, payload);
  else if (manta_value_unpack(&v, payload, h->len, NULL) == MANTA_OK && v.type == MANTA_MAP)
    st = take_map(t, h, &v);
  manta_value_fini(&v);
  return st == MANTA_ENOMEM ? st : MANTA_OK;
}
