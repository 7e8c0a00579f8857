/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader/cut.h"

#include <inttypes.h>

#include "base/alloc.h"

manta_status manta__cut_open(struct manta__cut *cut, const struct manta__cut_config *c,
                             manta_error *err)
{
  *cut = (struct manta__cut){.c = *c, .position = c->flow.from};
  cut->last = &cut->first;
  return manta__flow_open(&cut->flow, &c->flow, err);
}

static void drop_first(struct manta__cut *cut)
{
  struct manta__segment *s = cut->first;
  if (!(cut->first = s->next))
    cut->last = &cut->first;
  manta__flow_drop(cut->flow, s);
}

void manta__cut_close(struct manta__cut *cut)
{
  while (cut->first)
    drop_first(cut);
  if (cut->flow)
    manta__flow_add_times(cut->flow, &cut->times);
  manta__flow_close(cut->flow);
  cut->flow = NULL;
}

// --- rows that are there ------------------------------------------------------------------------

// Segments until there are n rows, or the flow ends.
static manta_status fill(struct manta__cut *cut, int64_t n, manta_error *err)
{
  while (cut->rows < n && !cut->ended) {
    struct manta__segment *s;
    manta_status st = manta__flow_next(cut->flow, &s, err);
    if (st < 0)
      return st;
    cut->ended = st == 0;
    if (st == 1) {
      *cut->last = s;
      cut->last = &s->next;
      cut->rows += s->rows - s->used;
    }
  }
  return MANTA_OK;
}

static void use(struct manta__cut *cut, int64_t n)
{
  int64_t taken = cut->position.taken + n;
  cut->rows -= n;
  while (n > 0) {
    struct manta__segment *s = cut->first;
    int64_t part = s->rows - s->used < n ? s->rows - s->used : n;
    s->used += part;
    n -= part;
    if (n == 0)
      cut->position = manta__segment_position(s);
    if (s->used == s->rows)
      drop_first(cut);
  }
  cut->position.taken = taken;
}

// --- a part of them -----------------------------------------------------------------------------

/* Rows of segments, to be copied into one batch. */
struct cut_rows {
  const manta_batch **part;
  uint32_t *which, *row;
  int parts, part_cap;
  int64_t rows;
  bool together; /* so far they are a run of rows of one batch */
};

static void rows_fini(struct cut_rows *r)
{
  manta__free((void *)(uintptr_t)r->part);
  manta__free(r->which);
  manta__free(r->row);
}

static bool add_parts(struct cut_rows *r, const struct manta__segment *s)
{
  if (r->parts + s->parts > r->part_cap) {
    int cap = 2 * (r->parts + s->parts);
    const manta_batch **more =
        manta__realloc((void *)(uintptr_t)r->part, (size_t)cap * sizeof *more);
    if (!more)
      return false;
    r->part = more;
    r->part_cap = cap;
  }
  for (int k = 0; k < s->parts; k++)
    r->part[r->parts + k] = s->part[k].batch;
  return true;
}

// Rows [from, to) of those that are not used, counted over all segments.
static manta_status list_rows(struct cut_rows *r, const struct manta__cut *cut, int64_t from,
                              int64_t to, manta_error *err)
{
  int64_t at = 0;
  for (const struct manta__segment *s = cut->first; s && at < to; s = s->next) {
    int64_t n = s->rows - s->used, a = from > at ? from - at : 0, b = to - at < n ? to - at : n;
    at += n;
    if (a >= b)
      continue;
    if (!add_parts(r, s))
      return manta_error_set(err, MANTA_ENOMEM, "no memory for a batch");
    r->together &= !s->which && r->rows == 0;
    for (int64_t i = s->used + a; i < s->used + b; i++, r->rows++) {
      r->which[r->rows] = (uint32_t)r->parts + (s->which ? s->which[i] : 0);
      r->row[r->rows] = s->row ? s->row[i] : (uint32_t)i;
    }
    r->parts += s->parts;
  }
  return MANTA_OK;
}

static manta_status begin_rows(struct cut_rows *r, int64_t n, manta_error *err)
{
  *r = (struct cut_rows){.together = true};
  r->which = manta__malloc((size_t)(n + 1) * sizeof *r->which);
  r->row = manta__malloc((size_t)(n + 1) * sizeof *r->row);
  if (r->which && r->row)
    return MANTA_OK;
  rows_fini(r);
  return manta_error_set(err, MANTA_ENOMEM, "no memory for a batch of %" PRId64 " rows", n);
}

