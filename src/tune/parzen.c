/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/parzen.c - the density of tune/parzen.h.
 *
 * In each dimension a kernel reaches as far as its farther neighbour (Bergstra and others, 2011),
 * but not less than a hundredth of the range, and while there are few of them not less than the
 * part that each would have: narrower ones only repeat the samples. All is arrays by kernel, which
 * the compiler turns into vectors.
 */
#include "tune/parzen.h"

#include <math.h>

#include "base/alloc.h"

#define NARROWEST    100.0 /* parts of the range */
#define EQUAL        25    /* newest samples of equal weight */
#define LOG_SQRT_2PI 0.91893853320467274178

static double below(double z) // the normal distribution up to z
{
  return 0.5 * erfc(-z * M_SQRT1_2);
}

/* --- building --------------------------------------------------------------------------------- */

static void weigh(struct manta__parzen *p, int n)
{
  double sum = 1; // the prior's own
  for (int i = 0; i < n; i++) {
    int ramp = n - EQUAL; // this many rise linearly from 1/n to 1
    p->weights[i] = i >= ramp   ? 1
                    : ramp == 1 ? 1.0 / n
                                : 1.0 / n + (1 - 1.0 / n) * i / (double)(ramp - 1);
    sum += p->weights[i];
  }
  p->weights[n] = 1;
  for (int i = 0; i <= n; i++) {
    p->weights[i] /= sum;
    p->base[i] = log(p->weights[i]);
  }
}

struct spot {
  double at;
  int kernel;
};

static void merge(const struct spot *a, int n, const struct spot *b, int m, struct spot *out)
{
  while (n > 0 || m > 0) {
    bool first = m == 0 || (n > 0 && a->at <= b->at);
    *out++ = first ? *a++ : *b++;
    first ? n-- : m--;
  }
}

/* Merge sort, from runs of one on: qsort calls a function for every comparison. */
static struct spot *sort_spots(struct spot *spots, struct spot *spare, int n)
{
  for (int run = 1; run < n; run *= 2) {
    for (int i = 0; i < n; i += 2 * run) {
      int a = run < n - i ? run : n - i, b = run < n - i - a ? run : n - i - a;
      merge(spots + i, a, spots + i + a, b, spare + i);
    }
    struct spot *other = spots;
    spots = spare;
    spare = other;
  }
  return spots;
}

/* Of the kernels that have a centre in this dimension, which are `n`. The border counts as a
 * neighbour only for one that has no other. */
static void set_widths(const struct manta__dim *d, const struct spot *spots, int n, int kernels,
                       double *sigma)
{
  double range = d->kind == MANTA__DIM_NORMAL ? MANTA__NORMAL_RANGE : 1;
  double least = range / fmin(NARROWEST, 1.0 + kernels);
  for (int i = 0; i < n; i++) {
    double left = i > 0 ? spots[i].at - spots[i - 1].at : 0;
    double right = i + 1 < n ? spots[i + 1].at - spots[i].at : 0;
    double far = n > 1 ? fmax(left, right) : range;
    sigma[spots[i].kernel] = fmin(fmax(far, least), range);
  }
}

/* What a kernel of a range loses beyond its ends. */
static double log_mass(const struct manta__dim *d, double centre, double sigma)
{
  double inside =
      d->kind == MANTA__DIM_NORMAL ? 1 : below((1 - centre) / sigma) - below(-centre / sigma);
  return log(inside * sigma) + LOG_SQRT_2PI;
}

static void fill_dim(struct manta__parzen *p, int dim, const struct manta__sample *const *samples,
                     struct spot *spots)
{
  const struct manta__dim *d = &p->space->dims[dim];
  size_t row = (size_t)dim * (size_t)p->kernels;
  double *centre = p->centre + row, *mass = p->mass + row, *sigma = p->sigma + row;
  int n = p->kernels - 1, count = 0;
  for (int k = 0; k <= n; k++) {
    double x = k < n ? samples[k]->point[dim] : NAN;
    centre[k] = isnan(x) || manta__dim_has_options(d) ? x : manta__dim_to_scale(d, x);
    mass[k] = 0;
    sigma[k] = 1;
    if (!isnan(x) && !manta__dim_has_options(d))
      spots[count++] = (struct spot){centre[k], k};
  }
  set_widths(d, sort_spots(spots, spots + count, count), count, p->kernels, sigma);
  for (int i = 0; i < count; i++)
    mass[spots[i].kernel] = log_mass(d, spots[i].at, sigma[spots[i].kernel]);
}

manta_status manta__parzen_init(struct manta__parzen *p, const struct manta__space *space,
                                const struct manta__sample *const *samples, int n, manta_error *err)
{
  size_t kernels = (size_t)n + 1, dims = (size_t)space->count;
  double *room = manta__malloc(sizeof *room * (3 * kernels + 3 * kernels * dims));
  struct spot *spots = manta__malloc(sizeof *spots * 2 * kernels);
  if (!room || !spots) {
    manta__free(room);
    manta__free(spots);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a density of %d trials", n);
  }
  *p = (struct manta__parzen){.space = space, .kernels = n + 1, .weights = room};
  p->base = p->weights + kernels;
  p->terms = p->base + kernels;
  p->centre = p->terms + kernels;
  p->mass = p->centre + kernels * dims;
  p->sigma = p->mass + kernels * dims;
  weigh(p, n);
  for (int i = 0; i < space->count; i++)
    fill_dim(p, i, samples, spots);
  manta__free(spots);
  return MANTA_OK;
}

