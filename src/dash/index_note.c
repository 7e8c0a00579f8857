/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/index_note.c - the records of a log that are no rows: what happened to the run.
 */
#include "dash/index_note.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static int64_t int_of(const manta_value *map, const char *key, int64_t dflt)
{
  return manta_value_as_int(manta_value_get(map, key), dflt);
}

static const char *text_of(const manta_value *map, const char *key)
{
  return manta_value_as_string(manta_value_get(map, key), "");
}

// Room for entry `n` of a ring that grows up to `most` entries; their number doubles.
static manta_status grow_ring(void **ring, uint64_t n, size_t most, size_t size)
{
  if (n >= most || (n & (n - 1)) != 0) // room for n is there, or for the next power of two
    return MANTA_OK;
  void *p = manta__realloc(*ring, (n ? 2 * n : 1) * size);
  if (!p)
    return MANTA_ENOMEM;
  *ring = p;
  return MANTA_OK;
}

// The oldest makes room.
static manta_status add_mark(struct manta__index *x, const struct manta__record *h,
                             enum manta__mark_kind kind, int64_t rank, const char *text)
{
  void *ring = x->mark;
  MANTA_TRY(grow_ring(&ring, x->marks, MANTA__INDEX_MARKS, sizeof *x->mark));
  x->mark = ring;
  struct manta__mark *m = &x->mark[x->marks % MANTA__INDEX_MARKS];
  char *copy = manta__strndup(text, strnlen(text, MANTA__INDEX_TEXT));
  if (!copy)
    return MANTA_ENOMEM;
  if (x->marks >= MANTA__INDEX_MARKS)
    manta__free(m->text);
  *m = (struct manta__mark){.kind = kind,
                            .wall_ns = h->wall_ns,
                            .iteration = x->ranks > 0 ? x->rank[0].iteration : 0,
                            .rank = rank >= 0 && rank < MANTA__INDEX_RANKS ? (int)rank : -1,
                            .text = copy};
  x->marks++;
  return MANTA_OK;
}

static manta_status take_attempt(struct manta__index *x, const struct manta__record *h,
                                 const manta_value *v)
{
  char text[96];
  int64_t world = int_of(v, "world", 0), from = int_of(v, "from", 0);
  x->attempts++;
  x->attempt = h->id.attempt;
  x->world = world > 0 && world <= MANTA__INDEX_RANKS ? (int)world : 0;
  x->ended = x->failed = false; // a run that ended and goes on again has not finished
  for (int i = 0; i < x->ranks; i++)
    x->rank[i].lost = false;
  snprintf(text, sizeof text, "attempt %d: %lld worker%s after iteration %lld", x->attempts,
           (long long)world, world == 1 ? "" : "s", (long long)from);
  return add_mark(x, h, MANTA__MARK_ATTEMPT, -1, text);
}

static manta_status take_lost(struct manta__index *x, const struct manta__record *h,
                              const manta_value *v)
{
  char text[MANTA__INDEX_TEXT];
  int64_t rank = int_of(v, "rank", -1);
  const char *host = text_of(v, "host");
  x->lost++;
  if (rank >= 0 && rank < x->ranks)
    x->rank[rank].lost = true;
  if (rank >= 0)
    snprintf(text, sizeof text, "rank %lld%s%s: %s", (long long)rank, *host ? " on " : "", host,
             text_of(v, "cause"));
  else
    snprintf(text, sizeof text, "%s", text_of(v, "cause"));
  return add_mark(x, h, MANTA__MARK_LOST, rank, text);
}

static manta_status take_ckpt(struct manta__index *x, const struct manta__record *h,
                              const manta_value *v)
{
  void *ring = x->ckpt;
  MANTA_TRY(grow_ring(&ring, x->ckpts, MANTA__INDEX_CKPTS, sizeof *x->ckpt));
  x->ckpt = ring;
  struct manta__ckpt_mark *c = &x->ckpt[x->ckpts++ % MANTA__INDEX_CKPTS];
  *c = (struct manta__ckpt_mark){.wall_ns = h->wall_ns,
                                 .iteration = int_of(v, "iteration", 0),
                                 .bytes = int_of(v, "bytes", 0),
                                 .score = manta_value_as_real(manta_value_get(v, "score"), NAN)};
  snprintf(c->dir, sizeof c->dir, "%s", text_of(v, "dir"));
  return MANTA_OK;
}

