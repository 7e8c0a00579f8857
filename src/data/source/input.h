/* SPDX-License-Identifier: Apache-2.0
 *
 * data/source/input.h - a byte range of a source from beginning to end, decompressed if need be;
 * and a window on it for readers that look for the ends of rows.
 */
#ifndef MANTA_DATA_SOURCE_INPUT_H
#define MANTA_DATA_SOURCE_INPUT_H

#include "data/source/codec.h"
#include "data/source/source.h"

/* {0} is closed; close twice is harmless. */
struct manta__input {
  struct manta__source *source; /* borrowed */
  int64_t at, end;              /* in the source */
  struct manta__decoder *decoder;
  uint8_t *packed; /* what was read and not decoded yet: [next, filled) */
  size_t next, filled;
  bool whole; /* the input may end here */
};

/* The bytes [from, to) of the source, which must outlive it. What is compressed is decoded. */
manta_status manta__input_open(struct manta__input *in, struct manta__source *source, int64_t from,
                               int64_t to, enum manta__compression form, manta_error *err);
void manta__input_close(struct manta__input *in);
/* Reads up to n bytes; fewer only at the end. MANTA_ECORRUPT: what is compressed makes no sense, or
 * ends too early. */
manta_status manta__input_read(struct manta__input *in, void *to, size_t n, size_t *got,
                               manta_error *err);
/* Exactly n bytes; MANTA_ECORRUPT says that the file ends too early. */
manta_status manta__input_need(struct manta__input *in, void *to, size_t n, manta_error *err);

/* A part of the input in memory: bytes [at, end) of base are there and not used yet.
 * (1) 64 bytes in front of base and behind `end` may be read, whatever they hold: kernels look at
 *     whole vectors.
 * (2) It grows when a row is longer than it, up to its limit.
 * {0} is closed; close twice is harmless. */
struct manta__window {
  struct manta__input input;
  uint8_t *block, *base;
  size_t cap, at, end, limit;
  int64_t offset; /* of base[0] in what was decoded, from the beginning of the range on */
  bool last;      /* nothing follows base[end] */
};

#define MANTA__WINDOW_SLACK 64

/* A window of `cap` bytes that may become `limit`. */
manta_status manta__window_open(struct manta__window *w, struct manta__source *source, int64_t from,
                                int64_t to, enum manta__compression form, size_t cap, size_t limit,
                                manta_error *err);
void manta__window_close(struct manta__window *w);
/* More bytes behind `end`, if there are any: what is not used yet moves to the front, and the
 * window doubles if it is full of it. MANTA_ETOOBIG at the limit. */
manta_status manta__window_more(struct manta__window *w, manta_error *err);

#endif
