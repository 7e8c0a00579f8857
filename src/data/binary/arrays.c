/* SPDX-License-Identifier: Apache-2.0
 *
 * data/binary/arrays.c - .npy files, whose array is the column "data", and .npz files, whose arrays
 * are columns of their own, all with the same number of rows.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "data/binary/npy.h"
#include "data/binary/zip.h"
#include "data/format/assembly.h"

#define STEP 4096 /* rows between two looks at how full the batch is */

/* The arrays of a file. {0} is empty. */
struct array_set {
  struct manta__npy *array; /* those that are wanted are open */
  char **name;              /* of the columns */
  uint32_t *crc;            /* of what is decoded */
  bool *checked;            /* there is one */
  int count;
};

static void close_set(struct array_set *s)
{
  for (int i = 0; i < s->count; i++) {
    manta__npy_close(&s->array[i]);
    manta__free(s->name[i]);
  }
  manta__free(s->array);
  manta__free(s->name);
  manta__free(s->crc);
  manta__free(s->checked);
  *s = (struct array_set){0};
}

static manta_status begin_set(struct array_set *s, int count, const struct manta__file *f,
                              manta_error *err)
{
  *s = (struct array_set){0};
  s->array = manta__calloc((size_t)count + 1, sizeof *s->array);
  s->name = manta__calloc((size_t)count + 1, sizeof *s->name);
  s->crc = manta__calloc((size_t)count + 1, sizeof *s->crc);
  s->checked = manta__calloc((size_t)count + 1, sizeof *s->checked);
  if (s->array && s->name && s->crc && s->checked)
    return MANTA_OK;
  close_set(s);
  return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", f->source->name);
}

static manta_status add_array(struct array_set *s, const struct manta__file *f, int64_t from,
                              int64_t to, enum manta__compression form, const char *column,
                              size_t column_n, manta_error *err)
{
  int i = s->count;
  char *label = manta__asprintf("%s: %.*s", f->source->name, (int)column_n, column);
  s->name[i] = manta__strndup(column, column_n);
  manta_status st = MANTA_OK;
  if (!label || !s->name[i])
    st = manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", f->source->name);
  s->count++;
  if (st == MANTA_OK)
    st = manta__npy_open(&s->array[i], f->source, from, to, form, label, err);
  manta__free(label);
  return st;
}

static manta_status open_npy(struct array_set *s, const struct manta__file *f, manta_error *err)
{
  MANTA_TRY(begin_set(s, 1, f, err));
  manta_status st =
      add_array(s, f, 0, f->source->size, f->compression, "data", strlen("data"), err);
  if (st < 0)
    close_set(s);
  return st;
}

static manta_status add_members(struct array_set *s, const struct manta__file *f,
                                const struct manta__zip *z, manta_error *err)
{
  for (int i = 0; i < z->count; i++) {
    const struct manta__zip_member *m = &z->member[i];
    size_t n = strlen(m->name);
    if (n <= 4 || strcmp(m->name + n - 4, ".npy") != 0)
      continue;
    s->crc[s->count] = m->crc;
    s->checked[s->count] = true;
    MANTA_TRY(add_array(s, f, m->from, m->to, m->form, m->name, n - 4, err));
    int64_t rows = s->array[s->count - 1].header.rows;
    if (rows != s->array[0].header.rows)
      return manta_error_set(err, MANTA_EINVAL,
                             "%s: array \"%.64s\" has %" PRId64 " rows, but \"%.64s\" has %" PRId64
                             "\nhint: arrays of an .npz file are columns, of equal length",
                             f->source->name, s->name[s->count - 1], rows, s->name[0],
                             s->array[0].header.rows);
  }
  if (s->count == 0)
    return manta_error_set(err, MANTA_EINVAL, "%s: has no arrays in it", f->source->name);
  return MANTA_OK;
}

static manta_status open_npz(struct array_set *s, const struct manta__file *f, manta_error *err)
{
  struct manta__zip z;
  MANTA_TRY(manta__zip_read(&z, f->source, err));
  manta_status st = begin_set(s, z.count, f, err);
  if (st == MANTA_OK) {
    st = add_members(s, f, &z, err);
    if (st < 0)
      close_set(s);
  }
  manta__zip_fini(&z);
  return st;
}

// --- the schema ---------------------------------------------------------------------------------

