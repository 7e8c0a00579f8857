/* SPDX-License-Identifier: Apache-2.0 */
#include "view/plot.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define X_TICKS 8
#define Y_TICKS 5

void manta__plot_fini(struct manta__plot *p)
{
  for (size_t i = 0; i < p->run_count; i++)
    manta__run_series_fini(&p->runs[i]);
  p->run_count = p->panel_count = 0;
}

// --- which lines are in which panel --------------------------------------------------------------

// "train/loss", "val_loss" and "loss": "loss".
static const char *last_word(const char *name)
{
  const char *p = name + strlen(name);
  while (p > name && isalnum((unsigned char)p[-1]))
    p--;
  return *p ? p : name;
}

// NULL: there is no room for another one.
static struct manta__plot_panel *panel_for(struct manta__plot *p, const char *metric)
{
  const char *word = last_word(metric);
  for (size_t i = 0; i < p->panel_count; i++)
    if (!strcasecmp(p->panels[i].title, word))
      return &p->panels[i];
  if (p->panel_count == MANTA__PLOT_PANELS)
    return NULL;
  struct manta__plot_panel *one = &p->panels[p->panel_count++];
  snprintf(one->title, sizeof one->title, "%s", word);
  return one;
}

static void add_lines(struct manta__plot *p, const char *metric)
{
  for (size_t i = 0; i < p->run_count; i++) {
    const struct manta__plot_series *s = manta__run_series_find(&p->runs[i], metric);
    if (!s || s->count == 0)
      continue;
    struct manta__plot_panel *panel = panel_for(p, metric);
    if (panel && panel->count < MANTA__PLOT_LINES)
      panel->lines[panel->count++] = (struct manta__plot_line){.series = s, .run = i};
    else
      p->left_out++;
  }
}

static bool is_there(const struct manta__plot *p, const char *metric)
{
  for (size_t i = 0; i < p->run_count; i++)
    if (manta__run_series_find(&p->runs[i], metric))
      return true;
  return false;
}

static manta_status refuse(const struct manta__plot *p, const char *metric, manta_error *err)
{
  char known[512] = "";
  size_t n = 0;
  const struct manta__run_series *r = &p->runs[0];
  for (size_t i = 0; i < r->count && n < sizeof known; i++)
    n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", r->series[i].name);
  return manta_error_set(err, MANTA_ENOENT, "no run has a metric \"%s\"\nhint: there are: %s",
                         metric, r->count ? manta__text_safe(known) : "none that are numbers");
}

// --- names ---------------------------------------------------------------------------------------

// "best 0.0123 at 940", for a metric that has a goal and a run of its own.
static void add_best(struct manta__plot_line *l, const struct manta__plot *p)
{
  char text[MANTA__TEXT];
  const struct manta__stats *s = &p->runs[l->run].stats;
  for (size_t i = 0; i < s->metric_count; i++) {
    const struct manta__peak *best = manta__metric_best(&s->metrics[i]);
    size_t n = strlen(l->label);
    if (best && !strcmp(s->metrics[i].name, l->series->name))
      snprintf(l->label + n, sizeof l->label - n, "%sbest %s at %lld", n ? ", " : "",
               manta__text_number(text, best->value), (long long)best->at);
  }
}

static void name_lines(const struct manta__plot *p, struct manta__plot_panel *panel)
{
  bool runs = p->run_count > 1, metrics = false;
  for (size_t i = 1; i < panel->count; i++)
    metrics |= strcmp(panel->lines[i].series->name, panel->lines[0].series->name) != 0;
  if (!metrics)
    snprintf(panel->title, sizeof panel->title, "%s", panel->lines[0].series->name);
  for (size_t i = 0; i < panel->count; i++) {
    struct manta__plot_line *l = &panel->lines[i];
    l->colour = runs && !metrics ? (int)l->run : (int)i;
    snprintf(l->label, sizeof l->label, "%s%s%s", runs ? p->names[l->run] : "",
             runs && metrics ? " " : "", metrics ? l->series->name : "");
    if (panel->count <= 3)
      add_best(l, p);
    manta__text_safe(l->label);
  }
  manta__text_safe(panel->title);
}

// --- axes ----------------------------------------------------------------------------------------

double manta__plot_x(const struct manta__plot *p, size_t run, int64_t iteration, int64_t wall_ns)
{
  if (!p->by_time)
    return (double)iteration;
  return (double)(wall_ns - p->runs[run].stats.begin_ns) / 1e9 / p->unit;
}

static void make_y(const struct manta__plot *p, struct manta__plot_panel *panel)
{
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < panel->count; i++)
    for (size_t k = 0; k < panel->lines[i].series->count; k++) {
      const struct manta__bin *b = &panel->lines[i].series->bins[k];
      low = fmin(low, b->least);
      high = fmax(high, b->most);
    }
  manta__axis_make(&panel->y, low, high, p->log, Y_TICKS, true);
}

static void make_x(struct manta__plot *p)
{
  double low = INFINITY, high = -INFINITY;
  p->unit = 1;
  for (size_t k = 0; k < p->panel_count; k++)
    for (size_t i = 0; i < p->panels[k].count; i++) {
      const struct manta__plot_line *l = &p->panels[k].lines[i];
      const struct manta__bin *b = l->series->bins, *e = &b[l->series->count - 1];
      low = fmin(low, manta__plot_x(p, l->run, b->first, b->wall_ns));
      high = fmax(high, manta__plot_x(p, l->run, e->last, e->wall_ns));
    }
  if (p->by_time) {
    p->unit = high > 3 * 3600 ? 3600 : high > 300 ? 60 : 1;
    low = 0;
    high /= p->unit;
  }
  snprintf(p->x_label, sizeof p->x_label, "%s",
           !p->by_time     ? "iteration"
           : p->unit == 1  ? "time (s)"
           : p->unit == 60 ? "time (min)"
                           : "time (h)");
  if (p->by_time)
    manta__axis_make(&p->x, low, high, false, X_TICKS, false);
  else
    manta__axis_count(&p->x, low, high, X_TICKS);
}

manta_status manta__plot_make(struct manta__plot *p, char *const *metrics, size_t count,
                              manta_error *err)
{
  for (size_t i = 0; i < count; i++) {
    if (!is_there(p, metrics[i]))
      return refuse(p, metrics[i], err);
    add_lines(p, metrics[i]);
  }
  for (size_t r = 0; count == 0 && r < p->run_count; r++)
    for (size_t i = 0; i < p->runs[r].count; i++)
      if (r == 0 || !manta__run_series_find(&p->runs[0], p->runs[r].series[i].name))
        add_lines(p, p->runs[r].series[i].name);
  if (p->panel_count == 0)
    return manta_error_set(err, MANTA_ENOENT, "there is nothing to plot: no row has a %s",
                           count ? "finite number of that name" : "finite number");
  for (size_t k = 0; k < p->panel_count; k++) {
    name_lines(p, &p->panels[k]);
    make_y(p, &p->panels[k]);
  }
  make_x(p);
  return MANTA_OK;
}
