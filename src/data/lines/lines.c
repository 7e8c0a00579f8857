/* SPDX-License-Identifier: Apache-2.0 */
#include "data/lines/lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define CHUNK (64u << 10)

manta_status manta__line_scan_open(struct manta__line_scan *l, const struct manta__file *file,
                                   int64_t from, int64_t to, manta_error *err)
{
  size_t limit = file->config->row_bytes;
  *l = (struct manta__line_scan){.file = file, .from = from};
  return manta__window_open(&l->window, file->source, from, to, file->compression,
                            limit < MANTA__LINES_WINDOW ? limit : MANTA__LINES_WINDOW, limit, err);
}

void manta__line_scan_close(struct manta__line_scan *l)
{
  manta__window_close(&l->window);
  *l = (struct manta__line_scan){0};
}

manta_status manta__line_scan_next(struct manta__line_scan *l, manta_error *err)
{
  struct manta__window *w = &l->window;
  size_t looked = 0; // bytes of the line that hold no newline
  const uint8_t *end = NULL;
  for (;;) {
    const uint8_t *from = w->base + w->at + looked;
    if (w->end - w->at > looked)
      end = memchr(from, '\n', w->end - w->at - looked);
    looked = w->end - w->at;
    if (end || w->last)
      break;
    MANTA_TRY(manta__window_more(w, err));
  }
  if (!end && w->at == w->end)
    return 0;
  l->p = (const char *)w->base + w->at;
  l->n = end ? (size_t)(end - (w->base + w->at)) : w->end - w->at;
  l->offset = l->from + w->offset + (int64_t)w->at;
  w->at += l->n + (end ? 1 : 0);
  if (l->offset == 0 && l->n >= 3 && !memcmp(l->p, "\xef\xbb\xbf", 3)) { // a byte order mark
    l->p += 3;
    l->n -= 3;
  }
  if (l->n && l->p[l->n - 1] == '\r')
    l->n--;
  return (manta_status)1;
}

void manta__line_scan_place(const struct manta__line_scan *l, char *out, size_t size)
{
  int64_t line = manta__format_line(l->file, l->offset);
  if (line)
    snprintf(out, size, "%s:%" PRId64 ": ", l->file->source->name, line);
  else
    snprintf(out, size, "%s: near byte %" PRId64 ": ", l->file->source->name, l->offset);
}

// --- cuts ---------------------------------------------------------------------------------------

// Where the first line begins behind `at`, which is not 0; the end if there is none.
static manta_status next_line(const struct manta__file *f, int64_t at, char *buf, int64_t *out,
                              manta_error *err)
{
  int64_t size = f->source->size;
  for (at--; at < size; at += CHUNK) {
    size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
    MANTA_TRY(manta__source_read(f->source, at, buf, n, err));
    const char *found = memchr(buf, '\n', n);
    if (found) {
      *out = at + (found - buf) + 1;
      return MANTA_OK;
    }
  }
  *out = size;
  return MANTA_OK;
}

manta_status manta__line_scan_cut(const struct manta__file *f, int32_t number,
                                  struct manta__blocks *out, manta_error *err)
{
  int64_t from = 0, to, size = f->source->size, each = (int64_t)f->config->block_bytes;
  char *buf = manta__malloc(CHUNK);
  manta_status st = MANTA_OK;
  if (!buf)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to cut it", f->source->name);
  do {
    int64_t left = size - from;
    to = size;
    if (left - left / 4 > each) // a small rest is no block of its own
      st = next_line(f, from + each, buf, &to, err);
    if (st == MANTA_OK)
      st = manta__blocks_add(out, (struct manta__block){number, from, to}, err);
    from = to;
  } while (from < size && st == MANTA_OK);
  manta__free(buf);
  return st;
}
