/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/data.h - data sets: files of any size become batches of typed columns.
 *
 * A data set is a list of files with one schema. It is cut into blocks (a file, or a byte range of
 * one that begins and ends at a row), and a reader turns some of the blocks into batches: bounded
 * pieces of columns that are Arrow arrays, so that pyarrow, pandas, Polars or numpy take them
 * without a copy. Nothing is read before it is asked for, and never more than a batch at a time.
 *
 *     manta_dataset *d;
 *     manta_reader *r;
 *     manta_batch *b;
 *     MANTA_TRY(manta_dataset_open(&d, &(const char *){"train"}, 1, NULL, err));
 *     MANTA_TRY(manta_reader_open(&r, d, 0, manta_dataset_blocks(d), err));
 *     while ((st = manta_reader_next(r, &b, err)) == 1) {
 *       manta_column x;
 *       MANTA_TRY(manta_batch_column_named(b, "x", &x, err));
 *       ...
 *       manta_batch_destroy(b);
 *     }
 */
#ifndef MANTA_DATA_H
#define MANTA_DATA_H

#include <manta/ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Types ------------------------------------------------------------------------------------ */

typedef enum manta_kind {
  MANTA_KIND_NUMBER, /* a number of `dtype`; with ndim > 0 an array of them of a fixed shape */
  MANTA_KIND_BOOL,   /* one bit each, from the lowest on */
  MANTA_KIND_STRING, /* UTF-8 */
  MANTA_KIND_BYTES
} manta_kind;

/* A column of a schema. The name is borrowed. */
typedef struct manta_field {
  const char *name;
  manta_kind kind;
  manta_dtype dtype; /* of a NUMBER */
  int ndim;          /* of each value: 0 but for tensors */
  int64_t shape[MANTA_MAX_DIMS];
} manta_field;

/* The values of a column in a batch. All pointers are borrowed from the batch. Value i is
 * data[offset + i] (times the elements of the shape), bit offset + i of a BOOL, and of a STRING or
 * BYTES the bytes data[offsets[offset + i]] to data[offsets[offset + i + 1]]. It is null if `valid`
 * is not NULL and bit offset + i of it is 0; a null float reads as NaN, any other number as 0. */
typedef struct manta_column {
  manta_field field;
  int64_t rows, offset, nulls;
  const void *data;
  const int32_t *offsets; /* STRING and BYTES only */
  const uint8_t *valid;   /* NULL: no value is null */
} manta_column;

/* --- Arrow's C data interface ----------------------------------------------------------------- */

/* An ABI, not a library: these structs are what Arrow's specification says, and the guard is the
 * one that it asks for. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE           2
#define ARROW_FLAG_MAP_KEYS_SORTED    4

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};
#endif

/* --- Batches ---------------------------------------------------------------------------------- */

typedef struct manta_batch manta_batch;

/* Gives back the memory of its columns, unless an exported array still holds it. NULL is fine. Any
 * thread may destroy a batch, and many may read one. */
MANTA_API void manta_batch_destroy(manta_batch *b);
MANTA_API int64_t manta_batch_rows(const manta_batch *b);
MANTA_API int manta_batch_columns(const manta_batch *b);
/* Column `column`, from 0 on, or that of a name. MANTA_ENOENT: there is none; the message has the
 * nearest names. */
MANTA_API manta_status manta_batch_column(const manta_batch *b, int column, manta_column *out,
                                          manta_error *err);
MANTA_API manta_status manta_batch_column_named(const manta_batch *b, const char *name,
                                                manta_column *out, manta_error *err);
/* Gives the batch as a record batch of Arrow (a struct array), without a copy: its buffers live
 * until both the batch is destroyed and what was exported is released. The caller releases both
 * structs, or hands them to a library that does. On failure neither is to be used. */
MANTA_API manta_status manta_batch_export(const manta_batch *b, struct ArrowSchema *schema,
                                          struct ArrowArray *array, manta_error *err);

#ifdef __cplusplus
}
#endif
#endif
