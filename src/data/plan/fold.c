/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/fold.c - cross validation: the rows of a split that train, or those that validate.
 *
 * prepare() goes over the rows once and counts: rows in front of each block and, by a column, how
 * often each value came in front of it. From then on the fold of a row is known where it is read,
 * in whatever order that is. Values are told apart by their hash.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/hash.h"
#include "data/order/order.h"
#include "data/plan/pack.h"

#define FOLDS_MAX  10000
#define VALUES_MAX (1 << 20)
#define COUNTS_MAX ((int64_t)1 << 24) /* values times blocks, of strata */

enum fold_kind { FOLD_PLAIN, FOLD_SERIES, FOLD_STRATA, FOLD_GROUPS };

/* The different values of a column, numbered as they come: an open table. {0} is empty. */
struct fold_values {
  uint64_t *hash;
  int32_t *number; /* -1: a free place */
  int64_t count, cap;
};

struct fold_data {
  manta_dataset d;
  enum fold_kind kind;
  int folds, split, column; /* column -1: none */
  bool validate, shuffle;
  uint64_t seed;
  int64_t *first;              /* [blocks + 1]: rows in front of each */
  int64_t train_end, test_end; /* of a series */
  struct fold_values values;   /* of the column */
  int64_t *before;             /* of strata, [blocks][values]: how often each came so far */
  int *fold;                   /* of groups, [values] */
};

// --- values -------------------------------------------------------------------------------------

static uint64_t hash_of(const struct manta__column *c, int64_t i)
{
  size_t n = 1;
  if (manta__column_is_null(c, i))
    return manta__hash("", 0) + 1;
  if (c->type.kind == MANTA_KIND_BOOL)
    return manta__hash(manta__column_bit(c, i) ? "t" : "f", n);
  if (manta__type_varies(&c->type)) {
    const char *p = manta__column_text(c, i, &n);
    return manta__hash(p, n);
  }
  return manta__hash(manta__column_at(c, i), manta__type_width(&c->type));
}

static int64_t place_of(const struct fold_values *v, uint64_t hash)
{
  int64_t at = (int64_t)(hash & (uint64_t)(v->cap - 1));
  while (v->number[at] >= 0 && v->hash[at] != hash)
    at = (at + 1) & (v->cap - 1);
  return at;
}

static void values_fini(struct fold_values *v)
{
  manta__free(v->hash);
  manta__free(v->number);
}

static manta_status values_grow(struct fold_values *v, manta_error *err)
{
  struct fold_values wide = {.cap = v->cap ? 2 * v->cap : 64, .count = v->count};
  wide.hash = manta__malloc((size_t)wide.cap * sizeof *wide.hash);
  wide.number = manta__malloc((size_t)wide.cap * sizeof *wide.number);
  if (!wide.hash || !wide.number) {
    values_fini(&wide);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the values of a column");
  }
  memset(wide.number, 0xff, (size_t)wide.cap * sizeof *wide.number);
  for (int64_t i = 0; i < v->cap; i++)
    if (v->number[i] >= 0) {
      int64_t at = place_of(&wide, v->hash[i]);
      wide.hash[at] = v->hash[i];
      wide.number[at] = v->number[i];
    }
  values_fini(v);
  *v = wide;
  return MANTA_OK;
}

// The number of a value, a new one if it was not there.
static manta_status number_value(struct fold_values *v, uint64_t hash, int32_t *out,
                                 manta_error *err)
{
  if (v->count == VALUES_MAX)
    return manta_error_set(err, MANTA_ETOOBIG,
                           "cross validation by a column of more than %d values", VALUES_MAX);
  if (2 * v->count >= v->cap)
    MANTA_TRY(values_grow(v, err));
  int64_t at = place_of(v, hash);
  if (v->number[at] < 0) {
    v->hash[at] = hash;
    v->number[at] = (int32_t)v->count++;
  }
  *out = v->number[at];
  return MANTA_OK;
}

// --- counting -----------------------------------------------------------------------------------

/* Rows of each value so far. */
struct fold_counts {
  int64_t *rows;
  int64_t cap;
};

