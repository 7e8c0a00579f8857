/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/part.c - the rows from one place of their order to another.
 *
 * prepare() goes over the rows once and counts those in front of each block. From then on a block
 * that has none of them is not read, and in the others a row is known by its number; with
 * `shuffle` by its place in a permutation of all rows.
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/hash.h"
#include "data/order/order.h"
#include "data/plan/pack.h"

struct part_data {
  manta_dataset d;
  manta_part_config c;
  int64_t *first;   /* [blocks + 1]: rows in front of each */
  int64_t from, to; /* rows that are in it */
  struct manta__shuffle shuffle;
};

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory for a part of a data set");
}

// --- counting -----------------------------------------------------------------------------------

static manta_status count_block(struct part_data *p, int64_t block, const struct manta__want *want,
                                manta_error *err)
{
  struct manta__scan *s;
  manta_batch *b;
  manta_status st;
  int64_t rows = 0;
  MANTA_TRY(manta__dataset_scan(&s, p->d.input[0], block, want, err));
  while ((st = manta__scan_next(s, &b, err)) == 1) {
    rows += b->rows;
    manta_batch_destroy(b);
  }
  manta__scan_close(s);
  p->first[block + 1] = p->first[block] + rows;
  return st;
}

// rows * at / of, rounded down, where the product may not fit.
static int64_t place(int64_t rows, int64_t at, int64_t of)
{
  return rows / of * at + (int64_t)((__int128)(rows % of) * at / of);
}

static manta_status prepare(manta_dataset *d, manta_error *err)
{
  struct part_data *p = (struct part_data *)d;
  struct manta__want want = {.columns = manta__columns_flags(d->input[0], false)};
  manta__free(p->first); // of an attempt that failed
  p->first = manta__calloc((size_t)d->blocks + 1, sizeof *p->first);
  manta_status st = want.columns && p->first ? MANTA_OK : no_memory(err);
  for (int64_t k = 0; k < d->blocks && st == MANTA_OK; k++)
    st = count_block(p, k, &want, err);
  manta__free((void *)(uintptr_t)want.columns);
  if (st < 0)
    return st;
  int64_t rows = p->first[d->blocks];
  p->from = place(rows, p->c.from, p->c.of);
  p->to = place(rows, p->c.to, p->c.of);
  p->shuffle = manta__shuffle_make((uint64_t)rows, p->c.seed, 0, 0);
  return MANTA_OK;
}

// --- scanning -----------------------------------------------------------------------------------

struct part_scan {
  struct manta__scan scan;
  int64_t row; /* rows in front of the next batch */
};

static bool is_kept(const struct part_data *p, int64_t row)
{
  if (p->c.shuffle)
    row = (int64_t)manta__shuffle_find(&p->shuffle, (uint64_t)row);
  return row >= p->from && row < p->to;
}

static manta_status part_next(struct manta__scan *scan, manta_batch **out, manta_error *err)
{
  struct part_scan *s = (struct part_scan *)scan;
  const struct part_data *p = (const struct part_data *)scan->d;
  manta_batch *in;
  int64_t kept = 0;
  manta_status st = manta__scan_next(scan->inner, &in, err);
  if (st != 1)
    return st;
  int64_t first = s->row;
  s->row += in->rows;
  if (!p->c.shuffle && first >= p->from && s->row <= p->to) {
    *out = in;
    return st;
  }
  uint32_t *rows = manta__malloc((size_t)(in->rows + 1) * sizeof *rows);
  for (int64_t i = 0; rows && i < in->rows; i++) {
    rows[kept] = (uint32_t)i;
    kept += is_kept(p, first + i);
  }
  st = rows ? manta__batch_take(out, in, rows, kept, scan->d->pool, err) : no_memory(err);
  manta__free(rows);
  manta_batch_destroy(in);
  return st < 0 ? st : (manta_status)1;
}

static manta_status scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                         const struct manta__want *want, manta_error *err)
{
  const struct part_data *p = (const struct part_data *)d;
  struct part_scan *s;
  if (!p->c.shuffle && (p->first[block + 1] <= p->from || p->first[block] >= p->to))
    return manta__scan_nothing(out, d, want, err);
  MANTA_TRY(manta__scan_over(&s, sizeof *s, d, block, want, err));
  s->scan.next = part_next;
  s->row = p->first[block];
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
  memcpy(columns, want->columns, (size_t)d->out->count);
  return MANTA_OK;
}

static manta_status explain(const manta_dataset *d, const struct manta__want *want, manta__buf *b)
{
  const manta_part_config *c = &((const struct part_data *)d)->c;
  return manta__buf_printf(b, "part %" PRId64 " to %" PRId64 " of %" PRId64 "%s", c->from, c->to,
                           c->of, c->shuffle ? ", by chance" : "");
}

static void fini(manta_dataset *d)
{
  manta__free(((struct part_data *)d)->first);
}

static manta_status pack(const manta_dataset *d, manta_value *to, manta_error *err)
{
  const manta_part_config *c = &((const struct part_data *)d)->c;
  MANTA_TRY(manta_value_put_int(to, "from", c->from));
  MANTA_TRY(manta_value_put_int(to, "to", c->to));
  MANTA_TRY(manta_value_put_int(to, "of", c->of));
  MANTA_TRY(manta_value_put_bool(to, "shuffle", c->shuffle));
  return manta_value_put_int(to, "seed", (int64_t)c->seed);
}

static manta_status unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                           const manta_value *from, manta_error *err)
{
  manta_part_config c = MANTA_PART_CONFIG_INIT;
  if (inputs != 1)
    return manta__plan_malformed(err);
  c.from = manta_value_as_int(manta_value_get(from, "from"), -1);
  c.to = manta_value_as_int(manta_value_get(from, "to"), -1);
  c.of = manta_value_as_int(manta_value_get(from, "of"), -1);
  c.shuffle = manta_value_as_bool(manta_value_get(from, "shuffle"), false);
  c.seed = (uint64_t)manta_value_as_int(manta_value_get(from, "seed"), 0);
  return manta_dataset_part(out, in[0], &c, err);
}

const struct manta__step manta__step_part = {
    .name = "part",
    .takes = takes,
    .ask = ask,
    .prepare = prepare,
    .scan = scan,
    .explain = explain,
    .fini = fini,
    .pack = pack,
    .unpack = unpack,
};

manta_status manta_dataset_part(manta_dataset **out, manta_dataset *d,
                                const manta_part_config *config, manta_error *err)
{
  manta_part_config c;
  struct part_data *p;
  MANTA_TRY(manta__config_take(&c, sizeof c, config, "MANTA_PART_CONFIG_INIT", err));
  if (c.of < 1 || c.from < 0 || c.to < c.from || c.to > c.of)
    return manta_error_set(err, MANTA_EINVAL,
                           "part %" PRId64 " to %" PRId64 " of %" PRId64 ": there is no such",
                           c.from, c.to, c.of);
  if (d->passes.shuffles || d->passes.times != 1)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "a part of rows that are shuffled or repeated\nhint: shuffle or repeat "
                           "the part");
  MANTA_TRY(manta__dataset_create(&p, sizeof *p, &manta__step_part, &d, 1, err));
  p->c = c;
  int64_t which[] = {c.from, c.to, c.of, c.shuffle, (int64_t)c.seed};
  p->d.mark = manta__hash_seed(which, sizeof which, d->mark);
  *out = &p->d;
  return MANTA_OK;
}
