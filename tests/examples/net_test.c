/* SPDX-License-Identifier: Apache-2.0
 *
 * The network of the quickstart: its gradients against finite differences, and that it learns.
 */
#include "test.h"

#include "digits.h"
#include "net.h"
#include "random.h"

enum { N = 24 };

static struct digit digits[N];
static const struct digit *batch[N];
static struct net_pass pass;
static float p[NET_PARAMS], g[NET_PARAMS], v[NET_PARAMS]; // parameters, gradients, momentum
static float *params[NET_LAYERS], *grads[NET_LAYERS];     // of each layer

static int set_up(void **state)
{
  digits_fill(digits, N, 21);
  for (int i = 0; i < N; i++)
    batch[i] = &digits[i];
  int at = 0;
  for (int l = 0; l < NET_LAYERS; at += net_layers[l++].count) {
    params[l] = p + at;
    grads[l] = g + at;
  }
  net_init(params, 22);
  memset(v, 0, sizeof v);
  struct random r = random_of(23, 0, 0);
  for (int l = 0; l < NET_LAYERS; l++) // biases that are not 0
    for (int j = 1; j <= net_layers[l].out; j++)
      params[l][net_layers[l].count - j] = random_bell(&r, 0.1f);
  return 0;
}

static double loss(void)
{
  net_forward(&pass, params, batch, N);
  return net_loss(&pass, batch);
}

static void find_grads(void)
{
  loss();
  memset(g, 0x7f, sizeof g); // each is to be overwritten
  for (int l = NET_LAYERS - 1; l >= 0; l--)
    net_backward(&pass, grads, params, l);
}

static double slope_of(float *x)
{
  const float h = 0x1p-11f, was = *x;
  *x = was + h;
  double up = loss();
  *x = was - h;
  double down = loss();
  *x = was;
  return (up - down) / (2 * (double)h);
}

static void test_layers_fit_together(void **state)
{
  int all = 0;
  for (int l = 0; l < NET_LAYERS; l++) {
    assert_int_equal(net_layers[l].in, l ? net_layers[l - 1].out : NET_IN);
    assert_int_equal(net_layers[l].count, (net_layers[l].in + 1) * net_layers[l].out);
    all += net_layers[l].count;
  }
  assert_int_equal(all, NET_PARAMS);
}

/* One parameter at a time: weights of one layer, and all its biases, which come last. A single
 * slope may be off where a unit is at its kink; all of them together are not. */
static double error_of_layer(int layer)
{
  const struct net_layer *l = &net_layers[layer];
  struct random r = random_of(24, 0, (uint64_t)layer);
  double off = 0, size = 0;
  for (int k = 0; k < 200 + l->out; k++) {
    int i = k < 200 ? random_below(&r, l->in * l->out) : l->count - 1 - (k - 200);
    double slope = slope_of(&params[layer][i]);
    off += pow((double)grads[layer][i] - slope, 2);
    size += pow(slope, 2);
  }
  assert_true(size > 1e-4); // else all were 0, and nothing was shown
  return sqrt(off / size);
}

static void test_gradients_are_slopes(void **state)
{
  find_grads();
  for (int l = 0; l < NET_LAYERS; l++)
    assert_near(error_of_layer(l), 0, 0.03);
}

/* All parameters at once: along its gradient the loss falls by the gradient's square. */
static void test_the_whole_gradient_points_down(void **state)
{
  double square = 0, before = loss();
  find_grads();
  for (int i = 0; i < NET_PARAMS; i++)
    square += (double)g[i] * (double)g[i];
  float h = (float)(1e-3 / square);
  for (int i = 0; i < NET_PARAMS; i++)
    p[i] -= h * g[i];
  assert_near((before - loss()) / 1e-3, 1, 0.03);
}

static void test_pixels_without_ink_have_no_gradient(void **state)
{
  find_grads();
  for (int i = 0; i < NET_IN; i++) {
    bool ink = false;
    for (int b = 0; b < N; b++)
      ink |= digits[b].pixels[i] > 0;
    for (int j = 0; !ink && j < NET_H1; j++)
      assert_true(grads[0][i * NET_H1 + j] == 0);
  }
}

static void test_the_loss_of_no_knowledge_is_log_10(void **state)
{
  memset(p, 0, sizeof p);
  assert_near(loss(), log(10), 1e-6);
}

static void test_a_step_has_momentum(void **state)
{
  memset(p, 0, sizeof p);
  for (int i = 0; i < NET_PARAMS; i++)
    g[i] = 1;
  net_step(p, v, g, NET_PARAMS, 0.5f);
  assert_near(p[NET_PARAMS - 1], -0.5, 0);
  net_step(p, v, g, NET_PARAMS, 0.5f);
  assert_near(p[NET_PARAMS - 1], -0.5 - 0.95, 1e-6);
}

static void test_it_learns_a_batch_by_heart(void **state)
{
  uint8_t guess[N];
  for (int step = 0; step < 60; step++) {
    find_grads();
    net_step(p, v, g, NET_PARAMS, 0.05f);
  }
  assert_true(loss() < 0.05);
  assert_int_equal(net_test(&pass, params, digits, guess, N), N);
  for (int i = 0; i < N; i++)
    assert_int_equal(guess[i], digits[i].label);
}

/* Also where the number of digits is no multiple of what goes into one call. */
static void test_a_test_goes_through_all_digits(void **state)
{
  enum { MANY = 2 * NET_BATCH + 3 };
  static struct digit many[MANY];
  static uint8_t guess[MANY + 1];
  int right = 0;
  digits_fill(many, MANY, 25);
  memset(guess, 99, sizeof guess);
  int told = net_test(&pass, params, many, guess, MANY);
  for (int i = 0; i < MANY; i++) {
    const struct digit *one = &many[i];
    net_forward(&pass, params, &one, 1);
    assert_int_equal(guess[i], net_guess(&pass, 0));
    right += guess[i] == one->label;
  }
  assert_int_equal(told, right);
  assert_int_equal(guess[MANY], 99);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layers_fit_together),
      cmocka_unit_test_setup(test_gradients_are_slopes, set_up),
      cmocka_unit_test_setup(test_the_whole_gradient_points_down, set_up),
      cmocka_unit_test_setup(test_pixels_without_ink_have_no_gradient, set_up),
      cmocka_unit_test_setup(test_the_loss_of_no_knowledge_is_log_10, set_up),
      cmocka_unit_test_setup(test_a_step_has_momentum, set_up),
      cmocka_unit_test_setup(test_it_learns_a_batch_by_heart, set_up),
      cmocka_unit_test_setup(test_a_test_goes_through_all_digits, set_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
