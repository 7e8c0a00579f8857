/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/matrix.c - columns of numbers side by side, as a matrix of one type.
 *
 * Rows are done in tiles, so that the lines of the matrix that all columns write to stay in the
 * cache. One column of the matrix's own type is a copy.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "data/column/batch.h"

#define TILE 128

// Bytes of a column that are fetched ahead: the next tile's, while others' are written. Wider
// vectors than 16 bytes gain nothing: memory is the limit.
#define AHEAD 768

// What no integer is becomes 0.
static inline int64_t whole(double x)
{
  return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : 0;
}

#define CAST_float(x)  (float)(x)
#define CAST_double(x) (double)(x)
#define CAST_int64_t(x)                                                                            \
  _Generic((x), float : whole((double)(x)), double : whole((double)(x)), default : (int64_t)(x))

#define MOVE(OUT, IN)                                                                              \
  static void move_##OUT##_##IN(OUT *restrict to, int64_t stride, const IN *restrict from,         \
                                int64_t rows, int64_t width)                                       \
  {                                                                                                \
    if (width == 1)                                                                                \
      for (int64_t i = 0; i < rows; i++)                                                           \
        to[i * stride] = CAST_##OUT(from[i]);                                                      \
    else                                                                                           \
      for (int64_t i = 0; i < rows; i++)                                                           \
        for (int64_t k = 0; k < width; k++)                                                        \
          to[i * stride + k] = CAST_##OUT(from[i * width + k]);                                    \
  }

#define MOVE_ALL(OUT)                                                                              \
  MOVE(OUT, uint8_t)                                                                               \
  MOVE(OUT, int8_t)                                                                                \
  MOVE(OUT, uint16_t)                                                                              \
  MOVE(OUT, int16_t)                                                                               \
  MOVE(OUT, uint32_t)                                                                              \
  MOVE(OUT, int32_t)                                                                               \
  MOVE(OUT, float)                                                                                 \
  MOVE(OUT, uint64_t)                                                                              \
  MOVE(OUT, int64_t)                                                                               \
  MOVE(OUT, double)
MOVE_ALL(float)
MOVE_ALL(double)
MOVE_ALL(int64_t)

#define MOVE_CASES(OUT)                                                                            \
  case MANTA_BOOL8:                                                                                \
  case MANTA_U8:                                                                                   \
    move_##OUT##_uint8_t(to, stride, from, rows, width);                                           \
    break;                                                                                         \
  case MANTA_I8:                                                                                   \
    move_##OUT##_int8_t(to, stride, from, rows, width);                                            \
    break;                                                                                         \
  case MANTA_U16:                                                                                  \
    move_##OUT##_uint16_t(to, stride, from, rows, width);                                          \
    break;                                                                                         \
  case MANTA_I16:                                                                                  \
    move_##OUT##_int16_t(to, stride, from, rows, width);                                           \
    break;                                                                                         \
  case MANTA_U32:                                                                                  \
    move_##OUT##_uint32_t(to, stride, from, rows, width);                                          \
    break;                                                                                         \
  case MANTA_I32:                                                                                  \
    move_##OUT##_int32_t(to, stride, from, rows, width);                                           \
    break;                                                                                         \
  case MANTA_F32:                                                                                  \
    move_##OUT##_float(to, stride, from, rows, width);                                             \
    break;                                                                                         \
  case MANTA_U64:                                                                                  \
    move_##OUT##_uint64_t(to, stride, from, rows, width);                                          \
    break;                                                                                         \
  case MANTA_I64:                                                                                  \
    move_##OUT##_int64_t(to, stride, from, rows, width);                                           \
    break;                                                                                         \
  case MANTA_F64:                                                                                  \
    move_##OUT##_double(to, stride, from, rows, width);                                            \
    break;                                                                                         \
  default:                                                                                         \
    break

static void move_to_float(float *to, int64_t stride, manta_dtype dtype, const void *from,
                          int64_t rows, int64_t width)
{
  switch (dtype) {
    MOVE_CASES(float);
  }
}

