/* SPDX-License-Identifier: Apache-2.0 */
#include "data/plan/apply.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "data/column/arrow.h"

#define SAMPLE_ROWS 64 /* that a function is called with to learn what it gives */

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory for a function over rows");
}

// --- calls --------------------------------------------------------------------------------------

manta_status manta_applied_rows(manta_applied *a, const uint32_t *rows, int64_t count,
                                manta_error *err)
{
  if (count < 0 || count > MANTA__ROWS_MAX)
    return manta_error_set(err, MANTA_EINVAL, "%" PRId64 " rows of a function", count);
  uint32_t *copy = manta__malloc((size_t)count * sizeof *copy + 1);
  if (!copy)
    return no_memory(err);
  if (count)
    memcpy(copy, rows, (size_t)count * sizeof *copy);
  manta__free(a->rows);
  a->rows = copy;
  a->count = count;
  return MANTA_OK;
}

void manta__applied_fini(manta_applied *a)
{
  manta_batch_destroy(a->batch);
  manta__free(a->rows);
  *a = (manta_applied){0};
}

static manta_status check_rows(const struct manta__apply *a, const manta_batch *in,
                               const manta_applied *out, manta_error *err)
{
  bool repeats = a->c.kind == MANTA_APPLY_ROWS;
  if (out->batch && out->count != out->batch->rows)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s gives %" PRId64 " rows, but says where %" PRId64 " come from",
                           a->name, out->batch->rows, out->count);
  for (int64_t i = 0; i < out->count; i++)
    if (out->rows[i] >= in->rows ||
        (i && (repeats ? out->rows[i] < out->rows[i - 1] : out->rows[i] <= out->rows[i - 1])))
      return manta_error_set(err, MANTA_EINVAL,
                             "%s: row %" PRId64 " of what it gives is number %" PRIu32
                             " of %" PRId64 "; numbers rise",
                             a->name, i, out->rows[i], in->rows);
  return MANTA_OK;
}

static manta_status check(const struct manta__apply *a, const manta_batch *in,
                          const manta_applied *out, manta_error *err)
{
  bool filters = a->c.kind == MANTA_APPLY_FILTER;
  if (filters ? !out->rows : !out->batch)
    return manta_error_set(err, MANTA_EINVAL, "%s gives no %s", a->name,
                           filters ? "numbers of rows" : "batch");
  if ((a->c.kind == MANTA_APPLY_MAP || a->c.kind == MANTA_APPLY_ADD) &&
      out->batch->rows != in->rows)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s gives %" PRId64 " rows for %" PRId64
                           "\nhint: a function that changes the number of rows is for flat_map or "
                           "map_batches (in C: MANTA_APPLY_ROWS)",
                           a->name, out->batch->rows, in->rows);
  return out->rows ? check_rows(a, in, out, err) : MANTA_OK;
}

manta_status manta__apply_call(struct manta__apply *a, const struct manta__apply_place *at,
                               const manta_batch *in, manta_applied *out, manta_error *err)
{
  manta_batch *seen;
  *out = (manta_applied){0};
  MANTA_TRY(manta__batch_select(&seen, in, a->seen, a->from, err));
  int64_t from = manta__now();
  manta_status st = a->host ? a->host->call(a->function, at, seen, out, err)
                            : a->c.call(a->c.ctx, seen, out, err);
  atomic_fetch_add_explicit(&a->d.tally.step, manta__now() - from, memory_order_relaxed);
  if (st >= 0 && a->c.kind == MANTA_APPLY_FILTER) { // it gives no columns
    manta_batch_destroy(out->batch);
    out->batch = NULL;
  }
  st = st < 0 ? st : check(a, seen, out, err);
  manta_batch_destroy(seen);
  if (st < 0)
    manta__applied_fini(out);
  return st < 0 ? st : MANTA_OK;
}

// --- what it gives ------------------------------------------------------------------------------

