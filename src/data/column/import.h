/* SPDX-License-Identifier: Apache-2.0
 *
 * data/column/import.h - one foreign column; arrow.h says what is taken, import.c does batches.
 */
#ifndef MANTA_DATA_COLUMN_IMPORT_H
#define MANTA_DATA_COLUMN_IMPORT_H

#include "data/column/arrow.h"

/* A foreign array under import: which values of it are meant, and who keeps its buffers. */
struct manta__foreign {
  const struct ArrowArray *array;
  const struct ArrowSchema *schema;
  const char *name; /* of the column, for messages */
  int64_t offset, length;
  struct manta__memory *memory; /* borrowed: each buffer that is kept takes a reference */
  struct manta__pool *pool;
};

/* The type that a column gets; MANTA_EUNSUPPORTED says why it gets none. */
manta_status manta__foreign_type(const struct ArrowSchema *s, const char *name,
                                 struct manta__type *out, manta_error *err);
/* `out` must be empty, and is on failure. */
manta_status manta__foreign_column(const struct manta__foreign *f, struct manta__column *out,
                                   manta_error *err);
/* Forms that have to be copied: dictionaries, string views, 64-bit offsets. */
manta_status manta__foreign_dictionary(const struct manta__foreign *f, struct manta__column *out,
                                       manta_error *err);
manta_status manta__foreign_views(const struct manta__foreign *f, struct manta__column *out,
                                  manta_error *err);
manta_status manta__foreign_large(const struct manta__foreign *f, struct manta__column *out,
                                  manta_error *err);

/* What all forms have in common: lengths, counts, and `buffers` buffers; then the bitmap, if there
 * is one, is that of `out`, and so are type, length and offset. */
manta_status manta__foreign_begin(const struct manta__foreign *f, int64_t buffers,
                                  struct manta__column *out, manta_error *err);
/* Buffer `at` of the array; MANTA_EINVAL if there is none although `needed`. */
manta_status manta__foreign_buffer(const struct manta__foreign *f, int64_t at, bool needed,
                                   const void **out, manta_error *err);

#endif
