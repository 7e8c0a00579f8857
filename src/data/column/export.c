/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/export.c - batches as Arrow arrays.
 *
 * Each schema and each array owns what it points to: the structs of its children, which it releases
 * if nobody has moved them out, and the strings or the memory behind it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "data/column/arrow.h"

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory to export a batch");
}

// --- schemas ------------------------------------------------------------------------------------

#define EXTENSION_NAME "ARROW:extension:name"
#define EXTENSION_META "ARROW:extension:metadata"

struct schema_body {
  char format[MANTA__LOGICAL_MAX];
  char *name;
  void *metadata;
  struct ArrowSchema *child; /* n_children of them */
  struct ArrowSchema **children;
};

static void free_schema_body(struct schema_body *b)
{
  if (!b)
    return;
  manta__free(b->name);
  manta__free(b->metadata);
  manta__free(b->child);
  manta__free(b->children);
  manta__free(b);
}

static void release_schema(struct ArrowSchema *s)
{
  for (int64_t i = 0; i < s->n_children; i++)
    if (s->children[i]->release)
      s->children[i]->release(s->children[i]);
  free_schema_body(s->private_data);
  s->release = NULL;
}

// An empty schema with room for n children; *out is releasable as soon as it is there.
static bool begin_schema(struct ArrowSchema *out, const char *name, int64_t n)
{
  struct schema_body *b = manta__calloc(1, sizeof *b);
  if (b) {
    b->name = manta__strdup(name);
    b->child = manta__calloc((size_t)n + 1, sizeof *b->child);
    b->children = manta__calloc((size_t)n + 1, sizeof *b->children);
  }
  if (!b || !b->name || !b->child || !b->children) {
    free_schema_body(b);
    return false;
  }
  for (int64_t i = 0; i < n; i++)
    b->children[i] = &b->child[i];
  *out = (struct ArrowSchema){.format = b->format,
                              .name = b->name,
                              .n_children = n,
                              .children = b->children,
                              .release = release_schema,
                              .private_data = b};
  return true;
}

static bool put_entry(manta__buf *b, const char *key, const char *value)
{
  int32_t k = (int32_t)strlen(key), v = (int32_t)strlen(value);
  return manta__buf_append(b, &k, 4) == MANTA_OK && manta__buf_puts(b, key) == MANTA_OK &&
         manta__buf_append(b, &v, 4) == MANTA_OK && manta__buf_puts(b, value) == MANTA_OK;
}

// What Arrow has no type for, in the words of its extension types.
static bool set_extension(struct ArrowSchema *s, const char *name, const char *meta)
{
  manta__buf b;
  int32_t n = meta ? 2 : 1;
  manta__buf_init(&b, 4096);
  if (manta__buf_append(&b, &n, 4) < 0 || !put_entry(&b, EXTENSION_NAME, name) ||
      (meta && !put_entry(&b, EXTENSION_META, meta))) {
    manta__buf_fini(&b);
    return false;
  }
  struct schema_body *body = s->private_data;
  s->metadata = body->metadata = manta__buf_release(&b, NULL);
  return true;
}

static bool set_shape(struct ArrowSchema *s, const struct manta__type *t)
{
  char text[MANTA__TYPE_TEXT_MAX], shape[MANTA__TYPE_TEXT_MAX + 16];
  manta__type_text(t, text);
  snprintf(shape, sizeof shape, "{\"shape\":%s}", strchr(text, '['));
  return set_extension(s, "arrow.fixed_shape_tensor", shape);
}

static bool export_number(struct ArrowSchema *out, const char *name, const struct manta__type *t)
{
  if (!begin_schema(out, name, 0))
    return false;
  struct schema_body *b = out->private_data;
  snprintf(b->format, sizeof b->format, "%s", manta__type_arrow(t));
  return t->kind != MANTA_KIND_NUMBER || t->dtype != MANTA_BF16 ||
         set_extension(out, "manta.bf16", NULL);
}

static bool export_field(struct ArrowSchema *out, const struct manta__schema_field *f)
{
  struct manta__type element = f->type;
  element.ndim = 0;
  bool tensor = f->type.kind == MANTA_KIND_NUMBER && f->type.ndim > 0, ok;
  if (!tensor)
    ok = export_number(out, f->name, &f->type);
  else if ((ok = begin_schema(out, f->name, 1))) {
    struct schema_body *b = out->private_data;
    snprintf(b->format, sizeof b->format, "+w:%" PRId64, manta__type_count(&f->type));
    ok = export_number(out->children[0], "item", &element) &&
         (f->type.ndim == 1 || set_shape(out, &f->type));
  }
  out->flags = ARROW_FLAG_NULLABLE;
  return ok;
}

