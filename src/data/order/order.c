/* SPDX-License-Identifier: Apache-2.0 */
#include "data/order/order.h"

#include <inttypes.h>
#include <stddef.h>

#include "base/alloc.h"

#define STREAM_BLOCKS 0 /* of the permutation of blocks; windows have 1, 2, 3 … */

manta_status manta__order_make(struct manta__row_order *out, const int64_t *rows, int64_t blocks,
                               bool shuffles, uint64_t seed, uint64_t epoch, int64_t window,
                               manta_error *err)
{
  struct manta__row_order o = {
      .seed = seed, .epoch = epoch, .blocks = blocks, .shuffles = shuffles};
  o.window = shuffles && window > 1 ? window : 1;
  o.of_blocks = manta__shuffle_make(blocks > 0 ? (uint64_t)blocks : 1, seed, epoch, STREAM_BLOCKS);
  o.first = manta__calloc((size_t)blocks + 1, sizeof *o.first);
  if (!o.first)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the order of %" PRId64 " blocks",
                           blocks);
  for (int64_t k = 0; k < blocks; k++) {
    o.first[k] = o.rows;
    o.rows += rows[manta__order_block(&o, k)];
  }
  o.first[blocks] = o.rows;
  *out = o;
  return MANTA_OK;
}

void manta__order_fini(struct manta__row_order *o)
{
  manta__free(o->first);
  *o = (struct manta__row_order){0};
}

int64_t manta__order_nth(int64_t blocks, bool shuffles, uint64_t seed, uint64_t epoch, int64_t k)
{
  if (!shuffles)
    return k;
  struct manta__shuffle s = manta__shuffle_make((uint64_t)blocks, seed, epoch, STREAM_BLOCKS);
  return (int64_t)manta__shuffle_at(&s, (uint64_t)k);
}

struct manta__shuffle manta__order_window(int64_t rows, uint64_t seed, uint64_t epoch,
                                          int64_t number)
{
  return manta__shuffle_make((uint64_t)rows, seed, epoch, (uint64_t)number + 1);
}

int64_t manta__order_block(const struct manta__row_order *o, int64_t k)
{
  return o->shuffles ? (int64_t)manta__shuffle_at(&o->of_blocks, (uint64_t)k) : k;
}

int64_t manta__order_stream(const struct manta__row_order *o, int64_t q)
{
  if (o->window == 1)
    return q;
  int64_t number = q / o->window, from = number * o->window;
  int64_t size = o->rows - from < o->window ? o->rows - from : o->window;
  struct manta__shuffle s = manta__order_window(size, o->seed, o->epoch, number);
  return from + (int64_t)manta__shuffle_at(&s, (uint64_t)(q - from));
}

void manta__order_find(const struct manta__row_order *o, int64_t p, int64_t *k, int64_t *row)
{
  int64_t low = 0, high = o->blocks; // first[low] <= p < first[high]; empty blocks are passed over
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (o->first[middle] <= p)
      low = middle;
    else
      high = middle;
  }
  *k = low;
  *row = p - o->first[low];
}

// --- steps --------------------------------------------------------------------------------------

int64_t manta__steps_count(int64_t rows, int64_t position, int64_t batch, enum manta__tail tail)
{
  int64_t left = rows > position ? rows - position : 0;
  return tail == MANTA__TAIL_DROP ? left / batch : left / batch + (left % batch != 0);
}

struct manta__part manta__steps_part(int64_t rows, int64_t position, int64_t batch,
                                     enum manta__tail tail, int64_t step, int rank, int ranks)
{
  int64_t from = position + step * batch, size = batch;
  if (tail != MANTA__TAIL_PAD && size > rows - from)
    size = rows > from ? rows - from : 0;
  // size * rank may overflow: the quotient and the rest apart
  int64_t each = size / ranks, rest = size % ranks;
  struct manta__part p = {from + each * rank + rest * rank / ranks, 0, 0};
  p.to = from + each * (rank + 1) + rest * (rank + 1) / ranks;
  if (p.to > rows)
    p.padding = p.to - (p.from > rows ? p.from : rows);
  return p;
}
