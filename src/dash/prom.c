/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/prom.c - /metrics, in the text format of Prometheus.
 *
 * Only runs that are going on, or ended within LATELY_NS, have lines of their own: a scrape every
 * few seconds should not repeat what never changes.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "dash/best.h"
#include "dash/show.h"

#define LATELY_NS 900000000000ll

struct out {
  manta__buf *to;
  manta_status st;
};

static void put(struct out *o, const char *s, size_t n)
{
  if (o->st == MANTA_OK)
    o->st = manta__buf_append(o->to, s, n);
}

static void text(struct out *o, const char *s)
{
  put(o, s, strlen(s));
}

// A label's value: backslash, quote and newline are escaped, what is no UTF-8 becomes '?'.
static void label(struct out *o, const char *name, const char *value)
{
  size_t n = strlen(value);
  text(o, name);
  text(o, "=\"");
  for (size_t i = 0, len; i < n; i += len) {
    len = manta__utf8_step((const uint8_t *)value + i, n - i);
    if (value[i] == '\n')
      text(o, "\\n");
    else if (value[i] == '"' || value[i] == '\\')
      put(o, (const char[]){'\\', value[i]}, 2);
    else if (len)
      put(o, value + i, len);
    else
      text(o, "?");
    len = len ? len : 1;
  }
  text(o, "\"");
}

static void number(struct out *o, double v)
{
  char s[40];
  if (isnan(v))
    snprintf(s, sizeof s, " NaN\n");
  else if (isinf(v))
    snprintf(s, sizeof s, v > 0 ? " +Inf\n" : " -Inf\n");
  else
    snprintf(s, sizeof s, " %.17g\n", v);
  text(o, s);
}

static void type(struct out *o, const char *name, const char *kind, const char *help)
{
  text(o, "# HELP ");
  text(o, name);
  text(o, " ");
  text(o, help);
  text(o, "\n# TYPE ");
  text(o, name);
  text(o, " ");
  text(o, kind);
  text(o, "\n");
}

static void line(struct out *o, const char *name, const char *run, double v)
{
  text(o, name);
  text(o, "{");
  label(o, "run", run);
  text(o, "}");
  number(o, v);
}

static void rank_line(struct out *o, const char *name, const char *run, const char *metric,
                      int rank, double v)
{
  char digits[16];
  snprintf(digits, sizeof digits, "%d", rank);
  text(o, name);
  text(o, "{");
  label(o, "run", run);
  if (metric) {
    text(o, ",");
    label(o, "metric", metric);
  }
  text(o, ",");
  label(o, "rank", digits);
  text(o, "}");
  number(o, v);
}

// --- Runs ----------------------------------------------------------------------------------------

static double iteration_of(const struct manta__entry *e)
{
  return e->index.ranks > 0 ? (double)e->index.rank[0].iteration : 0;
}
static double workers_of(const struct manta__entry *e)
{
  return strcmp(manta__entry_state(e), "running") ? 0 : e->index.world;
}
static double attempts_of(const struct manta__entry *e)
{
  return e->index.attempts;
}
static double lost_of(const struct manta__entry *e)
{
  return e->index.lost;
}
static double ckpts_of(const struct manta__entry *e)
{
  return (double)e->index.ckpts;
}
static double ckpt_time_of(const struct manta__entry *e)
{
  const struct manta__index *x = &e->index;
  return x->ckpts ? (double)x->ckpt[(x->ckpts - 1) % MANTA__INDEX_CKPTS].wall_ns / 1e9 : NAN;
}
static double begin_of(const struct manta__entry *e)
{
  return (double)e->index.begin_ns / 1e9;
}
static double bytes_of(const struct manta__entry *e)
{
  return (double)e->bytes;
}
static double best_of(const struct manta__entry *e)
{
  struct manta__best b = manta__best_of(&e->index);
  return b.series ? b.at.value : NAN;
}

/* A line per run; one whose number is NaN has none. */
static const struct run_gauge {
  const char *name, *kind, *help;
  double (*of)(const struct manta__entry *e);
} gauges[] = {
    {"manta_run_iteration", "gauge", "Newest iteration of rank 0.", iteration_of},
    {"manta_run_workers", "gauge", "Workers at work.", workers_of},
    {"manta_run_attempts_total", "counter", "Attempts begun: one, and one per revival.",
     attempts_of},
    {"manta_run_workers_lost_total", "counter", "Workers lost.", lost_of},
    {"manta_run_checkpoints_total", "counter", "Checkpoints written.", ckpts_of},
    {"manta_run_checkpoint_timestamp_seconds", "gauge", "When the newest one was written.",
     ckpt_time_of},
    {"manta_run_start_timestamp_seconds", "gauge", "When the run began.", begin_of},
    {"manta_run_size_bytes", "gauge", "Size of the run's directory.", bytes_of},
    {"manta_run_best", "gauge", "Best value of the metric that the run is judged by.", best_of},
};

static bool is_recent(const struct manta__entry *e, int64_t wall)
{
  return !e->trials && (e->live || wall - e->index.end_ns < LATELY_NS);
}

