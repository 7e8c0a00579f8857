/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/data.h - data sets: files of any size become batches of typed columns.
 *
 * A data set is a list of files with one schema, and the steps that its rows go through (filters,
 * new columns, a shuffle). It is cut into blocks (a file, or a byte range of one that begins and
 * ends at a row). A loader gives each rank its part of global batches, in an order of all rows that
 * does not depend on the number of ranks; a reader turns some of the blocks into batches. Batches
 * are columns that are Arrow arrays, so that pyarrow, pandas, Polars or numpy take them without a
 * copy. Nothing is read before it is asked for, and memory is bounded.
 *
 *     manta_dataset *d, *shuffled;
 *     manta_loader *l;
 *     manta_batch *b;
 *     manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
 *     c.batch_rows = 1024;
 *     MANTA_TRY(manta_dataset_open(&d, &(const char *){"train"}, 1, NULL, err));
 *     MANTA_TRY(manta_dataset_shuffle(&shuffled, d, 42, 0, err));
 *     MANTA_TRY(manta_loader_open(&l, shuffled, &c, err));
 *     while ((st = manta_loader_next(l, &b, err)) == 1) {
 *       manta_column x;
 *       MANTA_TRY(manta_batch_column_named(b, "x", &x, err));
 *       ...
 *       manta_batch_destroy(b);
 *     }
 */
#ifndef MANTA_DATA_H
#define MANTA_DATA_H

#include <manta/ckpt.h>
#include <manta/session.h>
#include <manta/value.h>

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
 * is not NULL and bit offset + i of it is 0; a null that was read from a file reads as NaN, or as 0
 * where there is no NaN. */
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
/* Makes a batch of values of the caller's, which are copied; each column says its name, its type
 * and as many rows as the others. MANTA_EINVAL names the column that makes no sense. */
MANTA_API manta_status manta_batch_create(manta_batch **out, const manta_column *columns, int count,
                                          manta_error *err);
/* Makes a batch of an Arrow array that is a record batch, or of any other as the column "value".
 * Buffers are shared where the layout allows it. Takes the array: on success its release is NULL;
 * on failure it is the caller's. `schema` is only looked at. */
MANTA_API manta_status manta_batch_import(manta_batch **out, const struct ArrowSchema *schema,
                                          struct ArrowArray *array, manta_error *err);
/* Writes these columns side by side as a matrix of rows, row-major, of MANTA_F32, MANTA_F64 or
 * MANTA_I64: a column of tensors takes as many columns of it as a value has elements. A null is
 * NaN, or 0 among integers; bools are 0 and 1. `out` has room for it. MANTA_ETYPE: a column has
 * text; MANTA_ENOENT: there is none of that number. */
MANTA_API manta_status manta_batch_matrix(const manta_batch *b, const int *columns, int count,
                                          manta_dtype dtype, void *out, manta_error *err);
/* Gives the batch as a record batch of Arrow (a struct array), without a copy: its buffers live
 * until both the batch is destroyed and what was exported is released. The caller releases both
 * structs, or hands them to a library that does. On failure neither is to be used. */
MANTA_API manta_status manta_batch_export(const manta_batch *b, struct ArrowSchema *schema,
                                          struct ArrowArray *array, manta_error *err);

/* --- Data sets -------------------------------------------------------------------------------- */

/* How files are read; zero means default. All that it points to is borrowed for the call.
 *
 * A filter is a tree of lists: an operation and its arguments, where other values are literals.
 * Two are [">", ["col", "age"], 30] and ["and", ["==", ["col", "city"], "Bonn"], ["not",
 * ["is_null", ["col", "name"]]]]. Operations: + - * / // % ** neg abs sqrt exp log floor ceil
 * round; == != < <= > >=; and or not; is_null is_nan fill_null where is_in; length contains
 * starts_with ends_with lower upper strip concat; cast. Null in, null out; `and` and `or` know
 * three values; rows for which the filter is null are left out. */
