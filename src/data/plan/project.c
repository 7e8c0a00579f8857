/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/project.c - which columns, in which order, under which names.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/plan/pack.h"

struct project_data {
  manta_dataset d;
  int *pick; /* for each column, its number in the input */
};

// A filter can go down if the columns that it looks at have the same names there.
static bool takes(const manta_dataset *d, const bool *columns)
{
  const struct project_data *p = (const struct project_data *)d;
  const struct manta__schema *in = d->input[0]->out;
  for (int i = 0; i < d->out->count; i++)
    if (columns[i] && strcmp(d->out->field[i].name, in->field[p->pick[i]].name))
      return false;
  return true;
}

static manta_status ask(const manta_dataset *d, int input, const struct manta__want *want,
                        bool *columns, manta_value *filter, manta_error *err)
{
  const struct project_data *p = (const struct project_data *)d;
  for (int i = 0; i < d->out->count; i++)
    columns[p->pick[i]] |= want->columns[i];
  return manta__filter_join(filter, want->filter, NULL, err);
}

static manta_status project_next(struct manta__scan *s, manta_batch **out, manta_error *err)
{
  const struct project_data *p = (const struct project_data *)s->d;
  manta_batch *in;
  manta_status st = manta__scan_next(s->inner, &in, err);
  if (st != 1)
    return st;
  st = manta__batch_select(out, in, s->d->out, p->pick, err);
  manta_batch_destroy(in);
  return st < 0 ? st : (manta_status)1;
}

static manta_status late(manta_dataset *d, manta_batch *in, manta_batch **out, manta_error *err)
{
  return manta__batch_select(out, in, d->out, ((const struct project_data *)d)->pick, err);
}

static manta_status scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                         const struct manta__want *want, manta_error *err)
{
  MANTA_TRY(manta__scan_over(out, sizeof **out, d, block, want, err));
  (*out)->next = project_next;
  return MANTA_OK;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  const struct project_data *p = (const struct project_data *)d;
  const struct manta__schema *in = d->input[0]->out;
  MANTA_TRY(manta__buf_printf(b, "columns"));
  for (int i = 0; i < d->out->count && i < 8; i++) {
    const char *name = d->out->field[i].name, *was = in->field[p->pick[i]].name;
    MANTA_TRY(manta__buf_printf(b, "%s %s", i ? "," : "", name));
    if (strcmp(name, was))
      MANTA_TRY(manta__buf_printf(b, " (%s)", was));
  }
  return d->out->count > 8 ? manta__buf_printf(b, ", ... (%d)", d->out->count) : MANTA_OK;
}

static void fini(manta_dataset *d)
{
  manta__free(((struct project_data *)d)->pick);
}

static manta_status pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  const struct project_data *p = (const struct project_data *)d;
  size_t n = (size_t)d->out->count;
  const char **names = manta__calloc(n + 1, sizeof *names);
  if (!names)
    return MANTA_ENOMEM;
  for (size_t i = 0; i < n; i++)
    names[i] = d->out->field[i].name;
  manta_status st = manta__plan_put_strings(to, "names", names, n);
  manta__free(names);
  MANTA_TRY(st);
  return manta__plan_put_bytes(to, "pick", p->pick, n * sizeof *p->pick);
}

static manta_status unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                           const manta_value *from, manta_error *err);

const struct manta__step manta__step_project = {
    .name = "columns",
    .takes = takes,
    .ask = ask,
    .scan = scan,
    .late = late,
    .explain = explain,
    .fini = fini,
    .pack = pack,
    .unpack = unpack,
};

// --- making -------------------------------------------------------------------------------------

static manta_status create(struct project_data **out, manta_dataset *d, size_t columns,
                           manta_error *err)
{
  struct project_data *p;
  if (columns > MANTA__COLUMNS_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "%zu columns; the limit is %d", columns,
                           MANTA__COLUMNS_MAX);
  MANTA_TRY(manta__dataset_create(&p, sizeof *p, &manta__step_project, &d, 1, err));
  if (!(p->pick = manta__calloc(columns + 1, sizeof *p->pick))) {
    manta__dataset_unref(&p->d);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %zu columns", columns);
  }
  *out = p;
  return MANTA_OK;
}

static manta_status finish(struct project_data *p, manta_status st, int count, manta_dataset **out,
                           manta_error *err)
{
  struct manta__schema *s;
  if (st == MANTA_OK)
    st = manta__schema_select(&s, p->d.out, p->pick, count, err);
  if (st < 0) {
    manta__dataset_unref(&p->d);
    return st;
  }
  manta__dataset_schema(&p->d, s);
  *out = &p->d;
  return MANTA_OK;
}

