/* SPDX-License-Identifier: Apache-2.0
 *
 * data/csv/cut.c - a file becomes byte ranges that begin where rows do.
 *
 * A byte lies inside of quotes if the number of quotes in front of it is odd: by (2) of csv.h that
 * is so in every file that can be read at all, and it takes one pass over the file from its first
 * byte on, at the speed of the memory. At each multiple of block_bytes the pass goes on to the next
 * newline that is outside, and that is where a block ends. A file that is not larger than a block
 * is not looked at; of one without quotes only what lies around the cuts is, which gives the same.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/csv/csv.h"

#define CHUNK (1u << 20)
#define NEAR  (64 << 10) /* looked at first around a cut */

/* A pass over a file, or a part of it. */
struct csv_pass {
  struct manta__window window;
  struct manta__csv_marks marks;
  struct manta__csv_index state;
};

static manta_status open_pass(struct csv_pass *p, const struct manta__file *f, int64_t from,
                              int64_t to, manta_error *err)
{
  *p = (struct csv_pass){.marks = manta__csv_marks_of(f), .state = {.ended = true}};
  return manta__window_open(&p->window, f->source, from, to, f->compression, CHUNK, CHUNK, err);
}

// Where the first row begins at `target` or behind it, counted from the beginning of the pass; the
// end if there is none.
static manta_status pass_to(struct csv_pass *p, int64_t target, int64_t *out, manta_error *err)
{
  struct manta__window *w = &p->window;
  const struct manta__csv_isa *isa = manta__csv_isa();
  for (;;) {
    int64_t here = w->offset + (int64_t)w->at;
    size_t there = w->end - w->at;
    size_t wanted = target - here < (int64_t)there ? (size_t)(target - here) : SIZE_MAX;
    size_t went = there ? isa->index(w->base + w->at, there, &p->marks, wanted, &p->state) : 0;
    w->at += went;
    *out = w->offset + (int64_t)w->at;
    if (there && p->state.ended && *out >= target)
      return MANTA_OK;
    if (w->at == w->end && w->last)
      return MANTA_OK;
    if (w->at == w->end)
      MANTA_TRY(manta__window_more(w, err));
  }
}

// The same for one cut of a file without quotes: from the byte in front of it on, which may end a
// row, as far as the next newline is.
static manta_status look_near(const struct manta__file *f, int64_t target, int64_t *out,
                              manta_error *err)
{
  int64_t size = f->source->size, from = target - 1;
  for (int64_t reach = NEAR;; reach *= 8) {
    struct csv_pass p;
    int64_t to = size - from > reach ? from + reach : size;
    MANTA_TRY(open_pass(&p, f, from, to, err));
    p.state.ended = false;
    manta_status st = pass_to(&p, 1, out, err);
    bool found = p.state.ended;
    manta__window_close(&p.window);
    *out += from;
    if (st < 0 || to == size || found)
      return st;
  }
}

manta_status manta__csv_cut(const struct manta__file *f, int32_t number, struct manta__blocks *out,
                            manta_error *err)
{
  struct csv_pass p;
  int64_t from = 0, to = 0, size = f->source->size, each = (int64_t)f->config->block_bytes;
  if (size <= each)
    return manta__blocks_add(out, (struct manta__block){number, 0, size}, err);
  bool near = f->config->no_quotes && f->compression == MANTA__PLAIN;
  MANTA_TRY(open_pass(&p, f, 0, near ? 0 : size, err));
  manta_status st = MANTA_OK;
  while (from < size && st == MANTA_OK) {
    int64_t left = size - from; // a small rest is no block of its own
    int64_t target = left - left / 4 > each ? from + each : size;
    if (near && target == size)
      to = size;
    else
      st = near ? look_near(f, target, &to, err) : pass_to(&p, target, &to, err);
    to = st == MANTA_OK && size - to > 0 ? to : size;
    if (st == MANTA_OK)
      st = manta__blocks_add(out, (struct manta__block){number, from, to}, err);
    from = to;
  }
  manta__window_close(&p.window);
  return st;
}

manta_status manta__csv_count(const struct manta__file *f, const struct manta__block *block,
                              int64_t *out, manta_error *err)
{
  struct csv_pass p;
  struct manta__csv_head head;
  int64_t end;
  MANTA_TRY(manta__csv_head_read(&head, f, err));
  int64_t skip = head.skip, first = manta__csv_first(&head, block);
  manta__csv_head_fini(&head);
  bool packed = f->compression != MANTA__PLAIN;
  MANTA_TRY(open_pass(&p, f, packed ? 0 : first, block->to, err));
  manta_status st = packed && skip ? pass_to(&p, skip, &end, err) : MANTA_OK;
  p.state.rows = 0;
  if (st == MANTA_OK)
    st = pass_to(&p, INT64_MAX, &end, err);
  // a last row without its newline
  *out = p.state.rows + (!p.state.ended && !p.state.carriage && end > 0);
  manta__window_close(&p.window);
  return st;
}
