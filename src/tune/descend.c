/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/descend.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define MEMORY   MANTA__DESCEND_MEMORY
#define HALVINGS 20

/* The last moves and how the gradient changed by them, the newest last. */
struct memory {
  double *s[MEMORY], *y[MEMORY], rho[MEMORY];
  int count;
};

static double dot(const double *a, const double *b, int n)
{
  double sum = 0;
  for (int i = 0; i < n; i++)
    sum += a[i] * b[i];
  return sum;
}

/* At a border that the gradient pushes against. */
static bool is_stuck(const struct manta__descent *to, double x, double grad)
{
  return (x <= to->low && grad > 0) || (x >= to->high && grad < 0);
}

/* The two loops of L-BFGS: `way` becomes -H grad. */
static void aim(const struct memory *m, const double *grad, double *way, int n)
{
  double alpha[MEMORY];
  for (int i = 0; i < n; i++)
    way[i] = -grad[i];
  for (int k = m->count - 1; k >= 0; k--) {
    alpha[k] = m->rho[k] * dot(m->s[k], way, n);
    for (int i = 0; i < n; i++)
      way[i] -= alpha[k] * m->y[k][i];
  }
  if (m->count) {
    int k = m->count - 1;
    double scale = 1 / (m->rho[k] * dot(m->y[k], m->y[k], n));
    for (int i = 0; i < n; i++)
      way[i] *= scale;
  }
  for (int k = 0; k < m->count; k++) {
    double beta = m->rho[k] * dot(m->y[k], way, n);
    for (int i = 0; i < n; i++)
      way[i] += (alpha[k] - beta) * m->s[k][i];
  }
}

static void remember(struct memory *m, const double *s, const double *y, int n)
{
  double curve = dot(s, y, n);
  if (!(curve > 1e-12 * dot(y, y, n)))
    return;
  if (m->count == MEMORY) {
    double *s0 = m->s[0], *y0 = m->y[0];
    memmove(m->s, m->s + 1, sizeof *m->s * (MEMORY - 1));
    memmove(m->y, m->y + 1, sizeof *m->y * (MEMORY - 1));
    memmove(m->rho, m->rho + 1, sizeof *m->rho * (MEMORY - 1));
    m->s[MEMORY - 1] = s0;
    m->y[MEMORY - 1] = y0;
    m->count--;
  }
  memcpy(m->s[m->count], s, sizeof *s * (size_t)n);
  memcpy(m->y[m->count], y, sizeof *y * (size_t)n);
  m->rho[m->count++] = 1 / curve;
}

/* Halves the step until it helps; `next` and `next_grad` are where it ends. INFINITY: nothing did.
 * */
static double search_line(const struct manta__descent *to, const double *x, double value,
                          const double *grad, const double *way, double *next, double *next_grad,
                          bool first)
{
  double length = sqrt(dot(way, way, to->n)), t = first && length > 1 ? 1 / length : 1;
  for (int k = 0; k < HALVINGS; k++, t /= 2) {
    double gain = 0;
    for (int i = 0; i < to->n; i++) {
      next[i] = way[i] == 0 ? x[i] : fmin(fmax(x[i] + t * way[i], to->low), to->high);
      gain += grad[i] * (next[i] - x[i]);
    }
    double found = to->slope(to->ctx, next, next_grad);
    if (gain < 0 && found <= value + 1e-4 * gain)
      return found;
  }
  return INFINITY;
}

static void point_down(const struct manta__descent *to, const double *x, const double *grad,
                       struct memory *m, double *way)
{
  aim(m, grad, way, to->n);
  for (int i = 0; i < to->n; i++)
    if (is_stuck(to, x[i], grad[i]))
      way[i] = 0;
  if (dot(way, grad, to->n) < 0)
    return;
  m->count = 0; // what was remembered points uphill: begin again
  for (int i = 0; i < to->n; i++)
    way[i] = is_stuck(to, x[i], grad[i]) ? 0 : -grad[i];
}

double manta__descend(const struct manta__descent *to, double *x)
{
  int n = to->n;
  double *at = to->room, *grad = at, *next = at + n, *next_grad = at + 2 * n, *way = at + 3 * n,
         *s = at + 4 * n, *y = at + 5 * n;
  struct memory m = {.count = 0};
  for (int k = 0; k < MEMORY; k++) {
    m.s[k] = at + (6 + 2 * k) * n;
    m.y[k] = at + (7 + 2 * k) * n;
  }
  double value = to->slope(to->ctx, x, grad);
  for (int step = 0; step < to->steps && isfinite(value); step++) {
    point_down(to, x, grad, &m, way);
    double found = search_line(to, x, value, grad, way, next, next_grad, m.count == 0);
    if (!isfinite(found))
      break;
    for (int i = 0; i < n; i++) {
      s[i] = next[i] - x[i];
      y[i] = next_grad[i] - grad[i];
    }
    remember(&m, s, y, n);
    memcpy(x, next, sizeof *x * (size_t)n);
    memcpy(grad, next_grad, sizeof *x * (size_t)n);
    bool over = value - found <= 1e-9 * (fabs(value) + fabs(found) + DBL_MIN);
    value = found;
    if (over)
      break;
  }
  return value;
}
