/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/rows.c - a block as pieces of whole rows, each row with as many fields as it should
 * have.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/csv/csv.h"

// --- room ---------------------------------------------------------------------------------------

static manta_status no_memory(const struct manta__csv_rows *r, manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", r->file->source->name);
}

static manta_status need_positions(struct manta__csv_rows *r, size_t n, manta_error *err)
{
  if (n <= r->pos_cap)
    return MANTA_OK;
  uint32_t *more = manta__realloc(r->block, (n + 1 + MANTA__CSV_SLACK) * sizeof *more);
  if (!more)
    return no_memory(r, err);
  r->block = more;
  r->pos = more + 1;
  r->pos_cap = n;
  return MANTA_OK;
}

static manta_status need_rows(struct manta__csv_rows *r, size_t n, manta_error *err)
{
  if (n <= r->row_cap)
    return MANTA_OK;
  n = n < 2 * r->row_cap ? 2 * r->row_cap : n;
  uint32_t *first = manta__realloc(r->first, n * sizeof *first);
  if (first)
    r->first = first;
  uint32_t *record = manta__realloc(r->record, n * sizeof *record);
  if (record)
    r->record = record;
  if (!first || !record)
    return no_memory(r, err);
  r->row_cap = n;
  return MANTA_OK;
}

manta_status manta__csv_rows_open(struct manta__csv_rows *r, const struct manta__file *file,
                                  int64_t from, int64_t to, int width, struct manta__tally *tally,
                                  manta_error *err)
{
  *r = (struct manta__csv_rows){.file = file, .tally = tally, .from = from, .width = width};
  r->marks = manta__csv_marks_of(file);
  r->cut = file->compression == MANTA__PLAIN && to < file->source->size ? to : 0;
  r->isa = manta__csv_isa();
  r->piece_bytes = MANTA__CSV_PIECE;
  size_t limit = file->config->row_bytes;
  return manta__window_open(&r->window, file->source, from, to, file->compression,
                            limit < MANTA__CSV_WINDOW ? limit : MANTA__CSV_WINDOW, limit, err);
}

void manta__csv_rows_close(struct manta__csv_rows *r)
{
  manta__window_close(&r->window);
  manta__free(r->block);
  manta__free(r->first);
  manta__free(r->record);
  *r = (struct manta__csv_rows){0};
}

// --- messages -----------------------------------------------------------------------------------

void manta__csv_place(const struct manta__csv_rows *r, size_t at, char *out, size_t size)
{
  int64_t offset = r->from + r->window.offset + (r->text - r->window.base) + (int64_t)at;
  int64_t line = manta__format_line(r->file, offset);
  if (line)
    snprintf(out, size, "%s:%" PRId64 ": ", r->file->source->name, line);
  else
    snprintf(out, size, "%s: near byte %" PRId64 ": ", r->file->source->name, offset);
}

static bool skips(const struct manta__csv_rows *r)
{
  return r->tally && r->file->config->skip_errors;
}

// The first quote in [from, to) that stands where none may be, or `to`. A row begins at `from`.
static size_t find_stray(const struct manta__csv_rows *r, size_t from, size_t to)
{
  uint8_t quote = r->marks.quote, separator = r->marks.separator;
  bool inside = false, begins = true;
  for (size_t at = from; at < to; at++) {
    uint8_t c = r->text[at], next = at + 1 < to ? r->text[at + 1] : '\n';
    bool ends = c == separator || c == '\n';
    if (c == quote && !inside && !begins)
      return at;
    if (c == quote && inside && next == quote)
      at++;
    else if (c == quote && inside && next != separator && next != '\n' && next != '\r')
      return at;
    else if (c == quote)
      inside = !inside;
    begins = !inside && ends;
  }
  return to;
}

static manta_status tell_stray(const struct manta__csv_rows *r, size_t from, size_t to,
                               manta_error *err)
{
  char place[512];
  size_t at = find_stray(r, from, to);
  manta__csv_place(r, at < to ? at : from, place, sizeof place);
  return manta_error_set(err, MANTA_EINVAL,
                         "%sa quote (%c) in the middle of a field\nhint: quote the whole field and "
                         "double the quotes inside, or read it with quotes turned off",
                         place, r->marks.quote);
}

static manta_status tell_unclosed(const struct manta__csv_rows *r, manta_error *err)
{
  char place[512];
  manta__csv_place(r, 0, place, sizeof place);
  if (r->cut)
    return manta_error_set(err, MANTA_EINVAL,
                           "%sa quote (%c) in this row or behind it is not closed at byte %" PRId64
                           ", where a block ends\nhint: close it; if the file does not quote, read "
                           "it with quotes turned off; if it is a field of many lines, block_bytes "
                           "must be more than the file has",
                           place, r->marks.quote, r->cut);
  return manta_error_set(err, MANTA_EINVAL,
                         "%sa quote (%c) in this row or behind it is never closed\nhint: if the "
                         "file does not quote, read it with quotes turned off",
                         place, r->marks.quote);
}

