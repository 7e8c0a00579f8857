/* SPDX-License-Identifier: Apache-2.0
 *
 * data/lines/jsonlines.c - JSON lines: a row per line, each an object; empty lines are none.
 *
 * A line is gone over once, and of each key that is a column the place of its value is kept; those
 * values alone are then read.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/format/assembly.h"
#include "data/lines/jsontype.h"
#include "data/lines/lines.h"
#include "data/number/number.h"

#define EXPLAINED 40

// --- one line -----------------------------------------------------------------------------------

static bool is_blank(const char *p, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r')
      return false;
  return true;
}

/* Names of columns, in the order in which lines have them most often. */
struct json_keys {
  const char **name;
  int count, cap;
};

// The number of a key; the one that is expected is tried first. -1: it is none of them.
static int find_key(const struct json_keys *k, const struct manta__json_value *key, int expected)
{
  char text[MANTA__NAME_MAX];
  const char *p = key->p;
  size_t n = key->n;
  if (key->escaped) {
    int64_t len = n <= sizeof text ? manta__json_unescape(key, text) : -1;
    if (len < 0)
      return -1;
    p = text;
    n = (size_t)len;
  }
  for (int i = 0; i < k->count; i++) {
    int at = expected + i < k->count ? expected + i : expected + i - k->count;
    if (strlen(k->name[at]) == n && !memcmp(k->name[at], p, n))
      return at;
  }
  return -1;
}

// Where the values of a line's keys are. False: it is no object, and j says why.
static bool find_values(struct manta__json *j, const struct json_keys *keys,
                        struct manta__json_value *values)
{
  struct manta__json_value key, value;
  int rc, expected = 0;
  memset(values, 0, (size_t)keys->count * sizeof *values);
  if (!manta__json_open(j, '{')) {
    j->wrong = j->p < j->end && *j->p == '['
                   ? "an array\nhint: a line is one object; jq -c '.[]' makes lines of an array"
                   : "no object";
    return false;
  }
  for (bool first = true; (rc = manta__json_member(j, first, &key, &value)) == 1; first = false) {
    int at = keys->count ? find_key(keys, &key, expected) : -1;
    if (at >= 0) {
      values[at] = value;
      expected = at + 1 < keys->count ? at + 1 : 0;
    }
  }
  return rc == 0 && manta__json_ends(j);
}

static manta_status tell_syntax(const struct manta__line_scan *l, const struct manta__json *j,
                                manta_error *err)
{
  char place[512];
  manta__line_scan_place(l, place, sizeof place);
  return manta_error_set(err, MANTA_EINVAL,
                         "%scharacter %td: %s\nhint: a line is one object; skip_errors "
                         "(on_error=\"skip\") leaves out such lines",
                         place, j->p - l->p + 1, j->wrong ? j->wrong : "no JSON");
}

// --- the schema ---------------------------------------------------------------------------------

struct json_look {
  struct json_keys keys; /* the names are its own */
  struct manta__json_guess *guess;
};

static manta_status add_key(struct json_look *k, const struct manta__json_value *key, int *at,
                            const char *file, manta_error *err)
{
  char *name = manta__malloc(key->n + 1);
  int64_t n = name ? manta__json_unescape(key, name) : 0;
  bool room = k->keys.count < k->keys.cap;
  if (name && !room) {
    int cap = k->keys.cap ? 2 * k->keys.cap : 16;
    const char **names = manta__realloc(k->keys.name, (size_t)cap * sizeof *names);
    k->keys.name = names ? names : k->keys.name;
    struct manta__json_guess *guess = manta__realloc(k->guess, (size_t)cap * sizeof *guess);
    k->guess = guess ? guess : k->guess;
    room = names && guess;
    k->keys.cap = room ? cap : k->keys.cap;
  }
  if (!name || !room || n < 0 || k->keys.count == MANTA__COLUMNS_MAX) {
    manta__free(name);
    return n < 0 || k->keys.count == MANTA__COLUMNS_MAX
               ? manta_error_set(err, MANTA_EINVAL, "%s: keys that are no names of columns", file)
               : manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its columns", file);
  }
  name[n] = 0;
  *at = k->keys.count++;
  k->keys.name[*at] = name;
  k->guess[*at] = (struct manta__json_guess){0};
  return MANTA_OK;
}

