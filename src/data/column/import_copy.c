/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/import_copy.c - foreign columns that lie in another way than ours: they are copied.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "data/column/build.h"
#include "data/column/import.h"

static manta_status wrong(const struct manta__foreign *f, manta_error *err, const char *what)
{
  return manta_error_set(err, MANTA_EINVAL,
                         "the Arrow array of column \"%.64s\" makes no sense: %s", f->name, what);
}

static manta_status no_memory(int64_t rows, manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory for a column of %" PRId64 " rows", rows);
}

// --- 64-bit offsets -----------------------------------------------------------------------------

static int64_t load64(const void *p, int64_t i)
{
  int64_t v;
  memcpy(&v, (const char *)p + i * 8, 8);
  return v;
}

// The bytes stay where they are; offsets count from the first that is meant.
static manta_status narrow(const struct manta__foreign *f, const void *wide,
                           struct manta__column *out, manta_error *err)
{
  int64_t from = out->offset, n = out->length, base = n ? load64(wide, from) : 0, before = base;
  int32_t *to;
  if (!(out->held[MANTA__OFFSETS] = manta__memory_create(f->pool, (size_t)(n + 1) * 4)))
    return no_memory(n, err);
  to = out->held[MANTA__OFFSETS]->data;
  to[0] = 0;
  for (int64_t i = 1; i <= n; i++) {
    int64_t at = load64(wide, from + i);
    if (base < 0 || at < before)
      return wrong(f, err, "its offsets do not rise");
    if (at - base > INT32_MAX)
      return manta_error_set(err, MANTA_ETOOBIG,
                             "column \"%.64s\" has 2 GiB of text or more in one batch\nhint: "
                             "smaller batches",
                             f->name);
    to[i] = (int32_t)(at - base);
    before = at;
  }
  out->offsets = to;
  const void *data;
  MANTA_TRY(manta__foreign_buffer(f, 2, to[n] > 0, &data, err));
  out->held[MANTA__DATA] = manta__memory_ref(f->memory);
  out->data = to[n] > 0 ? (const char *)data + base : "";
  return MANTA_OK;
}

// The bitmap counts from the array's start, the new offsets from the slice's.
static manta_status move_bitmap(const struct manta__foreign *f, struct manta__column *out,
                                manta_error *err)
{
  if (out->valid && out->offset) {
    struct manta__memory *m = manta__memory_create(f->pool, manta__bits_bytes(out->length));
    if (!m)
      return no_memory(out->length, err);
    manta__bits_copy(m->data, 0, out->valid, out->offset, out->length);
    manta__memory_unref(out->held[MANTA__VALID]);
    out->held[MANTA__VALID] = m;
    out->valid = m->data;
  }
  out->offset = 0;
  return MANTA_OK;
}

manta_status manta__foreign_large(const struct manta__foreign *f, struct manta__column *out,
                                  manta_error *err)
{
  const void *offsets;
  MANTA_TRY(manta__foreign_begin(f, 3, out, err));
  MANTA_TRY(manta__foreign_buffer(f, 1, out->length > 0, &offsets, err));
  MANTA_TRY(narrow(f, offsets, out, err));
  return move_bitmap(f, out, err);
}

// --- views --------------------------------------------------------------------------------------

struct string_view {
  int32_t size;
  char inside[4]; /* 12 with what follows, if that is enough */
  int32_t buffer, offset;
};
static_assert(sizeof(struct string_view) == 16, "Arrow's view");

#define INSIDE 12

static manta_status find_view(const struct manta__foreign *f, const char *at, const char **p,
                              size_t *n, manta_error *err)
{
  struct string_view v;
  const struct ArrowArray *a = f->array;
  memcpy(&v, at, sizeof v);
  *n = (size_t)v.size;
  *p = at + 4;
  if (v.size < 0)
    return wrong(f, err, "a view of negative size");
  if (v.size <= INSIDE)
    return MANTA_OK;
  if (v.buffer < 0 || v.buffer >= a->n_buffers - 3 || !a->buffers[2 + v.buffer])
    return wrong(f, err, "a view into a buffer that is not there");
  int64_t bytes = load64(a->buffers[a->n_buffers - 1], v.buffer);
  if (v.offset < 0 || (int64_t)v.offset + v.size > bytes)
    return wrong(f, err, "a view past the end of its buffer");
  *p = (const char *)a->buffers[2 + v.buffer] + v.offset;
  return MANTA_OK;
}

static manta_status copy_views(const struct manta__foreign *f, const struct manta__column *in,
                               const char *views, struct manta__build *b, manta_error *err)
{
  for (int64_t i = 0; i < in->length; i++) {
    const char *p;
    size_t n;
    if (manta__column_is_null(in, i)) {
      MANTA_TRY(manta__build_null(b, err));
      continue;
    }
    MANTA_TRY(find_view(f, views + (in->offset + i) * 16, &p, &n, err));
    MANTA_TRY(manta__build_text(b, p, n, err));
  }
  return MANTA_OK;
}

