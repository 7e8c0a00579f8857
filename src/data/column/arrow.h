/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/arrow.h - batches out of and into Arrow's C data interface.
 *
 * Out: buffers are shared, not copied. An exported array holds references of its own, and so does
 * each of its children: a consumer may move one out and release it when it likes, in any thread.
 *
 * In: buffers are shared as well; a foreign array lives until the last column over it is gone. What
 * lies in another way than ours is copied: 64-bit offsets (the offsets alone), string views,
 * dictionaries, misaligned buffers, columns of type null.
 * (1) Nothing that an array says is believed: lengths, offsets, counts, indices of dictionaries and
 *     views are checked before they are used, so that no read leaves the buffers, as far as the
 *     interface tells their sizes at all (of text it tells none but the last offset).
 * (2) A record batch is a struct without nulls; any other array is one column, named "value" if it
 *     has no name.
 * (3) Lists of changing length, structs, maps, unions, decimals and intervals are refused by name.
 */
#ifndef MANTA_DATA_COLUMN_ARROW_H
#define MANTA_DATA_COLUMN_ARROW_H

#include "data/column/batch.h"

/* Gives: the caller releases *out. */
manta_status manta__arrow_export_schema(const struct manta__schema *s, struct ArrowSchema *out,
                                        manta_error *err);
manta_status manta__arrow_export(const manta_batch *b, struct ArrowArray *out, manta_error *err);

/* Our schema for theirs, which is only looked at. */
manta_status manta__arrow_import_schema(const struct ArrowSchema *in, struct manta__schema **out,
                                        manta_error *err);
/* Takes the array: on success *in is released-from-here (its release is NULL); on failure it is the
 * caller's as it was. `theirs` and `ours` are the two forms of its schema. */
manta_status manta__arrow_import(manta_batch **out, struct ArrowArray *in,
                                 const struct ArrowSchema *theirs, struct manta__schema *ours,
                                 struct manta__pool *pool, manta_error *err);

/* A foreign stream of batches. {0} is closed; close twice is harmless. */
struct manta__arrow_stream {
  struct ArrowArrayStream stream;
  struct ArrowSchema theirs;
  struct manta__schema *schema;
  struct manta__pool *pool;
  int64_t rows; /* that were read */
};

/* Takes the stream, also on failure. */
manta_status manta__arrow_stream_open(struct manta__arrow_stream *s, struct ArrowArrayStream *in,
                                      manta_error *err);
/* 1 and a batch, 0 at the end, or how it failed. */
manta_status manta__arrow_stream_next(struct manta__arrow_stream *s, manta_batch **out,
                                      manta_error *err);
void manta__arrow_stream_close(struct manta__arrow_stream *s);

/* A stream of ours for others: next(ctx) is called as manta__arrow_stream_next is, close(ctx) once,
 * when the consumer releases the stream. On failure neither is called, ever. */
manta_status manta__arrow_stream_export(struct ArrowArrayStream *out, struct manta__schema *schema,
                                        manta_status (*next)(void *ctx, manta_batch **out,
                                                             manta_error *err),
                                        void (*close)(void *ctx), void *ctx, manta_error *err);

#endif
