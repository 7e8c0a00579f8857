/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/tensorboard/histogram.c - a list of numbers by TensorFlow's buckets.
 *
 * The limits grow by a tenth from 1e-12 to 1e20, and the same below zero; buckets that are empty on
 * both sides are left out, as TensorFlow's own writer does. What is not finite is not counted.
 */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "sink/tensorboard/eventfile.h"

#define SIDE   775 /* limits of one sign */
#define LIMITS (2 * SIDE + 1)

static double limits[LIMITS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_limits(void)
{
  int n = 0;
  double side[SIDE];
  for (double v = 1e-12; n < SIDE - 1 && v < 1e20; v *= 1.1)
    side[n++] = v;
  while (n < SIDE)
    side[n++] = DBL_MAX;
  for (int i = 0; i < SIDE; i++) {
    limits[SIDE - 1 - i] = -side[i];
    limits[SIDE + 1 + i] = side[i];
  }
}

// The first limit above x.
static int bucket_of(double x)
{
  int lo = 0, hi = LIMITS - 1;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (limits[mid] > x)
      hi = mid;
    else
      lo = mid + 1;
  }
  return lo;
}

static double number(const manta_value *v)
{
  return v->type == MANTA_INT ? (double)v->u.i : v->u.r;
}

bool manta__is_histogram(const manta_value *list)
{
  for (uint32_t i = 0; i < list->count; i++)
    if (list->u.items[i].type != MANTA_REAL && list->u.items[i].type != MANTA_INT)
      return false;
  return list->count > 0;
}

static void count(MantaTb__Histogram *h, double *counts, const manta_value *list)
{
  h->min = DBL_MAX;
  h->max = -DBL_MAX;
  for (uint32_t i = 0; i < list->count; i++) {
    double x = number(&list->u.items[i]);
    if (!isfinite(x))
      continue;
    counts[bucket_of(x)]++;
    h->min = x < h->min ? x : h->min;
    h->max = x > h->max ? x : h->max;
    h->num++;
    h->sum += x;
    h->sum_squares += x * x;
  }
}

// A run of empty buckets becomes one.
static size_t squeeze(double *limit, double *bucket, const double *counts)
{
  size_t n = 0;
  for (int i = 0; i < LIMITS;) {
    double end = limits[i], c = counts[i++];
    for (; c <= 0 && i < LIMITS && counts[i] <= 0; i++)
      end = limits[i];
    limit[n] = end;
    bucket[n++] = c;
  }
  if (n > 1 && bucket[n - 1] == 0)
    n--;
  return n;
}

manta_status manta__eventfile_histogram(struct manta__eventfile *e, struct manta__when when,
                                        const char *tag, const manta_value *list, manta_error *err)
{
  double counts[LIMITS] = {0}, limit[LIMITS], bucket[LIMITS];
  MantaTb__Histogram h = MANTA_TB__HISTOGRAM__INIT;
  MantaTb__Summary__Value value = MANTA_TB__SUMMARY__VALUE__INIT;
  pthread_once(&once, make_limits);
  count(&h, counts, list);
  if (h.num <= 0)
    return MANTA_OK;
  h.n_bucket = h.n_bucket_limit = squeeze(limit, bucket, counts);
  h.bucket_limit = limit;
  h.bucket = bucket;
  value.tag = (char *)(uintptr_t)tag;
  value.value_case = MANTA_TB__SUMMARY__VALUE__VALUE_HISTO;
  value.histo = &h;
  return manta__eventfile_put_value(e, when, &value, err);
}