static manta_status count_values(struct fold_data *f, const manta_batch *b, struct fold_counts *c,
                                 manta_error *err)
{
  for (int64_t i = 0; i < b->rows; i++) {
    int32_t n = 0;
    MANTA_TRY(number_value(&f->values, hash_of(&b->column[f->column], i), &n, err));
    if (n >= c->cap) {
      int64_t cap = c->cap ? 2 * c->cap : 64;
      int64_t *more = manta__realloc(c->rows, (size_t)cap * sizeof *more);
      if (!more)
        return manta_error_set(err, MANTA_ENOMEM, "no memory for the values of a column");
      memset(more + c->cap, 0, (size_t)(cap - c->cap) * sizeof *more);
      *c = (struct fold_counts){more, cap};
    }
    c->rows[n]++;
  }
  return MANTA_OK;
}

static manta_status count_block(struct fold_data *f, int64_t block, const struct manta__want *want,
                                struct fold_counts *c, manta_error *err)
{
  struct manta__scan *s;
  manta_batch *b;
  manta_status st;
  MANTA_TRY(manta__dataset_scan(&s, f->d.input[0], block, want, err));
  while ((st = manta__scan_next(s, &b, err)) == 1) {
    f->first[block + 1] += b->rows;
    st = f->column < 0 ? MANTA_OK : count_values(f, b, c, err);
    manta_batch_destroy(b);
    if (st < 0)
      break;
  }
  manta__scan_close(s);
  return st;
}

// What came in front of a block, as far as values were known by then; later ones had not come.
static manta_status note_counts(struct fold_data *f, int64_t block, const struct fold_counts *c,
                                int64_t **rows, manta_error *err)
{
  size_t n = (size_t)f->values.count;
  if ((int64_t)n * f->d.blocks > COUNTS_MAX)
    return manta_error_set(err, MANTA_ETOOBIG,
                           "strata of %zu values in %" PRId64 " blocks\nhint: larger blocks", n,
                           f->d.blocks);
  rows[block] = manta__calloc(n + 1, sizeof **rows);
  if (!rows[block])
    return manta_error_set(err, MANTA_ENOMEM, "no memory for strata");
  if (n)
    memcpy(rows[block], c->rows, n * sizeof **rows);
  return MANTA_OK;
}

static manta_status spread_counts(struct fold_data *f, int64_t *const *rows, const int64_t *known,
                                  manta_error *err)
{
  size_t n = (size_t)f->values.count;
  f->before = manta__calloc((size_t)f->d.blocks * n + 1, sizeof *f->before);
  if (!f->before)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for strata");
  for (int64_t k = 0; k < f->d.blocks; k++)
    memcpy(f->before + (size_t)k * n, rows[k], (size_t)known[k] * sizeof **rows);
  return MANTA_OK;
}

static manta_status count_all(struct fold_data *f, const struct manta__want *want,
                              struct fold_counts *c, manta_error *err)
{
  size_t blocks = (size_t)f->d.blocks;
  int64_t **rows = manta__calloc(blocks + 1, sizeof *rows);
  int64_t *known = manta__calloc(blocks + 1, sizeof *known);
  manta_status st =
      rows && known ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory to count rows");
  for (int64_t k = 0; k < f->d.blocks && st == MANTA_OK; k++) {
    known[k] = f->values.count;
    if (f->kind == FOLD_STRATA)
      st = note_counts(f, k, c, rows, err);
    f->first[k + 1] = f->first[k];
    if (st == MANTA_OK)
      st = count_block(f, k, want, c, err);
  }
  if (st == MANTA_OK && f->kind == FOLD_STRATA)
    st = spread_counts(f, rows, known, err);
  for (size_t k = 0; rows && k < blocks; k++)
    manta__free(rows[k]);
  manta__free(rows);
  manta__free(known);
  return st;
}

static manta_status place_groups(struct fold_data *f, const struct fold_counts *c, manta_error *err)
{
  f->fold = manta__calloc((size_t)f->values.count + 1, sizeof *f->fold);
  if (!f->fold)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for groups");
  return manta__fold_groups(c->rows, f->values.count, f->folds, f->fold, err);
}

static void forget(struct fold_data *f)
{
  values_fini(&f->values);
  manta__free(f->first);
  manta__free(f->before);
  manta__free(f->fold);
  f->values = (struct fold_values){0};
  f->first = f->before = NULL;
  f->fold = NULL;
}

