/* SPDX-License-Identifier: Apache-2.0 */
#include "data/column/import.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <manta/value.h>

#include "base/alloc.h"

#define METADATA_ENTRIES 1024
#define METADATA_BYTES   (1 << 20)

// --- types --------------------------------------------------------------------------------------

// The value of a key in a schema's metadata; NULL if it has none, or what is there makes no sense.
static const char *find_metadata(const char *m, const char *key, size_t *len)
{
  int32_t n = 0;
  if (m)
    memcpy(&n, m, 4);
  m = m ? m + 4 : NULL;
  for (int32_t i = 0; i < n && i < METADATA_ENTRIES; i++) {
    int32_t k, v;
    memcpy(&k, m, 4);
    if (k < 0 || k > METADATA_BYTES)
      return NULL;
    memcpy(&v, m + 4 + k, 4);
    if (v < 0 || v > METADATA_BYTES)
      return NULL;
    if ((size_t)k == strlen(key) && !memcmp(m + 4, key, (size_t)k)) {
      *len = (size_t)v;
      return m + 8 + k;
    }
    m += 8 + k + v;
  }
  return NULL;
}

static bool has_extension(const struct ArrowSchema *s, const char *name)
{
  size_t n;
  const char *found = find_metadata(s->metadata, "ARROW:extension:name", &n);
  return found && n == strlen(name) && !memcmp(found, name, n);
}

// The shape of arrow.fixed_shape_tensor, if it has as many elements as the list.
static void refine_shape(const manta_value *v, struct manta__type *t)
{
  const manta_value *shape = manta_value_get(v, "shape");
  struct manta__type better = *t;
  if (!shape || shape->type != MANTA_LIST || shape->count > MANTA_MAX_DIMS || !shape->count ||
      manta_value_get(v, "permutation"))
    return;
  better.ndim = (int)shape->count;
  for (int d = 0; d < better.ndim; d++)
    better.shape[d] = manta_value_as_int(manta_value_at(shape, (size_t)d), 0);
  if (manta__type_check(&better, NULL) == MANTA_OK &&
      manta__type_count(&better) == manta__type_count(t))
    *t = better;
}

// Text that is no JSON is nothing that we have to understand.
static manta_status find_shape(const struct ArrowSchema *s, struct manta__type *t, manta_error *err)
{
  size_t n;
  const char *text = find_metadata(s->metadata, "ARROW:extension:metadata", &n);
  manta_value v = {0};
  if (!text || t->ndim == 0 || !has_extension(s, "arrow.fixed_shape_tensor"))
    return MANTA_OK;
  if (manta_value_from_json(&v, text, n, err) == MANTA_ENOMEM)
    return MANTA_ENOMEM;
  refine_shape(&v, t);
  manta_value_fini(&v);
  return MANTA_OK;
}

static bool parse_count(const char *s, int64_t *out)
{
  char *end;
  if (*s < '0' || *s > '9')
    return false;
  *out = strtoll(s, &end, 10);
  return *end == 0;
}

static bool list_type(const struct ArrowSchema *s, struct manta__type *out)
{
  int64_t n;
  if (!parse_count(s->format + 3, &n) || s->n_children != 1 || !s->children || !s->children[0] ||
      !s->children[0]->format || s->children[0]->dictionary ||
      !manta__type_from_arrow(out, s->children[0]->format) || out->kind != MANTA_KIND_NUMBER ||
      out->logical[0])
    return false;
  if (out->dtype == MANTA_U16 && has_extension(s->children[0], "manta.bf16"))
    out->dtype = MANTA_BF16;
  out->ndim = 1;
  out->shape[0] = n;
  return manta__type_check(out, NULL) == MANTA_OK;
}

static bool binary_type(const struct ArrowSchema *s, struct manta__type *out)
{
  *out = manta__type_of(MANTA_U8);
  out->ndim = 1;
  return parse_count(s->format + 2, &out->shape[0]) && manta__type_check(out, NULL) == MANTA_OK;
}

static bool plain_type(const struct ArrowSchema *s, struct manta__type *out)
{
  const char *f = s->format;
  if (!strcmp(f, "n"))
    *out = manta__type_of(MANTA_F64);
  else if (!strcmp(f, "U") || !strcmp(f, "vu"))
    *out = manta__type_kind(MANTA_KIND_STRING);
  else if (!strcmp(f, "Z") || !strcmp(f, "vz"))
    *out = manta__type_kind(MANTA_KIND_BYTES);
  else if (!manta__type_from_arrow(out, f))
    return false;
  if (out->kind == MANTA_KIND_NUMBER && out->dtype == MANTA_U16 && has_extension(s, "manta.bf16"))
    out->dtype = MANTA_BF16;
  return true;
}

