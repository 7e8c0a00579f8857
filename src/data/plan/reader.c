/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/reader.c - some blocks of a data set, one after the other.
 */
#include <inttypes.h>

#include "base/alloc.h"
#include "data/column/arrow.h"
#include "data/plan/dataset.h"

struct manta_reader {
  manta_dataset *dataset;
  bool *columns;
  int64_t next, end;        /* blocks */
  struct manta__scan *scan; /* of the block that is being read; NULL: none */
};

manta_status manta_reader_open(manta_reader **out, manta_dataset *d, int64_t first, int64_t count,
                               manta_error *err)
{
  if (first < 0 || count < 0 || first > d->blocks || count > d->blocks - first)
    return manta_error_set(err, MANTA_EINVAL,
                           "%" PRId64 " blocks from %" PRId64 " on: the data set has %" PRId64,
                           count, first, d->blocks);
  MANTA_TRY(manta__dataset_prepare(d, err));
  manta_reader *r = manta__calloc(1, sizeof *r);
  if (r)
    r->columns = manta__columns_flags(d, true);
  if (!r || !r->columns) {
    manta__free(r);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a reader");
  }
  r->dataset = manta__dataset_ref(d);
  r->next = first;
  r->end = first + count;
  *out = r;
  return MANTA_OK;
}

void manta_reader_close(manta_reader *r)
{
  if (!r)
    return;
  manta__scan_close(r->scan);
  manta__dataset_unref(r->dataset);
  manta__free(r->columns);
  manta__free(r);
}

manta_status manta_reader_next(manta_reader *r, manta_batch **out, manta_error *err)
{
  struct manta__want want = {r->columns, NULL};
  for (;;) {
    if (!r->scan && r->next == r->end)
      return 0;
    if (!r->scan)
      MANTA_TRY(manta__dataset_scan(&r->scan, r->dataset, r->next++, &want, err));
    manta_status st = manta__scan_next(r->scan, out, err);
    if (st == 1 && (*out)->rows > 0) {
      atomic_fetch_add_explicit(&r->dataset->tally.rows, (*out)->rows, memory_order_relaxed);
      return st;
    }
    if (st == 1)
      manta_batch_destroy(*out);
    if (st < 0)
      return st;
    if (st == 0) {
      manta__scan_close(r->scan);
      r->scan = NULL;
    }
  }
}

// --- as a stream --------------------------------------------------------------------------------

static manta_status next_of(void *ctx, manta_batch **out, manta_error *err)
{
  return manta_reader_next(ctx, out, err);
}

static void close_of(void *ctx)
{
  manta_reader_close(ctx);
}

manta_status manta_reader_export(manta_reader *r, struct ArrowArrayStream *out, manta_error *err)
{
  return manta__arrow_stream_export(out, r->dataset->out, next_of, close_of, r, err);
}
