/* SPDX-License-Identifier: Apache-2.0
 *
 * data/order/fold.c - cross validation: which fold a row, or a group of rows, belongs to.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "data/order/order.h"

#define STREAM_PLAIN  0x666f6c64 /* apart from the streams of an order with the same seed */
#define STREAM_STRATA 0x73747261

// Runs of equal length: the first rows % folds of them have one more.
static int run_of(int64_t place, int64_t rows, int folds)
{
  int64_t each = rows / folds, longer = rows % folds, split = longer * (each + 1);
  return (int)(place < split ? place / (each + 1) : longer + (place - split) / each);
}

int manta__fold_plain(int64_t row, int64_t rows, int folds, bool shuffles, uint64_t seed)
{
  if (!shuffles)
    return run_of(row, rows, folds);
  struct manta__shuffle s = manta__shuffle_make((uint64_t)rows, seed, 0, STREAM_PLAIN);
  return run_of((int64_t)manta__shuffle_find(&s, (uint64_t)row), rows, folds);
}

int manta__fold_stratified(uint64_t class, int64_t nth, int folds, bool shuffles, uint64_t seed)
{
  // Every `folds` rows of a class go to all folds, in an order of their own if that is wanted. The
  // first fold differs from class to class, else small classes would all lie in the first folds.
  uint64_t round = (uint64_t)(nth / folds), place = (uint64_t)(nth % folds);
  struct manta__shuffle s =
      manta__shuffle_make((uint64_t)folds, seed ^ class, shuffles ? round : 0, STREAM_STRATA);
  if (shuffles)
    return (int)manta__shuffle_at(&s, place);
  return (int)((manta__shuffle_at(&s, 0) + place) % (uint64_t)folds);
}

struct group {
  int64_t rows, number;
};

static int largest_first(const void *a, const void *b)
{
  const struct group *x = a, *y = b;
  if (x->rows != y->rows)
    return x->rows > y->rows ? -1 : 1;
  return x->number < y->number ? -1 : x->number > y->number;
}

static void place_groups(const struct group *g, int64_t groups, int64_t *filled, int folds,
                         int *fold)
{
  for (int64_t i = 0; i < groups; i++) {
    int least = 0;
    for (int f = 1; f < folds; f++)
      if (filled[f] < filled[least])
        least = f;
    filled[least] += g[i].rows;
    fold[g[i].number] = least;
  }
}

manta_status manta__fold_groups(const int64_t *rows, int64_t groups, int folds, int *fold,
                                manta_error *err)
{
  if (groups < folds)
    return manta_error_set(err, MANTA_EINVAL, "%d folds of %" PRId64 " groups: some would be empty",
                           folds, groups);
  struct group *g = manta__calloc((size_t)groups, sizeof *g);
  int64_t *filled = manta__calloc((size_t)folds, sizeof *filled);
  manta_status st = MANTA_OK;
  for (int64_t i = 0; g && i < groups; i++)
    g[i] = (struct group){rows[i], i};
  if (g && filled) {
    qsort(g, (size_t)groups, sizeof *g, largest_first);
    place_groups(g, groups, filled, folds, fold);
  } else
    st = manta_error_set(err, MANTA_ENOMEM, "no memory for %" PRId64 " groups", groups);
  manta__free(g);
  manta__free(filled);
  return st;
}

manta_status manta__fold_series(int64_t rows, int folds, int split, int64_t *train_end,
                                int64_t *test_end, manta_error *err)
{
  int64_t each = rows / ((int64_t)folds + 1);
  if (each == 0)
    return manta_error_set(err, MANTA_EINVAL,
                           "%d splits of a series need at least %d rows; there are %" PRId64, folds,
                           folds + 1, rows);
  *test_end = rows - (int64_t)(folds - 1 - split) * each;
  *train_end = *test_end - each;
  return MANTA_OK;
}