// The first rows of a block, as many as a call would have, but not too many.
static manta_status sample_block(struct manta__apply *a, int64_t block, const bool *columns,
                                 struct manta__schema **out, manta_error *err)
{
  struct manta__want want = {.columns = columns};
  struct manta__scan *s;
  manta_batch *b, *few = NULL;
  manta_applied got = {0};
  int64_t most = a->c.batch_rows ? a->c.batch_rows : SAMPLE_ROWS;
  MANTA_TRY(manta__dataset_scan(&s, a->d.input[0], block, &want, err));
  manta_status st = MANTA_OK;
  while (!*out && (st = manta__scan_next(s, &b, err)) == 1) {
    st = b->rows ? manta__batch_slice(&few, b, 0, b->rows < most ? b->rows : most, err) : MANTA_OK;
    if (st == MANTA_OK && few)
      st = manta__apply_call(a, &(struct manta__apply_place){.block = block}, few, &got, err);
    if (st == MANTA_OK && got.batch && (got.batch->rows || got.batch->schema->count))
      *out = manta__schema_ref(got.batch->schema);
    manta__applied_fini(&got);
    manta_batch_destroy(few);
    manta_batch_destroy(b);
    few = NULL;
    if (st < 0)
      break;
  }
  manta__scan_close(s);
  return *out ? MANTA_OK : st;
}

static manta_status find_schema(struct manta__apply *a, struct manta__schema **out,
                                manta_error *err)
{
  manta_dataset *in = a->d.input[0];
  *out = NULL;
  if (a->c.schema)
    return manta__arrow_import_schema(a->c.schema, out, err);
  MANTA_TRY(manta__dataset_prepare(in, err));
  bool *columns = manta__columns_flags(in, false);
  manta_status st = columns ? MANTA_OK : no_memory(err);
  for (int i = 0; columns && i < a->seen->count; i++)
    columns[a->from[i]] = true;
  for (int64_t k = 0; k < in->blocks && st == MANTA_OK && !*out; k++)
    st = sample_block(a, k, columns, out, err);
  manta__free(columns);
  if (st == MANTA_OK && !*out) // it never gives a row
    st = manta__schema_create(out, NULL, 0, err);
  return st < 0 ? st : MANTA_OK;
}

// The columns of the input, those that it gives in the place of their namesakes or behind them.
static manta_status join_schema(struct manta__apply *a, const struct manta__schema *gives,
                                struct manta__schema **out, manta_error *err)
{
  const struct manta__schema *in = a->d.input[0]->out;
  int count = in->count;
  struct manta__schema_field *fields =
      manta__calloc((size_t)in->count + (size_t)gives->count + 1, sizeof *fields);
  a->kept = manta__malloc((size_t)in->count * sizeof *a->kept + 1);
  if (!fields || !a->kept) {
    manta__free(fields);
    return no_memory(err);
  }
  for (int i = 0; i < in->count; i++) {
    fields[i] = in->field[i];
    a->kept[i] = i;
  }
  for (int i = 0; i < gives->count; i++) {
    int at = manta__schema_find(in, gives->field[i].name);
    if (at >= 0)
      a->kept[at] = -1;
    fields[at >= 0 ? at : count++] = gives->field[i];
  }
  manta_status st = manta__schema_create(out, fields, count, err);
  manta__free(fields);
  return st;
}

manta_status manta__apply_end(struct manta__apply *a, struct manta__schema *gives, manta_error *err)
{
  struct manta__schema *joined;
  if (a->c.kind == MANTA_APPLY_ADD) {
    MANTA_TRY(join_schema(a, gives, &joined, err));
    manta__dataset_schema(&a->d, joined);
  } else
    manta__dataset_schema(&a->d, manta__schema_ref(gives));
  return MANTA_OK;
}

static manta_status set_schema(struct manta__apply *a, manta_error *err)
{
  struct manta__schema *gives;
  if (a->c.kind == MANTA_APPLY_FILTER)
    return MANTA_OK;
  MANTA_TRY(find_schema(a, &gives, err));
  manta_status st = manta__apply_end(a, gives, err);
  manta__schema_unref(gives);
  return st;
}

// --- the step -----------------------------------------------------------------------------------

static bool takes(const manta_dataset *d, const bool *columns)
{
  return false;
}

