/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/zip.c - two data sets side by side.
 *
 * Row i of one belongs to row i of the other, so the rows of all blocks are counted once, by
 * prepare(). Blocks and the numbers of rows are those of the first data set; the second is read
 * from wherever the row lies that belongs to the first of the block.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "data/plan/pack.h"

struct zip_data {
  manta_dataset d;
  int64_t *rows[2]; /* [blocks + 1] each: rows in front of a block */
};

// --- counting -----------------------------------------------------------------------------------

static manta_status count_block(manta_dataset *d, int64_t block, const struct manta__want *want,
                                int64_t *rows, manta_error *err)
{
  struct manta__scan *s;
  manta_batch *b;
  manta_status st;
  MANTA_TRY(manta__dataset_scan(&s, d, block, want, err));
  while ((st = manta__scan_next(s, &b, err)) == 1) {
    *rows += b->rows;
    manta_batch_destroy(b);
  }
  manta__scan_close(s);
  return st;
}

static manta_status count_blocks(manta_dataset *d, int64_t **out, manta_error *err)
{
  struct manta__want want = {.columns = manta__columns_flags(d, false)};
  int64_t *rows = manta__calloc((size_t)d->blocks + 1, sizeof *rows), n = 0;
  manta_status st = rows && want.columns
                        ? MANTA_OK
                        : manta_error_set(err, MANTA_ENOMEM, "no memory to count rows");
  for (int64_t k = 0; k < d->blocks && st == MANTA_OK; k++) {
    st = count_block(d, k, &want, &n, err);
    rows[k + 1] = n;
  }
  manta__free((void *)(uintptr_t)want.columns);
  if (st < 0) {
    manta__free(rows);
    return st;
  }
  *out = rows;
  return MANTA_OK;
}

static manta_status prepare(manta_dataset *d, manta_error *err)
{
  struct zip_data *z = (struct zip_data *)d;
  for (int i = 0; i < 2; i++)
    if (!z->rows[i])
      MANTA_TRY(count_blocks(d->input[i], &z->rows[i], err));
  int64_t a = z->rows[0][d->input[0]->blocks], b = z->rows[1][d->input[1]->blocks];
  if (a != b)
    return manta_error_set(err, MANTA_EINVAL,
                           "zip: one data set has %" PRId64 " rows, the other %" PRId64
                           "\nhint: limit the longer one",
                           a, b);
  return MANTA_OK;
}

// --- scanning -----------------------------------------------------------------------------------

struct zip_scan {
  struct manta__scan scan;
  struct manta__scan *other; /* of the second data set; NULL: none is open */
  bool *columns;             /* of it */
  int64_t next;              /* the block of it that follows */
  int64_t skip;              /* rows of it to pass over */
  manta_batch *rest;         /* of it that is not used yet */
};

// A batch of the second data set, with a row at least.
static manta_status more(struct zip_scan *s, manta_error *err)
{
  manta_dataset *d = s->scan.d->input[1];
  struct manta__want want = {s->columns, NULL};
  while (!s->rest) {
    if (!s->other)
      MANTA_TRY(manta__dataset_scan(&s->other, d, s->next++, &want, err));
    manta_batch *b;
    manta_status st = manta__scan_next(s->other, &b, err);
    if (st < 0)
      return st;
    if (st == 0) {
      manta__scan_close(s->other);
      s->other = NULL;
      if (s->next == d->blocks)
        return manta_error_set(err, MANTA_EIO, "zip: the second data set has become shorter");
      continue;
    }
    int64_t over = s->skip < b->rows ? s->skip : b->rows;
    s->skip -= over;
    st = over < b->rows ? manta__batch_slice(&s->rest, b, over, b->rows - over, err) : MANTA_OK;
    manta_batch_destroy(b);
    if (st < 0)
      return st;
  }
  return MANTA_OK;
}

// n rows of the second data set, n > 0: a part of what is there, or several put together.
static manta_status take_other(struct zip_scan *s, int64_t n, manta_batch **out, manta_error *err)
{
  manta_batch *got = NULL, *part = NULL, *both;
  while (!got || got->rows < n) {
    manta_status st = more(s, err);
    int64_t need = n - (got ? got->rows : 0);
    manta_batch *rest = s->rest, *left = NULL;
    if (st == MANTA_OK)
      st = manta__batch_slice(&part, rest, 0, need < rest->rows ? need : rest->rows, err);
    if (st == MANTA_OK && need < rest->rows)
      st = manta__batch_slice(&left, rest, need, rest->rows - need, err);
    if (st == MANTA_OK && got) {
      const manta_batch *parts[] = {got, part};
      st = manta__batch_concat(&both, parts, 2, s->scan.d->pool, err);
      manta_batch_destroy(part);
      part = st == MANTA_OK ? both : NULL;
    }
    manta_batch_destroy(got);
    got = part;
    part = NULL;
    if (st < 0) {
      manta_batch_destroy(got);
      return st;
    }
    manta_batch_destroy(rest);
    s->rest = left;
  }
  *out = got;
  return MANTA_OK;
}

static manta_status join(struct zip_scan *s, manta_batch *a, manta_batch *b, manta_batch **out,
                         manta_error *err)
{
  int n = a->schema->count;
  MANTA_TRY(manta__batch_create(out, s->scan.d->out, a->rows, err));
  for (int i = 0; i < n; i++)
    manta__column_move(&(*out)->column[i], &a->column[i]);
  for (int i = 0; b && i < b->schema->count; i++)
    manta__column_move(&(*out)->column[n + i], &b->column[i]);
  (*out)->first = a->first;
  (*out)->source_rows = a->source_rows;
  (*out)->origin = manta__memory_ref(a->origin);
  return MANTA_OK;
}

