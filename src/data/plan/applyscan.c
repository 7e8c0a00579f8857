/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/applyscan.c - the rows of a block through a function, call by call.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "data/column/build.h"
#include "data/plan/apply.h"

struct apply_scan {
  struct manta__scan scan;
  manta_batch *held; /* rows that no call has had; NULL: none */
  bool ended;        /* the input has no more */
  bool calls;        /* somebody wants what the function gives */
  int64_t block;
  int64_t at;  /* the number of the source row that the next batch begins with */
  int64_t end; /* behind the last one that was read */
};

static struct manta__apply *apply_of(const struct apply_scan *s)
{
  return (struct manta__apply *)s->scan.d;
}

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory for the rows of a function");
}

// --- types --------------------------------------------------------------------------------------

static manta_status wrong_type(const struct manta__apply *a, const char *name,
                               const struct manta__type *is, const struct manta__type *was,
                               manta_error *err)
{
  char text[2][MANTA__TYPE_TEXT_MAX];
  return manta_error_set(
      err, MANTA_ETYPE,
      "%s: column \"%.128s\" is %s here, but %s by its first rows\nhint: give "
      "values of one type for all rows, or name it: types = {\"%.128s\": \"%s\"}",
      a->name, name, manta__type_text(is, text[0]), manta__type_text(was, text[1]), name, text[0]);
}

static manta_status cast_tree(manta_value *out, const char *name, const char *type)
{
  manta_value col = {0}, word = manta_value_borrow_string("cast");
  manta_status st = manta_value_set_list(out);
  manta_value parts[] = {manta_value_borrow_string("col"), manta_value_borrow_string(name),
                         manta_value_borrow_string(type)};
  if (st == MANTA_OK && (st = manta_value_set_list(&col)) == MANTA_OK &&
      (st = manta_value_append(&col, &parts[0])) == MANTA_OK)
    st = manta_value_append(&col, &parts[1]);
  if (st == MANTA_OK && (st = manta_value_append(out, &word)) == MANTA_OK &&
      (st = manta_value_append(out, &col)) == MANTA_OK)
    st = manta_value_append(out, &parts[2]);
  manta_value_fini(&col);
  return st;
}

// Arrays of numpy have no null: integers with nulls come back as floats with NaN. Says how many NaN
// there are; -1: another value is no integer.
static int64_t count_nan(const struct manta__column *c, int64_t rows)
{
  int64_t found = 0;
  if (c->type.dtype != MANTA_F32 && c->type.dtype != MANTA_F64)
    return -1;
  for (int64_t i = 0; i < rows; i++) {
    const void *at = manta__column_at(c, i);
    double v = c->type.dtype == MANTA_F64 ? *(const double *)at : (double)*(const float *)at;
    if (manta__column_is_null(c, i))
      continue;
    if (isnan(v))
      found++;
    else if (v != floor(v))
      return -1;
  }
  return found;
}

// The column in the type that the schema says: another width of a number, floats that are integers,
// or nothing but nulls.
static manta_status cast(const struct manta__apply *a, manta_batch *in, int column,
                         const struct manta__type *to, struct manta__column *out, manta_error *err)
{
  const struct manta__schema_field *f = &in->schema->field[column];
  char text[MANTA__TYPE_TEXT_MAX];
  struct manta__expr *e;
  manta_value tree = {0};
  int64_t nulls = manta__column_nulls(&in->column[column]);
  bool numbers = f->type.kind == MANTA_KIND_NUMBER && to->kind == MANTA_KIND_NUMBER &&
                 !f->type.ndim && !to->ndim && !f->type.logical[0] && !to->logical[0];
  bool loses = numbers && manta__type_is_float(&f->type) && !manta__type_is_float(to);
  int64_t nan = loses ? count_nan(&in->column[column], in->rows) : 0;
  if (nulls < in->rows && (!numbers || nan < 0))
    return wrong_type(a, f->name, &f->type, to, err);
  manta_status st = cast_tree(&tree, f->name, manta__type_text(to, text));
  st = st < 0 ? no_memory(err) : manta__expr_compile(&e, &tree, in->schema, err);
  manta_value_fini(&tree);
  MANTA_TRY(st);
  st = manta__expr_column(e, in, out, a->d.pool, err);
  manta__expr_destroy(e);
  if (st == MANTA_OK && manta__column_nulls(out) != nulls + nan) { // a number that does not fit
    manta__column_fini(out);
    st = wrong_type(a, f->name, &f->type, to, err);
  }
  return st;
}

