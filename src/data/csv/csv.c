/* SPDX-License-Identifier: Apache-2.0 */
#include "data/csv/csv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/format/assembly.h"
#include "data/number/number.h"

#define EXPLAINED 40 /* characters of a field in a message */

/* A column that is parsed: where it lies in this file, and where it goes. */
struct csv_column {
  int field;  /* in a row of this file */
  int number; /* in the schema */
  struct manta__build *build;
  struct manta__build_mark mark; /* what it had before the rows that are being converted */
};

struct csv_reader {
  struct manta__reader reader;
  struct manta__csv_rows rows;
  size_t at; /* rows of the piece that are in batches already */
  struct manta__csv_convert convert;
  size_t scratch_cap;
  struct manta__assembly batch;
  struct csv_column *column; /* those that batches have */
  struct csv_column *sift;   /* those that the filter looks at */
  int columns, sifted;
  struct manta__build *sift_build; /* [sifted] */
  struct manta__expr *filter;
  manta_batch *probe; /* what the filter sees of a piece */
  uint32_t *passed;   /* [scratch_cap]: rows of the piece that go into the batch */
  uint32_t *first;    /* [scratch_cap]: their positions */
  uint8_t *is_bad;    /* [scratch_cap] */
};

static manta_status no_memory(const struct csv_reader *r, manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it",
                         r->reader.job.file.source->name);
}

// --- opening ------------------------------------------------------------------------------------

// Where the file has a column of the schema.
static manta_status find_column(const struct csv_reader *r, const struct manta__csv_head *head,
                                int number, struct csv_column *out, manta_error *err)
{
  const char *name = r->reader.job.schema->field[number].name;
  const char *file = r->reader.job.file.source->name;
  out->number = number;
  for (out->field = 0; out->field < head->count; out->field++)
    if (!strcmp(head->names[out->field], name))
      return MANTA_OK;
  return manta_error_set(err, MANTA_EINVAL,
                         "%s: has no column \"%s\", which the first file has\nhint: all files of a "
                         "data set have the same columns, in any order; a pattern, such as "
                         "\"folder/*.csv\", names some of a folder",
                         file, name);
}

static manta_status find_columns(struct csv_reader *r, const struct manta__csv_head *head,
                                 manta_error *err)
{
  const struct manta__read_job *job = &r->reader.job;
  int all = job->schema->count;
  bool *used = manta__calloc((size_t)all + 1, 1);
  r->column = manta__calloc((size_t)job->out->count + 1, sizeof *r->column);
  r->sift = manta__calloc((size_t)all + 1, sizeof *r->sift);
  r->sift_build = manta__calloc((size_t)all + 1, sizeof *r->sift_build);
  manta_status st = used && r->column && r->sift && r->sift_build ? MANTA_OK : no_memory(r, err);
  for (int i = 0; i < job->out->count && st == MANTA_OK; i++) {
    r->column[r->columns++].build = &r->batch.build[i];
    st = find_column(r, head, job->columns[i], &r->column[i], err);
  }
  if (st == MANTA_OK && r->filter)
    manta__expr_columns(r->filter, used);
  for (int i = 0; i < all && st == MANTA_OK; i++)
    if (used[i]) {
      r->sift[r->sifted].build = &r->sift_build[r->sifted];
      st = find_column(r, head, i, &r->sift[r->sifted++], err);
    }
  manta__free(used);
  return st;
}

static manta_status open_rows(struct csv_reader *r, const struct manta__csv_head *head,
                              manta_error *err)
{
  const struct manta__read_job *job = &r->reader.job;
  bool packed = job->file.compression != MANTA__PLAIN;
  int64_t from = packed ? 0 : manta__csv_first(head, &job->block);
  MANTA_TRY(manta__csv_rows_open(&r->rows, &r->reader.job.file, from, job->block.to, head->count,
                                 job->tally, err));
  return packed ? manta__csv_rows_skip(&r->rows, head->skip, err) : MANTA_OK;
}

