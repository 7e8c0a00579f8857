/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/show_trials.c - a tuning experiment as JSON.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "dash/show.h"

#define NS      1e9
#define DIGITS  7
#define EXACTLY 15

static void show_time(struct manta__dash_json *j, const char *key, int64_t ns)
{
  manta__dash_real(j, key, ns ? (double)ns / NS : NAN, EXACTLY);
}

static void show_points(struct manta__dash_json *j, const struct manta__curve *c)
{
  manta__dash_int(j, "x0", c->base);
  manta__dash_int(j, "w", c->width);
  manta__dash_open(j, "mean", '[');
  for (uint32_t i = 0; i < c->count; i++) {
    const struct manta__chart_bucket *b = &c->bucket[i];
    manta__dash_real(j, NULL, b->n > 0 ? b->sum / b->n : NAN, DIGITS);
  }
  manta__dash_close(j, ']');
}

static void show_trial(struct manta__dash_json *j, const struct manta__dash_trials *t, uint32_t i)
{
  const struct manta__dash_trial *one = &t->trial[i];
  struct manta__extreme best;
  bool any = manta__dash_trial_best(t, one, &best);
  manta__dash_open(j, NULL, '{');
  manta__dash_int(j, "trial", i);
  manta__dash_string(j, "state", one->state);
  manta__dash_int(j, "iteration", one->iteration);
  manta__dash_real(j, "last", one->curve.last, DIGITS);
  manta__dash_real(j, "best", any ? best.value : NAN, DIGITS);
  manta__dash_int(j, "best_x", any ? best.x : 0);
  manta__dash_int(j, "failures", one->failures);
  show_time(j, "began", one->began_ns);
  show_time(j, "ended", one->ended_ns);
  if (one->from)
    manta__dash_int(j, "from", (int64_t)one->from - 1);
  if (one->message)
    manta__dash_string(j, "message", one->message);
  manta__dash_value(j, "config", &one->config);
  show_points(j, &one->curve);
  manta__dash_close(j, '}');
}

static void show_steps(struct manta__dash_json *j, const struct manta__dash_trials *t)
{
  manta__dash_open(j, "steps", '[');
  for (uint32_t i = 0; i < t->steps; i++) {
    manta__dash_open(j, NULL, '{');
    manta__dash_real(j, "t", (double)(t->step[i].wall_ns - t->begin_ns) / NS, DIGITS);
    manta__dash_real(j, "value", t->step[i].value, DIGITS);
    manta__dash_int(j, "trial", t->step[i].trial);
    manta__dash_close(j, '}');
  }
  manta__dash_close(j, ']');
}

static int in_state(const struct manta__dash_trials *t, const char *state)
{
  int n = 0;
  for (uint32_t i = 0; i < t->count; i++)
    n += !strcmp(t->trial[i].state, state);
  return n;
}

void manta__show_experiment_standing(struct manta__dash_json *j, const struct manta__entry *e)
{
  static const char *const states[] = {"pending",  "running", "paused",
                                       "finished", "stopped", "failed"};
  const struct manta__dash_trials *t = e->trials;
  bool maximize;
  const char *metric = manta__dash_trials_metric(t, &maximize);
  manta__dash_string(j, "state", manta__entry_state(e));
  manta__dash_bool(j, "experiment", true);
  manta__dash_bool(j, "whole", e->whole);
  show_time(j, "begin", t->begin_ns);
  show_time(j, "end", t->end_ns);
  manta__dash_int(j, "bytes", e->bytes);
  manta__dash_open(j, "trial_states", '{');
  for (size_t i = 0; i < sizeof states / sizeof *states; i++)
    manta__dash_int(j, states[i], in_state(t, states[i]));
  manta__dash_close(j, '}');
  manta__dash_int(j, "total", manta_value_as_int(manta_value_get(&t->info, "total"), 0));
  if (t->steps > 0) {
    const struct manta__dash_step *best = &t->step[t->steps - 1];
    manta__dash_open(j, "best", '{');
    manta__dash_string(j, "metric", metric);
    manta__dash_real(j, "value", best->value, DIGITS);
    manta__dash_int(j, "trial", best->trial);
    manta__dash_bool(j, "lowest", !maximize);
    manta__dash_close(j, '}');
  }
  if (e->error[0])
    manta__dash_string(j, "error", e->error);
}

void manta__show_experiment(struct manta__dash_json *j, const struct manta__entry *e,
                            struct manta__sent *s)
{
  static const char *const keys[] = {"argv",      "metric",  "maximize", "searcher",
                                     "scheduler", "samples", "space",    NULL};
  const struct manta__dash_trials *t = e->trials;
  manta__dash_string(j, "run", e->name);
  manta__dash_real(j, "now", (double)manta__wall() / NS, EXACTLY);
  manta__show_experiment_standing(j, e);
  manta__dash_bool(j, "left_out", t->left_out);
  if (!s->head && t->info.type == MANTA_MAP) {
    manta__dash_open(j, "head", '{');
    for (const char *const *k = keys; *k; k++)
      manta__dash_value(j, *k, manta_value_get(&t->info, *k));
    manta__dash_close(j, '}');
    s->head = true;
  }
  manta__dash_open(j, "trials", '[');
  for (uint32_t i = 0; i < t->count; i++)
    if (t->trial[i].version > s->trials)
      show_trial(j, t, i);
  manta__dash_close(j, ']');
  show_steps(j, t);
  s->trials = t->version;
}