typedef struct manta_data_config {
  size_t size;                /* filled by MANTA_DATA_CONFIG_INIT */
  const char *format;         /* NULL: by the ends of the names. "csv", "json" (an object per line),
                               * "npy", "npz", "tfrecord", "text" (a row per line), "binary" (a row
                               * per file), "fixed" (records of fixed size) */
  const char *compression;    /* NULL: by the ends of the names. "none", "gzip", "zstd" */
  const char *const *columns; /* which of them, in this order */
  size_t column_count;        /* 0: all */
  const manta_value *filter;  /* an expression: only rows for which it is true */
  const manta_value *types;   /* a map from columns to types ("f32", "string"), where those that a
                               * sample shows are not wanted; "fixed": all columns, in order */
  bool skip_errors;           /* rows that cannot be read are left out and counted */
  int64_t batch_rows;         /* of one batch, at most; 0: 65,536 */
  size_t batch_bytes;         /* of one batch, about; 0: 4 MiB */
  size_t block_bytes;         /* files are cut into ranges of about so many; 0: 32 MiB */
  size_t row_bytes;           /* of one row, at most; 0: 64 MiB */

  /* CSV: RFC 4180, lines with or without CR; empty lines are passed over. */
  char separator;           /* 0: a comma, or a tab where the name ends in .tsv */
  char quote;               /* 0: " */
  bool no_quotes;           /* no character quotes */
  bool no_header;           /* the first row is data */
  const char *const *names; /* of all columns, with no_header; NULL: c0, c1, … */
  size_t name_count;
  const char *const *missing; /* what stands for a value that is not there, in all columns; NULL: an
                               * empty field, NA, N/A, null, None, nan and the like, except in
                               * strings */
  size_t missing_count;

  /* "fixed" */
  size_t skip_bytes; /* at the beginning of each file */
} manta_data_config;

#define MANTA_DATA_CONFIG_INIT                                                                     \
  {                                                                                                \
    sizeof(manta_data_config), NULL, NULL, NULL, 0, NULL, NULL, false, 0, 0, 0, 0, 0, 0, false,    \
        false, NULL, 0, NULL, 0, 0                                                                 \
  }

typedef struct manta_dataset manta_dataset;

/* Opens a data set and gives it in *out; the caller closes it. A path is that of a file, a pattern
 * (*, ?, [...]) or a folder, which stands for all files below it, but those whose names begin with
 * "." or "_". Files come in the order of the paths, and those of one path in that of their names.
 * The first file with rows is looked at for columns and types, and some of the others for types
 * that must be wider; of files that are larger than a block, some KB around each cut are read.
 * MANTA_ENOENT: there is no such file or column (the message has the nearest names); MANTA_EINVAL:
 * a file or an option makes no sense; MANTA_EUNSUPPORTED: a format that is not read in C. `config`
 * may be NULL. */
MANTA_API manta_status manta_dataset_open(manta_dataset **out, const char *const *paths,
                                          size_t count, const manta_data_config *config,
                                          manta_error *err);
/* Data sets of rows that are in no file; the caller closes them too. */

/* The rows of an Arrow stream of any library, which are read and held in memory; their buffers are
 * shared where the layout allows it. Takes the stream, also on failure. */
MANTA_API manta_status manta_dataset_import(manta_dataset **out, struct ArrowArrayStream *stream,
                                            manta_error *err);
/* Rows that somebody else reads when they are asked for, block by block. */
typedef struct manta_stream_config {
  size_t size;      /* filled by MANTA_STREAM_CONFIG_INIT */
  const char *name; /* what it is, for messages and plans; NULL: "streams" */
  int64_t blocks;
  uint64_t mark; /* another one for other rows, so that positions can be told apart */
  void *ctx;
  /* Gives the rows of a block: a stream of those columns for which wanted[i] is true (one at
   * least), in the order of the schema, the same rows every time. Threads call it at once. */
  manta_status (*open)(void *ctx, int64_t block, const bool *wanted, struct ArrowArrayStream *out,
                       manta_error *err);
  void (*close)(void *ctx); /* nobody opens streams any more; NULL: nothing is to be done */
} manta_stream_config;

#define MANTA_STREAM_CONFIG_INIT                                                                   \
  {                                                                                                \
    sizeof(manta_stream_config), NULL, 0, 0, NULL, NULL, NULL                                      \
  }

/* `schema` is borrowed for the call. On failure close is not called. */
MANTA_API manta_status manta_dataset_streams(manta_dataset **out, const struct ArrowSchema *schema,
                                             const manta_stream_config *config, manta_error *err);
/* The numbers from 0 to rows - 1 in a column of this name; with ndim > 0 tensors of this shape that
 * are full of them. They take no memory. */
MANTA_API manta_status manta_dataset_range(manta_dataset **out, const char *name, int64_t rows,
                                           const int64_t *shape, int ndim, manta_error *err);

/* NULL is fine. Readers that are open keep what they need. */
MANTA_API void manta_dataset_close(manta_dataset *d);

/* A data set does not change; all that follows may be called by many threads at once. */