static manta_status open_parts(struct csv_reader *r, manta_error *err)
{
  const struct manta__read_job *job = &r->reader.job;
  struct manta__csv_head head = {0};
  if (job->filter)
    MANTA_TRY(manta__expr_compile(&r->filter, job->filter, job->schema, err));
  if (r->filter)
    MANTA_TRY(manta__batch_create(&r->probe, job->schema, 0, err));
  MANTA_TRY(manta__csv_head_read(&head, &job->file, err));
  if (head.count == 0) // an empty file among others: no rows, whatever the columns
    return MANTA_OK;
  manta_status st = find_columns(r, &head, err);
  if (st == MANTA_OK)
    st = open_rows(r, &head, err);
  manta__csv_head_fini(&head);
  r->convert.isa = r->rows.isa;
  r->convert.config = job->file.config;
  r->convert.marks = r->rows.marks;
  return st;
}

static void close_csv(struct manta__reader *reader)
{
  struct csv_reader *r = (struct csv_reader *)reader;
  for (int i = 0; i < r->sifted; i++)
    manta__build_fini(&r->sift_build[i]);
  manta__assembly_close(&r->batch);
  manta__csv_rows_close(&r->rows);
  manta__expr_destroy(r->filter);
  manta_batch_destroy(r->probe);
  manta__free(r->column);
  manta__free(r->sift);
  manta__free(r->sift_build);
  manta__free(r->convert.hard);
  manta__free(r->convert.nulls);
  manta__free(r->convert.bad);
  manta__free(r->convert.scratch);
  manta__free(r->passed);
  manta__free(r->first);
  manta__free(r->is_bad);
  manta__free(r);
}

static manta_status open_csv(struct manta__reader **out, const struct manta__read_job *job,
                             manta_error *err)
{
  struct csv_reader *r = manta__calloc(1, sizeof *r);
  if (!r)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to read it", job->file.source->name);
  r->reader = (struct manta__reader){&manta__format_csv, *job};
  manta_status st = manta__assembly_open(&r->batch, &r->reader.job, err);
  if (st == MANTA_OK)
    st = open_parts(r, err);
  if (st < 0) {
    close_csv(&r->reader);
    return st;
  }
  *out = &r->reader;
  return MANTA_OK;
}

// --- a piece ------------------------------------------------------------------------------------

// Scratch for n rows: kernels may write a few more.
static manta_status need_scratch(struct csv_reader *r, size_t n, manta_error *err)
{
  if (n <= r->scratch_cap)
    return MANTA_OK;
  size_t cap = n < 2 * r->scratch_cap ? 2 * r->scratch_cap : n;
  uint32_t **words[] = {&r->convert.hard, &r->convert.nulls, &r->convert.bad, &r->passed,
                        &r->first};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    uint32_t *more = manta__realloc(*words[i], cap * sizeof *more);
    if (!more)
      return no_memory(r, err);
    *words[i] = more;
  }
  int64_t *wide = manta__realloc(r->convert.scratch, cap * sizeof *wide);
  r->convert.scratch = wide ? wide : r->convert.scratch;
  uint8_t *bad = manta__realloc(r->is_bad, cap);
  r->is_bad = bad ? bad : r->is_bad;
  if (!wide || !bad)
    return no_memory(r, err);
  r->scratch_cap = cap;
  return MANTA_OK;
}

// A value that is none: which row of the piece it is in, and which column.
struct csv_blame {
  size_t row; /* SIZE_MAX: none */
  const struct csv_column *column;
  size_t count; /* rows with such a value */
};

static void aim(struct csv_reader *r, const struct csv_column *c, const uint32_t *first)
{
  r->convert.fields = (struct manta__csv_fields){.text = r->rows.text,
                                                 .pos = r->rows.pos,
                                                 .first = first,
                                                 .column = (uint32_t)c->field,
                                                 .last = c->field + 1 == r->rows.width};
}

