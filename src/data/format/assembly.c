/* SPDX-License-Identifier: Apache-2.0 */
#include "data/format/assembly.h"

#include "base/alloc.h"

#define SOURCE_ROWS (1 << 30) /* that one batch stands for, about: they are counted in 32 bits */

static manta_status no_memory(const struct manta__assembly *a, manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for a batch", a->job->file.source->name);
}

manta_status manta__assembly_open(struct manta__assembly *a, const struct manta__read_job *job,
                                  manta_error *err)
{
  *a = (struct manta__assembly){.job = job};
  a->cap = manta__format_rows(job->file.config, job->out);
  a->build = manta__calloc((size_t)job->out->count + 1, sizeof *a->build);
  return a->build ? MANTA_OK : no_memory(a, err);
}

static void drop(struct manta__assembly *a)
{
  for (int i = 0; a->build && i < a->job->out->count; i++)
    manta__build_fini(&a->build[i]);
}

void manta__assembly_close(struct manta__assembly *a)
{
  drop(a);
  manta__free(a->build);
  manta__memory_unref(a->origin);
  *a = (struct manta__assembly){0};
}

manta_status manta__assembly_begin(struct manta__assembly *a, manta_error *err)
{
  const struct manta__read_job *job = a->job;
  drop(a); // of a batch that failed
  a->rows = 0;
  a->first = a->end;
  if (!a->origin && !(a->origin = manta__memory_create(job->pool, (size_t)a->cap * 4)))
    return no_memory(a, err);
  for (int i = 0; i < job->out->count; i++)
    MANTA_TRY(manta__build_begin(&a->build[i], &job->out->field[i].type, a->cap, INT32_MAX,
                                 job->pool, err));
  return MANTA_OK;
}

bool manta__assembly_full(const struct manta__assembly *a)
{
  size_t text = 0;
  for (int i = 0; i < a->job->out->count; i++)
    text += a->build[i].text;
  return a->rows == a->cap || text >= a->job->file.config->batch_bytes ||
         a->end - a->first > SOURCE_ROWS;
}

void manta__assembly_row(struct manta__assembly *a, int64_t source)
{
  ((uint32_t *)a->origin->data)[a->rows++] = (uint32_t)(source - a->first);
}

void manta__assembly_undo(struct manta__assembly *a)
{
  for (int i = 0; i < a->job->out->count; i++) {
    struct manta__build *b = &a->build[i];
    const uint8_t *valid = b->mem[MANTA__VALID] ? b->mem[MANTA__VALID]->data : NULL;
    const int32_t *offsets = b->mem[MANTA__OFFSETS] ? b->mem[MANTA__OFFSETS]->data : NULL;
    struct manta__build_mark mark = {a->rows, b->nulls, offsets ? (size_t)offsets[a->rows] : 0};
    if (b->rows > a->rows && valid) // one value at most was put
      mark.nulls -= !manta__bit_get(valid, a->rows);
    manta__build_rewind(b, mark);
  }
}

manta_status manta__assembly_end(struct manta__assembly *a, manta_batch **out, manta_error *err)
{
  manta_batch *b;
  if (a->end == a->first) {
    drop(a);
    return 0;
  }
  MANTA_TRY(manta__batch_create(&b, a->job->out, a->rows, err));
  for (int i = 0; i < a->job->out->count; i++)
    manta__build_finish(&a->build[i], &b->column[i]);
  b->first = a->first;
  b->source_rows = a->end - a->first;
  if (b->source_rows != b->rows) {
    b->origin = a->origin;
    a->origin = NULL;
  }
  *out = b;
  return (manta_status)1;
}
