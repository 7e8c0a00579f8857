/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/gp_search.c - proposes where a Gaussian process expects the largest improvement over the
 * best value so far.
 *
 * Expected improvement is compared at points drawn at random and near the best samples, then
 * followed uphill from the most promising ones.
 *
 * (1) The process knows the best samples and the newest, 300 in all: the cost has a ceiling.
 * (2) Its parameters are fitted again when the number of samples has grown by a twentieth.
 * (3) A trial that has not ended counts as an average one: it says that something is known there.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "tune/descend.h"
#include "tune/gp.h"
#include "tune/searcher.h"

#define STARTUP    10
#define CANDIDATES 512
#define NEAR       96 /* candidates near the best samples */
#define CLIMBS     4
#define CLIMB      100 /* steps of each */
#define MOST       300
#define MOST_BEST  100
#define FIRST_FIT  60 /* steps */
#define LATER_FIT  20

struct gps {
  struct manta__search h;
  struct manta__gp gp;
  bool *is_option;
  const struct manta__sample **order;
  int order_cap;
  int fitted; /* samples at the last fit */
  double best;
  double *at, *found, *grads; /* (dims), (CLIMBS, dims), (2 dims) */
  double found_gain[CLIMBS];
  double *room;
};

static struct gps *gps_of(struct manta__searcher *s)
{
  return (struct gps *)(void *)s;
}

static manta_status init_gps(struct manta__searcher *s, manta_error *err)
{
  struct gps *g = gps_of(s);
  size_t d = (size_t)g->h.space->count;
  g->is_option = manta__calloc(d + 1, sizeof *g->is_option);
  g->room =
      manta__calloc((d + 1) * (1 + CLIMBS + 2 + 2 * MANTA__DESCEND_MEMORY + 6), sizeof *g->room);
  if (!g->is_option || !g->room)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a searcher");
  for (size_t i = 0; i < d; i++)
    g->is_option[i] = manta__dim_has_options(&g->h.space->dims[i]);
  g->at = g->room;
  g->found = g->at + d;
  g->grads = g->found + CLIMBS * d;
  return manta__gp_init(&g->gp, (int)d, g->is_option, MOST, err);
}

static void fini_gps(struct manta__searcher *s)
{
  struct gps *g = gps_of(s);
  manta__gp_fini(&g->gp);
  manta__free(g->is_option);
  manta__free(g->order);
  manta__free(g->room);
}

/* --- points in the unit cube ------------------------------------------------------------------ */

static double unit_of(const struct manta__dim *d, double x)
{
  if (manta__dim_has_options(d))
    return isnan(x) ? -1 : x; // an option of its own: it does not count
  if (isnan(x))
    return 0.5;
  double u = manta__dim_to_scale(d, x);
  return d->kind == MANTA__DIM_NORMAL ? 0.5 * erfc(-u * M_SQRT1_2) : u;
}

/* The inverse of the normal distribution, by bisection. */
static double normal_of(double part)
{
  double from = -8, to = 8;
  for (int i = 0; i < 50; i++) {
    double mid = (from + to) / 2;
    if (0.5 * erfc(-mid * M_SQRT1_2) < part)
      from = mid;
    else
      to = mid;
  }
  return from;
}

static double value_of(const struct manta__dim *d, double u)
{
  if (manta__dim_has_options(d))
    return u < 0 ? 0 : u; // it did not count where it comes from
  return manta__dim_from_scale(d, d->kind == MANTA__DIM_NORMAL ? normal_of(u) : u);
}

/* As its config will be: rounded, and without what does not count. Both forms. */
static void settle_point(const struct gps *g, const double *u, double *point, double *unit)
{
  const struct manta__space *sp = g->h.space;
  for (int i = 0; i < sp->count; i++) {
    point[i] = manta__space_counts(sp, i, point) ? value_of(&sp->dims[i], u[i]) : NAN;
    unit[i] = unit_of(&sp->dims[i], point[i]);
  }
}

/* --- the samples it knows --------------------------------------------------------------------- */

static manta_status rank(struct gps *g, int *ended, manta_error *err)
{
  if (g->order_cap < g->h.count) {
    const struct manta__sample **order = manta__realloc(g->order, sizeof *order * (size_t)g->h.cap);
    if (!order)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for a searcher");
    g->order = order;
    g->order_cap = g->h.cap;
  }
  *ended = manta__search_rank(&g->h, g->order);
  return MANTA_OK;
}

