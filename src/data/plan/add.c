/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/add.c - a column that an expression gives.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/plan/pack.h"

struct add_data {
  manta_dataset d;
  manta_value tree;
  int at; /* the number of the column */
};

static bool takes(const manta_dataset *d, const bool *columns)
{
  return !columns[((const struct add_data *)d)->at];
}

static manta_status ask(const manta_dataset *d, int input, const struct manta__want *want,
                        bool *columns, manta_value *filter, manta_error *err)
{
  const struct add_data *a = (const struct add_data *)d;
  for (int i = 0; i < d->input[0]->out->count; i++)
    columns[i] = i != a->at && want->columns[i];
  if (want->columns[a->at])
    MANTA_TRY(manta__expr_uses(d->input[0]->out, &a->tree, columns, err));
  return manta__filter_join(filter, want->filter, NULL, err);
}

// --- scanning -----------------------------------------------------------------------------------

struct add_scan {
  struct manta__scan scan;
  struct manta__expr *expr; /* NULL: nobody wants the column */
};

static manta_status widen(struct add_scan *s, manta_batch *in, manta_batch *b, manta_error *err)
{
  int at = ((const struct add_data *)s->scan.d)->at;
  if (s->expr)
    MANTA_TRY(manta__expr_column(s->expr, in, &b->column[at], s->scan.d->pool, err));
  for (int i = 0; i < in->schema->count; i++)
    if (i != at)
      manta__column_move(&b->column[i], &in->column[i]);
  b->first = in->first;
  b->source_rows = in->source_rows;
  b->origin = manta__memory_ref(in->origin);
  return MANTA_OK;
}

static manta_status add_next(struct manta__scan *scan, manta_batch **out, manta_error *err)
{
  manta_batch *in, *b = NULL;
  manta_status st = manta__scan_next(scan->inner, &in, err);
  if (st != 1)
    return st;
  st = manta__batch_create(&b, scan->d->out, in->rows, err);
  if (st == MANTA_OK)
    st = widen((struct add_scan *)scan, in, b, err);
  manta_batch_destroy(in);
  if (st < 0) {
    manta_batch_destroy(b);
    return st;
  }
  *out = b;
  return (manta_status)1;
}

static void add_close(struct manta__scan *scan)
{
  manta__expr_destroy(((struct add_scan *)scan)->expr);
}

static manta_status scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                         const struct manta__want *want, manta_error *err)
{
  const struct add_data *a = (const struct add_data *)d;
  struct add_scan *s;
  MANTA_TRY(manta__scan_over(&s, sizeof *s, d, block, want, err));
  s->scan.next = add_next;
  s->scan.close = add_close;
  manta_status st = want->columns[a->at]
                        ? manta__expr_compile(&s->expr, &a->tree, d->input[0]->out, err)
                        : MANTA_OK;
  if (st < 0) {
    manta__scan_close(&s->scan);
    return st;
  }
  *out = &s->scan;
  return MANTA_OK;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  const struct add_data *a = (const struct add_data *)d;
  char *text;
  MANTA_TRY(manta__expr_print(&a->tree, &text, NULL));
  manta_status st = manta__buf_printf(b, "add %s = %s%s", d->out->field[a->at].name, text,
                                      want->columns[a->at] ? "" : "; not wanted");
  manta_free(text);
  return st;
}

static void fini(manta_dataset *d)
{
  manta_value_fini(&((struct add_data *)d)->tree);
}

static manta_status pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  const struct add_data *a = (const struct add_data *)d;
  MANTA_TRY(manta_value_put_string(to, "name", d->out->field[a->at].name));
  return manta__plan_put_copy(to, "tree", &a->tree);
}

static manta_status unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                           const manta_value *from, manta_error *err)
{
  const manta_value *tree = manta_value_get(from, "tree");
  const char *name = manta_value_as_string(manta_value_get(from, "name"), NULL);
  if (inputs != 1 || !tree || !name)
    return manta__plan_malformed(err);
  return manta_dataset_add(out, in[0], name, tree, err);
}

const struct manta__step manta__step_add = {
    .name = "add",
    .takes = takes,
    .ask = ask,
    .scan = scan,
    .explain = explain,
    .fini = fini,
    .pack = pack,
    .unpack = unpack,
};

// --- making -------------------------------------------------------------------------------------

static manta_status widen_schema(struct add_data *a, const char *name, manta_error *err)
{
  const struct manta__schema *in = a->d.out;
  struct manta__schema *s = NULL;
  struct manta__expr *e;
  struct manta__schema_field *fields = manta__calloc((size_t)in->count + 1, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d columns", in->count);
  memcpy(fields, in->field, (size_t)in->count * sizeof *fields);
  a->at = manta__schema_find(in, name);
  int count = in->count + (a->at < 0);
  a->at = a->at < 0 ? in->count : a->at;
  manta_status st = manta__expr_compile(&e, &a->tree, in, err);
  if (st == MANTA_OK) {
    fields[a->at] = (struct manta__schema_field){name, *manta__expr_type(e)};
    manta__expr_destroy(e);
    st = manta__schema_create(&s, fields, count, err);
  }
  manta__free(fields);
  if (st == MANTA_OK)
    manta__dataset_schema(&a->d, s);
  return st;
}

manta_status manta_dataset_add(manta_dataset **out, manta_dataset *d, const char *name,
                               const manta_value *expression, manta_error *err)
{
  struct add_data *a;
  MANTA_TRY(manta__dataset_create(&a, sizeof *a, &manta__step_add, &d, 1, err));
  manta_status st = manta_value_copy(&a->tree, expression);
  st =
      st < 0 ? manta_error_set(err, st, "no memory for an expression") : widen_schema(a, name, err);
  if (st < 0) {
    manta__dataset_unref(&a->d);
    return st;
  }
  *out = &a->d;
  return MANTA_OK;
}
