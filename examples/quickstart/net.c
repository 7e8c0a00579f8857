/* SPDX-License-Identifier: Apache-2.0
 *
 * The inner loops run along a row of weights, which the compiler turns into vector instructions
 * without being allowed to reorder a sum; three of four pixels are paper, and are skipped.
 */
#include "net.h"

#include <math.h>
#include <string.h>

#include "random.h"

const struct net_layer net_layers[NET_LAYERS] = {
    {"layer1", NET_IN, NET_H1, (NET_IN + 1) * NET_H1},
    {"layer2", NET_H1, NET_H2, (NET_H1 + 1) * NET_H2},
    {"layer3", NET_H2, NET_OUT, (NET_H2 + 1) * NET_OUT},
};

void net_init(float *const *params, uint64_t seed)
{
  for (int l = 0; l < NET_LAYERS; l++) {
    struct random r = random_of(seed, 4, (uint64_t)l);
    int weights = net_layers[l].in * net_layers[l].out;
    float width = sqrtf(2.0f / (float)net_layers[l].in);
    for (int i = 0; i < net_layers[l].count; i++)
      params[l][i] = i < weights ? random_bell(&r, width) : 0; // the rest are biases
  }
}

/* y (n) += a * x (n). */
static void add_scaled(float *restrict y, float a, const float *restrict x, int n)
{
  for (int i = 0; i < n; i++)
    y[i] += a * x[i];
}

/* The sum of x[i] * y[i], as eight sums side by side. */
static float dot(const float *restrict x, const float *restrict y, int n)
{
  float sum[8] = {0}, rest = 0;
  int i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; k++)
      sum[k] += x[i + k] * y[i + k];
  for (; i < n; i++)
    rest += x[i] * y[i];
  return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7])) + rest;
}

/* y (out) = x (in) W (in,out) + bias (out) */
static void layer_forward(const struct net_layer *l, const float *w, const float *x, float *y)
{
  memcpy(y, w + l->in * l->out, (size_t)l->out * sizeof *y);
  for (int i = 0; i < l->in; i++)
    if (x[i] != 0)
      add_scaled(y, x[i], w + i * l->out, l->out);
}

void net_forward(struct net_pass *p, float *const *params, const struct digit *const *digits, int n)
{
  p->n = n;
  for (int b = 0; b < n; b++) {
    for (int i = 0; i < NET_IN; i++)
      p->at[0][b][i] = (float)digits[b]->pixels[i] * (1 / 255.0f);
    for (int l = 0; l < NET_LAYERS; l++) {
      float *y = p->at[l + 1][b];
      layer_forward(&net_layers[l], params[l], p->at[l][b], y);
      for (int j = 0; l + 1 < NET_LAYERS && j < net_layers[l].out; j++)
        y[j] = y[j] > 0 ? y[j] : 0; // all but the scores are rectified
    }
  }
}

int net_guess(const struct net_pass *p, int i)
{
  const float *scores = p->at[NET_LAYERS][i];
  int best = 0;
  for (int j = 1; j < NET_OUT; j++)
    if (scores[j] > scores[best])
      best = j;
  return best;
}

int net_test(struct net_pass *p, float *const *params, const struct digit *digits, uint8_t *guess,
             int n)
{
  const struct digit *batch[NET_BATCH];
  int right = 0;
  for (int i = 0; i < n; i++) {
    if (i % NET_BATCH == 0) {
      int m = n - i < NET_BATCH ? n - i : NET_BATCH;
      for (int k = 0; k < m; k++)
        batch[k] = &digits[i + k];
      net_forward(p, params, batch, m);
    }
    guess[i] = (uint8_t)net_guess(p, i % NET_BATCH);
    right += guess[i] == digits[i].label;
  }
  return right;
}

double net_loss(struct net_pass *p, const struct digit *const *digits)
{
  double loss = 0;
  for (int b = 0; b < p->n; b++) {
    const float *scores = p->at[NET_LAYERS][b];
    float *delta = p->delta[NET_LAYERS][b], top = scores[net_guess(p, b)], sum = 0;
    for (int j = 0; j < NET_OUT; j++)
      sum += delta[j] = expf(scores[j] - top);
    for (int j = 0; j < NET_OUT; j++)
      delta[j] = (delta[j] / sum - (j == digits[b]->label)) / (float)p->n;
    loss += logf(sum) - (scores[digits[b]->label] - top);
  }
  return loss / p->n;
}

void net_backward(struct net_pass *p, float *const *grads, float *const *params, int layer)
{
  const struct net_layer *l = &net_layers[layer];
  const float *w = params[layer];
  float *gw = grads[layer], *gb = gw + l->in * l->out;
  memset(gw, 0, (size_t)l->count * sizeof *gw);
  for (int b = 0; b < p->n; b++) {
    const float *x = p->at[layer][b], *dy = p->delta[layer + 1][b];
    float *dx = p->delta[layer][b];
    add_scaled(gb, 1, dy, l->out);
    for (int i = 0; i < l->in; i++) {
      if (layer > 0)
        dx[i] = x[i] > 0 ? dot(dy, w + i * l->out, l->out) : 0;
      if (x[i] != 0)
        add_scaled(gw + i * l->out, x[i], dy, l->out);
    }
  }
}

void net_step(float *params, float *momentum, const float *grads, int n, float rate)
{
  for (int i = 0; i < n; i++) {
    momentum[i] = 0.9f * momentum[i] + grads[i];
    params[i] -= rate * momentum[i];
  }
}
