/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/union.c - the blocks of several data sets, one after the other.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "data/plan/pack.h"

#define INPUTS_MAX 10000

struct union_data {
  manta_dataset d;
  int64_t *first; /* [inputs + 1]: blocks in front of each */
};

static int input_of(const struct union_data *u, int64_t block)
{
  int i = 0;
  while (block >= u->first[i + 1])
    i++;
  return i;
}

static manta_status scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                         const struct manta__want *want, manta_error *err)
{
  const struct union_data *u = (const struct union_data *)d;
  int i = input_of(u, block);
  return manta__scan_input(out, d, i, block - u->first[i], want, err);
}

static const char *file_of(const manta_dataset *d, int64_t block)
{
  const struct union_data *u = (const struct union_data *)d;
  int i = input_of(u, block);
  return manta_dataset_block_file(d->input[i], block - u->first[i]);
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  return manta__buf_printf(b, "union of %d", d->inputs);
}

static void fini(manta_dataset *d)
{
  manta__free(((struct union_data *)d)->first);
}

static manta_status pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  return MANTA_OK; // its inputs are all of it
}

static manta_status unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                           const manta_value *from, manta_error *err)
{
  return manta_dataset_union(out, in, inputs, err);
}

const struct manta__step manta__step_union = {
    .name = "union",
    .scan = scan,
    .explain = explain,
    .file = file_of,
    .fini = fini,
    .pack = pack,
    .unpack = unpack,
};

// --- making -------------------------------------------------------------------------------------

static manta_status check(manta_dataset *const *d, size_t i, manta_error *err)
{
  const struct manta__schema *a = d[0]->out, *b = d[i]->out;
  char was[MANTA__TYPE_TEXT_MAX], is[MANTA__TYPE_TEXT_MAX];
  if (d[i]->passes.shuffles || d[i]->passes.times != 1)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "a union of data sets that are shuffled or repeated\nhint: make the "
                           "union first, then shuffle or repeat it");
  if (a->count != b->count)
    return manta_error_set(err, MANTA_EINVAL,
                           "union: the first data set has %d columns, number %zu has %d", a->count,
                           i + 1, b->count);
  for (int k = 0; k < a->count; k++)
    if (strcmp(a->field[k].name, b->field[k].name) ||
        !manta__type_equal(&a->field[k].type, &b->field[k].type))
      return manta_error_set(err, MANTA_EINVAL,
                             "union: column %d is \"%.64s\" (%s) in the first data set, but "
                             "\"%.64s\" (%s) in number %zu\nhint: select the same columns in the "
                             "same order, and set their types",
                             k, a->field[k].name, manta__type_text(&a->field[k].type, was),
                             b->field[k].name, manta__type_text(&b->field[k].type, is), i + 1);
  return MANTA_OK;
}

manta_status manta_dataset_union(manta_dataset **out, manta_dataset *const *d, size_t count,
                                 manta_error *err)
{
  struct union_data *u;
  if (count == 0 || count > INPUTS_MAX)
    return manta_error_set(err, MANTA_EINVAL, "a union of %zu data sets: 1 to %d", count,
                           INPUTS_MAX);
  for (size_t i = 0; i < count; i++)
    MANTA_TRY(check(d, i, err));
  MANTA_TRY(manta__dataset_create(&u, sizeof *u, &manta__step_union, d, (int)count, err));
  if (!(u->first = manta__calloc(count + 1, sizeof *u->first))) {
    manta__dataset_unref(&u->d);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a union");
  }
  for (size_t i = 0; i < count; i++) {
    u->first[i + 1] = u->first[i] + d[i]->blocks;
    if (i)
      u->d.mark = manta__hash_seed(&d[i]->mark, sizeof d[i]->mark, u->d.mark);
  }
  u->d.blocks = u->first[count];
  *out = &u->d;
  return MANTA_OK;
}