static manta_status prepare(manta_dataset *d, manta_error *err)
{
  struct fold_data *f = (struct fold_data *)d;
  struct fold_counts counts = {0};
  bool *columns = manta__columns_flags(d->input[0], false);
  struct manta__want want = {.columns = columns};
  forget(f); // of an attempt that failed
  f->first = manta__calloc((size_t)d->blocks + 1, sizeof *f->first);
  manta_status st = columns && f->first
                        ? MANTA_OK
                        : manta_error_set(err, MANTA_ENOMEM, "no memory to count rows");
  if (columns && f->column >= 0)
    columns[f->column] = true;
  if (st == MANTA_OK)
    st = count_all(f, &want, &counts, err);
  if (st == MANTA_OK && f->first[d->blocks] < f->folds)
    st = manta_error_set(err, MANTA_EINVAL, "%d folds of %" PRId64 " rows", f->folds,
                         f->first[d->blocks]);
  if (st == MANTA_OK && f->kind == FOLD_GROUPS)
    st = place_groups(f, &counts, err);
  if (st == MANTA_OK && f->kind == FOLD_SERIES)
    st = manta__fold_series(f->first[d->blocks], f->folds, f->split, &f->train_end, &f->test_end,
                            err);
  manta__free(counts.rows);
  manta__free(columns);
  return st;
}

// --- scanning -----------------------------------------------------------------------------------

struct fold_scan {
  struct manta__scan scan;
  int64_t row;   /* rows in front of the next batch */
  int64_t *seen; /* of strata: how often each value came */
};

static bool is_kept(struct fold_scan *s, const manta_batch *b, int64_t i)
{
  const struct fold_data *f = (const struct fold_data *)s->scan.d;
  int64_t row = s->row + i, rows = f->first[f->d.blocks];
  if (f->kind == FOLD_SERIES)
    return f->validate ? row >= f->train_end && row < f->test_end : row < f->train_end;
  int fold = 0;
  if (f->kind == FOLD_PLAIN)
    fold = manta__fold_plain(row, rows, f->folds, f->shuffle, f->seed);
  else {
    uint64_t hash = hash_of(&b->column[f->column], i);
    int32_t n = f->values.number[place_of(&f->values, hash)];
    fold = n < 0 ? 0 // the file has changed
           : f->kind == FOLD_GROUPS
               ? f->fold[n]
               : manta__fold_stratified(hash, s->seen[n]++, f->folds, f->shuffle, f->seed);
  }
  return (fold == f->split) == f->validate;
}

static manta_status fold_next(struct manta__scan *scan, manta_batch **out, manta_error *err)
{
  struct fold_scan *s = (struct fold_scan *)scan;
  manta_batch *in;
  int64_t kept = 0;
  manta_status st = manta__scan_next(scan->inner, &in, err);
  if (st != 1)
    return st;
  uint32_t *rows = manta__malloc((size_t)(in->rows + 1) * sizeof *rows);
  for (int64_t i = 0; rows && i < in->rows; i++) {
    rows[kept] = (uint32_t)i;
    kept += is_kept(s, in, i);
  }
  s->row += in->rows;
  st = rows ? manta__batch_take(out, in, rows, kept, scan->d->pool, err)
            : manta_error_set(err, MANTA_ENOMEM, "no memory for a fold");
  manta__free(rows);
  manta_batch_destroy(in);
  return st < 0 ? st : (manta_status)1;
}

static void fold_close(struct manta__scan *scan)
{
  manta__free(((struct fold_scan *)scan)->seen);
}

static manta_status scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                         const struct manta__want *want, manta_error *err)
{
  const struct fold_data *f = (const struct fold_data *)d;
  struct fold_scan *s;
  MANTA_TRY(manta__scan_over(&s, sizeof *s, d, block, want, err));
  s->scan.next = fold_next;
  s->scan.close = fold_close;
  s->row = f->first[block];
  size_t n = (size_t)f->values.count;
  if (f->kind == FOLD_STRATA && n) {
    if (!(s->seen = manta__malloc(n * sizeof *s->seen))) {
      manta__scan_close(&s->scan);
      return manta_error_set(err, MANTA_ENOMEM, "no memory for strata");
    }
    memcpy(s->seen, f->before + (size_t)block * n, n * sizeof *s->seen);
  }
  *out = &s->scan;
  return MANTA_OK;
}

// --- the step -----------------------------------------------------------------------------------

static bool takes(const manta_dataset *d, const bool *columns)
{
  return false; // a filter would change what is counted
}

