/* SPDX-License-Identifier: Apache-2.0
 *
 * data/binary/whole.c - files as they are: a row per file, with the columns "bytes" and "path".
 */
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "data/format/assembly.h"

#define PIECE ((size_t)256 << 10)

enum { BYTES, PATH, COLUMNS };

struct whole_reader {
  struct manta__reader reader;
  struct manta__assembly batch;
  bool done;
};

static manta_status look(const struct manta__file *f, struct manta__schema **out, manta_error *err)
{
  struct manta__schema_field fields[COLUMNS] = {
      [BYTES] = {"bytes", manta__type_kind(MANTA_KIND_BYTES)},
      [PATH] = {"path", manta__type_kind(MANTA_KIND_STRING)}};
  return manta__schema_create(out, fields, COLUMNS, err);
}

// A file is a row, however large it is.
static manta_status cut(const struct manta__file *f, int32_t number, struct manta__blocks *out,
                        manta_error *err)
{
  return manta__blocks_add(out, (struct manta__block){number, 0, f->source->size}, err);
}

static void close_whole(struct manta__reader *reader)
{
  struct whole_reader *r = (struct whole_reader *)reader;
  manta__assembly_close(&r->batch);
  manta__free(r);
}

static manta_status open_whole(struct manta__reader **out, const struct manta__read_job *job,
                               manta_error *err)
{
  struct whole_reader *r = manta__calloc(1, sizeof *r);
  if (!r)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", job->file.source->name);
  r->reader = (struct manta__reader){&manta__format_binary, *job};
  manta_status st = manta__assembly_open(&r->batch, &r->reader.job, err);
  if (st < 0) {
    close_whole(&r->reader);
    return st;
  }
  r->batch.cap = 1;
  *out = &r->reader;
  return MANTA_OK;
}

static manta_status tell_large(const struct manta__read_job *job, manta_error *err)
{
  return manta_error_set(err, MANTA_ETOOBIG,
                         "%s: has more than %zu bytes\nhint: row_bytes sets another limit",
                         job->file.source->name, job->file.config->row_bytes);
}

// In pieces: how long a compressed file is, is known at its end.
static manta_status read_all(const struct manta__read_job *job, struct manta__input *in,
                             struct manta__build *b, manta_error *err)
{
  bool plain = job->file.compression == MANTA__PLAIN;
  size_t piece = plain ? (size_t)(job->block.to - job->block.from) + 1 : PIECE, got;
  char *to;
  do {
    MANTA_TRY(manta__build_text_room(b, piece, &to, err));
    MANTA_TRY(manta__input_read(in, to, piece, &got, err));
    b->text += got;
    if (b->text > job->file.config->row_bytes)
      return tell_large(job, err);
  } while (got == piece);
  manta__build_text_done(b, 0);
  atomic_fetch_add_explicit(&job->tally->bytes, (int64_t)b->text, memory_order_relaxed);
  return MANTA_OK;
}

static manta_status put_bytes(const struct manta__read_job *job, struct manta__build *b,
                              manta_error *err)
{
  struct manta__input in;
  if (job->block.to - job->block.from > (int64_t)job->file.config->row_bytes)
    return tell_large(job, err);
  MANTA_TRY(manta__input_open(&in, job->file.source, job->block.from, job->block.to,
                              job->file.compression, err));
  manta_status st = read_all(job, &in, b, err);
  manta__input_close(&in);
  return st;
}

static manta_status put_path(const struct manta__read_job *job, struct manta__build *b,
                             manta_error *err)
{
  const char *name = job->file.source->name;
  size_t n = strlen(name);
  if (manta__utf8_valid(name, n) < n)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s: its name is not UTF-8\nhint: read the column \"bytes\" alone",
                           name);
  return manta__build_text(b, name, n, err);
}

static manta_status next_whole(struct manta__reader *reader, manta_batch **out, manta_error *err)
{
  struct whole_reader *r = (struct whole_reader *)reader;
  const struct manta__read_job *job = &r->reader.job;
  if (r->done)
    return 0;
  MANTA_TRY(manta__assembly_begin(&r->batch, err));
  for (int i = 0; i < job->out->count; i++)
    MANTA_TRY(job->columns[i] == BYTES ? put_bytes(job, &r->batch.build[i], err)
                                       : put_path(job, &r->batch.build[i], err));
  manta__assembly_row(&r->batch, 0);
  manta__assembly_pass(&r->batch, 1);
  r->done = true;
  return manta__assembly_end(&r->batch, out, err);
}

const struct manta__format manta__format_binary = {
    .name = "binary",
    .suffix = {".bin"},
    .stays_packed = true,
    .look = look,
    .cut = cut,
    .open = open_whole,
    .next = next_whole,
    .close = close_whole,
};
