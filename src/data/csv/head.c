/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/head.c - the names of the columns, and their types as a sample has them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "data/csv/csv.h"
#include "data/number/number.h"

struct manta__csv_marks manta__csv_marks_of(const struct manta__file *f)
{
  const manta_data_config *c = f->config;
  const char *tsv = strstr(f->source->name, ".tsv");
  bool tabs = tsv && (tsv[4] == 0 || tsv[4] == '.');
  return (struct manta__csv_marks){.separator = (uint8_t)(c->separator ? c->separator
                                                          : tabs       ? '\t'
                                                                       : ','),
                                   .quote = (uint8_t)(c->quote ? c->quote : '"'),
                                   .quotes = !c->no_quotes};
}

// --- names --------------------------------------------------------------------------------------

void manta__csv_head_fini(struct manta__csv_head *h)
{
  for (int i = 0; i < h->count && h->names; i++)
    manta__free(h->names[i]);
  manta__free(h->names);
  *h = (struct manta__csv_head){0};
}

static bool is_taken(const struct manta__csv_head *h, int count, const char *name)
{
  for (int i = 0; i < count; i++)
    if (!strcmp(h->names[i], name))
      return true;
  return false;
}

// A name that is there already gets a number: x, x.1, x.2
static char *unique_name(const struct manta__csv_head *h, int column, const char *name)
{
  char *made = *name ? manta__strdup(name) : manta__asprintf("c%d", column);
  for (int k = 1; made && is_taken(h, column, made); k++) {
    manta__free(made);
    made = manta__asprintf("%s.%d", *name ? name : "c", k);
  }
  return made;
}

static manta_status add_name(struct manta__csv_head *h, const struct manta__file *f,
                             const struct manta__csv_field *field, uint8_t quote, manta_error *err)
{
  char text[MANTA__NAME_MAX + 1];
  size_t n = field->n <= MANTA__NAME_MAX ? manta__csv_unquote(field, quote, text) : 0;
  text[n] = 0;
  if (field->n > MANTA__NAME_MAX || strlen(text) != n || manta__utf8_valid(text, n) < n)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s:1: the name of column %d is no text of at most %d bytes in UTF-8"
                           "\nhint: with no_header the first row is data",
                           f->source->name, h->count + 1, MANTA__NAME_MAX);
  if (!(h->names[h->count] = unique_name(h, h->count, text)))
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its columns", f->source->name);
  h->count++;
  return MANTA_OK;
}

// Lines that end in CR alone are one line here.
static manta_status check_carriage(const struct manta__file *f,
                                   const struct manta__csv_field *field, manta_error *err)
{
  if (field->quoted || !memchr(field->p, '\r', field->n))
    return MANTA_OK;
  return manta_error_set(
      err, MANTA_EINVAL,
      "%s:1: a CR in the middle of a field: do its lines end in CR alone?\nhint: "
      "convert it: tr '\\r' '\\n'",
      f->source->name);
}

static manta_status name_columns(struct manta__csv_head *h, const struct manta__csv_rows *rows,
                                 const struct manta__file *f, manta_error *err)
{
  struct manta__csv_fields fields = {.text = rows->text, .pos = rows->pos, .first = rows->first};
  const manta_data_config *c = f->config;
  if (rows->width > MANTA__COLUMNS_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "%s: %d columns; the limit is %d", f->source->name,
                           rows->width, MANTA__COLUMNS_MAX);
  if (c->no_header && c->names && c->name_count != (size_t)rows->width)
    return manta_error_set(err, MANTA_EINVAL, "%s: %zu names for %d columns", f->source->name,
                           c->name_count, rows->width);
  if (!(h->names = manta__calloc((size_t)rows->width, sizeof *h->names)))
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its columns", f->source->name);
  for (int i = 0; i < rows->width; i++) {
    const char *given = c->no_header && c->names ? c->names[i] : "";
    struct manta__csv_field name = {given, strlen(given), false};
    fields.column = (uint32_t)i;
    fields.last = i + 1 == rows->width;
    struct manta__csv_field first = manta__csv_field_at(&fields, 0, &rows->marks);
    MANTA_TRY(check_carriage(f, &first, err));
    if (!c->no_header)
      name = first;
    MANTA_TRY(add_name(h, f, &name, rows->marks.quote, err));
  }
  return MANTA_OK;
}

