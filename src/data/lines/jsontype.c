/* SPDX-License-Identifier: Apache-2.0 */
#include "data/lines/jsontype.h"

#include <math.h>

#include "base/half.h"
#include "base/utf8.h"
#include "data/number/number.h"

// --- shapes -------------------------------------------------------------------------------------

static void number_kind(const struct manta__json_value *v, struct manta__json_guess *out)
{
  int64_t i;
  out->is_i64 &= manta__number_i64(v->p, v->n, &i);
}

// The shape of nested arrays of numbers; false: they are not rectangular, or hold something else.
static bool shape_of(const struct manta__json_value *v, int depth, struct manta__json_guess *out)
{
  struct manta__json j = {v->p, v->p + v->n, NULL};
  struct manta__json_value item;
  int64_t count = 0;
  if (depth == MANTA_MAX_DIMS || !manta__json_open(&j, '['))
    return false;
  while (manta__json_item(&j, count == 0, &item) == 1) {
    bool nested = item.kind == MANTA__JSON_ARRAY;
    if (!nested && item.kind != MANTA__JSON_NUMBER)
      return false;
    int ndim = nested ? 0 : depth + 1; // of what holds the numbers
    if (!nested && out->ndim && out->ndim != ndim)
      return false;
    if (!nested)
      out->ndim = ndim;
    if (nested ? !shape_of(&item, depth + 1, out) : false)
      return false;
    if (!nested)
      number_kind(&item, out);
    count++;
  }
  if (count == 0 || (out->shape[depth] && out->shape[depth] != count))
    return false;
  out->shape[depth] = count;
  return true;
}

// --- guessing -----------------------------------------------------------------------------------

static struct manta__json_guess guess_one(const struct manta__json_value *v)
{
  struct manta__json_guess one = {.seen = true};
  struct manta__json_guess array = {.seen = true, .is_i64 = true, .is_f64 = true};
  if (v->kind == MANTA__JSON_BOOL)
    one.is_bool = true;
  if (v->kind == MANTA__JSON_NUMBER) {
    one.is_i64 = one.is_f64 = true;
    number_kind(v, &one);
  }
  if (v->kind == MANTA__JSON_ARRAY && shape_of(v, 0, &array))
    return array;
  return one;
}

void manta__json_guess(struct manta__json_guess *g, const struct manta__json_value *v)
{
  if (v->kind == MANTA__JSON_NULL || v->kind == MANTA__JSON_NONE)
    return;
  struct manta__json_guess one = guess_one(v);
  if (!g->seen) {
    *g = one;
    return;
  }
  bool same = g->ndim == one.ndim && !memcmp(g->shape, one.shape, sizeof g->shape);
  g->is_bool = g->is_bool && one.is_bool;
  g->is_i64 = g->is_i64 && one.is_i64 && same;
  g->is_f64 = g->is_f64 && one.is_f64 && same;
}

struct manta__type manta__json_type(const struct manta__json_guess *g)
{
  if (g->seen && g->is_bool)
    return manta__type_kind(MANTA_KIND_BOOL);
  if (g->seen && !g->is_f64)
    return manta__type_kind(MANTA_KIND_STRING);
  struct manta__type t = manta__type_of(g->seen && g->is_i64 ? MANTA_I64 : MANTA_F64);
  t.ndim = g->ndim;
  memcpy(t.shape, g->shape, sizeof t.shape);
  return t;
}

// --- numbers ------------------------------------------------------------------------------------

static bool fits(int64_t v, manta_dtype type)
{
  int bits = 8 * (int)manta_dtype_bytes(type);
  bool is_signed = type == MANTA_I8 || type == MANTA_I16 || type == MANTA_I32 || type == MANTA_I64;
  if (bits == 64)
    return is_signed || v >= 0;
  int64_t high = is_signed ? INT64_C(1) << (bits - 1) : INT64_C(1) << bits;
  return v < high && v >= (is_signed ? -high : 0);
}

