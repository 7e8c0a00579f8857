/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/csv.c - progress.csv: a line per row, with a header.
 *
 * (1) The columns are the keys of the first row, nested ones joined with '/'. A key that comes
 *     later widens the file: it is copied with the new columns at the end, empty in earlier rows,
 *     and takes the place of the old one by a rename. The columns are kept as the memo of the sink.
 * (2) Rows of several workers have their rank in the column _rank.
 * (3) Numbers have the fewest digits that read back the same; nan, inf and -inf are these words. A
 *     list is its JSON text. What has a comma, a quote or a line break is quoted (RFC 4180, with \n
 *     as the end of a line).
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/value.h"
#include "sink/columns.h"
#include "sink/files.h"
#include "sink/leaves.h"
#include "sink/widen.h"

#define FILENAME       "progress.csv"
#define RANK           "_rank"
#define PATH_MAX_BYTES (1u << 20)

struct csv_sink {
  const struct manta__sink_env *env;
  const char *name;
  struct manta__outfile file;
  struct manta__columns columns;
  const manta_value **cell; // of the row at work, by column
  size_t cells;
  manta__buf path, text; // of names; of a list
  bool memo_changed, widened;
};

// --- opening -------------------------------------------------------------------------------------

static void csv_close(void *sink)
{
  struct csv_sink *s = sink;
  manta__outfile_close(&s->file);
  manta__columns_fini(&s->columns);
  manta__free(s->cell);
  manta__buf_fini(&s->path);
  manta__buf_fini(&s->text);
  manta__free(s);
}

static manta_status remember(struct csv_sink *s, const manta_value *memo)
{
  for (uint32_t i = 0; memo && memo->type == MANTA_LIST && i < memo->count; i++) {
    const char *name = manta_value_as_string(&memo->u.items[i], NULL);
    if (name && manta__columns_find(&s->columns, name) == MANTA__NO_COLUMN)
      MANTA_TRY(manta__columns_add(&s->columns, name));
  }
  return MANTA_OK;
}

static manta_status csv_open(void **out, const struct manta__sink_env *env, manta_error *err)
{
  struct csv_sink *s = manta__calloc(1, sizeof *s);
  if (!s)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a sink");
  s->env = env;
  s->name = manta_value_as_string(manta_value_get(env->options, "filename"), FILENAME);
  s->file.fd = -1;
  manta__buf_init(&s->path, PATH_MAX_BYTES);
  manta__buf_init(&s->text, MANTA__JSON_MAX);
  manta_status st = manta__outfile_open(&s->file, env->outdir, s->name, "", "", err);
  if (st == MANTA_OK && remember(s, env->memo) < 0)
    st = manta_error_set(err, MANTA_ENOMEM, "no memory for the columns of %s", s->name);
  if (st < 0)
    csv_close(s);
  else
    *out = s;
  return st;
}

// --- cells ---------------------------------------------------------------------------------------

static manta_status put_text(manta__buf *b, const char *text, size_t n)
{
  bool quote = n > 0 && (text[0] == ' ' || text[n - 1] == ' ');
  for (size_t i = 0; i < n && !quote; i++)
    quote = text[i] == ',' || text[i] == '"' || text[i] == '\n' || text[i] == '\r';
  if (!quote)
    return manta__utf8_append(b, text, n);
  MANTA_TRY(manta__buf_putc(b, '"'));
  for (const char *end = text + n, *q; text < end; text = q) {
    q = memchr(text, '"', (size_t)(end - text));
    q = q ? q + 1 : end;
    MANTA_TRY(manta__utf8_append(b, text, (size_t)(q - text)));
    if (q[-1] == '"')
      MANTA_TRY(manta__buf_putc(b, '"'));
  }
  return manta__buf_putc(b, '"');
}

static manta_status put_list(struct csv_sink *s, manta__buf *b, const manta_value *v)
{
  s->text.len = 0;
  MANTA_TRY(manta__json_append(&s->text, v, NULL));
  return put_text(b, (const char *)s->text.data, s->text.len);
}

static manta_status put_cell(struct csv_sink *s, manta__buf *b, const manta_value *v)
{
  if (!v || v->type == MANTA_NIL)
    return MANTA_OK;
  if (v->type == MANTA_REAL && !isfinite(v->u.r))
    return manta__buf_puts(b, isnan(v->u.r) ? "nan" : v->u.r < 0 ? "-inf" : "inf");
  if (v->type == MANTA_STRING)
    return put_text(b, v->u.s, v->count);
  if (v->type == MANTA_LIST || v->type == MANTA_BYTES)
    return put_list(s, b, v);
  return manta__json_append(b, v, NULL);
}

static manta_status put_names(manta__buf *b, const manta_value *names, size_t from)
{
  for (size_t i = from; i < names->count; i++) {
    if (i > 0)
      MANTA_TRY(manta__buf_putc(b, ','));
    MANTA_TRY(put_text(b, names->u.items[i].u.s, names->u.items[i].count));
  }
  return MANTA_OK;
}

// --- rows ----------------------------------------------------------------------------------------

