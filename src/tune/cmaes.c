/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/cmaes.c - CMA-ES, the evolution strategy that adapts its covariance matrix (Hansen, "The CMA
 * Evolution Strategy: A Tutorial", 2016, with active updates).
 *
 * It moves over the ranges and normals, each on its scale without units. Whatever is rounded is
 * rounded in the config alone: the strategy sees the number before, so that it does not stand still
 * between two integers. Beside it the options of each choice have probabilities, which move towards
 * those of the better members (Hamano and others, 2024). A number that does not count in a member
 * has a coordinate all the same.
 *
 * (1) A generation ends when as many of its trials have as the population has members; those that
 *     were begun meanwhile come from the same distribution, and are ignored if they end later.
 * (2) A trial that failed counts as the worst of its generation.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "tune/matrix.h"
#include "tune/searcher.h"

#define REDRAWS    100 /* of a point that is outside, before it is moved to the border */
#define MOST_SIGMA 1e3
#define LEAST_ODDS 0.2 /* of an option, as a part of its fair share */

struct offspring {
  double value;
  uint64_t number;
  const double *point; /* the sample's */
  double *x;
};

struct choice {
  int dim;
  double *odds; /* by option; they sum up to 1 */
};

struct cmaes {
  struct manta__search h;
  int d;
  int *dims; /* (d) that it moves over */
  struct choice *choices;
  int choice_count;
  int population, parents;
  double *weights; /* (population) of the best first; negative for the worse half */
  double weight_parents, cc, cs, c1, cmu, damps, expected;
  double sigma, *mean, *path_c, *path_s; /* (d) */
  double *c, *b, *scale;                 /* (d, d), (d, d), (d): c = b diag(scale²) bᵀ */
  double *work, *vec;                    /* (d, d), (5 d) */
  int64_t generation;
  uint64_t first;            /* number of the first trial of this generation */
  struct offspring *members; /* of it, that have ended */
  int member_count;
  double *room;
};

static struct cmaes *cmaes_of(struct manta__searcher *s)
{
  return (struct cmaes *)(void *)s;
}

/* --- making one ------------------------------------------------------------------------------- */

/* Logarithmic weights of the better half; the worse half's are negative, and scaled so that the
 * matrix stays positive definite. */
static void set_weights(struct cmaes *e)
{
  int n = e->population;
  double d = e->d, sum[2] = {0}, squares[2] = {0};
  for (int i = 0; i < n; i++) {
    e->weights[i] = log((n + 1) / 2.0) - log(i + 1);
    int bad = e->weights[i] < 0;
    sum[bad] += fabs(e->weights[i]);
    squares[bad] += e->weights[i] * e->weights[i];
    e->parents += !bad;
  }
  e->weight_parents = sum[0] * sum[0] / squares[0];
  double mu = e->weight_parents, mu_bad = sum[1] * sum[1] / squares[1];
  e->c1 = 2 / ((d + 1.3) * (d + 1.3) + mu);
  e->cmu = fmin(1 - e->c1 - 1e-8, 2 * (mu - 2 + 1 / mu) / ((d + 2) * (d + 2) + mu));
  double bad = fmin(fmin(1 + e->c1 / e->cmu, 1 + 2 * mu_bad / (mu + 2)),
                    (1 - e->c1 - e->cmu) / (d * e->cmu));
  for (int i = 0; i < n; i++)
    e->weights[i] *= e->weights[i] < 0 ? bad / sum[1] : 1 / sum[0];
}

static void set_rates(struct cmaes *e)
{
  double d = e->d, mu = e->weight_parents;
  e->cc = (4 + mu / d) / (d + 4 + 2 * mu / d);
  e->cs = (mu + 2) / (d + mu + 5);
  e->damps = 1 + 2 * fmax(0, sqrt((mu - 1) / (d + 1)) - 1) + e->cs;
  e->expected = sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d));
}

static uint32_t options_of(const struct cmaes *e, int choice)
{
  return e->h.space->dims[e->choices[choice].dim].options;
}

