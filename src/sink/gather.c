/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/gather.h"

#include <string.h>

#include <manta/trainer.h>

#include "base/alloc.h"
#include "base/pack.h"
#include "event/record.h"
#include "event/row.h"

// A packed row that waits.
struct waiting {
  int64_t wall_ns;
  size_t len;
  uint8_t data[];
};

struct manta__gather_slot {
  int64_t iteration;
  struct manta__log_place before; // the first of its rows
  int have;
  struct waiting *row[]; // by rank
};

// --- one iteration -------------------------------------------------------------------------------

static struct manta__gather_slot **slot_at(struct manta__gather *g, int64_t i)
{
  return &g->window[(uint64_t)i % MANTA__GATHER_WINDOW];
}

static void slot_free(struct manta__gather *g, struct manta__gather_slot **s)
{
  for (int r = 0; *s && r < g->world; r++)
    if ((*s)->row[r]) {
      g->bytes -= (*s)->row[r]->len;
      manta__free((*s)->row[r]);
    }
  manta__free(*s);
  *s = NULL;
}

static manta_status row_take(struct manta__sink_row *out, int rank, int64_t wall_ns,
                             const uint8_t *data, size_t len, manta_error *err)
{
  *out = (struct manta__sink_row){.rank = rank, .wall_ns = wall_ns};
  manta_status st = manta__unpack(&out->row, data, len, NULL, err);
  if (st == MANTA_ENOMEM)
    return st;
  if (st < 0 || out->row.type != MANTA_MAP) // of another program: nothing can be said of it
    manta_value_fini(&out->row);
  manta__pick_clean(&out->row);
  return MANTA_OK;
}

static manta_status send(struct manta__gather *g, int64_t iteration, struct manta__sink_row *row,
                         int count, manta_error *err)
{
  struct manta__sink_row one = {0};
  manta_status st = MANTA_OK;
  struct manta__sink_rows out = {.iteration = iteration,
                                 .complete = count == g->need,
                                 .several = g->need > 1 && g->pick->how == MANTA__AGGREGATE_NONE,
                                 .count = count,
                                 .row = row};
  for (int i = 0; i < count; i++)
    out.wall_ns = row[i].wall_ns > out.wall_ns ? row[i].wall_ns : out.wall_ns;
  if (g->pick->how != MANTA__AGGREGATE_NONE && count > 1) {
    st = manta__pick_merge(&one, row, count, g->pick->how, err);
    out.row = &one;
    out.count = 1;
  }
  if (st == MANTA_OK)
    st = g->emit(g->ctx, &out, err);
  manta_value_fini(&one.row);
  return st;
}

static manta_status send_slot(struct manta__gather *g, const struct manta__gather_slot *s,
                              manta_error *err)
{
  struct manta__sink_row *row = manta__calloc((size_t)s->have, sizeof *row);
  manta_status st = row ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory for rows");
  int n = 0;
  for (int r = 0; r < g->world && st == MANTA_OK; r++)
    if (s->row[r])
      st = row_take(&row[n++], r, s->row[r]->wall_ns, s->row[r]->data, s->row[r]->len, err);
  if (st == MANTA_OK)
    st = send(g, s->iteration, row, n, err);
  for (int i = 0; i < n; i++)
    manta_value_fini(&row[i].row);
  manta__free(row);
  return st;
}

// The oldest iteration, whole or not.
static manta_status go_out(struct manta__gather *g, manta_error *err)
{
  struct manta__gather_slot **s = slot_at(g, g->next);
  manta_status st = *s ? send_slot(g, *s, err) : MANTA_OK;
  slot_free(g, s);
  g->next++;
  return st;
}

static void clear(struct manta__gather *g)
{
  for (int i = 0; i < MANTA__GATHER_WINDOW; i++)
    slot_free(g, &g->window[i]);
}

// --- attempts ------------------------------------------------------------------------------------

manta_status manta__gather_init(struct manta__gather *g, const struct manta__pick *pick,
                                manta__gather_emit emit, void *ctx, manta_error *err)
{
  *g = (struct manta__gather){.pick = pick, .emit = emit, .ctx = ctx, .next = 1};
  g->window = manta__calloc(MANTA__GATHER_WINDOW, sizeof(struct manta__gather_slot *));
  return g->window ? MANTA_OK : manta_error_set(err, MANTA_ENOMEM, "no memory to gather rows");
}

void manta__gather_fini(struct manta__gather *g)
{
  if (g->window)
    clear(g);
  manta__free(g->window);
  manta__free(g->spoke);
  *g = (struct manta__gather){0};
}

manta_status manta__gather_reset(struct manta__gather *g, uint32_t attempt, int world, int64_t last,
                                 manta_error *err)
{
  clear(g);
  world = world < 0 ? 0 : world > MANTA_MAX_RANKS ? MANTA_MAX_RANKS : world;
  bool *spoke = manta__calloc((size_t)world + 1, sizeof *spoke);
  if (!spoke)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to gather rows");
  manta__free(g->spoke);
  g->spoke = spoke;
  g->attempt = attempt;
  g->world = world;
  g->need = manta__pick_need(g->pick, world);
  g->next = last + 1;
  g->newest = last;
  g->first_ns = 0;
  return MANTA_OK;
}