void manta__parzen_fini(struct manta__parzen *p)
{
  manta__free(p->weights);
  *p = (struct manta__parzen){0};
}

/* --- drawing ---------------------------------------------------------------------------------- */

static int draw_kernel(const struct manta__parzen *p, struct manta__rng *rng)
{
  double u = manta__rng_unit(rng);
  for (int k = 0; k < p->kernels - 1; k++)
    if ((u -= p->weights[k]) < 0)
      return k;
  return p->kernels - 1;
}

static double draw_option(const struct manta__parzen *p, const struct manta__dim *d, double centre,
                          struct manta__rng *rng)
{
  double spread = d->options / (double)p->kernels; // the prior's part, of 1 + spread
  if (!isnan(centre) && manta__rng_unit(rng) * (1 + spread) < 1)
    return centre;
  return (double)manta__rng_below(rng, d->options);
}

static double draw_number(const struct manta__dim *d, double centre, double sigma,
                          struct manta__rng *rng)
{
  bool normal = d->kind == MANTA__DIM_NORMAL;
  if (isnan(centre))
    return manta__dim_from_scale(d, normal ? manta__rng_normal(rng) : manta__rng_unit(rng));
  double u = centre + sigma * manta__rng_normal(rng);
  while (!normal && !(u >= 0 && u <= 1)) // at least a third of the draws are inside
    u = centre + sigma * manta__rng_normal(rng);
  return manta__dim_from_scale(d, u);
}

void manta__parzen_draw(const struct manta__parzen *p, struct manta__rng *rng, double *point)
{
  int k = draw_kernel(p, rng);
  for (int i = 0; i < p->space->count; i++) {
    const struct manta__dim *d = &p->space->dims[i];
    size_t at = (size_t)i * (size_t)p->kernels + (size_t)k;
    double centre = p->centre[at];
    if (!manta__space_counts(p->space, i, point))
      point[i] = NAN;
    else if (manta__dim_has_options(d))
      point[i] = draw_option(p, d, centre, rng);
    else
      point[i] = draw_number(d, centre, p->sigma[at], rng);
  }
}

/* --- the density ------------------------------------------------------------------------------ */

static void add_option(const struct manta__parzen *p, const struct manta__dim *d, double x,
                       const double *centre)
{
  double spread = 1.0 / p->kernels, all = 1 + d->options * spread;
  double same = log((1 + spread) / all), other = log(spread / all), prior = -log(d->options);
  for (int k = 0; k < p->kernels; k++)
    p->terms[k] += isnan(centre[k]) ? prior : centre[k] == x ? same : other;
}

static double log_prior(const struct manta__dim *d, double u)
{
  return d->kind == MANTA__DIM_NORMAL ? -0.5 * u * u - LOG_SQRT_2PI : 0;
}

/* A rounded value has the integral over its cell, per width of the cell. */
static void add_cell(const struct manta__parzen *p, const struct manta__dim *d, double x,
                     size_t row)
{
  const double *centre = p->centre + row, *mass = p->mass + row, *sigma = p->sigma + row;
  double from, to, prior = log_prior(d, manta__dim_to_scale(d, x));
  manta__dim_cell(d, x, &from, &to);
  double size = log(to - from);
  for (int k = 0; k < p->kernels; k++) {
    if (isnan(centre[k])) {
      p->terms[k] += prior;
      continue;
    }
    double part = below((to - centre[k]) / sigma[k]) - below((from - centre[k]) / sigma[k]);
    p->terms[k] += log(fmax(part, 1e-300) * sigma[k]) + LOG_SQRT_2PI - mass[k] - size;
  }
}

static void add_number(const struct manta__parzen *p, const struct manta__dim *d, double x,
                       size_t row)
{
  const double *centre = p->centre + row, *mass = p->mass + row, *sigma = p->sigma + row;
  double u = manta__dim_to_scale(d, x), prior = log_prior(d, u);
  for (int k = 0; k < p->kernels; k++) {
    double off = (u - centre[k]) / sigma[k];
    p->terms[k] += isnan(off) ? prior : -0.5 * off * off - mass[k];
  }
}

static double log_sum_exp(const double *x, int n)
{
  double top = x[0], sum = 0;
  for (int i = 1; i < n; i++)
    top = fmax(top, x[i]);
  for (int i = 0; i < n; i++)
    sum += exp(x[i] - top);
  return top + log(sum);
}

double manta__parzen_log(const struct manta__parzen *p, const double *point)
{
  for (int k = 0; k < p->kernels; k++)
    p->terms[k] = p->base[k];
  for (int i = 0; i < p->space->count; i++) {
    const struct manta__dim *d = &p->space->dims[i];
    size_t row = (size_t)i * (size_t)p->kernels;
    if (isnan(point[i]))
      continue;
    if (manta__dim_has_options(d))
      add_option(p, d, point[i], p->centre + row);
    else if (d->q > 0)
      add_cell(p, d, point[i], row);
    else
      add_number(p, d, point[i], row);
  }
  return log_sum_exp(p->terms, p->kernels);
}
