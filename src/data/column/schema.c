/* SPDX-License-Identifier: Apache-2.0 */
#include "data/column/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/utf8.h"

// --- making -------------------------------------------------------------------------------------

static manta_status check_field(const struct manta__schema_field *f, int i, manta_error *err)
{
  size_t n = f->name ? strnlen(f->name, MANTA__NAME_MAX + 1) : 0;
  manta_error why = MANTA_ERROR_INIT;
  if (n == 0)
    return manta_error_set(err, MANTA_EINVAL, "column %d has no name", i + 1);
  if (n > MANTA__NAME_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "column %d: its name \"%.40s...\" is over %d bytes",
                           i + 1, f->name, MANTA__NAME_MAX);
  if (manta__utf8_valid(f->name, n) < n)
    return manta_error_set(err, MANTA_EINVAL, "column %d: its name is not UTF-8", i + 1);
  if (manta__type_check(&f->type, &why) < 0)
    return manta_error_set(err, why.status, "column \"%s\": %s", f->name, why.message);
  return MANTA_OK;
}

static int by_name(const void *a, const void *b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static manta_status check_unique(const struct manta__schema_field *fields, int count,
                                 manta_error *err)
{
  const char **names = manta__calloc((size_t)count + 1, sizeof *names);
  manta_status st = MANTA_OK;
  if (!names)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the names of %d columns", count);
  for (int i = 0; i < count; i++)
    names[i] = fields[i].name;
  qsort(names, (size_t)count, sizeof *names, by_name);
  for (int i = 1; i < count && st == MANTA_OK; i++)
    if (!strcmp(names[i - 1], names[i]))
      st = manta_error_set(err, MANTA_EINVAL, "there are two columns \"%s\"", names[i]);
  manta__free(names);
  return st;
}

static manta_status check_fields(const struct manta__schema_field *fields, int count,
                                 manta_error *err)
{
  if (count > MANTA__COLUMNS_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "%d columns; the limit is %d", count,
                           MANTA__COLUMNS_MAX);
  for (int i = 0; i < count; i++)
    MANTA_TRY(check_field(&fields[i], i, err));
  return check_unique(fields, count, err);
}

manta_status manta__schema_create(struct manta__schema **out,
                                  const struct manta__schema_field *fields, int count,
                                  manta_error *err)
{
  size_t bytes = sizeof(struct manta__schema) + (size_t)count * sizeof *fields;
  MANTA_TRY(check_fields(fields, count, err));
  for (int i = 0; i < count; i++)
    bytes += strlen(fields[i].name) + 1;
  struct manta__schema *s = manta__malloc(bytes);
  if (!s)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a schema of %d columns", count);
  *s = (struct manta__schema){.refs = 1, .count = count, .field = (void *)(s + 1)};
  char *text = (char *)(s->field + count);
  for (int i = 0; i < count; i++) {
    size_t n = strlen(fields[i].name) + 1;
    s->field[i] = (struct manta__schema_field){text, fields[i].type};
    memcpy(text, fields[i].name, n);
    text += n;
  }
  *out = s;
  return MANTA_OK;
}

manta_status manta__schema_select(struct manta__schema **out, const struct manta__schema *s,
                                  const int *columns, int count, manta_error *err)
{
  struct manta__schema_field *fields = manta__calloc((size_t)count + 1, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d columns", count);
  for (int i = 0; i < count; i++)
    fields[i] = s->field[columns[i]];
  manta_status st = manta__schema_create(out, fields, count, err);
  manta__free(fields);
  return st;
}

struct manta__schema *manta__schema_ref(struct manta__schema *s)
{
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
  return s;
}

void manta__schema_unref(struct manta__schema *s)
{
  if (s && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1)
    manta__free(s);
}

bool manta__schema_equal(const struct manta__schema *a, const struct manta__schema *b)
{
  if (a == b)
    return true;
  if (a->count != b->count)
    return false;
  for (int i = 0; i < a->count; i++)
    if (strcmp(a->field[i].name, b->field[i].name) != 0 ||
        !manta__type_equal(&a->field[i].type, &b->field[i].type))
      return false;
  return true;
}

void manta__schema_show(const struct manta__schema *s, int column, manta_field *out)
{
  const struct manta__schema_field *f = &s->field[column];
  *out = (manta_field){.name = f->name, .kind = f->type.kind, .dtype = f->type.dtype};
  out->ndim = f->type.kind == MANTA_KIND_NUMBER ? f->type.ndim : 0;
  for (int d = 0; d < out->ndim; d++)
    out->shape[d] = f->type.shape[d];
}

// --- names --------------------------------------------------------------------------------------

#define NEAR     3 // names that are told
#define WORD_MAX 63

int manta__name_distance(const char *a, const char *b, int limit)
{
  int row[WORD_MAX + 1];
  size_t n = strnlen(a, WORD_MAX + 1), m = strnlen(b, WORD_MAX + 1);
  if (n > WORD_MAX || m > WORD_MAX)
    return strcmp(a, b) ? limit + 1 : 0;
  for (size_t j = 0; j <= m; j++)
    row[j] = (int)j;
  for (size_t i = 1; i <= n; i++) {
    int corner = row[0]; // what stood up and to the left
    row[0] = (int)i;
    for (size_t j = 1; j <= m; j++) {
      int change = corner + (a[i - 1] != b[j - 1]);
      corner = row[j];
      int other = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
      row[j] = change < other ? change : other;
    }
  }
  return row[m] > limit ? limit + 1 : row[m];
}

int manta__schema_find(const struct manta__schema *s, const char *name)
{
  for (int i = 0; i < s->count; i++)
    if (!strcmp(s->field[i].name, name))
      return i;
  return -1;
}

struct near {
  int count;
  int column[NEAR], distance[NEAR];
};

// Keeps the nearest, and of equally near ones the first.
static void consider(struct near *near, int column, int distance)
{
  int at = near->count;
  while (at > 0 && near->distance[at - 1] > distance)
    at--;
  if (at == NEAR)
    return;
  if (near->count < NEAR)
    near->count++;
  for (int i = near->count - 1; i > at; i--) {
    near->column[i] = near->column[i - 1];
    near->distance[i] = near->distance[i - 1];
  }
  near->column[at] = column;
  near->distance[at] = distance;
}

manta_status manta__schema_need(const struct manta__schema *s, const char *name, int *out,
                                manta_error *err)
{
  struct near near = {0};
  int limit = 1 + (int)strnlen(name, WORD_MAX) / 3;
  char list[512];
  int at = 0;
  *out = manta__schema_find(s, name);
  if (*out >= 0)
    return MANTA_OK;
  for (int i = 0; i < s->count; i++) {
    int d = strcasecmp(s->field[i].name, name) ? manta__name_distance(name, s->field[i].name, limit)
                                               : 0;
    if (d <= limit)
      consider(&near, i, d);
  }
  int told = near.count ? near.count : s->count < 8 ? s->count : 8;
  for (int i = 0; i < told && at < (int)sizeof list; i++)
    at += snprintf(list + at, sizeof list - (size_t)at, "%s\"%.48s\"", i ? ", " : "",
                   s->field[near.count ? near.column[i] : i].name);
  return manta_error_set(err, MANTA_ENOENT, "there is no column \"%.64s\"\nhint: %s %s%s", name,
                         near.count ? "the nearest names are" : "the columns are",
                         told ? list : "none", told == s->count || near.count ? "" : ", ...");
}