MANTA_API int manta_dataset_columns(const manta_dataset *d);
/* Borrowed from the data set. MANTA_ENOENT: there is no such column. */
MANTA_API manta_status manta_dataset_field(const manta_dataset *d, int column, manta_field *out,
                                           manta_error *err);
/* The schema in Arrow's words; the caller releases it. */
MANTA_API manta_status manta_dataset_schema(const manta_dataset *d, struct ArrowSchema *out,
                                            manta_error *err);
/* Behind a limit blocks may be empty. */
MANTA_API int64_t manta_dataset_blocks(const manta_dataset *d);
/* The file that a block is of; borrowed. NULL: there is no such block. */
MANTA_API const char *manta_dataset_block_file(const manta_dataset *d, int64_t block);
/* Counts the rows of one pass: it reads the files, but parses only what filters look at. */
MANTA_API manta_status manta_dataset_count(manta_dataset *d, int64_t *out, manta_error *err);
/* Gives the plan as text, a line per step, the last step first: which columns and filters go down
 * into the files, and in which order rows come. Free it with manta_free. */
MANTA_API manta_status manta_dataset_explain(manta_dataset *d, char **out, manta_error *err);

/* What was read so far of the files that the data set comes from, by it and by others. */
typedef struct manta_data_stats {
  int64_t rows;           /* that readers and loaders were given */
  int64_t skipped;        /* that could not be read, with skip_errors */
  int64_t bytes;          /* of the files, after decompression */
  const char *first_skip; /* why the first of them could not be read; borrowed; "" if none */
  double step;            /* seconds in functions over rows, of all threads and processes */
  double read;            /* seconds in reads of files, likewise: disk, network */
} manta_data_stats;
MANTA_API void manta_dataset_stats(const manta_dataset *d, manta_data_stats *out);

/* --- Steps ------------------------------------------------------------------------------------ */

/* A step gives a new data set in *out, which the caller closes; `d` stays the caller's and may be
 * closed first. Nothing is read: a step is done when rows are, in the threads that read. Columns
 * that nobody looks at are not parsed, and filters run in the reader of the files wherever they
 * can. MANTA_ENOENT names a column that is not there, with the nearest names; MANTA_ETYPE and
 * MANTA_EINVAL name an expression or an option that makes no sense; MANTA_EUNSUPPORTED says in
 * which order steps can be taken. */

/* These columns, in this order. */
MANTA_API manta_status manta_dataset_select(manta_dataset **out, manta_dataset *d,
                                            const char *const *columns, size_t count,
                                            manta_error *err);
/* All columns but these. */
MANTA_API manta_status manta_dataset_drop(manta_dataset **out, manta_dataset *d,
                                          const char *const *columns, size_t count,
                                          manta_error *err);
/* Column from[i] is to[i] from now on. */
MANTA_API manta_status manta_dataset_rename(manta_dataset **out, manta_dataset *d,
                                            const char *const *from, const char *const *to,
                                            size_t count, manta_error *err);
/* These columns as f32 where they are f64 and come from files of text, which then take half of the
 * memory: for who makes f32 of them anyway. Any other data set is given as it is, with a reference
 * more. */
MANTA_API manta_status manta_dataset_single(manta_dataset **out, manta_dataset *d,
                                            const char *const *columns, size_t count,
                                            manta_error *err);
/* A column more at the end, or another one in the place of that of the same name: what the
 * expression gives for each row. */
MANTA_API manta_status manta_dataset_add(manta_dataset **out, manta_dataset *d, const char *name,
                                         const manta_value *expression, manta_error *err);
/* The rows for which the expression is true. */
MANTA_API manta_status manta_dataset_filter(manta_dataset **out, manta_dataset *d,
                                            const manta_value *expression, manta_error *err);
/* Each row with this probability; which ones is a function of the seed and the row alone. */
MANTA_API manta_status manta_dataset_sample(manta_dataset **out, manta_dataset *d, double fraction,
                                            uint64_t seed, manta_error *err);
/* The first rows; behind a shuffle or a repeat, the first that come. */
MANTA_API manta_status manta_dataset_limit(manta_dataset **out, manta_dataset *d, int64_t rows,
                                           manta_error *err);
/* The rows of the first, then those of the second and so on. Columns have equal names and types. */
MANTA_API manta_status manta_dataset_union(manta_dataset **out, manta_dataset *const *d,
                                           size_t count, manta_error *err);
