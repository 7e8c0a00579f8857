/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/pb2.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "tune/gp.h"

#define LEAST      4   /* gains, before anything is concluded */
#define CANDIDATES 512 /* points that are compared */
#define NEAR       128 /* of those: near the one that is copied */
#define SPREAD     0.1 /* how near */
#define BOLDNESS   1.5 /* deviations that what is unknown is worth */
#define FIT_STEPS  40

struct gain_base { // what a trial's next gain counts from
  double time, value;
  bool known;
};

manta_status manta__pb2_init(struct manta__pb2 *p, const struct manta__space *sp, double interval,
                             manta_error *err)
{
  *p = (struct manta__pb2){.space = sp, .interval = interval};
  p->seen = manta__calloc(MANTA__PB2_MOST * ((size_t)sp->count + 2), sizeof *p->seen);
  return p->seen ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory for a scheduler");
}

void manta__pb2_fini(struct manta__pb2 *p)
{
  manta__free(p->seen);
  manta__free(p->trials.items);
  *p = (struct manta__pb2){0};
}

// --- units ---------------------------------------------------------------------------------------

static bool is_number(const struct manta__dim *d)
{
  return !manta__dim_has_options(d);
}

static bool is_proposed(const struct manta__pb2 *p, int dim)
{
  return is_number(&p->space->dims[dim]) && !(p->fixed && p->fixed[dim]);
}

static double to_unit(const struct manta__dim *d, double x)
{
  if (isnan(x))
    return 0.5;
  if (!is_number(d))
    return x;
  double u = manta__dim_to_scale(d, x);
  return d->kind == MANTA__DIM_NORMAL ? fmin(fmax((u / MANTA__NORMAL_RANGE + 1) / 2, 0), 1) : u;
}

static double from_unit(const struct manta__dim *d, double u)
{
  return manta__dim_from_scale(d, d->kind == MANTA__DIM_NORMAL ? (2 * u - 1) * MANTA__NORMAL_RANGE
                                                               : u);
}

// --- gains ---------------------------------------------------------------------------------------

static double *row_of(const struct manta__pb2 *p, uint64_t i)
{
  return p->seen + (i % MANTA__PB2_MOST) * ((size_t)p->space->count + 2);
}

static void keep_gain(struct manta__pb2 *p, const double *point, double time, double gain)
{
  double *row = row_of(p, p->count++);
  int d = p->space->count;
  for (int i = 0; i < d; i++)
    row[i] = to_unit(&p->space->dims[i], point[i]);
  row[d] = time;
  row[d + 1] = gain;
}

manta_status manta__pb2_observe(struct manta__pb2 *p, uint64_t trial, const double *point,
                                double time, double value, manta_error *err)
{
  MANTA_TRY(manta__grow_to(&p->trials, trial + 1, sizeof(struct gain_base), err));
  struct gain_base *b = &((struct gain_base *)p->trials.items)[trial];
  if (b->known && time - b->time < p->interval && time > b->time)
    return MANTA_OK;
  if (b->known && point && time > b->time && isfinite(value) && isfinite(b->value))
    keep_gain(p, point, b->time, (b->value - value) / (time - b->time));
  *b = (struct gain_base){time, value, true};
  return MANTA_OK;
}

void manta__pb2_forget(struct manta__pb2 *p, uint64_t trial)
{
  if (trial < p->trials.count)
    ((struct gain_base *)p->trials.items)[trial].known = false;
}

// --- proposals -----------------------------------------------------------------------------------

// The gains, standardized, with time as one more dimension.
static void load_gains(const struct manta__pb2 *p, struct manta__gp *g)
{
  int d = p->space->count;
  uint64_t n = p->count < MANTA__PB2_MOST ? p->count : MANTA__PB2_MOST;
  double mean = 0, square = 0, last = 0;
  for (uint64_t i = 0; i < n; i++) {
    last = fmax(last, row_of(p, i)[d]);
    mean += row_of(p, i)[d + 1] / (double)n;
  }
  for (uint64_t i = 0; i < n; i++)
    square += pow(row_of(p, i)[d + 1] - mean, 2) / (double)n;
  double deviation = square > 0 ? sqrt(square) : 1;
  for (uint64_t i = 0; i < n; i++) {
    const double *row = row_of(p, i);
    memcpy(g->x + i * (size_t)(d + 1), row, (size_t)d * sizeof *row);
    g->x[i * (size_t)(d + 1) + (size_t)d] = last > 0 ? row[d] / last : 0;
    g->y[i] = (row[d + 1] - mean) / deviation;
  }
  g->n = (int)n;
}

static void draw(const struct manta__pb2 *p, const double *from, bool near, struct manta__rng *rng,
                 double *u)
{
  for (int i = 0; i < p->space->count; i++) {
    double r = near ? from[i] + SPREAD * manta__rng_normal(rng) : manta__rng_unit(rng);
    u[i] = is_proposed(p, i) ? fmin(fmax(r, 0), 1) : from[i];
  }
  u[p->space->count] = 1; // now
}

static void choose(const struct manta__pb2 *p, const struct manta__gp *g, const double *from,
                   struct manta__rng *rng, double *u, double *best)
{
  double most = -INFINITY;
  for (int i = 0; i < CANDIDATES; i++) {
    double mean, variance;
    draw(p, from, i < NEAR, rng, u);
    manta__gp_predict(g, u, &mean, &variance, NULL, NULL);
    double worth = mean + BOLDNESS * sqrt(fmax(variance, 0));
    if (worth > most) {
      most = worth;
      memcpy(best, u, (size_t)p->space->count * sizeof *best);
    }
  }
}

static void settle(const struct manta__pb2 *p, const double *best, double *point)
{
  for (int i = 0; i < p->space->count; i++)
    if (is_proposed(p, i) && manta__space_counts(p->space, i, point))
      point[i] = from_unit(&p->space->dims[i], best[i]);
}

manta_status manta__pb2_propose(const struct manta__pb2 *p, uint64_t seed, uint64_t turn,
                                double *point, manta_error *err)
{
  struct manta__gp g = {0};
  struct manta__rng rng = manta__rng_of(seed ^ 0x706232, turn);
  size_t d = (size_t)p->space->count;
  if (p->count < LEAST)
    return MANTA_OK;
  bool *is_option = manta__calloc(d + 1, sizeof *is_option);
  double *room = manta__calloc(3 * (d + 1), sizeof *room);
  manta_status st = is_option && room
                        ? manta__gp_init(&g, (int)d + 1, is_option, MANTA__PB2_MOST, err)
                        : manta_error_set(err, MANTA_ENOMEM, "no memory for a proposal");
  if (st == MANTA_OK) {
    double *from = room, *u = from + d + 1, *best = u + d + 1;
    for (size_t i = 0; i < d; i++) {
      is_option[i] = !is_number(&p->space->dims[i]);
      from[i] = to_unit(&p->space->dims[i], point[i]);
    }
    load_gains(p, &g);
    manta__gp_fit(&g, FIT_STEPS);
    choose(p, &g, from, &rng, u, best);
    settle(p, best, point);
    manta__gp_fini(&g);
  }
  manta__free(is_option);
  manta__free(room);
  return st;
}
