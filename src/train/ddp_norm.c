/* SPDX-License-Identifier: Apache-2.0
 *
 * train/ddp_norm.c - the norm of all gradients, the same bits everywhere, and clipping by it.
 *
 * After the reduction all ranks have the same gradients, so each block is squared by one rank only
 * and the sums are shared: a sum with zeros changes nothing. All in f64: squares of f32 are exact.
 */
#include <math.h>

#include "base/half.h"
#include "train/ddp.h"

#define LANES 8

size_t manta__norm_blocks(size_t count)
{
  return count / MANTA__NORM_BLOCK + (count % MANTA__NORM_BLOCK != 0);
}

static double load(const void *x, size_t i, manta_dtype type)
{
  switch (type) {
  case MANTA_F64:
    return ((const double *)x)[i];
  case MANTA_F16:
    return (double)manta__f32_of_f16(((const uint16_t *)x)[i]);
  case MANTA_BF16:
    return (double)manta__f32_of_bf16(((const uint16_t *)x)[i]);
  default:
    return (double)((const float *)x)[i];
  }
}

// The same as the loop below, for the type that counts.
static void whole_f32(double *lane, const float *x, size_t n)
{
  for (size_t i = 0; i < n; i += LANES)
    for (size_t k = 0; k < LANES; k++) {
      double v = (double)x[i + k];
      lane[k] += v * v;
    }
}

double manta__squares(const void *x, size_t n, manta_dtype type)
{
  double lane[LANES] = {0};
  size_t i = 0;
  if (type == MANTA_F32) {
    i = n - n % LANES;
    whole_f32(lane, x, i);
  }
  for (; i < n; i++) {
    double v = load(x, i, type);
    lane[i % LANES] += v * v;
  }
  return manta__sum_tree(lane, LANES);
}

double manta__sum_tree(double *s, size_t n)
{
  for (; n > 1; n = n / 2 + n % 2) {
    for (size_t i = 0; i < n / 2; i++)
      s[i] = s[2 * i] + s[2 * i + 1];
    if (n % 2)
      s[n / 2] = s[n - 1];
  }
  return s[0];
}

void manta__scale(void *x, size_t n, manta_dtype type, double by)
{
  float *f = x, by32 = (float)by;
  double *d = x;
  uint16_t *h = x;
  for (size_t i = 0; type == MANTA_F32 && i < n; i++)
    f[i] *= by32;
  for (size_t i = 0; type == MANTA_F64 && i < n; i++)
    d[i] *= by;
  for (size_t i = 0; type == MANTA_F16 && i < n; i++)
    h[i] = manta__f16_of_f32(manta__f32_of_f16(h[i]) * by32);
  for (size_t i = 0; type == MANTA_BF16 && i < n; i++)
    h[i] = manta__bf16_of_f32(manta__f32_of_bf16(h[i]) * by32);
}

// Block after block of one parameter; the ranks take turns.
static void squares_of(manta_ddp *d, size_t i)
{
  const manta_tensor *g = &d->grad[i];
  size_t count = (size_t)g->shape[0], bytes = manta_dtype_bytes(g->dtype);
  int rank = manta_comm_rank(d->comm), size = manta_comm_size(d->comm);
  size_t block = d->layout[i].block;
  for (size_t at = 0; at < count; at += MANTA__NORM_BLOCK, block++) {
    size_t n = count - at < MANTA__NORM_BLOCK ? count - at : MANTA__NORM_BLOCK;
    bool ours = block % (size_t)size == (size_t)rank;
    d->square[block] =
        ours ? manta__squares((const uint8_t *)g->data + at * bytes, n, g->dtype) : 0;
  }
}

void manta__ddp_squares(manta_ddp *d, size_t b)
{
  size_t left = d->bucket[b].members;
  for (size_t i = d->bucket[b].first; left > 0; i++)
    if (d->layout[i].bucket == b) {
      squares_of(d, i);
      left--;
    }
}

manta_status manta__ddp_clip(manta_ddp *d, double *norm, manta_error *err)
{
  double limit = d->cfg.clip_norm, all = 0;
  if (d->blocks > 0) {
    MANTA_TRY(
        manta_comm_allreduce(d->comm, d->square, d->square, d->blocks, MANTA_F64, MANTA_SUM, err));
    all = sqrt(manta__sum_tree(d->square, d->blocks));
  }
  if (limit > 0 && isfinite(all) && all > limit)
    for (size_t b = 0; b < d->buckets; b++)
      manta__scale(d->bucket[b].grad, d->bucket[b].used, d->bucket[b].type, limit / all);
  if (norm)
    *norm = all;
  return MANTA_OK;
}
