/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/show.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "dash/best.h"

#define NS      1e9
#define DIGITS  7  /* of a value in a chart */
#define LASTS   6  /* metrics of a run in a list */
#define EXACTLY 15 /* digits of a time since 1970 */

void manta__sent_fini(struct manta__sent *s)
{
  manta__free(s->series);
  *s = (struct manta__sent){0};
}

// --- What a list says of a run -------------------------------------------------------------------

static void show_best(struct manta__dash_json *j, const struct manta__index *x)
{
  struct manta__best b = manta__best_of(x);
  if (!b.series)
    return;
  manta__dash_open(j, "best", '{');
  manta__dash_string(j, "metric", b.series->name);
  manta__dash_real(j, "value", b.at.value, DIGITS);
  manta__dash_int(j, "iteration", b.at.x);
  manta__dash_bool(j, "lowest", b.lowest);
  manta__dash_close(j, '}');
}

static void show_last(struct manta__dash_json *j, const struct manta__index *x)
{
  int n = 0;
  manta__dash_open(j, "last", '{');
  for (uint32_t i = 0; i < x->series_count && n < LASTS; i++)
    if (x->series[i].rank == 0 && x->series[i].name[0] != '_') {
      manta__dash_real(j, x->series[i].name, x->series[i].last, DIGITS);
      n++;
    }
  manta__dash_close(j, '}');
}

static void show_standing(struct manta__dash_json *j, const struct manta__entry *e)
{
  const struct manta__index *x = &e->index;
  manta__dash_string(j, "state", manta__entry_state(e));
  manta__dash_bool(j, "whole", e->whole);
  manta__dash_int(j, "iteration", x->ranks > 0 ? x->rank[0].iteration : 0);
  manta__dash_int(j, "rows", x->rows);
  manta__dash_int(j, "world", x->world);
  manta__dash_int(j, "attempts", x->attempts);
  manta__dash_int(j, "lost", x->lost);
  manta__dash_int(j, "checkpoints_made", (int64_t)x->ckpts);
  manta__dash_real(j, "begin", (double)x->begin_ns / NS, EXACTLY);
  manta__dash_real(j, "end", (double)x->end_ns / NS, EXACTLY);
  manta__dash_int(j, "bytes", e->bytes);
  show_best(j, x);
  show_last(j, x);
  if (x->message && x->failed)
    manta__dash_string(j, "message", x->message);
  if (e->error[0])
    manta__dash_string(j, "error", e->error);
}

void manta__show_runs(struct manta__dash_json *j, const struct manta__catalog *c)
{
  manta__dash_open(j, NULL, '{');
  manta__dash_string(j, "dir", c->dir);
  manta__dash_real(j, "now", (double)manta__wall() / NS, EXACTLY);
  manta__dash_bool(j, "full", c->full);
  manta__dash_open(j, "runs", '[');
  for (size_t i = 0; i < c->count; i++) {
    manta__dash_open(j, NULL, '{');
    manta__dash_string(j, "name", c->entry[i]->name);
    if (c->entry[i]->trials)
      manta__show_experiment_standing(j, c->entry[i]);
    else
      show_standing(j, c->entry[i]);
    manta__dash_close(j, '}');
  }
  manta__dash_close(j, ']');
  manta__dash_close(j, '}');
}

// --- Series --------------------------------------------------------------------------------------

enum bucket_part { MEAN, MIN, MAX, TIME };

static double cell(const struct manta__chart_bucket *b, enum bucket_part c)
{
  switch (c) {
  case MEAN:
    return b->n > 0 ? b->sum / b->n : NAN;
  case MIN:
    return b->n > 0 ? b->min : NAN;
  case MAX:
    return b->n > 0 ? b->max : NAN;
  default:
    return b->n + b->odd > 0 ? b->t : NAN;
  }
}

static void show_column(struct manta__dash_json *j, const char *key, const struct manta__curve *s,
                        uint32_t from, enum bucket_part c)
{
  manta__dash_open(j, key, '[');
  for (uint32_t i = from; i < s->count; i++)
    manta__dash_real(j, NULL, cell(&s->bucket[i], c), DIGITS);
  manta__dash_close(j, ']');
}

