/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source/input.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"

#define PACKED (128u << 10)

// --- input --------------------------------------------------------------------------------------

static const struct manta__codec_host host = {manta__calloc, manta__free};

static manta_status open_decoder(struct manta__input *in, enum manta__compression form,
                                 manta_error *err)
{
  const struct manta__codec *codec;
  MANTA_TRY(manta__codec_load(form, &codec, err));
  if (!(in->packed = manta__malloc(PACKED)))
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", in->source->name);
  return codec->create(&in->decoder, &host, form, err);
}

manta_status manta__input_open(struct manta__input *in, struct manta__source *source, int64_t from,
                               int64_t to, enum manta__compression form, manta_error *err)
{
  *in = (struct manta__input){.source = source, .at = from, .end = to, .whole = true};
  manta__source_expect(source, from, to);
  manta_status st = form == MANTA__PLAIN ? MANTA_OK : open_decoder(in, form, err);
  if (st < 0)
    manta__input_close(in);
  return st;
}

void manta__input_close(struct manta__input *in)
{
  if (in->decoder)
    in->decoder->codec->destroy(in->decoder);
  manta__free(in->packed);
  *in = (struct manta__input){0};
}

static manta_status read_plain(struct manta__input *in, void *to, size_t n, size_t *got,
                               manta_error *err)
{
  if ((int64_t)n > in->end - in->at)
    n = (size_t)(in->end - in->at);
  MANTA_TRY(manta__source_read(in->source, in->at, to, n, err));
  in->at += (int64_t)n;
  *got = n;
  return MANTA_OK;
}

static manta_status decode(struct manta__input *in, uint8_t **to, uint8_t *end, manta_error *err)
{
  const uint8_t *from = in->packed + in->next;
  manta_error why = MANTA_ERROR_INIT;
  manta_status st = in->decoder->codec->step(in->decoder, &from, in->packed + in->filled, to, end,
                                             &in->whole, &why);
  in->next = (size_t)(from - in->packed);
  if (st < 0)
    return manta_error_set(err, st,
                           "%s: near byte %" PRId64 " %s\nhint: fetch it again; one that is not "
                           "compressed is read with compression = \"none\"",
                           in->source->name, in->at - (int64_t)(in->filled - in->next),
                           why.message);
  return MANTA_OK;
}

static manta_status read_packed(struct manta__input *in, uint8_t *to, size_t n, size_t *got,
                                manta_error *err)
{
  uint8_t *p = to;
  *got = 0;
  while (p < to + n) {
    if (in->next == in->filled) {
      MANTA_TRY(read_plain(in, in->packed, PACKED, &in->filled, err));
      in->next = 0;
    }
    uint8_t *before = p;
    size_t at = in->next;
    MANTA_TRY(decode(in, &p, to + n, err));
    if (p > before || in->next > at)
      continue;
    if (in->whole) // what lies behind the end of a zip member is none of ours
      break;
    return manta_error_set(err, MANTA_ECORRUPT,
                           "%s: ends in the middle of what is compressed: it is not whole"
                           "\nhint: was it written or copied to its end? Fetch it again",
                           in->source->name);
  }
  *got = (size_t)(p - to);
  return MANTA_OK;
}

manta_status manta__input_read(struct manta__input *in, void *to, size_t n, size_t *got,
                               manta_error *err)
{
  return in->decoder ? read_packed(in, to, n, got, err) : read_plain(in, to, n, got, err);
}

manta_status manta__input_need(struct manta__input *in, void *to, size_t n, manta_error *err)
{
  size_t got;
  MANTA_TRY(manta__input_read(in, to, n, &got, err));
  return got == n ? MANTA_OK
                  : manta_error_set(err, MANTA_ECORRUPT, "%s: ends %zu bytes too early",
                                    in->source->name, n - got);
}

// --- window -------------------------------------------------------------------------------------

manta_status manta__window_open(struct manta__window *w, struct manta__source *source, int64_t from,
                                int64_t to, enum manta__compression form, size_t cap, size_t limit,
                                manta_error *err)
{
  if (form == MANTA__PLAIN && to - from < (int64_t)cap) // one byte more shows that it is the end
    cap = (size_t)(to - from) + 1;
  *w = (struct manta__window){.cap = cap, .limit = limit > cap ? limit : cap};
  MANTA_TRY(manta__input_open(&w->input, source, from, to, form, err));
  if (!(w->block = manta__calloc(1, cap + 2 * MANTA__WINDOW_SLACK))) {
    manta__window_close(w);
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", source->name);
  }
  w->base = w->block + MANTA__WINDOW_SLACK;
  return MANTA_OK;
}

void manta__window_close(struct manta__window *w)
{
  manta__input_close(&w->input);
  manta__free(w->block);
  *w = (struct manta__window){0};
}

static manta_status grow(struct manta__window *w, manta_error *err)
{
  size_t cap = 2 * w->cap < w->limit ? 2 * w->cap : w->limit;
  if (cap == w->cap)
    return manta_error_set(err, MANTA_ETOOBIG, "%s: a row has more than %zu bytes",
                           w->input.source->name, w->limit);
  uint8_t *block = manta__realloc(w->block, cap + 2 * MANTA__WINDOW_SLACK);
  if (!block)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for a row of %zu bytes",
                           w->input.source->name, cap);
  w->block = block;
  w->base = block + MANTA__WINDOW_SLACK;
  w->cap = cap;
  return MANTA_OK;
}

manta_status manta__window_more(struct manta__window *w, manta_error *err)
{
  size_t rest = w->end - w->at, got;
  if (w->last)
    return MANTA_OK;
  if (w->at) {
    memmove(w->base, w->base + w->at, rest);
    w->offset += (int64_t)w->at;
    w->at = 0;
    w->end = rest;
  }
  if (rest == w->cap)
    MANTA_TRY(grow(w, err));
  MANTA_TRY(manta__input_read(&w->input, w->base + rest, w->cap - rest, &got, err));
  w->last = got < w->cap - rest;
  w->end = rest + got;
  memset(w->base + w->end, 0, MANTA__WINDOW_SLACK);
  return MANTA_OK;
}
