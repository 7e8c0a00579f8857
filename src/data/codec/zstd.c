/* SPDX-License-Identifier: Apache-2.0
 *
 * data/codec/zstd.c - Zstandard by libzstd, in a module of its own.
 */
#include <zstd.h>

#include "data/source/codec.h"

#define WINDOW_LOG 27 /* 128 MB: what the zstd program takes without being asked for more */

struct zstd_decoder {
  struct manta__decoder decoder;
  const struct manta__codec_host *host;
  ZSTD_DStream *z;
  bool whole;
};

static const struct manta__codec codec;

static manta_status create(struct manta__decoder **out, const struct manta__codec_host *host,
                           enum manta__compression form, manta_error *err)
{
  struct zstd_decoder *d = host->alloc(1, sizeof *d);
  if (!d || !(d->z = ZSTD_createDStream())) {
    host->free(d);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for libzstd");
  }
  ZSTD_DCtx_setParameter(d->z, ZSTD_d_windowLogMax, WINDOW_LOG);
  d->decoder.codec = &codec;
  d->host = host;
  d->whole = true; // an empty file is one
  *out = &d->decoder;
  return MANTA_OK;
}

static void destroy(struct manta__decoder *decoder)
{
  struct zstd_decoder *d = (struct zstd_decoder *)decoder;
  ZSTD_freeDStream(d->z);
  d->host->free(d);
}

static manta_status step(struct manta__decoder *decoder, const uint8_t **in, const uint8_t *in_end,
                         uint8_t **out, uint8_t *out_end, bool *whole, manta_error *err)
{
  struct zstd_decoder *d = (struct zstd_decoder *)decoder;
  ZSTD_inBuffer from = {*in, (size_t)(in_end - *in), 0};
  ZSTD_outBuffer to = {*out, (size_t)(out_end - *out), 0};
  *whole = d->whole;
  if (d->whole && from.size == 0)
    return MANTA_OK;
  size_t rc = ZSTD_decompressStream(d->z, &to, &from);
  *in += from.pos;
  *out += to.pos;
  if (ZSTD_isError(rc))
    return manta_error_set(err, MANTA_ECORRUPT, "is no valid zstd: %s", ZSTD_getErrorName(rc));
  *whole = d->whole = rc == 0;
  return MANTA_OK;
}

static const struct manta__codec codec = {MANTA__CODEC_VERSION, create, destroy, step};

extern MANTA_API const struct manta__codec *const manta_codec_entry;
const struct manta__codec *const manta_codec_entry = &codec;