static manta_status take_finish(struct manta__index *x, const struct manta__record *h,
                                const manta_value *v)
{
  const char *status = text_of(v, "status"), *message = text_of(v, "message");
  x->ended = true;
  x->failed = strcmp(status, "OK") != 0;
  if (!x->failed)
    return add_mark(x, h, MANTA__MARK_FINISH, -1, "finished");
  manta__free(x->message);
  const char *why = *message ? message : status;
  if (!(x->message = manta__strndup(why, strnlen(why, MANTA__INDEX_MESSAGE))))
    return MANTA_ENOMEM;
  return add_mark(x, h, MANTA__MARK_FINISH, -1, x->message);
}

// --- Samples -------------------------------------------------------------------------------------

static manta_status add_point(struct manta__index *x, const char *name, int rank, double t,
                              double value)
{
  uint32_t at;
  if (isnan(value) || !(t >= 0) || t > 1e10)
    return MANTA_OK;
  manta_status st = manta__index_series(x, name, strlen(name), rank, &at);
  if (st == MANTA_OK)
    st = manta__curve_add(&x->series[at], (int64_t)t, t, value);
  return st == MANTA_ENOMEM ? st : MANTA_OK;
}

static double real_of(const manta_value *map, const char *key)
{
  return manta_value_as_real(manta_value_get(map, key), NAN);
}

static manta_status take_worker(struct manta__index *x, int64_t wall_ns, const char *host,
                                const manta_value *w)
{
  struct manta__rank_state *r;
  int64_t rank = int_of(w, "rank", -1);
  double t = (double)(wall_ns - x->begin_ns) / 1e9;
  if (rank < 0 || rank >= MANTA__INDEX_RANKS)
    return MANTA_OK;
  MANTA_TRY(manta__index_rank(x, (int)rank, &r));
  if (!r->host || strcmp(r->host, host)) {
    manta__free(r->host);
    if (!(r->host = manta__strndup(host, strnlen(host, 255))))
      return MANTA_ENOMEM;
  }
  r->pid = (int)int_of(w, "pid", 0);
  r->sample_ns = wall_ns;
  r->cpu = real_of(w, "cpu");
  r->rss = int_of(w, "rss", 0);
  r->gpu_memory = real_of(w, "gpu_memory");
  r->gpu_use = real_of(w, "gpu_use");
  double rss = (double)r->rss, cpu = r->cpu, gpu = r->gpu_memory;
  MANTA_TRY(add_point(x, MANTA__CPU_NAME, (int)rank, t, cpu));
  MANTA_TRY(add_point(x, MANTA__GPU_NAME, (int)rank, t, gpu));
  return add_point(x, MANTA__RSS_NAME, (int)rank, t, rss);
}

static manta_status take_sample(struct manta__index *x, const struct manta__record *h,
                                const manta_value *v)
{
  const manta_value *workers = manta_value_get(v, "workers");
  manta_status st = MANTA_OK;
  for (size_t i = 0; st == MANTA_OK && workers && workers->type == MANTA_LIST &&
                     i < workers->count && i < MANTA__INDEX_RANKS;
       i++)
    st = take_worker(x, h->wall_ns, text_of(v, "host"), manta_value_at(workers, i));
  return st;
}

// --- All of them ---------------------------------------------------------------------------------

static manta_status take_map(struct manta__index *x, const struct manta__record *h, manta_value *v)
{
  switch (h->kind) {
  case MANTA__EV_RUN:
    if (x->start.type == MANTA_NIL) // a resumed run adds another
      manta_value_move(&x->start, v);
    return MANTA_OK;
  case MANTA__EV_ATTEMPT:
    return take_attempt(x, h, v);
  case MANTA__EV_REWIND:
    return manta__index_rewind(x, h->id.attempt, int_of(v, "to", INT64_MAX));
  case MANTA__EV_CKPT:
    return take_ckpt(x, h, v);
  case MANTA__EV_LOST:
    return take_lost(x, h, v);
  case MANTA__EV_NOTE:
    return add_mark(x, h, MANTA__MARK_NOTE, -1, text_of(v, "text"));
  case MANTA__EV_FINISH:
    return take_finish(x, h, v);
  case MANTA__EV_SAMPLE:
    return take_sample(x, h, v);
  default:
    return MANTA_OK;
  }
}

manta_status manta__index_note(struct manta__index *x, const struct manta__record *h,
                               const uint8_t *payload)
{
  manta_value v = {0};
  manta_status st = manta_value_unpack(&v, payload, h->len, NULL);
  if (st == MANTA_OK && v.type == MANTA_MAP)
    st = take_map(x, h, &v);
  manta_value_fini(&v);
  return st == MANTA_ENOMEM ? st : MANTA_OK;
}