/* Row i of both side by side; a column of `b` whose name `a` has gets the end "_1". Both have
 * equally many rows, else it is MANTA_EINVAL when they are first read. */
MANTA_API manta_status manta_dataset_zip(manta_dataset **out, manta_dataset *a, manta_dataset *b,
                                         manta_error *err);
/* Another order in each epoch: blocks are permuted, and then the rows in windows of `window` rows
 * of the files, by this seed. 0: as many as about 64 MiB hold, by the types of the columns. */
MANTA_API manta_status manta_dataset_shuffle(manta_dataset **out, manta_dataset *d, uint64_t seed,
                                             int64_t window, manta_error *err);
/* Cross validation: each row belongs to one fold, and in split s fold s validates and the others
 * train. Rows are counted once, when they are first read. */
typedef struct manta_fold_config {
  size_t size;      /* filled by MANTA_FOLD_CONFIG_INIT */
  int folds, split; /* 0 <= split < folds */
  bool validate;    /* the rows that validate; else those that train */
  bool shuffle;     /* rows are put into folds by chance, by `seed`; else in runs */
  bool series;      /* what validates comes behind all that trains */
  uint64_t seed;
  const char *stratify; /* a column of which every fold gets its share of each value; or NULL */
  const char *groups;   /* a column: rows of equal value stay in one fold; or NULL */
} manta_fold_config;

#define MANTA_FOLD_CONFIG_INIT                                                                     \
  {                                                                                                \
    sizeof(manta_fold_config), 2, 0, false, false, false, 0, NULL, NULL                            \
  }

/* The training or the validation rows of a split. MANTA_EINVAL: fewer rows or groups than folds
 * (when it is first read), or options that contradict each other. */
MANTA_API manta_status manta_dataset_fold(manta_dataset **out, manta_dataset *d,
                                          const manta_fold_config *config, manta_error *err);
/* Some of the rows, in their order or by chance. Parts of one data set that follow each other have
 * each row once. */
typedef struct manta_part_config {
  size_t size;      /* filled by MANTA_PART_CONFIG_INIT */
  int64_t from, to; /* of `rows` rows, those from rows * from / of to rows * to / of */
  int64_t of;
  bool shuffle; /* which rows are in it is chance, by `seed`; else they follow each other */
  uint64_t seed;
} manta_part_config;

#define MANTA_PART_CONFIG_INIT                                                                     \
  {                                                                                                \
    sizeof(manta_part_config), 0, 1, 1, false, 0                                                   \
  }

/* Rows are counted once, when they are first read. */
MANTA_API manta_status manta_dataset_part(manta_dataset **out, manta_dataset *d,
                                          const manta_part_config *config, manta_error *err);
/* So many passes as one; each has an epoch of its own. 0: without end. */
MANTA_API manta_status manta_dataset_repeat(manta_dataset **out, manta_dataset *d, int64_t times,
                                            manta_error *err);

/* A function of the caller's over batches, in the place where the step is: it is called when rows
 * are read, in the threads that read them, by several at once. */
typedef enum manta_apply_kind {
  MANTA_APPLY_MAP,    /* gives a row for each row, of any columns */
  MANTA_APPLY_ADD,    /* gives columns, as long as the batch, that come beside those that are there
                       * or in the place of those of the same name */
  MANTA_APPLY_FILTER, /* gives the numbers of the rows that stay, rising */
  MANTA_APPLY_ROWS    /* gives any number of rows, of any columns */
} manta_apply_kind;

/* What a function makes of a batch; all zero at first. */
typedef struct manta_applied {
  manta_batch *batch; /* the rows that it gives; taken, also on failure */
  uint32_t *rows;     /* set by manta_applied_rows */
  int64_t count;
} manta_applied;

/* FILTER: the numbers of the rows of the batch that stay, rising. ROWS: of which row of the batch
 * each row that is given was made, not falling, so that positions are exact; without it the rows
 * that are given count as made of those of the batch in equal shares. They are copied. */
MANTA_API manta_status manta_applied_rows(manta_applied *a, const uint32_t *rows, int64_t count,
                                          manta_error *err);