static manta_status check_beginning(const struct manta__file *f, const uint8_t *p, size_t n,
                                    manta_error *err)
{
  const char *what = NULL;
  if (n >= 2 && p[0] == 0x1f && p[1] == 0x8b)
    what = "is gzip\nhint: name it .gz, or set compression";
  else if (n >= 4 && !memcmp(p, "\x28\xb5\x2f\xfd", 4))
    what = "is zstd\nhint: name it .zst, or set compression";
  else if (n >= 2 && ((p[0] == 0xff && p[1] == 0xfe) || (p[0] == 0xfe && p[1] == 0xff)))
    what = "is UTF-16\nhint: convert it: iconv -f UTF-16 -t UTF-8";
  else if (n >= 4 && (!p[0] != !p[1]) && !p[0] == !p[2] && !p[1] == !p[3])
    what = "looks like UTF-16\nhint: convert it: iconv -f UTF-16LE -t UTF-8, or -f UTF-16BE";
  else if (n >= 4 && !memcmp(p, "PAR1", 4))
    what = "is Parquet\nhint: manta.data.read_parquet reads it in Python";
  return what ? manta_error_set(err, MANTA_EINVAL, "%s: %s", f->source->name, what) : MANTA_OK;
}

// Of a file that lies elsewhere no more than this is fetched ahead.
static void expect(const struct manta__file *f, int64_t from, int64_t bytes)
{
  int64_t size = f->source->size;
  manta__source_expect(f->source, from, size - from < bytes ? size : from + bytes);
}

// Bytes of a byte order mark.
static manta_status skip_mark(const struct manta__file *f, int64_t *out, manta_error *err)
{
  struct manta__input in;
  uint8_t p[4];
  size_t n;
  MANTA_TRY(manta__input_open(&in, f->source, 0, f->source->size, f->compression, err));
  expect(f, 0, MANTA__CSV_WINDOW);
  manta_status st = manta__input_read(&in, p, sizeof p, &n, err);
  manta__input_close(&in);
  if (st == MANTA_OK)
    st = check_beginning(f, p, n, err);
  *out = st == MANTA_OK && n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? 3 : 0;
  return st;
}

// Rows from byte `skip` of the decoded file on, of which some `bytes` are wanted.
static manta_status open_at(struct manta__csv_rows *rows, const struct manta__file *f, int64_t skip,
                            int64_t bytes, int width, manta_error *err)
{
  bool packed = f->compression != MANTA__PLAIN;
  int64_t from = packed ? 0 : skip;
  MANTA_TRY(manta__csv_rows_open(rows, f, from, f->source->size, width, NULL, err));
  expect(f, from, bytes);
  return packed ? manta__csv_rows_skip(rows, skip, err) : MANTA_OK;
}

manta_status manta__csv_head_read(struct manta__csv_head *out, const struct manta__file *f,
                                  manta_error *err)
{
  struct manta__csv_head h = {0};
  struct manta__csv_rows rows = {0};
  MANTA_TRY(skip_mark(f, &h.skip, err));
  manta_status st = open_at(&rows, f, h.skip, MANTA__CSV_WINDOW, 0, err);
  if (st == MANTA_OK)
    st = manta__csv_rows_first(&rows, err);
  if (st == 1)
    st = name_columns(&h, &rows, f, err);
  if (st == MANTA_OK && h.count && !f->config->no_header) // behind the header's newline
    h.skip = rows.from + rows.window.offset + (rows.text - rows.window.base) +
             rows.pos[rows.first[0] + (uint32_t)rows.width - 1] + 1;
  if (f->compression == MANTA__PLAIN && h.skip > f->source->size)
    h.skip = f->source->size; // a header that ends with the file has none
  manta__csv_rows_close(&rows);
  if (st < 0) {
    manta__csv_head_fini(&h);
    return st;
  }
  *out = h;
  return MANTA_OK;
}

// --- types --------------------------------------------------------------------------------------

/* What every value of a column so far could be. */
struct csv_guess {
  bool is_i64, is_u64, is_f64, is_bool, seen;
};

static void guess(struct csv_guess *g, const struct manta__csv_field *f, const manta_data_config *c)
{
  int64_t s;
  uint64_t u;
  double d;
  bool b;
  if (manta__csv_missing(f, c, false))
    return;
  g->seen = true;
  g->is_i64 = g->is_i64 && manta__number_i64(f->p, f->n, &s);
  g->is_u64 = g->is_u64 && manta__number_u64(f->p, f->n, &u);
  g->is_f64 = g->is_f64 && manta__number_f64(f->p, f->n, &d);
  g->is_bool = g->is_bool && manta__csv_bool(f, &b);
}

static struct manta__type type_of(const struct csv_guess *g)
{
  if (!g->seen)
    return manta__type_of(MANTA_F64);
  if (g->is_i64 || g->is_u64 || g->is_f64)
    return manta__type_of(g->is_i64 ? MANTA_I64 : g->is_u64 ? MANTA_U64 : MANTA_F64);
  return manta__type_kind(g->is_bool ? MANTA_KIND_BOOL : MANTA_KIND_STRING);
}

