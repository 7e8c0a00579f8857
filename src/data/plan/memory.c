/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/memory.c - rows that are in memory already: the batches of an Arrow stream.
 *
 * They are cut into blocks as files are, so that a shuffle has something to permute and threads
 * have something to share. Nothing is copied: a scan gives slices of what was imported.
 */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "data/column/arrow.h"
#include "data/plan/dataset.h"

#define BLOCK_ROWS 65536
#define IDLE_BYTES ((size_t)16 << 20) /* that the pool keeps for the next batches */

struct memory_data {
  manta_dataset d;
  manta_batch **batch; /* [d.blocks] */
  int64_t cap;
};

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory to hold a data set");
}

// --- the step -----------------------------------------------------------------------------------

struct memory_scan {
  struct manta__scan scan;
  const manta_batch *batch; /* NULL: it was given */
};

static manta_status memory_next(struct manta__scan *scan, manta_batch **out, manta_error *err)
{
  struct memory_scan *s = (struct memory_scan *)scan;
  const manta_batch *b = s->batch;
  s->batch = NULL;
  if (!b)
    return 0;
  MANTA_TRY(manta__batch_slice(out, b, 0, b->rows, err));
  return (manta_status)1;
}

static manta_status scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                         const struct manta__want *want, manta_error *err)
{
  struct memory_scan *s;
  MANTA_TRY(manta__scan_create(&s, sizeof *s, d, want, err));
  s->scan.next = memory_next;
  s->batch = ((struct memory_data *)d)->batch[block];
  *out = &s->scan;
  return MANTA_OK;
}

// A filter is applied to what a scan gives.
static bool takes(const manta_dataset *d, const bool *columns)
{
  return false;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  const struct memory_data *m = (const struct memory_data *)d;
  int64_t rows = 0;
  for (int64_t i = 0; i < d->blocks; i++)
    rows += m->batch[i]->rows;
  return manta__buf_printf(b, "memory: %" PRId64 " row%s, %" PRId64 " block%s", rows,
                           rows == 1 ? "" : "s", d->blocks, d->blocks == 1 ? "" : "s");
}

static const char *file_of(const manta_dataset *d, int64_t block)
{
  return "memory";
}

static void fini(manta_dataset *d)
{
  struct memory_data *m = (struct memory_data *)d;
  for (int64_t i = 0; i < d->blocks; i++)
    manta_batch_destroy(m->batch[i]);
  manta__free(m->batch);
  manta__pool_close(d->pool);
}

static const struct manta__step step_memory = {
    .name = "memory",
    .takes = takes,
    .scan = scan,
    .explain = explain,
    .file = file_of,
    .fini = fini,
};

// --- making -------------------------------------------------------------------------------------

static manta_status add_block(struct memory_data *m, const manta_batch *b, int64_t from, int64_t n,
                              manta_error *err)
{
  manta_batch *part;
  if (m->d.blocks == m->cap) {
    int64_t cap = m->cap ? 2 * m->cap : 16;
    manta_batch **more = manta__realloc(m->batch, (size_t)cap * sizeof *more);
    if (!more)
      return no_memory(err);
    m->batch = more;
    m->cap = cap;
  }
  MANTA_TRY(manta__batch_slice(&part, b, from, n, err));
  part->first = 0; // rows are numbered in their block
  m->batch[m->d.blocks++] = part;
  m->d.mark = manta__hash_seed(&n, sizeof n, m->d.mark);
  return MANTA_OK;
}

static manta_status add_batch(struct memory_data *m, const manta_batch *b, manta_error *err)
{
  for (int64_t from = 0; from < b->rows; from += BLOCK_ROWS)
    MANTA_TRY(
        add_block(m, b, from, b->rows - from < BLOCK_ROWS ? b->rows - from : BLOCK_ROWS, err));
  return MANTA_OK;
}

static manta_status read_all(struct memory_data *m, struct manta__arrow_stream *s, manta_error *err)
{
  manta_status st;
  manta_batch *b;
  m->d.out = manta__schema_ref(s->schema);
  while ((st = manta__arrow_stream_next(s, &b, err)) == 1) {
    st = add_batch(m, b, err);
    manta_batch_destroy(b);
    if (st < 0)
      return st;
  }
  return st;
}

manta_status manta_dataset_import(manta_dataset **out, struct ArrowArrayStream *stream,
                                  manta_error *err)
{
  struct memory_data *m;
  struct manta__arrow_stream s;
  MANTA_TRY(manta__arrow_stream_open(&s, stream, err));
  manta_status st = manta__dataset_create(&m, sizeof *m, &step_memory, NULL, 0, err);
  if (st < 0) {
    manta__arrow_stream_close(&s);
    return st;
  }
  m->d.pool = manta__pool_create(IDLE_BYTES);
  st = m->d.pool ? read_all(m, &s, err) : no_memory(err);
  manta__arrow_stream_close(&s);
  if (st < 0) {
    manta__dataset_unref(&m->d);
    return st;
  }
  *out = &m->d;
  return MANTA_OK;
}