manta_status manta__foreign_type(const struct ArrowSchema *s, const char *name,
                                 struct manta__type *out, manta_error *err)
{
  if (!s->format)
    return manta_error_set(err, MANTA_EINVAL, "column \"%.64s\" has no Arrow format", name);
  if (s->dictionary && !s->dictionary->dictionary)
    return manta__foreign_type(s->dictionary, name, out, err);
  bool known = !strncmp(s->format, "+w:", 3)  ? list_type(s, out)
               : !strncmp(s->format, "w:", 2) ? binary_type(s, out)
                                              : plain_type(s, out);
  if (known && !s->dictionary)
    return find_shape(s, out, err);
  return manta_error_set(err, MANTA_EUNSUPPORTED,
                         "column \"%.64s\" has the Arrow type \"%.64s\", which manta does not read"
                         "\nhint: leave it out, or cast it: lists to fixed-size lists of numbers, "
                         "structs to columns of their own, decimals to float64",
                         name, s->format);
}

// --- buffers ------------------------------------------------------------------------------------

static manta_status wrong(const struct manta__foreign *f, manta_error *err, const char *what)
{
  return manta_error_set(err, MANTA_EINVAL,
                         "the Arrow array of column \"%.64s\" makes no sense: %s", f->name, what);
}

manta_status manta__foreign_buffer(const struct manta__foreign *f, int64_t at, bool needed,
                                   const void **out, manta_error *err)
{
  *out = f->array->buffers[at];
  return *out || !needed ? MANTA_OK : wrong(f, err, "a buffer is missing");
}

static manta_status check_counts(const struct manta__foreign *f, int64_t buffers, manta_error *err)
{
  const struct ArrowArray *a = f->array;
  int64_t end;
  if (a->length < 0 || a->offset < 0 || a->null_count < -1 || a->null_count > a->length)
    return wrong(f, err, "a length, an offset or a count of nulls is out of range");
  if (__builtin_add_overflow(a->offset, a->length, &end) || end > INT64_MAX / 4)
    return wrong(f, err, "offset and length overflow");
  if (f->offset + f->length > a->length)
    return wrong(f, err, "it is shorter than its batch");
  if (a->n_buffers != buffers || (buffers && !a->buffers))
    return wrong(f, err, "it has not as many buffers as its type says");
  if (buffers && !a->buffers[0] && a->null_count > 0)
    return wrong(f, err, "it has nulls but no bitmap");
  return MANTA_OK;
}

manta_status manta__foreign_begin(const struct manta__foreign *f, int64_t buffers,
                                  struct manta__column *out, manta_error *err)
{
  struct manta__column c = {.length = f->length, .nulls = -1};
  MANTA_TRY(manta__foreign_type(f->schema, f->name, &c.type, err));
  MANTA_TRY(check_counts(f, buffers, err));
  c.offset = f->array->offset + f->offset;
  c.valid = buffers && f->array->null_count != 0 ? f->array->buffers[0] : NULL;
  if (c.valid)
    c.held[MANTA__VALID] = manta__memory_ref(f->memory);
  else
    c.nulls = 0;
  *out = c;
  return MANTA_OK;
}

