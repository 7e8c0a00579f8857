/* SPDX-License-Identifier: Apache-2.0 */
#include "data/plan/pack.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"

#define STEPS_MAX 4096

static const struct manta__step *const steps[] = {
    &manta__step_files,   &manta__step_add,     &manta__step_filter, &manta__step_sample,
    &manta__step_project, &manta__step_union,   &manta__step_limit,  &manta__step_zip,
    &manta__step_fold,    &manta__step_shuffle, &manta__step_repeat, &manta__step_part,
    &manta__step_range,   &manta__step_apply,   &manta__step_single};

manta_status manta__plan_malformed(manta_error *err)
{
  return manta_error_set(err, MANTA_EPROTO, "a plan that makes no sense");
}

static manta_status no_memory(manta_status st, manta_error *err)
{
  return st < 0 && (!err || err->message[0] == 0) ? manta_error_set(err, st, "no memory for a plan")
                                                  : st;
}

// --- values -------------------------------------------------------------------------------------

manta_status manta__plan_put_bytes(manta_value *to, const char *key, const void *p, size_t bytes)
{
  manta_value v = {0};
  manta_status st = manta_value_set_bytes(&v, p, bytes);
  if (st == MANTA_OK)
    st = manta_value_put(to, key, &v);
  manta_value_fini(&v);
  return st;
}

const void *manta__plan_get_bytes(const manta_value *from, const char *key, size_t size, size_t *n)
{
  const manta_value *v = manta_value_get(from, key);
  if (!v || v->type != MANTA_BYTES || v->count % size)
    return NULL;
  *n = v->count / size;
  return v->u.s;
}

manta_status manta__plan_put_copy(manta_value *to, const char *key, const manta_value *from)
{
  manta_value v = {0};
  manta_status st = manta_value_copy(&v, from);
  if (st == MANTA_OK)
    st = manta_value_put(to, key, &v);
  manta_value_fini(&v);
  return st;
}

manta_status manta__plan_put_strings(manta_value *to, const char *key, const char *const *list,
                                     size_t count)
{
  manta_value v = {0}, item = {0};
  if (!list)
    return MANTA_OK;
  manta_status st = manta_value_set_list(&v);
  for (size_t i = 0; i < count && st == MANTA_OK; i++) {
    st = manta_value_set_string(&item, list[i]);
    if (st == MANTA_OK)
      st = manta_value_append(&v, &item);
  }
  if (st == MANTA_OK)
    st = manta_value_put(to, key, &v);
  manta_value_fini(&item);
  manta_value_fini(&v);
  return st;
}

manta_status manta__plan_get_strings(const manta_value *from, const char *key,
                                     const char *const **list, size_t *count, manta_error *err)
{
  const manta_value *v = manta_value_get(from, key);
  *list = NULL;
  *count = 0;
  if (!v)
    return MANTA_OK;
  if (v->type != MANTA_LIST)
    return manta__plan_malformed(err);
  const char **strings = manta__calloc(v->count + 1, sizeof *strings);
  if (!strings)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a plan");
  for (size_t i = 0; i < v->count; i++)
    strings[i] = manta_value_as_string(manta_value_at(v, i), "");
  *list = strings;
  *count = v->count;
  return MANTA_OK;
}

// --- schemas ------------------------------------------------------------------------------------

manta_status manta__plan_put_schema(manta_value *to, const struct manta__schema *s)
{
  size_t n = (size_t)s->count;
  const char **names = manta__calloc(n + 1, sizeof *names);
  struct manta__type *types = manta__calloc(n + 1, sizeof *types);
  manta_status st = names && types ? MANTA_OK : MANTA_ENOMEM;
  for (size_t i = 0; i < n && st == MANTA_OK; i++) {
    names[i] = s->field[i].name;
    types[i] = s->field[i].type;
  }
  if (st == MANTA_OK)
    st = manta__plan_put_strings(to, "fields", names, n);
  if (st == MANTA_OK)
    st = manta__plan_put_bytes(to, "field_types", types, n * sizeof *types);
  manta__free(names);
  manta__free(types);
  return st;
}

static manta_status read_fields(struct manta__schema_field *fields, size_t n,
                                const manta_value *names, const char *types, manta_error *err)
{
  for (size_t i = 0; i < n; i++) {
    struct manta__type *t = &fields[i].type;
    memcpy(t, types + i * sizeof *t, sizeof *t);
    t->logical[MANTA__LOGICAL_MAX - 1] = 0;
    fields[i].name = manta_value_as_string(manta_value_at(names, i), "");
    MANTA_TRY(manta__type_check(t, err));
  }
  return MANTA_OK;
}