static manta_status tell_long(const struct manta__csv_rows *r, bool inside, manta_error *err)
{
  char place[512];
  manta__csv_place(r, 0, place, sizeof place);
  return manta_error_set(
      err, MANTA_ETOOBIG, "%sa row of more than %zu bytes\nhint: %s; row_bytes sets another limit",
      place, r->window.limit,
      inside ? "a quote in it is not closed" : "do its lines end in LF or CRLF?");
}

static manta_status tell_ragged(const struct manta__csv_rows *r, size_t at, size_t fields,
                                manta_error *err)
{
  char place[512];
  manta__csv_place(r, at, place, sizeof place);
  return manta_error_set(err, MANTA_EINVAL,
                         "%sa row of %zu fields; the others have %d\nhint: is the separator '%c'? "
                         "skip_errors (on_error=\"skip\") leaves out such rows",
                         place, fields, r->width, r->marks.separator);
}

// --- rows of a piece ----------------------------------------------------------------------------

// Every row has as many fields as it should: nothing has to be looked at one by one.
static bool is_even(const struct manta__csv_rows *r, const struct manta__csv_scan *s)
{
  size_t width = (size_t)r->width;
  if (s->fields != s->rows * width)
    return false;
  for (size_t end = width - 1; end < s->fields; end += width)
    if (r->text[r->pos[end]] != '\n')
      return false;
  if (width > 1)
    return true;
  for (size_t i = 0; i < s->fields; i++) { // one column: is a line empty?
    size_t begin = r->pos[(ptrdiff_t)i - 1] + 1u, n = r->pos[i] - begin;
    if (n == 0 || (n == 1 && r->text[begin] == '\r'))
      return false;
  }
  return true;
}

/* A line of the piece: its bytes, and its fields. */
struct csv_line {
  size_t begin, end, fields;
};

static manta_status tell_wrong(const struct manta__csv_rows *r, const struct csv_line *l,
                               bool stray, manta_error *err)
{
  return stray ? tell_stray(r, l->begin, l->end, err) : tell_ragged(r, l->begin, l->fields, err);
}

static manta_status leave_out(struct manta__csv_rows *r, const struct csv_line *l, bool stray,
                              manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  if (!skips(r))
    return tell_wrong(r, l, stray, err);
  if (!manta__tally_skips(r->tally)) // its line is worth a look at all of the file only once
    tell_wrong(r, l, stray, &why);
  manta__tally_skip(r->tally, 1, why.message);
  return MANTA_OK;
}

static bool is_empty(const struct manta__csv_rows *r, const struct csv_line *l)
{
  size_t n = l->end - l->begin;
  return n == 0 || (n == 1 && r->text[l->begin] == '\r');
}

// Behind the newline at `at` or behind it; `to` if there is none.
static size_t end_of_line(const struct manta__csv_rows *r, size_t at, size_t to)
{
  const uint8_t *p = at < to ? memchr(r->text + at, '\n', to - at) : NULL;
  return p ? (size_t)(p - r->text) + 1 : to;
}

// Row after row: empty lines are none, and others may have too few fields or too many, or quotes
// where none may be.
static manta_status find_rows(struct manta__csv_rows *r, size_t positions, bool stray,
                              manta_error *err)
{
  for (size_t i = 0, end; i < positions && !(r->first_only && r->records); i = end + 1) {
    end = i;
    while (r->text[r->pos[end]] != '\n')
      end++;
    struct csv_line l = {r->pos[(ptrdiff_t)i - 1] + 1u, r->pos[end], end - i + 1};
    if (is_empty(r, &l))
      continue;
    if (r->width == 0)
      r->width = (int)l.fields;
    size_t at = stray ? find_stray(r, l.begin, l.end) : l.end;
    if (l.fields == (size_t)r->width && at == l.end) {
      r->first[r->rows] = (uint32_t)i;
      r->record[r->rows++] = (uint32_t)r->records;
    } else
      MANTA_TRY(leave_out(r, &l, at < l.end, err));
    r->records++;
    if (at < l.end && !r->first_only) { // what quotes behind it mean is found out anew
      r->used = end_of_line(r, at, l.end + 1);
      break;
    }
  }
  return MANTA_OK;
}

static void number_rows(struct manta__csv_rows *r, size_t rows)
{
  uint32_t width = (uint32_t)r->width;
  for (size_t i = 0; i < rows; i++) {
    r->first[i] = (uint32_t)i * width;
    r->record[i] = (uint32_t)i;
  }
  r->rows = r->records = rows;
}

// --- pieces -------------------------------------------------------------------------------------

// A last row without its newline gets one, in the slack behind the window.
static void end_last_row(struct manta__window *w)
{
  if (w->last && w->end > w->at && w->base[w->end - 1] != '\n')
    w->base[w->end++] = '\n';
}