static void move_to_double(double *to, int64_t stride, manta_dtype dtype, const void *from,
                           int64_t rows, int64_t width)
{
  switch (dtype) {
    MOVE_CASES(double);
  }
}

static void move_to_int(int64_t *to, int64_t stride, manta_dtype dtype, const void *from,
                        int64_t rows, int64_t width)
{
  switch (dtype) {
    MOVE_CASES(int64_t);
  }
}

// --- four columns at once -----------------------------------------------------------------------

typedef float four __attribute__((vector_size(16)));
typedef double four_doubles __attribute__((vector_size(32)));

// Four values of each of four columns become four rows.
static inline void transpose(float *to, int64_t stride, four a, four b, four c, four d)
{
  four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
       cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  four rows[4] = {__builtin_shufflevector(ab, cd, 0, 1, 4, 5),
                  __builtin_shufflevector(ab, cd, 2, 3, 6, 7)};
  ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  rows[2] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
  rows[3] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  for (int i = 0; i < 4; i++)
    memcpy(to + i * stride, &rows[i], sizeof rows[i]);
}

static inline four load_float(const float *p)
{
  four v;
  memcpy(&v, p, sizeof v);
  return v;
}

static inline four load_double(const double *p)
{
  four_doubles v;
  memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, four);
}

#define MOVE_FOUR(type)                                                                            \
  static void move_four_##type(float *to, int64_t stride, const void *const *from, int64_t rows)   \
  {                                                                                                \
    const type *a = from[0], *b = from[1], *c = from[2], *d = from[3];                             \
    int64_t i = 0;                                                                                 \
    for (; i + 4 <= rows; i += 4) {                                                                \
      for (int k = 0; k < 4; k++)                                                                  \
        __builtin_prefetch((const char *)((const type *)from[k] + i) + AHEAD);                     \
      transpose(to + i * stride, stride, load_##type(a + i), load_##type(b + i),                   \
                load_##type(c + i), load_##type(d + i));                                           \
    }                                                                                              \
    for (; i < rows; i++) {                                                                        \
      float *row = to + i * stride;                                                                \
      row[0] = (float)a[i];                                                                        \
      row[1] = (float)b[i];                                                                        \
      row[2] = (float)c[i];                                                                        \
      row[3] = (float)d[i];                                                                        \
    }                                                                                              \
  }
MOVE_FOUR(float)
MOVE_FOUR(double)

// Whether the next four columns are plain floats of one type without nulls.
static bool are_four(const manta_batch *b, const int *columns, int left, manta_dtype dtype)
{
  if (left < 4 || dtype != MANTA_F32)
    return false;
  for (int i = 0; i < 4; i++) {
    const struct manta__column *c = &b->column[columns[i]], *first = &b->column[columns[0]];
    if (c->type.kind != MANTA_KIND_NUMBER || c->type.ndim || c->valid ||
        c->type.dtype != first->type.dtype ||
        (c->type.dtype != MANTA_F32 && c->type.dtype != MANTA_F64))
      return false;
  }
  return true;
}

static void put_four(float *to, int64_t stride, const manta_batch *b, const int *columns,
                     int64_t from, int64_t rows)
{
  const void *data[4];
  for (int i = 0; i < 4; i++)
    data[i] = manta__column_at(&b->column[columns[i]], from);
  if (b->column[columns[0]].type.dtype == MANTA_F64)
    move_four_double(to, stride, data, rows);
  else
    move_four_float(to, stride, data, rows);
}

// --- one column ---------------------------------------------------------------------------------

static void put(void *to, manta_dtype dtype, double value)
{
  if (dtype == MANTA_F32)
    *(float *)to = (float)value;
  else if (dtype == MANTA_F64)
    *(double *)to = value;
  else
    *(int64_t *)to = whole(value);
}

// What has no C type: bits and halves, one at a time.
static void put_rest(char *to, int64_t stride, manta_dtype dtype, const struct manta__column *c,
                     int64_t from, int64_t rows)
{
  int64_t width = manta__type_count(&c->type);
  size_t size = manta_dtype_bytes(dtype);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < width; k++) {
      double value;
      if (c->type.kind == MANTA_KIND_BOOL)
        value = manta__column_bit(c, from + i);
      else {
        uint16_t half = ((const uint16_t *)c->data)[(c->offset + from + i) * width + k];
        value = c->type.dtype == MANTA_F16 ? manta__f32_of_f16(half) : manta__f32_of_bf16(half);
      }
      put(to + (size_t)(i * stride + k) * size, dtype, value);
    }
}

