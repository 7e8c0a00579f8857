/* SPDX-License-Identifier: Apache-2.0
 *
 * data/format/format.h - the door of all readers: a block of a file becomes batches of columns.
 *
 *     source -> block (a file, a byte range) -> reader -> columns -> steps -> batches
 *
 * (1) A block is a byte range of one file. Blocks of a file do not overlap and leave nothing out;
 *     each begins and ends where a row does, whatever the rows hold. What is compressed is one
 *     block.
 * (2) A reader gives the rows of its block in their order. Row numbers count from 0 in the block,
 *     whether or not rows could be read: the same row has the same number with every filter, column
 *     choice and batch size.
 * (3) A batch has about batch_bytes of columns and at most batch_rows rows. At the end of a block a
 *     batch may have no rows: it stands for the last source rows, which were filtered out or
 *     skipped.
 * (4) Only the columns that are asked for, and those of the filter, are parsed. A data set with
 *     skip_errors asks for all that it has: which rows it has must not depend on who asks.
 * (5) A row that cannot be read is an error that names file, place and remedy, and ends the reader;
 *     with skip_errors it is counted and left out. Which error it is does not depend on the size of
 *     batches.
 * (6) One thread at a time per reader; many readers may share everything that a job points to.
 */
#ifndef MANTA_DATA_FORMAT_FORMAT_H
#define MANTA_DATA_FORMAT_FORMAT_H

#include <pthread.h>
#include <stdatomic.h>

#include "data/column/batch.h"
#include "data/expr/expr.h"
#include "data/source/input.h"

/* What was read so far, by all readers of a data set. */
struct manta__tally {
  _Atomic int64_t rows, skipped, bytes;
  _Atomic int64_t step, read; /* nanoseconds in functions over rows, and in reads of files */
  _Atomic int64_t step_there, read_there; /* those in the reader process, as it told last */
  pthread_mutex_t lock;
  char first_skip[MANTA_ERROR_MESSAGE_MAX]; /* why the first row was skipped */
};

void manta__tally_init(struct manta__tally *t);
void manta__tally_fini(struct manta__tally *t);
/* Whether rows were skipped already: only the first needs a reason. */
static inline bool manta__tally_skips(const struct manta__tally *t)
{
  return atomic_load_explicit(&t->skipped, memory_order_relaxed) > 0;
}

/* Counts n rows that could not be read; `why` is kept if there is none yet. */
void manta__tally_skip(struct manta__tally *t, int64_t n, const char *why);

/* A file and how it is to be read. */
struct manta__file {
  struct manta__source *source; /* borrowed */
  enum manta__compression compression;
  const manta_data_config *config; /* complete: no zeros that mean something else */
  bool passes_empty;               /* look(): a file without rows has no schema */
  /* look(): some of the other files, whose first rows may need wider types */
  const struct manta__file *others;
  size_t other_count;
};

#define MANTA__LOOK_BYTES      (1 << 20)  /* of a file whose types are guessed */
#define MANTA__LOOK_MORE_BYTES (64 << 10) /* and of each of the others */

struct manta__block {
  int32_t file; /* its number in the data set */
  int64_t from, to;
};

/* {0} is empty. */
struct manta__blocks {
  struct manta__block *block;
  int64_t count, cap;
};

manta_status manta__blocks_add(struct manta__blocks *b, struct manta__block block,
                               manta_error *err);
void manta__blocks_fini(struct manta__blocks *b);

/* What a reader is to do. All of it is borrowed until it is closed. */
struct manta__read_job {
  struct manta__file file;
  struct manta__block block;
  struct manta__schema *schema; /* of the data set */
  const int *columns;           /* numbers in the schema of the columns that batches have */
  struct manta__schema *out;    /* those columns, in that order */
  const manta_value *filter;    /* over the schema; NULL: none */
  struct manta__pool *pool;
  struct manta__tally *tally;
};

/* The common part of every reader; a format embeds it as its first member. */
struct manta__reader {
  const struct manta__format *format;
  struct manta__read_job job;
};

struct manta__format {
  const char *name;
  const char *suffix[4]; /* with the dot; unused ones are NULL */
  bool stays_packed;     /* the end of a name says nothing of compression */
  bool filters;          /* the reader looks at job.filter itself */
  bool guesses;          /* look() finds types in a sample of the rows */
  /* The columns of a file, which stands for all; NULL: it is empty, another one may show them. */
  manta_status (*look)(const struct manta__file *f, struct manta__schema **out, manta_error *err);
  /* Adds the blocks of a file that is not compressed. NULL: it is one. */
  manta_status (*cut)(const struct manta__file *f, int32_t number, struct manta__blocks *out,
                      manta_error *err);
  manta_status (*open)(struct manta__reader **out, const struct manta__read_job *job,
                       manta_error *err);
  /* 1 and a batch, 0 at the end, or how it failed. */
  manta_status (*next)(struct manta__reader *r, manta_batch **out, manta_error *err);
  void (*close)(struct manta__reader *r);
};

extern const struct manta__format manta__format_csv, manta__format_json, manta__format_text,
    manta__format_npy, manta__format_npz, manta__format_tfrecord, manta__format_binary,
    manta__format_fixed;

/* By name; NULL and MANTA_EINVAL: there is none. */
manta_status manta__format_named(const struct manta__format **out, const char *name,
                                 manta_error *err);
/* By the end of a file's name, in front of .gz and .zst. MANTA_EINVAL: it says nothing; for what we
 * cannot read but know, MANTA_EUNSUPPORTED says who can. */
manta_status manta__format_of(const struct manta__format **out, const char *name, manta_error *err);
/* The blocks of a file. */
manta_status manta__format_cut(const struct manta__format *format, const struct manta__file *f,
                               int32_t number, struct manta__blocks *out, manta_error *err);

/* A reader of any format, which filters where the format does not. */
struct manta__filtered;
manta_status manta__filtered_open(struct manta__filtered **out, const struct manta__format *format,
                                  const struct manta__read_job *job, manta_error *err);
manta_status manta__filtered_next(struct manta__filtered *r, manta_batch **out, manta_error *err);
void manta__filtered_close(struct manta__filtered *r); /* NULL is fine */

/* --- for formats --- */

/* How many rows a batch of these columns may have. */
int64_t manta__format_rows(const manta_data_config *c, const struct manta__schema *s);
/* Types that the user gave replace those that were found; MANTA_EINVAL. */
manta_status manta__format_types(const manta_data_config *c, struct manta__schema_field *fields,
                                 int count, manta_error *err);
/* The line, from 1 on, that byte `at` of the decoded file is in: reads the file up to there. 0 if
 * that cannot be found out. */
int64_t manta__format_line(const struct manta__file *f, int64_t at);
/* Up to `size` - 1 bytes of a value, for messages: "?" for what is not printable ASCII. Gives how
 * many these are. */
size_t manta__format_show(char *to, size_t size, const char *p, size_t n);
/* A type that has the value which is none of `type`, a number or not: its name, for messages. */
const char *manta__format_wider(const struct manta__type *type, bool is_number);

#endif