// Converts n rows of some columns; marks rows that hold a value that is none.
static manta_status convert(struct csv_reader *r, struct csv_column *columns, int count,
                            const uint32_t *first, size_t n, struct csv_blame *blame,
                            manta_error *err)
{
  *blame = (struct csv_blame){.row = SIZE_MAX};
  for (int i = 0; i < count; i++) {
    aim(r, &columns[i], first);
    MANTA_TRY(manta__csv_convert(&r->convert, n, columns[i].build, err));
    if (r->convert.bad_count && blame->count == 0)
      memset(r->is_bad, 0, n);
    for (size_t k = 0; k < r->convert.bad_count; k++) {
      size_t row = r->convert.bad[k];
      blame->count += !r->is_bad[row];
      r->is_bad[row] = 1;
      if (row < blame->row) {
        blame->row = row;
        blame->column = &columns[i];
      }
    }
  }
  return MANTA_OK;
}

static manta_status tell_value(struct csv_reader *r, const struct csv_blame *b,
                               const uint32_t *first, manta_error *err)
{
  char place[512], type[MANTA__TYPE_TEXT_MAX], shown[EXPLAINED + 1];
  const struct manta__schema_field *f = &r->reader.job.schema->field[b->column->number];
  aim(r, b->column, first);
  struct manta__csv_field v = manta__csv_field_at(&r->convert.fields, b->row, &r->rows.marks);
  const char *more = manta__format_show(shown, sizeof shown, v.p, v.n) < v.n ? "..." : "";
  manta__csv_place(&r->rows, manta__csv_begin(&r->convert.fields, b->row), place, sizeof place);
  bool text = f->type.kind == MANTA_KIND_STRING;
  return manta_error_set(err, MANTA_EINVAL,
                         "%scolumn %d (\"%.64s\"): \"%s%s\" is no %s\nhint: types = {\"%.64s\": "
                         "\"%s\"} reads it, %sskip_errors (on_error=\"skip\") leaves out such rows",
                         place, b->column->field + 1, f->name, shown, more,
                         text ? "text in UTF-8" : manta__type_text(&f->type, type), f->name,
                         manta__format_wider(&f->type, manta__number_f64(v.p, v.n, &(double){0})),
                         text ? "iconv -t UTF-8 converts it, " : "");
}

// What is to be done with rows that hold no value: an error, or they are taken out of `rows`.
static manta_status drop_bad(struct csv_reader *r, const struct csv_blame *blame,
                             const uint32_t *first, uint32_t *rows, size_t *n, manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  struct manta__tally *tally = r->reader.job.tally;
  size_t kept = 0;
  if (!r->reader.job.file.config->skip_errors)
    return tell_value(r, blame, first, err);
  if (!manta__tally_skips(tally))
    tell_value(r, blame, first, &why);
  manta__tally_skip(tally, (int64_t)blame->count, why.message);
  for (size_t i = 0; i < *n; i++)
    if (!r->is_bad[i])
      rows[kept++] = rows[i];
  *n = kept;
  return MANTA_OK;
}

static void aim_rows(struct csv_reader *r, const uint32_t *rows, size_t n)
{
  for (size_t i = 0; i < n; i++)
    r->first[i] = r->rows.first[rows[i]];
}

// Converts the rows that r->passed names into the columns of the batch. If some are bad, the
// builders go back, and all is converted once more without them.
static manta_status append(struct csv_reader *r, size_t *n, manta_error *err)
{
  struct csv_blame blame;
  for (int i = 0; i < r->columns; i++)
    r->column[i].mark = manta__build_mark(r->column[i].build);
  aim_rows(r, r->passed, *n);
  MANTA_TRY(convert(r, r->column, r->columns, r->first, *n, &blame, err));
  if (!blame.count)
    return MANTA_OK;
  MANTA_TRY(drop_bad(r, &blame, r->first, r->passed, n, err));
  for (int i = 0; i < r->columns; i++)
    manta__build_rewind(r->column[i].build, r->column[i].mark);
  aim_rows(r, r->passed, *n);
  return convert(r, r->column, r->columns, r->first, *n, &blame, err);
}

