/* SPDX-License-Identifier: Apache-2.0 */
#include "data/format/format.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static const struct manta__format *const formats[] = {
    &manta__format_csv, &manta__format_json,     &manta__format_text,   &manta__format_npy,
    &manta__format_npz, &manta__format_tfrecord, &manta__format_binary, &manta__format_fixed};
#define FORMATS (sizeof formats / sizeof *formats)

// --- which --------------------------------------------------------------------------------------

manta_status manta__format_named(const struct manta__format **out, const char *name,
                                 manta_error *err)
{
  char list[256];
  size_t at = 0;
  for (size_t i = 0; i < FORMATS; i++) {
    if (!strcmp(formats[i]->name, name)) {
      *out = formats[i];
      return MANTA_OK;
    }
    at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", formats[i]->name);
  }
  if (!strcmp(name, "parquet"))
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "the C library does not read Parquet\nhint: manta.data.read_parquet "
                           "reads it in Python, by pyarrow");
  return manta_error_set(err, MANTA_EINVAL, "there is no format \"%.32s\"\nhint: there are %s",
                         name, list);
}

static bool ends_in(const char *name, size_t n, const char *suffix)
{
  size_t k = strlen(suffix);
  return n > k && !memcmp(name + n - k, suffix, k);
}

manta_status manta__format_of(const struct manta__format **out, const char *name, manta_error *err)
{
  size_t n = strlen(name);
  if (ends_in(name, n, ".gz"))
    n -= 3;
  else if (ends_in(name, n, ".zst"))
    n -= 4;
  for (size_t i = 0; i < FORMATS; i++)
    for (int k = 0; k < 4 && formats[i]->suffix[k]; k++)
      if (ends_in(name, n, formats[i]->suffix[k])) {
        *out = formats[i];
        return MANTA_OK;
      }
  if (ends_in(name, n, ".parquet") || ends_in(name, n, ".pq"))
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "%s: the C library does not read Parquet\nhint: "
                           "manta.data.read_parquet reads it in Python, by pyarrow",
                           name);
  return manta_error_set(err, MANTA_EINVAL,
                         "%s: the end of its name does not say what it is\nhint: set the format",
                         name);
}

// --- blocks -------------------------------------------------------------------------------------

manta_status manta__blocks_add(struct manta__blocks *b, struct manta__block block, manta_error *err)
{
  if (b->count == b->cap) {
    int64_t cap = b->cap ? 2 * b->cap : 16;
    struct manta__block *more = manta__realloc(b->block, (size_t)cap * sizeof *more);
    if (!more)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for the blocks of a data set");
    b->block = more;
    b->cap = cap;
  }
  b->block[b->count++] = block;
  return MANTA_OK;
}

void manta__blocks_fini(struct manta__blocks *b)
{
  manta__free(b->block);
  *b = (struct manta__blocks){0};
}

manta_status manta__format_cut(const struct manta__format *format, const struct manta__file *f,
                               int32_t number, struct manta__blocks *out, manta_error *err)
{
  if (format->cut && f->compression == MANTA__PLAIN)
    return format->cut(f, number, out, err);
  return manta__blocks_add(out, (struct manta__block){number, 0, f->source->size}, err);
}

// --- what formats share -------------------------------------------------------------------------

int64_t manta__format_rows(const manta_data_config *c, const struct manta__schema *s)
{
  size_t row = sizeof(uint32_t); // its origin
  for (int i = 0; i < s->count; i++) {
    size_t width = manta__type_width(&s->field[i].type);
    row += width ? width : manta__type_varies(&s->field[i].type) ? 16 : 1;
  }
  int64_t rows = (int64_t)(c->batch_bytes / row);
  rows = rows < c->batch_rows ? rows : c->batch_rows;
  return rows < 1 ? 1 : rows > MANTA__ROWS_MAX ? MANTA__ROWS_MAX : rows;
}

manta_status manta__format_types(const manta_data_config *c, struct manta__schema_field *fields,
                                 int count, manta_error *err)
{
  struct manta__schema *s;
  manta_error why = MANTA_ERROR_INIT;
  if (!c->types || c->types->type == MANTA_NIL)
    return MANTA_OK;
  if (c->types->type != MANTA_MAP)
    return manta_error_set(err, MANTA_EINVAL, "types is no map from columns to types");
  MANTA_TRY(manta__schema_create(&s, fields, count, err));
  manta_status st = MANTA_OK;
  for (uint32_t i = 0; i < c->types->count && st == MANTA_OK; i++) {
    const manta_pair *p = &c->types->u.pairs[i];
    int at;
    if (manta__schema_need(s, p->key, &at, &why) < 0)
      st = manta_error_set(err, MANTA_EINVAL, "types: %s", why.message);
    else if (manta__type_parse(&fields[at].type, manta_value_as_string(&p->value, "(no text)"),
                               &why) < 0)
      st = manta_error_set(err, why.status, "column \"%.64s\": %s", p->key, why.message);
  }
  manta__schema_unref(s);
  return st;
}

int64_t manta__format_line(const struct manta__file *f, int64_t at)
{
  enum { CHUNK = 256 << 10 };
  struct manta__input in;
  int64_t lines = 1;
  size_t got = 0;
  char *buf = manta__malloc(CHUNK);
  if (!buf || manta__input_open(&in, f->source, 0, f->source->size, f->compression, NULL) < 0) {
    manta__free(buf);
    return 0;
  }
  for (int64_t done = 0; done < at; done += (int64_t)got) {
    size_t want = at - done < CHUNK ? (size_t)(at - done) : CHUNK;
    if (manta__input_read(&in, buf, want, &got, NULL) < 0 || got == 0) {
      lines = 0;
      break;
    }
    for (const char *p = buf; (p = memchr(p, '\n', (size_t)(buf + got - p))); p++)
      lines++;
  }
  manta__input_close(&in);
  manta__free(buf);
  return lines;
}

// --- counting -----------------------------------------------------------------------------------

void manta__tally_init(struct manta__tally *t)
{
  *t = (struct manta__tally){0};
  pthread_mutex_init(&t->lock, NULL);
}

void manta__tally_fini(struct manta__tally *t)
{
  pthread_mutex_destroy(&t->lock);
}

void manta__tally_skip(struct manta__tally *t, int64_t n, const char *why)
{
  pthread_mutex_lock(&t->lock);
  if (!t->first_skip[0] && why)
    snprintf(t->first_skip, sizeof t->first_skip, "%s", why);
  pthread_mutex_unlock(&t->lock);
  atomic_fetch_add_explicit(&t->skipped, n, memory_order_relaxed);
}

size_t manta__format_show(char *to, size_t size, const char *p, size_t n)
{
  size_t shown = n < size - 1 ? n : size - 1;
  for (size_t i = 0; i < shown; i++)
    to[i] = p[i] >= ' ' && p[i] < 127 ? p[i] : '?';
  to[shown] = 0;
  return shown;
}

const char *manta__format_wider(const struct manta__type *type, bool is_number)
{
  if (type->kind == MANTA_KIND_STRING)
    return "bytes";
  return is_number && type->kind == MANTA_KIND_NUMBER ? "f64" : "string";
}
