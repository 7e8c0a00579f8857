/* SPDX-License-Identifier: Apache-2.0 */
#include "train/exchange.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/run.h"
#include "train/say.h"
#include "train/trainer.h"

struct manta__voice { // of one rank
  uint8_t *blob;
  size_t bytes;
  bool gave, voted, left;
  int64_t vote;
};

void manta__exchange_end(struct manta__exchange *x)
{
  for (int i = 0; i < x->world; i++)
    manta__free(x->voice[i].blob);
  manta__free(x->voice);
  *x = (struct manta__exchange){0};
}

manta_status manta__exchange_begin(struct manta__exchange *x, int world, manta_error *err)
{
  manta__exchange_end(x);
  x->voice = manta__calloc((size_t)world, sizeof *x->voice);
  if (!x->voice)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for what %d ranks exchange", world);
  x->world = world;
  return MANTA_OK;
}

static void tell_all(manta_run *r, uint16_t kind, uint64_t round, const void *p, size_t n)
{
  struct manta__msg m = {.kind = kind,
                         .group = r->trainer->group,
                         .id = {r->id, r->membership.attempt, -1, 0},
                         .call = round,
                         .data = p,
                         .len = n};
  manta__run_tell_all(r->trainer, &m, NULL);
}

// --- exchange -----------------------------------------------------------------------------------

static void *fold(const struct manta__exchange *x, size_t *n)
{
  struct manta__given head = {.count = (uint32_t)x->world, .missing = -1};
  size_t fixed = sizeof head + (size_t)x->world * sizeof(uint64_t);
  *n = fixed;
  for (int i = 0; i < x->world; i++)
    *n += x->voice[i].bytes;
  uint8_t *p = manta__malloc(*n), *at = p + fixed;
  if (!p)
    return NULL;
  memcpy(p, &head, sizeof head);
  for (int i = 0; i < x->world; i++) {
    uint64_t bytes = x->voice[i].bytes;
    memcpy(p + sizeof head + (size_t)i * sizeof bytes, &bytes, sizeof bytes);
    if (bytes)
      memcpy(at, x->voice[i].blob, bytes);
    at += bytes;
  }
  return p;
}

static void end_round(struct manta__exchange *x)
{
  for (int i = 0; i < x->world; i++)
    x->voice[i].gave = false;
}

// Somebody waits for one who will not give any more.
static bool tell_missing(manta_run *r)
{
  struct manta__exchange *x = &r->exchange;
  struct manta__given head = {.missing = -1};
  bool waits = false;
  for (int i = x->world - 1; i >= 0; i--) {
    waits = waits || x->voice[i].gave;
    if (x->voice[i].left && !x->voice[i].gave)
      head.missing = i;
  }
  if (!waits || head.missing < 0)
    return false;
  tell_all(r, MANTA__M_GIVEN, ++x->exchanges, &head, sizeof head);
  end_round(x);
  return true;
}

static void share(manta_run *r)
{
  struct manta__exchange *x = &r->exchange;
  size_t n;
  if (tell_missing(r))
    return;
  for (int i = 0; i < x->world; i++)
    if (!x->voice[i].gave)
      return;
  void *p = fold(x, &n);
  if (p)
    tell_all(r, MANTA__M_GIVEN, ++x->exchanges, p, n);
  else
    manta__warn("no memory for what %d ranks exchange", x->world);
  manta__free(p);
  end_round(x);
}

// Rule 8: ranks on several hosts exchange the addresses of UCX, which believes whoever connects.
static void tell_open(manta_run *r)
{
  manta_trainer *t = r->trainer;
  int hosts = 0;
  for (int i = 0; i < t->hosts; i++)
    hosts += t->host[i].count > 0;
  if (hosts < 2 || t->told_open)
    return;
  t->told_open = true;
  manta__run_warn(t,
                  "the ranks of %d hosts talk over UCX, for trusted networks only: whoever "
                  "reaches its ports can write into the workers' memory",
                  hosts);
}

void manta__exchange_give(manta_run *r, const struct manta__msg *m)
{
  struct manta__exchange *x = &r->exchange;
  struct manta__voice *v = &x->voice[m->id.rank];
  if (m->len > MANTA__GIVE_MAX || m->call != x->exchanges + 1)
    return; // of a round that is over
  uint8_t *copy = manta__malloc(m->len + 1);
  if (!copy)
    return;
  memcpy(copy, m->data, m->len);
  manta__free(v->blob);
  tell_open(r);
  *v = (struct manta__voice){.blob = copy,
                             .bytes = m->len,
                             .gave = true,
                             .voted = v->voted,
                             .left = v->left,
                             .vote = v->vote};
  share(r);
}

// --- agree --------------------------------------------------------------------------------------

static bool counts(const manta_run *r, int rank)
{
  const struct manta__member *m = &r->membership.member[rank];
  return m->state == MANTA__MB_RUNNING && !m->dying && !r->exchange.voice[rank].left;
}

void manta__exchange_settle(manta_run *r)
{
  struct manta__exchange *x = &r->exchange;
  int64_t least = INT64_MAX;
  int votes = 0;
  if (x->world != r->membership.world)
    return; // an attempt that is not formed yet, or not any more
  for (int i = 0; i < x->world; i++) {
    if (!counts(r, i))
      continue;
    if (!x->voice[i].voted)
      return;
    least = x->voice[i].vote < least ? x->voice[i].vote : least;
    votes++;
  }
  if (votes == 0)
    return;
  for (int i = 0; i < x->world; i++)
    x->voice[i].voted = false;
  tell_all(r, MANTA__M_AGREED, ++x->agreements, &least, sizeof least);
}

void manta__exchange_vote(manta_run *r, const struct manta__msg *m)
{
  struct manta__exchange *x = &r->exchange;
  struct manta__voice *v = &x->voice[m->id.rank];
  if (m->call != x->agreements + 1 || !manta__msg_copy(m, &v->vote, sizeof v->vote))
    return;
  v->voted = true;
  manta__exchange_settle(r);
}

void manta__exchange_left(manta_run *r, int rank)
{
  if (rank < r->exchange.world) {
    r->exchange.voice[rank].left = true;
    tell_missing(r);
  }
  manta__exchange_settle(r);
}

// --- fetch --------------------------------------------------------------------------------------

void manta__exchange_fetch(manta_run *r, const struct manta__msg *m)
{
  manta_trainer *t = r->trainer;
  manta_error err = MANTA_ERROR_INIT;
  int rank = m->kind == MANTA__M_FETCH ? 0 : m->id.rank;
  for (int i = 0; i < t->hosts; i++) {
    struct manta__trainer_host *p = &t->host[i];
    if (rank >= p->first && rank < p->first + p->count && p->link->conn &&
        manta__link_send(p->link, m, NULL, &err) < 0)
      manta__warn("%s", err.message);
  }
}