static void learn_sample(struct gps *g, const struct manta__sample *t, double value)
{
  double *x = g->gp.x + (size_t)g->gp.n * (size_t)g->gp.dims;
  for (int i = 0; i < g->gp.dims; i++)
    x[i] = unit_of(&g->h.space->dims[i], t->point[i]);
  g->gp.y[g->gp.n++] = value;
}

static bool is_among(const struct manta__sample *t, const struct manta__sample *const *best, int n)
{
  for (int i = 0; i < n; i++)
    if (best[i] == t)
      return true;
  return false;
}

/* Raw values; failed ones get the worst of the others. */
static void gather(struct gps *g, int ended)
{
  int best = ended < MOST_BEST ? ended : MOST_BEST;
  double worst = g->order[0]->value;
  g->gp.n = 0;
  for (int i = 0; i < ended && isfinite(g->order[i]->value); i++)
    worst = g->order[i]->value;
  for (int i = 0; i < best; i++)
    learn_sample(g, g->order[i], fmin(g->order[i]->value, worst));
  for (int i = g->h.count - 1; i >= 0 && g->gp.n < MOST; i--) {
    const struct manta__sample *t = &g->h.samples[i];
    if (!is_among(t, g->order, best))
      learn_sample(g, t, isnan(t->value) ? NAN : fmin(t->value, worst));
  }
}

/* Far above the median a value counts by its logarithm: else a few bad ones are the scale, on which
 * all that are near the best are the same. */
static void bend(struct gps *g, int ended)
{
  double median = g->order[ended / 2]->value, unit = median - g->order[0]->value;
  if (!isfinite(unit) || !(unit > 0))
    return;
  for (int i = 0; i < g->gp.n; i++)
    g->gp.y[i] = asinh((g->gp.y[i] - median) / unit);
}

static double mean_of(const double *y, int n, int *known)
{
  double sum = 0;
  *known = 0;
  for (int i = 0; i < n; i++)
    if (!isnan(y[i])) {
      sum += y[i];
      ++*known;
    }
  return sum / *known;
}

static void standardize(struct gps *g)
{
  double squares = 0, *y = g->gp.y;
  int known;
  double mean = mean_of(y, g->gp.n, &known);
  for (int i = 0; i < g->gp.n; i++) {
    if (isnan(y[i]))
      y[i] = mean;
    squares += (y[i] - mean) * (y[i] - mean);
  }
  double deviation = sqrt(squares / known);
  if (!(deviation > 0) || !isfinite(deviation))
    deviation = 1;
  g->best = INFINITY;
  for (int i = 0; i < g->gp.n; i++) {
    y[i] = (y[i] - mean) / deviation;
    g->best = fmin(g->best, y[i]);
  }
}

/* --- expected improvement --------------------------------------------------------------------- */

/* log(φ(z) + z Φ(z)), and φ and Φ divided by what is in the logarithm. */
static double log_gain(double z, double *density, double *below)
{
  if (z < -6) { // where the sum is all cancellation: its series
    *density = z * z;
    *below = -z;
    return -z * z / 2 - 0.91893853320467274178 - 2 * log(-z);
  }
  double d = exp(-z * z / 2) * 0.39894228040143267794, b = 0.5 * erfc(-z * M_SQRT1_2);
  double gain = d + z * b;
  *density = d / gain;
  *below = b / gain;
  return log(gain);
}

/* Minus the logarithm of the expected improvement, for the descent. */
static double unpromising(void *ctx, const double *u, double *grad)
{
  struct gps *g = ctx;
  double mean, variance, density, below, *mean_grad = g->grads,
                                         *variance_grad = g->grads + g->gp.dims;
  manta__gp_predict(&g->gp, u, &mean, &variance, grad ? mean_grad : NULL, variance_grad);
  double sigma = sqrt(variance);
  double gain = log_gain((g->best - mean) / sigma, &density, &below);
  for (int i = 0; grad && i < g->gp.dims; i++)
    grad[i] = (below * mean_grad[i] - density * variance_grad[i] / (2 * sigma)) / sigma;
  return -(log(sigma) + gain);
}

/* --- a proposal ------------------------------------------------------------------------------- */

static bool is_known(const struct gps *g, const double *point)
{
  for (int i = 0; i < g->h.count; i++) {
    const double *other = g->h.samples[i].point;
    int same = 0;
    while (same < g->gp.dims &&
           (point[same] == other[same] || (isnan(point[same]) && isnan(other[same]))))
      same++;
    if (same == g->gp.dims)
      return true;
  }
  return false;
}

