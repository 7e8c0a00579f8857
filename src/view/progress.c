/* SPDX-License-Identifier: Apache-2.0 */
#include "view/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "view/text.h"

#define NAME_COLUMNS 24 /* of a metric, at most */
#define HEAD_COLUMNS 50 /* of what follows the name of a run, about */

// --- pieces --------------------------------------------------------------------------------------

static const char *safe(char buf[MANTA__ROW_NAME], const char *name)
{
  snprintf(buf, MANTA__ROW_NAME, "%s", name);
  return manta__text_safe(buf);
}

static void put_look(manta__buf *out, const struct manta__look *look, int code)
{
  if (look->colours)
    manta__buf_printf(out, "\033[%dm", code);
}

static const char *state_of(const struct manta__stats *s)
{
  if (s->over)
    return s->failed ? "failed" : "finished";
  return s->rows == 0 ? "starting" : s->behind ? "recovering" : "running";
}

static int colour_of(const struct manta__stats *s)
{
  return s->failed ? 31 : s->behind && !s->over ? 33 : 32;
}

static int64_t age(const struct manta__stats *s, const struct manta__look *look)
{
  return (s->over ? s->now_ns : look->now_ns) - s->begin_ns;
}

// "2 workers, 1 restart"
static void put_workers(manta__buf *out, const struct manta__stats *s)
{
  manta__buf_printf(out, "%d worker%s", s->world, s->world == 1 ? "" : "s");
  if (s->restarts)
    manta__buf_printf(out, ", %d restart%s", s->restarts, s->restarts == 1 ? "" : "s");
}

// "iteration 300, 17 MB, 12s ago (6 written)"
static void put_checkpoint(manta__buf *out, const struct manta__stats *s,
                           const struct manta__look *look)
{
  char size[MANTA__TEXT], ago[MANTA__TEXT];
  manta__buf_printf(out, "iteration %" PRId64 ", %s, %s ago (%" PRId64 " written)",
                    s->ckpt_iteration, manta__text_size(size, (uint64_t)s->ckpt_bytes),
                    manta__text_duration(ago, look->now_ns - s->ckpt_ns), s->checkpoints);
}

struct spread {
  int count;
  double least, most, sum;
};

static struct spread spread_of(const struct manta__metric *m, int world)
{
  struct spread p = {0, INFINITY, -INFINITY, 0};
  for (int r = 0; r < m->ranks && r < world; r++) {
    double x = m->of_rank[r];
    if (isnan(x))
      continue;
    p.count++;
    p.sum += x;
    p.least = fmin(p.least, x);
    p.most = fmax(p.most, x);
  }
  return p;
}

static double rate_of(const struct manta__stats *s, const struct manta__look *look)
{
  return s->over ? manta__stats_mean_rate(s) : manta__stats_rate(s, look->now_ns);
}

// --- the block of a terminal ---------------------------------------------------------------------

// The name; where the line has no room for it, a part of it, so that the iteration is seen.
static void put_name(manta__buf *out, const struct manta__look *look)
{
  char name[MANTA__ROW_NAME], part[MANTA__ROW_NAME + 8];
  int room = look->columns - HEAD_COLUMNS;
  size_t most = look->columns == 0 ? sizeof name : room > 8 ? (size_t)room : 8;
  put_look(out, look, 1);
  manta__buf_puts(out, manta__text_cut(part, sizeof part, safe(name, look->name), most));
  put_look(out, look, 0);
}

static void put_head(manta__buf *out, const struct manta__stats *s, const struct manta__look *look)
{
  char span[MANTA__TEXT], rate[MANTA__TEXT];
  put_name(out, look);
  manta__buf_putc(out, ' ');
  put_look(out, look, colour_of(s));
  manta__buf_puts(out, state_of(s));
  put_look(out, look, 0);
  manta__buf_printf(out, " %s: iteration %" PRId64 ", %s, ",
                    manta__text_duration(span, age(s, look)), s->iteration,
                    manta__text_rate(rate, rate_of(s, look)));
  put_workers(out, s);
}

