/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader/flow.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"

#define NONE UINT32_MAX

struct manta__flow {
  struct manta__flow_config c;
  struct manta__feed *feed;
  int64_t window; /* 1: rows are not mixed */
  int64_t blocks;
  int64_t pass, ticket;   /* of the block that is being read */
  int64_t base;           /* rows of the files in front of it, in its pass */
  int64_t at;             /* rows of the files that were seen in its pass */
  int64_t start;          /* those in front of this are passed over */
  struct manta__fed held; /* that a window had no room for; batch NULL: none */
};

// --- segments -----------------------------------------------------------------------------------

void manta__flow_drop(struct manta__flow *f, struct manta__segment *s)
{
  if (!s)
    return;
  for (int i = 0; i < s->parts; i++)
    manta_batch_destroy(s->part[i].batch);
  if (s->bytes)
    manta__feed_drop(f->feed, s->bytes);
  manta__free(s->part);
  manta__free(s->which);
  manta__free(s->row);
  manta__free(s->place);
  manta__free(s);
}

// The number of row i in the order.
static int64_t number_of(const struct manta__segment *s, int64_t i)
{
  if (s->place)
    return s->first + s->place[i];
  return s->part[0].base + manta__batch_source(s->part[0].batch, i);
}

struct manta__position manta__segment_position(const struct manta__segment *s)
{
  bool done = s->used == s->rows;
  int64_t last = number_of(s, s->used - 1), inside = 0;
  if (!done && number_of(s, s->used) == last)
    while (inside < s->used && number_of(s, s->used - 1 - inside) == last)
      inside++;
  return (struct manta__position){.pass = s->pass,
                                  .rows = done ? s->end : last + (inside == 0),
                                  .inside = inside,
                                  .ticket = s->ticket[done],
                                  .before = s->before[done]};
}

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory to put rows in order");
}

static manta_status add_part(struct manta__flow *f, struct manta__segment *s,
                             const struct manta__fed *fed, manta_error *err)
{
  if (s->parts == s->cap) {
    int cap = s->cap ? 2 * s->cap : 4;
    struct manta__segment_part *more = manta__realloc(s->part, (size_t)cap * sizeof *more);
    if (!more)
      return no_memory(err);
    s->part = more;
    s->cap = cap;
  }
  int last = s->parts > 0;
  s->ticket[1] = f->ticket;
  s->before[1] = f->base;
  if (!last) {
    s->ticket[0] = f->ticket;
    s->before[0] = f->base;
  }
  s->part[s->parts++] = (struct manta__segment_part){fed->batch, f->base};
  s->rows += fed->batch->rows;
  s->bytes += fed->bytes;
  if (s->bytes > f->c.memory_limit && f->window == 1)
    return manta_error_set(err, MANTA_ETOOBIG,
                           "rows are parsed %" PRId64 " at a time, which are %zu bytes: the memory "
                           "limit is %zu\nhint: set a memory limit of %zu or more, or choose fewer "
                           "columns",
                           fed->batch->rows, s->bytes, f->c.memory_limit, 4 * s->bytes);
  if (s->bytes > f->c.memory_limit)
    return manta_error_set(err, MANTA_ETOOBIG,
                           "a window of %" PRId64 " rows does not fit into %zu bytes: %" PRId64
                           " rows have %zu\nhint: shuffle with a smaller window, or set a larger "
                           "memory limit",
                           f->window, f->c.memory_limit, f->at - s->first, s->bytes);
  return MANTA_OK;
}

// --- order --------------------------------------------------------------------------------------

// table[place] becomes the number of the row, in the order of the parts, that goes there: the first
// of those that were made of one.
static void place_rows(const struct manta__flow *f, const struct manta__segment *s, uint32_t *table)
{
  int64_t size = s->end - s->first;
  struct manta__shuffle shuffle = manta__order_window(
      size, f->c.dataset->passes.seed, (uint64_t)(f->c.epoch + s->pass), s->first / f->window);
  uint32_t row = 0;
  memset(table, 0xff, (size_t)size * sizeof *table);
  for (int k = 0; k < s->parts; k++)
    for (int64_t i = 0; i < s->part[k].batch->rows; i++) {
      int64_t read = s->part[k].base + manta__batch_source(s->part[k].batch, i);
      uint32_t *at = &table[manta__shuffle_find(&shuffle, (uint64_t)(read - s->first))];
      *at = *at == NONE ? row : *at;
      row++;
    }
}

