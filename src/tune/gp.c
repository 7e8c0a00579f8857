/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/gp.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "tune/descend.h"
#include "tune/matrix.h"

#define SQRT5       2.23606797749978969641
#define LEAST_NOISE 1e-6
#define BOUND       12.0 /* of the logarithms of the parameters */

/* --- the kernel ------------------------------------------------------------------------------- */

static double apart(const struct manta__gp *g, int k, double a, double b)
{
  return g->is_option[k] ? a != b : (a - b) * (a - b);
}

static double distance(const struct manta__gp *g, const double *scales, const double *a,
                       const double *b)
{
  double sum = 0;
  for (int k = 0; k < g->dims; k++)
    sum += scales[k] * apart(g, k, a[k], b[k]);
  return sum;
}

/* By the square of the distance; *slope, if asked for, is the derivative by it. */
static double matern(double square, double *slope)
{
  double r = SQRT5 * sqrt(square), e = exp(-r);
  if (slope)
    *slope = -5.0 / 6 * (1 + r) * e;
  return (1 + r + r * r / 3) * e;
}

static const double *point(const struct manta__gp *g, int i)
{
  return g->x + (size_t)i * (size_t)g->dims;
}

/* --- likelihood ------------------------------------------------------------------------------- */

static void take_scales(const struct manta__gp *g, const double *params, double *scales)
{
  for (int k = 0; k < g->dims + 2; k++)
    scales[k] = exp(params[k]);
}

/* The covariance with these parameters, factored; alpha with it. */
static bool factor(struct manta__gp *g, const double *p)
{
  int n = g->n;
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < i; j++)
      g->factor[i * n + j] = p[g->dims] * matern(distance(g, p, point(g, i), point(g, j)), NULL);
    g->factor[i * n + i] = p[g->dims] + p[g->dims + 1] + LEAST_NOISE;
  }
  if (!manta__matrix_factor(g->factor, n))
    return false;
  memcpy(g->alpha, g->y, sizeof *g->y * (size_t)n);
  manta__matrix_forward(g->factor, n, g->alpha);
  manta__matrix_backward(g->factor, n, g->alpha);
  return true;
}

/* Minus the logarithm of the priors: scales neither near 0 nor huge, a variance about 1 (a gamma
 * distribution of shape 2), little noise. */
static double priors(const struct manta__gp *g, const double *p, double *grad)
{
  double sum = 0;
  for (int k = 0; k < g->dims; k++) {
    sum += 0.1 / p[k] + 0.1 * p[k];
    grad[k] += -0.1 / p[k] + 0.1 * p[k];
  }
  double s = p[g->dims], noise = p[g->dims + 1];
  grad[g->dims] += s - 1;
  grad[g->dims + 1] += 30 * noise - 0.1;
  return sum + s - log(s) + 30 * noise - 0.1 * log(noise);
}

/* tr((K⁻¹ - α αᵀ) dK) / 2 for each parameter. */
static void slope_of_likelihood(struct manta__gp *g, const double *p, double *grad)
{
  int n = g->n, dims = g->dims;
  manta__matrix_invert(g->factor, n, g->work);
  for (int i = 0; i < n; i++) {
    const double *a = point(g, i);
    for (int j = 0; j < i; j++) {
      const double *b = point(g, j);
      double weight = g->work[i * n + j] - g->alpha[i] * g->alpha[j], slope;
      double same = matern(distance(g, p, a, b), &slope);
      grad[dims] += weight * p[dims] * same;
      for (int k = 0; k < dims; k++)
        grad[k] += weight * p[dims] * slope * p[k] * apart(g, k, a[k], b[k]);
    }
    double own = (g->work[i * n + i] - g->alpha[i] * g->alpha[i]) / 2;
    grad[dims] += own * p[dims];
    grad[dims + 1] += own * p[dims + 1];
  }
}

