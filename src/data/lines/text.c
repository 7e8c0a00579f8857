/* SPDX-License-Identifier: Apache-2.0
 *
 * data/lines/text.c - text: a row per line, in the one column "text". Empty lines are rows, too.
 */
#include "base/alloc.h"
#include "base/utf8.h"
#include "data/format/assembly.h"
#include "data/lines/lines.h"

struct text_reader {
  struct manta__reader reader;
  struct manta__line_scan lines;
  struct manta__assembly batch;
  int64_t seen;
};

static manta_status look(const struct manta__file *f, struct manta__schema **out, manta_error *err)
{
  struct manta__schema_field field = {"text", manta__type_kind(MANTA_KIND_STRING)};
  MANTA_TRY(manta__format_types(f->config, &field, 1, err));
  if (!manta__type_varies(&field.type))
    return manta_error_set(err, MANTA_EINVAL, "%s: a line of text is a string, or bytes",
                           f->source->name);
  return manta__schema_create(out, &field, 1, err);
}

static void close_text(struct manta__reader *reader)
{
  struct text_reader *r = (struct text_reader *)reader;
  manta__line_scan_close(&r->lines);
  manta__assembly_close(&r->batch);
  manta__free(r);
}

static manta_status open_text(struct manta__reader **out, const struct manta__read_job *job,
                              manta_error *err)
{
  struct text_reader *r = manta__calloc(1, sizeof *r);
  if (!r)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", job->file.source->name);
  r->reader = (struct manta__reader){&manta__format_text, *job};
  manta_status st = manta__assembly_open(&r->batch, &r->reader.job, err);
  if (st == MANTA_OK)
    st = manta__line_scan_open(&r->lines, &r->reader.job.file, job->block.from, job->block.to, err);
  if (st < 0) {
    close_text(&r->reader);
    return st;
  }
  *out = &r->reader;
  return MANTA_OK;
}

static manta_status refuse(struct text_reader *r, manta_error *err)
{
  char place[512];
  struct manta__tally *tally = r->reader.job.tally;
  manta_error why = MANTA_ERROR_INIT;
  bool skips = r->reader.job.file.config->skip_errors;
  if (!skips || !manta__tally_skips(tally)) {
    manta__line_scan_place(&r->lines, place, sizeof place);
    manta_error_set(skips ? &why : err, MANTA_EINVAL,
                    "%sis not UTF-8\nhint: types = {\"text\": \"bytes\"} reads it, skip_errors "
                    "(on_error=\"skip\") leaves out such lines",
                    place);
  }
  if (!skips)
    return MANTA_EINVAL;
  manta__tally_skip(tally, 1, why.message);
  return MANTA_OK;
}

static manta_status put(struct text_reader *r, manta_error *err)
{
  bool string = r->reader.job.schema->field[0].type.kind == MANTA_KIND_STRING;
  if (string && manta__utf8_valid(r->lines.p, r->lines.n) < r->lines.n)
    return refuse(r, err);
  for (int i = 0; i < r->reader.job.out->count; i++)
    MANTA_TRY(manta__build_text(&r->batch.build[i], r->lines.p, r->lines.n, err));
  manta__assembly_row(&r->batch, r->seen);
  return MANTA_OK;
}

static manta_status next_text(struct manta__reader *reader, manta_batch **out, manta_error *err)
{
  struct text_reader *r = (struct text_reader *)reader;
  manta_status st = manta__assembly_begin(&r->batch, err);
  if (st < 0)
    return st;
  while (!manta__assembly_full(&r->batch) && (st = manta__line_scan_next(&r->lines, err)) == 1) {
    MANTA_TRY(put(r, err));
    manta__assembly_pass(&r->batch, ++r->seen);
    atomic_fetch_add_explicit(&r->reader.job.tally->bytes, (int64_t)r->lines.n + 1,
                              memory_order_relaxed);
  }
  return st < 0 ? st : manta__assembly_end(&r->batch, out, err);
}

const struct manta__format manta__format_text = {
    .name = "text",
    .suffix = {".txt", ".text"},
    .look = look,
    .cut = manta__line_scan_cut,
    .open = open_text,
    .next = next_text,
    .close = close_text,
};
