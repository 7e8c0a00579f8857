/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/convert.c - one column of a piece, from text to its type.
 */
#include <string.h>

#include "base/half.h"
#include "base/utf8.h"
#include "data/csv/csv.h"
#include "data/number/number.h"

/* What the hard fields of a column are read by; false: the field holds no such value. */
typedef bool parse_fn(const struct manta__csv_field *f, void *out);

static bool parse_f64(const struct manta__csv_field *f, void *out)
{
  return manta__number_f64(f->p, f->n, out);
}

static bool parse_i64(const struct manta__csv_field *f, void *out)
{
  return manta__number_i64(f->p, f->n, out);
}

static bool parse_u64(const struct manta__csv_field *f, void *out)
{
  return manta__number_u64(f->p, f->n, out);
}

// Missing values, quotes, exponents, long numbers, and what is no number at all.
static size_t read_hard(struct manta__csv_convert *c, size_t hard, void *values, parse_fn *parse)
{
  size_t nulls = 0;
  for (size_t i = 0; i < hard; i++) {
    size_t r = c->hard[i];
    struct manta__csv_field f = manta__csv_field_at(&c->fields, r, &c->marks);
    bool missing = manta__csv_missing(&f, c->config, false);
    if (!missing && parse(&f, (int64_t *)values + r))
      continue;
    if (!missing)
      c->bad[c->bad_count++] = (uint32_t)r;
    c->nulls[nulls++] = (uint32_t)r;
  }
  return nulls;
}

// --- floats -------------------------------------------------------------------------------------

static void narrow_floats(const double *from, void *to, size_t n, manta_dtype type)
{
  float *single = to;
  uint16_t *half = to;
  if (type == MANTA_F32)
    for (size_t i = 0; i < n; i++)
      single[i] = (float)from[i];
  else
    for (size_t i = 0; i < n; i++)
      half[i] = type == MANTA_F16 ? manta__f16_of_f32((float)from[i])
                                  : manta__bf16_of_f32((float)from[i]);
}

static manta_status convert_floats(struct manta__csv_convert *c, size_t n, struct manta__build *b,
                                   manta_error *err)
{
  bool wide = b->type.dtype == MANTA_F64;
  double *values = wide ? manta__build_data(b) : (double *)c->scratch;
  size_t hard = c->isa->f64(values, &c->fields, n, c->hard);
  size_t nulls = read_hard(c, hard, values, parse_f64);
  if (!wide)
    narrow_floats(values, manta__build_data(b), n, b->type.dtype);
  return manta__build_valid(b, (int64_t)n, c->nulls, (int64_t)nulls, err);
}

// --- integers -----------------------------------------------------------------------------------

static void limits_of(manta_dtype type, int64_t *low, int64_t *high)
{
  int bits = 8 * (int)manta_dtype_bytes(type);
  bool is_signed = type == MANTA_I8 || type == MANTA_I16 || type == MANTA_I32;
  *low = is_signed ? -(INT64_C(1) << (bits - 1)) : 0;
  *high = is_signed ? (INT64_C(1) << (bits - 1)) - 1 : (INT64_C(1) << bits) - 1;
}

static bool is_in_list(const uint32_t *list, size_t n, size_t r)
{
  for (size_t i = 0; i < n; i++)
    if (list[i] == r)
      return true;
  return false;
}

// Values that the narrow type cannot hold are as bad as text.
static void check_range(struct manta__csv_convert *c, const int64_t *v, size_t n, manta_dtype type,
                        size_t *nulls)
{
  int64_t low, high;
  size_t known = *nulls;
  limits_of(type, &low, &high);
  for (size_t r = 0; r < n; r++)
    if ((v[r] < low || v[r] > high) && !is_in_list(c->nulls, known, r)) {
      c->bad[c->bad_count++] = (uint32_t)r;
      c->nulls[(*nulls)++] = (uint32_t)r;
    }
}

static void narrow_ints(const int64_t *from, void *to, size_t n, size_t width)
{
  for (size_t i = 0; i < n; i++) // little endian: the lowest bytes come first
    memcpy((char *)to + i * width, &from[i], width);
}

static manta_status convert_ints(struct manta__csv_convert *c, size_t n, struct manta__build *b,
                                 manta_error *err)
{
  bool wide = b->width == 8, is_unsigned = b->type.dtype == MANTA_U64;
  int64_t *values = wide ? manta__build_data(b) : c->scratch;
  size_t hard = c->isa->i64(values, &c->fields, n, c->hard);
  size_t nulls = read_hard(c, hard, values, is_unsigned ? parse_u64 : parse_i64);
  if (is_unsigned) // what went the short way has 16 digits at most
    for (size_t i = 0, at = 0; i < n; i++) {
      while (at < hard && c->hard[at] < i)
        at++;
      if (values[i] < 0 && !(at < hard && c->hard[at] == i)) {
        c->bad[c->bad_count++] = (uint32_t)i;
        c->nulls[nulls++] = (uint32_t)i;
      }
    }
  if (!wide) {
    check_range(c, values, n, b->type.dtype, &nulls);
    narrow_ints(values, manta__build_data(b), n, b->width);
  }
  return manta__build_valid(b, (int64_t)n, c->nulls, (int64_t)nulls, err);
}

// --- bools and text -----------------------------------------------------------------------------

static manta_status convert_bools(struct manta__csv_convert *c, size_t n, struct manta__build *b,
                                  manta_error *err)
{
  for (size_t r = 0; r < n; r++) {
    struct manta__csv_field f = manta__csv_field_at(&c->fields, r, &c->marks);
    bool missing = manta__csv_missing(&f, c->config, false), on;
    if (!missing && manta__csv_bool(&f, &on)) {
      manta__build_bool(b, on);
      continue;
    }
    if (!missing)
      c->bad[c->bad_count++] = (uint32_t)r;
    MANTA_TRY(manta__build_null(b, err));
  }
  return MANTA_OK;
}

static manta_status convert_text(struct manta__csv_convert *c, size_t n, struct manta__build *b,
                                 manta_error *err)
{
  for (size_t r = 0; r < n; r++) {
    struct manta__csv_field f = manta__csv_field_at(&c->fields, r, &c->marks);
    char *to;
    if (manta__csv_missing(&f, c->config, true)) {
      MANTA_TRY(manta__build_null(b, err));
      continue;
    }
    MANTA_TRY(manta__build_text_room(b, f.n, &to, err));
    size_t len = manta__csv_unquote(&f, c->marks.quote, to);
    if (b->type.kind == MANTA_KIND_STRING && manta__utf8_valid(to, len) < len) {
      c->bad[c->bad_count++] = (uint32_t)r;
      MANTA_TRY(manta__build_null(b, err));
    } else
      manta__build_text_done(b, len);
  }
  return MANTA_OK;
}

manta_status manta__csv_convert(struct manta__csv_convert *c, size_t n, struct manta__build *b,
                                manta_error *err)
{
  c->bad_count = 0;
  if (b->type.kind == MANTA_KIND_BOOL)
    return convert_bools(c, n, b, err);
  if (manta__type_varies(&b->type))
    return convert_text(c, n, b, err);
  return manta__type_is_float(&b->type) ? convert_floats(c, n, b, err) : convert_ints(c, n, b, err);
}