static manta_status place_column(const struct manta__apply *a, manta_batch *given, int i,
                                 manta_batch *out, manta_error *err)
{
  const struct manta__schema *all = a->d.out;
  const char *name = given->schema->field[i].name;
  int at = manta__schema_find(all, name);
  if (at < 0 ||
      (a->c.kind == MANTA_APPLY_ADD && at < a->d.input[0]->out->count && a->kept[at] >= 0))
    return manta_error_set(err, MANTA_ETYPE,
                           "%s gives a column \"%.128s\" that its first rows did not have", a->name,
                           name);
  if (!manta__type_equal(&given->schema->field[i].type, &all->field[at].type))
    return cast(a, given, i, &all->field[at].type, &out->column[at], err);
  manta__column_move(&out->column[at], &given->column[i]);
  return MANTA_OK;
}

// Columns that no row of a call has.
static manta_status add_nulls(const struct manta__apply *a, manta_batch *out, manta_error *err)
{
  for (int i = 0; i < out->schema->count; i++) {
    struct manta__build b = {0};
    if (manta__batch_has(out, i))
      continue;
    MANTA_TRY(manta__build_begin(&b, &out->schema->field[i].type, out->rows, 0, a->d.pool, err));
    manta_status st = MANTA_OK;
    for (int64_t k = 0; k < out->rows && st == MANTA_OK; k++)
      st = manta__build_null(&b, err);
    if (st == MANTA_OK)
      manta__build_finish(&b, &out->column[i]);
    manta__build_fini(&b);
    MANTA_TRY(st);
  }
  return MANTA_OK;
}

static manta_status place_columns(const struct manta__apply *a, manta_batch *given, manta_batch *in,
                                  manta_batch *out, manta_error *err)
{
  int kept = 0, inputs = a->d.input[0]->out->count;
  for (int i = 0; a->c.kind == MANTA_APPLY_ADD && i < inputs; i++)
    if (a->kept[i] >= 0) {
      manta__column_copy(&out->column[a->kept[i]], &in->column[i]);
      kept++;
    }
  if (!given)
    return MANTA_OK;
  for (int i = 0; i < given->schema->count; i++)
    MANTA_TRY(place_column(a, given, i, out, err));
  if (a->c.each_row)
    return add_nulls(a, out, err);
  if (given->schema->count < out->schema->count - kept)
    return manta_error_set(err, MANTA_ETYPE,
                           "%s gives %d columns, and %d for its first rows\nhint: give the same "
                           "columns for all rows",
                           a->name, given->schema->count, out->schema->count - kept);
  return MANTA_OK;
}

// --- one call -----------------------------------------------------------------------------------

// Each row of the batch was made of row of[i] of the input; NULL: in equal shares.
static manta_status set_origin(const struct apply_scan *s, const manta_batch *in,
                               const uint32_t *of, manta_batch *b, manta_error *err)
{
  struct manta__memory *m =
      manta__memory_create(s->scan.d->pool, (size_t)b->rows * sizeof(uint32_t));
  if (!m)
    return no_memory(err);
  uint32_t *to = m->data;
  for (int64_t i = 0; i < b->rows; i++) {
    int64_t row = of ? (int64_t)of[i] : i * in->rows / b->rows;
    to[i] = (uint32_t)(manta__batch_source(in, row) - s->at);
  }
  manta__memory_unref(b->origin);
  b->origin = m;
  b->first = s->at;
  b->source_rows = 0;
  return MANTA_OK;
}

