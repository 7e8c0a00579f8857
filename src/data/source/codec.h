/* SPDX-License-Identifier: Apache-2.0
 *
 * data/source/codec.h - compressed bytes become plain ones: the table that a module fills.
 *
 * zlib and libzstd are loaded when a compressed file is first read, as libmanta-zlib.so and
 * libmanta-zstd.so. Each decoder sees its input in pieces of any size, keeps what state it needs,
 * and never makes more than it is given room for.
 */
#ifndef MANTA_DATA_SOURCE_CODEC_H
#define MANTA_DATA_SOURCE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#define MANTA__CODEC_VERSION 1
#define MANTA__CODEC_ENTRY   "manta_codec_entry"

enum manta__compression {
  MANTA__PLAIN,
  MANTA__GZIP,    /* members one after the other, as gzip and pigz write them */
  MANTA__ZSTD,    /* frames one after the other */
  MANTA__DEFLATE, /* bare, as in zip files */
};

struct manta__codec;

/* The heap of the library. A module has a copy of base/ of its own, whose memory nobody counts. */
struct manta__codec_host {
  void *(*alloc)(size_t n, size_t size); /* cleared */
  void (*free)(void *p);
};

/* One stream that is being decoded; a module embeds it as its first member. */
struct manta__decoder {
  const struct manta__codec *codec;
};

struct manta__codec {
  uint32_t version; /* MANTA__CODEC_VERSION */
  manta_status (*create)(struct manta__decoder **out, const struct manta__codec_host *host,
                         enum manta__compression form, manta_error *err);
  void (*destroy)(struct manta__decoder *d);
  /* Moves *in and *out on by what was consumed and made. *whole: what was consumed so far is
   * complete, so that the input may end here. MANTA_ECORRUPT: it is none of that form. */
  manta_status (*step)(struct manta__decoder *d, const uint8_t **in, const uint8_t *in_end,
                       uint8_t **out, uint8_t *out_end, bool *whole, manta_error *err);
};

/* The table of the module that knows the form. */
manta_status manta__codec_load(enum manta__compression form, const struct manta__codec **out,
                               manta_error *err);
/* By the end of a name: .gz, .zst; else PLAIN. */
enum manta__compression manta__compression_of(const char *name);
/* "gzip", "zstd", "none"; false: something else. */
bool manta__compression_parse(enum manta__compression *out, const char *text);

#endif
