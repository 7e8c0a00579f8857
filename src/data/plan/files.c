/* SPDX-License-Identifier: Apache-2.0 */
#include "data/plan/files.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "data/plan/pack.h"

#define IDLE_BYTES ((size_t)32 << 20) /* that the pool keeps for the next batches */
#define OTHERS     8                  /* files that are looked at beside the first one, and */
#define FAR_OTHERS 2                  /* where each costs a request */

// --- opening ------------------------------------------------------------------------------------

// One format for all: that of the first file.
static manta_status find_format(struct manta__files *f, manta_error *err)
{
  if (f->config.format)
    return manta__format_named(&f->format, f->config.format, err);
  MANTA_TRY(manta__format_of(&f->format, f->files.found[0].name, err));
  for (size_t i = 1; i < f->files.count; i++) {
    const struct manta__format *other;
    MANTA_TRY(manta__format_of(&other, f->files.found[i].name, err));
    if (other != f->format)
      return manta_error_set(err, MANTA_EINVAL,
                             "%s is %s, but %s is %s\nhint: a data set has one format: name files "
                             "by a pattern, or set the format",
                             f->files.found[0].name, f->format->name, f->files.found[i].name,
                             other->name);
  }
  return MANTA_OK;
}

manta_status manta__files_file(struct manta__files *f, int32_t file, struct manta__file *out,
                               manta_error *err)
{
  const char *name = f->files.found[file].name;
  enum manta__compression form = MANTA__PLAIN;
  if (f->config.compression)
    manta__compression_parse(&form, f->config.compression);
  else if (!f->format->stays_packed)
    form = manta__compression_of(name);
  *out = (struct manta__file){.compression = form, .config = &f->config};
  MANTA_TRY(manta__source_open(&out->source, name, err));
  out->source->took = &f->d.tally.read;
  return MANTA_OK;
}

// Opens some of the files behind number `first`, evenly spread, the last among them. What is wrong
// with one that cannot be opened its reader will tell.
static size_t open_others(struct manta__files *f, size_t first, struct manta__file *others)
{
  size_t rest = f->files.count - first - 1, opened = 0;
  size_t most = strstr(f->files.found[first].name, "://") ? FAR_OTHERS : OTHERS;
  size_t count = !f->format->guesses ? 0 : rest < most ? rest : most;
  for (size_t k = 1; k <= count; k++) {
    size_t i = first + k * rest / count;
    if (f->files.found[i].size && manta__files_file(f, (int32_t)i, &others[opened], NULL) == 0)
      opened++;
  }
  return opened;
}

static manta_status look_at_file(struct manta__files *f, size_t i, bool passes_empty,
                                 manta_error *err)
{
  struct manta__file file, others[OTHERS];
  MANTA_TRY(manta__files_file(f, (int32_t)i, &file, err));
  file.passes_empty = passes_empty;
  file.others = others;
  file.other_count = open_others(f, i, others);
  manta_status st = f->format->look(&file, &f->schema, err);
  for (size_t k = 0; k < file.other_count; k++)
    manta__source_close(others[k].source);
  manta__source_close(file.source);
  return st;
}

// Of the first file that has one. One of no bytes is not opened, unless there is no other.
static manta_status look_at_files(struct manta__files *f, bool passes_empty, manta_error *err)
{
  size_t first = 0;
  while (first + 1 < f->files.count && f->files.found[first].size == 0)
    first++;
  for (size_t i = first; i < f->files.count && !f->schema; i++)
    MANTA_TRY(look_at_file(f, i, passes_empty, err));
  return MANTA_OK;
}

// Columns are those of the first file that has rows: a header alone says nothing of types.
static manta_status find_schema(struct manta__files *f, manta_error *err)
{
  if (f->files.count > 1)
    MANTA_TRY(look_at_files(f, true, err));
  if (!f->schema)
    MANTA_TRY(look_at_files(f, false, err));
  return f->schema ? MANTA_OK
                   : manta_error_set(err, MANTA_EINVAL, "%s: is empty: it has no columns%s",
                                     f->files.found[0].name,
                                     f->files.count > 1 ? ", and so are the other files" : "");
}