// 3, and also 3.0 and 3e0.
static bool read_integer(const struct manta__json_value *v, manta_dtype type, void *out)
{
  int64_t i;
  double d;
  if (type == MANTA_U64 && manta__number_u64(v->p, v->n, out))
    return true;
  if (!manta__number_i64(v->p, v->n, &i)) {
    if (!manta__number_f64(v->p, v->n, &d) || d != trunc(d) || fabs(d) >= 0x1p53)
      return false;
    i = (int64_t)d;
  }
  if (!fits(i, type))
    return false;
  memcpy(out, &i, manta_dtype_bytes(type)); // little endian
  return true;
}

static bool read_number(const struct manta__json_value *v, const struct manta__type *t, void *out)
{
  double d;
  if (v->kind != MANTA__JSON_NUMBER)
    return false;
  if (!manta__type_is_float(t))
    return read_integer(v, t->dtype, out);
  if (!manta__number_f64(v->p, v->n, &d))
    return false;
  float single = (float)d;
  uint16_t half = t->dtype == MANTA_F16 ? manta__f16_of_f32(single) : manta__bf16_of_f32(single);
  memcpy(out,
         t->dtype == MANTA_F64   ? (void *)&d
         : t->dtype == MANTA_F32 ? (void *)&single
                                 : &half,
         manta_dtype_bytes(t->dtype));
  return true;
}

// Fills *to on; the arrays have exactly the shape of the type.
static bool read_array(const struct manta__json_value *v, const struct manta__type *t, int depth,
                       char **to)
{
  struct manta__json j = {v->p, v->p + v->n, NULL};
  struct manta__json_value item;
  int64_t count = 0;
  if (v->kind != MANTA__JSON_ARRAY || !manta__json_open(&j, '['))
    return false;
  while (manta__json_item(&j, count == 0, &item) == 1) {
    if (count++ == t->shape[depth])
      return false;
    if (depth + 1 < t->ndim) {
      if (!read_array(&item, t, depth + 1, to))
        return false;
      continue;
    }
    if (!read_number(&item, t, *to))
      return false;
    *to += manta_dtype_bytes(t->dtype);
  }
  return count == t->shape[depth];
}

static bool put_number(struct manta__build *b, const struct manta__json_value *v)
{
  char *to = manta__build_data(b);
  if (b->type.ndim ? !read_array(v, &b->type, 0, &to) : !read_number(v, &b->type, to))
    return false;
  manta__build_done(b);
  return true;
}

// --- the others ---------------------------------------------------------------------------------

static manta_status put_text(struct manta__build *b, const struct manta__json_value *v,
                             manta_error *err)
{
  char *to;
  MANTA_TRY(manta__build_text_room(b, v->n, &to, err));
  int64_t n = (int64_t)v->n;
  if (v->kind == MANTA__JSON_STRING && v->escaped)
    n = manta__json_unescape(v, to);
  else if (n)
    memcpy(to, v->p, v->n);
  if (n < 0 || (b->type.kind == MANTA_KIND_STRING && manta__utf8_valid(to, (size_t)n) < (size_t)n))
    return 0;
  manta__build_text_done(b, (size_t)n);
  return (manta_status)1;
}

manta_status manta__json_put(struct manta__build *b, const struct manta__json_value *v,
                             manta_error *err)
{
  if (v->kind == MANTA__JSON_NULL || v->kind == MANTA__JSON_NONE) {
    MANTA_TRY(manta__build_null(b, err));
    return (manta_status)1;
  }
  if (manta__type_varies(&b->type))
    return put_text(b, v, err);
  if (b->type.kind == MANTA_KIND_NUMBER)
    return put_number(b, v) ? (manta_status)1 : 0;
  if (v->kind != MANTA__JSON_BOOL)
    return 0;
  manta__build_bool(b, v->p[0] == 't');
  return (manta_status)1;
}
