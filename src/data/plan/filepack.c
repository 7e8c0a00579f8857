/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/filepack.c - files, their blocks and how they are read, for another process.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/plan/files.h"
#include "data/plan/pack.h"

#define BLOCK_NUMBERS 3 /* file, from, to */

// --- options ------------------------------------------------------------------------------------

/* Those that are numbers, as one run of them. */
enum {
  SKIP_ERRORS,
  BATCH_ROWS,
  BATCH_BYTES,
  BLOCK_BYTES,
  ROW_BYTES,
  SEPARATOR,
  QUOTE,
  NO_QUOTES,
  NO_HEADER,
  SKIP_BYTES,
  NUMBERS
};

static manta_status pack_config(const manta_data_config *c, manta_value *to)
{
  const int64_t n[NUMBERS] = {[SKIP_ERRORS] = c->skip_errors,
                              [BATCH_ROWS] = c->batch_rows,
                              [BATCH_BYTES] = (int64_t)c->batch_bytes,
                              [BLOCK_BYTES] = (int64_t)c->block_bytes,
                              [ROW_BYTES] = (int64_t)c->row_bytes,
                              [SEPARATOR] = c->separator,
                              [QUOTE] = c->quote,
                              [NO_QUOTES] = c->no_quotes,
                              [NO_HEADER] = c->no_header,
                              [SKIP_BYTES] = (int64_t)c->skip_bytes};
  MANTA_TRY(manta__plan_put_bytes(to, "numbers", n, sizeof n));
  if (c->compression)
    MANTA_TRY(manta_value_put_string(to, "compression", c->compression));
  MANTA_TRY(manta__plan_put_strings(to, "columns", c->columns, c->column_count));
  MANTA_TRY(manta__plan_put_strings(to, "names", c->names, c->name_count));
  MANTA_TRY(manta__plan_put_strings(to, "missing", c->missing, c->missing_count));
  if (c->filter)
    MANTA_TRY(manta__plan_put_copy(to, "filter", c->filter));
  return c->types ? manta__plan_put_copy(to, "types", c->types) : MANTA_OK;
}

static manta_status read_numbers(manta_data_config *c, const manta_value *from, manta_error *err)
{
  int64_t n[NUMBERS];
  size_t count = 0;
  const void *p = manta__plan_get_bytes(from, "numbers", sizeof *n, &count);
  if (!p || count != NUMBERS)
    return manta__plan_malformed(err);
  memcpy(n, p, sizeof n);
  c->skip_errors = n[SKIP_ERRORS] != 0;
  c->batch_rows = n[BATCH_ROWS];
  c->batch_bytes = (size_t)n[BATCH_BYTES];
  c->block_bytes = (size_t)n[BLOCK_BYTES];
  c->row_bytes = (size_t)n[ROW_BYTES];
  c->separator = (char)n[SEPARATOR];
  c->quote = (char)n[QUOTE];
  c->no_quotes = n[NO_QUOTES] != 0;
  c->no_header = n[NO_HEADER] != 0;
  c->skip_bytes = (size_t)n[SKIP_BYTES];
  return MANTA_OK;
}

// --- what was found -----------------------------------------------------------------------------

static manta_status pack_files(const struct manta__files *f, manta_value *to)
{
  size_t n = f->files.count;
  const char **names = manta__calloc(n + 1, sizeof *names);
  int64_t *sizes = manta__calloc(n + 1, sizeof *sizes);
  manta_status st = names && sizes ? MANTA_OK : MANTA_ENOMEM;
  for (size_t i = 0; i < n && st == MANTA_OK; i++) {
    names[i] = f->files.found[i].name;
    sizes[i] = f->files.found[i].size;
  }
  if (st == MANTA_OK)
    st = manta__plan_put_strings(to, "files", names, n);
  if (st == MANTA_OK)
    st = manta__plan_put_bytes(to, "sizes", sizes, n * sizeof *sizes);
  manta__free(names);
  manta__free(sizes);
  return st;
}