typedef struct manta_apply_config {
  size_t size;      /* filled by MANTA_APPLY_CONFIG_INIT */
  const char *name; /* for messages and plans; NULL: "a function" */
  manta_apply_kind kind;
  int64_t batch_rows; /* of one call: so many, but for the last of a block; 0: as they come */
  const char *const *columns;       /* that the function sees, in this order */
  size_t column_count;              /* 0: all */
  const struct ArrowSchema *schema; /* of what it gives; NULL: the function is called with the first
                                     * rows to find that out. Borrowed for the call */
  /* A failure fails what was asked for (a batch of a loader). The same rows must give the same. */
  manta_status (*call)(void *ctx, const manta_batch *in, manta_applied *out, manta_error *err);
  void (*close)(void *ctx); /* nobody calls it any more; NULL: nothing is to be done */
  void *ctx;
  /* Optional, for a function that can be called in a process of its own, beside the reader of a
   * host, once for all workers there. `pack` gives it as bytes, of which the program's
   * manta_callers (manta/embed.h) make it again; MANTA_EUNSUPPORTED: this one stays where it is.
   * `raised` is told what they gave beside a failure, before the loader fails with that error. */
  manta_status (*pack)(void *ctx, manta_value *code, manta_error *err);
  void (*raised)(void *ctx, const void *detail, size_t bytes, const manta_error *err);
  /* MAP: each row that it gives is made of that row of the batch alone, however many others there
   * are. As the last step it is then called in the worker, with the rows of its rank only, after
   * the global batch was cut. A column that a call does not give is null in its rows. */
  bool each_row;
} manta_apply_config;

#define MANTA_APPLY_CONFIG_INIT                                                                    \
  {                                                                                                \
    sizeof(manta_apply_config), NULL, MANTA_APPLY_MAP, 0, NULL, 0, NULL, NULL, NULL, NULL, NULL,   \
        NULL, false                                                                                \
  }

/* Numbers that a call gives in a narrower type than the schema says are widened; any other type is
 * MANTA_ETYPE. On failure `close` is not called. */
MANTA_API manta_status manta_dataset_apply(manta_dataset **out, manta_dataset *d,
                                           const manta_apply_config *config, manta_error *err);

/* --- Readers ---------------------------------------------------------------------------------- */

typedef struct manta_reader manta_reader;

/* Reads `count` blocks from number `first` on, in the order of the files: readers do not shuffle or
 * repeat, and do not know a limit behind a shuffle. A reader is for one thread at a time; threads
 * that read different blocks share nothing but the data set. */
MANTA_API manta_status manta_reader_open(manta_reader **out, manta_dataset *d, int64_t first,
                                         int64_t count, manta_error *err);
/* 1 and a batch of one row at least, which the caller destroys; 0 at the end. A failure names the
 * file, the place and what can be done; the reader is then of no more use. */
MANTA_API manta_status manta_reader_next(manta_reader *r, manta_batch **out, manta_error *err);
MANTA_API void manta_reader_close(manta_reader *r); /* NULL is fine */
/* Gives the rest of what it reads as an Arrow stream, for any library that takes one. Takes the
 * reader: releasing the stream closes it. On failure it stays the caller's. */
MANTA_API manta_status manta_reader_export(manta_reader *r, struct ArrowArrayStream *out,
                                           manta_error *err);

/* --- Loaders ---------------------------------------------------------------------------------- */

/* A loader gives each rank its part of one global batch after the other.
 *
 * (1) The order of rows is a function of the data set, the seed of its shuffle and the epoch. The
 *     number of ranks is none of its arguments: it only says how a global batch is divided. The
 *     parts of a batch follow each other in the order of ranks and differ by one row at most.
 * (2) Steps are done before batches are cut, so all ranks have equally many batches.
 * (3) A position counts rows of the files, before filters. From any position, with any number of
 *     ranks, the rows that follow are the same, each row of the epoch once.
 * (4) Threads parse blocks ahead of their use. What was parsed and not given out yet has at most
 *     memory_limit bytes; a window of a shuffle that does not fit is MANTA_ETOOBIG.
 * (5) Blocks stay in memory until the data set is closed, as far as they fit into memory_limit: the
 *     next epoch, and other loaders of the data set, need not parse them. */

typedef enum manta_tail {
  MANTA_TAIL_SHORT, /* the last batch is smaller; the part of a rank may have no rows */
  MANTA_TAIL_DROP,  /* rows that do not fill a batch are left out in this epoch */
  MANTA_TAIL_PAD    /* the first rows of the epoch come once more */
} manta_tail;

typedef struct manta_loader_config {
  size_t size;         /* filled by MANTA_LOADER_CONFIG_INIT */
  int64_t batch_rows;  /* of a global batch; 0: 1 for each rank */
  int rank, ranks;     /* 0, 0: there is one */
  manta_tail tail;     /* what becomes of the last rows */
  int64_t epoch;       /* which to begin with */
  int threads;         /* that parse; 0: one per CPU, 8 at most */
  int prefetch;        /* batches that are made ahead, or more if they are small; 0: 2; -1: none,
                          next makes them */
  size_t memory_limit; /* bytes; 0: a quarter of memory */
} manta_loader_config;

