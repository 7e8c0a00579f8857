/* SPDX-License-Identifier: Apache-2.0 */
#include "train/align.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"

void manta__rowset_free(struct manta__rowset *s)
{
  for (int r = 0; s && r < s->world; r++)
    manta__free(s->row[r]);
  manta__free(s);
}

manta_status manta__align_init(struct manta__align *a, bool drop, manta_error *err)
{
  *a = (struct manta__align){.drop = drop, .rewound_to = -1, .next = 1};
  a->window = manta__calloc(MANTA__ALIGN_WINDOW, sizeof *a->window);
  return a->window ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory to align reports");
}

static struct manta__rowset **slot(struct manta__align *a, int64_t i)
{
  return &a->window[i % MANTA__ALIGN_WINDOW];
}

static void clear_window(struct manta__align *a)
{
  for (int i = 0; a->window && i < MANTA__ALIGN_WINDOW; i++) {
    manta__rowset_free(a->window[i]);
    a->window[i] = NULL;
  }
  a->bytes = 0;
}

void manta__align_fini(struct manta__align *a)
{
  clear_window(a);
  for (struct manta__rowset *s = a->out_first, *next; s; s = next) {
    next = s->next;
    manta__rowset_free(s);
  }
  manta__free(a->window);
  manta__free(a->count);
  manta__free(a->ended);
  *a = (struct manta__align){0};
}

// --- going out ----------------------------------------------------------------------------------

static bool complete(const struct manta__align *a, int64_t i)
{
  for (int r = 0; r < a->world; r++)
    if (!a->ended[r] && a->base + a->count[r] < i)
      return false;
  return true;
}

static void name_missing(struct manta__align *a, const struct manta__rowset *s)
{
  if (a->warned || s->have == a->world)
    return;
  a->warned = true;
  static const char end[] = "; such rows are delivered with gaps";
  int r = 0, n = snprintf(a->warning, sizeof a->warning, "iteration %lld has no row of rank",
                          (long long)s->iteration);
  for (; r < a->world && n < (int)(sizeof a->warning - sizeof end - 24); r++)
    if (!s->row[r])
      n += snprintf(a->warning + n, sizeof a->warning - (size_t)n, " %d", r);
  snprintf(a->warning + n, sizeof a->warning - (size_t)n, "%s%s", r < a->world ? " and more" : "",
           end);
}

// Sends out iteration a->next, whatever is there of it.
static void emit(struct manta__align *a)
{
  struct manta__rowset **p = slot(a, a->next), *s = *p;
  *p = NULL;
  a->next++;
  if (!s)
    return; // nobody listens, or no rank had a row
  name_missing(a, s);
  a->bytes -= s->bytes;
  s->rewound_to = a->rewound_to;
  a->rewound_to = -1;
  if (a->out_last)
    a->out_last->next = s;
  else
    a->out_first = s;
  a->out_last = s;
}

static void emit_ready(struct manta__align *a)
{
  while (a->next <= a->newest && complete(a, a->next))
    emit(a);
}

struct manta__rowset *manta__align_take(struct manta__align *a, struct manta__rowset **last_out)
{
  struct manta__rowset *first = a->out_first;
  *last_out = a->out_last;
  a->out_first = a->out_last = NULL;
  return first;
}

// --- attempts -----------------------------------------------------------------------------------

// Iterations that are ready but were not taken yet: what lies beyond `base` will come again.
static void drop_ready(struct manta__align *a, int64_t base)
{
  struct manta__rowset **p = &a->out_first, *last = NULL;
  while (*p && (*p)->iteration <= base) {
    last = *p;
    p = &last->next;
  }
  for (struct manta__rowset *s = *p, *next; s; s = next) {
    next = s->next;
    manta__rowset_free(s);
  }
  *p = NULL;
  a->out_last = last;
}

// What an earlier attempt left: up to `base` it counts, beyond it is void.
static void settle(struct manta__align *a, int64_t base)
{
  drop_ready(a, base);
  while (a->next <= a->newest && a->next <= base)
    emit(a);
  clear_window(a);
}