// Shares a buffer of `bytes` bytes, or copies it if it is not aligned for its elements.
static manta_status keep(const struct manta__foreign *f, struct manta__column *c, int which,
                         const void *p, size_t bytes, size_t align, const void **out,
                         manta_error *err)
{
  if ((uintptr_t)p % align == 0) {
    c->held[which] = manta__memory_ref(f->memory);
    *out = p;
    return MANTA_OK;
  }
  if (!(c->held[which] = manta__memory_create(f->pool, bytes)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a column of %zu bytes", bytes);
  memcpy(c->held[which]->data, p, bytes);
  *out = c->held[which]->data;
  return MANTA_OK;
}

// --- forms --------------------------------------------------------------------------------------

static manta_status import_fixed(const struct manta__foreign *f, struct manta__column *c,
                                 manta_error *err)
{
  const void *data;
  int64_t end = c->offset + c->length;
  size_t width = manta__type_width(&c->type), element = manta_dtype_bytes(c->type.dtype);
  size_t bytes = c->type.kind == MANTA_KIND_BOOL ? manta__bits_bytes(end) : (size_t)end * width;
  MANTA_TRY(manta__foreign_buffer(f, 1, c->length > 0, &data, err));
  return keep(f, c, MANTA__DATA, data, bytes, c->type.kind == MANTA_KIND_BOOL ? 1 : element,
              &c->data, err);
}

static manta_status import_list(const struct manta__foreign *f, struct manta__column *c,
                                manta_error *err)
{
  struct manta__foreign item = *f;
  struct manta__column flat = {0};
  int64_t each = manta__type_count(&c->type), end = c->offset + c->length;
  if (f->array->n_children != 1 || !f->array->children || !f->array->children[0])
    return wrong(f, err, "a list has one child");
  if (end > INT64_MAX / 4 / each)
    return wrong(f, err, "offset and length overflow");
  item.array = f->array->children[0];
  item.schema = f->schema->children[0];
  item.offset = 0;
  item.length = end * each;
  MANTA_TRY(manta__foreign_begin(&item, 2, &flat, err));
  int64_t nulls = manta__column_nulls(&flat);
  manta__memory_unref(flat.held[MANTA__VALID]);
  if (nulls)
    return wrong(f, err, "a tensor has nulls inside");
  const void *data;
  size_t element = manta_dtype_bytes(c->type.dtype);
  MANTA_TRY(manta__foreign_buffer(&item, 1, item.length > 0, &data, err));
  MANTA_TRY(keep(f, c, MANTA__DATA, data, (size_t)(item.array->offset + item.length) * element,
                 element, &c->data, err));
  if (c->data)
    c->data = (const char *)c->data + (size_t)item.array->offset * element;
  return MANTA_OK;
}

static manta_status import_text(const struct manta__foreign *f, struct manta__column *c,
                                manta_error *err)
{
  static const int32_t none[1];
  const void *offsets, *data;
  int64_t end = c->offset + c->length;
  MANTA_TRY(manta__foreign_buffer(f, 1, c->length > 0, &offsets, err));
  if (!offsets || c->length == 0) { // an empty array may have no offsets at all
    c->offsets = none;
    c->offset = 0;
    c->data = "";
    return MANTA_OK;
  }
  MANTA_TRY(keep(f, c, MANTA__OFFSETS, offsets, (size_t)(end + 1) * 4, 4, &offsets, err));
  c->offsets = offsets;
  for (int64_t i = c->offset; i < end; i++)
    if (c->offsets[i] < 0 || c->offsets[i + 1] < c->offsets[i])
      return wrong(f, err, "its offsets do not rise");
  MANTA_TRY(manta__foreign_buffer(f, 2, c->offsets[end] > c->offsets[c->offset], &data, err));
  return keep(f, c, MANTA__DATA, data ? data : "", 0, 1, &c->data, err);
}

// A column of nothing but nulls: numbers that nobody may look at.
static manta_status import_nulls(const struct manta__foreign *f, struct manta__column *out,
                                 manta_error *err)
{
  MANTA_TRY(manta__foreign_begin(f, 0, out, err));
  size_t bits = manta__bits_bytes(out->length), bytes = (size_t)out->length * 8;
  out->offset = 0;
  out->nulls = out->length;
  out->held[MANTA__VALID] = manta__memory_create(f->pool, bits);
  out->held[MANTA__DATA] = manta__memory_create(f->pool, bytes);
  if (!out->held[MANTA__VALID] || !out->held[MANTA__DATA])
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a column of %" PRId64 " rows",
                           out->length);
  memset(out->held[MANTA__VALID]->data, 0, bits);
  memset(out->held[MANTA__DATA]->data, 0xff, bytes); // NaN
  out->valid = out->held[MANTA__VALID]->data;
  out->data = out->held[MANTA__DATA]->data;
  return MANTA_OK;
}

static manta_status import_any(const struct manta__foreign *f, struct manta__column *out,
                               manta_error *err)
{
  const char *format = f->schema->format;
  if (f->schema->dictionary)
    return manta__foreign_dictionary(f, out, err);
  if (!strcmp(format, "n"))
    return import_nulls(f, out, err);
  if (format[0] == 'v')
    return manta__foreign_views(f, out, err);
  if (!strcmp(format, "U") || !strcmp(format, "Z"))
    return manta__foreign_large(f, out, err);
  bool list = format[0] == '+', text = !strcmp(format, "u") || !strcmp(format, "z");
  MANTA_TRY(manta__foreign_begin(f, list ? 1 : text ? 3 : 2, out, err));
  return list   ? import_list(f, out, err)
         : text ? import_text(f, out, err)
                : import_fixed(f, out, err);
}

manta_status manta__foreign_column(const struct manta__foreign *f, struct manta__column *out,
                                   manta_error *err)
{
  manta_status st = import_any(f, out, err);
  if (st < 0)
    manta__column_fini(out);
  return st;
}

// --- batches ------------------------------------------------------------------------------------

static bool is_batch(const struct ArrowSchema *s)
{
  return s->format && !strcmp(s->format, "+s") && !s->dictionary;
}

static const char *name_of(const struct ArrowSchema *s)
{
  return s->name && s->name[0] ? s->name : "value";
}

manta_status manta__arrow_import_schema(const struct ArrowSchema *in, struct manta__schema **out,
                                        manta_error *err)
{
  int64_t n = is_batch(in) ? in->n_children : 1;
  if (n < 0 || n > MANTA__COLUMNS_MAX || (is_batch(in) && n && !in->children))
    return manta_error_set(err, MANTA_EINVAL, "an Arrow schema with %" PRId64 " columns", n);
  struct manta__schema_field *fields = manta__calloc((size_t)n + 1, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %" PRId64 " columns", n);
  manta_status st = MANTA_OK;
  for (int64_t i = 0; i < n && st == MANTA_OK; i++) {
    const struct ArrowSchema *s = is_batch(in) ? in->children[i] : in;
    if (!s) {
      st = manta_error_set(err, MANTA_EINVAL, "an Arrow schema without column %" PRId64, i + 1);
      break;
    }
    fields[i].name = is_batch(in) ? s->name : name_of(s);
    st = manta__foreign_type(s, fields[i].name ? fields[i].name : "?", &fields[i].type, err);
  }
  if (st == MANTA_OK)
    st = manta__schema_create(out, fields, (int)n, err);
  manta__free(fields);
  return st;
}

static void release_foreign(void *ctx)
{
  struct ArrowArray *a = ctx;
  a->release(a);
  manta__free(a);
}

static manta_status check_batch(const struct ArrowArray *a, const struct ArrowSchema *theirs,
                                const struct manta__schema *ours, manta_error *err)
{
  if (a->length > MANTA__ROWS_MAX)
    return manta_error_set(err, MANTA_ETOOBIG,
                           "an Arrow array of %" PRId64 " rows; the limit of a batch is %d\nhint: "
                           "hand it over in several batches",
                           a->length, MANTA__ROWS_MAX);
  if (a->length < 0 || a->offset < 0 || a->offset > INT64_MAX / 4)
    return manta_error_set(err, MANTA_EINVAL, "an Arrow array with a negative length or offset");
  if (is_batch(theirs) && (a->n_children != ours->count || (ours->count && !a->children)))
    return manta_error_set(err, MANTA_EINVAL,
                           "an Arrow array with %" PRId64 " columns; its schema has %d",
                           a->n_children, ours->count);
  if (is_batch(theirs) && a->null_count != 0 && a->n_buffers > 0 && a->buffers && a->buffers[0] &&
      manta__bits_count(a->buffers[0], a->offset, a->length) != a->length)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "an Arrow array of structs with nulls is no "
                           "record batch");
  return MANTA_OK;
}

static manta_status import_columns(manta_batch *b, const struct ArrowArray *a,
                                   const struct ArrowSchema *theirs, struct manta__memory *memory,
                                   struct manta__pool *pool, manta_error *err)
{
  struct manta__foreign f = {.length = b->rows, .memory = memory, .pool = pool};
  manta_status st = MANTA_OK;
  for (int i = 0; i < b->schema->count && st == MANTA_OK; i++) {
    f.array = is_batch(theirs) ? a->children[i] : a;
    f.schema = is_batch(theirs) ? theirs->children[i] : theirs;
    f.offset = is_batch(theirs) ? a->offset : 0;
    f.name = b->schema->field[i].name;
    if (!f.array)
      return manta_error_set(err, MANTA_EINVAL, "column \"%.64s\" has no Arrow array", f.name);
    st = manta__foreign_column(&f, &b->column[i], err);
  }
  return st;
}

manta_status manta__arrow_import(manta_batch **out, struct ArrowArray *in,
                                 const struct ArrowSchema *theirs, struct manta__schema *ours,
                                 struct manta__pool *pool, manta_error *err)
{
  MANTA_TRY(check_batch(in, theirs, ours, err));
  struct ArrowArray *kept = manta__malloc(sizeof *kept);
  struct manta__memory *memory = kept ? manta__memory_foreign(release_foreign, kept) : NULL;
  manta_batch *b = NULL;
  if (!memory) {
    manta__free(kept);
    return manta_error_set(err, MANTA_ENOMEM, "no memory to import an Arrow array");
  }
  *kept = *in;
  manta_status st = manta__batch_create(&b, ours, in->length, err);
  if (st == MANTA_OK)
    st = import_columns(b, kept, theirs, memory, pool, err);
  if (st < 0) {
    manta_batch_destroy(b);
    memory->release = NULL; // the array stays the caller's
    manta__free(kept);
  } else {
    in->release = NULL;
    *out = b;
  }
  manta__memory_unref(memory);
  return st;
}