static void write_states(struct out *o, const struct manta__catalog *c)
{
  static const char *const states[] = {"running", "finished", "failed", "interrupted", "starting"};
  type(o, "manta_runs", "gauge", "Runs of the directory by state.");
  for (size_t k = 0; k < sizeof states / sizeof *states; k++) {
    double n = 0;
    for (size_t i = 0; i < c->count; i++)
      n += !strcmp(manta__entry_state(c->entry[i]), states[k]);
    text(o, "manta_runs{");
    label(o, "state", states[k]);
    text(o, "}");
    number(o, n);
  }
}

static void write_gauges(struct out *o, const struct manta__catalog *c, int64_t wall)
{
  for (size_t k = 0; k < sizeof gauges / sizeof *gauges; k++) {
    type(o, gauges[k].name, gauges[k].kind, gauges[k].help);
    for (size_t i = 0; i < c->count; i++) {
      const struct manta__entry *e = c->entry[i];
      double v = gauges[k].of(e);
      if (is_recent(e, wall) && !isnan(v))
        line(o, gauges[k].name, e->name, v);
    }
  }
}

// --- Metrics and workers -------------------------------------------------------------------------

static void write_metrics(struct out *o, const struct manta__catalog *c, int64_t wall)
{
  type(o, "manta_metric", "gauge", "Newest value that a rank has reported.");
  for (size_t i = 0; i < c->count; i++) {
    const struct manta__index *x = &c->entry[i]->index;
    for (uint32_t k = 0; is_recent(c->entry[i], wall) && k < x->series_count; k++)
      if (x->series[k].name[0] != '_')
        rank_line(o, "manta_metric", c->entry[i]->name, x->series[k].name, x->series[k].rank,
                  x->series[k].last);
  }
}

static double step_of(const struct manta__rank_state *r)
{
  return manta__rank_step(r);
}
static double cpu_of(const struct manta__rank_state *r)
{
  return r->sample_ns ? r->cpu : NAN;
}
static double rss_of(const struct manta__rank_state *r)
{
  return r->sample_ns ? (double)r->rss : NAN;
}
static double gpu_of(const struct manta__rank_state *r)
{
  return r->sample_ns ? r->gpu_memory : NAN;
}

static const struct rank_gauge {
  const char *name, *help;
  double (*of)(const struct manta__rank_state *r);
} rank_gauges[] = {
    {"manta_worker_step_seconds", "Median of the newest step times.", step_of},
    {"manta_worker_cpus", "CPUs in use.", cpu_of},
    {"manta_worker_resident_memory_bytes", "Resident memory.", rss_of},
    {"manta_worker_gpu_memory_bytes", "GPU memory in use.", gpu_of},
};

static void write_workers(struct out *o, const struct manta__catalog *c)
{
  for (size_t k = 0; k < sizeof rank_gauges / sizeof *rank_gauges; k++) {
    type(o, rank_gauges[k].name, "gauge", rank_gauges[k].help);
    for (size_t i = 0; i < c->count; i++) {
      const struct manta__entry *e = c->entry[i];
      bool running = !strcmp(manta__entry_state(e), "running");
      for (int r = 0; running && r < e->index.world && r < e->index.ranks; r++) {
        double v = rank_gauges[k].of(&e->index.rank[r]);
        if (!isnan(v))
          rank_line(o, rank_gauges[k].name, e->name, NULL, r, v);
      }
    }
  }
}

// --- Experiments ---------------------------------------------------------------------------------

static void write_trials(struct out *o, const struct manta__catalog *c, int64_t wall)
{
  static const char *const states[] = {"pending",  "running", "paused",
                                       "finished", "stopped", "failed"};
  type(o, "manta_experiment_trials", "gauge", "Trials of a tuning experiment by state.");
  for (size_t i = 0; i < c->count; i++) {
    const struct manta__dash_trials *t = c->entry[i]->trials;
    if (!t || !(c->entry[i]->live || wall - t->end_ns < LATELY_NS))
      continue;
    for (size_t k = 0; k < sizeof states / sizeof *states; k++) {
      double n = 0;
      for (uint32_t m = 0; m < t->count; m++)
        n += !strcmp(t->trial[m].state, states[k]);
      text(o, "manta_experiment_trials{");
      label(o, "run", c->entry[i]->name);
      text(o, ",");
      label(o, "state", states[k]);
      text(o, "}");
      number(o, n);
    }
  }
}

static void write_best(struct out *o, const struct manta__catalog *c, int64_t wall)
{
  type(o, "manta_experiment_best", "gauge", "Best value of the experiment's metric.");
  for (size_t i = 0; i < c->count; i++) {
    const struct manta__dash_trials *t = c->entry[i]->trials;
    if (t && t->steps > 0 && (c->entry[i]->live || wall - t->end_ns < LATELY_NS))
      line(o, "manta_experiment_best", c->entry[i]->name, t->step[t->steps - 1].value);
  }
}

manta_status manta__show_prometheus(const struct manta__catalog *c, manta__buf *out)
{
  struct out o = {out, MANTA_OK};
  int64_t wall = manta__wall();
  write_states(&o, c);
  write_gauges(&o, c, wall);
  write_metrics(&o, c, wall);
  write_workers(&o, c);
  write_trials(&o, c, wall);
  write_best(&o, c, wall);
  return o.st;
}
