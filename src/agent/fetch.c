/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/fetch.c - rank 0's newest snapshot for another rank of the same attempt.
 *
 * A rank that has saved n times waits for rank 0's n-th save; what it gets is the newest then.
 * (1) The agent of rank 0's host answers. Requests of other hosts reach it through the driver, and
 *     so do the answers, by value across a bridge.
 * (2) A slot that was handed out is not written again: its worker makes another.
 * (3) Requests belong to one attempt. They end with rank 0's function, or with the attempt.
 */
#include "agent/agent.h"
#include "base/alloc.h"

struct manta__fetch {
  struct manta__fetch *next;
  int rank;
  uint64_t call, least;
};

static struct manta__agent_worker *of_rank(const struct manta__agent_group *g, int rank)
{
  for (struct manta__agent_worker *w = g->workers; w; w = w->next)
    if (w->rank == rank && w->attempt == g->run.attempt && w->state != WORKER_GONE)
      return w;
  return NULL;
}

void manta__agent_fetched(struct manta__agent_group *g, struct manta__msg *m)
{
  struct manta__agent_worker *w = of_rank(g, m->id.rank);
  if (m->id.attempt == g->run.attempt && w && w->state == WORKER_RUNNING)
    manta__agent_send(w->conn, m);
}

static void reply(struct manta__agent_group *g, const struct manta__fetch *f,
                  const struct manta__fetched *how, int fd)
{
  struct manta__msg m = {.kind = MANTA__M_FETCHED,
                         .group = g->id,
                         .id = g->run,
                         .call = f->call,
                         .data = how,
                         .len = sizeof *how,
                         .fd = {fd},
                         .fds = fd >= 0};
  m.id.rank = f->rank;
  if (of_rank(g, f->rank))
    manta__agent_fetched(g, &m);
  else
    manta__agent_send(g->agent->driver, &m);
}

// True: it is answered.
static bool answer(struct manta__agent_group *g, const struct manta__fetch *f)
{
  struct manta__agent_worker *w = of_rank(g, 0);
  struct manta__fetched how = {0};
  int newest = w ? w->snapq.newest : -1;
  if (g->saves < f->least) {
    how.left = !w || w->state != WORKER_RUNNING;
    if (how.left)
      reply(g, f, &how, -1);
    return how.left;
  }
  struct manta__slot_dup *s = newest >= 0 ? &w->slot[newest] : NULL;
  if (s && s->meta && s->meta->id.attempt == g->run.attempt) {
    s->retire = true;
    reply(g, f, &how, s->fd);
  } else {
    reply(g, f, &how, -1);
  }
  return true;
}

void manta__agent_fetch_look(struct manta__agent_group *g)
{
  for (struct manta__fetch **at = &g->fetches; *at;) {
    struct manta__fetch *f = *at;
    if (answer(g, f)) {
      *at = f->next;
      manta__free(f);
    } else {
      at = &f->next;
    }
  }
}

void manta__agent_fetch_reset(struct manta__agent_group *g)
{
  for (struct manta__fetch *f = g->fetches, *next; f; f = next) {
    next = f->next;
    manta__free(f);
  }
  g->fetches = NULL;
  g->saves = 0;
}

void manta__agent_fetch(struct manta__agent_group *g, struct manta__msg *m)
{
  uint64_t least;
  bool ours = m->id.attempt == g->run.attempt && manta__msg_copy(m, &least, sizeof least);
  struct manta__fetch *f = ours ? manta__calloc(1, sizeof *f) : NULL;
  if (!f)
    return;
  *f = (struct manta__fetch){
      .next = g->fetches, .rank = m->id.rank, .call = m->call, .least = least};
  g->fetches = f;
  manta__agent_fetch_look(g);
}