// column: the number in g of each column of these rows; -1: it is none of them.
static void guess_piece(struct csv_guess *g, const int *column, const struct manta__csv_rows *rows)
{
  struct manta__csv_fields fields = {.text = rows->text, .pos = rows->pos, .first = rows->first};
  for (int i = 0; i < rows->width; i++) {
    fields.column = (uint32_t)i;
    fields.last = i + 1 == rows->width;
    for (size_t r = 0; r < rows->rows; r++) {
      struct manta__csv_field f = manta__csv_field_at(&fields, r, &rows->marks);
      if (column[i] >= 0)
        guess(&g[column[i]], &f, rows->file->config);
    }
  }
}

// Rows that cannot be read say nothing about types: the reader will tell.
static manta_status guess_types(struct csv_guess *g, const int *column, const struct manta__file *f,
                                const struct manta__csv_head *head, int64_t limit, size_t *seen,
                                manta_error *err)
{
  struct manta__csv_rows rows = {0};
  struct manta__tally tally;
  manta_data_config lenient = *f->config;
  struct manta__file sample = *f;
  int64_t bytes = 0;
  lenient.skip_errors = true;
  sample.config = &lenient;
  manta__tally_init(&tally);
  manta_status st = open_at(&rows, &sample, head->skip, limit, head->count, err);
  rows.tally = &tally;
  while (st >= 0 && bytes < limit && (st = manta__csv_rows_next(&rows, err)) == 1) {
    guess_piece(g, column, &rows);
    *seen += rows.rows;
    bytes += (int64_t)rows.used;
  }
  manta__csv_rows_close(&rows);
  manta__tally_fini(&tally);
  return st < 0 ? st : MANTA_OK;
}

static manta_status make_schema(const struct manta__file *f, const struct manta__csv_head *head,
                                const struct csv_guess *g, struct manta__schema **out,
                                manta_error *err)
{
  struct manta__schema_field *fields = manta__calloc((size_t)head->count, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its columns", f->source->name);
  for (int i = 0; i < head->count; i++)
    fields[i] = (struct manta__schema_field){head->names[i], type_of(&g[i])};
  manta_status st = manta__format_types(f->config, fields, head->count, err);
  for (int i = 0; i < head->count && st == MANTA_OK; i++)
    if (fields[i].type.ndim)
      st = manta_error_set(err, MANTA_EUNSUPPORTED,
                           "column \"%s\": a field of CSV holds one value, no array",
                           fields[i].name);
  if (st == MANTA_OK)
    st = manta__schema_create(out, fields, head->count, err);
  manta__free(fields);
  return st;
}

// Another file may have its columns in another order. What is wrong with it its reader will tell.
static void guess_other(struct csv_guess *g, int *column, const struct manta__csv_head *head,
                        const struct manta__file *other)
{
  struct manta__csv_head own;
  size_t rows = 0;
  if (manta__csv_head_read(&own, other, NULL) < 0)
    return;
  bool fits = own.count > 0 && own.count <= head->count;
  for (int i = 0; i < own.count && fits; i++) {
    column[i] = head->count - 1;
    while (column[i] >= 0 && strcmp(head->names[column[i]], own.names[i]) != 0)
      column[i]--;
  }
  if (fits)
    guess_types(g, column, other, &own, MANTA__LOOK_MORE_BYTES, &rows, NULL);
  manta__csv_head_fini(&own);
}

static manta_status guess_all(struct csv_guess *g, int *column, const struct manta__file *f,
                              const struct manta__csv_head *head, size_t *rows, manta_error *err)
{
  for (int i = 0; i < head->count; i++) {
    g[i] = (struct csv_guess){true, true, true, true, false};
    column[i] = i;
  }
  MANTA_TRY(guess_types(g, column, f, head, MANTA__LOOK_BYTES, rows, err));
  for (size_t i = 0; i < f->other_count && *rows; i++)
    guess_other(g, column, head, &f->others[i]);
  return MANTA_OK;
}

manta_status manta__csv_look(const struct manta__file *f, struct manta__schema **out,
                             manta_error *err)
{
  struct manta__csv_head head;
  MANTA_TRY(manta__csv_head_read(&head, f, err));
  struct csv_guess *g = manta__calloc((size_t)head.count + 1, sizeof *g);
  int *column = manta__calloc((size_t)head.count + 1, sizeof *column);
  manta_status st = MANTA_OK;
  size_t rows = 0;
  *out = NULL;
  if (!g || !column)
    st = manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its columns", f->source->name);
  else if (head.count)
    st = guess_all(g, column, f, &head, &rows, err);
  if (st == MANTA_OK && head.count && (rows || !f->passes_empty))
    st = make_schema(f, &head, g, out, err);
  manta__free(column);
  manta__free(g);
  manta__csv_head_fini(&head);
  return st;
}
