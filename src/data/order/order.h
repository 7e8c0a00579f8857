/* SPDX-License-Identifier: Apache-2.0
 *
 * data/order/order.h - which row comes when, and to whom: functions of numbers and nothing else.
 *
 *   source rows      block after block, as the files have them
 *   stream rows      the blocks in the order of this epoch, row after row
 *   order rows       the stream cut into windows, and each window mixed
 *   steps            the order cut into global batches
 *   parts            a global batch cut into one part per rank
 *
 * (1) The order is a function of (seed, epoch, rows of each block, window). The number of ranks is
 *     none of its arguments: it only says how a global batch is divided.
 * (2) A position is a number of order rows that were handed out. From any position, with any number
 *     of ranks, the rows that follow are the same, each row of the epoch exactly once.
 * (3) All ranks have the same number of steps. What remains of the last batch is dropped, or it is
 *     filled up with the first rows of the order, or divided as it is.
 * (4) Memory is bounded: a permutation is a keyed bijection (a Feistel network that walks its cycle
 *     until it is back inside), not a table; mixing needs the rows of one window at a time.
 * (5) These functions are the format of saved positions: what they give for the same arguments
 *     never changes. Tests hold some of their values.
 */
#ifndef MANTA_DATA_ORDER_ORDER_H
#define MANTA_DATA_ORDER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>

/* --- Permutations ----------------------------------------------------------------------------- */

/* A permutation of 0 … n - 1. A value: copy it as you like. */
#define MANTA__SHUFFLE_ROUNDS 6
struct manta__shuffle {
  uint64_t n;
  uint64_t key[MANTA__SHUFFLE_ROUNDS];
  unsigned bits; /* of each half */
};

/* n >= 1. `stream` tells apart what has the same seed and epoch. */
struct manta__shuffle manta__shuffle_make(uint64_t n, uint64_t seed, uint64_t epoch,
                                          uint64_t stream);
/* What stands at place i < n, and the place where x < n stands. */
uint64_t manta__shuffle_at(const struct manta__shuffle *s, uint64_t i);
uint64_t manta__shuffle_find(const struct manta__shuffle *s, uint64_t x);

/* A number from 0 to below 1, as if by chance, but the same for the same seed, block and row. */
double manta__order_chance(uint64_t seed, uint64_t block, uint64_t row);

/* --- The order of an epoch -------------------------------------------------------------------- */

/* {0} is empty; fini twice is harmless. */
struct manta__row_order {
  uint64_t seed, epoch;
  int64_t blocks, rows, window;
  bool shuffles;
  struct manta__shuffle of_blocks;
  int64_t *first; /* [blocks + 1]: stream rows in front of the k-th block of the epoch */
};

/* `rows[b]` is the number of rows of block b. Without `shuffles` the order is the source's; with it
 * blocks are permuted, and rows inside windows of `window` rows (1 or less: not mixed). */
manta_status manta__order_make(struct manta__row_order *out, const int64_t *rows, int64_t blocks,
                               bool shuffles, uint64_t seed, uint64_t epoch, int64_t window,
                               manta_error *err);
void manta__order_fini(struct manta__row_order *o);
/* The block that is the k-th of `blocks` in an epoch, and the order of a window of `rows` rows: the
 * same as below, for those who learn the number of rows as they go. */
int64_t manta__order_nth(int64_t blocks, bool shuffles, uint64_t seed, uint64_t epoch, int64_t k);
struct manta__shuffle manta__order_window(int64_t rows, uint64_t seed, uint64_t epoch,
                                          int64_t number);
/* The block that is the k-th of this epoch. */
int64_t manta__order_block(const struct manta__row_order *o, int64_t k);
/* The stream row that order row q is. They lie in the same window. */
int64_t manta__order_stream(const struct manta__row_order *o, int64_t q);
/* Which block of the epoch stream row p is in, and which row of it it is. */
void manta__order_find(const struct manta__row_order *o, int64_t p, int64_t *k, int64_t *row);

/* --- Steps ------------------------------------------------------------------------------------ */

enum manta__tail {
  MANTA__TAIL_DROP,  /* rows that do not fill a batch are left out in this epoch */
  MANTA__TAIL_PAD,   /* the first rows of the order come once more */
  MANTA__TAIL_SHORT, /* the last batch is smaller; a rank's part of it may be empty */
};

/* A run of order rows. Those from `rows` on are padding: row q - rows * floor(q / rows) again. */
struct manta__part {
  int64_t from, to;
  int64_t padding; /* how many of them, at the end */
};

/* Steps that `rows` rows make from a position on, in global batches of `batch` rows. */
int64_t manta__steps_count(int64_t rows, int64_t position, int64_t batch, enum manta__tail tail);
/* The part of `rank` of `ranks` in step `step` from a position on: the parts of a step follow each
 * other in the order of ranks, and differ in length by one row at most. */
struct manta__part manta__steps_part(int64_t rows, int64_t position, int64_t batch,
                                     enum manta__tail tail, int64_t step, int rank, int ranks);

/* --- Cross validation ------------------------------------------------------------------------- */

/* Each row belongs to one of `folds` folds; in split s fold s validates and the others train. */

/* Row `row` of `rows`: runs of equal length, of the rows as they are or permuted. */
int manta__fold_plain(int64_t row, int64_t rows, int folds, bool shuffles, uint64_t seed);
/* The nth row of its class, from 0 on: each class is divided evenly, so every fold has its share of
 * it. The caller counts the rows of each class; `class` is any number that stands for it. */
int manta__fold_stratified(uint64_t class, int64_t nth, int folds, bool shuffles, uint64_t seed);
/* Groups stay whole: rows[g] is the number of rows of group g, and fold[g] becomes its fold. The
 * largest groups are placed first, each into the fold that has the fewest rows. MANTA_EINVAL: fewer
 * groups than folds. */
manta_status manta__fold_groups(const int64_t *rows, int64_t groups, int folds, int *fold,
                                manta_error *err);
/* Split `split` of a time series: [0, *train_end) trains, [*train_end, *test_end) validates; the
 * last split ends with the last row. MANTA_EINVAL: too few rows. */
manta_status manta__fold_series(int64_t rows, int folds, int split, int64_t *train_end,
                                int64_t *test_end, manta_error *err);

#endif