static manta_status zip_next(struct manta__scan *scan, manta_batch **out, manta_error *err)
{
  struct zip_scan *s = (struct zip_scan *)scan;
  manta_batch *a, *b = NULL;
  manta_status st = manta__scan_next(scan->inner, &a, err);
  if (st != 1)
    return st;
  st = a->rows ? take_other(s, a->rows, &b, err) : MANTA_OK;
  if (st == MANTA_OK)
    st = join(s, a, b, out, err);
  manta_batch_destroy(a);
  manta_batch_destroy(b);
  return st < 0 ? st : (manta_status)1;
}

static void zip_close(struct manta__scan *scan)
{
  struct zip_scan *s = (struct zip_scan *)scan;
  manta__scan_close(s->other);
  manta_batch_destroy(s->rest);
  manta__free(s->columns);
}

static manta_status scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                         const struct manta__want *want, manta_error *err)
{
  const struct zip_data *z = (const struct zip_data *)d;
  struct zip_scan *s;
  MANTA_TRY(manta__scan_over(&s, sizeof *s, d, block, want, err));
  s->scan.next = zip_next;
  s->scan.close = zip_close;
  if (!(s->columns = manta__columns_flags(d->input[1], false))) {
    manta__scan_close(&s->scan);
    return manta_error_set(err, MANTA_ENOMEM, "no memory to read a data set");
  }
  int n = d->input[0]->out->count;
  memcpy(s->columns, want->columns + n, (size_t)(d->out->count - n));
  int64_t row = z->rows[0][block];
  while (s->next + 1 < d->input[1]->blocks && z->rows[1][s->next + 1] <= row)
    s->next++;
  s->skip = row - z->rows[1][s->next];
  *out = &s->scan;
  return MANTA_OK;
}

// --- the step -----------------------------------------------------------------------------------

static bool takes(const manta_dataset *d, const bool *columns)
{
  return false; // rows that were left out on one side would move the other
}

static manta_status ask(const manta_dataset *d, int input, const struct manta__want *want,
                        bool *columns, manta_value *filter, manta_error *err)
{
  int n = d->input[0]->out->count;
  memcpy(columns, want->columns + (input ? n : 0), (size_t)d->input[input]->out->count);
  return MANTA_OK;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  return manta__buf_puts(b, "zip");
}

static void fini(manta_dataset *d)
{
  manta__free(((struct zip_data *)d)->rows[0]);
  manta__free(((struct zip_data *)d)->rows[1]);
}

static manta_status pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  return MANTA_OK; // its inputs are all of it
}

static manta_status unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                           const manta_value *from, manta_error *err)
{
  return inputs == 2 ? manta_dataset_zip(out, in[0], in[1], err) : manta__plan_malformed(err);
}

const struct manta__step manta__step_zip = {
    .name = "zip",
    .takes = takes,
    .ask = ask,
    .prepare = prepare,
    .scan = scan,
    .explain = explain,
    .fini = fini,
    .pack = pack,
    .unpack = unpack,
};

static manta_status join_schemas(manta_dataset *d, manta_error *err)
{
  const struct manta__schema *a = d->input[0]->out, *b = d->input[1]->out;
  int count = a->count + b->count;
  struct manta__schema *s = NULL;
  struct manta__schema_field *fields = manta__calloc((size_t)count + 1, sizeof *fields);
  char(*names)[MANTA__NAME_MAX] = manta__malloc((size_t)b->count * sizeof *names + 1);
  manta_status st = fields && names
                        ? MANTA_OK
                        : manta_error_set(err, MANTA_ENOMEM, "no memory for %d columns", count);
  for (int i = 0; i < count && st == MANTA_OK; i++) {
    fields[i] = i < a->count ? a->field[i] : b->field[i - a->count];
    if (i >= a->count && manta__schema_find(a, fields[i].name) >= 0) {
      snprintf(names[i - a->count], sizeof *names, "%s_1", fields[i].name);
      fields[i].name = names[i - a->count];
    }
  }
  if (st == MANTA_OK)
    st = manta__schema_create(&s, fields, count, err);
  manta__free(fields);
  manta__free(names);
  if (st == MANTA_OK)
    manta__dataset_schema(d, s);
  return st;
}

manta_status manta_dataset_zip(manta_dataset **out, manta_dataset *a, manta_dataset *b,
                               manta_error *err)
{
  struct zip_data *z;
  manta_dataset *both[] = {a, b};
  for (int i = 0; i < 2; i++)
    if (both[i]->passes.shuffles || both[i]->passes.times != 1)
      return manta_error_set(err, MANTA_EUNSUPPORTED,
                             "a zip of data sets that are shuffled or repeated\nhint: zip first, "
                             "then shuffle or repeat");
  MANTA_TRY(manta__dataset_create(&z, sizeof *z, &manta__step_zip, both, 2, err));
  manta_status st = join_schemas(&z->d, err);
  if (st < 0) {
    manta__dataset_unref(&z->d);
    return st;
  }
  z->d.mark = manta__hash_seed(&b->mark, sizeof b->mark, a->mark + 1);
  *out = &z->d;
  return MANTA_OK;
}
