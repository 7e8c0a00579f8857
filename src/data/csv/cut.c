/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/cut.c - a file becomes byte ranges that begin where rows do.
 *
 * At about each multiple of block_bytes some KB of the file are looked at, and the block ends with
 * the first row that ends there. To know a row's end from a newline inside of quotes:
 * (1) By (2) of csv.h a quote opens behind a separator or a newline, and closes in front of one.
 *     Most quotes can be only one of both, and so say on which side of them the quoted text is.
 *     That is a proof in every file that can be read at all.
 * (2) Where no quote is near, lines with as many fields as a row has are rows. Were they text
 *     inside of quotes after all, the block in front would end inside of quotes: rows.c tells.
 * (3) Where neither is so, quotes are counted from the cut in front on, which takes a pass over
 *     that block, at the speed of the memory.
 * A file that is not larger than a block is not looked at. The same bytes are cut at the same
 * places, wherever they lie.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/csv/csv.h"

#define CHUNK (1u << 20)
#define NEAR  ((int64_t)64 << 10) /* looked at first around a cut */
#define FAR   ((int64_t)4 << 20)
#define LINES 8 /* of the form of rows, that say that they are rows */

/* How a file is read. */
struct csv_form {
  const struct manta__file *file;
  struct manta__csv_marks marks;
  int width; /* fields of a row */
};

// --- passing over -------------------------------------------------------------------------------

// Where the first row begins at `target` or behind it, with a row beginning at `from`.
static manta_status pass_to(const struct csv_form *f, int64_t from, int64_t target, int64_t *out,
                            manta_error *err)
{
  const struct manta__csv_isa *isa = manta__csv_isa();
  struct manta__csv_index state = {.ended = true};
  struct manta__window w;
  int64_t size = f->file->source->size, end = size;
  MANTA_TRY(manta__window_open(&w, f->file->source, from, size, MANTA__PLAIN, CHUNK, CHUNK, err));
  manta_status st = MANTA_OK;
  while (st == MANTA_OK && end == size && !(w.last && w.at == w.end)) {
    int64_t here = from + w.offset + (int64_t)w.at;
    size_t there = w.end - w.at;
    size_t wanted = target - here < (int64_t)there ? (size_t)(target - here) : SIZE_MAX;
    w.at += there ? isa->index(w.base + w.at, there, &f->marks, wanted, &state) : 0;
    here = from + w.offset + (int64_t)w.at;
    if (there && state.ended && here >= target)
      end = here;
    else if (w.at == w.end)
      st = manta__window_more(&w, err);
  }
  manta__window_close(&w);
  *out = end;
  return st;
}

// --- looking ------------------------------------------------------------------------------------

enum csv_side { CSV_UNKNOWN, CSV_OUTSIDE, CSV_INSIDE };

/* Some bytes in the middle of a file. */
struct csv_view {
  const struct csv_form *form;
  const uint8_t *p;
  size_t n;
  bool last; /* the file ends with them */
};

// Whether the quoted text lies in front of quotes [at, end) or not, if they can tell.
static enum csv_side side_of(const struct csv_view *v, size_t at, size_t end)
{
  uint8_t separator = v->form->marks.separator, before = v->p[at - 1];
  uint8_t behind = end < v->n ? v->p[end] : '\n';
  bool opens = before == separator || before == '\n', even = (end - at) % 2 == 0;
  bool closes = behind == separator || behind == '\n' || behind == '\r';
  bool outside = opens && (!even || closes), inside = even || closes;
  return outside == inside ? CSV_UNKNOWN : outside ? CSV_OUTSIDE : CSV_INSIDE;
}

// Whether all lines but the first, which may be a part of one, have the form of rows.
static enum csv_side judge_lines(const struct csv_view *v)
{
  const uint8_t *p = memchr(v->p, '\n', v->n), *end = v->p + v->n;
  int lines = 0;
  if (v->form->width < 2) // any text has this form
    return CSV_UNKNOWN;
  for (const uint8_t *next; p && ++p < end; p = next, lines++) {
    int fields = 1;
    next = memchr(p, '\n', (size_t)(end - p));
    const uint8_t *to = next ? next : end;
    if (to == p || (to == p + 1 && *p == '\r'))
      continue;
    for (const uint8_t *q = p; (q = memchr(q, v->form->marks.separator, (size_t)(to - q))); q++)
      fields++;
    if ((next || v->last) && fields != v->form->width)
      return CSV_UNKNOWN;
  }
  return lines >= LINES ? CSV_OUTSIDE : CSV_UNKNOWN;
}