manta_status manta__gather_begin(struct manta__gather *g, uint32_t attempt, int world, int64_t base,
                                 manta_error *err)
{
  while (g->next <= g->newest && g->next <= base)
    MANTA_TRY(go_out(g, err));
  return manta__gather_reset(g, attempt, world, base, err);
}

// --- rows ----------------------------------------------------------------------------------------

static struct manta__gather_slot *slot_make(struct manta__gather *g, int64_t i,
                                            const struct manta__log_place *before)
{
  struct manta__gather_slot **s = slot_at(g, i);
  if (!*s && (*s = manta__calloc(1, sizeof **s + (size_t)g->world * sizeof(struct waiting *)))) {
    (*s)->iteration = i;
    (*s)->before = *before;
  }
  return *s;
}

static manta_status keep(struct manta__gather *g, const struct manta__record *h,
                         const uint8_t *payload, int64_t i, const struct manta__log_place *before,
                         manta_error *err)
{
  struct manta__gather_slot *s = slot_make(g, i, before);
  if (s && s->row[h->id.rank])
    return MANTA_OK; // it was salvaged twice
  struct waiting *w = s ? manta__malloc(sizeof *w + h->len) : NULL;
  if (!w)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a row of %u bytes", h->len);
  w->wall_ns = h->wall_ns;
  w->len = h->len;
  memcpy(w->data, payload, h->len);
  s->row[h->id.rank] = w;
  s->have++;
  g->bytes += h->len;
  return MANTA_OK;
}

// Nobody else has to be waited for.
static manta_status pass(struct manta__gather *g, const struct manta__record *h,
                         const uint8_t *payload, int64_t i, manta_error *err)
{
  struct manta__sink_row row;
  MANTA_TRY(row_take(&row, h->id.rank, h->wall_ns, payload, h->len, err));
  manta_status st = send(g, i, &row, 1, err);
  manta_value_fini(&row.row);
  g->next = i + 1;
  g->newest = i;
  return st;
}

static manta_status send_ready(struct manta__gather *g, manta_error *err)
{
  while (g->next <= g->newest) {
    struct manta__gather_slot *s = *slot_at(g, g->next);
    if (!s || s->have < g->need)
      break;
    MANTA_TRY(go_out(g, err));
  }
  return MANTA_OK;
}

manta_status manta__gather_row(struct manta__gather *g, const struct manta__record *h,
                               const uint8_t *payload, const struct manta__log_place *before,
                               manta_error *err)
{
  int rank = h->id.rank;
  if (rank < 0 || rank >= g->world || h->id.attempt != g->attempt ||
      !manta__pick_wants(g->pick, rank))
    return MANTA_OK;
  int64_t i = manta__row_iteration(payload, h->len);
  if (i < g->next)
    return MANTA_OK;
  if (g->need == 1)
    return pass(g, h, payload, i, err);
  g->spoke[rank] = true;
  if (g->first_ns == 0)
    g->first_ns = h->wall_ns;
  while (i - g->next >= MANTA__GATHER_WINDOW || (g->bytes > MANTA__GATHER_BYTES && i > g->next))
    MANTA_TRY(go_out(g, err));
  MANTA_TRY(keep(g, h, payload, i, before, err));
  if (i > g->newest)
    g->newest = i;
  return send_ready(g, err);
}

// Whether all that the iteration lacks is ranks that never spoke.
static bool lacks_silent(const struct manta__gather *g, const struct manta__gather_slot *s)
{
  for (int r = 0; s && r < g->world; r++)
    if (manta__pick_wants(g->pick, r) && !s->row[r] && g->spoke[r])
      return false;
  return s != NULL;
}

manta_status manta__gather_idle(struct manta__gather *g, int64_t wall_ns, manta_error *err)
{
  bool late = g->first_ns && wall_ns - g->first_ns > (int64_t)(MANTA__GATHER_SILENT_S * 1e9);
  while (late && g->next <= g->newest && lacks_silent(g, *slot_at(g, g->next)))
    MANTA_TRY(go_out(g, err));
  return MANTA_OK;
}

manta_status manta__gather_end(struct manta__gather *g, manta_error *err)
{
  while (g->next <= g->newest)
    MANTA_TRY(go_out(g, err));
  return MANTA_OK;
}

struct manta__log_place manta__gather_place(const struct manta__gather *g,
                                            struct manta__log_place now)
{
  for (int64_t i = g->next; i <= g->newest; i++) {
    const struct manta__gather_slot *s = g->window[(uint64_t)i % MANTA__GATHER_WINDOW];
    if (s)
      return s->before;
  }
  return now;
}