static void reset(struct cmaes *e)
{
  int d = e->d;
  e->sigma = e->h.config.sigma > 0 ? e->h.config.sigma : 1.0 / 6;
  for (int i = 0; i < d; i++) {
    e->mean[i] = 0.5;
    e->scale[i] = 1;
    e->path_c[i] = e->path_s[i] = 0;
    for (int j = 0; j < d; j++)
      e->c[i * d + j] = e->b[i * d + j] = i == j;
  }
  for (int i = 0; i < e->choice_count; i++)
    for (uint32_t k = 0; k < options_of(e, i); k++)
      e->choices[i].odds[k] = 1.0 / options_of(e, i);
}

static manta_status make_room(struct cmaes *e, manta_error *err)
{
  size_t d = (size_t)e->d, n = (size_t)e->population, options = 0;
  for (int i = 0; i < e->choice_count; i++)
    options += options_of(e, i);
  e->room = manta__calloc(n + 4 * d + 3 * d * d + 5 * d + n * d + options, sizeof(double));
  e->members = manta__calloc(n, sizeof *e->members);
  if (!e->room || !e->members)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a searcher");
  double *at = e->room;
  e->weights = at;
  e->mean = at += n;
  e->path_c = at += d;
  e->path_s = at += d;
  e->scale = at += d;
  e->c = at += d;
  e->b = at += d * d;
  e->work = at += d * d;
  e->vec = at += d * d;
  at += 5 * d;
  for (size_t i = 0; i < n; i++, at += d)
    e->members[i].x = at;
  for (int i = 0; i < e->choice_count; i++) {
    e->choices[i].odds = at;
    at += options_of(e, i);
  }
  return MANTA_OK;
}

static manta_status init_cmaes(struct manta__searcher *s, manta_error *err)
{
  struct cmaes *e = cmaes_of(s);
  const struct manta__space *sp = e->h.space;
  e->dims = manta__calloc((size_t)sp->count + 1, sizeof *e->dims);
  e->choices = manta__calloc((size_t)sp->count + 1, sizeof *e->choices);
  if (!e->dims || !e->choices)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a searcher");
  for (int i = 0; i < sp->count; i++)
    if (manta__dim_has_options(&sp->dims[i]))
      e->choices[e->choice_count++].dim = i;
    else
      e->dims[e->d++] = i;
  if (e->d == 0)
    return manta_error_set(err, MANTA_EINVAL,
                           "the searcher \"cmaes\" needs at least one range of numbers\nhint: "
                           "\"tpe\" searches choices");
  int asked = e->h.config.population;
  e->population = asked > 2 ? asked : 4 + (int)(3 * log(e->d));
  MANTA_TRY(make_room(e, err));
  set_weights(e);
  set_rates(e);
  reset(e);
  return MANTA_OK;
}

static void fini_cmaes(struct manta__searcher *s)
{
  struct cmaes *e = cmaes_of(s);
  manta__free(e->dims);
  manta__free(e->choices);
  manta__free(e->room);
  manta__free(e->members);
}

/* --- points ----------------------------------------------------------------------------------- */

static double unit_of(const struct manta__dim *d, double x)
{
  double u = manta__dim_to_scale(d, x);
  return d->kind == MANTA__DIM_NORMAL ? 0.5 + u / MANTA__NORMAL_RANGE : u;
}

static double value_of(const struct manta__dim *d, double u)
{
  return manta__dim_from_scale(d,
                               d->kind == MANTA__DIM_NORMAL ? (u - 0.5) * MANTA__NORMAL_RANGE : u);
}

static const struct manta__dim *dim_of(const struct cmaes *e, int i)
{
  return &e->h.space->dims[e->dims[i]];
}

/* x = mean + sigma b diag(scale) z; whether it is inside of all ranges. */
static bool draw_once(const struct cmaes *e, struct manta__rng *rng, double *x)
{
  int d = e->d;
  double *z = e->vec;
  bool inside = true;
  for (int i = 0; i < d; i++)
    z[i] = e->scale[i] * manta__rng_normal(rng);
  for (int i = 0; i < d; i++) {
    x[i] = e->mean[i];
    for (int j = 0; j < d; j++)
      x[i] += e->sigma * e->b[i * d + j] * z[j];
    inside &= dim_of(e, i)->kind == MANTA__DIM_NORMAL || (x[i] >= 0 && x[i] <= 1);
  }
  return inside;
}

