/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/index.c - rows and rewinds; the other records are in index_note.c.
 */
#include "dash/index.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "dash/index_note.h"
#include "event/row.h"

#define MAX_CUTS 65536
#define SLOWER   1.5 /* than the median: a straggler */

// --- Series --------------------------------------------------------------------------------------

static uint32_t hash_of(const char *name, size_t len, int rank)
{
  return (uint32_t)manta__hash_seed(name, len, (uint64_t)(uint32_t)rank);
}

static bool is_named(const struct manta__curve *s, const char *name, size_t len, int rank)
{
  return s->rank == rank && strlen(s->name) == len && !memcmp(s->name, name, len);
}

// The slot that holds it or where it belongs. There is always a free one.
static uint32_t *find_slot(const struct manta__index *x, const char *name, size_t len, int rank)
{
  uint32_t i = hash_of(name, len, rank) & (x->slots - 1);
  while (x->slot[i] && !is_named(&x->series[x->slot[i] - 1], name, len, rank))
    i = (i + 1) & (x->slots - 1);
  return &x->slot[i];
}

const struct manta__curve *manta__index_find(const struct manta__index *x, const char *name,
                                             int rank)
{
  uint32_t at = x->slots ? *find_slot(x, name, strlen(name), rank) : 0;
  return at ? &x->series[at - 1] : NULL;
}

static manta_status grow_table(struct manta__index *x)
{
  uint32_t slots = x->slots ? 2 * x->slots : 64;
  struct manta__curve *p = manta__realloc(x->series, slots / 2 * sizeof *p);
  if (!p)
    return MANTA_ENOMEM;
  x->series = p;
  uint32_t *table = manta__calloc(slots, sizeof *table);
  if (!table)
    return MANTA_ENOMEM;
  manta__free(x->slot);
  x->slot = table;
  x->slots = slots;
  x->series_cap = slots / 2;
  for (uint32_t i = 0; i < x->series_count; i++) {
    const struct manta__curve *s = &x->series[i];
    *find_slot(x, s->name, strlen(s->name), s->rank) = i + 1;
  }
  return MANTA_OK;
}

// With more series each has fewer buckets.
static void share_out(struct manta__index *x)
{
  uint32_t limit = MANTA__CURVE_BUCKETS;
  while (limit > MANTA__CURVE_FEWEST &&
         (size_t)limit * x->series_count * sizeof(struct manta__chart_bucket) > MANTA__INDEX_BYTES)
    limit /= 2;
  for (uint32_t i = 0; limit != x->limit && i < x->series_count; i++)
    manta__curve_set_limit(&x->series[i], limit);
  x->limit = limit;
}

manta_status manta__index_series(struct manta__index *x, const char *name, size_t len, int rank,
                                 uint32_t *out)
{
  uint32_t at = x->slots ? *find_slot(x, name, len, rank) : 0;
  if (!at) {
    if (x->series_count == MANTA__INDEX_SERIES) {
      x->series_left_out = true;
      return MANTA_ETOOBIG;
    }
    if (x->series_count == x->series_cap)
      MANTA_TRY(grow_table(x));
    MANTA_TRY(manta__curve_init(&x->series[x->series_count], name, len, rank));
    at = ++x->series_count;
    *find_slot(x, name, len, rank) = at;
    x->series[at - 1].limit = x->limit ? x->limit : MANTA__CURVE_BUCKETS;
    share_out(x);
  }
  *out = at - 1;
  return MANTA_OK;
}

// --- Ranks ---------------------------------------------------------------------------------------