// A given type may say another shape for as many elements, and that 16 bits are a bf16.
static manta_status check_type(const struct manta__npy_header *h, const char *name,
                               const struct manta__type *t, manta_error *err)
{
  char was[MANTA__TYPE_TEXT_MAX], is[MANTA__TYPE_TEXT_MAX];
  bool same = t->kind == h->type.kind && manta__type_width(t) == manta__type_width(&h->type) &&
              (t->kind != MANTA_KIND_NUMBER || t->dtype == h->type.dtype ||
               (t->dtype == MANTA_BF16 && h->type.dtype == MANTA_U16));
  return same ? MANTA_OK
              : manta_error_set(err, MANTA_EINVAL,
                                "column \"%.64s\" is %s in the file, and cannot be read as %s"
                                "\nhint: a shape with as many elements can; else cast the column",
                                name, manta__type_text(&h->type, was), manta__type_text(t, is));
}

static manta_status make_schema(const struct array_set *s, const struct manta__file *f,
                                struct manta__schema **out, manta_error *err)
{
  struct manta__schema_field *fields = manta__calloc((size_t)s->count, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for its columns", f->source->name);
  for (int i = 0; i < s->count; i++)
    fields[i] = (struct manta__schema_field){s->name[i], s->array[i].header.type};
  manta_status st = manta__format_types(f->config, fields, s->count, err);
  for (int i = 0; i < s->count && st == MANTA_OK; i++)
    st = check_type(&s->array[i].header, s->name[i], &fields[i].type, err);
  if (st == MANTA_OK)
    st = manta__schema_create(out, fields, s->count, err);
  manta__free(fields);
  return st;
}

static manta_status look_npy(const struct manta__file *f, struct manta__schema **out,
                             manta_error *err)
{
  struct array_set s;
  MANTA_TRY(open_npy(&s, f, err));
  manta_status st = make_schema(&s, f, out, err);
  close_set(&s);
  return st;
}

static manta_status look_npz(const struct manta__file *f, struct manta__schema **out,
                             manta_error *err)
{
  struct array_set s;
  MANTA_TRY(open_npz(&s, f, err));
  manta_status st = make_schema(&s, f, out, err);
  close_set(&s);
  return st;
}

// Rows of an array all have the same size, unless they lie in Fortran order.
static manta_status cut_npy(const struct manta__file *f, int32_t number, struct manta__blocks *out,
                            manta_error *err)
{
  struct array_set s;
  MANTA_TRY(open_npy(&s, f, err));
  struct manta__npy_header h = s.array[0].header;
  close_set(&s);
  int64_t from = 0, size = f->source->size, row = (int64_t)h.row;
  int64_t each = (int64_t)f->config->block_bytes, rows = each / row > 0 ? each / row : 1;
  int64_t next = 0; // the row that the next block begins with
  manta_status st = MANTA_OK;
  do {
    next = h.fortran || h.rows - next < rows + rows / 4 + 1 ? h.rows : next + rows;
    int64_t to = next == h.rows ? size : h.bytes + next * row;
    st = manta__blocks_add(out, (struct manta__block){number, from, to}, err);
    from = to;
  } while (from < size && st == MANTA_OK);
  return st;
}

// --- reading ------------------------------------------------------------------------------------

struct array_reader {
  struct manta__reader reader;
  struct manta__assembly batch;
  struct array_set set;
  int *pick; /* [out->count]: which array each column is */
  int64_t first, next, end;
};

static void close_arrays(struct manta__reader *reader)
{
  struct array_reader *r = (struct array_reader *)reader;
  manta__assembly_close(&r->batch);
  close_set(&r->set);
  manta__free(r->pick);
  manta__free(r);
}

// By name, and of the type that the data set has.
static manta_status pick_array(struct array_reader *r, int column, manta_error *err)
{
  const struct manta__schema_field *f = &r->reader.job.out->field[column];
  for (int i = 0; i < r->set.count; i++)
    if (!strcmp(r->set.name[i], f->name)) {
      manta_error why = MANTA_ERROR_INIT;
      r->pick[column] = i;
      if (check_type(&r->set.array[i].header, f->name, &f->type, &why) < 0)
        return manta_error_set(err, why.status, "%s: %s", r->reader.job.file.source->name,
                               why.message);
      return MANTA_OK;
    }
  return manta_error_set(err, MANTA_ENOENT, "%s: has no array \"%.64s\", which the first file has",
                         r->reader.job.file.source->name, f->name);
}

static manta_status open_parts(struct array_reader *r, manta_error *err)
{
  const struct manta__read_job *job = &r->reader.job;
  bool npz = r->reader.format == &manta__format_npz;
  MANTA_TRY(manta__assembly_open(&r->batch, job, err));
  MANTA_TRY(npz ? open_npz(&r->set, &job->file, err) : open_npy(&r->set, &job->file, err));
  r->pick = manta__calloc((size_t)job->out->count + 1, sizeof *r->pick);
  if (!r->pick)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", job->file.source->name);
  for (int i = 0; i < job->out->count; i++)
    MANTA_TRY(pick_array(r, i, err));
  const struct manta__npy_header *h = &r->set.array[0].header;
  r->end = h->rows;
  if (!npz && job->block.from > 0)
    r->first = (job->block.from - h->bytes) / (int64_t)h->row;
  if (!npz && job->block.to < job->file.source->size)
    r->end = (job->block.to - h->bytes) / (int64_t)h->row;
  r->next = r->first;
  return r->first > 0 ? manta__npy_seek(&r->set.array[0], r->first, err) : MANTA_OK;
}

static manta_status open_arrays(struct manta__reader **out, const struct manta__format *format,
                                const struct manta__read_job *job, manta_error *err)
{
  struct array_reader *r = manta__calloc(1, sizeof *r);
  if (!r)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", job->file.source->name);
  r->reader = (struct manta__reader){format, *job};
  manta_status st = open_parts(r, err);
  if (st < 0) {
    close_arrays(&r->reader);
    return st;
  }
  *out = &r->reader;
  return MANTA_OK;
}

static manta_status open_npy_reader(struct manta__reader **out, const struct manta__read_job *job,
                                    manta_error *err)
{
  return open_arrays(out, &manta__format_npy, job, err);
}

static manta_status open_npz_reader(struct manta__reader **out, const struct manta__read_job *job,
                                    manta_error *err)
{
  return open_arrays(out, &manta__format_npz, job, err);
}

static manta_status take_rows(struct array_reader *r, manta_error *err)
{
  const struct manta__read_job *job = &r->reader.job;
  int64_t n = r->end - r->next, room = r->batch.cap - r->batch.rows;
  n = n < room ? n : room;
  n = n < STEP ? n : STEP;
  for (int i = 0; i < job->out->count; i++) {
    struct manta__npy *a = &r->set.array[r->pick[i]];
    MANTA_TRY(manta__npy_read(a, n, &r->batch.build[i], err));
    atomic_fetch_add_explicit(&job->tally->bytes, n * (int64_t)a->header.row, memory_order_relaxed);
  }
  for (int64_t i = 0; i < n; i++)
    manta__assembly_row(&r->batch, r->next++ - r->first);
  manta__assembly_pass(&r->batch, r->next - r->first);
  return MANTA_OK;
}

// Arrays that were read from beginning to end are what was written.
static manta_status check_sums(struct array_reader *r, manta_error *err)
{
  for (int i = 0; i < r->set.count; i++) {
    const struct manta__npy *a = &r->set.array[i];
    if (r->set.checked[i] && a->checks && a->next == a->end && a->crc != r->set.crc[i])
      return manta_error_set(err, MANTA_ECORRUPT,
                             "%s: its checksum is wrong: the file is damaged\nhint: fetch it again",
                             a->name);
  }
  return MANTA_OK;
}

static manta_status next_arrays(struct manta__reader *reader, manta_batch **out, manta_error *err)
{
  struct array_reader *r = (struct array_reader *)reader;
  MANTA_TRY(manta__assembly_begin(&r->batch, err));
  bool more = r->next < r->end;
  while (r->next < r->end && !manta__assembly_full(&r->batch))
    MANTA_TRY(take_rows(r, err));
  if (more && r->next == r->end)
    MANTA_TRY(check_sums(r, err));
  return manta__assembly_end(&r->batch, out, err);
}

const struct manta__format manta__format_npy = {
    .name = "npy",
    .suffix = {".npy"},
    .look = look_npy,
    .cut = cut_npy,
    .open = open_npy_reader,
    .next = next_arrays,
    .close = close_arrays,
};

const struct manta__format manta__format_npz = {
    .name = "npz",
    .suffix = {".npz"},
    .stays_packed = true,
    .look = look_npz,
    .open = open_npz_reader,
    .next = next_arrays,
    .close = close_arrays,
};
