/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/streams.c - blocks that somebody else reads: an Arrow stream is opened for each.
 *
 * A stream has only the columns that are wanted; they go to their places in the batch, the others
 * stay empty. Where none is wanted (rows are counted) the first is asked for.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/hash.h"
#include "data/column/arrow.h"
#include "data/plan/dataset.h"

#define IDLE_BYTES ((size_t)64 << 20) /* that the pool keeps for the next batches */
#define BLOCKS_MAX ((int64_t)1 << 40)

struct streams_data {
  manta_dataset d;
  manta_stream_config c;
  char *name;
};

struct streams_scan {
  struct manta__scan scan;
  struct manta__arrow_stream stream;
  int64_t block;
  int64_t rows; /* that were given */
};

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory to read streams");
}

// --- scans --------------------------------------------------------------------------------------

// Column i of the stream is the i-th that is wanted, and of the type that the schema says.
static manta_status check_schema(const struct streams_scan *s, manta_error *err)
{
  const struct streams_data *d = (const struct streams_data *)s->scan.d;
  const struct manta__schema *all = d->d.out, *has = s->stream.schema;
  int n = 0;
  for (int i = 0; i < all->count; i++) {
    if (!s->scan.columns[i])
      continue;
    if (n >= has->count || strcmp(all->field[i].name, has->field[n].name) ||
        !manta__type_equal(&all->field[i].type, &has->field[n].type))
      return manta_error_set(err, MANTA_EINVAL,
                             "%s: column \"%.128s\" is not in block %" PRId64
                             ", or of another type there",
                             d->name, all->field[i].name, s->block);
    n++;
  }
  if (n < has->count)
    return manta_error_set(err, MANTA_EINVAL, "%s: block %" PRId64 " has a column more: \"%.128s\"",
                           d->name, s->block, has->field[n].name);
  return MANTA_OK;
}

static manta_status streams_next(struct manta__scan *scan, manta_batch **out, manta_error *err)
{
  struct streams_scan *s = (struct streams_scan *)scan;
  manta_batch *in;
  manta_status st = manta__arrow_stream_next(&s->stream, &in, err);
  if (st != 1)
    return st;
  st = manta__batch_create(out, scan->d->out, in->rows, err);
  for (int i = 0, n = 0; st == MANTA_OK && i < scan->d->out->count; i++)
    if (scan->columns[i])
      manta__column_move(&(*out)->column[i], &in->column[n++]);
  if (st == MANTA_OK) {
    (*out)->first = s->rows;
    s->rows += in->rows;
  }
  manta_batch_destroy(in);
  return st < 0 ? st : (manta_status)1;
}

static void streams_close(struct manta__scan *scan)
{
  manta__arrow_stream_close(&((struct streams_scan *)scan)->stream);
}

static manta_status open_stream(struct streams_scan *s, const struct streams_data *d,
                                manta_error *err)
{
  struct ArrowArrayStream stream = {0};
  bool any = false;
  for (int i = 0; i < d->d.out->count; i++)
    any |= s->scan.columns[i];
  if (!any)
    s->scan.columns[0] = true;
  MANTA_TRY(d->c.open(d->c.ctx, s->block, s->scan.columns, &stream, err));
  MANTA_TRY(manta__arrow_stream_open(&s->stream, &stream, err));
  s->stream.pool = d->d.pool;
  return check_schema(s, err);
}

static manta_status scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                         const struct manta__want *want, manta_error *err)
{
  struct streams_scan *s;
  MANTA_TRY(manta__scan_create(&s, sizeof *s, d, want, err));
  s->scan.next = streams_next;
  s->scan.close = streams_close;
  s->block = block;
  manta_status st = open_stream(s, (struct streams_data *)d, err);
  if (st < 0) {
    manta__scan_close(&s->scan);
    return st;
  }
  *out = &s->scan;
  return MANTA_OK;
}

// --- the step -----------------------------------------------------------------------------------

// A filter is applied to what a stream gives.
static bool takes(const manta_dataset *d, const bool *columns)
{
  return false;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  int count = 0;
  for (int i = 0; i < d->out->count; i++)
    count += want->columns[i];
  return manta__buf_printf(b, "%s: %" PRId64 " block%s; %d of %d columns",
                           ((const struct streams_data *)d)->name, d->blocks,
                           d->blocks == 1 ? "" : "s", count, d->out->count);
}

static const char *file_of(const manta_dataset *d, int64_t block)
{
  return ((const struct streams_data *)d)->name;
}

static void fini(manta_dataset *d)
{
  struct streams_data *s = (struct streams_data *)d;
  if (s->c.close)
    s->c.close(s->c.ctx);
  manta__free(s->name);
  manta__pool_close(d->pool);
}

static const struct manta__step step_streams = {
    .name = "streams",
    .takes = takes,
    .scan = scan,
    .explain = explain,
    .file = file_of,
    .fini = fini,
};

static manta_status make(struct streams_data *s, const struct ArrowSchema *schema,
                         const manta_stream_config *c, manta_error *err)
{
  s->d.pool = manta__pool_create(IDLE_BYTES);
  s->name = manta__strdup(c->name ? c->name : "streams");
  if (!s->d.pool || !s->name)
    return no_memory(err);
  MANTA_TRY(manta__arrow_import_schema(schema, &s->d.out, err));
  if (s->d.out->count == 0)
    return manta_error_set(err, MANTA_EINVAL, "%s: there are no columns", s->name);
  s->d.blocks = c->blocks;
  s->d.mark = manta__hash_seed(&c->blocks, sizeof c->blocks, c->mark);
  return MANTA_OK;
}

manta_status manta_dataset_streams(manta_dataset **out, const struct ArrowSchema *schema,
                                   const manta_stream_config *config, manta_error *err)
{
  struct streams_data *s;
  manta_stream_config c;
  MANTA_TRY(manta__config_take(&c, sizeof c, config, "MANTA_STREAM_CONFIG_INIT", err));
  if (!c.open || c.blocks < 0 || c.blocks > BLOCKS_MAX)
    return manta_error_set(err, MANTA_EINVAL, "streams: %" PRId64 " blocks, and %s", c.blocks,
                           c.open ? "who opens them" : "nobody opens them");
  MANTA_TRY(manta__dataset_create(&s, sizeof *s, &step_streams, NULL, 0, err));
  manta_status st = make(s, schema, &c, err);
  if (st < 0) {
    manta__dataset_unref(&s->d);
    return st;
  }
  s->c = c; // from here on it is closed with the data set
  *out = &s->d;
  return MANTA_OK;
}
