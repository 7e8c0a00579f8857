/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/data_memory.h - any bytes as a file of a format: its schema, its blocks, its rows.
 *
 * What holds for every input: nothing is read beside the bytes, every failure has a message, and a
 * file that can be read gives the same rows whether it is one block or many, in large batches or in
 * small ones.
 */
#ifndef MANTA_FUZZ_DATA_MEMORY_H
#define MANTA_FUZZ_DATA_MEMORY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/format/format.h"

struct memory_source {
  struct manta__source source;
  const uint8_t *p;
};

static void need(bool ok)
{
  if (!ok)
    abort();
}

static manta_status read_memory(struct manta__source *s, int64_t at, void *to, size_t n,
                                manta_error *err)
{
  memcpy(to, ((struct memory_source *)s)->p + at, n);
  return MANTA_OK;
}

static const struct manta__place place_memory = {.scheme = "memory", .read = read_memory};

static struct memory_source memory_of(const char *name, const uint8_t *p, size_t n)
{
  static char names[64];
  snprintf(names, sizeof names, "%s", name);
  return (struct memory_source){{&place_memory, names, (int64_t)n}, p};
}

/* Rows as a number: each value's bytes, and which are null. */
struct outcome {
  manta_status st;
  int64_t rows, skipped;
  uint64_t hash;
};

static void add_value(struct outcome *o, const struct manta__column *c, int64_t i)
{
  size_t n = 1;
  uint8_t bit = 2;
  const void *p = &bit;
  if (manta__column_is_null(c, i))
    bit = 3;
  else if (c->type.kind == MANTA_KIND_BOOL)
    bit = manta__column_bit(c, i);
  else if (manta__type_varies(&c->type))
    p = manta__column_text(c, i, &n);
  else {
    n = manta__type_width(&c->type);
    p = manta__column_at(c, i);
  }
  o->hash = manta__hash_seed(p, n, o->hash + n);
}

static void add_batch(struct outcome *o, const manta_batch *b)
{
  int64_t before = -1;
  for (int64_t i = 0; i < b->rows; i++) {
    need(manta__batch_source(b, i) > before);
    before = manta__batch_source(b, i);
    for (int c = 0; c < b->schema->count; c++)
      add_value(o, &b->column[c], i);
  }
  need(b->rows <= b->source_rows && before < b->first + b->source_rows);
  o->rows += b->rows;
}

static manta_status read_block(struct outcome *o, const struct manta__format *format,
                               const struct manta__read_job *job, manta_error *err)
{
  struct manta__filtered *r;
  manta_batch *b;
  int64_t next = 0;
  manta_status st = manta__filtered_open(&r, format, job, err);
  if (st < 0)
    return st;
  while ((st = manta__filtered_next(r, &b, err)) == 1) {
    need(b->first == next);
    next += b->source_rows;
    add_batch(o, b);
    manta_batch_destroy(b);
  }
  manta__filtered_close(r);
  return st;
}

/* All columns of all blocks. */
static struct outcome read_blocks(const struct manta__format *format, const struct manta__file *f,
                                  struct manta__schema *schema, const manta_value *filter)
{
  struct outcome o = {0};
  struct manta__tally tally;
  struct manta__blocks blocks = {0};
  manta_error err = MANTA_ERROR_INIT;
  int64_t end = 0;
  int *columns = calloc((size_t)schema->count + 1, sizeof *columns);
  need(columns != NULL);
  for (int i = 0; i < schema->count; i++)
    columns[i] = i;
  manta__tally_init(&tally);
  o.st = manta__format_cut(format, f, 0, &blocks, &err);
  for (int64_t i = 0; i < blocks.count && o.st == MANTA_OK; i++) {
    struct manta__read_job job = {.file = *f,
                                  .block = blocks.block[i],
                                  .schema = schema,
                                  .columns = columns,
                                  .out = schema,
                                  .filter = filter,
                                  .tally = &tally};
    need(blocks.block[i].from == end && blocks.block[i].to >= end);
    end = blocks.block[i].to;
    o.st = read_block(&o, format, &job, &err);
  }
  need(o.st == MANTA_OK ? end == f->source->size : err.message[0] != 0);
  o.skipped = tally.skipped;
  manta__blocks_fini(&blocks);
  manta__tally_fini(&tally);
  free(columns);
  return o;
}

/* The file in one block and in many, with and without rows that cannot be read. */
static void fuzz_format(const struct manta__format *format, const char *name, const uint8_t *p,
                        size_t n, manta_data_config c, enum manta__compression form,
                        const manta_value *filter)
{
  struct memory_source m = memory_of(name, p, n);
  struct manta__file f = {&m.source, form, &c};
  struct manta__schema *schema;
  manta_error err = MANTA_ERROR_INIT;
  c.batch_bytes = 1 << 16;
  c.batch_rows = 1000;
  c.block_bytes = (size_t)1 << 40;
  c.row_bytes = 1 << 20;
  if (format->look(&f, &schema, &err) < 0) {
    need(err.message[0]);
    return;
  }
  if (!schema) // nothing but empty lines
    return;
  struct outcome whole = read_blocks(format, &f, schema, filter);
  c.block_bytes = 16;
  c.batch_rows = 3;
  struct outcome parts = read_blocks(format, &f, schema, filter);
  if (whole.st == MANTA_OK)
    need(parts.st == MANTA_OK && parts.rows == whole.rows && parts.hash == whole.hash);
  c.skip_errors = true;
  struct outcome lenient = read_blocks(format, &f, schema, filter);
  if (whole.st == MANTA_OK)
    need(lenient.st == MANTA_OK && lenient.hash == whole.hash && lenient.skipped == 0);
  manta__schema_unref(schema);
}

#endif
