/* SPDX-License-Identifier: Apache-2.0
 *
 * data/binary/fixed.c - records of fixed size, one behind the other: numbers and tensors, little
 * endian, without anything between them. `types` says which, in order; `skip_bytes` are in front of
 * the first record of each file.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "data/format/assembly.h"

#define CHUNK (256u << 10)

struct fixed_reader {
  struct manta__reader reader;
  struct manta__assembly batch;
  struct manta__input input;
  size_t record;  /* bytes */
  size_t *offset; /* [out->count]: of each column in the record */
  uint8_t *chunk;
  size_t chunk_rows;
  int64_t seen;
  bool ended;
};

static size_t record_bytes(const struct manta__schema *s)
{
  size_t bytes = 0;
  for (int i = 0; i < s->count; i++)
    bytes += manta__type_width(&s->field[i].type);
  return bytes;
}

static manta_status read_layout(const manta_value *types, struct manta__schema_field *fields,
                                manta_error *err)
{
  for (uint32_t i = 0; i < types->count; i++) {
    const manta_pair *p = &types->u.pairs[i];
    manta_error why = MANTA_ERROR_INIT;
    fields[i].name = p->key;
    if (manta__type_parse(&fields[i].type, manta_value_as_string(&p->value, "(no text)"), &why) < 0)
      return manta_error_set(err, why.status, "column \"%.64s\": %s", p->key, why.message);
    if (fields[i].type.kind != MANTA_KIND_NUMBER)
      return manta_error_set(err, MANTA_EINVAL,
                             "column \"%.64s\": records of fixed size hold numbers and arrays of "
                             "them\nhint: a flag is u8, text of n bytes is u8[n]",
                             p->key);
  }
  return MANTA_OK;
}