static manta_status ask(const manta_dataset *d, int input, const struct manta__want *want,
                        bool *columns, manta_value *filter, manta_error *err)
{
  const struct fold_data *f = (const struct fold_data *)d;
  memcpy(columns, want->columns, (size_t)d->out->count);
  if (f->column >= 0)
    columns[f->column] = true;
  return MANTA_OK;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  static const char *const kinds[] = {"", " of a series", ", strata by ", ", groups by "};
  const struct fold_data *f = (const struct fold_data *)d;
  return manta__buf_printf(b, "%s of split %d of %d%s%s", f->validate ? "validation" : "training",
                           f->split, f->folds, kinds[f->kind],
                           f->column < 0 ? "" : d->out->field[f->column].name);
}

static void fini(manta_dataset *d)
{
  forget((struct fold_data *)d);
}

static manta_status pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  const struct fold_data *f = (const struct fold_data *)d;
  MANTA_TRY(manta_value_put_int(to, "folds", f->folds));
  MANTA_TRY(manta_value_put_int(to, "split", f->split));
  MANTA_TRY(manta_value_put_bool(to, "validate", f->validate));
  MANTA_TRY(manta_value_put_bool(to, "shuffle", f->shuffle));
  MANTA_TRY(manta_value_put_bool(to, "series", f->kind == FOLD_SERIES));
  MANTA_TRY(manta_value_put_int(to, "seed", (int64_t)f->seed));
  if (f->column < 0)
    return MANTA_OK;
  return manta_value_put_string(to, f->kind == FOLD_STRATA ? "stratify" : "groups",
                                d->input[0]->out->field[f->column].name);
}

static manta_status unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                           const manta_value *from, manta_error *err)
{
  manta_fold_config c = MANTA_FOLD_CONFIG_INIT;
  if (inputs != 1)
    return manta__plan_malformed(err);
  c.folds = (int)manta_value_as_int(manta_value_get(from, "folds"), 0);
  c.split = (int)manta_value_as_int(manta_value_get(from, "split"), 0);
  c.validate = manta_value_as_bool(manta_value_get(from, "validate"), false);
  c.shuffle = manta_value_as_bool(manta_value_get(from, "shuffle"), false);
  c.series = manta_value_as_bool(manta_value_get(from, "series"), false);
  c.seed = (uint64_t)manta_value_as_int(manta_value_get(from, "seed"), 0);
  c.stratify = manta_value_as_string(manta_value_get(from, "stratify"), NULL);
  c.groups = manta_value_as_string(manta_value_get(from, "groups"), NULL);
  return manta_dataset_fold(out, in[0], &c, err);
}

const struct manta__step manta__step_fold = {
    .name = "fold",
    .takes = takes,
    .ask = ask,
    .prepare = prepare,
    .scan = scan,
    .explain = explain,
    .fini = fini,
    .pack = pack,
    .unpack = unpack,
};

manta_status manta_dataset_fold(manta_dataset **out, manta_dataset *d,
                                const manta_fold_config *config, manta_error *err)
{
  manta_fold_config c;
  struct fold_data *f;
  MANTA_TRY(manta__config_take(&c, sizeof c, config, "MANTA_FOLD_CONFIG_INIT", err));
  if (c.folds < 2 || c.folds > FOLDS_MAX || c.split < 0 || c.split >= c.folds)
    return manta_error_set(err, MANTA_EINVAL, "split %d of %d folds: 2 to %d", c.split, c.folds,
                           FOLDS_MAX);
  if ((c.stratify != NULL) + (c.groups != NULL) + c.series > 1 || (c.series && c.shuffle))
    return manta_error_set(err, MANTA_EINVAL,
                           "stratify, groups and series are one of three, and a series is not "
                           "shuffled");
  if (d->passes.shuffles || d->passes.times != 1)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "cross validation of rows that are shuffled or repeated\nhint: shuffle "
                           "or repeat the parts");
  int column = -1;
  const char *by = c.stratify ? c.stratify : c.groups;
  if (by)
    MANTA_TRY(manta__schema_need(d->out, by, &column, err));
  MANTA_TRY(manta__dataset_create(&f, sizeof *f, &manta__step_fold, &d, 1, err));
  f->kind = c.series ? FOLD_SERIES : c.stratify ? FOLD_STRATA : c.groups ? FOLD_GROUPS : FOLD_PLAIN;
  f->folds = c.folds;
  f->split = c.split;
  f->column = column;
  f->validate = c.validate;
  f->shuffle = c.shuffle;
  f->seed = c.seed;
  *out = &f->d;
  return MANTA_OK;
}