// --- filters ------------------------------------------------------------------------------------

// Converts the filter's columns of n rows into the probe.
static manta_status fill_probe(struct csv_reader *r, size_t n, struct csv_blame *blame,
                               manta_error *err)
{
  const struct manta__read_job *job = &r->reader.job;
  manta_status st = MANTA_OK;
  for (int i = 0; i < r->sifted && st == MANTA_OK; i++)
    st = manta__build_begin(r->sift[i].build, &job->schema->field[r->sift[i].number].type,
                            (int64_t)n, job->file.config->row_bytes, job->pool, err);
  if (st == MANTA_OK)
    st = convert(r, r->sift, r->sifted, r->first, n, blame, err);
  for (int i = 0; i < r->sifted; i++) {
    struct manta__column *c = &r->probe->column[r->sift[i].number];
    manta__column_fini(c);
    if (st == MANTA_OK)
      manta__build_finish(r->sift[i].build, c);
    else
      manta__build_fini(r->sift[i].build);
  }
  r->probe->rows = (int64_t)n;
  return st;
}

// Takes out of r->passed the rows that do not pass.
static manta_status sift(struct csv_reader *r, size_t *n, manta_error *err)
{
  struct csv_blame blame;
  int64_t kept = 0;
  aim_rows(r, r->passed, *n);
  MANTA_TRY(fill_probe(r, *n, &blame, err));
  if (blame.count) {
    MANTA_TRY(drop_bad(r, &blame, r->first, r->passed, n, err));
    aim_rows(r, r->passed, *n);
    MANTA_TRY(fill_probe(r, *n, &blame, err));
  }
  MANTA_TRY(manta__expr_filter(r->filter, r->probe, r->first, &kept, err));
  for (int64_t i = 0; i < kept; i++)
    r->passed[i] = r->passed[r->first[i]];
  *n = (size_t)kept;
  return MANTA_OK;
}

// --- batches ------------------------------------------------------------------------------------

// As many rows of the piece as the batch has room for.
static manta_status take_rows(struct csv_reader *r, manta_error *err)
{
  struct manta__csv_rows *rows = &r->rows;
  size_t n = rows->rows - r->at, room = (size_t)(r->batch.cap - r->batch.rows);
  n = n < room ? n : room;
  MANTA_TRY(need_scratch(r, n + 1, err));
  for (size_t i = 0; i < n; i++)
    r->passed[i] = (uint32_t)(r->at + i);
  r->at += n;
  if (r->filter && n)
    MANTA_TRY(sift(r, &n, err));
  if (n)
    MANTA_TRY(append(r, &n, err));
  for (size_t i = 0; i < n; i++)
    manta__assembly_row(&r->batch, rows->record_base + rows->record[r->passed[i]]);
  manta__assembly_pass(&r->batch,
                       rows->record_base +
                           (int64_t)(r->at < rows->rows ? rows->record[r->at] : rows->records));
  return MANTA_OK;
}

static manta_status next_csv(struct manta__reader *reader, manta_batch **out, manta_error *err)
{
  struct csv_reader *r = (struct csv_reader *)reader;
  if (!r->rows.file) // an empty file
    return 0;
  MANTA_TRY(manta__assembly_begin(&r->batch, err));
  while (!manta__assembly_full(&r->batch)) {
    if (r->at == r->rows.rows) {
      manta_status st = manta__csv_rows_next(&r->rows, err);
      if (st < 0)
        return st;
      r->at = 0;
      if (st == 0)
        break;
    }
    MANTA_TRY(take_rows(r, err));
  }
  return manta__assembly_end(&r->batch, out, err);
}

const struct manta__format manta__format_csv = {
    .name = "csv",
    .suffix = {".csv", ".tsv"},
    .filters = true,
    .guesses = true,
    .look = manta__csv_look,
    .cut = manta__csv_cut,
    .open = open_csv,
    .next = next_csv,
    .close = close_csv,
};