static manta_status pack_blocks(const struct manta__blocks *b, manta_value *to)
{
  int64_t *n = manta__calloc((size_t)b->count + 1, BLOCK_NUMBERS * sizeof *n);
  if (!n)
    return MANTA_ENOMEM;
  for (int64_t i = 0; i < b->count; i++) {
    n[BLOCK_NUMBERS * i] = b->block[i].file;
    n[BLOCK_NUMBERS * i + 1] = b->block[i].from;
    n[BLOCK_NUMBERS * i + 2] = b->block[i].to;
  }
  manta_status st =
      manta__plan_put_bytes(to, "blocks", n, (size_t)b->count * BLOCK_NUMBERS * sizeof *n);
  manta__free(n);
  return st;
}

manta_status manta__files_pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  const struct manta__files *f = (const struct manta__files *)d;
  MANTA_TRY(pack_config(&f->config, to));
  MANTA_TRY(manta_value_put_string(to, "format", f->format->name));
  MANTA_TRY(pack_files(f, to));
  MANTA_TRY(pack_blocks(&f->blocks, to));
  return manta__plan_put_schema(to, f->schema);
}

// --- and back -----------------------------------------------------------------------------------

static manta_status read_files(struct manta__files *f, const manta_value *from, manta_error *err)
{
  const manta_value *names = manta_value_get(from, "files");
  size_t n = 0;
  const int64_t *sizes = manta__plan_get_bytes(from, "sizes", sizeof *sizes, &n);
  if (!sizes || !names || names->type != MANTA_LIST || names->count != n || n == 0)
    return manta__plan_malformed(err);
  for (size_t i = 0; i < n; i++) {
    int64_t size;
    memcpy(&size, sizes + i, sizeof size);
    MANTA_TRY(manta__listing_add(&f->files, manta_value_as_string(manta_value_at(names, i), ""),
                                 size, err));
  }
  return MANTA_OK;
}

static manta_status read_blocks(struct manta__files *f, const manta_value *from, manta_error *err)
{
  size_t n = 0, row = BLOCK_NUMBERS * sizeof(int64_t);
  const char *p = manta__plan_get_bytes(from, "blocks", row, &n);
  if (!p)
    return manta__plan_malformed(err);
  for (size_t i = 0; i < n; i++) {
    int64_t b[BLOCK_NUMBERS];
    memcpy(b, p + i * row, sizeof b);
    if (b[0] < 0 || (size_t)b[0] >= f->files.count || b[1] < 0 || b[2] < b[1])
      return manta__plan_malformed(err);
    MANTA_TRY(manta__blocks_add(&f->blocks, (struct manta__block){(int32_t)b[0], b[1], b[2]}, err));
  }
  return MANTA_OK;
}

static manta_status restore(struct manta__files *f, const manta_value *from, manta_error *err)
{
  const char *format = manta_value_as_string(manta_value_get(from, "format"), "");
  MANTA_TRY(manta__format_named(&f->format, format, err));
  MANTA_TRY(read_files(f, from, err));
  MANTA_TRY(read_blocks(f, from, err));
  MANTA_TRY(manta__plan_get_schema(from, &f->schema, err));
  MANTA_TRY(manta__files_choose(f, err));
  if (f->config.filter)
    MANTA_TRY(manta__filter_check(&f->filter, f->schema, err));
  manta__files_end(f);
  return MANTA_OK;
}

static manta_status begin(struct manta__files **f, manta_data_config *c, const manta_value *from,
                          manta_error *err)
{
  c->compression = manta_value_as_string(manta_value_get(from, "compression"), NULL);
  c->filter = manta_value_get(from, "filter");
  c->types = manta_value_get(from, "types");
  MANTA_TRY(read_numbers(c, from, err));
  MANTA_TRY(manta__plan_get_strings(from, "columns", &c->columns, &c->column_count, err));
  MANTA_TRY(manta__plan_get_strings(from, "names", &c->names, &c->name_count, err));
  MANTA_TRY(manta__plan_get_strings(from, "missing", &c->missing, &c->missing_count, err));
  return manta__files_begin(f, c, err);
}

manta_status manta__files_unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                                 const manta_value *from, manta_error *err)
{
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  struct manta__files *f = NULL;
  manta_status st = begin(&f, &c, from, err);
  manta__free((void *)(uintptr_t)c.columns);
  manta__free((void *)(uintptr_t)c.names);
  manta__free((void *)(uintptr_t)c.missing);
  MANTA_TRY(st);
  if ((st = restore(f, from, err)) < 0) {
    manta__dataset_unref(&f->d);
    return st;
  }
  *out = &f->d;
  return MANTA_OK;
}