manta_status manta_dataset_select(manta_dataset **out, manta_dataset *d, const char *const *columns,
                                  size_t count, manta_error *err)
{
  struct project_data *p;
  manta_status st = MANTA_OK;
  MANTA_TRY(create(&p, d, count, err));
  for (size_t i = 0; i < count && st == MANTA_OK; i++)
    st = manta__schema_need(d->out, columns[i], &p->pick[i], err);
  return finish(p, st, (int)count, out, err);
}

manta_status manta_dataset_drop(manta_dataset **out, manta_dataset *d, const char *const *columns,
                                size_t count, manta_error *err)
{
  struct project_data *p;
  bool *stays = manta__columns_flags(d, true);
  manta_status st =
      stays ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory for %zu columns", count);
  int kept = 0, at;
  for (size_t i = 0; i < count && st == MANTA_OK; i++)
    if ((st = manta__schema_need(d->out, columns[i], &at, err)) == MANTA_OK)
      stays[at] = false;
  if (st == MANTA_OK && (st = create(&p, d, (size_t)d->out->count, err)) == MANTA_OK) {
    for (int i = 0; i < d->out->count; i++)
      if (stays[i])
        p->pick[kept++] = i;
    st = finish(p, MANTA_OK, kept, out, err);
  }
  manta__free(stays);
  return st;
}

static manta_status rename_fields(struct project_data *p, const char *const *from,
                                  const char *const *to, size_t count, manta_error *err)
{
  const struct manta__schema *in = p->d.out;
  struct manta__schema *s;
  int at;
  struct manta__schema_field *fields = manta__calloc((size_t)in->count + 1, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d columns", in->count);
  memcpy(fields, in->field, (size_t)in->count * sizeof *fields);
  manta_status st = MANTA_OK;
  for (size_t i = 0; i < count && st == MANTA_OK; i++)
    if ((st = manta__schema_need(in, from[i], &at, err)) == MANTA_OK)
      fields[at].name = to[i];
  if (st == MANTA_OK)
    st = manta__schema_create(&s, fields, in->count, err);
  manta__free(fields);
  if (st == MANTA_OK)
    manta__dataset_schema(&p->d, s);
  return st;
}

manta_status manta_dataset_rename(manta_dataset **out, manta_dataset *d, const char *const *from,
                                  const char *const *to, size_t count, manta_error *err)
{
  struct project_data *p;
  MANTA_TRY(create(&p, d, (size_t)d->out->count, err));
  for (int i = 0; i < d->out->count; i++)
    p->pick[i] = i;
  manta_status st = rename_fields(p, from, to, count, err);
  if (st < 0) {
    manta__dataset_unref(&p->d);
    return st;
  }
  *out = &p->d;
  return MANTA_OK;
}

// Both kinds: columns by their numbers, under these names.
static manta_status restore(struct project_data *p, const int *pick, const char *const *names,
                            int count, manta_error *err)
{
  const struct manta__schema *in = p->d.out;
  struct manta__schema *s;
  struct manta__schema_field *fields = manta__calloc((size_t)count + 1, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d columns", count);
  manta_status st = MANTA_OK;
  for (int i = 0; i < count && st == MANTA_OK; i++) {
    memcpy(&p->pick[i], pick + i, sizeof *pick);
    if (p->pick[i] < 0 || p->pick[i] >= in->count)
      st = manta__plan_malformed(err);
    else
      fields[i] = (struct manta__schema_field){names[i], in->field[p->pick[i]].type};
  }
  if (st == MANTA_OK)
    st = manta__schema_create(&s, fields, count, err);
  manta__free(fields);
  if (st == MANTA_OK)
    manta__dataset_schema(&p->d, s);
  return st;
}

static manta_status unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                           const manta_value *from, manta_error *err)
{
  struct project_data *p;
  const char *const *names;
  size_t picked = 0, named;
  const int *pick = manta__plan_get_bytes(from, "pick", sizeof *pick, &picked);
  MANTA_TRY(manta__plan_get_strings(from, "names", &names, &named, err));
  manta_status st =
      inputs == 1 && pick && names && picked == named ? MANTA_OK : manta__plan_malformed(err);
  if (st == MANTA_OK)
    st = create(&p, in[0], picked, err);
  if (st == MANTA_OK && (st = restore(p, pick, names, (int)picked, err)) < 0)
    manta__dataset_unref(&p->d);
  manta__free((void *)(uintptr_t)names);
  if (st == MANTA_OK)
    *out = &p->d;
  return st;
}