static manta_status keep_rows(const struct apply_scan *s, const manta_batch *in,
                              const manta_applied *got, manta_batch **out, manta_error *err)
{
  manta_batch *b;
  if (got->count == in->rows)
    MANTA_TRY(manta__batch_slice(&b, in, 0, in->rows, err));
  else
    MANTA_TRY(manta__batch_take(&b, in, got->rows, got->count, s->scan.d->pool, err));
  manta_status st = set_origin(s, in, got->rows, b, err);
  if (st < 0) {
    manta_batch_destroy(b);
    return st;
  }
  *out = b;
  return MANTA_OK;
}

static manta_status make_rows(const struct apply_scan *s, manta_batch *in, manta_applied *got,
                              manta_batch **out, manta_error *err)
{
  const struct manta__apply *a = apply_of(s);
  manta_batch *b = NULL;
  MANTA_TRY(manta__batch_create(&b, a->d.out, got->batch ? got->batch->rows : in->rows, err));
  manta_status st = set_origin(s, in, got->rows, b, err);
  if (st == MANTA_OK)
    st = place_columns(a, got->batch, in, b, err);
  if (st < 0) {
    manta_batch_destroy(b);
    return st;
  }
  *out = b;
  return MANTA_OK;
}

manta_status manta__apply_late(manta_dataset *d, manta_batch *in, manta_batch **out,
                               manta_error *err)
{
  struct manta__apply *a = (struct manta__apply *)d;
  manta_applied got = {0};
  manta_batch *b = NULL;
  MANTA_TRY(manta__batch_create(&b, a->d.out, in->rows, err));
  b->first = in->first;
  b->source_rows = in->source_rows;
  manta_status st = MANTA_OK;
  if (in->rows)
    st = manta__apply_call(a, &(struct manta__apply_place){0}, in, &got, err);
  if (st == MANTA_OK && in->rows)
    st = place_columns(a, got.batch, in, b, err);
  manta__applied_fini(&got);
  if (st < 0) {
    manta_batch_destroy(b);
    return st;
  }
  *out = b;
  return MANTA_OK;
}

static manta_status call(struct apply_scan *s, manta_batch *in, manta_batch **out, manta_error *err)
{
  struct manta__apply *a = apply_of(s);
  manta_applied got = {0};
  int64_t name[] = {s->block, manta__batch_source(in, 0)};
  struct manta__apply_place at = {.file = manta_dataset_block_file(&a->d, s->block),
                                  .block = s->block,
                                  .first = name[1],
                                  .last = manta__batch_source(in, in->rows - 1),
                                  .seed = manta__hash_seed(name, sizeof name, a->d.mark)};
  if (s->calls)
    MANTA_TRY(manta__apply_call(a, &at, in, &got, err));
  manta_status st = a->c.kind == MANTA_APPLY_FILTER ? keep_rows(s, in, &got, out, err)
                                                    : make_rows(s, in, &got, out, err);
  manta__applied_fini(&got);
  return st;
}

// --- rows of calls ------------------------------------------------------------------------------

static manta_status hold(struct apply_scan *s, manta_batch *in, manta_error *err)
{
  if (!s->held) {
    s->held = in;
    return MANTA_OK;
  }
  manta_batch *both;
  s->held->source_rows = in->first - s->held->first;
  const manta_batch *parts[] = {s->held, in};
  manta_status st = manta__batch_concat(&both, parts, 2, s->scan.d->pool, err);
  manta_batch_destroy(in);
  if (st < 0)
    return st;
  manta_batch_destroy(s->held);
  s->held = both;
  return MANTA_OK;
}

// Rows for a call, or all that there are.
static manta_status fill(struct apply_scan *s, manta_error *err)
{
  int64_t most = apply_of(s)->c.batch_rows, need = most ? most : 1;
  while (!s->ended && (!s->held || s->held->rows < need)) {
    manta_batch *in;
    manta_status st = manta__scan_next(s->scan.inner, &in, err);
    if (st < 0)
      return st;
    s->ended = st == 0;
    if (st == 1) {
      s->end = in->first + in->source_rows;
      MANTA_TRY(hold(s, in, err));
    }
  }
  return MANTA_OK;
}

