/* SPDX-License-Identifier: Apache-2.0 */
#include "view/stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <manta/trainer.h>

#include "base/alloc.h"
#include "base/pack.h"

#define PACE_NS 500000000ll

void manta__stats_init(struct manta__stats *t)
{
  *t = (struct manta__stats){0};
}

void manta__stats_fini(struct manta__stats *t)
{
  for (size_t i = 0; i < t->metric_count; i++) {
    manta__free(t->metrics[i].peaks);
    manta__free(t->metrics[i].of_rank);
  }
  manta__free(t->metrics);
  *t = (struct manta__stats){0};
}

// --- metrics -------------------------------------------------------------------------------------

static enum manta__goal goal_in(const struct manta__stats *t, const char *name)
{
  if (t->score[0] && !strcmp(t->score, name))
    return t->score_min ? MANTA__GOAL_MIN : MANTA__GOAL_MAX;
  return manta__goal_of(name);
}

static struct manta__metric *add_metric(struct manta__stats *t, const char *name)
{
  if (t->metric_count == MANTA__METRICS_MAX) {
    t->metrics_left_out = true;
    return NULL;
  }
  if (!t->metrics &&
      !(t->metrics = manta__calloc(MANTA__METRICS_MAX, sizeof *t->metrics))) // they stay in place
    return NULL;
  struct manta__metric *m = &t->metrics[t->metric_count++];
  snprintf(m->name, sizeof m->name, "%s", name);
  m->goal = goal_in(t, name);
  return m;
}

// Rows of one program have the same names in the same order: `hint` is where it likely is.
static struct manta__metric *find_metric(struct manta__stats *t, const char *name, size_t hint)
{
  if (hint < t->metric_count && !strcmp(t->metrics[hint].name, name))
    return &t->metrics[hint];
  for (size_t i = 0; i < t->metric_count; i++)
    if (!strcmp(t->metrics[i].name, name))
      return &t->metrics[i];
  return add_metric(t, name);
}

static bool is_better(enum manta__goal goal, double a, double b)
{
  return goal == MANTA__GOAL_MIN ? a < b : a > b;
}

// Every second one goes, and from now on only every second as many are kept: they stay spread over
// the whole run.
static void thin_out(struct manta__metric *m)
{
  uint32_t n = 0;
  for (uint32_t i = 1; i < m->peak_count; i += 2)
    m->peaks[n++] = m->peaks[i];
  m->peak_count = n;
  m->stride *= 2;
}

static bool make_place(struct manta__metric *m)
{
  if (m->peak_count < m->peak_cap)
    return true;
  if (m->peak_cap == MANTA__PEAKS_MAX) {
    thin_out(m);
    return true;
  }
  uint32_t cap = m->peak_cap ? 4 * m->peak_cap : 8;
  struct manta__peak *p = manta__realloc(m->peaks, cap * sizeof *p);
  if (!p)
    return false;
  m->peaks = p;
  m->peak_cap = cap;
  m->stride = m->stride ? m->stride : 1;
  return true;
}

// The newest is always there; it gives way to the next one unless its turn is to be kept.
static void add_peak(struct manta__metric *m, int64_t at, double value)
{
  if (m->goal == MANTA__GOAL_NONE || isnan(value) ||
      (m->peak_count && !is_better(m->goal, value, m->peaks[m->peak_count - 1].value)))
    return;
  if (m->passing && m->peak_count)
    m->peak_count--;
  else if (!make_place(m))
    return;
  m->peaks[m->peak_count++] = (struct manta__peak){at, value};
  m->passing = ++m->improved % m->stride != 0;
}

static void set_of_rank(struct manta__metric *m, int rank, double value)
{
  if (rank >= m->ranks) {
    int count = rank < 2 * m->ranks ? 2 * m->ranks : rank + 1;
    double *p = manta__realloc(m->of_rank, (size_t)count * sizeof *p);
    if (!p)
      return;
    for (int i = m->ranks; i < count; i++)
      p[i] = NAN;
    m->of_rank = p;
    m->ranks = count;
  }
  m->of_rank[rank] = value;
}

static void take_metrics(struct manta__stats *t, int rank, int64_t iteration, const void *payload,
                         size_t len)
{
  struct manta__row_walk w;
  double value;
  manta__row_walk(&w, payload, len);
  for (size_t hint = 0; manta__row_next(&w, &value);) {
    if (w.name[0] == '_') // manta's own
      continue;
    struct manta__metric *m = find_metric(t, w.name, hint);
    if (!m)
      continue;
    hint = (size_t)(m - t->metrics) + 1;
    set_of_rank(m, rank, value);
    if (rank != 0)
      continue;
    m->last = value;
    m->at = iteration;
    add_peak(m, iteration, value);
  }
}