static manta_status copy_rows(const struct cut_rows *r, manta_dataset *d, manta_batch **out,
                              manta_error *err)
{
  static const struct manta__type none;
  if (r->together && r->rows)
    return manta__batch_slice(out, r->part[0], r->row[0], r->rows, err);
  if (r->rows)
    return manta__batch_gather(out, r->part, r->parts, r->which, r->row, r->rows, d->pool, err);
  MANTA_TRY(manta__batch_create(out, d->out, 0, err)); // the part of a rank that has none
  for (int i = 0; i < d->out->count; i++) {
    (*out)->column[i].type = none;
    manta_status st =
        manta__column_make(&(*out)->column[i], &d->out->field[i].type, 0, 0, false, d->pool, err);
    if (st < 0) {
      manta_batch_destroy(*out);
      return st;
    }
    if ((*out)->column[i].offsets)
      *(int32_t *)manta__column_buffer(&(*out)->column[i], MANTA__OFFSETS) = 0;
  }
  return MANTA_OK;
}

// --- batches ------------------------------------------------------------------------------------

// Rows [from, to) behind the end: those that the last pass began with, once more or more often.
static manta_status list_padding(struct cut_rows *r, struct manta__cut *pad,
                                 const struct manta__cut *cut, int64_t from, int64_t to,
                                 manta_error *err)
{
  struct manta__cut_config c = cut->c;
  c.flow.epoch += cut->position.pass;
  c.flow.passes = 1;
  c.flow.from = (struct manta__position){0};
  MANTA_TRY(manta__cut_open(pad, &c, err));
  MANTA_TRY(fill(pad, to, err));
  if (pad->rows == 0)
    return manta_error_set(err, MANTA_EIO, "the rows that a batch is padded with are gone");
  while (from < to) { // once around, and again if the pass has fewer rows
    int64_t a = from % pad->rows, n = pad->rows - a < to - from ? pad->rows - a : to - from;
    MANTA_TRY(list_rows(r, pad, a, a + n, err));
    from += n;
  }
  return MANTA_OK;
}

// Rows [from, to) of those that are not used, if they are a run of one batch; else NULL.
static const struct manta__segment *run_of(const struct manta__cut *cut, int64_t from, int64_t to)
{
  const struct manta__segment *s = cut->first;
  return s && !s->which && from < to && to <= s->rows - s->used ? s : NULL;
}

// The rank's part of a batch of `size` rows, of which the first `have` are there.
static manta_status make_part(struct manta__cut *cut, int64_t size, int64_t have, manta_batch **out,
                              manta_error *err)
{
  struct manta__part p =
      manta__steps_part(size, 0, size, MANTA__TAIL_SHORT, 0, cut->c.rank, cut->c.ranks);
  struct cut_rows rows;
  struct manta__cut pad = {0};
  int64_t to = p.to < have ? p.to : have;
  const struct manta__segment *run = p.to <= have ? run_of(cut, p.from, p.to) : NULL;
  if (run)
    return manta__batch_slice(out, run->part[0].batch, run->used + p.from, p.to - p.from, err);
  MANTA_TRY(begin_rows(&rows, p.to - p.from, err));
  manta_status st = p.from < to ? list_rows(&rows, cut, p.from, to, err) : MANTA_OK;
  if (st == MANTA_OK && p.to > have)
    st = list_padding(&rows, &pad, cut, p.from > have ? p.from - have : 0, p.to - have, err);
  if (st == MANTA_OK)
    st = copy_rows(&rows, cut->c.flow.dataset, out, err);
  rows_fini(&rows);
  manta__cut_close(&pad);
  return st;
}

manta_status manta__cut_next(struct manta__cut *cut, manta_batch **out, manta_error *err)
{
  int64_t take = cut->c.flow.dataset->passes.take, batch = cut->c.batch_rows;
  int64_t left = take < 0 ? INT64_MAX : take - cut->position.taken;
  MANTA_TRY(fill(cut, batch < left ? batch : left, err));
  int64_t have = cut->rows < left ? cut->rows : left;
  have = have < batch ? have : batch;
  if (have <= 0 || (have < batch && cut->c.tail == MANTA_TAIL_DROP))
    return 0;
  MANTA_TRY(make_part(cut, cut->c.tail == MANTA_TAIL_PAD ? batch : have, have, out, err));
  use(cut, have);
  return (manta_status)1;
}