manta_status manta__align_begin(struct manta__align *a, int world, int64_t base, bool rewind,
                                manta_error *err)
{
  settle(a, base);
  int64_t *count = manta__calloc((size_t)world, sizeof *count);
  bool *ended = manta__calloc((size_t)world, sizeof *ended);
  if (!count || !ended) {
    manta__free(count);
    manta__free(ended);
    return manta_error_set(err, MANTA_ENOMEM, "no memory to align reports of %d ranks", world);
  }
  manta__free(a->count);
  manta__free(a->ended);
  a->count = count;
  a->ended = ended;
  a->world = world;
  a->base = base;
  a->next = base + 1;
  a->newest = base;
  if (rewind)
    a->rewound_to = base;
  return MANTA_OK;
}

// --- rows ---------------------------------------------------------------------------------------

static struct manta__rowset *rowset_at(struct manta__align *a, int64_t i)
{
  struct manta__rowset **p = slot(a, i);
  size_t bytes = sizeof **p + sizeof(struct manta__row *) * (size_t)a->world;
  if (!*p && (*p = manta__calloc(1, bytes))) {
    (*p)->iteration = i;
    (*p)->world = a->world;
    (*p)->bytes = bytes;
    a->bytes += bytes;
  }
  return *p;
}

static manta_status keep(struct manta__align *a, int rank, int64_t i, const void *data, size_t len)
{
  struct manta__row *row = manta__malloc(sizeof *row + len);
  struct manta__rowset *s = row ? rowset_at(a, i) : NULL;
  if (!s) {
    manta__free(row);
    return MANTA_ENOMEM;
  }
  row->len = (uint32_t)len;
  memcpy(row->data, data, len);
  s->row[rank] = row;
  s->have++;
  s->bytes += len;
  a->bytes += len;
  return MANTA_OK;
}

manta_status manta__align_push(struct manta__align *a, int rank, int64_t iteration,
                               const void *data, size_t len, manta_error *err)
{
  if (rank < 0 || rank >= a->world || iteration != a->base + a->count[rank] + 1)
    return manta_error_set(err, MANTA_EPROTO, "rank %d sent iteration %lld out of order", rank,
                           (long long)iteration);
  while (iteration - a->next >= MANTA__ALIGN_WINDOW)
    emit(a);
  a->count[rank]++;
  if (iteration > a->newest)
    a->newest = iteration;
  // A row that comes after its iteration went out with gaps is counted, and is in run.log.
  manta_status st = MANTA_OK;
  if (!a->drop && iteration >= a->next && keep(a, rank, iteration, data, len) < 0)
    st = manta_error_set(err, MANTA_ENOMEM, "no memory for a row of %zu bytes", len);
  while (a->bytes > MANTA__ALIGN_BYTES && a->next <= a->newest)
    emit(a);
  if (iteration == a->next)
    emit_ready(a); // also without memory for it: the others' rows must not wait
  return st;
}

void manta__align_end(struct manta__align *a, int rank)
{
  if (rank < 0 || rank >= a->world)
    return;
  a->ended[rank] = true;
  emit_ready(a);
}

manta_status manta__align_check(struct manta__align *a, bool strict, manta_error *err)
{
  int64_t most = 0;
  int silent = 0, fewer = 0;
  for (int r = 0; r < a->world; r++)
    most = a->count[r] > most ? a->count[r] : most;
  for (int r = 0; r < a->world; r++) {
    silent += a->count[r] == 0 && most > 0;
    fewer += a->count[r] != 0 && a->count[r] < most;
  }
  if (fewer == 0 && (silent == 0 || !strict)) {
    if (silent && !a->warned)
      snprintf(a->warning, sizeof a->warning, "%d of %d ranks reported nothing", silent, a->world);
    return MANTA_OK;
  }
  char text[512];
  int n = 0;
  for (int r = 0; r < a->world && n < (int)sizeof text - 40; r++)
    n += snprintf(text + n, sizeof text - (size_t)n, "%srank %d: %lld", r ? ", " : "", r,
                  (long long)a->count[r]);
  return manta_error_set(err, MANTA_EUNEVEN, "ranks reported different numbers of rows (%s)", text);
}
