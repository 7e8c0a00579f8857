/* SPDX-License-Identifier: Apache-2.0
 *
 * data/binary/tfrecord.c - TFRecord files of tf.train.Example: a column per feature.
 *
 * (1) A feature that always has one value is a plain column, one that always has n > 1 numbers a
 *     tensor of n; one that is empty or missing is null. Floats are f32, integers i64.
 * (2) A feature whose number of values changes has no type: it is left out, with a warning, unless
 *     `types` asks for it as bytes, which hold its numbers one after the other.
 * (3) What is found is found in the first MB of the first file.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/half.h"
#include "base/log.h"
#include "base/utf8.h"
#include "data/binary/example.h"
#include "data/binary/record.h"
#include "data/format/assembly.h"

#define SAMPLE_BYTES (1 << 20)

// --- the schema ---------------------------------------------------------------------------------

/* What was seen of a feature; `count` is -1 if it changes. */
struct feature_guess {
  char *name;
  enum manta__feature_kind kind;
  int64_t count;
};

struct feature_look {
  const char *file;
  struct feature_guess *guess;
  int count, cap;
};

static void fini_look(struct feature_look *l)
{
  for (int i = 0; i < l->count; i++)
    manta__free(l->guess[i].name);
  manta__free(l->guess);
}

static manta_status find_guess(struct feature_look *l, const char *name, size_t n,
                               struct feature_guess **out, manta_error *err)
{
  for (int i = 0; i < l->count; i++)
    if (strlen(l->guess[i].name) == n && !memcmp(l->guess[i].name, name, n)) {
      *out = &l->guess[i];
      return MANTA_OK;
    }
  if (n == 0 || n > MANTA__NAME_MAX || memchr(name, 0, n) || l->count == MANTA__COLUMNS_MAX)
    return manta_error_set(err, MANTA_EINVAL, "%s: a feature whose name is no name of a column",
                           l->file);
  if (l->count == l->cap) {
    int cap = l->cap ? 2 * l->cap : 16;
    struct feature_guess *more = manta__realloc(l->guess, (size_t)cap * sizeof *more);
    if (!more)
      return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its features", l->file);
    l->guess = more;
    l->cap = cap;
  }
  struct feature_guess *g = &l->guess[l->count];
  *g = (struct feature_guess){.name = manta__strndup(name, n)};
  if (!g->name)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its features", l->file);
  l->count++;
  *out = g;
  return MANTA_OK;
}

static manta_status look_at(struct feature_look *l, const struct manta__records *r,
                            manta_error *err)
{
  struct manta__example e = {.example = {r->p, r->p + r->n}};
  struct manta__feature f;
  const char *name;
  size_t n;
  int rc;
  while ((rc = manta__example_next(&e, &name, &n, &f)) == 1) {
    struct feature_guess *g = NULL;
    int64_t count = manta__feature_count(&f);
    MANTA_TRY(find_guess(l, name, n, &g, err));
    if (count <= 0) // nothing, or nonsense, which the reader will tell
      continue;
    if (g->kind == MANTA__FEATURE_NONE)
      g->count = count;
    else if (g->count != count || g->kind != f.kind)
      g->count = -1;
    g->kind = f.kind;
  }
  return MANTA_OK;
}

static bool type_of(const struct feature_guess *g, struct manta__type *out)
{
  if (g->kind == MANTA__FEATURE_NONE)
    *out = manta__type_of(MANTA_F32);
  else if (g->kind == MANTA__FEATURE_BYTES)
    *out = manta__type_kind(MANTA_KIND_BYTES);
  else
    *out = manta__type_of(g->kind == MANTA__FEATURE_INTS ? MANTA_I64 : MANTA_F32);
  if (g->count > 1) {
    out->ndim = 1;
    out->shape[0] = g->count;
  }
  return g->count >= 0 && !(g->kind == MANTA__FEATURE_BYTES && g->count > 1) &&
         manta__type_check(out, NULL) == MANTA_OK;
}

