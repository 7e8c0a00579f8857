/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/filescan.c - the rows of a block of files: only the wanted columns are parsed.
 */
#include <inttypes.h>

#include "base/alloc.h"
#include "data/plan/files.h"

struct file_scan {
  struct manta__scan scan;
  struct manta__schema *schema; /* of the files; borrowed */
  struct manta__file file;
  struct manta__filtered *reader;
  int *columns; /* of the schema of the files; then, for each, where it goes in a batch */
  int *places;
  int count;
  struct manta__schema *narrow; /* those columns */
  manta_value filter;
};

static manta_status file_next(struct manta__scan *scan, manta_batch **out, manta_error *err)
{
  struct file_scan *s = (struct file_scan *)scan;
  manta_batch *in;
  manta_status st = manta__filtered_next(s->reader, s->narrow ? &in : out, err);
  if (st != 1 || !s->narrow)
    return st;
  st = manta__batch_create(out, scan->d->out, in->rows, err);
  for (int i = 0; st == MANTA_OK && i < s->count; i++)
    manta__column_move(&(*out)->column[s->places[i]], &in->column[i]);
  if (st == MANTA_OK) {
    (*out)->first = in->first;
    (*out)->source_rows = in->source_rows;
    (*out)->origin = manta__memory_ref(in->origin);
  }
  manta_batch_destroy(in);
  return st < 0 ? st : (manta_status)1;
}

static void file_close(struct manta__scan *scan)
{
  struct file_scan *s = (struct file_scan *)scan;
  manta__filtered_close(s->reader);
  manta__source_close(s->file.source);
  manta__schema_unref(s->narrow);
  manta__free(s->columns);
  manta__free(s->places);
  manta_value_fini(&s->filter);
}

static manta_status narrow_columns(struct file_scan *s, const struct manta__files *f,
                                   manta_error *err)
{
  int all = f->d.out->count;
  s->columns = manta__calloc((size_t)all + 1, sizeof *s->columns);
  s->places = manta__calloc((size_t)all + 1, sizeof *s->places);
  if (!s->columns || !s->places)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d columns", all);
  for (int i = 0; i < all; i++)
    if (s->scan.columns[i] || f->config.skip_errors) {
      s->columns[s->count] = f->columns[i];
      s->places[s->count++] = i;
    }
  return s->count == all ? MANTA_OK
                         : manta__schema_select(&s->narrow, s->schema, s->columns, s->count, err);
}

static manta_status open_reader(struct file_scan *s, struct manta__files *f, int64_t block,
                                manta_error *err)
{
  struct manta__read_job job = {.file = s->file,
                                .block = f->blocks.block[block],
                                .schema = s->schema,
                                .columns = s->columns,
                                .out = s->narrow ? s->narrow : s->scan.d->out,
                                .filter = s->filter.type == MANTA_NIL ? NULL : &s->filter,
                                .pool = f->d.pool,
                                .tally = &f->d.tally};
  int64_t size = s->file.source->size;
  if (job.block.to > size)
    return manta_error_set(err, MANTA_EIO,
                           "%s: has %" PRId64 " bytes, but had %" PRId64
                           " when the data set was opened\nhint: write another file and rename it "
                           "over this one",
                           s->file.source->name, size, job.block.to);
  return manta__filtered_open(&s->reader, f->format, &job, err);
}

manta_status manta__files_scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                               const struct manta__want *want, manta_error *err)
{
  struct manta__files *f = (struct manta__files *)d;
  return manta__files_scan_as(out, d, f, f->schema, block, want, err);
}

manta_status manta__files_scan_as(struct manta__scan **out, manta_dataset *d,
                                  struct manta__files *f, struct manta__schema *schema,
                                  int64_t block, const struct manta__want *want, manta_error *err)
{
  struct file_scan *s = NULL;
  MANTA_TRY(manta__scan_create(&s, sizeof *s, d, want, err));
  s->schema = schema;
  s->scan.next = file_next;
  s->scan.close = file_close;
  manta_status st = manta__filter_join(&s->filter, f->config.filter, want->filter, err);
  if (st == MANTA_OK)
    st = narrow_columns(s, f, err);
  if (st == MANTA_OK)
    st = manta__files_file(f, f->blocks.block[block].file, &s->file, err);
  if (st == MANTA_OK)
    st = open_reader(s, f, block, err);
  if (st < 0) {
    manta__scan_close(&s->scan);
    return st;
  }
  *out = &s->scan;
  return MANTA_OK;
}