static manta_status place(struct csv_sink *s, const char *name, const manta_value *v)
{
  size_t at = manta__columns_find(&s->columns, name);
  if (at == MANTA__NO_COLUMN) {
    MANTA_TRY(manta__columns_add(&s->columns, name));
    at = s->columns.names.count - 1;
  }
  if (at >= s->cells) {
    size_t n = 2 * at + 16;
    const manta_value **cell = manta__realloc(s->cell, n * sizeof *cell);
    if (!cell)
      return MANTA_ENOMEM;
    memset(cell + s->cells, 0, (n - s->cells) * sizeof *cell);
    s->cell = cell;
    s->cells = n;
  }
  if (!s->cell[at]) // of {"a/b": 1, "a": {"b": 2}} the first
    s->cell[at] = v;
  return MANTA_OK;
}

static manta_status on_leaf(void *ctx, const char *name, const manta_value *v)
{
  return place(ctx, name, v);
}

static manta_status put_row(struct csv_sink *s)
{
  manta__buf *b = &s->file.buf;
  for (size_t i = 0; i < s->columns.names.count; i++) {
    if (i > 0)
      MANTA_TRY(manta__buf_putc(b, ','));
    MANTA_TRY(put_cell(s, b, i < s->cells ? s->cell[i] : NULL));
  }
  return manta__buf_putc(b, '\n');
}

static manta_status put_header(struct csv_sink *s)
{
  MANTA_TRY(put_names(&s->file.buf, &s->columns.names, 0));
  return manta__buf_putc(&s->file.buf, '\n');
}

// The file gets the columns from number `had` on.
static manta_status widen(struct csv_sink *s, size_t had, manta_error *err)
{
  manta__buf more;
  manta__buf_init(&more, PATH_MAX_BYTES);
  MANTA_TRY(manta__outfile_flush(&s->file, err));
  manta_status st = put_names(&more, &s->columns.names, had);
  if (st < 0)
    manta_error_set(err, st, "no memory for the columns of %s", s->name);
  else
    st = manta__widen(&s->file, s->env->outdir, (const char *)more.data, more.len,
                      s->columns.names.count - had, err);
  manta__buf_fini(&more);
  s->widened |= st == MANTA_OK;
  return st;
}

static manta_status gather_cells(struct csv_sink *s, const struct manta__sink_row *row,
                                 const manta_value *rank)
{
  if (s->cell)
    memset(s->cell, 0, s->cells * sizeof *s->cell);
  s->columns.next = 0;
  if (rank)
    MANTA_TRY(place(s, RANK, rank));
  return manta__leaves(&row->row, &s->path, on_leaf, s);
}

static manta_status csv_row(struct csv_sink *s, const struct manta__sink_row *row, bool several,
                            manta_error *err)
{
  size_t had = s->columns.names.count;
  manta_value rank = manta_value_int(row->rank);
  bool empty = s->file.size == 0 && s->file.buf.len == 0;
  manta_status st = gather_cells(s, row, several ? &rank : NULL);
  if (st < 0)
    manta_error_set(err, st, "no memory for a row");
  else if (s->columns.names.count > had && !empty)
    st = widen(s, had, err);
  if (st < 0) {
    manta__columns_cut(&s->columns, had);
    return st;
  }
  s->memo_changed |= s->columns.names.count > had;
  if (empty)
    st = put_header(s);
  if (st == MANTA_OK)
    st = put_row(s);
  return st < 0 ? manta_error_set(err, st, "no memory for a row") : MANTA_OK;
}

static manta_status csv_rows(void *sink, const struct manta__sink_rows *rows, manta_error *err)
{
  struct csv_sink *s = sink;
  MANTA_TRY(manta__outfile_room(&s->file, err));
  for (int i = 0; i < rows->count; i++)
    MANTA_TRY(csv_row(s, &rows->row[i], rows->several, err));
  return MANTA_OK;
}

static manta_status csv_flush(void *sink, manta_error *err)
{
  struct csv_sink *s = sink;
  return manta__outfile_flush(&s->file, err);
}

static void csv_mark(const void *sink, struct manta__sink_mark *out)
{
  const struct csv_sink *s = sink;
  struct manta__outfile_mark m = manta__outfile_mark(&s->file);
  *out = (struct manta__sink_mark){{m.size, m.hash, 0, 0}};
}

static manta_status csv_back(void *sink, const struct manta__sink_mark *m, manta_error *err)
{
  struct csv_sink *s = sink;
  return manta__outfile_back(&s->file, (struct manta__outfile_mark){m->word[0], m->word[1]}, err);
}

static const manta_value *csv_memo(void *sink, bool *changed, bool *void_marks)
{
  struct csv_sink *s = sink;
  *changed = s->memo_changed;
  *void_marks = s->widened;
  s->memo_changed = s->widened = false;
  return &s->columns.names;
}

const struct manta__sink_kind manta__sink_csv = {
    .name = "csv",
    .help = "progress.csv",
    .file = FILENAME,
    .cuts = true,
    .open = csv_open,
    .rows = csv_rows,
    .flush = csv_flush,
    .mark = csv_mark,
    .back = csv_back,
    .memo = csv_memo,
    .close = csv_close,
};