manta_status manta__foreign_views(const struct manta__foreign *f, struct manta__column *out,
                                  manta_error *err)
{
  const void *views;
  int64_t buffers = f->array->n_buffers;
  struct manta__column in = {0};
  struct manta__build b = {0};
  if (buffers < 3)
    return wrong(f, err, "it has not as many buffers as its type says");
  MANTA_TRY(manta__foreign_begin(f, buffers, &in, err));
  manta_status st = manta__foreign_buffer(f, 1, in.length > 0, &views, err);
  if (st == MANTA_OK && buffers > 3)
    st = manta__foreign_buffer(f, buffers - 1, true, &(const void *){NULL}, err);
  if (st == MANTA_OK)
    st = manta__build_begin(&b, &in.type, in.length, INT32_MAX, f->pool, err);
  if (st == MANTA_OK)
    st = copy_views(f, &in, views, &b, err);
  if (st == MANTA_OK)
    manta__build_finish(&b, out);
  manta__build_fini(&b);
  manta__column_fini(&in);
  return st;
}

// --- dictionaries -------------------------------------------------------------------------------

// Index i, or -1 for what is no index of a dictionary of n values.
static int64_t load_index(const struct manta__column *c, int64_t i, int64_t n)
{
  const void *p = manta__column_at(c, i);
  int64_t v = 0;
  switch (c->type.dtype) {
  case MANTA_I8:
    v = *(const int8_t *)p;
    break;
  case MANTA_I16:
    v = *(const int16_t *)p;
    break;
  case MANTA_I32:
    v = *(const int32_t *)p;
    break;
  default:
    memcpy(&v, p, manta__type_width(&c->type)); // unsigned, or of 64 bits
  }
  return v >= 0 && v < n ? v : -1;
}

static manta_status read_indices(const struct manta__foreign *f, const struct manta__column *index,
                                 int64_t values, uint32_t *rows, manta_error *err)
{
  for (int64_t i = 0; i < index->length; i++) {
    int64_t v = manta__column_is_null(index, i) ? 0 : load_index(index, i, values);
    if (v < 0)
      return wrong(f, err, "an index past the end of its dictionary");
    rows[i] = (uint32_t)v;
  }
  return MANTA_OK;
}

// A value is null if its index is, or what the index points to.
static manta_status join_bitmaps(const struct manta__foreign *f, const struct manta__column *index,
                                 struct manta__column *out, manta_error *err)
{
  if (!index->valid)
    return MANTA_OK;
  struct manta__memory *m = manta__memory_create(f->pool, manta__bits_bytes(out->length));
  if (!m)
    return no_memory(out->length, err);
  for (int64_t i = 0; i < out->length; i++)
    manta__bit_set(m->data, i, !manta__column_is_null(index, i) && !manta__column_is_null(out, i));
  manta__memory_unref(out->held[MANTA__VALID]);
  out->held[MANTA__VALID] = m;
  out->valid = m->data;
  out->nulls = -1;
  return MANTA_OK;
}

// An empty dictionary has no value that a null could stand on.
static manta_status all_null(const struct manta__foreign *f, const struct manta__column *index,
                             const struct manta__type *type, struct manta__column *out,
                             manta_error *err)
{
  struct manta__build b = {0};
  manta_status st = manta__build_begin(&b, type, index->length, INT32_MAX, f->pool, err);
  for (int64_t i = 0; i < index->length && st == MANTA_OK; i++)
    st = manta__column_is_null(index, i) ? manta__build_null(&b, err)
                                         : wrong(f, err, "an index past the end of its dictionary");
  if (st == MANTA_OK)
    manta__build_finish(&b, out);
  manta__build_fini(&b);
  return st;
}

static manta_status decode(const struct manta__foreign *f, const struct manta__column *index,
                           const struct manta__column *values, struct manta__column *out,
                           manta_error *err)
{
  if (values->length == 0)
    return all_null(f, index, &values->type, out, err);
  uint32_t *rows = manta__malloc((size_t)(index->length + 1) * sizeof *rows);
  if (!rows)
    return no_memory(index->length, err);
  manta_status st = read_indices(f, index, values->length, rows, err);
  if (st == MANTA_OK)
    st = manta__column_take(out, values, rows, index->length, f->pool, err);
  if (st == MANTA_OK)
    st = join_bitmaps(f, index, out, err);
  manta__free(rows);
  return st;
}

manta_status manta__foreign_dictionary(const struct manta__foreign *f, struct manta__column *out,
                                       manta_error *err)
{
  struct ArrowSchema plain = *f->schema; // the indices alone; only looked at
  struct manta__foreign part = *f;
  struct manta__column index = {0}, values = {0};
  plain.dictionary = NULL;
  part.schema = &plain;
  if (!f->array->dictionary)
    return wrong(f, err, "its dictionary is missing");
  MANTA_TRY(manta__foreign_column(&part, &index, err));
  part.array = f->array->dictionary;
  part.schema = f->schema->dictionary;
  part.offset = 0;
  part.length = part.array->length;
  manta_status st = part.length > MANTA__ROWS_MAX ? wrong(f, err, "its dictionary is too long")
                                                  : manta__foreign_column(&part, &values, err);
  if (st == MANTA_OK && (index.type.kind != MANTA_KIND_NUMBER || index.type.ndim ||
                         manta__type_is_float(&index.type)))
    st = wrong(f, err, "its indices are no integers");
  if (st == MANTA_OK)
    st = decode(f, &index, &values, out, err);
  manta__column_fini(&index);
  manta__column_fini(&values);
  return st;
}