manta_status manta__files_choose(struct manta__files *f, manta_error *err)
{
  const manta_data_config *c = &f->config;
  int count = c->column_count ? (int)c->column_count : f->schema->count;
  if (c->column_count > MANTA__COLUMNS_MAX || (c->column_count && !c->columns))
    return manta_error_set(err, MANTA_EINVAL, "%zu columns are to be chosen", c->column_count);
  if (!(f->columns = manta__calloc((size_t)count + 1, sizeof *f->columns)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d columns", count);
  for (int i = 0; i < count; i++) {
    f->columns[i] = i;
    if (c->column_count)
      MANTA_TRY(manta__schema_need(f->schema, c->columns[i], &f->columns[i], err));
  }
  return manta__schema_select(&f->d.out, f->schema, f->columns, count, err);
}

static manta_status cut_files(struct manta__files *f, manta_error *err)
{
  for (int32_t i = 0; i < (int32_t)f->files.count; i++) {
    struct manta__file file;
    int64_t size = f->files.found[i].size;
    if (size <= (int64_t)f->config.block_bytes) {
      MANTA_TRY(manta__blocks_add(&f->blocks, (struct manta__block){i, 0, size}, err));
      continue;
    }
    MANTA_TRY(manta__files_file(f, i, &file, err));
    manta_status st = manta__format_cut(f->format, &file, i, &f->blocks, err);
    manta__source_close(file.source);
    if (st < 0)
      return st;
  }
  return MANTA_OK;
}

// Names are not in it: the same files elsewhere are the same rows.
static uint64_t mark_of(const struct manta__blocks *b)
{
  uint64_t mark = 0;
  for (int64_t i = 0; i < b->count; i++) {
    int64_t part[3] = {b->block[i].file, b->block[i].from, b->block[i].to};
    mark = manta__hash_seed(part, sizeof part, mark);
  }
  return mark;
}

manta_status manta__files_begin(struct manta__files **out, const manta_data_config *config,
                                manta_error *err)
{
  struct manta__files *f;
  MANTA_TRY(manta__dataset_create(&f, sizeof *f, &manta__step_files, NULL, 0, err));
  manta_status st = manta__files_config(f, config, err);
  if (st == MANTA_OK && !(f->d.pool = manta__pool_create(IDLE_BYTES)))
    st = manta_error_set(err, MANTA_ENOMEM, "no memory for a data set");
  if (st < 0) {
    manta__dataset_unref(&f->d);
    return st;
  }
  *out = f;
  return MANTA_OK;
}

void manta__files_end(struct manta__files *f)
{
  f->d.blocks = f->blocks.count;
  f->d.mark = mark_of(&f->blocks);
}

static manta_status open_parts(struct manta__files *f, const char *const *paths, size_t count,
                               manta_error *err)
{
  MANTA_TRY(manta__listing_make(&f->files, paths, count, err));
  MANTA_TRY(find_format(f, err));
  f->config.format = f->format->name; // the caller's text may be gone later
  MANTA_TRY(find_schema(f, err));
  MANTA_TRY(manta__files_choose(f, err));
  if (f->config.filter)
    MANTA_TRY(manta__filter_check(&f->filter, f->schema, err));
  MANTA_TRY(cut_files(f, err));
  manta__files_end(f);
  return MANTA_OK;
}

// --- the step -----------------------------------------------------------------------------------

static const char *file_of(const manta_dataset *d, int64_t block)
{
  const struct manta__files *f = (const struct manta__files *)d;
  return f->files.found[f->blocks.block[block].file].name;
}

static manta_status put_columns(const manta_dataset *d, const bool *wanted, manta__buf *b)
{
  int count = 0;
  for (int i = 0; i < d->out->count; i++)
    count += wanted[i];
  MANTA_TRY(manta__buf_printf(b, "; %d of %d columns", count, d->out->count));
  for (int i = 0, shown = 0; i < d->out->count && count < d->out->count && shown < 8; i++)
    if (wanted[i])
      MANTA_TRY(manta__buf_printf(b, "%s%s", shown++ ? ", " : ": ", d->out->field[i].name));
  return MANTA_OK;
}

static manta_status put_filter(const manta_value *filter, manta__buf *b)
{
  char *text;
  MANTA_TRY(manta__expr_print(filter, &text, NULL));
  manta_status st = manta__buf_printf(b, "; filter %s", text);
  manta_free(text);
  return st;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  const struct manta__files *f = (const struct manta__files *)d;
  int64_t bytes = 0;
  for (size_t i = 0; i < f->files.count; i++)
    bytes += f->files.found[i].size;
  MANTA_TRY(manta__buf_printf(b, "%s: %zu file%s, %" PRId64 " block%s, %" PRId64 " bytes",
                              f->format->name, f->files.count, f->files.count == 1 ? "" : "s",
                              d->blocks, d->blocks == 1 ? "" : "s", bytes));
  MANTA_TRY(put_columns(d, want->columns, b));
  if (f->config.filter)
    MANTA_TRY(put_filter(f->config.filter, b));
  return want->filter ? put_filter(want->filter, b) : MANTA_OK;
}

static void files_fini(manta_dataset *d)
{
  struct manta__files *f = (struct manta__files *)d;
  manta__listing_fini(&f->files);
  manta__schema_unref(f->schema);
  manta__free(f->columns);
  manta__blocks_fini(&f->blocks);
  manta__pool_close(d->pool);
  manta__files_config_fini(f);
}

const struct manta__step manta__step_files = {
    .name = "files",
    .scan = manta__files_scan,
    .explain = explain,
    .file = file_of,
    .fini = files_fini,
    .pack = manta__files_pack,
    .unpack = manta__files_unpack,
};

manta_status manta_dataset_open(manta_dataset **out, const char *const *paths, size_t count,
                                const manta_data_config *config, manta_error *err)
{
  struct manta__files *f;
  MANTA_TRY(manta__files_begin(&f, config, err));
  manta_status st = open_parts(f, paths, count, err);
  if (st < 0) {
    manta__dataset_unref(&f->d);
    return st;
  }
  *out = &f->d;
  return MANTA_OK;
}
