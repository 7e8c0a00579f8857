/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/parzen.c - the density of tune/parzen.h.
 *
 * Around few samples a kernel reaches as far as its farther neighbour (Bergstra and others, 2011),
 * but not less than a hundredth of the range, and not less than the part that each would have:
 * narrower ones only repeat the samples. Around many all have the same width, by Scott's rule, and
 * one that comes or goes leaves the others as they are.
 *
 * (1) Kernels are in blocks of MANTA__LANES. A block has for each dimension a row of centres, one
 *     of widths, as 1 / (sigma sqrt 2), and one of masses. Lanes without a kernel have weight 0.
 * (2) A width of 0 is the uniform distribution over the range, the prior.
 */
#include "tune/parzen.h"

#include <math.h>

#include "base/alloc.h"
#include "tune/lanes.h"

#define LANES        MANTA__LANES
#define NARROWEST    100.0 /* parts of the range */
#define SCOTT        0.1   /* of the range, for one sample */
#define EQUAL        25    /* newest samples of equal weight */
#define AT_ONCE      32    /* points */
#define NEGLIGIBLE   30.0f /* differences of logarithms */
#define LEAST_PART   1e-7f /* of a kernel in a cell: what the error function can tell from 0 */
#define NO_KERNEL    -1e30f
#define LOG_SQRT_2PI 0.91893853320467274178

/* What one coordinate of a point adds to the logarithms of all kernels: made once for all blocks.
 */
struct manta__parzen_term {
  enum { SKIPPED, OPTION, CELL, NUMBER } kind;
  bool own_mass; /* the dimension does not always count, so that `base` does not have it */
  float x, to;   /* option, coordinate, or both ends of a cell */
  float same, other, prior;
};