static void put_nulls(char *to, int64_t stride, manta_dtype dtype, const struct manta__column *c,
                      int64_t from, int64_t rows)
{
  int64_t width = manta__type_count(&c->type);
  size_t size = manta_dtype_bytes(dtype);
  for (int64_t i = 0; i < rows; i++)
    if (manta__column_is_null(c, from + i))
      for (int64_t k = 0; k < width; k++)
        put(to + (size_t)(i * stride + k) * size, dtype, dtype == MANTA_I64 ? 0 : (double)NAN);
}

static void put_column(char *to, int64_t stride, manta_dtype dtype, const struct manta__column *c,
                       int64_t from, int64_t rows)
{
  int64_t width = manta__type_count(&c->type);
  const void *data = c->type.kind == MANTA_KIND_NUMBER ? manta__column_at(c, from) : NULL;
  if (!data || c->type.dtype == MANTA_F16 || c->type.dtype == MANTA_BF16)
    put_rest(to, stride, dtype, c, from, rows);
  else if (c->type.dtype == dtype && width == stride)
    memcpy(to, data, (size_t)(rows * width) * manta_dtype_bytes(dtype));
  else if (dtype == MANTA_F32)
    move_to_float((float *)(void *)to, stride, c->type.dtype, data, rows, width);
  else if (dtype == MANTA_F64)
    move_to_double((double *)(void *)to, stride, c->type.dtype, data, rows, width);
  else
    move_to_int((int64_t *)(void *)to, stride, c->type.dtype, data, rows, width);
  if (c->valid)
    put_nulls(to, stride, dtype, c, from, rows);
}

// --- all ----------------------------------------------------------------------------------------

static manta_status check(const manta_batch *b, const int *columns, int count, manta_dtype dtype,
                          int64_t *width, manta_error *err)
{
  if (dtype != MANTA_F32 && dtype != MANTA_F64 && dtype != MANTA_I64)
    return manta_error_set(err, MANTA_EINVAL, "a matrix of %s: it is F32, F64 or I64",
                           manta_dtype_name(dtype));
  for (int i = 0; i < count; i++) {
    if (columns[i] < 0 || columns[i] >= b->schema->count)
      return manta_error_set(err, MANTA_ENOENT, "there is no column %d", columns[i]);
    const struct manta__schema_field *f = &b->schema->field[columns[i]];
    if (manta__type_varies(&f->type))
      return manta_error_set(err, MANTA_ETYPE,
                             "column \"%.128s\" has text, and a matrix has numbers\nhint: leave it "
                             "out, or make a number of it",
                             f->name);
    *width += manta__type_count(&f->type);
  }
  return MANTA_OK;
}

manta_status manta_batch_matrix(const manta_batch *b, const int *columns, int count,
                                manta_dtype dtype, void *out, manta_error *err)
{
  int64_t width = 0;
  MANTA_TRY(check(b, columns, count, dtype, &width, err));
  size_t size = manta_dtype_bytes(dtype);
  for (int64_t from = 0; from < b->rows; from += TILE) {
    int64_t rows = b->rows - from < TILE ? b->rows - from : TILE;
    char *to = (char *)out + (size_t)(from * width) * size;
    for (int i = 0; i < count;) {
      const struct manta__column *c = &b->column[columns[i]];
      bool group = are_four(b, columns + i, count - i, dtype);
      if (group)
        put_four((float *)(void *)to, width, b, columns + i, from, rows);
      else
        put_column(to, width, dtype, c, from, rows);
      to += (group ? 4 : (size_t)manta__type_count(&c->type)) * size;
      i += group ? 4 : 1;
    }
  }
  return MANTA_OK;
}