manta_status manta__plan_get_schema(const manta_value *from, struct manta__schema **out,
                                    manta_error *err)
{
  const manta_value *names = manta_value_get(from, "fields");
  size_t n = 0;
  const char *types = manta__plan_get_bytes(from, "field_types", sizeof(struct manta__type), &n);
  if (!types || !names || names->type != MANTA_LIST || names->count != n || n > MANTA__COLUMNS_MAX)
    return manta__plan_malformed(err);
  struct manta__schema_field *fields = manta__calloc(n + 1, sizeof *fields);
  if (!fields)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %zu columns", n);
  manta_status st = read_fields(fields, n, names, types, err);
  if (st == MANTA_OK)
    st = manta__schema_create(out, fields, (int)n, err);
  manta__free(fields);
  return st;
}

// --- sending ------------------------------------------------------------------------------------

/* The steps that are in the list already, by number. */
struct packing {
  manta_value *list;
  const manta_dataset *done[STEPS_MAX];
  int count;
};

static int number_of(const struct packing *p, const manta_dataset *d)
{
  int i = 0;
  while (i < p->count && p->done[i] != d)
    i++;
  return i;
}

static manta_status describe(const struct packing *p, const manta_dataset *d, manta_value *out,
                             manta_error *err)
{
  int32_t in[64];
  if (d->inputs > (int)(sizeof in / sizeof *in))
    return manta_error_set(err, MANTA_EUNSUPPORTED, "a step over %d data sets cannot be sent",
                           d->inputs);
  for (int i = 0; i < d->inputs; i++)
    in[i] = number_of(p, d->input[i]);
  MANTA_TRY(manta_value_set_map(out));
  MANTA_TRY(manta_value_put_string(out, "step", d->step->name));
  MANTA_TRY(manta__plan_put_bytes(out, "in", in, (size_t)d->inputs * sizeof *in));
  return d->step->pack(d, out, err);
}

static manta_status pack_one(struct packing *p, const manta_dataset *d, manta_error *err)
{
  manta_value v = {0};
  if (number_of(p, d) < p->count)
    return MANTA_OK;
  for (int i = 0; i < d->inputs; i++)
    MANTA_TRY(pack_one(p, d->input[i], err));
  if (!d->step->pack || p->count == STEPS_MAX)
    return manta_error_set(err, MANTA_EUNSUPPORTED, "the step \"%s\" cannot be sent",
                           d->step->name);
  manta_status st = describe(p, d, &v, err);
  if (st == MANTA_OK)
    st = manta_value_append(p->list, &v);
  manta_value_fini(&v);
  if (st == MANTA_OK)
    p->done[p->count++] = d;
  return no_memory(st, err);
}

manta_status manta__plan_pack(manta_dataset *d, manta_value *out, manta_error *err)
{
  manta_value list = {0};
  struct packing *p = manta__calloc(1, sizeof *p);
  manta_status st = p ? manta_value_set_list(&list) : MANTA_ENOMEM;
  if (st == MANTA_OK) {
    p->list = &list;
    st = pack_one(p, d, err);
  }
  manta__free(p);
  if (st == MANTA_OK)
    manta_value_move(out, &list);
  manta_value_fini(&list);
  return no_memory(st, err);
}

bool manta__plan_calls(const manta_dataset *d)
{
  bool calls = d->step == &manta__step_apply;
  for (int i = 0; i < d->inputs && !calls; i++)
    calls = manta__plan_calls(d->input[i]);
  return calls;
}

// --- receiving ----------------------------------------------------------------------------------

static manta_status make_one(manta_dataset **made, size_t number, const manta_value *v,
                             manta_error *err)
{
  const char *name = manta_value_as_string(manta_value_get(v, "step"), "");
  manta_dataset *in[64];
  size_t inputs = 0;
  const int32_t *from = manta__plan_get_bytes(v, "in", sizeof *from, &inputs);
  if (!from || inputs > sizeof in / sizeof *in)
    return manta__plan_malformed(err);
  for (size_t i = 0; i < inputs; i++) {
    int32_t k;
    memcpy(&k, from + i, sizeof k);
    if (k < 0 || (size_t)k >= number)
      return manta__plan_malformed(err);
    in[i] = made[k];
  }
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    if (!strcmp(steps[i]->name, name))
      return steps[i]->unpack(&made[number], in, inputs, v, err);
  return manta__plan_malformed(err);
}

manta_status manta__plan_unpack(manta_dataset **out, const manta_value *plan, manta_error *err)
{
  if (plan->type != MANTA_LIST || plan->count == 0 || plan->count > STEPS_MAX)
    return manta__plan_malformed(err);
  manta_dataset **made = manta__calloc(plan->count, sizeof *made);
  manta_status st = made ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory for a plan");
  size_t n = 0;
  for (; n < plan->count && st == MANTA_OK; n++)
    st = make_one(made, n, manta_value_at(plan, n), err);
  if (st == MANTA_OK)
    *out = manta__dataset_ref(made[n - 1]);
  for (size_t i = 0; made && i < plan->count; i++)
    manta__dataset_unref(made[i]);
  manta__free(made);
  return st;
}
