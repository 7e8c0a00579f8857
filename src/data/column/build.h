/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/build.h - a column under construction.
 *
 * (1) Room for `cap` values is there from the beginning. Kernels write numbers straight into
 *     manta__build_data from number `rows` on, and then call manta__build_valid, which counts them
 *     in; the put functions write one value and count it.
 * (2) There is no bitmap before the first null.
 * (3) What is under construction belongs to nobody else; finish makes a column of it and leaves the
 *     builder empty. {0} is empty; fini twice is harmless.
 * (4) Text has a limit of its own, MANTA_ETOOBIG behind it: below 2 GiB, whatever was asked.
 */
#ifndef MANTA_DATA_COLUMN_BUILD_H
#define MANTA_DATA_COLUMN_BUILD_H

#include <string.h>

#include "data/column/column.h"

struct manta__build {
  struct manta__type type;
  size_t width; /* of a number */
  int64_t rows, cap, nulls;
  size_t text, text_max; /* bytes of what varies in length */
  struct manta__pool *pool;
  struct manta__memory *mem[MANTA__BUFFERS];
};

/* MANTA_ENOMEM, or room for cap values; b is empty. `text_max`: at most so many bytes of text. */
manta_status manta__build_begin(struct manta__build *b, const struct manta__type *type, int64_t cap,
                                size_t text_max, struct manta__pool *pool, manta_error *err);
void manta__build_fini(struct manta__build *b);
/* Takes what was built; `out` must be empty. Cannot fail. */
void manta__build_finish(struct manta__build *b, struct manta__column *out);

/* How far it is, and back to there: what was put since is forgotten. */
struct manta__build_mark {
  int64_t rows, nulls;
  size_t text;
};

static inline struct manta__build_mark manta__build_mark(const struct manta__build *b)
{
  return (struct manta__build_mark){b->rows, b->nulls, b->text};
}

static inline void manta__build_rewind(struct manta__build *b, struct manta__build_mark m)
{
  b->rows = m.rows;
  b->nulls = m.nulls;
  b->text = m.text;
}

static inline void *manta__build_data(struct manta__build *b)
{
  return (char *)b->mem[MANTA__DATA]->data + (size_t)b->rows * b->width;
}

/* n numbers were written, but of these `nulls` there is none: rows counted from b->rows on. Their
 * values become NaN or 0. */
manta_status manta__build_valid(struct manta__build *b, int64_t n, const uint32_t *nulls,
                                int64_t null_count, manta_error *err);

/* One value each. There must be room: rows < cap. */
manta_status manta__build_null(struct manta__build *b, manta_error *err);
manta_status manta__build_text(struct manta__build *b, const char *p, size_t n, manta_error *err);
void manta__build_bool(struct manta__build *b, bool on);
void manta__build_number(struct manta__build *b, const void *value); /* width bytes */
void manta__build_done(
    struct manta__build *b); /* a number that lies at manta__build_data already */

/* Room for n more bytes of text, where the caller writes the next value itself and then says how
 * many it was. */
manta_status manta__build_text_room(struct manta__build *b, size_t n, char **out, manta_error *err);
void manta__build_text_done(struct manta__build *b, size_t n);

#endif