static void list_rows(struct manta__segment *s, const uint32_t *table, const uint32_t *part_of,
                      const uint32_t *first_of)
{
  int64_t at = 0;
  for (int64_t p = 0; p < s->end - s->first; p++) {
    if (table[p] == NONE)
      continue;
    uint32_t part = part_of[table[p]], row = table[p] - first_of[part];
    const manta_batch *b = s->part[part].batch;
    int64_t source = manta__batch_source(b, row);
    for (; row < b->rows && manta__batch_source(b, row) == source; at++) {
      s->place[at] = (uint32_t)p;
      s->which[at] = part;
      s->row[at] = row++;
    }
  }
}

static manta_status mix(const struct manta__flow *f, struct manta__segment *s, manta_error *err)
{
  size_t n = (size_t)s->rows;
  uint32_t *table = manta__malloc((size_t)(s->end - s->first) * sizeof *table);
  uint32_t *part_of = manta__malloc(n * sizeof *part_of + 1);
  uint32_t *first_of = manta__malloc((size_t)s->parts * sizeof *first_of + 1);
  s->which = manta__malloc(n * sizeof *s->which + 1);
  s->row = manta__malloc(n * sizeof *s->row + 1);
  s->place = manta__malloc(n * sizeof *s->place + 1);
  bool ok = table && part_of && first_of && s->which && s->row && s->place;
  if (ok) {
    uint32_t row = 0;
    for (int k = 0; k < s->parts; k++) {
      first_of[k] = row;
      for (int64_t i = 0; i < s->part[k].batch->rows; i++)
        part_of[row++] = (uint32_t)k;
    }
    place_rows(f, s, table);
    list_rows(s, table, part_of, first_of);
  }
  manta__free(table);
  manta__free(part_of);
  manta__free(first_of);
  return ok ? MANTA_OK : no_memory(err);
}

// Nothing more belongs to it: puts its rows in order, and passes over those of the position.
static manta_status finish(const struct manta__flow *f, struct manta__segment *s, manta_error *err)
{
  s->end = f->at;
  if (f->window > 1 && s->rows)
    MANTA_TRY(mix(f, s, err));
  if (s->pass == f->c.from.pass) {
    while (s->used < s->rows && number_of(s, s->used) < f->c.from.rows)
      s->used++;
    for (int64_t i = 0;
         i < f->c.from.inside && s->used < s->rows && number_of(s, s->used) == f->c.from.rows; i++)
      s->used++;
  }
  return MANTA_OK;
}

// --- reading ------------------------------------------------------------------------------------

// The next batch, and where it lies; f->at is where it begins.
static manta_status fetch(struct manta__flow *f, struct manta__fed *out, manta_error *err)
{
  if (f->held.batch) {
    *out = f->held;
    f->held.batch = NULL;
    return (manta_status)1;
  }
  return manta__feed_next(f->feed, out, err);
}

static void enter(struct manta__flow *f, const struct manta__fed *fed)
{
  int64_t pass = fed->ticket / f->blocks, ticket = fed->ticket % f->blocks;
  if (pass != f->pass)
    f->at = f->start = 0;
  if (pass != f->pass || ticket != f->ticket)
    f->base = f->at;
  f->pass = pass;
  f->ticket = ticket;
}

// Keeps the rows of a batch in front of `end`, in the order as read, and gives the others.
static manta_status split(struct manta__flow *f, struct manta__fed *fed, int64_t end,
                          struct manta__fed *rest, manta_error *err)
{
  manta_batch *b = fed->batch, *front = NULL, *back = NULL;
  int64_t n = 0, many = b->rows;
  while (n < many) { // rows rise
    int64_t middle = n + (many - n) / 2;
    if (f->base + manta__batch_source(b, middle) < end)
      n = middle + 1;
    else
      many = middle;
  }
  manta_status st = manta__batch_slice(&front, b, 0, n, err);
  if (st == MANTA_OK)
    st = manta__batch_slice(&back, b, n, b->rows - n, err);
  if (st < 0) {
    manta_batch_destroy(front);
    return st;
  }
  front->source_rows = end - f->at;
  back->source_rows = f->at + b->source_rows - end;
  *rest = (struct manta__fed){back, fed->ticket, fed->bytes};
  *fed =
      (struct manta__fed){front, fed->ticket, 0}; // its memory is there as long as that of the rest
  manta_batch_destroy(b);
  return MANTA_OK;
}

