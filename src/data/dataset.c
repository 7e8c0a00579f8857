/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"

#define IDLE_BYTES ((size_t)64 << 20) /* that the pool keeps for the next batches */

// --- opening ------------------------------------------------------------------------------------

// One format for all: that of the first file.
static manta_status find_format(manta_dataset *d, manta_error *err)
{
  if (d->config.format)
    return manta__format_named(&d->format, d->config.format, err);
  MANTA_TRY(manta__format_of(&d->format, d->files.found[0].name, err));
  for (size_t i = 1; i < d->files.count; i++) {
    const struct manta__format *other;
    MANTA_TRY(manta__format_of(&other, d->files.found[i].name, err));
    if (other != d->format)
      return manta_error_set(err, MANTA_EINVAL,
                             "%s is %s, but %s is %s\nhint: a data set has one format: name files "
                             "by a pattern, or set the format",
                             d->files.found[0].name, d->format->name, d->files.found[i].name,
                             other->name);
  }
  return MANTA_OK;
}

manta_status manta__dataset_file(manta_dataset *d, int32_t file, struct manta__file *out,
                                 manta_error *err)
{
  const char *name = d->files.found[file].name;
  enum manta__compression form = MANTA__PLAIN;
  if (d->config.compression)
    manta__compression_parse(&form, d->config.compression);
  else if (!d->format->stays_packed)
    form = manta__compression_of(name);
  *out = (struct manta__file){.compression = form, .config = &d->config};
  return manta__source_open(&out->source, name, err);
}

static manta_status find_schema(manta_dataset *d, manta_error *err)
{
  struct manta__file f;
  MANTA_TRY(manta__dataset_file(d, 0, &f, err));
  manta_status st = d->format->look(&f, &d->schema, err);
  manta__source_close(f.source);
  return st;
}

static manta_status choose_columns(manta_dataset *d, manta_error *err)
{
  const manta_data_config *c = &d->config;
  int count = c->column_count ? (int)c->column_count : d->schema->count;
  if (c->column_count > MANTA__COLUMNS_MAX || (c->column_count && !c->columns))
    return manta_error_set(err, MANTA_EINVAL, "%zu columns are to be chosen", c->column_count);
  if (!(d->columns = manta__calloc((size_t)count + 1, sizeof *d->columns)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d columns", count);
  for (int i = 0; i < count; i++) {
    d->columns[i] = i;
    if (c->column_count)
      MANTA_TRY(manta__schema_need(d->schema, c->columns[i], &d->columns[i], err));
  }
  return manta__schema_select(&d->out, d->schema, d->columns, count, err);
}

// That it compiles, and gives true or false.
static manta_status check_filter(manta_dataset *d, manta_error *err)
{
  struct manta__expr *e;
  uint32_t row;
  int64_t count;
  manta_batch *none;
  if (!d->config.filter)
    return MANTA_OK;
  MANTA_TRY(manta__expr_compile(&e, &d->filter, d->schema, err));
  manta_status st = manta__batch_create(&none, d->schema, 0, err);
  if (st == MANTA_OK) {
    st = manta__expr_filter(e, none, &row, &count, err);
    manta_batch_destroy(none);
  }
  manta__expr_destroy(e);
  return st;
}

static manta_status cut_files(manta_dataset *d, manta_error *err)
{
  for (int32_t i = 0; i < (int32_t)d->files.count; i++) {
    struct manta__file f;
    int64_t size = d->files.found[i].size;
    if (size <= (int64_t)d->config.block_bytes) {
      MANTA_TRY(manta__blocks_add(&d->blocks, (struct manta__block){i, 0, size}, err));
      continue;
    }
    MANTA_TRY(manta__dataset_file(d, i, &f, err));
    manta_status st = manta__format_cut(d->format, &f, i, &d->blocks, err);
    manta__source_close(f.source);
    if (st < 0)
      return st;
  }
  return MANTA_OK;
}

static manta_status open_parts(manta_dataset *d, const char *const *paths, size_t count,
                               const manta_data_config *config, manta_error *err)
{
  MANTA_TRY(manta__config_copy(d, config, err));
  if (!(d->pool = manta__pool_create(IDLE_BYTES)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a data set");
  MANTA_TRY(manta__listing_make(&d->files, paths, count, err));
  MANTA_TRY(find_format(d, err));
  MANTA_TRY(find_schema(d, err));
  MANTA_TRY(choose_columns(d, err));
  MANTA_TRY(check_filter(d, err));
  return cut_files(d, err);
}

manta_status manta_dataset_open(manta_dataset **out, const char *const *paths, size_t count,
                                const manta_data_config *config, manta_error *err)
{
  manta_dataset *d = manta__calloc(1, sizeof *d);
  if (!d)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a data set");
  d->refs = 1;
  manta__tally_init(&d->tally);
  manta_status st = open_parts(d, paths, count, config, err);
  if (st < 0) {
    manta__dataset_unref(d);
    return st;
  }
  *out = d;
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
  manta__listing_fini(&d->files);
  manta__schema_unref(d->schema);
  manta__schema_unref(d->out);
  manta__free(d->columns);
  manta__blocks_fini(&d->blocks);
  manta__pool_close(d->pool);
  manta__tally_fini(&d->tally);
  manta__config_fini(d);
  manta__free(d);
}

void manta_dataset_close(manta_dataset *d)
{
  manta__dataset_unref(d);
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

int64_t manta_dataset_blocks(const manta_dataset *d)
{
  return d->blocks.count;
}

const char *manta_dataset_block_file(const manta_dataset *d, int64_t block)
{
  if (block < 0 || block >= d->blocks.count)
    return NULL;
  return d->files.found[d->blocks.block[block].file].name;
}

void manta_dataset_stats(const manta_dataset *d, manta_data_stats *out)
{
  *out = (manta_data_stats){.rows = d->tally.rows,
                            .skipped = d->tally.skipped,
                            .bytes = d->tally.bytes,
                            .first_skip = d->tally.first_skip};
}
