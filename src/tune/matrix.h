/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/matrix.h - the little linear algebra that searchers need: dense, symmetric, up to some
 * hundred rows. Matrices are row-major, a (n, n).
 */
#ifndef MANTA_TUNE_MATRIX_H
#define MANTA_TUNE_MATRIX_H

#include <stdbool.h>

/* a = l lᵀ; l, lower triangular, takes the place of a. false: a is not positive definite. */
bool manta__matrix_factor(double *a, int n);
/* b becomes l⁻¹ b, and l⁻ᵀ b. */
void manta__matrix_forward(const double *l, int n, double *b);
void manta__matrix_backward(const double *l, int n, double *b);
/* out = (l lᵀ)⁻¹, all of it; `out` may not be `l`. */
void manta__matrix_invert(const double *l, int n, double *out);

/* a = v diag(values) vᵀ, the columns of v (n, n) being the eigenvectors; a is used up. */
void manta__matrix_eigen(double *a, int n, double *values, double *v);

#endif
