/* SPDX-License-Identifier: Apache-2.0
 *
 * data/reader.c - some blocks of a data set, one after the other.
 */
#include <inttypes.h>

#include "base/alloc.h"
#include "data/column/arrow.h"
#include "data/dataset.h"

struct manta_reader {
  manta_dataset *dataset;
  int64_t next, end; /* blocks */
  int32_t file;      /* that is open; -1: none */
  struct manta__file opened;
  struct manta__filtered *block; /* that is being read; NULL: none */
};

manta_status manta_reader_open(manta_reader **out, manta_dataset *d, int64_t first, int64_t count,
                               manta_error *err)
{
  if (first < 0 || count < 0 || first > d->blocks.count || count > d->blocks.count - first)
    return manta_error_set(err, MANTA_EINVAL,
                           "%" PRId64 " blocks from %" PRId64 " on: the data set has %" PRId64,
                           count, first, d->blocks.count);
  manta_reader *r = manta__calloc(1, sizeof *r);
  if (!r)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a reader");
  r->dataset = manta__dataset_ref(d);
  r->next = first;
  r->end = first + count;
  r->file = -1;
  *out = r;
  return MANTA_OK;
}

static void close_file(manta_reader *r)
{
  if (r->file >= 0)
    manta__source_close(r->opened.source);
  r->file = -1;
}

void manta_reader_close(manta_reader *r)
{
  if (!r)
    return;
  manta__filtered_close(r->block);
  close_file(r);
  manta__dataset_unref(r->dataset);
  manta__free(r);
}

static manta_status open_block(manta_reader *r, manta_error *err)
{
  manta_dataset *d = r->dataset;
  const struct manta__block *b = &d->blocks.block[r->next];
  if (r->file != b->file) {
    close_file(r);
    MANTA_TRY(manta__dataset_file(d, b->file, &r->opened, err));
    r->file = b->file;
  }
  struct manta__read_job job = {.file = r->opened,
                                .block = *b,
                                .schema = d->schema,
                                .columns = d->columns,
                                .out = d->out,
                                .filter = d->config.filter,
                                .pool = d->pool,
                                .tally = &d->tally};
  if (job.block.to > r->opened.source->size)
    return manta_error_set(err, MANTA_EIO,
                           "%s: has %" PRId64 " bytes, but had %" PRId64
                           " when the data set was opened\nhint: write another file and rename it "
                           "over this one",
                           r->opened.source->name, r->opened.source->size, job.block.to);
  MANTA_TRY(manta__filtered_open(&r->block, d->format, &job, err));
  r->next++;
  return MANTA_OK;
}

manta_status manta_reader_next(manta_reader *r, manta_batch **out, manta_error *err)
{
  for (;;) {
    if (!r->block && r->next == r->end)
      return 0;
    if (!r->block)
      MANTA_TRY(open_block(r, err));
    manta_status st = manta__filtered_next(r->block, out, err);
    if (st == 1 && (*out)->rows > 0) {
      atomic_fetch_add_explicit(&r->dataset->tally.rows, (*out)->rows, memory_order_relaxed);
      return st;
    }
    if (st == 1)
      manta_batch_destroy(*out);
    if (st < 0)
      return st;
    if (st == 0) {
      manta__filtered_close(r->block);
      r->block = NULL;
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
