/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/space.c - reads a space, draws points, makes configs of them.
 *
 * All three walk the spec in the same order, in which the dimensions are numbered; a walk that
 * makes a config goes through the options that were not chosen too, for their numbers.
 */
#include "tune/space.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/rng.h"

#define MAX_PATH 1024

struct reading {
  struct manta__space *sp;
  int cap;
  char path[MAX_PATH];
  size_t path_len;
  int parent;
  uint32_t branch;
  manta_error *err;
};

/* --- domains ---------------------------------------------------------------------------------- */

/* The argument of the domain `name`, or NULL if `v` is something else. */
static const manta_value *domain(const manta_value *v, const char *name)
{
  if (v->type != MANTA_MAP || v->count != 1 || strcmp(v->u.pairs[0].key, name) != 0)
    return NULL;
  return &v->u.pairs[0].value;
}

static const manta_value *options_of(const manta_value *v, enum manta__dim_kind *kind)
{
  const manta_value *found = domain(v, "$choice");
  *kind = MANTA__DIM_CHOICE;
  if (!found) {
    found = domain(v, "$grid");
    *kind = MANTA__DIM_GRID;
  }
  return found;
}

static const manta_value *numbers_of(const manta_value *v, enum manta__dim_kind *kind)
{
  const manta_value *found = domain(v, "$range");
  *kind = MANTA__DIM_RANGE;
  if (!found) {
    found = domain(v, "$normal");
    *kind = MANTA__DIM_NORMAL;
  }
  return found;
}

static manta_status refuse(const struct reading *r, const char *why)
{
  return manta_error_set(r->err, MANTA_EINVAL, "%s: %s", r->path_len ? r->path : "the space", why);
}

static manta_status check_range(const struct reading *r, struct manta__dim *d)
{
  if (!isfinite(d->low) || !isfinite(d->high))
    return refuse(r, "a range needs two finite ends");
  if (d->low > d->high)
    return manta_error_set(r->err, MANTA_EINVAL, "%s: the range ends at %g, before it begins (%g)",
                           r->path, d->high, d->low);
  if (d->log && d->low <= 0)
    return manta_error_set(r->err, MANTA_EINVAL,
                           "%s: a logarithmic range begins above 0, not at %g", r->path, d->low);
  if (d->q <= 0)
    return MANTA_OK;
  double low = ceil(d->low / d->q) * d->q, high = floor(d->high / d->q) * d->q;
  if (low > high)
    return manta_error_set(r->err, MANTA_EINVAL, "%s: no multiple of %g is between %g and %g",
                           r->path, d->q, d->low, d->high);
  d->low = d->log && low <= 0 ? d->q : low;
  d->high = high;
  return MANTA_OK;
}