static void discard(struct manta__flow *f, struct manta__fed *fed)
{
  if (fed->bytes)
    manta__feed_drop(f->feed, fed->bytes);
  manta_batch_destroy(fed->batch);
  fed->batch = NULL;
}

// Passes over what lies in front of the start: then *fed has what is left of it, or no batch.
static manta_status skip(struct manta__flow *f, struct manta__fed *fed, manta_error *err)
{
  struct manta__fed rest;
  int64_t end = f->at + fed->batch->source_rows;
  if (f->at >= f->start)
    return MANTA_OK;
  if (end > f->start) {
    int64_t start = f->start;
    MANTA_TRY(split(f, fed, start, &rest, err));
    manta_batch_destroy(fed->batch);
    *fed = rest;
    f->at = start;
    return MANTA_OK;
  }
  discard(f, fed);
  f->at = end;
  return MANTA_OK;
}

// Adds a batch to the segment; 1: the segment is complete.
static manta_status take(struct manta__flow *f, struct manta__segment *s, struct manta__fed *fed,
                         manta_error *err)
{
  int64_t end = f->at + fed->batch->source_rows;
  int64_t until = f->window > 1 ? s->first + f->window : end;
  if (end > until) {
    MANTA_TRY(split(f, fed, until, &f->held, err));
    end = until;
  }
  f->at = end;
  manta_status st = add_part(f, s, fed, err);
  if (st == MANTA_OK || st == MANTA_ETOOBIG)
    fed->batch = NULL; // the segment's
  return st < 0 ? st : (manta_status)(end == until);
}

// Batches until a window is full or the pass is over; 0: there are none.
static manta_status collect(struct manta__flow *f, struct manta__segment *s, manta_error *err)
{
  struct manta__fed fed = {0};
  for (;;) {
    manta_status st = fetch(f, &fed, err);
    if (st < 0)
      return st;
    if (st == 0)
      return (manta_status)(s->parts > 0);
    if (s->parts && fed.ticket / f->blocks != s->pass) { // the first of another pass
      f->held = fed;
      return (manta_status)1;
    }
    enter(f, &fed);
    st = skip(f, &fed, err);
    if (st == MANTA_OK && !fed.batch)
      continue;
    if (st == MANTA_OK && !s->parts) {
      s->pass = f->pass;
      s->first = f->at;
    }
    if (st == MANTA_OK)
      st = take(f, s, &fed, err);
    if (fed.batch)
      discard(f, &fed);
    if (st != 0)
      return st;
  }
}

manta_status manta__flow_next(struct manta__flow *f, struct manta__segment **out, manta_error *err)
{
  for (;;) {
    struct manta__segment *s = manta__calloc(1, sizeof *s);
    if (!s)
      return no_memory(err);
    manta_status st = collect(f, s, err);
    if (st == 1) {
      manta_status put = finish(f, s, err);
      st = put < 0 ? put : st;
    }
    if (st == 1 && s->used < s->rows) {
      *out = s;
      return st;
    }
    manta__flow_drop(f, s);
    if (st != 1)
      return st;
  }
}

void manta__flow_add_times(struct manta__flow *f, struct manta__feed_times *to)
{
  manta__feed_add_times(f->feed, to);
}

// --- life ---------------------------------------------------------------------------------------

void manta__flow_close(struct manta__flow *f)
{
  if (!f)
    return;
  manta_batch_destroy(f->held.batch);
  manta__feed_close(f->feed);
  manta__free(f);
}

manta_status manta__flow_open(struct manta__flow **out, const struct manta__flow_config *c,
                              manta_error *err)
{
  struct manta__flow *f = manta__calloc(1, sizeof *f);
  if (!f)
    return no_memory(err);
  const struct manta__passes *p = &c->dataset->passes;
  f->c = *c;
  f->blocks = c->dataset->blocks;
  f->window = p->shuffles && p->window > 1 ? p->window : 1;
  f->pass = c->from.pass;
  f->ticket = c->from.ticket;
  f->base = f->at = c->from.before;
  f->start = c->from.rows / f->window * f->window;
  struct manta__feed_config feed = {.dataset = c->dataset,
                                    .epoch = c->epoch,
                                    .passes = c->passes,
                                    .ticket = c->from.pass * f->blocks + c->from.ticket,
                                    .threads = c->threads,
                                    .room = c->memory_limit / 2,
                                    .limit = c->memory_limit};
  manta_status st = manta__feed_open(&f->feed, &feed, err);
  if (st < 0) {
    manta__free(f);
    return st;
  }
  *out = f;
  return MANTA_OK;
}