static int widest(const struct manta__stats *s)
{
  int wide = 10; // "checkpoint"
  for (size_t i = 0; i < s->metric_count; i++) {
    int n = (int)manta__text_columns(s->metrics[i].name);
    wide = n > wide ? n : wide;
  }
  return wide > NAME_COLUMNS ? NAME_COLUMNS : wide;
}

// Of two or more: "mean 0.12, 0.11 to 0.13"; with verbose 2 each.
static void put_ranks(manta__buf *out, const struct manta__metric *m, const struct manta__stats *s,
                      int verbose)
{
  char a[MANTA__TEXT], b[MANTA__TEXT], c[MANTA__TEXT];
  struct spread p = spread_of(m, s->world);
  if (p.count < 2 || (verbose < 2 && p.least == p.most))
    return;
  if (verbose < 2) {
    manta__buf_printf(out, "  mean %s, %s to %s", manta__text_number(a, p.sum / p.count),
                      manta__text_number(b, p.least), manta__text_number(c, p.most));
    return;
  }
  manta__buf_puts(out, "  ranks");
  for (int r = 0; r < m->ranks && r < s->world && r < 64; r++)
    manta__buf_printf(out, " %s",
                      isnan(m->of_rank[r]) ? "-" : manta__text_number(a, m->of_rank[r]));
}

static void put_metric(manta__buf *out, const struct manta__metric *m, const struct manta__stats *s,
                       const struct manta__look *look, int wide)
{
  char name[MANTA__ROW_NAME], text[MANTA__TEXT];
  const struct manta__peak *best = manta__metric_best(m);
  int pad = wide - (int)manta__text_columns(m->name);
  manta__buf_printf(out, "\n  %s%*s %10s", safe(name, m->name), pad > 0 ? pad : 0, "",
                    m->at ? manta__text_number(text, m->last) : "-");
  if (best)
    manta__buf_printf(out, "  best %s at %" PRId64, manta__text_number(text, best->value),
                      best->at);
  put_ranks(out, m, s, look->verbose);
}

void manta__progress_block(manta__buf *out, const struct manta__stats *s,
                           const struct manta__look *look)
{
  int wide = widest(s);
  size_t room = look->rows > 2 ? (size_t)look->rows - 2 : look->rows ? 1 : s->metric_count;
  put_head(out, s, look);
  for (size_t i = 0; i < s->metric_count && i < room; i++)
    put_metric(out, &s->metrics[i], s, look, wide);
  if (s->checkpoints) {
    manta__buf_printf(out, "\n  %-*s ", wide, "checkpoint");
    put_checkpoint(out, s, look);
  }
}

// --- one line ------------------------------------------------------------------------------------

void manta__progress_line(manta__buf *out, const struct manta__stats *s,
                          const struct manta__look *look)
{
  char name[MANTA__ROW_NAME], text[MANTA__TEXT];
  manta__buf_printf(out, "%s: iteration %" PRId64 ", %s", safe(name, look->name), s->iteration,
                    manta__text_duration(text, age(s, look)));
  manta__buf_printf(out, ", %s", manta__text_rate(text, rate_of(s, look)));
  for (size_t i = 0; i < s->metric_count && i < 6; i++) {
    const struct manta__metric *m = &s->metrics[i];
    const struct manta__peak *best = manta__metric_best(m);
    if (m->at)
      manta__buf_printf(out, ", %s %s", safe(name, m->name), manta__text_number(text, m->last));
    if (m->at && best)
      manta__buf_printf(out, " (best %s)", manta__text_number(text, best->value));
  }
  manta__buf_puts(out, ", ");
  put_workers(out, s);
  if (s->checkpoints)
    manta__buf_printf(out, ", checkpoint %" PRId64, s->ckpt_iteration);
  if (s->behind && !s->over)
    manta__buf_puts(out, ", recovering");
}

// --- a notebook ----------------------------------------------------------------------------------