// Takes the rows of one call out of what is held. *shares: the next ones were made of the same
// source row as the last of them.
static manta_status cut(struct apply_scan *s, manta_batch **out, bool *shares, manta_error *err)
{
  int64_t most = apply_of(s)->c.batch_rows, rows = s->held->rows;
  int64_t n = most && most < rows ? most : rows;
  manta_batch *rest = NULL;
  MANTA_TRY(manta__batch_slice(out, s->held, 0, n, err));
  manta_status st = n < rows ? manta__batch_slice(&rest, s->held, n, rows - n, err) : MANTA_OK;
  if (st < 0) {
    manta_batch_destroy(*out);
    return st;
  }
  *shares = rest && manta__batch_source(rest, 0) == manta__batch_source(*out, n - 1);
  manta_batch_destroy(s->held);
  s->held = rest;
  return MANTA_OK;
}

static manta_status join(const struct apply_scan *s, manta_batch **all, manta_batch *more,
                         manta_error *err)
{
  manta_batch *both;
  if (!*all) {
    *all = more;
    return MANTA_OK;
  }
  const manta_batch *parts[] = {*all, more};
  manta_status st = manta__batch_concat(&both, parts, 2, s->scan.d->pool, err);
  manta_batch_destroy(more);
  if (st < 0)
    return st;
  manta_batch_destroy(*all);
  *all = both;
  return MANTA_OK;
}

static manta_status call_once(struct apply_scan *s, manta_batch **all, bool *shares,
                              manta_error *err)
{
  manta_batch *in = NULL, *more = NULL;
  MANTA_TRY(fill(s, err));
  if (!s->held || !s->held->rows)
    return MANTA_OK;
  MANTA_TRY(cut(s, &in, shares, err));
  manta_status st = call(s, in, &more, err);
  manta_batch_destroy(in);
  return st < 0 ? st : join(s, all, more, err);
}

static manta_status apply_next(struct manta__scan *scan, manta_batch **out, manta_error *err)
{
  struct apply_scan *s = (struct apply_scan *)scan;
  manta_batch *all = NULL;
  bool shares = false;
  manta_status st;
  do {
    shares = false;
    st = call_once(s, &all, &shares, err);
  } while (st == MANTA_OK && shares);
  if (st == MANTA_OK && !all && s->at < s->end) // source rows of which none came here
    st = manta__batch_create(&all, scan->d->out, 0, err);
  if (st < 0) {
    manta_batch_destroy(all);
    return st;
  }
  if (!all)
    return 0;
  int64_t next = s->held && s->held->rows ? manta__batch_source(s->held, 0) : s->end;
  all->first = s->at;
  all->source_rows = next - s->at;
  s->at = next;
  *out = all;
  return (manta_status)1;
}

static void apply_close(struct manta__scan *scan)
{
  manta_batch_destroy(((struct apply_scan *)scan)->held);
}

// Whether there is something to call for: rows may change, or a column that it gives is wanted.
static bool is_wanted(const struct manta__apply *a, const bool *columns)
{
  if (a->c.kind == MANTA_APPLY_FILTER || a->c.kind == MANTA_APPLY_ROWS)
    return true;
  for (int i = 0; i < a->d.out->count; i++) {
    bool is_kept = a->c.kind == MANTA_APPLY_ADD && i < a->d.input[0]->out->count && a->kept[i] >= 0;
    if (columns[i] && !is_kept)
      return true;
  }
  return false;
}

manta_status manta__apply_scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                               const struct manta__want *want, manta_error *err)
{
  struct apply_scan *s;
  MANTA_TRY(manta__scan_over(&s, sizeof *s, d, block, want, err));
  s->scan.next = apply_next;
  s->scan.close = apply_close;
  s->calls = is_wanted((const struct manta__apply *)d, want->columns);
  s->block = block;
  *out = &s->scan;
  return MANTA_OK;
}