/* Minus the logarithm of likelihood and priors, for the descent. */
static double unlikely(void *ctx, const double *params, double *grad)
{
  struct manta__gp *g = ctx;
  double *p = g->vec; // (dims + 2): gp_init makes room
  take_scales(g, params, p);
  memset(grad, 0, sizeof *grad * (size_t)(g->dims + 2));
  if (!factor(g, p))
    return INFINITY;
  double sum = 0;
  for (int i = 0; i < g->n; i++)
    sum += log(g->factor[i * g->n + i]) + g->y[i] * g->alpha[i] / 2;
  slope_of_likelihood(g, p, grad);
  return sum + priors(g, p, grad);
}

static void set_default(struct manta__gp *g)
{
  for (int k = 0; k < g->dims; k++)
    g->params[k] = 0;
  g->params[g->dims] = 0;
  g->params[g->dims + 1] = log(1e-2);
}

void manta__gp_fit(struct manta__gp *g, int steps)
{
  struct manta__descent to = {.slope = unlikely,
                              .ctx = g,
                              .n = g->dims + 2,
                              .low = -BOUND,
                              .high = BOUND,
                              .steps = steps,
                              .room = g->room};
  if (steps > 0)
    manta__descend(&to, g->params);
  take_scales(g, g->params, g->vec);
  if (factor(g, g->vec))
    return;
  set_default(g); // the covariance is singular but for rounding
  take_scales(g, g->params, g->vec);
  factor(g, g->vec);
}

/* --- prediction ------------------------------------------------------------------------------- */

static void add_slopes(const struct manta__gp *g, const double *x, const double *p,
                       const double *solved, double *mean_grad, double *variance_grad)
{
  memset(mean_grad, 0, sizeof *mean_grad * (size_t)g->dims);
  memset(variance_grad, 0, sizeof *variance_grad * (size_t)g->dims);
  for (int j = 0; j < g->n; j++) {
    const double *b = point(g, j);
    double slope;
    matern(distance(g, p, x, b), &slope);
    for (int k = 0; k < g->dims; k++) {
      if (g->is_option[k])
        continue;
      double change = p[g->dims] * slope * p[k] * 2 * (x[k] - b[k]);
      mean_grad[k] += g->alpha[j] * change;
      variance_grad[k] -= 2 * solved[j] * change;
    }
  }
}

void manta__gp_predict(const struct manta__gp *g, const double *x, double *mean, double *variance,
                       double *mean_grad, double *variance_grad)
{
  double *k = g->work, *p = g->vec; // not the caller's: one thread at a time
  take_scales(g, g->params, p);
  *mean = 0;
  for (int j = 0; j < g->n; j++) {
    k[j] = p[g->dims] * matern(distance(g, p, x, point(g, j)), NULL);
    *mean += k[j] * g->alpha[j];
  }
  manta__matrix_forward(g->factor, g->n, k);
  *variance = p[g->dims];
  for (int j = 0; j < g->n; j++)
    *variance -= k[j] * k[j];
  *variance = fmax(*variance, 1e-12);
  if (mean_grad) {
    manta__matrix_backward(g->factor, g->n, k);
    add_slopes(g, x, p, k, mean_grad, variance_grad);
  }
}

/* --- memory ----------------------------------------------------------------------------------- */

manta_status manta__gp_init(struct manta__gp *g, int dims, const bool *is_option, int cap,
                            manta_error *err)
{
  size_t n = (size_t)cap, d = (size_t)dims + 2;
  *g = (struct manta__gp){.dims = dims, .is_option = is_option, .cap = cap};
  g->x = manta__calloc(n * d + 2 * n + 2 * n * n + d + d + d * (2 * MANTA__DESCEND_MEMORY + 6),
                       sizeof(double));
  if (!g->x)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a Gaussian process");
  g->y = g->x + n * d;
  g->alpha = g->y + n;
  g->factor = g->alpha + n;
  g->work = g->factor + n * n;
  g->params = g->work + n * n;
  g->vec = g->params + d;
  g->room = g->vec + d;
  set_default(g);
  return MANTA_OK;
}

void manta__gp_fini(struct manta__gp *g)
{
  manta__free(g->x);
  *g = (struct manta__gp){0};
}
