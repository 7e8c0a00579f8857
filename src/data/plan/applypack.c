/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/applypack.c - a function over rows on its way to another process.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/plan/apply.h"

static const struct manta__apply_host *hosts; // of plans that are unpacked

void manta__apply_set_host(const struct manta__apply_host *host)
{
  hosts = host;
}

// --- there --------------------------------------------------------------------------------------

static manta_status pack_code(const struct manta__apply *a, manta_value *to, manta_error *err)
{
  manta_value code = {0};
  if (a->host)
    return manta__plan_put_copy(to, "code", &a->code);
  if (!a->c.pack)
    return manta_error_set(err, MANTA_EUNSUPPORTED, "%s cannot be sent", a->name);
  manta_status st = a->c.pack(a->c.ctx, &code, err);
  if (st == MANTA_OK)
    st = manta_value_put(to, "code", &code);
  manta_value_fini(&code);
  return st;
}

// What it gives, without the columns of the input that stay beside it.
static manta_status pack_gives(const struct manta__apply *a, manta_value *to, manta_error *err)
{
  const struct manta__schema *out = a->d.out;
  struct manta__schema *gives;
  int count = 0, inputs = a->d.input[0]->out->count;
  int *which = manta__calloc((size_t)out->count + 1, sizeof *which);
  if (!which)
    return MANTA_ENOMEM;
  for (int i = 0; i < out->count; i++)
    if (a->c.kind != MANTA_APPLY_ADD || i >= inputs || a->kept[i] < 0)
      which[count++] = i;
  manta_status st = manta__schema_select(&gives, out, which, count, err);
  manta__free(which);
  MANTA_TRY(st);
  st = manta__plan_put_schema(to, gives);
  manta__schema_unref(gives);
  return st;
}

manta_status manta__apply_pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  const struct manta__apply *a = (const struct manta__apply *)d;
  MANTA_TRY(pack_code(a, to, err));
  MANTA_TRY(manta_value_put_string(to, "name", a->name));
  MANTA_TRY(manta_value_put_int(to, "kind", a->c.kind));
  MANTA_TRY(manta_value_put_int(to, "batch_rows", a->c.batch_rows));
  MANTA_TRY(manta_value_put_int(to, "each_row", a->c.each_row));
  MANTA_TRY(manta__plan_put_bytes(to, "sees", a->from, (size_t)a->seen->count * sizeof *a->from));
  return a->c.kind == MANTA_APPLY_FILTER ? MANTA_OK : pack_gives(a, to, err);
}

// --- and back -----------------------------------------------------------------------------------

// The columns that it sees, by number.
static manta_status read_config(manta_apply_config *c, const manta_dataset *in,
                                const manta_value *from, manta_error *err)
{
  const struct manta__schema *s = in->out;
  const int *sees = manta__plan_get_bytes(from, "sees", sizeof *sees, &c->column_count);
  c->name = manta_value_as_string(manta_value_get(from, "name"), NULL);
  c->kind = (manta_apply_kind)manta_value_as_int(manta_value_get(from, "kind"), -1);
  c->batch_rows = manta_value_as_int(manta_value_get(from, "batch_rows"), -1);
  c->each_row = manta_value_as_int(manta_value_get(from, "each_row"), 0) != 0;
  if (!sees || c->column_count > (size_t)s->count)
    return manta__plan_malformed(err);
  const char **names = manta__calloc(c->column_count + 1, sizeof *names);
  if (!names)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a plan");
  c->columns = names;
  for (size_t i = 0; i < c->column_count; i++) {
    int column;
    memcpy(&column, sees + i, sizeof column);
    if (column < 0 || column >= s->count)
      return manta__plan_malformed(err);
    names[i] = s->field[column].name;
  }
  return MANTA_OK;
}

static manta_status restore(struct manta__apply *a, const manta_value *from, manta_error *err)
{
  const manta_value *code = manta_value_get(from, "code");
  struct manta__schema *gives;
  if (!code || code->type != MANTA_BYTES)
    return manta__plan_malformed(err);
  if (!hosts)
    return manta_error_set(err, MANTA_EUNSUPPORTED, "nobody here calls %s", a->name);
  if (manta_value_copy(&a->code, code) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a plan");
  a->host = hosts;
  if (a->c.kind != MANTA_APPLY_FILTER) {
    MANTA_TRY(manta__plan_get_schema(from, &gives, err));
    manta_status st = manta__apply_end(a, gives, err);
    manta__schema_unref(gives);
    MANTA_TRY(st);
  }
  return a->host->open(&a->function, a->name, code->u.s, code->count, a->seen, err);
}

manta_status manta__apply_unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                                 const manta_value *from, manta_error *err)
{
  manta_apply_config c = MANTA_APPLY_CONFIG_INIT;
  struct manta__apply *a = NULL;
  if (inputs != 1)
    return manta__plan_malformed(err);
  manta_status st = read_config(&c, in[0], from, err);
  if (st == MANTA_OK)
    st = manta__apply_begin(&a, in[0], &c, err);
  manta__free((void *)(uintptr_t)c.columns);
  MANTA_TRY(st);
  a->c.columns = NULL;
  a->c.name = NULL;
  if ((st = restore(a, from, err)) < 0) {
    manta__dataset_unref(&a->d);
    return st;
  }
  *out = &a->d;
  return MANTA_OK;
}

// --- failures -----------------------------------------------------------------------------------

void manta__apply_raised(manta_dataset *d, const void *detail, size_t bytes, const manta_error *err)
{
  const struct manta__apply *a = (const struct manta__apply *)d;
  if (d->step == &manta__step_apply && a->c.raised) {
    a->c.raised(a->c.ctx, detail, bytes, err);
    return;
  }
  for (int i = 0; i < d->inputs; i++)
    manta__apply_raised(d->input[i], detail, bytes, err);
}
