/* SPDX-License-Identifier: Apache-2.0
 *
 * quickstart/model.h - the data and the network of the quickstart: D inputs, H tanh units, 1
 * output.
 */
#ifndef QUICKSTART_MODEL_H
#define QUICKSTART_MODEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { D = 2, H = 32, BATCH = 32, SHARD = 8192, TEST = 2048 }; /* SHARD, TEST: rows */
#define NOISE 0.1f /* no model has a mean squared error below its square */

/* All parameters are one block of floats, so that a step, a copy or a checkpoint is one loop. */
struct model {
  float w1[H * D]; /* (H,D) */
  float b1[H];     /* (H) */
  float w2[H];     /* (H) */
  float b2;
};
enum { PARAMS = sizeof(struct model) / sizeof(float) };

/* A number in [-1, 1) that depends on its key alone. */
static float uniform(uint64_t key)
{
  key += 0x9e3779b97f4a7c15u;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  key ^= key >> 31;
  return (float)(key >> 40) * 0x1p-23f - 1.0f;
}

/* Rows first .. first + n - 1 of an endless data set: x (n,D), t (n). */
static void make_rows(float *x, float *t, int64_t first, int n)
{
  for (int i = 0; i < n; i++) {
    uint64_t key = (uint64_t)(first + i) * 8;
    x[i * D] = uniform(key);
    x[i * D + 1] = uniform(key + 1);
    float noise = uniform(key + 2) + uniform(key + 3) + uniform(key + 4); /* variance 1 */
    t[i] = sinf(4 * x[i * D]) * cosf(3 * x[i * D + 1]) + NOISE * noise;
  }
}

static void model_init(struct model *m, uint64_t seed)
{
  float *p = (float *)m;
  for (int i = 0; i < PARAMS; i++)
    p[i] = uniform((seed << 32) + (uint64_t)i) *
           (i < H * D + H ? 2.0f : 0.2f); /* first layer, second */
}

/* y (n) = tanh(x (n,D) w1^T + b1) w2 + b2; h (n,H) keeps the tanh for backward. */
static void forward(float *y, float *h, const struct model *m, const float *x, int n)
{
  for (int b = 0; b < n; b++) {
    y[b] = m->b2;
    for (int j = 0; j < H; j++) {
      float a = m->b1[j];
      for (int d = 0; d < D; d++)
        a += m->w1[j * D + d] * x[b * D + d];
      h[b * H + j] = tanhf(a);
      y[b] += m->w2[j] * h[b * H + j];
    }
  }
}

/* g = the gradient of mean (y - t)^2, from what forward left in y (n) and h (n,H). */
static void backward(struct model *g, const struct model *m, const float *x, const float *t,
                     const float *y, const float *h, int n)
{
  memset(g, 0, sizeof *g);
  for (int b = 0; b < n; b++) {
    float dy = 2 * (y[b] - t[b]) / (float)n;
    g->b2 += dy;
    for (int j = 0; j < H; j++) {
      float hj = h[b * H + j], da = dy * m->w2[j] * (1 - hj * hj);
      g->w2[j] += dy * hj;
      g->b1[j] += da;
      for (int d = 0; d < D; d++)
        g->w1[j * D + d] += da * x[b * D + d];
    }
  }
}

/* SGD with momentum: v = 0.9 v + g; m = m - rate v. */
static void sgd_step(struct model *m, struct model *v, const struct model *g, float rate)
{
  float *mp = (float *)m, *vp = (float *)v;
  const float *gp = (const float *)g;
  for (int i = 0; i < PARAMS; i++) {
    vp[i] = 0.9f * vp[i] + gp[i];
    mp[i] -= rate * vp[i];
  }
}

/* mean (y - t)^2 of y (n), t (n). */
static double mse(const float *y, const float *t, int n)
{
  double sum = 0;
  for (int i = 0; i < n; i++)
    sum += (y[i] - t[i]) * (y[i] - t[i]);
  return sum / n;
}

/* The error of the mean prediction of n models on TEST rows that nobody trains on. */
static double held_out(const struct model *m, int n)
{
  static float x[TEST * D], t[TEST], y[TEST], h[TEST * H], mean[TEST];
  make_rows(x, t, -TEST, TEST);
  memset(mean, 0, sizeof mean);
  for (int i = 0; i < n; i++) {
    forward(y, h, &m[i], x, TEST);
    for (int k = 0; k < TEST; k++)
      mean[k] += y[k] / (float)n;
  }
  return mse(mean, t, TEST);
}

/* A replica in training. */
struct replica {
  struct model m, v; /* parameters, and their momentum */
  int64_t epoch;     /* passes made */
};

/* One pass over x (SHARD,D), t (SHARD) in random windows of BATCH rows; gives the mean loss. */
static double train_epoch(struct replica *r, const float *x, const float *t, float rate)
{
  float y[BATCH], h[BATCH * H];
  struct model g;
  double loss = 0;
  for (int i = 0; i < SHARD; i += BATCH) {
    float pick = (uniform((uint64_t)(r->epoch * SHARD + i)) + 1) / 2; /* [0, 1) */
    int at = (int)(pick * (SHARD - BATCH));
    forward(y, h, &r->m, &x[at * D], BATCH);
    backward(&g, &r->m, &x[at * D], &t[at], y, h, BATCH);
    sgd_step(&r->m, &r->v, &g, rate);
    loss += mse(y, &t[at], BATCH) * BATCH / SHARD;
  }
  r->epoch++;
  return loss;
}

#endif
