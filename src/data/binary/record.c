/* SPDX-License-Identifier: Apache-2.0 */
#include "data/binary/record.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc.h"

#define WINDOW ((size_t)256 << 10)
#define FRAME  MANTA__RECORD_FRAME
#define TAIL   4 /* the checksum behind the bytes */

manta_status manta__records_open(struct manta__records *r, const struct manta__file *file,
                                 int64_t from, int64_t to, manta_error *err)
{
  size_t limit = file->config->row_bytes + FRAME + TAIL;
  *r = (struct manta__records){.file = file, .from = from};
  return manta__window_open(&r->window, file->source, from, to, file->compression,
                            limit < WINDOW ? limit : WINDOW, limit, err);
}

void manta__records_close(struct manta__records *r)
{
  manta__window_close(&r->window);
  *r = (struct manta__records){0};
}

static uint32_t u32(const uint8_t *p)
{
  uint32_t v;
  memcpy(&v, p, 4); // little endian
  return v;
}

static uint64_t u64(const uint8_t *p)
{
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}

// At least n bytes behind `at`, unless the block ends before.
static manta_status have(struct manta__records *r, size_t n, manta_error *err)
{
  struct manta__window *w = &r->window;
  while (w->end - w->at < n && !w->last)
    MANTA_TRY(manta__window_more(w, err));
  return MANTA_OK;
}

static manta_status damaged(struct manta__records *r, size_t used, manta_error *err,
                            const char *what)
{
  r->used = used;
  return manta_error_set(err, MANTA_ECORRUPT,
                         "%s: the record at byte %" PRId64 " %s\nhint: is it a TFRecord file, and "
                         "whole? skip_errors (on_error=\"skip\") leaves out such records",
                         r->file->source->name, r->offset, what);
}

manta_status manta__records_next(struct manta__records *r, manta_error *err)
{
  struct manta__window *w = &r->window;
  w->at += r->used;
  r->used = 0;
  MANTA_TRY(have(r, FRAME, err));
  size_t there = w->end - w->at;
  r->offset = r->from + w->offset + (int64_t)w->at;
  if (there == 0)
    return 0;
  const uint8_t *p = w->base + w->at;
  if (there < FRAME)
    return damaged(r, there, err, "is not whole: the file ends in it");
  if (manta__crc32c_masked(p, 8) != u32(p + 8)) {
    w->last = true; // nothing behind it can be found
    return damaged(r, w->end - w->at, err, "is damaged: the checksum of its length is wrong");
  }
  uint64_t n = u64(p);
  if (n > r->file->config->row_bytes)
    return manta_error_set(err, MANTA_ETOOBIG,
                           "%s: the record at byte %" PRId64 " has %" PRIu64
                           " bytes; the limit is %zu\nhint: row_bytes sets another",
                           r->file->source->name, r->offset, n, r->file->config->row_bytes);
  MANTA_TRY(have(r, FRAME + (size_t)n + TAIL, err));
  there = w->end - w->at;
  p = w->base + w->at;
  if (there < FRAME + n + TAIL)
    return damaged(r, there, err, "is not whole: the file ends in it");
  r->used = FRAME + (size_t)n + TAIL;
  if (manta__crc32c_masked(p + FRAME, (size_t)n) != u32(p + FRAME + n))
    return damaged(r, r->used, err, "is damaged: its checksum is wrong");
  r->p = p + FRAME;
  r->n = (size_t)n;
  return (manta_status)1;
}

// --- cuts ---------------------------------------------------------------------------------------

/* A look at the file, here and there. */
struct record_peek {
  struct manta__source *source;
  uint8_t *buf;
  int64_t at, end; /* what is in it */
};

static manta_status peek(struct record_peek *k, int64_t at, const uint8_t **out, manta_error *err)
{
  if (at < k->at || at + FRAME > k->end) {
    int64_t left = k->source->size - at;
    k->at = at;
    k->end = at + (left < (int64_t)WINDOW ? left : (int64_t)WINDOW);
    MANTA_TRY(manta__source_read(k->source, at, k->buf, (size_t)(k->end - at), err));
  }
  *out = k->buf + (at - k->at);
  return MANTA_OK;
}

// Where the first record begins at `target` or behind it. What is damaged is left to the reader:
// the rest of the file then is one block.
static manta_status hop(struct record_peek *k, int64_t from, int64_t target, int64_t *out,
                        manta_error *err)
{
  int64_t size = k->source->size;
  while (from < target) {
    const uint8_t *p;
    if (size - from < FRAME)
      break;
    MANTA_TRY(peek(k, from, &p, err));
    uint64_t n = u64(p);
    if (manta__crc32c_masked(p, 8) != u32(p + 8) || n > (uint64_t)(size - from - FRAME) ||
        (uint64_t)(size - from - FRAME) - n < TAIL)
      break;
    from += FRAME + (int64_t)n + TAIL;
  }
  *out = from < target ? size : from;
  return MANTA_OK;
}

manta_status manta__records_cut(const struct manta__file *f, int32_t number,
                                struct manta__blocks *out, manta_error *err)
{
  struct record_peek k = {.source = f->source, .buf = manta__malloc(WINDOW)};
  int64_t from = 0, to, size = f->source->size, each = (int64_t)f->config->block_bytes;
  manta_status st = MANTA_OK;
  if (!k.buf)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to cut it", f->source->name);
  do {
    int64_t left = size - from;
    to = size;
    if (left - left / 4 > each) // a small rest is no block of its own
      st = hop(&k, from, from + each, &to, err);
    if (st == MANTA_OK)
      st = manta__blocks_add(out, (struct manta__block){number, from, to}, err);
    from = to;
  } while (from < size && st == MANTA_OK);
  manta__free(k.buf);
  return st;
}