static void show_series(struct manta__dash_json *j, const struct manta__curve *s, uint32_t id,
                        uint32_t from)
{
  manta__dash_open(j, NULL, '{');
  manta__dash_int(j, "id", id);
  manta__dash_string(j, "name", s->name);
  manta__dash_int(j, "rank", s->rank);
  manta__dash_int(j, "x0", s->base);
  manta__dash_int(j, "w", s->width);
  manta__dash_int(j, "from", from);
  manta__dash_int(j, "last_x", s->last_x);
  manta__dash_real(j, "last", s->last, DIGITS);
  manta__dash_int(j, "points", (int64_t)(s->finite + s->odd));
  manta__dash_int(j, "odd", (int64_t)s->odd);
  if (s->finite > 0) {
    manta__dash_real(j, "low", s->low.value, DIGITS);
    manta__dash_int(j, "low_x", s->low.x);
    manta__dash_real(j, "high", s->high.value, DIGITS);
    manta__dash_int(j, "high_x", s->high.x);
  }
  show_column(j, "mean", s, from, MEAN);
  show_column(j, "t", s, from, TIME);
  if (s->width > 1) {
    show_column(j, "min", s, from, MIN);
    show_column(j, "max", s, from, MAX);
  }
  manta__dash_close(j, '}');
}

static manta_status grow_sent(struct manta__sent *s, uint32_t count)
{
  if (count <= s->series_count)
    return MANTA_OK;
  struct manta__sent_series *p = manta__realloc(s->series, count * sizeof *p);
  if (!p)
    return MANTA_ENOMEM;
  memset(p + s->series_count, 0, (count - s->series_count) * sizeof *p);
  s->series = p;
  s->series_count = count;
  return MANTA_OK;
}

static void show_all_series(struct manta__dash_json *j, const struct manta__index *x,
                            struct manta__sent *s)
{
  if (j->st == MANTA_OK)
    j->st = grow_sent(s, x->series_count);
  manta__dash_open(j, "series", '[');
  for (uint32_t i = 0; i < x->series_count && j->st == MANTA_OK; i++) {
    const struct manta__curve *one = &x->series[i];
    struct manta__sent_series *had = &s->series[i];
    uint64_t points = one->finite + one->odd;
    if (had->points == points && had->generation == one->generation && had->count == one->count)
      continue;
    // The last bucket that was sent may have grown.
    bool goes_on = had->generation == one->generation && had->count > 0;
    show_series(j, one, i, goes_on ? had->count - 1 : 0);
    *had = (struct manta__sent_series){one->generation, one->count, points};
  }
  manta__dash_close(j, ']');
}

// --- Workers, marks, checkpoints -----------------------------------------------------------------

static const char *state_of(const struct manta__entry *e, int rank)
{
  const struct manta__index *x = &e->index;
  if (rank >= x->world && x->world > 0)
    return "gone"; // the run goes on with fewer
  if (x->rank[rank].lost)
    return "lost";
  return !x->ended && e->live ? "running" : "ended";
}

static void show_worker(struct manta__dash_json *j, const struct manta__entry *e, int rank,
                        bool slow)
{
  const struct manta__rank_state *r = &e->index.rank[rank];
  manta__dash_open(j, NULL, '{');
  manta__dash_int(j, "rank", rank);
  manta__dash_string(j, "state", state_of(e, rank));
  manta__dash_int(j, "iteration", r->iteration);
  manta__dash_real(j, "step", manta__rank_step(r), DIGITS);
  manta__dash_bool(j, "slow", slow);
  manta__dash_real(j, "row", r->any ? (double)r->row_ns / NS : NAN, EXACTLY);
  if (r->sample_ns > 0) {
    manta__dash_string(j, "host", r->host);
    manta__dash_int(j, "pid", r->pid);
    manta__dash_real(j, "cpu", r->cpu, 4);
    manta__dash_int(j, "rss", r->rss);
    manta__dash_real(j, "gpu_memory", r->gpu_memory, EXACTLY);
    manta__dash_real(j, "gpu_use", r->gpu_use, 4);
  }
  manta__dash_close(j, '}');
}