static manta_status look(const struct manta__file *f, struct manta__schema **out, manta_error *err)
{
  const manta_value *types = f->config->types;
  if (!types || types->type != MANTA_MAP || types->count == 0 || types->count > MANTA__COLUMNS_MAX)
    return manta_error_set(err, MANTA_EINVAL,
                           "records of fixed size need types, in order\nhint: types = {\"label\": "
                           "\"u8\", \"image\": \"u8[3,32,32]\"}");
  struct manta__schema_field *fields = manta__calloc(types->count, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %u columns", types->count);
  manta_status st = read_layout(types, fields, err);
  if (st == MANTA_OK)
    st = manta__schema_create(out, fields, (int)types->count, err);
  manta__free(fields);
  if (st == MANTA_OK && record_bytes(*out) > f->config->row_bytes) {
    st = manta_error_set(err, MANTA_ETOOBIG, "records of %zu bytes; the limit is %zu",
                         record_bytes(*out), f->config->row_bytes);
    manta__schema_unref(*out);
  }
  return st;
}

static manta_status cut(const struct manta__file *f, int32_t number, struct manta__blocks *out,
                        manta_error *err)
{
  struct manta__schema *s;
  MANTA_TRY(look(f, &s, err));
  int64_t record = (int64_t)record_bytes(s), size = f->source->size, from = 0;
  int64_t skip = (int64_t)f->config->skip_bytes, each = (int64_t)f->config->block_bytes;
  each = each < record ? record : each - each % record;
  manta__schema_unref(s);
  manta_status st = MANTA_OK;
  do {
    int64_t left = size - from, to = left - left / 4 > each ? from + each : size;
    if (from == 0 && to < size)
      to = skip < size - each ? skip + each : size;
    st = manta__blocks_add(out, (struct manta__block){number, from, to}, err);
    from = to;
  } while (from < size && st == MANTA_OK);
  return st;
}

// --- reading ------------------------------------------------------------------------------------

static void close_fixed(struct manta__reader *reader)
{
  struct fixed_reader *r = (struct fixed_reader *)reader;
  manta__assembly_close(&r->batch);
  manta__input_close(&r->input);
  manta__free(r->offset);
  manta__free(r->chunk);
  manta__free(r);
}

// Bytes in front of the first record, which a compressed file has to be read through to.
static manta_status pass_over(struct fixed_reader *r, size_t n, manta_error *err)
{
  while (n > 0) {
    size_t got, want = n < CHUNK ? n : CHUNK;
    MANTA_TRY(manta__input_read(&r->input, r->chunk, want, &got, err));
    if (got == 0)
      break;
    n -= got;
  }
  return MANTA_OK;
}

static manta_status open_parts(struct fixed_reader *r, manta_error *err)
{
  const struct manta__read_job *job = &r->reader.job;
  const manta_data_config *c = job->file.config;
  MANTA_TRY(manta__assembly_open(&r->batch, job, err));
  r->record = record_bytes(job->schema);
  r->chunk_rows = r->record < CHUNK ? CHUNK / r->record : 1;
  size_t bytes = r->chunk_rows * r->record;
  r->chunk = manta__malloc(bytes > CHUNK ? bytes : CHUNK);
  r->offset = manta__calloc((size_t)job->out->count + 1, sizeof *r->offset);
  if (!r->chunk || !r->offset)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", job->file.source->name);
  for (int i = 0; i < job->out->count; i++)
    for (int k = 0; k < job->columns[i]; k++)
      r->offset[i] += manta__type_width(&job->schema->field[k].type);
  MANTA_TRY(manta__input_open(&r->input, job->file.source, job->block.from, job->block.to,
                              job->file.compression, err));
  return job->block.from == 0 ? pass_over(r, c->skip_bytes, err) : MANTA_OK;
}

static manta_status open_fixed(struct manta__reader **out, const struct manta__read_job *job,
                               manta_error *err)
{
  struct fixed_reader *r = manta__calloc(1, sizeof *r);
  if (!r)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", job->file.source->name);
  r->reader = (struct manta__reader){&manta__format_fixed, *job};
  manta_status st = open_parts(r, err);
  if (st < 0) {
    close_fixed(&r->reader);
    return st;
  }
  *out = &r->reader;
  return MANTA_OK;
}

// What is left of the file is no whole record.
static manta_status tell_rest(struct fixed_reader *r, size_t bytes, manta_error *err)
{
  const struct manta__read_job *job = &r->reader.job;
  manta_error why = MANTA_ERROR_INIT;
  manta_error_set(&why, MANTA_EINVAL,
                  "%s: %zu bytes are left behind the last record of %zu\nhint: do types and "
                  "skip_bytes describe this file?",
                  job->file.source->name, bytes, r->record);
  if (!job->file.config->skip_errors)
    return manta_error_set(err, why.status, "%s", why.message);
  manta__tally_skip(job->tally, 1, why.message);
  return MANTA_OK;
}

static manta_status put_records(struct fixed_reader *r, size_t n, manta_error *err)
{
  for (int i = 0; i < r->reader.job.out->count; i++) {
    struct manta__build *b = &r->batch.build[i];
    char *to = manta__build_data(b);
    for (size_t k = 0; k < n; k++)
      memcpy(to + k * b->width, r->chunk + k * r->record + r->offset[i], b->width);
    MANTA_TRY(manta__build_valid(b, (int64_t)n, NULL, 0, err));
  }
  for (size_t k = 0; k < n; k++)
    manta__assembly_row(&r->batch, r->seen++);
  return MANTA_OK;
}

static manta_status take_chunk(struct fixed_reader *r, manta_error *err)
{
  size_t room = (size_t)(r->batch.cap - r->batch.rows), got;
  size_t rows = room < r->chunk_rows ? room : r->chunk_rows;
  MANTA_TRY(manta__input_read(&r->input, r->chunk, rows * r->record, &got, err));
  r->ended = got < rows * r->record;
  MANTA_TRY(put_records(r, got / r->record, err));
  atomic_fetch_add_explicit(&r->reader.job.tally->bytes, (int64_t)got, memory_order_relaxed);
  if (got % r->record) {
    MANTA_TRY(tell_rest(r, got % r->record, err));
    r->seen++;
  }
  manta__assembly_pass(&r->batch, r->seen);
  return MANTA_OK;
}

static manta_status next_fixed(struct manta__reader *reader, manta_batch **out, manta_error *err)
{
  struct fixed_reader *r = (struct fixed_reader *)reader;
  MANTA_TRY(manta__assembly_begin(&r->batch, err));
  while (!r->ended && !manta__assembly_full(&r->batch))
    MANTA_TRY(take_chunk(r, err));
  return manta__assembly_end(&r->batch, out, err);
}

const struct manta__format manta__format_fixed = {
    .name = "fixed",
    .look = look,
    .cut = cut,
    .open = open_fixed,
    .next = next_fixed,
    .close = close_fixed,
};
