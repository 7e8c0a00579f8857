/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/dim.c - one dimension and its scale without units.
 *
 * The scale of a rounded range reaches half a step beyond both ends, so that the first and the last
 * value have as much of it as the others.
 */
#include <math.h>

#include "tune/space.h"

static double linear(const struct manta__dim *d, double x)
{
  return d->log ? log(x) : x;
}

static void ends(const struct manta__dim *d, double *from, double *to)
{
  double half = d->q / 2;
  *from = linear(d, d->log && d->low - half <= 0 ? d->low : d->low - half);
  *to = linear(d, d->high + half);
}

static double rounded(const struct manta__dim *d, double x)
{
  return d->q > 0 ? round(x / d->q) * d->q : x;
}

double manta__dim_to_scale(const struct manta__dim *d, double x)
{
  if (d->kind == MANTA__DIM_NORMAL)
    return (x - d->low) / d->high;
  double from, to;
  ends(d, &from, &to);
  return to > from ? (linear(d, x) - from) / (to - from) : 0.5;
}

double manta__dim_from_scale(const struct manta__dim *d, double u)
{
  if (d->kind == MANTA__DIM_NORMAL)
    return rounded(d, d->low + u * d->high);
  double from, to;
  ends(d, &from, &to);
  double x = from + u * (to - from);
  x = rounded(d, d->log ? exp(x) : x);
  return fmin(fmax(x, d->low), d->high);
}

void manta__dim_cell(const struct manta__dim *d, double x, double *from, double *to)
{
  *from = *to = manta__dim_to_scale(d, x);
  if (d->q <= 0)
    return;
  double half = d->q / 2;
  bool normal = d->kind == MANTA__DIM_NORMAL;
  *from = !normal && d->log && x - half <= 0 ? 0 : manta__dim_to_scale(d, x - half);
  *to = manta__dim_to_scale(d, x + half);
}