static void show_workers(struct manta__dash_json *j, const struct manta__entry *e)
{
  static bool slow[MANTA__INDEX_RANKS]; // under the catalog's lock
  manta__index_stragglers(&e->index, slow);
  manta__dash_open(j, "workers", '[');
  for (int i = 0; i < e->index.ranks; i++)
    show_worker(j, e, i, slow[i]);
  manta__dash_close(j, ']');
}

static void show_marks(struct manta__dash_json *j, const struct manta__index *x,
                       struct manta__sent *s)
{
  static const char *const words[] = {[MANTA__MARK_ATTEMPT] = "attempt",
                                      [MANTA__MARK_LOST] = "lost",
                                      [MANTA__MARK_NOTE] = "note",
                                      [MANTA__MARK_FINISH] = "finish"};
  uint64_t from = s->marks;
  if (x->marks > MANTA__INDEX_MARKS && from < x->marks - MANTA__INDEX_MARKS)
    from = x->marks - MANTA__INDEX_MARKS;
  manta__dash_open(j, "marks", '[');
  for (uint64_t i = from; i < x->marks; i++) {
    const struct manta__mark *m = &x->mark[i % MANTA__INDEX_MARKS];
    manta__dash_open(j, NULL, '{');
    manta__dash_string(j, "kind", words[m->kind]);
    manta__dash_real(j, "time", (double)m->wall_ns / NS, EXACTLY);
    manta__dash_int(j, "iteration", m->iteration);
    manta__dash_int(j, "rank", m->rank);
    manta__dash_string(j, "text", m->text);
    manta__dash_close(j, '}');
  }
  manta__dash_close(j, ']');
  s->marks = x->marks;
}

static void show_ckpts(struct manta__dash_json *j, const struct manta__index *x,
                       struct manta__sent *s)
{
  uint64_t from = s->ckpts;
  if (x->ckpts > MANTA__INDEX_CKPTS && from < x->ckpts - MANTA__INDEX_CKPTS)
    from = x->ckpts - MANTA__INDEX_CKPTS;
  manta__dash_open(j, "checkpoints", '[');
  for (uint64_t i = from; i < x->ckpts; i++) {
    const struct manta__ckpt_mark *c = &x->ckpt[i % MANTA__INDEX_CKPTS];
    manta__dash_open(j, NULL, '{');
    manta__dash_string(j, "dir", c->dir);
    manta__dash_int(j, "iteration", c->iteration);
    manta__dash_int(j, "bytes", c->bytes);
    manta__dash_real(j, "score", c->score, DIGITS);
    manta__dash_real(j, "time", (double)c->wall_ns / NS, EXACTLY);
    manta__dash_close(j, '}');
  }
  manta__dash_close(j, ']');
  s->ckpts = x->ckpts;
}

// --- A run ---------------------------------------------------------------------------------------

static void show_head(struct manta__dash_json *j, const struct manta__index *x)
{
  static const char *const keys[] = {"argv", "config",  "cwd",   "exe", "function",
                                     "name", "version", "score", NULL};
  manta__dash_open(j, "head", '{');
  for (const char *const *k = keys; *k; k++)
    manta__dash_value(j, *k, manta_value_get(&x->start, *k));
  manta__dash_close(j, '}');
}

static void show_run(struct manta__dash_json *j, const struct manta__entry *e,
                     struct manta__sent *s)
{
  const struct manta__index *x = &e->index;
  manta__dash_string(j, "run", e->name);
  manta__dash_real(j, "now", (double)manta__wall() / NS, EXACTLY);
  show_standing(j, e);
  if (!s->head && x->start.type == MANTA_MAP) {
    show_head(j, x);
    s->head = true;
  }
  manta__dash_bool(j, "left_out", x->series_left_out);
  show_workers(j, e);
  show_marks(j, x, s);
  show_ckpts(j, x, s);
  show_all_series(j, x, s);
}

void manta__show_run(struct manta__dash_json *j, const struct manta__entry *e,
                     struct manta__sent *s)
{
  bool anew = s->begun != e->begun || s->version == 0;
  if (anew) {
    manta__sent_fini(s);
    s->begun = e->begun;
  }
  manta__dash_open(j, NULL, '{');
  manta__dash_bool(j, "anew", anew);
  (e->trials ? manta__show_experiment : show_run)(j, e, s);
  manta__dash_close(j, '}');
  s->version = e->version;
}