manta_status manta__arrow_export_schema(const struct manta__schema *s, struct ArrowSchema *out,
                                        manta_error *err)
{
  bool ok = begin_schema(out, "", s->count);
  if (!ok)
    return no_memory(err);
  struct schema_body *b = out->private_data;
  snprintf(b->format, sizeof b->format, "+s");
  for (int i = 0; i < s->count && ok; i++)
    ok = export_field(out->children[i], &s->field[i]);
  if (ok)
    return MANTA_OK;
  release_schema(out);
  return no_memory(err);
}

// --- arrays -------------------------------------------------------------------------------------

struct array_body {
  struct manta__memory *held[MANTA__BUFFERS];
  const void *buffers[MANTA__BUFFERS];
  struct ArrowArray *child;
  struct ArrowArray **children;
};

static void free_array_body(struct array_body *b)
{
  for (int i = 0; b && i < MANTA__BUFFERS; i++)
    manta__memory_unref(b->held[i]);
  if (b) {
    manta__free(b->child);
    manta__free(b->children);
  }
  manta__free(b);
}

static void release_array(struct ArrowArray *a)
{
  for (int64_t i = 0; i < a->n_children; i++)
    if (a->children[i]->release)
      a->children[i]->release(a->children[i]);
  free_array_body(a->private_data);
  a->release = NULL;
}

static bool begin_array(struct ArrowArray *out, int64_t length, int64_t n)
{
  struct array_body *b = manta__calloc(1, sizeof *b);
  if (b) {
    b->child = manta__calloc((size_t)n + 1, sizeof *b->child);
    b->children = manta__calloc((size_t)n + 1, sizeof *b->children);
  }
  if (!b || !b->child || !b->children) {
    free_array_body(b);
    return false;
  }
  for (int64_t i = 0; i < n; i++)
    b->children[i] = &b->child[i];
  *out = (struct ArrowArray){.length = length,
                             .n_buffers = 1,
                             .n_children = n,
                             .buffers = b->buffers,
                             .children = b->children,
                             .release = release_array,
                             .private_data = b};
  return true;
}

static void add_buffer(struct ArrowArray *a, int at, const void *p, struct manta__memory *m)
{
  struct array_body *b = a->private_data;
  b->buffers[at] = p;
  b->held[at] = manta__memory_ref(m);
  a->n_buffers = at + 1;
}

// A fixed-size list over the numbers, which are an array of their own.
static bool export_tensor(struct ArrowArray *out, const struct manta__column *c)
{
  int64_t each = manta__type_count(&c->type);
  if (!begin_array(out, c->length, 1))
    return false;
  add_buffer(out, 0, c->valid, c->held[MANTA__VALID]);
  if (!begin_array(out->children[0], (c->offset + c->length) * each, 0))
    return false;
  add_buffer(out->children[0], 0, NULL, NULL);
  add_buffer(out->children[0], 1, c->data, c->held[MANTA__DATA]);
  return true;
}

static bool export_column(struct ArrowArray *out, struct manta__column *c)
{
  bool tensor = c->type.kind == MANTA_KIND_NUMBER && c->type.ndim > 0;
  bool ok = tensor ? export_tensor(out, c) : begin_array(out, c->length, 0);
  if (!ok)
    return false;
  out->offset = c->offset;
  out->null_count = manta__column_nulls(c);
  if (tensor)
    return true;
  int at = 0;
  add_buffer(out, at++, c->valid, c->held[MANTA__VALID]);
  if (manta__type_varies(&c->type))
    add_buffer(out, at++, c->offsets, c->held[MANTA__OFFSETS]);
  add_buffer(out, at, c->data, c->held[MANTA__DATA]);
  return true;
}

manta_status manta__arrow_export(const manta_batch *b, struct ArrowArray *out, manta_error *err)
{
  bool ok = begin_array(out, b->rows, b->schema->count);
  if (!ok)
    return no_memory(err);
  for (int i = 0; i < b->schema->count && ok; i++) {
    struct manta__column c = b->column[i]; // a view; its count of nulls may be made
    ok = export_column(out->children[i], &c);
  }
  if (ok)
    return MANTA_OK;
  release_array(out);
  return no_memory(err);
}

manta_status manta_batch_export(const manta_batch *b, struct ArrowSchema *schema,
                                struct ArrowArray *array, manta_error *err)
{
  MANTA_TRY(manta__arrow_export_schema(b->schema, schema, err));
  manta_status st = manta__arrow_export(b, array, err);
  if (st < 0)
    schema->release(schema);
  return st;
}
