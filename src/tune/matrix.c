/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/matrix.h"

#include <math.h>
#include <stddef.h>

#define SWEEPS 60

static double dot(const double *a, const double *b, int n)
{
  double s[4] = {0}; // four sums: one would wait for every addition before
  int i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; k++)
      s[k] += a[i + k] * b[i + k];
  for (; i < n; i++)
    s[0] += a[i] * b[i];
  return (s[0] + s[1]) + (s[2] + s[3]);
}

static double *row(double *a, int n, int i)
{
  return a + (size_t)i * (size_t)n;
}

static const double *row_of(const double *a, int n, int i)
{
  return a + (size_t)i * (size_t)n;
}

bool manta__matrix_factor(double *a, int n)
{
  for (int i = 0; i < n; i++) {
    double *ri = row(a, n, i);
    for (int j = 0; j < i; j++) {
      const double *rj = row_of(a, n, j);
      ri[j] = (ri[j] - dot(ri, rj, j)) / rj[j];
    }
    double left = ri[i] - dot(ri, ri, i);
    if (!(left > 0))
      return false;
    ri[i] = sqrt(left);
  }
  return true;
}

void manta__matrix_forward(const double *l, int n, double *b)
{
  for (int i = 0; i < n; i++)
    b[i] = (b[i] - dot(row_of(l, n, i), b, i)) / row_of(l, n, i)[i];
}

void manta__matrix_backward(const double *l, int n, double *b)
{
  for (int i = n - 1; i >= 0; i--) { // by columns of lᵀ, which are rows of l
    const double *ri = row_of(l, n, i);
    b[i] /= ri[i];
    for (int j = 0; j < i; j++)
      b[j] -= ri[j] * b[i];
  }
}

void manta__matrix_invert(const double *l, int n, double *out)
{
  for (int i = 0; i < n; i++) {
    double *column = row(out, n, i); // of a symmetric matrix
    for (int j = 0; j < n; j++)
      column[j] = i == j;
    for (int j = i; j < n; j++)
      column[j] = (column[j] - dot(row_of(l, n, j) + i, column + i, j - i)) / row_of(l, n, j)[j];
    manta__matrix_backward(l, n, column);
  }
}

/* --- eigenvectors, by Jacobi's rotations ------------------------------------------------------ */

static double off_diagonal(const double *a, int n)
{
  double sum = 0;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++)
      sum += row_of(a, n, i)[j] * row_of(a, n, i)[j];
  return sum;
}

static void rotate_rows(double *x, double *y, int n, double c, double s)
{
  for (int k = 0; k < n; k++) {
    double old = x[k];
    x[k] = c * old - s * y[k];
    y[k] = s * old + c * y[k];
  }
}

/* Turns rows and columns p and q until a[p][q] is 0; v's rows gather the turns. */
static void rotate(double *a, double *v, int n, int p, int q)
{
  double apq = row(a, n, p)[q];
  if (apq == 0)
    return;
  double theta = (row(a, n, q)[q] - row(a, n, p)[p]) / (2 * apq);
  double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
  double c = 1 / sqrt(t * t + 1), s = t * c;
  rotate_rows(row(a, n, p), row(a, n, q), n, c, s);
  for (int k = 0; k < n; k++)
    rotate_rows(&row(a, n, k)[p], &row(a, n, k)[q], 1, c, s);
  rotate_rows(row(v, n, p), row(v, n, q), n, c, s);
}

static void transpose(double *a, int n)
{
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++) {
      double old = row(a, n, i)[j];
      row(a, n, i)[j] = row(a, n, j)[i];
      row(a, n, j)[i] = old;
    }
}

void manta__matrix_eigen(double *a, int n, double *values, double *v)
{
  double trace = 0;
  for (int i = 0; i < n; i++) {
    trace += fabs(row(a, n, i)[i]);
    for (int j = 0; j < n; j++)
      row(v, n, i)[j] = i == j;
  }
  for (int sweep = 0; sweep < SWEEPS && off_diagonal(a, n) > 1e-30 * trace * trace; sweep++)
    for (int p = 0; p < n; p++)
      for (int q = p + 1; q < n; q++)
        rotate(a, v, n, p, q);
  for (int i = 0; i < n; i++)
    values[i] = row(a, n, i)[i];
  transpose(v, n);
}
