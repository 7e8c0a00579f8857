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

#define MOVE(OUT, IN)                                                                              \
  static void move_##OUT##_##IN(OUT *restrict to, int64_t stride, const IN *restrict from,         \
                                int64_t rows, int64_t width)                                       \
  {                                                                                                \
    if (width == 1)                                                                                \
      for (int64_t i = 0; i < rows; i++)                                                           \
        to[i * stride] = (OUT)from[i];                                                             \
    else                                                                                           \
      for (int64_t i = 0; i < rows; i++)                                                           \
        for (int64_t k = 0; k < width; k++)                                                        \
          to[i * stride + k] = (OUT)from[i * width + k];                                           \
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

// --- one column ---------------------------------------------------------------------------------

static void put(void *to, manta_dtype dtype, double value)
{
  if (dtype == MANTA_F32)
    *(float *)to = (float)value;
  else if (dtype == MANTA_F64)
    *(double *)to = value;
  else
    *(int64_t *)to = (int64_t)value;
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
    for (int i = 0; i < count; i++) {
      const struct manta__column *c = &b->column[columns[i]];
      put_column(to, width, dtype, c, from, rows);
      to += (size_t)manta__type_count(&c->type) * size;
    }
  }
  return MANTA_OK;
}
