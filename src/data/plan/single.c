/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/single.c - columns of text files as f32 instead of f64: parsed to that at once, they
 * take half of the memory that is read into, kept for another epoch and sent to workers.
 *
 * A number is what the f64 would be, rounded once: the same that a later conversion gives.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/plan/files.h"
#include "data/plan/pack.h"

struct single_data {
  manta_dataset d;
  struct manta__schema *schema; /* of the files, with the other types */
};

static manta_status scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                         const struct manta__want *want, manta_error *err)
{
  return manta__files_scan_as(out, d, (struct manta__files *)d->input[0],
                              ((const struct single_data *)d)->schema, block, want, err);
}

static bool differs(const manta_dataset *d, int column)
{
  return d->out->field[column].type.dtype != d->input[0]->out->field[column].type.dtype;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  int count = 0;
  for (int i = 0; i < d->out->count; i++)
    count += differs(d, i);
  return manta__buf_printf(b, "%d column%s as f32", count, count == 1 ? "" : "s");
}

static void fini(manta_dataset *d)
{
  manta__schema_unref(((struct single_data *)d)->schema);
}

static manta_status pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  const char **names = manta__calloc((size_t)d->out->count + 1, sizeof *names);
  size_t n = 0;
  if (!names)
    return MANTA_ENOMEM;
  for (int i = 0; i < d->out->count; i++)
    if (differs(d, i))
      names[n++] = d->out->field[i].name;
  manta_status st = manta__plan_put_strings(to, "names", names, n);
  manta__free(names);
  return st;
}

static manta_status unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                           const manta_value *from, manta_error *err)
{
  const char *const *names;
  size_t named;
  MANTA_TRY(manta__plan_get_strings(from, "names", &names, &named, err));
  manta_status st = inputs == 1 && names ? manta_dataset_single(out, in[0], names, named, err)
                                         : manta__plan_malformed(err);
  manta__free((void *)(uintptr_t)names);
  return st;
}

const struct manta__step manta__step_single = {
    .name = "single",
    .scan = scan,
    .explain = explain,
    .fini = fini,
    .pack = pack,
    .unpack = unpack,
};

// --- making -------------------------------------------------------------------------------------

// A filter of the files themselves is over what they are without this step.
static bool can_be_single(const manta_dataset *d)
{
  const struct manta__files *f = (const struct manta__files *)d;
  return d->step == &manta__step_files && f->format->guesses && !f->config.filter;
}

// The schema with these of its columns that are f64 as f32.
static manta_status with_singles(struct manta__schema **out, const struct manta__schema *s,
                                 const char *const *columns, size_t count, manta_error *err)
{
  struct manta__schema_field *fields = manta__calloc((size_t)s->count + 1, sizeof *fields);
  manta_status st = MANTA_OK;
  int at;
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d columns", s->count);
  memcpy(fields, s->field, (size_t)s->count * sizeof *fields);
  for (size_t i = 0; i < count && st == MANTA_OK; i++)
    if ((st = manta__schema_need(s, columns[i], &at, err)) == MANTA_OK &&
        fields[at].type.kind == MANTA_KIND_NUMBER && fields[at].type.dtype == MANTA_F64)
      fields[at].type.dtype = MANTA_F32;
  if (st == MANTA_OK)
    st = manta__schema_create(out, fields, s->count, err);
  manta__free(fields);
  return st;
}

manta_status manta_dataset_single(manta_dataset **out, manta_dataset *d, const char *const *columns,
                                  size_t count, manta_error *err)
{
  struct single_data *s;
  struct manta__schema *shown = NULL;
  MANTA_TRY(with_singles(&shown, d->out, columns, count, err));
  if (!can_be_single(d)) {
    manta__schema_unref(shown);
    *out = manta__dataset_ref(d);
    return MANTA_OK;
  }
  manta_status st = manta__dataset_create(&s, sizeof *s, &manta__step_single, &d, 1, err);
  if (st < 0) {
    manta__schema_unref(shown);
    return st;
  }
  manta__dataset_schema(&s->d, shown);
  st = with_singles(&s->schema, ((const struct manta__files *)d)->schema, columns, count, err);
  if (st < 0) {
    manta__dataset_unref(&s->d);
    return st;
  }
  *out = &s->d;
  return MANTA_OK;
}
