/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/dataset.h - a data set: files, or a step that is done with the rows of others.
 *
 *     files <- filter <- add <- shuffle        each holds a reference on those that it comes from
 *
 * (1) Once it is made a data set does not change; what is found out later (where a limit lies)
 *     is found by prepare(), before anything is scanned. Any thread may scan any block.
 * (2) Blocks are numbered in the order of files and bytes; that order is the source order of
 *     order/order.h. Steps keep blocks and the numbers of rows in them: a row is named by the
 *     number of its block and its own in it, whatever was filtered out.
 * (3) Columns and filters are asked for from the top down. A batch of a scan has all columns of the
 *     schema, but those that nobody asked for are empty (column/batch.h). A filter goes down as far
 *     as the steps take it; where it cannot go on it is applied.
 * (4) Which row comes when is no step over rows: shuffle and repeat are noted in `passes`, steps
 *     behind them hand that on, and a loader reads it.
 */
#ifndef MANTA_DATA_PLAN_DATASET_H
#define MANTA_DATA_PLAN_DATASET_H

#include <pthread.h>

#include "base/buf.h"
#include "data/format/format.h"

/* What is asked for. */
struct manta__want {
  const bool *columns;       /* [columns of the data set that is asked] */
  const manta_value *filter; /* over its columns: only rows for which it is true; NULL: all */
};

/* In which order, and how often. */
struct manta__passes {
  bool shuffles;
  uint64_t seed;
  int64_t window; /* rows of the files that are mixed with each other */
  int64_t times;  /* 0: without end */
  int64_t take;   /* the first so many rows that come; -1: all */
};

struct manta__scan;

struct manta__step {
  const char *name;
  /* Whether its inputs can be asked for a filter over these columns of `d`. NULL: always. */
  bool (*takes)(const manta_dataset *d, const bool *columns);
  /* What input number `input` is asked for, if `d` is asked for `want`. `columns` are all false,
   * the filter is nil. NULL: the same. */
  manta_status (*ask)(const manta_dataset *d, int input, const struct manta__want *want,
                      bool *columns, manta_value *filter, manta_error *err);
  /* Finds out what has to be known before a scan. NULL: nothing. Called once, under the lock. */
  manta_status (*prepare)(manta_dataset *d, manta_error *err);
  /* The rows of a block. NULL: those of the first input. */
  manta_status (*scan)(struct manta__scan **out, manta_dataset *d, int64_t block,
                       const struct manta__want *want, manta_error *err);
  /* The rows that it makes of those of a batch, one of each, in any number (plan/late.h); `in`
   * stays the caller's. NULL: it cannot. */
  manta_status (*late)(manta_dataset *d, manta_batch *in, manta_batch **out, manta_error *err);
  /* The step in a line, without its end. */
  manta_status (*explain)(const manta_dataset *d, const struct manta__want *want, manta__buf *b);
  /* The file of a block. NULL: that of the first input. */
  const char *(*file)(const manta_dataset *d, int64_t block);
  /* Frees what is its own. NULL: nothing. */
  void (*fini)(manta_dataset *d);
  /* What it is made of again in another process (plan/pack.h): puts that into a map, and makes it
   * of that map and the inputs. NULL: it cannot be sent. */
  manta_status (*pack)(const manta_dataset *d, manta_value *to, manta_error *err);
  manta_status (*unpack)(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                         const manta_value *from, manta_error *err);
};

/* The common part of every data set; a step embeds it as its first member. */
struct manta_dataset {
  _Atomic int refs;
  const struct manta__step *step;
  struct manta__schema *out;
  struct manta__pool *pool; /* of the files */
  int64_t blocks;
  uint64_t mark;   /* of the source rows: another mark, another order */
  bool multiplies; /* several of its rows can have the number of one source row, in a row */
  struct manta__passes passes;
  struct manta__tally tally; /* rows: of this data set; the rest of its own files */
  manta_dataset **input;
  int inputs;
  pthread_mutex_t lock;
  bool prepared;
  manta_dataset *early; /* without its last maps (plan/late.h); NULL: nobody has asked */
  void *cache; /* parsed blocks of a loader's (loader/cache.h), or NULL, and what frees them */
  void (*drop_cache)(void *cache);
};

