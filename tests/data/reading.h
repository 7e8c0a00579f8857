/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/data/reading.h - a data set as text: a line of columns with their types, then a line a row.
 */
#ifndef MANTA_TEST_READING_H
#define MANTA_TEST_READING_H

#include <manta/data.h>

#include "base/buf.h"
#include "base/half.h"
#include "data/column/batch.h"
#include "test.h"

static inline void show_number(manta__buf *b, manta_dtype type, const void *p)
{
  int64_t v = 0;
  uint16_t half;
  memcpy(&v, p, manta_dtype_bytes(type));
  memcpy(&half, p, 2);
  switch (type) {
  case MANTA_F64:
    manta__buf_printf(b, "%.17g", *(const double *)p);
    break;
  case MANTA_F32:
    manta__buf_printf(b, "%.9g", (double)*(const float *)p);
    break;
  case MANTA_F16:
    manta__buf_printf(b, "%.9g", (double)manta__f32_of_f16(half));
    break;
  case MANTA_BF16:
    manta__buf_printf(b, "%.9g", (double)manta__f32_of_bf16(half));
    break;
  case MANTA_U64:
    manta__buf_printf(b, "%llu", (unsigned long long)v);
    break;
  case MANTA_I8:
    manta__buf_printf(b, "%d", *(const int8_t *)p);
    break;
  case MANTA_I16:
    manta__buf_printf(b, "%d", *(const int16_t *)p);
    break;
  case MANTA_I32:
    manta__buf_printf(b, "%d", *(const int32_t *)p);
    break;
  default:
    manta__buf_printf(b, "%lld", (long long)v);
  }
}

static inline void show_value(manta__buf *b, const manta_column *c, int64_t row)
{
  int64_t i = c->offset + row, each = 1;
  if (c->valid && !(c->valid[i / 8] >> i % 8 & 1)) {
    manta__buf_puts(b, "null");
    return;
  }
  if (c->field.kind == MANTA_KIND_BOOL) {
    manta__buf_puts(b, ((const uint8_t *)c->data)[i / 8] >> i % 8 & 1 ? "true" : "false");
    return;
  }
  if (c->field.kind != MANTA_KIND_NUMBER) {
    manta__buf_putc(b, '\'');
    manta__buf_append(b, (const char *)c->data + c->offsets[i],
                      (size_t)(c->offsets[i + 1] - c->offsets[i]));
    manta__buf_putc(b, '\'');
    return;
  }
  size_t width = manta_dtype_bytes(c->field.dtype);
  for (int d = 0; d < c->field.ndim; d++)
    each *= c->field.shape[d];
  for (int64_t k = 0; k < each; k++) {
    manta__buf_puts(b, k ? " " : "");
    show_number(b, c->field.dtype, (const char *)c->data + (size_t)(i * each + k) * width);
  }
}

static inline void show_fields(manta__buf *b, const manta_dataset *d)
{
  for (int i = 0; i < manta_dataset_columns(d); i++) {
    manta_field f;
    char text[MANTA__TYPE_TEXT_MAX];
    assert_status(manta_dataset_field(d, i, &f, NULL), MANTA_OK);
    struct manta__type t = {.kind = f.kind, .dtype = f.dtype, .ndim = f.ndim};
    memcpy(t.shape, f.shape, sizeof t.shape);
    manta__buf_printf(b, "%s%s:%s", i ? "|" : "", f.name, manta__type_text(&t, text));
  }
}

static inline void show_batch(manta__buf *b, const manta_batch *batch)
{
  for (int64_t r = 0; r < manta_batch_rows(batch); r++) {
    manta__buf_putc(b, '\n');
    for (int i = 0; i < manta_batch_columns(batch); i++) {
      manta_column c;
      assert_status(manta_batch_column(batch, i, &c, NULL), MANTA_OK);
      manta__buf_puts(b, i ? "|" : "");
      show_value(b, &c, r);
    }
  }
}

/* All blocks of a data set, behind its columns. The text is the caller's to free with
 * manta_free. */
static inline manta_status read_blocks(manta_dataset *d, char **out, manta_error *err)
{
  manta__buf b;
  manta_reader *r;
  manta_batch *batch;
  manta_status st;
  manta__buf_init(&b, (size_t)1 << 30);
  show_fields(&b, d);
  assert_status(manta_reader_open(&r, d, 0, manta_dataset_blocks(d), err), MANTA_OK);
  while ((st = manta_reader_next(r, &batch, err)) == 1) {
    assert_true(manta_batch_rows(batch) > 0);
    show_batch(&b, batch);
    manta_batch_destroy(batch);
  }
  manta_reader_close(r);
  assert_status(manta__buf_terminate(&b), MANTA_OK);
  *out = manta__buf_release(&b, NULL);
  if (st < 0) {
    manta_free(*out);
    *out = NULL;
  }
  return st;
}

static inline manta_status read_paths(const char *const *paths, size_t n,
                                      const manta_data_config *cfg, char **out, manta_error *err)
{
  manta_dataset *d;
  *out = NULL;
  MANTA_TRY(manta_dataset_open(&d, paths, n, cfg, err));
  manta_status st = read_blocks(d, out, err);
  manta_dataset_close(d);
  return st;
}

static inline manta_status read_path(const char *path, const manta_data_config *cfg, char **out,
                                     manta_error *err)
{
  return read_paths(&path, 1, cfg, out, err);
}

/* A value, such as an expression, written as JSON. The caller finishes it. */
static inline manta_value tree_of(const char *json)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  assert_ok(manta_value_from_json(&v, json, strlen(json), &err), &err);
  return v;
}

/* The data set reads as this, and counts as many rows. */
static inline void assert_is(manta_dataset *d, const char *want)
{
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  int64_t rows = 0, lines = 0;
  assert_ok(read_blocks(d, &got, &err), &err);
  assert_string_equal(got, want);
  for (const char *p = got; (p = strchr(p, '\n')); p++)
    lines++;
  assert_ok(manta_dataset_count(d, &rows, &err), &err);
  assert_int_equal(rows, lines);
  manta_free(got);
}

/* The same, and it is closed. */
static inline void assert_was(manta_dataset *d, const char *want)
{
  assert_is(d, want);
  manta_dataset_close(d);
}

/* It reads as this. */
static inline void assert_reads(const char *path, const manta_data_config *cfg, const char *want)
{
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  assert_ok(read_path(path, cfg, &got, &err), &err);
  assert_string_equal(got, want);
  manta_free(got);
}

/* It does not, and says this. */
static inline void assert_refuses(const char *path, const manta_data_config *cfg, manta_status want,
                                  const char *says)
{
  manta_error err = MANTA_ERROR_INIT;
  char *got;
  manta_status st = read_path(path, cfg, &got, &err);
  if (st != want)
    fail_msg("%s: %s: %s", path, manta_status_name(st), err.message);
  assert_has(err.message, says);
  assert_has(err.message, path);
}

#endif