manta_status manta__index_rank(struct manta__index *x, int rank, struct manta__rank_state **out)
{
  if (rank < 0 || rank >= MANTA__INDEX_RANKS)
    return MANTA_ETOOBIG;
  if (rank >= x->ranks) {
    struct manta__rank_state *p = manta__realloc(x->rank, (size_t)(rank + 1) * sizeof *p);
    if (!p)
      return MANTA_ENOMEM;
    memset(p + x->ranks, 0, (size_t)(rank + 1 - x->ranks) * sizeof *p);
    x->rank = p;
    x->ranks = rank + 1;
  }
  *out = &x->rank[rank];
  return MANTA_OK;
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
  if (n == 0)
    return NAN;
  qsort(v, n, sizeof *v, by_value);
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double manta__rank_step(const struct manta__rank_state *r)
{
  double v[MANTA__STEPS];
  size_t n = r->steps < MANTA__STEPS ? r->steps : MANTA__STEPS;
  memcpy(v, r->step, n * sizeof *v);
  return median(v, n);
}

void manta__index_stragglers(const struct manta__index *x, bool *slow)
{
  static double step[MANTA__INDEX_RANKS], sorted[MANTA__INDEX_RANKS]; // under the server's lock
  size_t n = 0;
  for (int i = 0; i < x->ranks; i++) {
    step[i] = manta__rank_step(&x->rank[i]);
    if (step[i] > 0)
      sorted[n++] = step[i];
  }
  double typical = median(sorted, n);
  for (int i = 0; i < x->ranks; i++)
    slow[i] = n > 1 && step[i] > SLOWER * typical;
}

// --- Rows ----------------------------------------------------------------------------------------

struct row {
  struct manta__index *x;
  struct manta__rank_state *r;
  int rank;
  int64_t iteration;
  double t;
  uint32_t column; // the next one
  manta_status st;
};

static bool is_shown(const char *name, size_t len)
{
  return name[0] != '_' ||
         (len == strlen(MANTA__STEP_NAME) && !memcmp(name, MANTA__STEP_NAME, len));
}

// The series of the row's next number: most often that of the row before.
static manta_status series_of(struct row *w, const char *name, size_t len, uint32_t *out)
{
  struct manta__rank_state *r = w->r;
  uint32_t c = w->column++;
  if (c < r->columns && is_named(&w->x->series[r->column[c]], name, len, w->rank)) {
    *out = r->column[c];
    return MANTA_OK;
  }
  MANTA_TRY(manta__index_series(w->x, name, len, w->rank, out));
  if (c >= r->columns) {
    uint32_t *p = manta__realloc(r->column, (c + 1) * sizeof *p);
    if (!p)
      return MANTA_ENOMEM;
    memset(p + r->columns, 0, (c + 1 - r->columns) * sizeof *p);
    r->column = p;
    r->columns = c + 1;
  }
  r->column[c] = *out;
  return MANTA_OK;
}

static void take_number(struct row *w, const char *name, size_t len, double value)
{
  uint32_t at;
  if (len == 0 || !is_shown(name, len))
    return;
  manta_status st = series_of(w, name, len, &at);
  if (st == MANTA_OK)
    st = manta__curve_add(&w->x->series[at], w->iteration, w->t, value);
  if (st == MANTA_ENOMEM)
    w->st = st;
  if (name[0] == '_' && value >= 0)
    w->r->step[w->r->steps++ % MANTA__STEPS] = value;
}

static bool is_void(const struct manta__index *x, uint32_t attempt, int64_t iteration)
{
  for (size_t i = x->cuts; i > 0; i--)
    if (x->cut[i - 1].attempt > attempt && iteration > x->cut[i - 1].to)
      return true;
  return false;
}

static bool is_stale(const struct manta__rank_state *r, const struct manta__ident *id)
{
  return r->any && (id->attempt < r->attempt || (id->attempt == r->attempt && id->seq <= r->seq));
}

static manta_status take_row(struct manta__index *x, const struct manta__record *h,
                             const uint8_t *payload)
{
  struct manta__rank_state *r;
  manta_status st = manta__index_rank(x, h->id.rank, &r);
  if (st < 0 || is_stale(r, &h->id))
    return st == MANTA_ENOMEM ? st : MANTA_OK;
  int64_t iteration = manta__row_iteration(payload, h->len);
  r->any = true;
  r->lost = false;
  r->attempt = h->id.attempt;
  r->seq = h->id.seq;
  r->row_ns = h->wall_ns;
  x->rows++;
  if (iteration < 0 || (x->cuts > 0 && is_void(x, h->id.attempt, iteration)))
    return MANTA_OK;
  r->iteration = iteration;
  struct row w = {x, r,       h->id.rank, iteration, (double)(h->wall_ns - x->begin_ns) / 1e9,
                  0, MANTA_OK};
  struct manta__row_walk walk;
  double value;
  for (manta__row_walk(&walk, payload, h->len); manta__row_next(&walk, &value);)
    take_number(&w, walk.name, strlen(walk.name), value); // a name ends at a NUL in it
  return w.st;
}

manta_status manta__index_rewind(struct manta__index *x, uint32_t attempt, int64_t to)
{
  for (size_t i = 0; i < x->cuts; i++)
    if (x->cut[i].attempt == attempt && x->cut[i].to == to)
      return MANTA_OK; // known from the first reading
  if (x->cuts == MAX_CUTS)
    return MANTA_ETOOBIG;
  struct manta__void_rows *p = manta__realloc(x->cut, (x->cuts + 1) * sizeof *p);
  if (!p)
    return MANTA_ENOMEM;
  x->cut = p;
  p[x->cuts++] = (struct manta__void_rows){attempt, to};
  for (uint32_t i = 0; i < x->series_count; i++)
    if (x->series[i].name[0] != '_' || !strcmp(x->series[i].name, MANTA__STEP_NAME))
      x->dirty |= !manta__curve_rewind(&x->series[i], to);
  for (int i = 0; i < x->ranks; i++)
    if (x->rank[i].iteration > to)
      x->rank[i].iteration = to;
  return MANTA_OK;
}

manta_status manta__index_take(struct manta__index *x, const struct manta__record *h,
                               const uint8_t *payload)
{
  if (x->records++ == 0) {
    x->id = h->id.run;
    x->begin_ns = h->wall_ns;
  }
  if (h->wall_ns > x->end_ns)
    x->end_ns = h->wall_ns;
  return h->kind == MANTA__EV_ROW ? take_row(x, h, payload) : manta__index_note(x, h, payload);
}

// --- Life ----------------------------------------------------------------------------------------

static void forget_lists(struct manta__index *x)
{
  for (int i = 0; i < x->ranks; i++) {
    manta__free(x->rank[i].host);
    manta__free(x->rank[i].column);
  }
  for (size_t i = 0; i < x->marks && i < MANTA__INDEX_MARKS; i++)
    manta__free(x->mark[i].text);
  for (uint32_t i = 0; i < x->series_count; i++)
    manta__curve_fini(&x->series[i]);
  manta__free(x->rank);
  manta__free(x->series);
  manta__free(x->slot);
  manta__free(x->mark);
  manta__free(x->ckpt);
  manta__free(x->message);
  manta_value_fini(&x->start);
}

void manta__index_restart(struct manta__index *x, bool anew)
{
  struct manta__void_rows *cut = x->cut;
  size_t cuts = x->cuts;
  forget_lists(x);
  *x = (struct manta__index){0};
  if (anew) {
    manta__free(cut);
    return;
  }
  x->cut = cut;
  x->cuts = cuts;
}

void manta__index_fini(struct manta__index *x)
{
  manta__index_restart(x, true);
}

void manta__index_shed(struct manta__index *x)
{
  for (uint32_t i = 0; i < x->series_count; i++)
    manta__curve_shed(&x->series[i]);
  x->shed = true;
}

size_t manta__index_bytes(const struct manta__index *x)
{
  size_t n = 0;
  for (uint32_t i = 0; i < x->series_count; i++)
    n += x->series[i].cap * sizeof(struct manta__chart_bucket);
  return n;
}
