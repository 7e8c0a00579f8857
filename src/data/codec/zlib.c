/* SPDX-License-Identifier: Apache-2.0
 *
 * data/codec/zlib.c - gzip and deflate by zlib, in a module of its own.
 */
#include <limits.h>
#include <zlib.h>

#include "data/source/codec.h"

struct zlib_decoder {
  struct manta__decoder decoder;
  const struct manta__codec_host *host;
  z_stream z;
  enum manta__compression form;
  bool between; /* members: the next byte, if there is one, begins another */
};

static void *take(void *ctx, unsigned n, unsigned size)
{
  return ((const struct manta__codec_host *)ctx)->alloc(n, size);
}

static void give(void *ctx, void *p)
{
  ((const struct manta__codec_host *)ctx)->free(p);
}

static const struct manta__codec codec;

static manta_status create(struct manta__decoder **out, const struct manta__codec_host *host,
                           enum manta__compression form, manta_error *err)
{
  struct zlib_decoder *d = host->alloc(1, sizeof *d);
  if (d) {
    d->host = host;
    d->z.opaque = (void *)(uintptr_t)host;
    d->decoder.codec = &codec;
    d->form = form;
    d->z.zalloc = take;
    d->z.zfree = give;
  }
  // 15 bits of window; 16 more say gzip, a negative number says bare
  if (!d || inflateInit2(&d->z, form == MANTA__DEFLATE ? -15 : 15 + 16) != Z_OK) {
    host->free(d);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for zlib");
  }
  *out = &d->decoder;
  return MANTA_OK;
}

static void destroy(struct manta__decoder *decoder)
{
  struct zlib_decoder *d = (struct zlib_decoder *)decoder;
  inflateEnd(&d->z);
  d->host->free(d);
}

static unsigned at_most(size_t n)
{
  return n > UINT_MAX ? UINT_MAX : (unsigned)n;
}

static manta_status step(struct manta__decoder *decoder, const uint8_t **in, const uint8_t *in_end,
                         uint8_t **out, uint8_t *out_end, bool *whole, manta_error *err)
{
  struct zlib_decoder *d = (struct zlib_decoder *)decoder;
  *whole = d->between;
  if (d->between && (d->form == MANTA__DEFLATE || *in == in_end))
    return MANTA_OK;
  if (d->between)
    inflateReset(&d->z);
  d->z.next_in = (Bytef *)(uintptr_t)*in; // zlib does not write there
  d->z.avail_in = at_most((size_t)(in_end - *in));
  d->z.next_out = *out;
  d->z.avail_out = at_most((size_t)(out_end - *out));
  int rc = inflate(&d->z, Z_NO_FLUSH);
  *in = d->z.next_in;
  *out = d->z.next_out;
  *whole = d->between = rc == Z_STREAM_END;
  if (rc == Z_MEM_ERROR)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for zlib");
  if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
    return manta_error_set(err, MANTA_ECORRUPT, "is no valid %s: %s",
                           d->form == MANTA__DEFLATE ? "deflate" : "gzip",
                           d->z.msg ? d->z.msg : "it needs a dictionary");
  return MANTA_OK;
}

static const struct manta__codec codec = {MANTA__CODEC_VERSION, create, destroy, step};

extern MANTA_API const struct manta__codec *const manta_codec_entry;
const struct manta__codec *const manta_codec_entry = &codec;