// The ends of fields up to the last whole row; 0 rows: there is none in the bytes looked at.
static manta_status scan_piece(struct manta__csv_rows *r, size_t n, struct manta__csv_scan *s,
                               manta_error *err)
{
  MANTA_TRY(need_positions(r, n, err));
  r->text = r->window.base + r->window.at;
  r->pos[-1] = UINT32_MAX;
  r->isa->scan(r->text, n, &r->marks, r->pos, s);
  while (s->rows && r->text[r->pos[s->fields - 1]] != '\n')
    s->fields--;
  return s->stray && !r->first_only && !skips(r) ? tell_stray(r, 0, n, err) : MANTA_OK;
}

static manta_status tell_broken(const struct manta__csv_rows *r, size_t n,
                                const struct manta__csv_scan *s, manta_error *err)
{
  if (s->stray && find_stray(r, 0, n) < n)
    return tell_stray(r, 0, n, err);
  return r->window.last ? tell_unclosed(r, err) : tell_long(r, s->inside, err);
}

// Passes over a line that is longer than the window.
static manta_status pass_line(struct manta__csv_rows *r, manta_error *err)
{
  struct manta__window *w = &r->window;
  for (;;) {
    const uint8_t *begin = w->base + w->at, *p = memchr(begin, '\n', w->end - w->at);
    size_t n = p ? (size_t)(p - begin) + 1 : w->end - w->at;
    w->at += n;
    atomic_fetch_add_explicit(&r->tally->bytes, (int64_t)n, memory_order_relaxed);
    if (p || w->last)
      return MANTA_OK;
    MANTA_TRY(manta__window_more(w, err));
  }
}

// The n bytes that are left of the block, or that may be in memory, are no whole row. The line in
// which a quote is wrong is left out.
static manta_status leave_line(struct manta__csv_rows *r, size_t n, const struct manta__csv_scan *s,
                               manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  if (!skips(r))
    return tell_broken(r, n, s, err);
  if (!manta__tally_skips(r->tally))
    tell_broken(r, n, s, &why);
  manta__tally_skip(r->tally, 1, why.message);
  size_t at = s->stray ? find_stray(r, 0, n) : n, end = end_of_line(r, at < n ? at : 0, n);
  r->records = 1;
  if (r->text[end - 1] == '\n')
    r->used = end;
  else
    MANTA_TRY(pass_line(r, err));
  return (manta_status)1;
}

// Where a quote is wrong there is no need to look for the one that closes it.
static bool ends_in_piece(const struct manta__csv_rows *r, size_t n,
                          const struct manta__csv_scan *s)
{
  return s->stray && skips(r) && end_of_line(r, find_stray(r, 0, n), n) < n;
}

static manta_status find_piece(struct manta__csv_rows *r, struct manta__csv_scan *s,
                               manta_error *err)
{
  struct manta__window *w = &r->window;
  for (size_t piece = r->piece_bytes;;) {
    end_last_row(w);
    size_t there = w->end - w->at, n = there < piece ? there : piece;
    *s = (struct manta__csv_scan){0};
    if (n)
      MANTA_TRY(scan_piece(r, n, s, err));
    if (s->rows)
      return (manta_status)1;
    if (n && (ends_in_piece(r, n, s) || (n == there && (w->last || there >= w->limit))))
      return leave_line(r, n, s, err);
    if (n < there)
      piece *= 2;
    else if (w->last)
      return 0;
    else
      MANTA_TRY(manta__window_more(w, err));
  }
}

static manta_status take_piece(struct manta__csv_rows *r, manta_error *err)
{
  struct manta__csv_scan s;
  r->record_base += (int64_t)r->records;
  r->window.at += r->used;
  r->used = r->rows = r->records = 0;
  manta_status st = find_piece(r, &s, err);
  if (st != 1 || s.rows == 0)
    return st;
  MANTA_TRY(need_rows(r, s.rows, err));
  r->used = r->pos[s.fields - 1] + (size_t)1;
  if (r->width > 0 && !s.stray && is_even(r, &s))
    number_rows(r, s.rows);
  else
    MANTA_TRY(find_rows(r, s.fields, s.stray, err));
  return (manta_status)1;
}

manta_status manta__csv_rows_next(struct manta__csv_rows *r, manta_error *err)
{
  manta_status st;
  while ((st = take_piece(r, err)) == 1 && r->records == 0)
    ;
  if (st == 1 && r->tally)
    atomic_fetch_add_explicit(&r->tally->bytes, (int64_t)r->used, memory_order_relaxed);
  return st;
}

manta_status manta__csv_rows_first(struct manta__csv_rows *r, manta_error *err)
{
  manta_status st;
  r->first_only = true;
  while ((st = take_piece(r, err)) == 1 && r->records == 0)
    ;
  return st;
}

manta_status manta__csv_rows_skip(struct manta__csv_rows *r, int64_t n, manta_error *err)
{
  struct manta__window *w = &r->window;
  while (n > 0 && !(w->last && w->at == w->end)) {
    int64_t there = (int64_t)(w->end - w->at), step = there < n ? there : n;
    w->at += (size_t)step;
    n -= step;
    if (n > 0)
      MANTA_TRY(manta__window_more(w, err));
  }
  return MANTA_OK;
}