/* Follows from the number and this generation. */
static void draw(const struct cmaes *e, uint64_t number, double *x)
{
  struct manta__rng rng = manta__rng_of(e->h.config.seed, number);
  for (int i = 0; i < REDRAWS; i++)
    if (draw_once(e, &rng, x))
      return;
  for (int i = 0; i < e->d; i++)
    if (dim_of(e, i)->kind != MANTA__DIM_NORMAL)
      x[i] = fmin(fmax(x[i], 0), 1);
}

static double draw_option(const struct cmaes *e, int choice, struct manta__rng *rng)
{
  const double *odds = e->choices[choice].odds;
  uint32_t last = options_of(e, choice) - 1, k = 0;
  for (double u = manta__rng_unit(rng); k < last && u >= odds[k]; k++)
    u -= odds[k];
  return k;
}

static manta_status propose_cmaes(struct manta__searcher *s, uint64_t number, double *point,
                                  manta_error *err)
{
  (void)err;
  struct cmaes *e = cmaes_of(s);
  const struct manta__space *sp = e->h.space;
  struct manta__rng rng = manta__rng_of(~e->h.config.seed, number);
  double *x = e->vec + e->d;
  draw(e, number, x);
  for (int i = 0; i < e->d; i++)
    point[e->dims[i]] = value_of(dim_of(e, i), x[i]);
  for (int i = 0; i < e->choice_count; i++)
    point[e->choices[i].dim] = draw_option(e, i, &rng);
  for (int i = 0; i < sp->count; i++)
    if (!manta__space_counts(sp, i, point))
      point[i] = NAN;
  return MANTA_OK;
}

/* Where a trial was before its numbers were rounded; one whose point comes from elsewhere is where
 * that is. */
static void place_of(const struct cmaes *e, const struct manta__sample *t, double *x)
{
  bool drawn = true;
  draw(e, t->number, x);
  for (int i = 0; i < e->d; i++) {
    double at = t->point[e->dims[i]];
    drawn &= isnan(at) || value_of(dim_of(e, i), x[i]) == at;
  }
  for (int i = 0; i < e->d && !drawn; i++)
    if (!isnan(t->point[e->dims[i]]))
      x[i] = unit_of(dim_of(e, i), t->point[e->dims[i]]);
}

/* --- a generation ----------------------------------------------------------------------------- */

static int better(const void *a, const void *b)
{
  const struct offspring *x = a, *y = b;
  if (x->value != y->value)
    return x->value < y->value ? -1 : 1;
  return x->number < y->number ? -1 : x->number > y->number;
}

/* Moves the mean; gives the step, in units of sigma, in `step`. */
static void move_mean(struct cmaes *e, double *step)
{
  for (int i = 0; i < e->d; i++) {
    step[i] = 0;
    for (int k = 0; k < e->parents; k++)
      step[i] += e->weights[k] * (e->members[k].x[i] - e->mean[i]) / e->sigma;
  }
  for (int i = 0; i < e->d; i++)
    e->mean[i] += e->sigma * step[i];
}

/* out = c^(-1/2) y = b diag(1/scale) bᵀ y. Its length is what y's would be if all directions were
 * alike. */
static void whiten(const struct cmaes *e, const double *y, double *out, double *coord)
{
  int d = e->d;
  for (int j = 0; j < d; j++) {
    coord[j] = 0;
    for (int i = 0; i < d; i++)
      coord[j] += e->b[i * d + j] * y[i];
    coord[j] /= e->scale[j];
  }
  for (int i = 0; i < d; i++) {
    out[i] = 0;
    for (int j = 0; j < d; j++)
      out[i] += e->b[i * d + j] * coord[j];
  }
}

static double norm(const double *x, int d)
{
  double sum = 0;
  for (int i = 0; i < d; i++)
    sum += x[i] * x[i];
  return sqrt(sum);
}