static manta_status ask(const manta_dataset *d, int input, const struct manta__want *want,
                        bool *columns, manta_value *filter, manta_error *err)
{
  const struct manta__apply *a = (const struct manta__apply *)d;
  for (int i = 0; i < a->seen->count; i++)
    columns[a->from[i]] = true;
  for (int i = 0; i < d->input[0]->out->count; i++) {
    if (a->c.kind == MANTA_APPLY_FILTER)
      columns[i] |= want->columns[i];
    else if (a->c.kind == MANTA_APPLY_ADD && a->kept[i] >= 0)
      columns[i] |= want->columns[a->kept[i]];
  }
  return MANTA_OK;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  static const char *const verb[] = {"map", "add", "filter", "flat map"};
  const struct manta__apply *a = (const struct manta__apply *)d;
  MANTA_TRY(manta__buf_printf(b, "%s by %s", verb[a->c.kind], a->name));
  return a->c.batch_rows ? manta__buf_printf(b, ", %" PRId64 " rows a call", a->c.batch_rows)
                         : MANTA_OK;
}

static void fini(manta_dataset *d)
{
  struct manta__apply *a = (struct manta__apply *)d;
  if (a->owned && a->c.close)
    a->c.close(a->c.ctx);
  if (a->host && a->function)
    a->host->close(a->function);
  manta_value_fini(&a->code);
  manta__schema_unref(a->seen);
  manta__free(a->from);
  manta__free(a->kept);
  manta__free(a->name);
}

const struct manta__step manta__step_apply = {
    .name = "apply",
    .takes = takes,
    .ask = ask,
    .scan = manta__apply_scan,
    .late = manta__apply_late,
    .explain = explain,
    .fini = fini,
    .pack = manta__apply_pack,
    .unpack = manta__apply_unpack,
};

// --- making -------------------------------------------------------------------------------------

static manta_status choose_columns(struct manta__apply *a, manta_error *err)
{
  const struct manta__schema *in = a->d.input[0]->out;
  int count = a->c.column_count ? (int)a->c.column_count : in->count;
  if (a->c.column_count > (size_t)MANTA__COLUMNS_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "%zu columns", a->c.column_count);
  if (!(a->from = manta__calloc((size_t)count + 1, sizeof *a->from)))
    return no_memory(err);
  for (int i = 0; i < count; i++) {
    a->from[i] = i;
    if (a->c.column_count)
      MANTA_TRY(manta__schema_need(in, a->c.columns[i], &a->from[i], err));
  }
  return manta__schema_select(&a->seen, in, a->from, count, err);
}

static manta_status set_up(struct manta__apply *a, const manta_apply_config *c, manta_error *err)
{
  MANTA_TRY(manta__config_take(&a->c, sizeof a->c, c, "MANTA_APPLY_CONFIG_INIT", err));
  if ((unsigned)a->c.kind > MANTA_APPLY_ROWS || a->c.batch_rows < 0 ||
      a->c.batch_rows > MANTA__ROWS_MAX)
    return manta_error_set(err, MANTA_EINVAL,
                           "a function over rows: kind %d or %" PRId64 " rows a call",
                           (int)a->c.kind, a->c.batch_rows);
  if (!(a->name = manta__strdup(a->c.name ? a->c.name : "a function")))
    return no_memory(err);
  a->d.multiplies |= a->c.kind == MANTA_APPLY_ROWS;
  return choose_columns(a, err);
}

manta_status manta__apply_begin(struct manta__apply **out, manta_dataset *d,
                                const manta_apply_config *c, manta_error *err)
{
  struct manta__apply *a;
  MANTA_TRY(manta__dataset_unlimited(d, "a function over rows", err));
  MANTA_TRY(manta__dataset_create(&a, sizeof *a, &manta__step_apply, &d, 1, err));
  manta_status st = set_up(a, c, err);
  if (st < 0) {
    manta__dataset_unref(&a->d);
    return st;
  }
  *out = a;
  return MANTA_OK;
}

manta_status manta_dataset_apply(manta_dataset **out, manta_dataset *d,
                                 const manta_apply_config *config, manta_error *err)
{
  struct manta__apply *a;
  if (!config->call)
    return manta_error_set(err, MANTA_EINVAL, "a function over rows without a call");
  MANTA_TRY(manta__apply_begin(&a, d, config, err));
  manta_status st = set_schema(a, err);
  if (st < 0) {
    manta__dataset_unref(&a->d);
    return st;
  }
  a->c.columns = NULL;
  a->c.schema = NULL;
  a->c.name = NULL;
  a->owned = true;
  *out = &a->d;
  return MANTA_OK;
}
