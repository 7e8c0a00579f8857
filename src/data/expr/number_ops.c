/* SPDX-License-Identifier: Apache-2.0
 *
 * data/expr/number_ops.c - arithmetic.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/expr/node.h"

// --- two numbers --------------------------------------------------------------------------------

#define BINARY(name, type, expression)                                                             \
  static void name(type *to, const type *a, const type *b, int n)                                  \
  {                                                                                                \
    for (int i = 0; i < n; i++)                                                                    \
      to[i] = (type)(expression);                                                                  \
  }
BINARY(add_u64, uint64_t, a[i] + b[i]) // integers wrap around, signed or not
BINARY(sub_u64, uint64_t, a[i] - b[i])
BINARY(mul_u64, uint64_t, a[i] * b[i])
BINARY(add_f64, double, a[i] + b[i])
BINARY(sub_f64, double, a[i] - b[i])
BINARY(mul_f64, double, a[i] * b[i])
BINARY(div_f64, double, a[i] / b[i])
BINARY(pow_f64, double, pow(a[i], b[i]))
BINARY(floordiv_f64, double, floor(a[i] / b[i]))
#undef BINARY

// The sign of the divisor, as in Python.
static double mod_f64(double a, double b)
{
  double m = fmod(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

static void mods_f64(double *to, const double *a, const double *b, int n)
{
  for (int i = 0; i < n; i++)
    to[i] = mod_f64(a[i], b[i]);
}

static int64_t floordiv_i64(int64_t a, int64_t b)
{
  if (b == -1)
    return (int64_t)(0 - (uint64_t)a); // of the least integer it wraps
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t mod_i64(int64_t a, int64_t b)
{
  int64_t m = b == -1 ? 0 : a % b;
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

typedef void loop_u64(uint64_t *to, const uint64_t *a, const uint64_t *b, int n);
typedef void loop_f64(double *to, const double *a, const double *b, int n);

static void run_loops(struct manta__expr_node *node, int n, loop_u64 *ints, loop_f64 *reals)
{
  manta__node_join(node, n);
  if (node->form == MANTA__FORM_REAL) {
    reals(node->own, node->arg[0]->values, node->arg[1]->values, n);
    manta__node_round(node, n);
  } else
    ints(node->own, node->arg[0]->values, node->arg[1]->values, n);
}

#define RUN(name, ints, reals)                                                                     \
  static manta_status name(struct manta__expr_node *node, int n, manta_error *err)                 \
  {                                                                                                \
    run_loops(node, n, ints, reals);                                                               \
    return MANTA_OK;                                                                               \
  }
RUN(run_add, add_u64, add_f64)
RUN(run_sub, sub_u64, sub_f64)
RUN(run_mul, mul_u64, mul_f64)
RUN(run_div, NULL, div_f64)
RUN(run_pow, NULL, pow_f64)
#undef RUN

// // and %: of integers they make nulls.
static manta_status run_whole(struct manta__expr_node *node, int n, bool mod)
{
  const int64_t *a = node->arg[0]->values, *b = node->arg[1]->values;
  int64_t *to = node->own;
  if (node->form == MANTA__FORM_REAL) {
    run_loops(node, n, NULL, mod ? mods_f64 : floordiv_f64);
    return MANTA_OK;
  }
  manta__node_join(node, n);
  for (int i = 0; i < n; i++) {
    if (b[i] == 0) {
      manta__node_own_valid(node, n)[i] = 0;
      to[i] = 0;
    } else if (node->form == MANTA__FORM_UINT)
      to[i] = (int64_t)(mod ? (uint64_t)a[i] % (uint64_t)b[i] : (uint64_t)a[i] / (uint64_t)b[i]);
    else
      to[i] = mod ? mod_i64(a[i], b[i]) : floordiv_i64(a[i], b[i]);
  }
  return MANTA_OK;
}

static manta_status run_floordiv(struct manta__expr_node *node, int n, manta_error *err)
{
  return run_whole(node, n, false);
}

static manta_status run_mod(struct manta__expr_node *node, int n, manta_error *err)
{
  return run_whole(node, n, true);
}

// --- one number ---------------------------------------------------------------------------------

#define UNARY(name, expression)                                                                    \
  static manta_status name(struct manta__expr_node *node, int n, manta_error *err)                 \
  {                                                                                                \
    const double *a = node->arg[0]->values;                                                        \
    double *to = node->own;                                                                        \
    manta__node_join(node, n);                                                                     \
    for (int i = 0; i < n; i++)                                                                    \
      to[i] = expression;                                                                          \
    manta__node_round(node, n);                                                                    \
    return MANTA_OK;                                                                               \
  }
UNARY(run_sqrt, sqrt(a[i]))
UNARY(run_exp, exp(a[i]))
UNARY(run_log, log(a[i]))
UNARY(run_floor, floor(a[i]))
UNARY(run_ceil, ceil(a[i]))
UNARY(run_round, rint(a[i]))
UNARY(run_neg_f64, -a[i])
UNARY(run_abs_f64, fabs(a[i]))
#undef UNARY

static manta_status run_neg_int(struct manta__expr_node *node, int n, manta_error *err)
{
  const uint64_t *a = node->arg[0]->values;
  uint64_t *to = node->own;
  manta__node_join(node, n);
  for (int i = 0; i < n; i++)
    to[i] = 0 - a[i];
  return MANTA_OK;
}

static manta_status run_abs_int(struct manta__expr_node *node, int n, manta_error *err)
{
  const int64_t *a = node->arg[0]->values;
  uint64_t *to = node->own;
  manta__node_join(node, n);
  for (int i = 0; i < n; i++)
    to[i] = node->form == MANTA__FORM_INT && a[i] < 0 ? 0 - (uint64_t)a[i] : (uint64_t)a[i];
  return MANTA_OK;
}

// --- types --------------------------------------------------------------------------------------

static manta_status bind_two(struct manta__expr_node *node, manta__expr_fn *run, manta_error *err)
{
  struct manta__type type;
  MANTA_TRY(manta__node_promote(node, 0, 1, &type, err));
  manta__node_is(node, type, run);
  return MANTA_OK;
}

// Always a float.
static manta_status bind_real(struct manta__expr_node *node, manta__expr_fn *run, manta_error *err)
{
  bool narrow = true, columns = false;
  for (int i = 0; i < node->argc; i++) {
    const struct manta__expr_node *a = node->arg[i];
    if (a->form == MANTA__FORM_TEXT)
      return manta__node_mismatch(node, "numbers", err);
    columns |= !a->literal;
    narrow &= a->literal || (manta__type_is_float(&a->type) && a->type.dtype != MANTA_F64);
  }
  for (int i = 0; i < node->argc; i++)
    MANTA_TRY(manta__node_convert(node, i, MANTA__FORM_REAL, err));
  for (int i = 0; i < node->argc && narrow && columns; i++)
    manta__node_narrow(node, i);
  manta__node_is(node, manta__type_of(narrow && columns ? MANTA_F32 : MANTA_F64), run);
  return MANTA_OK;
}

// An integer stays one, a float stays what it is.
static manta_status bind_one(struct manta__expr_node *node, manta__expr_fn *ints,
                             manta__expr_fn *reals, manta_error *err)
{
  struct manta__expr_node *a = node->arg[0];
  if (a->form == MANTA__FORM_TEXT)
    return manta__node_mismatch(node, "numbers", err);
  if (a->form == MANTA__FORM_BOOL)
    MANTA_TRY(manta__node_convert(node, 0, MANTA__FORM_INT, err));
  a = node->arg[0];
  if (a->form == MANTA__FORM_REAL)
    manta__node_is(node, a->type, reals);
  else
    manta__node_is(node, manta__type_of(a->form == MANTA__FORM_UINT ? MANTA_U64 : MANTA_I64), ints);
  return MANTA_OK;
}

#define BIND(name, call)                                                                           \
  static manta_status name(struct manta__expr_node *node, manta_error *err)                        \
  {                                                                                                \
    return call;                                                                                   \
  }
BIND(bind_sub, bind_two(node, run_sub, err))
BIND(bind_mul, bind_two(node, run_mul, err))
BIND(bind_floordiv, bind_two(node, run_floordiv, err))
BIND(bind_mod, bind_two(node, run_mod, err))
BIND(bind_div, bind_real(node, run_div, err))
BIND(bind_pow, bind_real(node, run_pow, err))
BIND(bind_sqrt, bind_real(node, run_sqrt, err))
BIND(bind_exp, bind_real(node, run_exp, err))
BIND(bind_log, bind_real(node, run_log, err))
BIND(bind_floor, bind_real(node, run_floor, err))
BIND(bind_ceil, bind_real(node, run_ceil, err))
BIND(bind_round, bind_real(node, run_round, err))
BIND(bind_neg, bind_one(node, run_neg_int, run_neg_f64, err))
BIND(bind_abs, bind_one(node, run_abs_int, run_abs_f64, err))
#undef BIND

// Of strings, + is concat.
static manta_status bind_add(struct manta__expr_node *node, manta_error *err)
{
  if (node->arg[0]->form == MANTA__FORM_TEXT && node->arg[1]->form == MANTA__FORM_TEXT)
    return manta__expr_bind_concat(node, err);
  return bind_two(node, run_add, err);
}

const struct manta__expr_op manta__expr_number_ops[] = {
    {"+", 2, 2, bind_add},       {"-", 2, 2, bind_sub},
    {"*", 2, 2, bind_mul},       {"/", 2, 2, bind_div},
    {"//", 2, 2, bind_floordiv}, {"%", 2, 2, bind_mod},
    {"**", 2, 2, bind_pow},      {"neg", 1, 1, bind_neg},
    {"abs", 1, 1, bind_abs},     {"sqrt", 1, 1, bind_sqrt},
    {"exp", 1, 1, bind_exp},     {"log", 1, 1, bind_log},
    {"floor", 1, 1, bind_floor}, {"ceil", 1, 1, bind_ceil},
    {"round", 1, 1, bind_round}, {0}};