#define MANTA_LOADER_CONFIG_INIT                                                                   \
  {                                                                                                \
    sizeof(manta_loader_config), 0, 0, 0, MANTA_TAIL_SHORT, 0, 0, 0, 0                             \
  }

typedef struct manta_loader manta_loader;

/* `config` may be NULL. Keeps what it needs of the data set. A loader is for one thread at a
 * time. */
MANTA_API manta_status manta_loader_open(manta_loader **out, manta_dataset *d,
                                         const manta_loader_config *config, manta_error *err);
MANTA_API void manta_loader_close(manta_loader *l); /* NULL is fine */
/* 1 and the part of this rank, which the caller destroys; 0 at the end of the epoch (or of all
 * passes of a repeat), again and again. After a failure the loader only gives it again. */
MANTA_API manta_status manta_loader_next(manta_loader *l, manta_batch **out, manta_error *err);
/* Goes to the beginning of an epoch. */
MANTA_API manta_status manta_loader_begin(manta_loader *l, int64_t epoch, manta_error *err);
MANTA_API int64_t manta_loader_epoch(const manta_loader *l);

/* The position behind the batch that was given out last, whatever was made ahead: a small map,
 * which packs into a checkpoint. When the end of an epoch was given out it is the beginning of the
 * next. Any thread may call it. `out` must be {0} or a valid value. */
MANTA_API manta_status manta_loader_save(const manta_loader *l, manta_value *out, manta_error *err);
/* Goes on from there, with any number of ranks, batch size, threads and memory limit. MANTA_EINVAL:
 * it is the position of another data set, of other blocks or another shuffle. */
MANTA_API manta_status manta_loader_load(manta_loader *l, const manta_value *state,
                                         manta_error *err);

/* For batches that are taken from the loader ahead of their use: from now on manta_loader_save
 * gives this position (one that it gave before), whatever is taken; nil: where the loader is,
 * again, as after begin and load. Any thread may call it. MANTA_EINVAL: as for
 * manta_loader_load. */
MANTA_API manta_status manta_loader_mark(manta_loader *l, const manta_value *state,
                                         manta_error *err);

/* Where the time went so far, in seconds; those of threads are added up. */
typedef struct manta_loader_stats {
  int64_t batches, rows; /* that were given out */
  double parse;          /* threads read and parsed */
  double idle;           /* threads waited for room */
  double make;           /* rows were mixed, cut and copied */
  double wait;           /* next waited for a batch */
  int64_t bytes_max;     /* the most that was parsed and not given out yet */
} manta_loader_stats;
MANTA_API void manta_loader_get_stats(manta_loader *l, manta_loader_stats *out);

/* --- In a run --------------------------------------------------------------------------------- */

/* Opens the loader of this rank in a run, as manta_loader_open does: `rank` and `ranks` are the
 * session's, whatever `config` says. The caller closes it, before the train function returns or
 * later. It belongs to its attempt: after manta_comm_rebuild open another.
 *
 * Every rank opens its loader by the same `name` ("train"), under which the run keeps its position:
 * rank 0's, at each save, is a part of the checkpoint, and stays one when the loader is closed. In
 * an attempt that begins from a checkpoint of the run (after a lost worker, a resize or a resume),
 * the first loader of a name goes on from there and `config->epoch` counts for nothing; so the loop
 * over epochs is
 *
 *     for (; manta_loader_epoch(l) < epochs; st = manta_loader_begin(l, manta_loader_epoch(l) + 1))
 *       while ((st = manta_loader_next(l, &b, err)) == 1) ...
 *
 * Where the host has several workers, its batches come from a process that parses for all of them,
 * within the memory_limit of the largest; a batch is then a view of memory that the process writes
 * again when it is destroyed. The manual says more (MANTA_DATA_READER).
 *
 * A checkpoint that the user gave to the run has no say in it: the data begins anew. MANTA_EINVAL:
 * the name is empty, longer than 63 bytes or that of a loader that is open; or the checkpoint's
 * position is one of other data or another order. */
MANTA_API manta_status manta_session_loader(manta_loader **out, manta_session *s, const char *name,
                                            manta_dataset *d, const manta_loader_config *config,
                                            manta_error *err);

#ifdef __cplusplus
}
#endif
#endif