// Keys and types of one line. A line that is no object says nothing here: the reader will tell.
static manta_status look_at(struct json_look *k, const struct manta__line_scan *l, manta_error *err)
{
  struct manta__json j = {l->p, l->p + l->n, NULL}, check = j;
  struct manta__json_value key, value;
  int expected = 0;
  if (!manta__json_value(&check, &value) || value.kind != MANTA__JSON_OBJECT ||
      !manta__json_open(&j, '{'))
    return MANTA_OK;
  for (bool first = true; manta__json_member(&j, first, &key, &value) == 1; first = false) {
    int at = k->keys.count ? find_key(&k->keys, &key, expected) : -1;
    if (at < 0)
      MANTA_TRY(add_key(k, &key, &at, l->file->source->name, err));
    manta__json_guess(&k->guess[at], &value);
    expected = at + 1 < k->keys.count ? at + 1 : 0;
  }
  return MANTA_OK;
}

static manta_status make_schema(const struct manta__file *f, const struct json_look *k,
                                struct manta__schema **out, manta_error *err)
{
  int n = k->keys.count;
  *out = NULL;
  if (n == 0 && f->passes_empty)
    return MANTA_OK;
  if (n == 0)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s: has no columns: no line of it is an object with keys"
                           "\nhint: a line is one object, as {\"a\": 1}; jq -c writes other JSON "
                           "so",
                           f->source->name);
  struct manta__schema_field *fields = manta__calloc((size_t)n, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its columns", f->source->name);
  for (int i = 0; i < n; i++)
    fields[i] = (struct manta__schema_field){k->keys.name[i], manta__json_type(&k->guess[i])};
  manta_status st = manta__format_types(f->config, fields, n, err);
  if (st == MANTA_OK)
    st = manta__schema_create(out, fields, n, err);
  manta__free(fields);
  return st;
}

static manta_status look_at_lines(struct json_look *k, const struct manta__file *f, int64_t limit,
                                  manta_error *err)
{
  struct manta__line_scan l;
  int64_t bytes = 0;
  manta_status st = manta__line_scan_open(&l, f, 0, f->source->size, err);
  while (st >= 0 && bytes < limit && (st = manta__line_scan_next(&l, err)) == 1) {
    bytes += (int64_t)l.n + 1;
    manta_status looked = is_blank(l.p, l.n) ? MANTA_OK : look_at(k, &l, err);
    st = looked < 0 ? looked : st;
  }
  manta__line_scan_close(&l);
  return st < 0 ? st : MANTA_OK;
}

// What is wrong with one of the others its reader will tell.
static manta_status look(const struct manta__file *f, struct manta__schema **out, manta_error *err)
{
  struct json_look k = {0};
  manta_status st = look_at_lines(&k, f, MANTA__LOOK_BYTES, err);
  for (size_t i = 0; i < f->other_count && st >= 0 && k.keys.count; i++)
    look_at_lines(&k, &f->others[i], MANTA__LOOK_MORE_BYTES, NULL);
  if (st >= 0)
    st = make_schema(f, &k, out, err);
  for (int i = 0; i < k.keys.count; i++)
    manta__free((void *)(uintptr_t)k.keys.name[i]);
  manta__free(k.keys.name);
  manta__free(k.guess);
  return st;
}

// --- reading ------------------------------------------------------------------------------------

struct json_reader {
  struct manta__reader reader;
  struct manta__line_scan lines;
  struct manta__assembly batch;
  struct json_keys keys; /* of the columns that are wanted; the names are the schema's */
  struct manta__json_value *values;
  struct manta__json at; /* where the line is wrong, or */
  int wrong;             /* which of its columns; -1: the line itself */
  int64_t seen;
};

static void close_json(struct manta__reader *reader)
{
  struct json_reader *r = (struct json_reader *)reader;
  manta__line_scan_close(&r->lines);
  manta__assembly_close(&r->batch);
  manta__free(r->keys.name);
  manta__free(r->values);
  manta__free(r);
}

