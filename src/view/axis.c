/* SPDX-License-Identifier: Apache-2.0 */
#include "view/axis.h"

#include <math.h>
#include <stdio.h>

// 1, 2 or 5 times a power of ten, at least `least`.
static double round_step(double least)
{
  double p = pow(10, floor(log10(least))), f = least / p;
  return p * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10);
}

static void widen(double *low, double *high)
{
  if (*low > *high) {
    double t = *low;
    *low = *high;
    *high = t;
  }
  if (*high - *low > 1e-12 * fmax(fabs(*low), fabs(*high)))
    return;
  double by = *low == 0 ? 1 : 0.1 * fabs(*low);
  *low -= by;
  *high += by;
}

static void linear(struct manta__axis *a, int wanted)
{
  double step = round_step((a->high - a->low) / wanted);
  step = a->whole && step < 1 ? 1 : step;
  double at = ceil(a->low / step - 1e-9) * step;
  for (a->count = 0; at <= a->high + 1e-9 * step && a->count < MANTA__TICKS_MAX; at += step)
    a->tick[a->count++] = fabs(at) < 1e-9 * step ? 0 : at;
  double most = fmax(fabs(a->low), fabs(a->high));
  a->digits = step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9);
  if (a->digits > 5 || most >= 1e7)
    a->digits = -1;
}

// Powers of ten; where there are few of them, 2 and 5 times as well.
static void logarithmic(struct manta__axis *a, int wanted)
{
  static const double few[] = {1, 2, 5};
  double decades = log10(a->high) - log10(a->low);
  int every = (int)ceil(decades / wanted), between = decades < 2.5 ? 3 : 1;
  a->digits = -1;
  for (int e = (int)floor(log10(a->low)); e <= (int)ceil(log10(a->high)); e++)
    for (int k = 0; k < between && a->count < MANTA__TICKS_MAX; k++) {
      double at = few[k] * pow(10, e);
      if (at >= a->low * (1 - 1e-9) && at <= a->high * (1 + 1e-9) &&
          (between > 1 || e % (every > 0 ? every : 1) == 0))
        a->tick[a->count++] = at;
    }
}

void manta__axis_make(struct manta__axis *a, double low, double high, bool log, int wanted,
                      bool pad)
{
  *a = (struct manta__axis){.log = log && low > 0 && high > 0};
  wanted = wanted < 2 ? 2 : wanted > MANTA__TICKS_MAX - 2 ? MANTA__TICKS_MAX - 2 : wanted;
  widen(&low, &high);
  if (a->log) {
    double room = pad ? pow(high / low, 0.04) : 1;
    a->low = low / room;
    a->high = high * room;
    logarithmic(a, wanted);
    if (a->count >= 2)
      return;
    *a = (struct manta__axis){.log = true}; // less than a decade: round numbers as ever
  }
  double room = pad ? 0.04 * (high - low) : 0;
  double floor_at = low >= 0 && low - room < 0 ? 0 : low - room; // no negative loss
  a->low = a->log ? low : floor_at;
  a->high = high + room;
  linear(a, wanted);
}

void manta__axis_count(struct manta__axis *a, double low, double high, int wanted)
{
  *a = (struct manta__axis){.low = low, .high = high, .whole = true};
  if (high - low < 1) { // one of them: in the middle
    a->low = low - 1;
    a->high = high + 1;
  }
  linear(a, wanted);
}

double manta__axis_place(const struct manta__axis *a, double value)
{
  if (a->log)
    return value <= 0 ? 0 : log(value / a->low) / log(a->high / a->low);
  return (value - a->low) / (a->high - a->low);
}

const char *manta__axis_label(const struct manta__axis *a, int i, char buf[MANTA__TEXT])
{
  double x = a->tick[i], m = fabs(x);
  if (a->digits < 0)
    snprintf(buf, MANTA__TEXT, "%.6g", x);
  else if (a->digits == 0 && m >= 10000)
    snprintf(buf, MANTA__TEXT, m >= 1e6 ? "%gM" : "%gk", m >= 1e6 ? x / 1e6 : x / 1e3);
  else
    snprintf(buf, MANTA__TEXT, "%.*f", a->digits, x);
  return buf;
}
