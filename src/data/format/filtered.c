/* SPDX-License-Identifier: Apache-2.0
 *
 * data/format/filtered.c - a reader of any format, with a filter in front of it if the format has
 * none of its own.
 */
#include "base/alloc.h"
#include "data/format/format.h"

struct manta__filtered {
  const struct manta__format *format;
  struct manta__reader *inner;
  struct manta__read_job
      job; /* of the inner reader: its columns are these and those of the filter */
  struct manta__schema *out;
  struct manta__expr *filter; /* NULL: nothing is to be done here */
  int *columns;               /* of the inner reader */
  int *picks;                 /* for each column of out, its number among those */
  manta_batch *probe;         /* what the filter sees, with the numbers of the whole schema */
};

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory to filter a data set");
}

// The columns of out first, then those that only the filter looks at.
static manta_status join_columns(struct manta__filtered *r, const struct manta__read_job *job,
                                 manta_error *err)
{
  int all = job->schema->count, count = 0;
  bool *used = manta__calloc((size_t)all + 1, 1);
  r->columns = manta__calloc((size_t)all + (size_t)job->out->count + 1, sizeof *r->columns);
  r->picks = manta__calloc((size_t)job->out->count + 1, sizeof *r->picks);
  if (!used || !r->columns || !r->picks) {
    manta__free(used);
    return no_memory(err);
  }
  manta__expr_columns(r->filter, used);
  for (; count < job->out->count; count++) {
    r->columns[count] = job->columns[count];
    r->picks[count] = count;
    used[job->columns[count]] = false;
  }
  for (int i = 0; i < all; i++)
    if (used[i])
      r->columns[count++] = i;
  manta__free(used);
  r->job.columns = r->columns;
  r->job.filter = NULL;
  return manta__schema_select(&r->job.out, job->schema, r->columns, count, err);
}

static manta_status open_filter(struct manta__filtered *r, const struct manta__read_job *job,
                                manta_error *err)
{
  r->job.out = NULL;
  MANTA_TRY(manta__expr_compile(&r->filter, job->filter, job->schema, err));
  MANTA_TRY(join_columns(r, job, err));
  return manta__batch_create(&r->probe, job->schema, 0, err);
}

manta_status manta__filtered_open(struct manta__filtered **out, const struct manta__format *format,
                                  const struct manta__read_job *job, manta_error *err)
{
  struct manta__filtered *r = manta__calloc(1, sizeof *r);
  manta_status st = MANTA_OK;
  if (!r)
    return no_memory(err);
  r->format = format;
  r->job = *job;
  r->out = job->out;
  if (job->filter && !format->filters)
    st = open_filter(r, job, err);
  if (st == MANTA_OK)
    st = format->open(&r->inner, &r->job, err);
  if (st < 0) {
    manta__filtered_close(r);
    return st;
  }
  *out = r;
  return MANTA_OK;
}

void manta__filtered_close(struct manta__filtered *r)
{
  if (!r)
    return;
  if (r->inner)
    r->format->close(r->inner);
  if (r->job.out != r->out)
    manta__schema_unref(r->job.out);
  manta__expr_destroy(r->filter);
  manta_batch_destroy(r->probe);
  manta__free(r->columns);
  manta__free(r->picks);
  manta__free(r);
}

static manta_status find_rows(struct manta__filtered *r, const manta_batch *in, uint32_t *rows,
                              int64_t *count, manta_error *err)
{
  for (int i = 0; i < in->schema->count; i++) {
    struct manta__column *c = &r->probe->column[r->columns[i]];
    manta__column_fini(c);
    manta__column_copy(c, &in->column[i]);
  }
  r->probe->rows = in->rows;
  return manta__expr_filter(r->filter, r->probe, rows, count, err);
}

// The rows that pass, with the columns that are wanted.
static manta_status filter(struct manta__filtered *r, const manta_batch *in, manta_batch **out,
                           manta_error *err)
{
  manta_batch *narrow = NULL;
  int64_t count = 0;
  uint32_t *rows = manta__malloc((size_t)(in->rows + 1) * sizeof *rows);
  if (!rows)
    return no_memory(err);
  manta_status st = find_rows(r, in, rows, &count, err);
  if (st == MANTA_OK)
    st = manta__batch_select(&narrow, in, r->out, r->picks, err);
  if (st == MANTA_OK && count < in->rows)
    st = manta__batch_take(out, narrow, rows, count, r->job.pool, err);
  else if (st == MANTA_OK) {
    *out = narrow;
    narrow = NULL;
  }
  manta_batch_destroy(narrow);
  manta__free(rows);
  return st;
}

manta_status manta__filtered_next(struct manta__filtered *r, manta_batch **out, manta_error *err)
{
  manta_batch *in;
  manta_status st = r->format->next(r->inner, r->filter ? &in : out, err);
  if (st != 1 || !r->filter)
    return st;
  st = filter(r, in, out, err);
  manta_batch_destroy(in);
  return st < 0 ? st : (manta_status)1;
}
