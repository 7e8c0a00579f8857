/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrow arrays that may say anything of themselves. The input is a recipe: format, lengths, counts,
 * and what each buffer holds. Buffers are exactly as large as an array of that length needs, so a
 * read past what was checked is seen; text, whose size the interface does not tell, is as large as
 * the last offset says. What is taken must read, slice, export and come in again as the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/column/arrow.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROWS     64
#define TEXT_MAX (1 << 20)
#define PARTS    3 // the array, its child, its dictionary

static const char *const formats[] = {
    "b", "c",  "C",  "s", "S",   "i",    "I",   "l",  "L",  "e",    "f",    "g",  "u", "z",  "U",
    "Z", "vu", "vz", "n", "w:3", "+w:2", "tdD", "+s", "+l", "ts:x", "+w:0", "w:", "",  "d:3"};
#define FORMATS (sizeof formats / sizeof *formats)

static void need(bool ok)
{
  if (!ok)
    abort();
}

struct input {
  const uint8_t *p, *end;
};

static uint8_t byte(struct input *in)
{
  return in->p < in->end ? *in->p++ : 0;
}

// Mostly small; now and then as far off as it can be.
static int64_t number(struct input *in)
{
  uint8_t how = byte(in);
  int64_t v = byte(in) % ROWS;
  return how < 240 ? v : how < 244 ? -v : how < 248 ? INT64_MAX - v : INT64_MIN + v;
}

struct part {
  struct ArrowArray array;
  struct ArrowSchema schema;
  struct ArrowArray *children[1];
  struct ArrowSchema *child_schemas[1];
  const void *buffers[5];
  void *owned[5];
};

static void *fill(struct part *p, struct input *in, int at, size_t bytes)
{
  uint8_t *b = p->owned[at] = malloc(bytes ? bytes : 1);
  need(b != NULL);
  for (size_t i = 0; i < bytes; i++)
    b[i] = byte(in);
  p->buffers[at] = b;
  return b;
}

// Offsets that rise, mostly, and text for the last.
static void fill_text(struct part *p, struct input *in, int64_t rows, bool wide)
{
  size_t width = wide ? 8 : 4;
  uint8_t *b = fill(p, in, 1, (size_t)(rows + 1) * width);
  int64_t at = 0, last = 0;
  for (int64_t i = 0; i <= rows; i++) {
    int32_t narrow = (int32_t)(at += b[i * (int64_t)width] & 15);
    if (b[0] < 240)
      memcpy(b + i * (int64_t)width, wide ? (void *)&at : (void *)&narrow, width);
    last = 0;
    memcpy(&last, b + i * (int64_t)width, width);
  }
  fill(p, in, 2, last >= 0 && last < TEXT_MAX ? (size_t)last : 0);
  if (last < 0 || last >= TEXT_MAX) // there could be no such text: it must be refused before
    b[(size_t)rows * width + width - 1] |= 0x80;
}

static void fill_views(struct part *p, struct input *in, int64_t rows)
{
  int64_t bytes = 32;
  fill(p, in, 1, (size_t)rows * 16);
  fill(p, in, 2, (size_t)bytes);
  memcpy(fill(p, in, 3, 8), &bytes, 8);
  p->array.n_buffers = 4;
}

static void fill_part(struct part *p, struct input *in, int which, struct part *all)
{
  uint8_t flags = byte(in);
  int64_t length = number(in), offset = number(in), rows = 0;
  const char *f = formats[byte(in) % FORMATS];
  if (length >= 0 && offset >= 0 && length + (uint64_t)offset <= 4 * ROWS)
    rows = length + offset;
  p->schema = (struct ArrowSchema){.format = f, .name = "x"};
  p->array = (struct ArrowArray){.length = length, .offset = offset};
  p->array.null_count = byte(in) % 4 ? number(in) : -1;
  p->array.buffers = p->buffers;
  p->array.n_buffers = f[0] == 'n' ? 0 : f[0] == '+' ? 1 : strchr("uzUZ", f[0]) && f[0] ? 3 : 2;
  if (flags & 1)
    fill(p, in, 0, manta__bits_bytes(rows));
  if (strchr("uzUZ", f[0]) && f[0])
    fill_text(p, in, rows, f[0] == 'U' || f[0] == 'Z');
  else if (f[0] == 'v')
    fill_views(p, in, rows);
  else if (p->array.n_buffers == 2)
    fill(p, in, 1, (size_t)rows * 8);
  if (which == 0 && flags & 2) {
    p->array.dictionary = &all[2].array;
    p->schema.dictionary = &all[2].schema;
  }
  p->children[0] = &all[1].array;
  p->child_schemas[0] = &all[1].schema;
  p->array.children = p->children;
  p->schema.children = p->child_schemas;
  p->array.n_children = p->schema.n_children = which == 0 ? flags >> 2 & 1 : 0;
  if (flags & 64)
    p->array.n_buffers = flags >> 7;
}

static void release(struct ArrowArray *a)
{
  a->release = NULL;
}

static void look(const struct manta__column *c)
{
  volatile uint8_t sum = 0;
  for (int64_t i = 0; i < c->length; i++) {
    size_t n = manta__type_width(&c->type);
    const uint8_t *p = (const uint8_t *)"";
    if (manta__column_is_null(c, i))
      continue;
    if (c->type.kind == MANTA_KIND_BOOL)
      sum = (uint8_t)(sum + manta__column_bit(c, i));
    else
      p = manta__type_varies(&c->type) ? (const uint8_t *)manta__column_text(c, i, &n)
                                       : manta__column_at(c, i);
    for (size_t k = 0; k < n; k++)
      sum = (uint8_t)(sum + p[k]);
  }
}

static void go_round(const manta_batch *b)
{
  struct ArrowSchema schema;
  struct ArrowArray array;
  struct manta__schema *ours;
  manta_batch *again;
  need(manta_batch_export(b, &schema, &array, NULL) == MANTA_OK);
  need(manta__arrow_import_schema(&schema, &ours, NULL) == MANTA_OK);
  need(manta__arrow_import(&again, &array, &schema, ours, NULL, NULL) == MANTA_OK);
  need(manta__schema_equal(b->schema, again->schema) && b->rows == again->rows);
  for (int i = 0; i < again->schema->count; i++)
    look(&again->column[i]);
  schema.release(&schema);
  manta__schema_unref(ours);
  manta_batch_destroy(again);
}

static void import(struct part *p)
{
  struct manta__schema *ours;
  manta_error err = MANTA_ERROR_INIT;
  manta_batch *b;
  if (manta__arrow_import_schema(&p->schema, &ours, &err) < 0) {
    need(err.message[0]);
    return;
  }
  p->array.release = release;
  if (manta__arrow_import(&b, &p->array, &p->schema, ours, NULL, &err) == MANTA_OK) {
    for (int i = 0; i < b->schema->count; i++)
      look(&b->column[i]);
    go_round(b);
    manta_batch_destroy(b);
    need(p->array.release == NULL);
  } else
    need(err.message[0] && p->array.release);
  manta__schema_unref(ours);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  struct input in = {data, data + size};
  struct part parts[PARTS] = {0};
  for (int i = 0; i < PARTS; i++)
    fill_part(&parts[i], &in, i, parts);
  import(&parts[0]);
  for (int i = 0; i < PARTS; i++)
    for (int k = 0; k < 5; k++)
      free(parts[i].owned[k]);
  return 0;
}