static void put_escaped(manta__buf *out, const char *p)
{
  for (; *p; p++) {
    const char *text = *p == '<' ? "&lt;" : *p == '>' ? "&gt;" : *p == '&' ? "&amp;" : NULL;
    if (*p == '"')
      text = "&quot;";
    if (text)
      manta__buf_puts(out, text);
    else
      manta__buf_putc(out, *p);
  }
}

static void put_html_metric(manta__buf *out, const struct manta__metric *m,
                            const struct manta__stats *s)
{
  static const char cell[] = "<td style=\"text-align:right\">";
  char name[MANTA__ROW_NAME], a[MANTA__TEXT], b[MANTA__TEXT];
  const struct manta__peak *best = manta__metric_best(m);
  struct spread p = spread_of(m, s->world);
  manta__buf_puts(out, "<tr><th style=\"text-align:left\">");
  put_escaped(out, safe(name, m->name));
  manta__buf_printf(out, "</th>%s%s</td>%s", cell, m->at ? manta__text_number(a, m->last) : "-",
                    cell);
  if (best)
    manta__buf_printf(out, "%s at %" PRId64, manta__text_number(a, best->value), best->at);
  manta__buf_printf(out, "</td>%s", cell);
  if (p.count > 1)
    manta__buf_printf(out, "%s to %s", manta__text_number(a, p.least),
                      manta__text_number(b, p.most));
  manta__buf_puts(out, "</td></tr>");
}

void manta__progress_html(manta__buf *out, const struct manta__stats *s,
                          const struct manta__look *look)
{
  char name[MANTA__ROW_NAME], span[MANTA__TEXT], rate[MANTA__TEXT];
  manta__buf_puts(out, "<div class=\"manta-progress\"><b>");
  put_escaped(out, safe(name, look->name));
  manta__buf_printf(out, "</b> %s %s: iteration %" PRId64 ", %s, ", state_of(s),
                    manta__text_duration(span, age(s, look)), s->iteration,
                    manta__text_rate(rate, rate_of(s, look)));
  put_workers(out, s);
  if (s->metric_count)
    manta__buf_puts(out, "<table><thead><tr><th>metric</th><th>last</th><th>best</th>"
                         "<th>workers</th></tr></thead><tbody>");
  for (size_t i = 0; i < s->metric_count; i++)
    put_html_metric(out, &s->metrics[i], s);
  if (s->metric_count)
    manta__buf_puts(out, "</tbody></table>");
  if (s->checkpoints) {
    manta__buf_puts(out, "checkpoint: ");
    put_checkpoint(out, s, look);
  }
  manta__buf_puts(out, "</div>");
}

// --- after the end -------------------------------------------------------------------------------

static void put_start(manta__buf *out, const struct manta__stats *s)
{
  if (s->first_row_s > 0)
    manta__buf_printf(out, "start: workers after %.0f ms, first row after %.0f ms\n",
                      s->formed_s * 1e3, s->first_row_s * 1e3);
}

static void put_restarts(manta__buf *out, const struct manta__stats *s)
{
  char span[MANTA__TEXT];
  if (s->restarts)
    manta__buf_printf(out, "restarts: %d, %s lost, %" PRId64 " iteration%s done twice\n",
                      s->restarts, manta__text_duration(span, s->cost_ns), s->repeated,
                      s->repeated == 1 ? "" : "s");
}

void manta__progress_summary(manta__buf *out, const struct manta__stats *s,
                             const struct manta__look *look)
{
  int wide = widest(s);
  put_head(out, s, look);
  for (size_t i = 0; i < s->metric_count && i < 20; i++)
    put_metric(out, &s->metrics[i], s, look, wide);
  manta__buf_putc(out, '\n');
  if (s->checkpoints) {
    manta__buf_puts(out, "checkpoint: ");
    put_checkpoint(out, s, look);
    manta__buf_putc(out, '\n');
  }
  put_restarts(out, s);
  if (look->verbose > 1)
    put_start(out, s);
}