// On which side of quotes the first byte is. In a file that can be read all quotes agree; in
// another one most of them are right.
static enum csv_side judge(const struct csv_view *v)
{
  uint8_t quote = v->form->marks.quote;
  const uint8_t *found = v->p, *stop = v->p + v->n;
  size_t quotes = 0, outside = 0, inside = 0;
  if (!v->form->marks.quotes)
    return CSV_OUTSIDE;
  while ((found = memchr(found, quote, (size_t)(stop - found)))) {
    size_t at = (size_t)(found - v->p), end = at;
    while (end < v->n && v->p[end] == quote)
      end++;
    enum csv_side side = at > 0 && (end < v->n || v->last) ? side_of(v, at, end) : CSV_UNKNOWN;
    if (side != CSV_UNKNOWN)
      *((side == CSV_OUTSIDE) == (quotes % 2 == 0) ? &outside : &inside) += 1;
    quotes += end - at;
    found = v->p + end;
  }
  if (!quotes)
    return judge_lines(v);
  return outside > inside ? CSV_OUTSIDE : inside > outside ? CSV_INSIDE : CSV_UNKNOWN;
}

// Looks at [from, to): 1 and where the first row begins behind the first byte; 0: not known.
static manta_status look_at(const struct csv_form *f, int64_t from, int64_t to, int64_t *out,
                            manta_error *err)
{
  struct manta__window w;
  size_t room = (size_t)(to - from) + 1;
  MANTA_TRY(manta__window_open(&w, f->file->source, from, to, MANTA__PLAIN, room, room, err));
  manta_status st = manta__window_more(&w, err);
  struct csv_view v = {f, w.base, w.end, to == f->file->source->size};
  enum csv_side side = st == MANTA_OK ? judge(&v) : CSV_UNKNOWN;
  struct manta__csv_index state = {.inside = side == CSV_INSIDE};
  if (side != CSV_UNKNOWN) {
    *out = from + (int64_t)manta__csv_isa()->index(w.base, w.end, &f->marks, 1, &state);
    st = state.ended || v.last ? (manta_status)1 : MANTA_OK;
  }
  manta__window_close(&w);
  return st;
}

// Where the first row begins at `target` or behind it. The byte in front of it may end a row.
static manta_status find_cut(const struct csv_form *f, int64_t from, int64_t target, int64_t *out,
                             manta_error *err)
{
  int64_t size = f->file->source->size;
  for (int64_t reach = NEAR; reach <= FAR; reach *= 8) {
    int64_t to = size - target < reach ? size : target + reach;
    manta_status st = look_at(f, target - 1, to, out, err);
    if (st < 0)
      return st;
    if (st == 1)
      return MANTA_OK;
    if (to == size || target - from <= reach) // counting takes no more
      break;
  }
  return pass_to(f, from, target, out, err);
}

manta_status manta__csv_cut(const struct manta__file *f, int32_t number, struct manta__blocks *out,
                            manta_error *err)
{
  struct csv_form form = {.file = f, .marks = manta__csv_marks_of(f)};
  struct manta__csv_head head;
  int64_t from = 0, to, size = f->source->size, each = (int64_t)f->config->block_bytes;
  if (size <= each)
    return manta__blocks_add(out, (struct manta__block){number, 0, size}, err);
  MANTA_TRY(manta__csv_head_read(&head, f, err));
  form.width = head.count;
  manta__csv_head_fini(&head);
  for (; from < size; from = to) {
    int64_t left = size - from; // a small rest is no block of its own
    to = size;
    if (left - left / 4 > each)
      MANTA_TRY(find_cut(&form, from, from + each, &to, err));
    MANTA_TRY(manta__blocks_add(out, (struct manta__block){number, from, to}, err));
  }
  return MANTA_OK;
}
