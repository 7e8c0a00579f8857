/* SPDX-License-Identifier: Apache-2.0 */
#include "data/column/build.h"

#include <inttypes.h>

#define TEXT_MAX   ((size_t)INT32_MAX)
#define TEXT_FIRST 4096

static manta_status no_memory(const struct manta__build *b, manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory for a column of %" PRId64 " rows", b->cap);
}

manta_status manta__build_begin(struct manta__build *b, const struct manta__type *type, int64_t cap,
                                size_t text_max, struct manta__pool *pool, manta_error *err)
{
  *b = (struct manta__build){.type = *type, .cap = cap, .pool = pool};
  b->text_max = text_max < TEXT_MAX ? text_max : TEXT_MAX;
  b->width = manta__type_width(type);
  size_t bytes = (size_t)cap * b->width;
  if (type->kind == MANTA_KIND_BOOL)
    bytes = manta__bits_bytes(cap);
  if (manta__type_varies(type)) {
    bytes = TEXT_FIRST < b->text_max ? TEXT_FIRST : b->text_max;
    if (!(b->mem[MANTA__OFFSETS] = manta__memory_create(pool, (size_t)(cap + 1) * 4)))
      return no_memory(b, err);
    *(int32_t *)b->mem[MANTA__OFFSETS]->data = 0;
  }
  if (!(b->mem[MANTA__DATA] = manta__memory_create(pool, bytes))) {
    manta__build_fini(b);
    return no_memory(b, err);
  }
  return MANTA_OK;
}

void manta__build_fini(struct manta__build *b)
{
  for (int i = 0; i < MANTA__BUFFERS; i++)
    manta__memory_unref(b->mem[i]);
  memset(b->mem, 0, sizeof b->mem);
}

void manta__build_finish(struct manta__build *b, struct manta__column *out)
{
  *out = (struct manta__column){.type = b->type, .length = b->rows, .nulls = b->nulls};
  memcpy(out->held, b->mem, sizeof b->mem);
  out->data = b->mem[MANTA__DATA]->data;
  out->offsets = b->mem[MANTA__OFFSETS] ? b->mem[MANTA__OFFSETS]->data : NULL;
  out->valid = b->mem[MANTA__VALID] ? b->mem[MANTA__VALID]->data : NULL;
  memset(b->mem, 0, sizeof b->mem);
}

// --- nulls --------------------------------------------------------------------------------------

static manta_status need_bitmap(struct manta__build *b, manta_error *err)
{
  if (b->mem[MANTA__VALID])
    return MANTA_OK;
  if (!(b->mem[MANTA__VALID] = manta__memory_create(b->pool, manta__bits_bytes(b->cap))))
    return no_memory(b, err);
  manta__bits_fill(b->mem[MANTA__VALID]->data, 0, b->rows, true);
  return MANTA_OK;
}

static void mark(struct manta__build *b, bool valid)
{
  if (b->mem[MANTA__VALID])
    manta__bit_set(b->mem[MANTA__VALID]->data, b->rows, valid);
}

// A null number reads as NaN, or as 0 where there is no NaN.
static void blank(const struct manta__build *b, int64_t row)
{
  char *at = (char *)b->mem[MANTA__DATA]->data + (size_t)row * b->width;
  size_t element = manta_dtype_bytes(b->type.dtype);
  static const uint64_t f64 = 0x7ff8000000000000;
  static const uint32_t f32 = 0x7fc00000;
  static const uint16_t f16 = 0x7e00, bf16 = 0x7fc0;
  const void *nan = b->type.dtype == MANTA_F64   ? (const void *)&f64
                    : b->type.dtype == MANTA_F32 ? (const void *)&f32
                    : b->type.dtype == MANTA_F16 ? (const void *)&f16
                                                 : (const void *)&bf16;
  if (!manta__type_is_float(&b->type))
    memset(at, 0, b->width);
  else
    for (size_t i = 0; i < b->width; i += element)
      memcpy(at + i, nan, element);
}

manta_status manta__build_valid(struct manta__build *b, int64_t n, const uint32_t *nulls,
                                int64_t null_count, manta_error *err)
{
  if (null_count)
    MANTA_TRY(need_bitmap(b, err));
  if (b->mem[MANTA__VALID])
    manta__bits_fill(b->mem[MANTA__VALID]->data, b->rows, n, true);
  for (int64_t i = 0; i < null_count; i++) {
    manta__bit_set(b->mem[MANTA__VALID]->data, b->rows + nulls[i], false);
    blank(b, b->rows + nulls[i]);
  }
  b->nulls += null_count;
  b->rows += n;
  return MANTA_OK;
}

manta_status manta__build_null(struct manta__build *b, manta_error *err)
{
  MANTA_TRY(need_bitmap(b, err));
  mark(b, false);
  if (b->type.kind == MANTA_KIND_NUMBER)
    blank(b, b->rows);
  else if (b->type.kind == MANTA_KIND_BOOL)
    manta__bit_set(b->mem[MANTA__DATA]->data, b->rows, false);
  else
    ((int32_t *)b->mem[MANTA__OFFSETS]->data)[b->rows + 1] = (int32_t)b->text;
  b->nulls++;
  b->rows++;
  return MANTA_OK;
}

// --- values -------------------------------------------------------------------------------------

void manta__build_bool(struct manta__build *b, bool on)
{
  mark(b, true);
  manta__bit_set(b->mem[MANTA__DATA]->data, b->rows, on);
  b->rows++;
}

void manta__build_number(struct manta__build *b, const void *value)
{
  memcpy(manta__build_data(b), value, b->width);
  manta__build_done(b);
}

void manta__build_done(struct manta__build *b)
{
  mark(b, true);
  b->rows++;
}

manta_status manta__build_text_room(struct manta__build *b, size_t n, char **out, manta_error *err)
{
  size_t need = b->text + n, room = b->mem[MANTA__DATA]->bytes;
  if (n > b->text_max || need > b->text_max)
    return manta_error_set(err, MANTA_ETOOBIG,
                           "a column with more than %zu bytes of text in one batch", b->text_max);
  if (need > room) {
    size_t more = 2 * room < b->text_max ? 2 * room : b->text_max;
    if (!manta__memory_grow(&b->mem[MANTA__DATA], b->pool, b->text, need > more ? need : more))
      return no_memory(b, err);
  }
  *out = (char *)b->mem[MANTA__DATA]->data + b->text;
  return MANTA_OK;
}

void manta__build_text_done(struct manta__build *b, size_t n)
{
  mark(b, true);
  b->text += n;
  ((int32_t *)b->mem[MANTA__OFFSETS]->data)[++b->rows] = (int32_t)b->text;
}

manta_status manta__build_text(struct manta__build *b, const char *p, size_t n, manta_error *err)
{
  char *to = NULL;
  MANTA_TRY(manta__build_text_room(b, n, &to, err));
  if (n)
    memcpy(to, p, n);
  manta__build_text_done(b, n);
  return MANTA_OK;
}