// --- rows ----------------------------------------------------------------------------------------

static void note_time(struct manta__stats *t, int64_t wall_ns)
{
  if (t->begin_ns == 0)
    t->begin_ns = wall_ns;
  if (wall_ns > t->now_ns)
    t->now_ns = wall_ns;
}

static void note_pace(struct manta__stats *t, int64_t wall_ns, int64_t iteration)
{
  int n = t->pace_count;
  if (n > 0 && wall_ns - t->paces[n - 1].wall_ns < PACE_NS)
    return;
  if (n == MANTA__PACES) {
    memmove(t->paces, t->paces + 1, (size_t)(--n) * sizeof *t->paces);
    t->pace_count = n;
  }
  t->paces[t->pace_count++] = (struct manta__pace){wall_ns, iteration};
}

static void catch_up(struct manta__stats *t, int64_t wall_ns)
{
  if (!t->behind)
    return;
  t->behind = false;
  if (wall_ns > t->since_ns)
    t->cost_ns += wall_ns - t->since_ns;
}

void manta__stats_row(struct manta__stats *t, const struct manta__ident *id, int64_t wall_ns,
                      const void *payload, size_t len)
{
  if (id->rank < 0 || id->rank >= MANTA_MAX_RANKS || id->attempt < t->attempt)
    return;
  note_time(t, wall_ns);
  int64_t iteration = manta__row_iteration(payload, len);
  t->rows++;
  take_metrics(t, id->rank, iteration, payload, len);
  if (id->rank != 0)
    return;
  if (t->behind && iteration >= t->reached && iteration > t->from)
    catch_up(t, wall_ns);
  t->iteration = iteration;
  t->row_ns = wall_ns;
  note_pace(t, wall_ns, iteration);
}

// --- other records -------------------------------------------------------------------------------

static void begin_run(struct manta__stats *t, const manta_value *v)
{
  snprintf(t->score, sizeof t->score, "%s", manta_value_as_string(manta_value_get(v, "score"), ""));
  t->score_min = manta_value_as_bool(manta_value_get(v, "score_min"), false);
}

static void fall_behind(struct manta__stats *t, int64_t wall_ns)
{
  if (t->behind)
    return;
  t->behind = true;
  t->since_ns = wall_ns;
  t->reached = t->from = t->iteration;
}

static void begin_attempt(struct manta__stats *t, const struct manta__ident *id, int64_t wall_ns,
                          const manta_value *v)
{
  int64_t world = manta_value_as_int(manta_value_get(v, "world"), 0);
  if (world >= 0 && world <= MANTA_MAX_RANKS)
    t->world = (int)world;
  if (id->attempt > 0) {
    t->restarts++;
    fall_behind(t, wall_ns);
  }
  if (id->attempt > t->attempt)
    t->attempt = id->attempt;
  t->over = t->failed = false;
  t->pace_count = 0;
  for (size_t i = 0; i < t->metric_count; i++) // there may be fewer of them now
    for (int r = 0; r < t->metrics[i].ranks; r++)
      t->metrics[i].of_rank[r] = NAN;
}

static void rewind_to(struct manta__stats *t, const struct manta__ident *id, int64_t wall_ns,
                      int64_t to)
{
  fall_behind(t, wall_ns);
  if (t->iteration > to)
    t->repeated += t->iteration - to;
  t->from = to < t->from ? to : t->from;
  t->iteration = to < t->iteration ? to : t->iteration;
  t->attempt = id->attempt > t->attempt ? id->attempt : t->attempt;
  t->pace_count = 0;
  for (size_t i = 0; i < t->metric_count; i++) {
    struct manta__metric *m = &t->metrics[i];
    while (m->peak_count && m->peaks[m->peak_count - 1].at > to)
      m->peak_count--;
    m->at = m->at > to ? 0 : m->at;
  }
}

static void note_loss(struct manta__stats *t, int64_t wall_ns, const manta_value *v)
{
  t->lost++;
  fall_behind(t, wall_ns);
  if (t->stop_count == MANTA__STOPS_MAX)
    return;
  struct manta__stop *s = &t->stops[t->stop_count++];
  *s = (struct manta__stop){wall_ns, t->reached,
                            (int)manta_value_as_int(manta_value_get(v, "rank"), -1), ""};
  snprintf(s->cause, sizeof s->cause, "%s", manta_value_as_string(manta_value_get(v, "cause"), ""));
}