static void note(struct gps *g, const double *u, double loss)
{
  int at = CLIMBS, d = g->gp.dims;
  while (at > 0 && loss < g->found_gain[at - 1])
    at--;
  if (at == CLIMBS)
    return;
  for (int i = CLIMBS - 1; i > at; i--) {
    g->found_gain[i] = g->found_gain[i - 1];
    memcpy(g->found + i * d, g->found + (i - 1) * d, sizeof *u * (size_t)d);
  }
  g->found_gain[at] = loss;
  memcpy(g->found + at * d, u, sizeof *u * (size_t)d);
}

/* One of the best samples, with some of its dimensions moved. */
static void draw_near(const struct gps *g, struct manta__rng *rng, double *u)
{
  const struct manta__sample *from = g->order[manta__rng_below(rng, g->gp.n < 5 ? 1 : 5)];
  double step = pow(10, -1 - 2 * manta__rng_unit(rng));
  for (int i = 0; i < g->gp.dims; i++) {
    u[i] = unit_of(&g->h.space->dims[i], from->point[i]);
    if (g->is_option[i]) {
      if (manta__rng_unit(rng) < 0.2)
        u[i] = (double)manta__rng_below(rng, g->h.space->dims[i].options);
    } else if (manta__rng_unit(rng) < 0.7) {
      u[i] = fmin(fmax(u[i] + step * manta__rng_normal(rng), 0), 1);
    }
  }
}

static void draw_anywhere(const struct gps *g, struct manta__rng *rng, double *u)
{
  for (int i = 0; i < g->gp.dims; i++)
    u[i] = g->is_option[i] ? (double)manta__rng_below(rng, g->h.space->dims[i].options)
                           : manta__rng_unit(rng);
}

static void compare(struct gps *g, uint64_t number, double *point)
{
  struct manta__rng rng = manta__rng_of(g->h.config.seed, number);
  int candidates = g->h.config.candidates ? g->h.config.candidates : CANDIDATES;
  double *unit = g->grads; // not in use without a gradient
  for (int i = 0; i < CLIMBS; i++)
    g->found_gain[i] = INFINITY;
  for (int i = 0; i < candidates; i++) {
    if (i < NEAR)
      draw_near(g, &rng, g->at);
    else
      draw_anywhere(g, &rng, g->at);
    settle_point(g, g->at, point, unit);
    if (!is_known(g, point))
      note(g, unit, unpromising(g, unit, NULL));
  }
}

static void climb(struct gps *g, double *point)
{
  int d = g->gp.dims;
  struct manta__descent to = {.slope = unpromising,
                              .ctx = g,
                              .n = d,
                              .low = 0,
                              .high = 1,
                              .steps = CLIMB,
                              .room = g->grads + 2 * (size_t)d};
  double least = INFINITY, unit_loss;
  double *best = g->at, *unit = g->grads;
  memcpy(best, g->found, sizeof *best * (size_t)d);
  for (int i = 0; i < CLIMBS && isfinite(g->found_gain[i]); i++) {
    double *u = g->found + i * d, start = g->found_gain[i];
    if (start < least) {
      least = start;
      memcpy(best, u, sizeof *best * (size_t)d);
    }
    manta__descend(&to, u);
    settle_point(g, u, point, unit);
    unit_loss = unpromising(g, memcpy(u, unit, sizeof *u * (size_t)d), NULL);
    if (unit_loss < least && !is_known(g, point)) {
      least = unit_loss;
      memcpy(best, u, sizeof *best * (size_t)d);
    }
  }
  settle_point(g, best, point, unit);
}

static manta_status propose_gps(struct manta__searcher *s, uint64_t number, double *point,
                                manta_error *err)
{
  struct gps *g = gps_of(s);
  int ended = 0;
  MANTA_TRY(rank(g, &ended, err));
  int startup = g->h.config.startup ? g->h.config.startup : STARTUP;
  if (ended < startup || !isfinite(g->order[0]->value) || g->gp.dims == 0) {
    manta__search_draw(&g->h, number, point);
    return MANTA_OK;
  }
  gather(g, ended);
  bend(g, ended);
  standardize(g);
  bool grown = g->h.ended > g->fitted + g->fitted / 20;
  manta__gp_fit(&g->gp, !grown ? 0 : g->fitted ? LATER_FIT : FIRST_FIT);
  if (grown)
    g->fitted = g->h.ended;
  compare(g, number, point);
  if (isfinite(g->found_gain[0]))
    climb(g, point);
  else
    manta__search_draw(&g->h, number, point); // every point is known
  return MANTA_OK;
}

const struct manta__searcher_ops manta__gp_search = {
    .name = "gp",
    .size = sizeof(struct gps),
    .init = init_gps,
    .propose = propose_gps,
    .fini = fini_gps,
};
