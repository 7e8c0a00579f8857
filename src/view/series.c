/* SPDX-License-Identifier: Apache-2.0 */
#include "view/series.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pack.h"

// --- one series ----------------------------------------------------------------------------------

static int64_t bin_of(const struct manta__plot_series *s, int64_t iteration)
{
  return (iteration - 1) / s->stride;
}

static void merge(struct manta__bin *a, const struct manta__bin *b)
{
  a->last = b->last;
  a->wall_ns = b->wall_ns;
  a->least = fmin(a->least, b->least);
  a->most = fmax(a->most, b->most);
  a->sum += b->sum;
  a->count += b->count;
}

static void halve(struct manta__plot_series *s)
{
  size_t n = 0;
  s->stride *= 2;
  for (size_t i = 0; i < s->count; i++)
    if (n > 0 && bin_of(s, s->bins[n - 1].first) == bin_of(s, s->bins[i].first))
      merge(&s->bins[n - 1], &s->bins[i]);
    else
      s->bins[n++] = s->bins[i];
  s->count = n;
}

static manta_status make_room(struct manta__plot_series *s)
{
  if (s->count < s->cap)
    return MANTA_OK;
  if (s->cap == MANTA__BINS) {
    while (s->count > MANTA__BINS / 2)
      halve(s);
    return MANTA_OK;
  }
  size_t cap = s->cap ? 2 * s->cap : 64;
  struct manta__bin *p = manta__realloc(s->bins, cap * sizeof *p);
  if (!p)
    return MANTA_ENOMEM;
  s->bins = p;
  s->cap = cap;
  return MANTA_OK;
}

static manta_status add_point(struct manta__plot_series *s, int64_t iteration, int64_t wall_ns,
                              double x)
{
  struct manta__bin one = {iteration, iteration, wall_ns, x, x, x, 1};
  if (!isfinite(x) || iteration < 1)
    return MANTA_OK;
  MANTA_TRY(make_room(s));
  for (size_t i = s->count; i > 0 && i + 64 > s->count; i--) { // ranks may be a little apart
    struct manta__bin *b = &s->bins[i - 1];
    if (bin_of(s, b->first) != bin_of(s, iteration))
      continue;
    one.last = b->last > iteration ? b->last : iteration;
    merge(b, &one);
    return MANTA_OK;
  }
  if (s->count == 0 || s->bins[s->count - 1].last < iteration)
    s->bins[s->count++] = one;
  return MANTA_OK; // one that is far too late is left out
}

// --- a run ---------------------------------------------------------------------------------------

static struct manta__plot_series *series_of(struct manta__run_series *s, const char *name,
                                            size_t hint)
{
  if (hint < s->count && !strcmp(s->series[hint].name, name))
    return &s->series[hint];
  for (size_t i = 0; i < s->count; i++)
    if (!strcmp(s->series[i].name, name))
      return &s->series[i];
  if (!s->series && !(s->series = manta__calloc(MANTA__METRICS_MAX, sizeof *s->series)))
    return NULL;
  if (s->count == MANTA__METRICS_MAX)
    return NULL;
  struct manta__plot_series *one = &s->series[s->count++];
  snprintf(one->name, sizeof one->name, "%s", name);
  one->stride = 1;
  return one;
}

static manta_status take_row(struct manta__run_series *s, const struct manta__record *h,
                             const uint8_t *payload)
{
  struct manta__row_walk w;
  double value;
  int64_t iteration = manta__row_iteration(payload, h->len);
  manta__row_walk(&w, payload, h->len);
  for (size_t hint = 0; manta__row_next(&w, &value);) {
    if (w.name[0] == '_')
      continue;
    struct manta__plot_series *one = series_of(s, w.name, hint);
    if (!one)
      continue;
    hint = (size_t)(one - s->series) + 1;
    MANTA_TRY(add_point(one, iteration, h->wall_ns, value));
  }
  return MANTA_OK;
}

static void cut_back(struct manta__run_series *s, int64_t to)
{
  for (size_t i = 0; i < s->count; i++) {
    struct manta__plot_series *one = &s->series[i];
    while (one->count && one->bins[one->count - 1].first > to)
      one->count--;
    if (one->count && one->bins[one->count - 1].last > to)
      one->bins[one->count - 1].last = to;
  }
}

static manta_status take_record(struct manta__run_series *s, int rank,
                                const struct manta__record *h, const uint8_t *payload,
                                manta_error *err)
{
  manta_value v = {0};
  if (h->kind == MANTA__EV_ROW) {
    bool counts = h->id.attempt >= s->stats.attempt && (rank < 0 || h->id.rank == rank);
    manta__stats_row(&s->stats, &h->id, h->wall_ns, payload, h->len);
    return counts ? take_row(s, h, payload) : MANTA_OK;
  }
  MANTA_TRY(manta__unpack(&v, payload, h->len, NULL, err) == MANTA_ENOMEM ? MANTA_ENOMEM
                                                                          : MANTA_OK);
  manta__stats_event(&s->stats, (enum manta__event)h->kind, &h->id, h->wall_ns, &v);
  if (h->kind == MANTA__EV_REWIND)
    cut_back(s, manta_value_as_int(manta_value_get(&v, "to"), INT64_MAX));
  manta_value_fini(&v);
  return MANTA_OK;
}

manta_status manta__run_series_read(struct manta__run_series *out, int dirfd, int rank,
                                    manta_error *err)
{
  manta__log_reader *r;
  struct manta__record h;
  const uint8_t *payload;
  int rc;
  *out = (struct manta__run_series){0};
  MANTA_TRY(manta__log_reader_open(&r, dirfd, err));
  while ((rc = manta__log_next(r, &h, &payload, err)) > 0)
    if ((rc = (int)take_record(out, rank, &h, payload, err)) < 0)
      break;
  manta__log_reader_close(r);
  if (rc == MANTA_ENOMEM)
    manta_error_set(err, MANTA_ENOMEM, "no memory for the values of a run");
  return rc < 0 ? (manta_status)rc : MANTA_OK;
}

void manta__run_series_fini(struct manta__run_series *s)
{
  for (size_t i = 0; i < s->count; i++)
    manta__free(s->series[i].bins);
  manta__free(s->series);
  manta__stats_fini(&s->stats);
  *s = (struct manta__run_series){0};
}

const struct manta__plot_series *manta__run_series_find(const struct manta__run_series *s,
                                                        const char *name)
{
  for (size_t i = 0; i < s->count; i++)
    if (!strcmp(s->series[i].name, name))
      return &s->series[i];
  return NULL;
}
