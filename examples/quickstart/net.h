/* SPDX-License-Identifier: Apache-2.0
 *
 * quickstart/net.h - a small network, forward and backward by hand: 784 pixels, two layers of
 * rectified units, 10 scores.
 *
 * The parameters of a layer are one block of floats, weights (in,out) and then biases (out), and
 * so are their gradients and their momentum. Every sum has a fixed order: the same input gives the
 * same bits.
 */
#ifndef QUICKSTART_NET_H
#define QUICKSTART_NET_H

#include <stddef.h>
#include <stdint.h>

#include "digits.h"

enum { NET_IN = DIGIT_PIXELS, NET_H1 = 128, NET_H2 = 64, NET_OUT = 10 };
enum {
  NET_LAYERS = 3,
  NET_WIDEST = NET_IN,
  NET_BATCH = 128, /* digits in one call, at most */
  NET_PARAMS = (NET_IN + 1) * NET_H1 + (NET_H1 + 1) * NET_H2 + (NET_H2 + 1) * NET_OUT
};

struct net_layer {
  const char *name;
  int in, out;
  int count; /* of its parameters: (in + 1) * out */
};
extern const struct net_layer net_layers[NET_LAYERS];

/* What forward leaves for backward. */
struct net_pass {
  int n;                                           /* digits */
  float at[NET_LAYERS + 1][NET_BATCH][NET_WIDEST]; /* what goes into each layer; then the scores */
  float delta[NET_LAYERS + 1][NET_BATCH][NET_H1];  /* how the loss changes with it (not [0]) */
};

/* params: a pointer to the block of each layer, here and below. */
void net_init(float *const *params, uint64_t seed);

/* The scores of n digits, in p->at[NET_LAYERS]. */
void net_forward(struct net_pass *p, float *const *params, const struct digit *const *digits,
                 int n);

/* The label with the highest score of digit i. */
int net_guess(const struct net_pass *p, int i);

/* Guesses the labels of n digits, into guess; gives how many are right. */
int net_test(struct net_pass *p, float *const *params, const struct digit *digits, uint8_t *guess,
             int n);

/* The mean cross-entropy of the softmax of the scores; the first step back. */
double net_loss(struct net_pass *p, const struct digit *const *digits);

/* The gradients of one layer, overwriting what was there, and the step back to the layer before.
 * Last layer first: when a call returns, the gradients of its layer are final. */
void net_backward(struct net_pass *p, float *const *grads, float *const *params, int layer);

/* Momentum 0.9, for each of n parameters: v = 0.9 v + g; p = p - rate v. */
void net_step(float *params, float *momentum, const float *grads, int n, float rate);

#endif