static double below(double z) // the normal distribution up to z
{
  return 0.5 * erfc(-z * M_SQRT1_2);
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* The first of three rows of a block in a dimension, MANTA__LANES apart. */
static float *rows_of(const struct manta__parzen *p, int block, int dim)
{
  return p->rows + 3 * LANES * ((size_t)block * (size_t)p->space->count + (size_t)dim);
}

static double range_of(const struct manta__dim *d)
{
  return d->kind == MANTA__DIM_NORMAL ? MANTA__NORMAL_RANGE : 1;
}

/* Logarithm of what divides a normal density, or of what a range has of it if it is rounded. */
static double log_mass(const struct manta__dim *d, double centre, double sigma)
{
  double inside =
      d->kind == MANTA__DIM_NORMAL ? 1 : below((1 - centre) / sigma) - below(-centre / sigma);
  return d->q > 0 ? log(inside) : log(inside * sigma) + LOG_SQRT_2PI;
}

/* Kernel k in one dimension, around x, or the prior if that is NaN. Returns its mass. */
static double set_dim(struct manta__parzen *p, int k, int dim, double x, double sigma)
{
  const struct manta__dim *d = &p->space->dims[dim];
  float *row = rows_of(p, k / LANES, dim) + k % LANES;
  bool normal = d->kind == MANTA__DIM_NORMAL;
  row[2 * LANES] = 0;
  if (manta__dim_has_options(d)) {
    row[0] = isnan(x) ? -1 : (float)x;
    return 0;
  }
  if (isnan(x) && !normal) {
    row[0] = row[LANES] = 0;
    return 0;
  }
  double centre = isnan(x) ? 0 : manta__dim_to_scale(d, x);
  sigma = isnan(x) ? 1 : sigma;
  double mass = log_mass(d, centre, sigma);
  row[0] = (float)centre;
  row[LANES] = (float)(M_SQRT1_2 / sigma);
  row[2 * LANES] = (float)mass;
  return d->parent < 0 ? mass : 0;
}

static void set_prior(struct manta__parzen *p)
{
  double mass = 0;
  for (int i = 0; i < p->space->count; i++)
    mass += set_dim(p, 0, i, NAN, 1);
  p->base[0] = (float)-mass;
  p->weights[0] = 1;
}

manta_status manta__parzen_init(struct manta__parzen *p, const struct manta__space *space, int cap,
                                manta_error *err)
{
  size_t dims = (size_t)space->count, kernels = (size_t)cap + 1;
  size_t blocks = (kernels + LANES - 1) / LANES;
  *p = (struct manta__parzen){.space = space, .kernels = 1, .cap = (int)kernels};
  p->rows = manta__calloc(blocks * LANES * (3 * dims + 2), sizeof *p->rows);
  p->where = manta__calloc(kernels, sizeof *p->where);
  p->samples = manta__calloc(2 * kernels, sizeof *p->samples);
  p->width = manta__calloc(dims + 1, sizeof *p->width);
  p->terms = manta__calloc(AT_ONCE * dims + 1, sizeof *p->terms);
  if (!p->rows || !p->where || !p->samples || !p->width || !p->terms) {
    manta__parzen_fini(p);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a density of %d trials", cap);
  }
  p->base = p->rows + 3 * LANES * blocks * dims;
  p->weights = p->base + LANES * blocks;
  p->order = p->samples + kernels;
  for (size_t k = 0; k < LANES * blocks; k++)
    p->base[k] = NO_KERNEL;
  set_prior(p);
  return MANTA_OK;
}

void manta__parzen_fini(struct manta__parzen *p)
{
  manta__free(p->rows);
  manta__free(p->where);
  manta__free(p->samples);
  manta__free(p->width);
  manta__free(p->terms);
  *p = (struct manta__parzen){0};
}

/* --- few samples: as far as the neighbours ---------------------------------------------------- */

/* Those that count in this dimension, by size, into `order`; returns how many. */
static int sort_dim(struct manta__parzen *p, const double *const *points, int n, int dim)
{
  int count = 0;
  for (int i = 0; i < n; i++) {
    double x = points[i][dim];
    int at = count;
    if (isnan(x))
      continue;
    for (; at > 0 && points[p->order[at - 1]][dim] > x; at--)
      p->order[at] = p->order[at - 1];
    p->order[at] = i;
    count++;
  }
  return count;
}

/* The border counts as a neighbour only for a kernel that has no other. */
static double reach(const struct manta__parzen *p, const double *const *points, int dim, int at,
                    int count)
{
  const struct manta__dim *d = &p->space->dims[dim];
  double range = range_of(d), least = range / fmin(NARROWEST, 1.0 + p->kernels);
  double x = manta__dim_to_scale(d, points[p->order[at]][dim]);
  double left = at > 0 ? x - manta__dim_to_scale(d, points[p->order[at - 1]][dim]) : 0;
  double right = at + 1 < count ? manta__dim_to_scale(d, points[p->order[at + 1]][dim]) - x : 0;
  double far = count > 1 ? fmax(left, right) : range;
  return fmin(fmax(far, least), range);
}

void manta__parzen_surround(struct manta__parzen *p, const double *const *points, int n)
{
  p->kernels = n + 1;
  for (int k = 0; k < p->cap; k++) {
    p->weights[k] = k <= n;
    p->base[k] = k > n ? NO_KERNEL : k > 0 ? 0 : p->base[0];
  }
  for (int i = 0; i < p->space->count; i++) {
    bool options = manta__dim_has_options(&p->space->dims[i]);
    for (int k = 1; k <= n; k++)
      if (options || isnan(points[k - 1][i]))
        p->base[k] -= (float)set_dim(p, k, i, points[k - 1][i], 1);
    int count = options ? 0 : sort_dim(p, points, n, i);
    for (int at = 0; at < count; at++) {
      int k = p->order[at] + 1;
      p->base[k] -= (float)set_dim(p, k, i, points[k - 1][i], reach(p, points, i, at, count));
    }
  }
}

/* --- many samples: all with one width --------------------------------------------------------- */

static void set_kernel(struct manta__parzen *p, int k)
{
  double mass = 0;
  for (int i = 0; i < p->space->count; i++)
    mass += set_dim(p, k, i, p->where[k][i], p->width[i]);
  p->base[k] = (float)-mass;
}

/* By the number of samples, of which the first three bits count: all kernels are made again when
 * the width changes. */
static void set_width(struct manta__parzen *p)
{
  int n = p->kernels - 1, unit = 1;
  while (n / unit >= 8)
    unit *= 2;
  n -= n % unit;
  if (n == p->width_of || n == 0)
    return;
  p->width_of = n;
  double least = 1 / fmin(NARROWEST, 2.0 + n);
  double part = fmax(SCOTT * pow(n, -1.0 / (p->space->count + 4)), least);
  for (int i = 0; i < p->space->count; i++)
    p->width[i] = part * range_of(&p->space->dims[i]);
  for (int k = 1; k < p->kernels; k++)
    set_kernel(p, k);
}

void manta__parzen_add(struct manta__parzen *p, int sample, const double *point)
{
  int k = p->kernels++;
  p->samples[k] = sample;
  p->where[k] = point;
  set_kernel(p, k);
  set_width(p);
}

/* The last kernel takes the place of one that goes. */
static void drop_kernel(struct manta__parzen *p, int k)
{
  int last = --p->kernels;
  p->samples[k] = p->samples[last];
  p->where[k] = p->where[last];
  p->base[k] = p->base[last];
  for (int i = 0; i < p->space->count; i++)
    for (int row = 0; row < 3; row++)
      rows_of(p, k / LANES, i)[row * LANES + k % LANES] =
          rows_of(p, last / LANES, i)[row * LANES + last % LANES];
  p->weights[last] = 0;
  p->base[last] = NO_KERNEL;
  set_width(p);
}

void manta__parzen_drop(struct manta__parzen *p, int sample)
{
  for (int k = 1; k < p->kernels; k++)
    if (p->samples[k] == sample) {
      drop_kernel(p, k);
      return;
    }
}

void manta__parzen_drop_oldest(struct manta__parzen *p)
{
  int oldest = 1;
  for (int k = 2; k < p->kernels; k++)
    oldest = p->samples[k] < p->samples[oldest] ? k : oldest;
  drop_kernel(p, oldest);
}

void manta__parzen_age(struct manta__parzen *p, int newest)
{
  int n = p->kernels - 1;
  float least = 1 / (float)(n ? n : 1), ramp = (float)(n > EQUAL ? n - EQUAL : 1);
  for (int k = 1; k <= n; k++) {
    float w = 1 - (float)(newest - p->samples[k] + 1 - EQUAL) / ramp;
    p->weights[k] = w > 1 ? 1 : w < least ? least : w;
  }
}

/* --- drawing ---------------------------------------------------------------------------------- */

static int draw_kernel(const struct manta__parzen *p, struct manta__rng *rng)
{
  double sum = 0;
  for (int k = 0; k < p->kernels; k++)
    sum += p->weights[k];
  double u = manta__rng_unit(rng) * sum;
  for (int k = 0; k < p->kernels - 1; k++)
    if ((u -= p->weights[k]) < 0)
      return k;
  return p->kernels - 1;
}

static double draw_option(const struct manta__parzen *p, const struct manta__dim *d, double centre,
                          struct manta__rng *rng)
{
  double spread = d->options / (double)p->kernels; // the prior's part, of 1 + spread
  if (centre >= 0 && manta__rng_unit(rng) * (1 + spread) < 1)
    return centre;
  return (double)manta__rng_below(rng, d->options);
}

static double draw_number(const struct manta__dim *d, double centre, double width,
                          struct manta__rng *rng)
{
  if (width == 0)
    return manta__dim_from_scale(d, manta__rng_unit(rng));
  double sigma = M_SQRT1_2 / width, u = centre + sigma * manta__rng_normal(rng);
  while (d->kind != MANTA__DIM_NORMAL && !(u >= 0 && u <= 1)) // a third of the draws are inside
    u = centre + sigma * manta__rng_normal(rng);
  return manta__dim_from_scale(d, u);
}

void manta__parzen_draw(const struct manta__parzen *p, struct manta__rng *rng, double *point)
{
  int k = draw_kernel(p, rng);
  for (int i = 0; i < p->space->count; i++) {
    const struct manta__dim *d = &p->space->dims[i];
    const float *row = rows_of(p, k / LANES, i) + k % LANES;
    if (!manta__space_counts(p->space, i, point))
      point[i] = NAN;
    else if (manta__dim_has_options(d))
      point[i] = draw_option(p, d, row[0], rng);
    else
      point[i] = draw_number(d, row[0], row[LANES], rng);
  }
}

/* --- the density ------------------------------------------------------------------------------ */

static struct manta__parzen_term term_of(const struct manta__parzen *p, int dim, double x)
{
  const struct manta__dim *d = &p->space->dims[dim];
  struct manta__parzen_term t = {.own_mass = d->parent >= 0};
  if (isnan(x))
    return t;
  if (manta__dim_has_options(d)) {
    double spread = 1.0 / p->kernels, all = 1 + d->options * spread;
    t.kind = OPTION;
    t.x = (float)x;
    t.same = (float)log((1 + spread) / all);
    t.other = (float)log(spread / all);
    t.prior = (float)-log(d->options);
  } else if (d->q > 0) {
    double from, to;
    manta__dim_cell(d, x, &from, &to);
    t.kind = CELL;
    t.x = (float)from;
    t.to = (float)to;
    t.other = (float)log(to - from);
  } else {
    t.kind = NUMBER;
    t.x = (float)manta__dim_to_scale(d, x);
  }
  return t;
}

static void add_option(float *restrict acc, const float *restrict row,
                       const struct manta__parzen_term *t)
{
  float x = t->x, same = t->same, other = t->other, prior = t->prior;
  for (int k = 0; k < LANES; k++)
    acc[k] += row[k] < 0 ? prior : row[k] == x ? same : other;
}

/* A rounded value has the integral over its cell, per width of the cell. */
static void add_cell(float *restrict acc, const float *restrict row,
                     const struct manta__parzen_term *t)
{
  float from = t->x, to = t->to, cell = to - from, size = t->other;
  const float *width = row + LANES;
  for (int k = 0; k < LANES; k++) {
    float part = manta__lane_erf((to - row[k]) * width[k]) / 2 -
                 manta__lane_erf((from - row[k]) * width[k]) / 2;
    float least = width[k] == 0 ? cell : LEAST_PART;
    acc[k] += manta__lane_log(fabsf(part) + least) - size;
  }
}

static void add_number(float *restrict acc, const float *restrict row,
                       const struct manta__parzen_term *t)
{
  float x = t->x;
  const float *width = row + LANES;
  for (int k = 0; k < LANES; k++) {
    float off = (x - row[k]) * width[k];
    acc[k] -= off * off;
  }
}

static void add_term(float *restrict acc, const float *restrict row,
                     const struct manta__parzen_term *t)
{
  if (t->kind == NUMBER)
    add_number(acc, row, t);
  else if (t->kind == CELL)
    add_cell(acc, row, t);
  else if (t->kind == OPTION)
    add_option(acc, row, t);
  if (t->own_mass && t->kind != SKIPPED)
    for (int k = 0; k < LANES; k++)
      acc[k] -= row[2 * LANES + k];
}

/* A sum of exponentials that grows: sum exp(top). */
struct total {
  float top, sum;
};

static void add_block(struct total *s, const float *restrict acc, const float *restrict weights)
{
  float part[LANES], top = manta__lanes_max(acc);
  if (top < s->top - NEGLIGIBLE)
    return;
  if (top > s->top) {
    s->sum *= manta__lane_exp(s->top - top);
    s->top = top;
  }
  top = s->top;
  for (int k = 0; k < LANES; k++)
    part[k] = weights[k] * manta__lane_exp(acc[k] - top);
  s->sum += manta__lanes_sum(part);
}

static void log_block(const struct manta__parzen *p, int block, int points, struct total *totals)
{
  int dims = p->space->count;
  for (int i = 0; i < points; i++) {
    float acc[LANES];
    memcpy(acc, p->base + block * LANES, sizeof acc);
    for (int k = 0; k < dims; k++)
      add_term(acc, rows_of(p, block, k), &p->terms[i * dims + k]);
    add_block(&totals[i], acc, p->weights + block * LANES);
  }
}

void manta__parzen_log(const struct manta__parzen *p, const double *points, int n, double *out)
{
  int dims = p->space->count;
  float weights = 0;
  for (int k = 0; k < p->kernels; k++)
    weights += p->weights[k];
  for (int done = 0; done < n; done += AT_ONCE) {
    int now = n - done < AT_ONCE ? n - done : AT_ONCE;
    struct total totals[AT_ONCE];
    for (int i = 0; i < now * dims; i++)
      p->terms[i] = term_of(p, i % dims, points[(size_t)done * (size_t)dims + (size_t)i]);
    for (int i = 0; i < now; i++)
      totals[i] = (struct total){-INFINITY, 0};
    for (int block = 0; block * LANES < p->kernels; block++)
      log_block(p, block, now, totals);
    for (int i = 0; i < now; i++)
      out[done + i] = totals[i].top + manta__lane_log(totals[i].sum / weights);
  }
}
