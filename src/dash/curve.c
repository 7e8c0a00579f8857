/* SPDX-License-Identifier: Apache-2.0 */
#include "dash/curve.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

manta_status manta__curve_init(struct manta__curve *s, const char *name, size_t len, int rank)
{
  *s = (struct manta__curve){.rank = rank, .width = 1, .limit = MANTA__CURVE_BUCKETS, .last = NAN};
  s->name = manta__strndup(name, len);
  return s->name ? MANTA_OK : MANTA_ENOMEM;
}

void manta__curve_fini(struct manta__curve *s)
{
  manta__free(s->name);
  manta__free(s->bucket);
  *s = (struct manta__curve){0};
}

static void merge(struct manta__chart_bucket *to, const struct manta__chart_bucket *from)
{
  if (from->n + from->odd == 0)
    return;
  if (to->n + to->odd == 0) {
    *to = *from;
    return;
  }
  if (from->n > 0) {
    to->min = to->n > 0 ? fmin(to->min, from->min) : from->min;
    to->max = to->n > 0 ? fmax(to->max, from->max) : from->max;
    to->sum = to->n > 0 ? to->sum + from->sum : from->sum;
    to->n += from->n;
  }
  to->odd += from->odd;
}

static void fold(struct manta__curve *s)
{
  uint32_t half = (s->count + 1) / 2;
  for (uint32_t i = 0; i < half; i++) {
    struct manta__chart_bucket b = s->bucket[2 * i];
    if (2 * i + 1 < s->count)
      merge(&b, &s->bucket[2 * i + 1]);
    s->bucket[i] = b;
  }
  s->count = half;
  s->width *= 2;
  s->generation++;
}

static manta_status reserve(struct manta__curve *s, uint32_t count)
{
  if (count <= s->cap)
    return MANTA_OK;
  uint32_t cap = s->cap ? s->cap : 16;
  while (cap < count)
    cap *= 2;
  struct manta__chart_bucket *p = manta__realloc(s->bucket, cap * sizeof *p);
  if (!p)
    return MANTA_ENOMEM;
  s->bucket = p;
  s->cap = cap;
  return MANTA_OK;
}

// The bucket of x, made if need be.
static manta_status find(struct manta__curve *s, int64_t x, struct manta__chart_bucket **out)
{
  uint64_t past = (uint64_t)x - (uint64_t)s->base;
  while (past / (uint64_t)s->width >= s->limit)
    fold(s);
  uint32_t at = (uint32_t)(past / (uint64_t)s->width);
  MANTA_TRY(reserve(s, at + 1));
  if (at >= s->count) {
    memset(s->bucket + s->count, 0, (at + 1 - s->count) * sizeof *s->bucket);
    s->count = at + 1;
  } else if (at + 1 < s->count) {
    s->generation++; // a bucket that was passed changes
  }
  *out = &s->bucket[at];
  return MANTA_OK;
}

static void note_extremes(struct manta__curve *s, int64_t x, double value)
{
  if (s->finite == 0 || value < s->low.value)
    s->low = (struct manta__extreme){value, x};
  if (s->finite == 0 || value > s->high.value)
    s->high = (struct manta__extreme){value, x};
}

manta_status manta__curve_add(struct manta__curve *s, int64_t x, double t, double value)
{
  bool finite = isfinite(value);
  struct manta__chart_bucket *b;
  if (s->count == 0) {
    s->base = s->last_x = x;
    s->width = 1;
  }
  if (x < s->base)
    return MANTA_OK;
  MANTA_TRY(find(s, x, &b));
  merge(b, &(struct manta__chart_bucket){
               .sum = value, .min = value, .max = value, .t = t, .n = finite, .odd = !finite});
  if (finite)
    note_extremes(s, x, value);
  s->finite += finite;
  s->odd += !finite;
  if (x >= s->last_x) {
    s->last_x = x;
    s->last = finite ? value : NAN;
  }
  return MANTA_OK;
}

// What the buckets say, where each holds one x.
static void recount(struct manta__curve *s)
{
  s->finite = s->odd = 0;
  s->last = NAN;
  for (uint32_t i = 0; i < s->count; i++) {
    const struct manta__chart_bucket *b = &s->bucket[i];
    if (b->n > 0) {
      note_extremes(s, s->base + i, b->min);
      s->finite += b->n; // before the greatest: the first of several may be both
      note_extremes(s, s->base + i, b->max);
    }
    s->odd += b->odd;
    if (b->n + b->odd > 0) {
      s->last_x = s->base + i;
      s->last = b->n > 0 && b->odd == 0 ? b->sum / b->n : NAN;
    }
  }
}

bool manta__curve_rewind(struct manta__curve *s, int64_t to)
{
  if (s->count == 0 || s->last_x <= to)
    return true;
  if (to < s->base) {
    manta__curve_clear(s);
    return true;
  }
  if (s->width > 1)
    return false;
  s->count = (uint32_t)(to - s->base) + 1;
  s->generation++;
  recount(s);
  return true;
}

void manta__curve_set_limit(struct manta__curve *s, uint32_t limit)
{
  s->limit = limit;
  while (s->count > limit)
    fold(s);
  if (s->cap > limit) {
    struct manta__chart_bucket *p = manta__realloc(s->bucket, limit * sizeof *p);
    s->bucket = p ? p : s->bucket;
    s->cap = p ? limit : s->cap;
  }
}

void manta__curve_shed(struct manta__curve *s)
{
  manta__free(s->bucket);
  s->bucket = NULL;
  s->count = s->cap = 0;
  s->generation++;
}

void manta__curve_clear(struct manta__curve *s)
{
  s->count = 0;
  s->width = 1;
  s->finite = s->odd = 0;
  s->last = NAN;
  s->generation++;
}
