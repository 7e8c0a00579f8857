/* SPDX-License-Identifier: Apache-2.0 */
#include "data/plan/dataset.h"

#include <string.h>

#include "base/alloc.h"
#include "data/column/arrow.h"

// --- making -------------------------------------------------------------------------------------

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory for a data set");
}

static void inherit(manta_dataset *d)
{
  const manta_dataset *in = d->input[0];
  d->out = manta__schema_ref(in->out);
  d->pool = in->pool;
  d->blocks = in->blocks;
  d->mark = in->mark;
  d->passes = in->passes;
}

manta_status manta__dataset_create(void *out, size_t size, const struct manta__step *step,
                                   manta_dataset *const *input, int inputs, manta_error *err)
{
  manta_dataset *d = manta__calloc(1, size);
  if (d)
    d->input = manta__calloc((size_t)inputs + 1, sizeof *d->input);
  if (!d || !d->input) {
    manta__free(d);
    return no_memory(err);
  }
  d->refs = 1;
  d->step = step;
  d->passes = (struct manta__passes){.window = 1, .times = 1, .take = -1};
  d->inputs = inputs;
  for (int i = 0; i < inputs; i++) {
    d->input[i] = manta__dataset_ref(input[i]);
    d->multiplies |= input[i]->multiplies;
  }
  if (inputs)
    inherit(d);
  manta__tally_init(&d->tally);
  pthread_mutex_init(&d->lock, NULL);
  *(manta_dataset **)out = d;
  return MANTA_OK;
}

manta_dataset *manta__dataset_ref(manta_dataset *d)
{
  atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
  return d;
}

void manta__dataset_unref(manta_dataset *d)
{
  if (!d || atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) > 1)
    return;
  if (d->cache)
    d->drop_cache(d->cache);
  if (d->step->fini)
    d->step->fini(d);
  for (int i = 0; i < d->inputs; i++)
    manta__dataset_unref(d->input[i]);
  manta__dataset_unref(d->early);
  manta__free(d->input);
  manta__schema_unref(d->out);
  manta__tally_fini(&d->tally);
  pthread_mutex_destroy(&d->lock);
  manta__free(d);
}

void manta_dataset_close(manta_dataset *d)
{
  manta__dataset_unref(d);
}

void manta__dataset_schema(manta_dataset *d, struct manta__schema *schema)
{
  manta__schema_unref(d->out);
  d->out = schema;
}

manta_status manta__dataset_unlimited(const manta_dataset *d, const char *what, manta_error *err)
{
  if (d->passes.take < 0)
    return MANTA_OK;
  return manta_error_set(err, MANTA_EUNSUPPORTED,
                         "%s cannot follow a limit that follows a shuffle or a repeat\nhint: limit "
                         "last, or first of all",
                         what);
}

manta_status manta__dataset_prepare(manta_dataset *d, manta_error *err)
{
  manta_status st = MANTA_OK;
  for (int i = 0; i < d->inputs && st == MANTA_OK; i++)
    st = manta__dataset_prepare(d->input[i], err);
  if (st < 0 || !d->step->prepare)
    return st;
  pthread_mutex_lock(&d->lock);
  if (!d->prepared)
    st = d->step->prepare(d, err);
  d->prepared = st == MANTA_OK;
  pthread_mutex_unlock(&d->lock);
  return st;
}

bool *manta__columns_flags(const manta_dataset *d, bool on)
{
  bool *flags = manta__malloc((size_t)d->out->count + 1);
  if (flags)
    memset(flags, on, (size_t)d->out->count + 1);
  return flags;
}

// --- what it is ---------------------------------------------------------------------------------

int manta_dataset_columns(const manta_dataset *d)
{
  return d->out->count;
}

manta_status manta_dataset_field(const manta_dataset *d, int column, manta_field *out,
                                 manta_error *err)
{
  if (column < 0 || column >= d->out->count)
    return manta_error_set(err, MANTA_ENOENT, "there is no column %d; the data set has %d", column,
                           d->out->count);
  manta__schema_show(d->out, column, out);
  return MANTA_OK;
}

manta_status manta_dataset_schema(const manta_dataset *d, struct ArrowSchema *out, manta_error *err)
{
  return manta__arrow_export_schema(d->out, out, err);
}

int64_t manta_dataset_blocks(const manta_dataset *d)
{
  return d->blocks;
}

const char *manta_dataset_block_file(const manta_dataset *d, int64_t block)
{
  if (block < 0 || block >= d->blocks)
    return NULL;
  while (!d->step->file)
    d = d->input[0];
  return d->step->file(d, block);
}

static void add_stats(const manta_dataset *d, manta_data_stats *out)
{
  out->skipped += d->tally.skipped;
  out->bytes += d->tally.bytes;
  out->step += (double)(d->tally.step + d->tally.step_there) * 1e-9;
  out->read += (double)(d->tally.read + d->tally.read_there) * 1e-9;
  if (!out->first_skip[0])
    out->first_skip = d->tally.first_skip;
  for (int i = 0; i < d->inputs; i++)
    add_stats(d->input[i], out);
}

void manta_dataset_stats(const manta_dataset *d, manta_data_stats *out)
{
  *out = (manta_data_stats){.rows = d->tally.rows, .first_skip = ""};
  add_stats(d, out);
}

manta_status manta_dataset_count(manta_dataset *d, int64_t *out, manta_error *err)
{
  struct manta__want want = {.columns = manta__columns_flags(d, false)};
  manta_status st = want.columns ? manta__dataset_prepare(d, err) : no_memory(err);
  int64_t rows = 0;
  for (int64_t k = 0; k < d->blocks && st >= 0; k++) {
    struct manta__scan *s;
    manta_batch *b;
    if ((st = manta__dataset_scan(&s, d, k, &want, err)) < 0)
      break;
    while ((st = manta__scan_next(s, &b, err)) == 1) {
      rows += b->rows;
      manta_batch_destroy(b);
    }
    manta__scan_close(s);
  }
  manta__free((void *)(uintptr_t)want.columns);
  if (st < 0)
    return st;
  *out = d->passes.take >= 0 && d->passes.take < rows ? d->passes.take : rows;
  return MANTA_OK;
}