/* The rank-one update follows the path of the mean, the rank-mu update the members. */
static void adapt_matrix(struct cmaes *e, const double *old_mean, bool stalled)
{
  int d = e->d;
  double *white = e->vec, *coord = e->vec + d, lost = 0;
  for (int k = 0; k < e->population; k++)
    lost += e->weights[k];
  double keep = 1 + (stalled ? e->c1 * e->cc * (2 - e->cc) : 0) - e->c1 - e->cmu * lost;
  for (int i = 0; i < d * d; i++)
    e->c[i] = keep * e->c[i] + e->c1 * e->path_c[i / d] * e->path_c[i % d];
  for (int k = 0; k < e->population; k++) {
    double *y = e->members[k].x, w = e->weights[k];
    for (int i = 0; i < d; i++)
      y[i] = (y[i] - old_mean[i]) / e->sigma;
    if (w < 0) {
      whiten(e, y, white, coord);
      double length = norm(white, d);
      w *= d / (length * length + 1e-8);
    }
    for (int i = 0; i < d * d; i++)
      e->c[i] += e->cmu * w * y[i / d] * y[i % d];
  }
}

static void decompose(struct cmaes *e)
{
  int d = e->d;
  for (int i = 0; i < d; i++)
    for (int j = 0; j <= i; j++)
      e->c[j * d + i] = e->c[i * d + j];
  memcpy(e->work, e->c, sizeof(double) * (size_t)(d * d));
  manta__matrix_eigen(e->work, d, e->scale, e->b);
  for (int i = 0; i < d; i++)
    e->scale[i] = sqrt(fmax(e->scale[i], 1e-16));
}

/* Towards what the better half chose, each option keeping a chance. */
static void adapt_odds(struct cmaes *e, int choice)
{
  double *odds = e->choices[choice].odds, sum = 0;
  uint32_t n = options_of(e, choice);
  for (int k = 0; k < e->parents; k++) {
    double chosen = e->members[k].point[e->choices[choice].dim];
    for (uint32_t i = 0; i < n && !isnan(chosen); i++)
      odds[i] += e->cs * e->weights[k] * ((chosen == i) - odds[i]);
  }
  for (uint32_t i = 0; i < n; i++)
    sum += odds[i] = fmax(odds[i], LEAST_ODDS / n);
  for (uint32_t i = 0; i < n; i++)
    odds[i] /= sum;
}

static void end_generation(struct cmaes *e)
{
  int d = e->d;
  double *step = e->vec + 2 * d, *old_mean = e->vec + 3 * d, *white = e->vec + 4 * d;
  qsort(e->members, (size_t)e->population, sizeof *e->members, better);
  memcpy(old_mean, e->mean, sizeof(double) * (size_t)d);
  move_mean(e, step);
  whiten(e, step, white, e->vec);
  double rate = sqrt(e->cs * (2 - e->cs) * e->weight_parents);
  for (int i = 0; i < d; i++)
    e->path_s[i] = (1 - e->cs) * e->path_s[i] + rate * white[i];
  double length = norm(e->path_s, d), limit = (1.4 + 2 / (d + 1.0)) * e->expected;
  double aged = 1 - pow(1 - e->cs, 2 * (e->generation + 1.0));
  bool stalled = length / sqrt(aged) >= limit;
  rate = sqrt(e->cc * (2 - e->cc) * e->weight_parents);
  for (int i = 0; i < d; i++)
    e->path_c[i] = (1 - e->cc) * e->path_c[i] + (stalled ? 0 : rate * step[i]);
  adapt_matrix(e, old_mean, stalled);
  for (int i = 0; i < e->choice_count; i++)
    adapt_odds(e, i);
  e->sigma *= exp(e->cs / e->damps * (length / e->expected - 1));
  e->sigma = fmin(e->sigma, MOST_SIGMA);
  decompose(e);
  e->generation++;
}

static void learn_cmaes(struct manta__searcher *s, const struct manta__sample *ended)
{
  struct cmaes *e = cmaes_of(s);
  if (ended->number < e->first)
    return;
  struct offspring *m = &e->members[e->member_count];
  place_of(e, ended, m->x);
  m->value = ended->value;
  m->number = ended->number;
  m->point = ended->point;
  if (++e->member_count < e->population)
    return;
  end_generation(e);
  e->member_count = 0;
  e->first = e->h.samples[e->h.count - 1].number + 1;
}

const struct manta__searcher_ops manta__cmaes_search = {
    .name = "cmaes",
    .size = sizeof(struct cmaes),
    .init = init_cmaes,
    .propose = propose_cmaes,
    .learn = learn_cmaes,
    .fini = fini_cmaes,
};