static manta_status read_numbers(const struct reading *r, struct manta__dim *d,
                                 const manta_value *args)
{
  bool range = d->kind == MANTA__DIM_RANGE;
  d->low = manta_value_as_real(manta_value_get(args, range ? "low" : "mean"), range ? NAN : 0);
  d->high = manta_value_as_real(manta_value_get(args, range ? "high" : "sd"), range ? NAN : 1);
  d->log = manta_value_as_bool(manta_value_get(args, "log"), false);
  d->integer = manta_value_as_bool(manta_value_get(args, "int"), false);
  d->q = manta_value_as_real(manta_value_get(args, "q"), 0);
  if (d->integer && d->q == 0)
    d->q = 1;
  if (!(d->q >= 0) || !isfinite(d->q))
    return refuse(r, "q, the step, is a positive number");
  if (range)
    return check_range(r, d);
  if (!isfinite(d->low) || !isfinite(d->high) || d->high <= 0)
    return refuse(r, "a normal distribution needs a mean and a deviation above 0");
  return MANTA_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */

static manta_status add_dim(struct reading *r, enum manta__dim_kind kind, struct manta__dim **out)
{
  struct manta__space *sp = r->sp;
  if (sp->count == MANTA__SPACE_MAX_DIMS)
    return manta_error_set(r->err, MANTA_ETOOBIG, "the space has over %d domains",
                           MANTA__SPACE_MAX_DIMS);
  if (sp->count == r->cap) {
    int cap = r->cap ? 2 * r->cap : 16;
    struct manta__dim *dims = manta__realloc(sp->dims, sizeof *dims * (size_t)cap);
    if (!dims)
      return manta_error_set(r->err, MANTA_ENOMEM, "no memory for a search space");
    sp->dims = dims;
    r->cap = cap;
  }
  char *path = manta__strdup(r->path);
  if (!path)
    return manta_error_set(r->err, MANTA_ENOMEM, "no memory for a search space");
  uint64_t above = r->parent < 0 ? 0 : sp->dims[r->parent].key + r->branch + 1;
  *out = &sp->dims[sp->count++];
  **out = (struct manta__dim){.kind = kind,
                              .parent = r->parent,
                              .branch = r->branch,
                              .path = path,
                              .key = manta__hash_seed(path, strlen(path), above)};
  return MANTA_OK;
}

static manta_status read_value(struct reading *r, const manta_value *v);

static manta_status read_below(struct reading *r, const char *key, const manta_value *v)
{
  size_t before = r->path_len, len = strlen(key);
  if (before + len + 2 > sizeof r->path)
    return manta_error_set(r->err, MANTA_ETOOBIG, "%s/…: the path is too long", r->path);
  if (before)
    r->path[r->path_len++] = '/';
  memcpy(r->path + r->path_len, key, len + 1);
  r->path_len += len;
  manta_status st = read_value(r, v);
  r->path[r->path_len = before] = '\0';
  return st;
}

static manta_status read_options(struct reading *r, enum manta__dim_kind kind,
                                 const manta_value *options)
{
  if (options->type != MANTA_LIST || options->count == 0)
    return refuse(r, kind == MANTA__DIM_GRID ? "a grid needs at least one value"
                                             : "a choice needs at least one option");
  if (kind == MANTA__DIM_GRID && r->parent >= 0)
    return refuse(r, "a grid inside of a choice\nhint: a choice there, or the grid outside of it");
  struct manta__dim *d;
  MANTA_TRY(add_dim(r, kind, &d));
  d->options = options->count;
  if (kind == MANTA__DIM_GRID && __builtin_mul_overflow(r->sp->grid, options->count, &r->sp->grid))
    return refuse(r, "the grid has too many points");
  int self = r->sp->count - 1, parent = r->parent;
  uint32_t branch = r->branch;
  manta_status st = MANTA_OK;
  for (uint32_t i = 0; i < options->count && st >= 0; i++) {
    r->parent = self;
    r->branch = i;
    st = read_value(r, &options->u.items[i]);
  }
  r->parent = parent;
  r->branch = branch;
  return st;
}

static manta_status read_value(struct reading *r, const manta_value *v)
{
  enum manta__dim_kind kind;
  const manta_value *args;
  if (domain(v, "$literal") || domain(v, "$call"))
    return MANTA_OK;
  if ((args = options_of(v, &kind)))
    return read_options(r, kind, args);
  if ((args = numbers_of(v, &kind))) {
    struct manta__dim *d;
    MANTA_TRY(add_dim(r, kind, &d));
    return read_numbers(r, d, args);
  }
  if (v->type == MANTA_MAP)
    for (uint32_t i = 0; i < v->count; i++)
      MANTA_TRY(read_below(r, v->u.pairs[i].key, &v->u.pairs[i].value));
  if (v->type == MANTA_LIST)
    for (uint32_t i = 0; i < v->count; i++) {
      char index[16];
      snprintf(index, sizeof index, "%u", i);
      MANTA_TRY(read_below(r, index, &v->u.items[i]));
    }
  return MANTA_OK;
}

manta_status manta__space_init(struct manta__space *sp, const manta_value *spec, manta_error *err)
{
  *sp = (struct manta__space){.grid = 1};
  if (spec->type != MANTA_MAP)
    return manta_error_set(err, MANTA_ETYPE, "a search space is a map of names to values");
  if (manta_value_copy(&sp->spec, spec) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a search space");
  struct reading r = {.sp = sp, .parent = -1, .err = err};
  manta_status st = read_value(&r, &sp->spec);
  if (st < 0)
    manta__space_fini(sp);
  return st;
}

void manta__space_fini(struct manta__space *sp)
{
  for (int i = 0; i < sp->count; i++)
    manta__free(sp->dims[i].path);
  manta__free(sp->dims);
  manta_value_fini(&sp->spec);
  *sp = (struct manta__space){0};
}

/* --- points ----------------------------------------------------------------------------------- */

bool manta__space_counts(const struct manta__space *sp, int dim, const double *point)
{
  const struct manta__dim *d = &sp->dims[dim];
  return d->parent < 0 || point[d->parent] == (double)d->branch; // NaN: the parent does not count
}

double manta__space_draw_dim(const struct manta__space *sp, int dim, uint64_t seed, uint64_t number)
{
  const struct manta__dim *d = &sp->dims[dim];
  struct manta__rng rng = manta__rng_of(seed ^ d->key, number);
  if (d->kind == MANTA__DIM_CHOICE)
    return (double)manta__rng_below(&rng, d->options);
  if (d->kind == MANTA__DIM_NORMAL)
    return manta__dim_from_scale(d, manta__rng_normal(&rng));
  return manta__dim_from_scale(d, manta__rng_unit(&rng));
}

void manta__space_draw_grid(const struct manta__space *sp, uint64_t number, double *point)
{
  uint64_t rest = number % sp->grid;
  for (int i = sp->count - 1; i >= 0; i--)
    if (sp->dims[i].kind == MANTA__DIM_GRID) {
      point[i] = (double)(rest % sp->dims[i].options);
      rest /= sp->dims[i].options;
    }
}

void manta__space_draw(const struct manta__space *sp, uint64_t seed, uint64_t number, double *point)
{
  manta__space_draw_grid(sp, number, point);
  for (int i = 0; i < sp->count; i++) {
    if (!manta__space_counts(sp, i, point))
      point[i] = NAN;
    else if (sp->dims[i].kind != MANTA__DIM_GRID)
      point[i] = manta__space_draw_dim(sp, i, seed, number);
  }
}

/* --- configs ---------------------------------------------------------------------------------- */

struct making {
  const struct manta__space *sp;
  const double *point;
  int next;
};

static manta_status make(struct making *m, const manta_value *v, bool wanted, manta_value *out);

static manta_status make_option(struct making *m, const manta_value *options, bool wanted,
                                manta_value *out)
{
  double chosen = m->point[m->next++];
  for (uint32_t i = 0; i < options->count; i++)
    MANTA_TRY(make(m, &options->u.items[i], wanted && chosen == (double)i, out));
  return MANTA_OK;
}

static manta_status make_number(struct making *m, bool wanted, manta_value *out)
{
  const struct manta__dim *d = &m->sp->dims[m->next];
  double x = m->point[m->next++];
  if (!wanted)
    return MANTA_OK;
  return d->integer ? manta_value_set_int(out, (int64_t)x) : manta_value_set_real(out, x);
}

static manta_status make_map(struct making *m, const manta_value *v, bool wanted, manta_value *out)
{
  if (wanted)
    MANTA_TRY(manta_value_set_map(out));
  for (uint32_t i = 0; i < v->count; i++) {
    manta_value item = {0};
    manta_status st = make(m, &v->u.pairs[i].value, wanted, &item);
    if (st >= 0 && wanted)
      st = manta_value_put(out, v->u.pairs[i].key, &item);
    manta_value_fini(&item);
    MANTA_TRY(st);
  }
  return MANTA_OK;
}

static manta_status make_list(struct making *m, const manta_value *v, bool wanted, manta_value *out)
{
  if (wanted)
    MANTA_TRY(manta_value_set_list(out));
  for (uint32_t i = 0; i < v->count; i++) {
    manta_value item = {0};
    manta_status st = make(m, &v->u.items[i], wanted, &item);
    if (st >= 0 && wanted)
      st = manta_value_append(out, &item);
    manta_value_fini(&item);
    MANTA_TRY(st);
  }
  return MANTA_OK;
}

/* Not wanted: only the dimensions inside are counted. */
static manta_status make(struct making *m, const manta_value *v, bool wanted, manta_value *out)
{
  enum manta__dim_kind kind;
  const manta_value *args;
  if ((args = domain(v, "$literal")))
    return wanted ? manta_value_copy(out, args) : MANTA_OK;
  if (domain(v, "$call"))
    return wanted ? manta_value_copy(out, v) : MANTA_OK;
  if ((args = options_of(v, &kind)))
    return make_option(m, args, wanted, out);
  if (numbers_of(v, &kind))
    return make_number(m, wanted, out);
  if (v->type == MANTA_MAP)
    return make_map(m, v, wanted, out);
  if (v->type == MANTA_LIST)
    return make_list(m, v, wanted, out);
  return wanted ? manta_value_copy(out, v) : MANTA_OK;
}

manta_status manta__space_config(const struct manta__space *sp, const double *point,
                                 manta_value *out, manta_error *err)
{
  struct making m = {.sp = sp, .point = point};
  manta_value made = {0};
  if (make(&m, &sp->spec, true, &made) < 0) {
    manta_value_fini(&made);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a config");
  }
  manta_value_move(out, &made);
  return MANTA_OK;
}