/* --- making --- */

/* A data set of `size` bytes over these inputs, on which it takes references, with one reference of
 * its own. Schema, blocks, mark and passes are those of the first, if there is one; the schema has
 * a reference. Unref it if it cannot be finished. */
manta_status manta__dataset_create(void *out, size_t size, const struct manta__step *step,
                                   manta_dataset *const *input, int inputs, manta_error *err);
manta_dataset *manta__dataset_ref(manta_dataset *d);
void manta__dataset_unref(manta_dataset *d); /* NULL is fine */
/* Puts another schema in the place of the one that it has; takes the reference. */
void manta__dataset_schema(manta_dataset *d, struct manta__schema *schema);
/* MANTA_EUNSUPPORTED if rows of d are limited behind a shuffle: `what` cannot come behind that. */
manta_status manta__dataset_unlimited(const manta_dataset *d, const char *what, manta_error *err);

/* --- reading --- */

/* Before the first scan. */
manta_status manta__dataset_prepare(manta_dataset *d, manta_error *err);
/* The rows of a block; `want` is copied. The data set must outlive the scan. */
manta_status manta__dataset_scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                                 const struct manta__want *want, manta_error *err);
/* 1 and a batch, 0 at the end. */
manta_status manta__scan_next(struct manta__scan *s, manta_batch **out, manta_error *err);
void manta__scan_close(struct manta__scan *s); /* NULL is fine */
/* All columns, or none: [d->out->count] flags, which the caller frees. NULL: no memory. */
bool *manta__columns_flags(const manta_dataset *d, bool on);

/* --- for steps --- */

/* Rows of one block; a step embeds it as its first member. */
struct manta__scan {
  manta_dataset *d;          /* borrowed */
  struct manta__scan *inner; /* of its input; NULL: none */
  bool *columns;             /* that are wanted of d */
  manta_status (*next)(struct manta__scan *s, manta_batch **out, manta_error *err);
  void (*close)(struct manta__scan *s); /* what is its own; NULL: nothing */
};

/* A scan of `size` bytes without an inner one. */
manta_status manta__scan_create(void *out, size_t size, manta_dataset *d,
                                const struct manta__want *want, manta_error *err);
/* The scan of an input, asked for what step->ask says. */
manta_status manta__scan_input(struct manta__scan **out, manta_dataset *d, int input, int64_t block,
                               const struct manta__want *want, manta_error *err);
/* A scan with that of the first input inside. */
manta_status manta__scan_over(void *out, size_t size, manta_dataset *d, int64_t block,
                              const struct manta__want *want, manta_error *err);
/* No rows. */
manta_status manta__scan_nothing(struct manta__scan **out, manta_dataset *d,
                                 const struct manta__want *want, manta_error *err);
/* What an input is asked for; free both. */
struct manta__asked {
  bool *columns;
  manta_value filter;
};
manta_status manta__dataset_ask(const manta_dataset *d, int input, const struct manta__want *want,
                                struct manta__asked *out, manta_error *err);
void manta__asked_fini(struct manta__asked *a);
/* Whether the step lets this filter through; a NULL filter it does. */
manta_status manta__dataset_takes(const manta_dataset *d, const manta_value *filter, bool *out,
                                  manta_error *err);

/* Sets the columns that an expression over the schema looks at; leaves the others. */
manta_status manta__expr_uses(const struct manta__schema *schema, const manta_value *tree,
                              bool *columns, manta_error *err);
/* Both, in a tree of its own; either may be NULL, and both gives nil. */
manta_status manta__filter_join(manta_value *out, const manta_value *a, const manta_value *b,
                                manta_error *err);
/* That it compiles, and gives true or false. */
manta_status manta__filter_check(const manta_value *tree, struct manta__schema *schema,
                                 manta_error *err);

#endif