static void note_checkpoint(struct manta__stats *t, int64_t wall_ns, const manta_value *v)
{
  t->checkpoints++;
  t->ckpt_ns = wall_ns;
  t->ckpt_iteration = manta_value_as_int(manta_value_get(v, "iteration"), 0);
  t->ckpt_bytes = manta_value_as_int(manta_value_get(v, "bytes"), 0);
}

static void finish(struct manta__stats *t, int64_t wall_ns, const manta_value *v)
{
  const manta_value *start = manta_value_get(v, "start");
  catch_up(t, wall_ns);
  t->over = true;
  t->failed = strcmp(manta_value_as_string(manta_value_get(v, "status"), ""), "OK") != 0;
  t->formed_s = manta_value_as_real(manta_value_get(start, "formed_s"), 0);
  t->first_row_s = manta_value_as_real(manta_value_get(start, "first_row_s"), 0);
}

void manta__stats_event(struct manta__stats *t, enum manta__event kind,
                        const struct manta__ident *id, int64_t wall_ns, const manta_value *v)
{
  note_time(t, wall_ns);
  if (kind == MANTA__EV_RUN)
    begin_run(t, v);
  else if (kind == MANTA__EV_ATTEMPT)
    begin_attempt(t, id, wall_ns, v);
  else if (kind == MANTA__EV_REWIND)
    rewind_to(t, id, wall_ns, manta_value_as_int(manta_value_get(v, "to"), INT64_MAX));
  else if (kind == MANTA__EV_CKPT)
    note_checkpoint(t, wall_ns, v);
  else if (kind == MANTA__EV_LOST)
    note_loss(t, wall_ns, v);
  else if (kind == MANTA__EV_FINISH)
    finish(t, wall_ns, v);
}

// --- a whole log ---------------------------------------------------------------------------------

static manta_status take_record(struct manta__stats *t, const struct manta__record *h,
                                const uint8_t *payload, manta_error *err)
{
  manta_value v = {0};
  if (h->kind == MANTA__EV_ROW) {
    manta__stats_row(t, &h->id, h->wall_ns, payload, h->len);
    return MANTA_OK;
  }
  if (manta__unpack(&v, payload, h->len, NULL, err) == MANTA_ENOMEM)
    return MANTA_ENOMEM;
  manta__stats_event(t, (enum manta__event)h->kind, &h->id, h->wall_ns, &v);
  manta_value_fini(&v);
  return MANTA_OK;
}

manta_status manta__stats_read(struct manta__stats *t, int dirfd, manta_error *err)
{
  manta__log_reader *r;
  struct manta__record h;
  const uint8_t *payload;
  int rc;
  manta__stats_init(t);
  MANTA_TRY(manta__log_reader_open(&r, dirfd, err));
  while ((rc = manta__log_next(r, &h, &payload, err)) > 0)
    if ((rc = (int)take_record(t, &h, payload, err)) < 0)
      break;
  manta__log_reader_close(r);
  return rc < 0 ? (manta_status)rc : MANTA_OK;
}

// --- answers -------------------------------------------------------------------------------------

const struct manta__peak *manta__metric_best(const struct manta__metric *m)
{
  return m && m->peak_count ? &m->peaks[m->peak_count - 1] : NULL;
}

const struct manta__metric *manta__stats_main(const struct manta__stats *t)
{
  const struct manta__metric *first = NULL;
  for (size_t i = 0; i < t->metric_count; i++) {
    const struct manta__metric *m = &t->metrics[i];
    if (t->score[0] && !strcmp(m->name, t->score))
      return m;
    if (!first && m->peak_count)
      first = m;
  }
  return first;
}

double manta__stats_rate(const struct manta__stats *t, int64_t now_ns)
{
  if (t->pace_count == 0)
    return 0;
  const struct manta__pace *p = &t->paces[0];
  int64_t until = now_ns - t->row_ns > 2 * PACE_NS ? now_ns : t->row_ns; // it may have stopped
  return until > p->wall_ns
             ? (double)(t->iteration - p->iteration) / ((double)(until - p->wall_ns) / 1e9)
             : 0;
}

double manta__stats_mean_rate(const struct manta__stats *t)
{
  double s = (double)(t->row_ns - t->begin_ns) / 1e9;
  return s > 0 ? (double)t->iteration / s : 0;
}