// Features that change are columns of bytes if they were asked for, and else none.
static manta_status make_schema(const struct manta__file *f, const struct feature_look *l,
                                struct manta__schema **out, manta_error *err)
{
  int n = 0;
  struct manta__schema_field *fields = manta__calloc((size_t)l->count + 1, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its columns", f->source->name);
  for (int i = 0; i < l->count; i++) {
    const struct feature_guess *g = &l->guess[i];
    bool typed = type_of(g, &fields[n].type), asked = manta_value_get(f->config->types, g->name);
    if (!typed && !asked)
      manta__warn("%s: feature \"%s\" is left out: its number of values changes; types = {\"%s\": "
                  "\"bytes\"} reads it",
                  f->source->name, g->name, g->name);
    if (!typed)
      fields[n].type = manta__type_kind(MANTA_KIND_BYTES);
    fields[n].name = g->name;
    n += typed || asked;
  }
  manta_status st = n ? manta__format_types(f->config, fields, n, err)
                      : manta_error_set(err, MANTA_EINVAL,
                                        "%s: has no columns: no record is a tf.train.Example with "
                                        "features of one length",
                                        f->source->name);
  if (st == MANTA_OK)
    st = manta__schema_create(out, fields, n, err);
  manta__free(fields);
  return st;
}

static manta_status look(const struct manta__file *f, struct manta__schema **out, manta_error *err)
{
  struct feature_look l = {.file = f->source->name};
  struct manta__records r;
  manta_error why = MANTA_ERROR_INIT;
  int64_t bytes = 0;
  manta_status st = manta__records_open(&r, f, 0, f->source->size, err);
  if (st < 0)
    return st;
  while (bytes < SAMPLE_BYTES && (st = manta__records_next(&r, &why)) == 1) {
    bytes += (int64_t)r.n;
    if ((st = look_at(&l, &r, &why)) < 0)
      break;
  }
  manta__records_close(&r);
  // A damaged record behind good ones is the reader's to tell.
  if (st < 0 && (l.count == 0 || st != MANTA_ECORRUPT))
    st = manta_error_set(err, st, "%s", why.message);
  else
    st = make_schema(f, &l, out, err);
  fini_look(&l);
  return st;
}

// --- reading ------------------------------------------------------------------------------------

struct tfrecord_reader {
  struct manta__reader reader;
  struct manta__records records;
  struct manta__assembly batch;
  struct manta__feature *feature; /* [out->count]: those of the record */
  int64_t seen;
};

static void close_tfrecord(struct manta__reader *reader)
{
  struct tfrecord_reader *r = (struct tfrecord_reader *)reader;
  manta__records_close(&r->records);
  manta__assembly_close(&r->batch);
  manta__free(r->feature);
  manta__free(r);
}

static manta_status open_tfrecord(struct manta__reader **out, const struct manta__read_job *job,
                                  manta_error *err)
{
  struct tfrecord_reader *r = manta__calloc(1, sizeof *r);
  if (!r)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", job->file.source->name);
  r->reader = (struct manta__reader){&manta__format_tfrecord, *job};
  manta_status st = manta__assembly_open(&r->batch, &r->reader.job, err);
  r->feature = manta__calloc((size_t)job->out->count + 1, sizeof *r->feature);
  if (st == MANTA_OK && !r->feature)
    st = manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", job->file.source->name);
  if (st == MANTA_OK)
    st = manta__records_open(&r->records, &r->reader.job.file, job->block.from, job->block.to, err);
  if (st < 0) {
    close_tfrecord(&r->reader);
    return st;
  }
  *out = &r->reader;
  return MANTA_OK;
}

static bool find_features(struct tfrecord_reader *r)
{
  const struct manta__schema *s = r->reader.job.out;
  struct manta__example e = {.example = {r->records.p, r->records.p + r->records.n}};
  struct manta__feature f;
  const char *name;
  size_t n;
  int rc, expected = 0;
  memset(r->feature, 0, (size_t)s->count * sizeof *r->feature);
  while ((rc = manta__example_next(&e, &name, &n, &f)) == 1)
    for (int i = 0; i < s->count; i++) {
      int at = (expected + i) % s->count; // records have their features in one order, mostly
      if (strlen(s->field[at].name) == n && !memcmp(s->field[at].name, name, n)) {
        r->feature[at] = f;
        expected = at + 1;
        break;
      }
    }
  return rc == 0;
}

// --- values -------------------------------------------------------------------------------------

static bool put_real(double v, manta_dtype type, void *to)
{
  float single = (float)v;
  uint16_t half = type == MANTA_F16 ? manta__f16_of_f32(single) : manta__bf16_of_f32(single);
  memcpy(to,
         type == MANTA_F64   ? (void *)&v
         : type == MANTA_F32 ? (void *)&single
                             : (void *)&half,
         manta_dtype_bytes(type));
  return true;
}

static bool put_int(int64_t v, manta_dtype type, void *to)
{
  size_t bytes = manta_dtype_bytes(type);
  bool is_signed = type == MANTA_I8 || type == MANTA_I16 || type == MANTA_I32 || type == MANTA_I64;
  int bits = 8 * (int)bytes;
  if (bits < 64) {
    int64_t high = INT64_C(1) << (is_signed ? bits - 1 : bits);
    if (v >= high || v < (is_signed ? -high : 0))
      return false;
  }
  memcpy(to, &v, bytes); // little endian
  return true;
}

static bool put_one(enum manta__feature_kind kind, int64_t bits, const struct manta__type *t,
                    void *to)
{
  float single = manta__f32_of_bits((uint32_t)bits);
  if (manta__type_is_float(t))
    return put_real(kind == MANTA__FEATURE_FLOATS ? (double)single : (double)bits, t->dtype, to);
  return kind == MANTA__FEATURE_INTS && put_int(bits, t->dtype, to);
}

// Exactly as many as the type has.
static bool put_numbers(const struct manta__feature *f, struct manta__build *b)
{
  struct manta__feature_values v = {.list = f->list};
  int64_t each = manta__type_count(&b->type), count = 0, bits;
  size_t element = manta_dtype_bytes(b->type.dtype);
  char *to = manta__build_data(b);
  int rc = 0;
  if (f->kind == MANTA__FEATURE_BYTES)
    return false;
  while ((rc = manta__feature_number(&v, f->kind, &bits)) == 1) {
    if (count == each || !put_one(f->kind, bits, &b->type, to + (size_t)count * element))
      return false;
    count++;
  }
  if (rc < 0 || count != each)
    return false;
  manta__build_done(b);
  return true;
}

// Numbers as bytes: 4 each for floats, 8 for integers.
static manta_status put_packed(const struct manta__feature *f, struct manta__build *b,
                               manta_error *err)
{
  struct manta__feature_values v = {.list = f->list};
  size_t element = f->kind == MANTA__FEATURE_INTS ? 8 : 4;
  int64_t count = manta__feature_count(f), bits;
  char *to;
  if (count < 0)
    return 0;
  MANTA_TRY(manta__build_text_room(b, (size_t)count * element, &to, err));
  for (int64_t i = 0; manta__feature_number(&v, f->kind, &bits) == 1; i++)
    memcpy(to + (size_t)i * element, &bits, element);
  manta__build_text_done(b, (size_t)count * element);
  return (manta_status)1;
}

static manta_status put_text(const struct manta__feature *f, struct manta__build *b,
                             manta_error *err)
{
  struct manta__feature_values v = {.list = f->list};
  const char *p, *more;
  size_t n, ignored;
  if (f->kind != MANTA__FEATURE_BYTES)
    return b->type.kind == MANTA_KIND_BYTES ? put_packed(f, b, err) : 0;
  if (manta__feature_bytes(&v, &p, &n) != 1 || manta__feature_bytes(&v, &more, &ignored) != 0 ||
      (b->type.kind == MANTA_KIND_STRING && manta__utf8_valid(p, n) < n))
    return 0;
  MANTA_TRY(manta__build_text(b, p, n, err));
  return (manta_status)1;
}

// 1: it is put; 0: it is no value of the column.
static manta_status put_feature(const struct manta__feature *f, struct manta__build *b,
                                manta_error *err)
{
  int64_t count = manta__feature_count(f), bits;
  if (count < 0)
    return 0;
  if (count == 0) {
    MANTA_TRY(manta__build_null(b, err));
    return (manta_status)1;
  }
  if (manta__type_varies(&b->type))
    return put_text(f, b, err);
  if (b->type.kind == MANTA_KIND_NUMBER)
    return put_numbers(f, b) ? (manta_status)1 : 0;
  struct manta__feature_values v = {.list = f->list};
  if (f->kind != MANTA__FEATURE_INTS || count != 1 ||
      manta__feature_number(&v, f->kind, &bits) != 1)
    return 0;
  manta__build_bool(b, bits != 0);
  return (manta_status)1;
}

// --- rows ---------------------------------------------------------------------------------------

static manta_status tell_feature(struct tfrecord_reader *r, int column, manta_error *err)
{
  static const char *const kinds[] = {"values", "byte strings", "floats", "integers"};
  const struct manta__schema_field *f = &r->reader.job.out->field[column];
  char type[MANTA__TYPE_TEXT_MAX];
  return manta_error_set(
      err, MANTA_EINVAL,
      "%s: the record at byte %" PRId64 ": feature \"%.64s\" has %" PRId64 " %s, which are no %s"
      "\nhint: types sets another type, skip_errors (on_error=\"skip\") leaves out such records",
      r->reader.job.file.source->name, r->records.offset, f->name,
      manta__feature_count(&r->feature[column]), kinds[r->feature[column].kind],
      manta__type_text(&f->type, type));
}

// 1: the record is a row; 0: it is wrong, and `why` says how.
static manta_status put_record(struct tfrecord_reader *r, manta_error *why, manta_error *err)
{
  if (!find_features(r)) {
    manta_error_set(why, MANTA_EINVAL, "%s: the record at byte %" PRId64 " is no tf.train.Example",
                    r->reader.job.file.source->name, r->records.offset);
    return 0;
  }
  for (int i = 0; i < r->reader.job.out->count; i++) {
    manta_status st = put_feature(&r->feature[i], &r->batch.build[i], err);
    if (st == 0)
      tell_feature(r, i, why);
    if (st != 1)
      return st;
  }
  manta__assembly_row(&r->batch, r->seen);
  return (manta_status)1;
}

// 1: a record was taken, or skipped; 0: there is none.
static manta_status take_record(struct tfrecord_reader *r, manta_error *err)
{
  const struct manta__read_job *job = &r->reader.job;
  manta_error why = MANTA_ERROR_INIT;
  manta_status st = manta__records_next(&r->records, &why);
  if (st == 0)
    return 0;
  if (st == 1)
    st = put_record(r, &why, err);
  if (st < 0 && why.status == MANTA_OK)
    return st;
  bool skips =
      job->file.config->skip_errors && (why.status == MANTA_ECORRUPT || why.status == MANTA_EINVAL);
  if (st != 1) {
    manta__assembly_undo(&r->batch);
    if (!skips)
      return manta_error_set(err, why.status, "%s", why.message);
    manta__tally_skip(job->tally, 1, why.message);
  }
  atomic_fetch_add_explicit(&job->tally->bytes, (int64_t)r->records.used, memory_order_relaxed);
  manta__assembly_pass(&r->batch, ++r->seen);
  return (manta_status)1;
}

static manta_status next_tfrecord(struct manta__reader *reader, manta_batch **out, manta_error *err)
{
  struct tfrecord_reader *r = (struct tfrecord_reader *)reader;
  manta_status st = manta__assembly_begin(&r->batch, err);
  if (st < 0)
    return st;
  while (!manta__assembly_full(&r->batch) && (st = take_record(r, err)) == 1)
    ;
  return st < 0 ? st : manta__assembly_end(&r->batch, out, err);
}

const struct manta__format manta__format_tfrecord = {
    .name = "tfrecord",
    .suffix = {".tfrecord", ".tfrecords", ".tfr"},
    .look = look,
    .cut = manta__records_cut,
    .open = open_tfrecord,
    .next = next_tfrecord,
    .close = close_tfrecord,
};
