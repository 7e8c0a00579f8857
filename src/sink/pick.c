/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/pick.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <manta/trainer.h>

#include "base/alloc.h"

// As python/ext/convert.c makes them: a pickle, and its text.
#define PICKLE "$py"
#define REPR   "$repr"

// --- options -------------------------------------------------------------------------------------

static int by_value(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

static manta_status refuse_workers(manta_error *err)
{
  return manta_error_set(err, MANTA_EINVAL,
                         "workers to log must be a rank, a list of ranks, or \"all\"");
}

static manta_status take_ranks(struct manta__pick *p, const manta_value *v, manta_error *err)
{
  size_t n = v->type == MANTA_LIST ? v->count : 1;
  if (n == 0 || n > MANTA_MAX_RANKS)
    return refuse_workers(err);
  if (!(p->ranks = manta__calloc(n, sizeof *p->ranks)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a list of ranks");
  for (size_t i = 0; i < n; i++) {
    int64_t rank = manta_value_as_int(v->type == MANTA_LIST ? manta_value_at(v, i) : v, -1);
    if (rank < 0 || rank >= MANTA_MAX_RANKS)
      return refuse_workers(err);
    p->ranks[p->count++] = (int)rank;
  }
  qsort(p->ranks, n, sizeof *p->ranks, by_value);
  int unique = 1;
  for (int i = 1; i < p->count; i++)
    if (p->ranks[i] != p->ranks[unique - 1])
      p->ranks[unique++] = p->ranks[i];
  p->count = unique;
  return MANTA_OK;
}

static manta_status take_aggregate(struct manta__pick *p, const manta_value *v, manta_error *err)
{
  static const char *const names[] = {"", "mean", "min", "max", "last"};
  const char *name = manta_value_as_string(v, "?");
  if (!v || v->type == MANTA_NIL)
    return MANTA_OK;
  for (size_t i = 1; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) {
      p->how = (enum manta__aggregate)i;
      return MANTA_OK;
    }
  return manta_error_set(err, MANTA_EINVAL, "aggregate must be mean, min, max or last%s%s%s",
                         v->type == MANTA_STRING ? ", not \"" : "",
                         v->type == MANTA_STRING ? name : "", v->type == MANTA_STRING ? "\"" : "");
}

manta_status manta__pick_init(struct manta__pick *p, const manta_value *options, manta_error *err)
{
  static const manta_value first = {.type = MANTA_INT};
  const manta_value *v = manta_value_get(options, "workers");
  *p = (struct manta__pick){0};
  MANTA_TRY(take_aggregate(p, manta_value_get(options, "aggregate"), err));
  p->all = v && v->type == MANTA_STRING && !strcmp(v->u.s, "all");
  return p->all ? MANTA_OK : take_ranks(p, v && v->type != MANTA_NIL ? v : &first, err);
}

void manta__pick_fini(struct manta__pick *p)
{
  manta__free(p->ranks);
  *p = (struct manta__pick){0};
}

bool manta__pick_wants(const struct manta__pick *p, int rank)
{
  return p->all || bsearch(&rank, p->ranks, (size_t)p->count, sizeof rank, by_value) != NULL;
}

int manta__pick_need(const struct manta__pick *p, int world)
{
  int n = 0;
  while (!p->all && n < p->count && p->ranks[n] < world)
    n++;
  return p->all ? world : n;
}

// --- one row of many -----------------------------------------------------------------------------

static bool is_number(const manta_value *v)
{
  return v && (v->type == MANTA_REAL || v->type == MANTA_INT);
}

// Maps that have the same place in the rows of all ranks; NULL where a rank has none.
struct level {
  const manta_value **map;
  const struct manta__sink_row *rows;
  int count;
  enum manta__aggregate how;
};

static bool beats(enum manta__aggregate how, double x, double best)
{
  if (isnan(x) || isnan(best))
    return isnan(x);
  return how == MANTA__AGGREGATE_MIN ? x < best : x > best;
}

// The value of this key: of all numbers, the mean or the one that is wanted.
static manta_value merge_numbers(const struct level *l, const char *key)
{
  const manta_value *best = NULL;
  double sum = 0;
  int n = 0, from = 0;
  for (int i = 0; i < l->count; i++) {
    const manta_value *v = manta_value_get(l->map[i], key);
    if (!is_number(v))
      continue;
    double x = v->type == MANTA_INT ? (double)v->u.i : v->u.r;
    double y = best && best->type == MANTA_INT ? (double)best->u.i : best ? best->u.r : 0;
    bool later = best && l->rows[i].wall_ns >= l->rows[from].wall_ns;
    if (!best || (l->how == MANTA__AGGREGATE_LAST ? later : beats(l->how, x, y))) {
      best = v;
      from = i;
    }
    sum += x;
    n++;
  }
  return l->how == MANTA__AGGREGATE_MEAN ? manta_value_real(sum / n) : *best;
}

static manta_status merge(manta_value *out, const struct level *l);

static manta_status merge_maps(manta_value *out, const struct level *l, const char *key)
{
  struct level below = *l;
  if (!(below.map = manta__calloc((size_t)l->count, sizeof *below.map)))
    return MANTA_ENOMEM;
  for (int i = 0; i < l->count; i++) {
    const manta_value *v = manta_value_get(l->map[i], key);
    below.map[i] = v && v->type == MANTA_MAP ? v : NULL;
  }
  manta_status st = merge(out, &below);
  manta__free(below.map);
  return st;
}

static bool counts(const char *key)
{
  return !strcmp(key, "_training_iteration"); // the same for all, and no mean
}

static manta_status merge_key(manta_value *out, const struct level *l, const manta_pair *p)
{
  manta_value v = {0};
  manta_status st = MANTA_OK;
  if (manta_value_get(out, p->key))
    return MANTA_OK; // by a rank before
  if (p->value.type == MANTA_MAP)
    st = merge_maps(&v, l, p->key);
  else if (is_number(&p->value) && !counts(p->key))
    v = merge_numbers(l, p->key);
  else
    st = manta_value_copy(&v, &p->value);
  if (st == MANTA_OK)
    st = manta_value_put(out, p->key, &v);
  manta_value_fini(&v);
  return st;
}

static manta_status merge(manta_value *out, const struct level *l)
{
  MANTA_TRY(manta_value_set_map(out));
  for (int i = 0; i < l->count; i++)
    for (uint32_t k = 0; l->map[i] && k < l->map[i]->count; k++)
      MANTA_TRY(merge_key(out, l, &l->map[i]->u.pairs[k]));
  return MANTA_OK;
}

manta_status manta__pick_merge(struct manta__sink_row *out, const struct manta__sink_row *rows,
                               int count, enum manta__aggregate how, manta_error *err)
{
  struct level l = {.rows = rows, .count = count, .how = how};
  *out = (struct manta__sink_row){.rank = -1};
  if (!(l.map = manta__calloc((size_t)count, sizeof *l.map)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory to aggregate rows");
  for (int i = 0; i < count; i++) {
    l.map[i] = rows[i].row.type == MANTA_MAP ? &rows[i].row : NULL;
    out->wall_ns = rows[i].wall_ns > out->wall_ns ? rows[i].wall_ns : out->wall_ns;
  }
  manta_status st = merge(&out->row, &l);
  manta__free(l.map);
  if (st == MANTA_OK)
    return MANTA_OK;
  manta_value_fini(&out->row);
  return manta_error_set(err, st, "no memory to aggregate rows");
}

void manta__pick_clean(manta_value *v)
{
  if (v->type == MANTA_MAP && v->count == 2 && manta_value_get(v, PICKLE)) {
    const manta_value *text = manta_value_get(v, REPR);
    if (text && text->type == MANTA_STRING && !v->flags) // it lies in the block of the row
      *v = (manta_value){.type = MANTA_STRING, .count = text->count, .u.s = text->u.s};
    return;
  }
  if (v->type == MANTA_MAP)
    for (uint32_t i = 0; i < v->count; i++)
      manta__pick_clean(&v->u.pairs[i].value);
  else if (v->type == MANTA_LIST)
    for (uint32_t i = 0; i < v->count; i++)
      manta__pick_clean(&v->u.items[i]);
}