static manta_status open_parts(struct json_reader *r, manta_error *err)
{
  const struct manta__read_job *job = &r->reader.job;
  int n = job->out->count;
  MANTA_TRY(manta__assembly_open(&r->batch, job, err));
  r->keys.name = manta__calloc((size_t)n + 1, sizeof *r->keys.name);
  r->values = manta__calloc((size_t)n + 1, sizeof *r->values);
  if (!r->keys.name || !r->values)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", job->file.source->name);
  for (int i = 0; i < n; i++)
    r->keys.name[i] = job->out->field[i].name;
  r->keys.count = n;
  return manta__line_scan_open(&r->lines, &job->file, job->block.from, job->block.to, err);
}

static manta_status open_json(struct manta__reader **out, const struct manta__read_job *job,
                              manta_error *err)
{
  struct json_reader *r = manta__calloc(1, sizeof *r);
  if (!r)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", job->file.source->name);
  r->reader = (struct manta__reader){&manta__format_json, *job};
  manta_status st = open_parts(r, err);
  if (st < 0) {
    close_json(&r->reader);
    return st;
  }
  *out = &r->reader;
  return MANTA_OK;
}

static manta_status tell_value(struct json_reader *r, int column, manta_error *err)
{
  char place[512], type[MANTA__TYPE_TEXT_MAX], shown[EXPLAINED + 1];
  const struct manta__schema_field *f = &r->reader.job.out->field[column];
  const struct manta__json_value *v = &r->values[column];
  bool text = f->type.kind == MANTA_KIND_STRING;
  manta__format_show(shown, sizeof shown, v->p, v->n);
  manta__line_scan_place(&r->lines, place, sizeof place);
  return manta_error_set(
      err, MANTA_EINVAL,
      "%s\"%.64s\": %s is no %s\nhint: types = {\"%.64s\": \"%s\"} reads it, "
      "skip_errors (on_error=\"skip\") leaves out such lines",
      place, f->name, shown, text ? "text in UTF-8" : manta__type_text(&f->type, type), f->name,
      manta__format_wider(&f->type, manta__number_f64(v->p, v->n, &(double){0})));
}

// 1: the line is a row; 0: it is wrong, and the reader knows where.
static manta_status put_line(struct json_reader *r, manta_error *err)
{
  r->at = (struct manta__json){r->lines.p, r->lines.p + r->lines.n, NULL};
  r->wrong = -1;
  if (!find_values(&r->at, &r->keys, r->values))
    return 0;
  for (int i = 0; i < r->keys.count; i++) {
    manta_status st = manta__json_put(&r->batch.build[i], &r->values[i], err);
    r->wrong = i;
    if (st != 1)
      return st;
  }
  manta__assembly_row(&r->batch, r->seen);
  return (manta_status)1;
}

static manta_status tell(struct json_reader *r, manta_error *err)
{
  return r->wrong < 0 ? tell_syntax(&r->lines, &r->at, err) : tell_value(r, r->wrong, err);
}

static manta_status take_line(struct json_reader *r, manta_error *err)
{
  struct manta__tally *tally = r->reader.job.tally;
  manta_error why = MANTA_ERROR_INIT;
  manta_status st = put_line(r, err);
  if (st < 0)
    return st;
  if (st == 0) {
    manta__assembly_undo(&r->batch);
    if (!r->reader.job.file.config->skip_errors)
      return tell(r, err);
    if (!manta__tally_skips(tally)) // its line is worth a look at all of the file only once
      tell(r, &why);
    manta__tally_skip(tally, 1, why.message);
  }
  manta__assembly_pass(&r->batch, ++r->seen);
  return MANTA_OK;
}

static manta_status next_json(struct manta__reader *reader, manta_batch **out, manta_error *err)
{
  struct json_reader *r = (struct json_reader *)reader;
  manta_status st = manta__assembly_begin(&r->batch, err);
  if (st < 0)
    return st;
  while (!manta__assembly_full(&r->batch) && (st = manta__line_scan_next(&r->lines, err)) == 1) {
    atomic_fetch_add_explicit(&r->reader.job.tally->bytes, (int64_t)r->lines.n + 1,
                              memory_order_relaxed);
    if (!is_blank(r->lines.p, r->lines.n))
      MANTA_TRY(take_line(r, err));
  }
  return st < 0 ? st : manta__assembly_end(&r->batch, out, err);
}

const struct manta__format manta__format_json = {
    .name = "json",
    .suffix = {".jsonl", ".ndjson", ".json"},
    .guesses = true,
    .look = look,
    .cut = manta__line_scan_cut,
    .open = open_json,
    .next = next_json,
    .close = close_json,
};
