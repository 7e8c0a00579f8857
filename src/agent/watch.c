/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/watch.c - the watchers of lives.
 *
 * A watcher is a thread that waits for one worker's life mutex. When the kernel hands it over, the
 * watcher itself raises the abort word: peers learn of a death without a turn of the loop.
 */
#include <string.h>

#include "agent/agent.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "sys/robust.h"
#include "sys/shm.h"

#define WATCHER_STACK (64u << 10)

void manta__agent_watch_unref(struct manta__shared_ctl *s)
{
  if (s && atomic_fetch_sub(&s->refs, 1) == 1) {
    manta__shm_unmap(s->ctl, s->bytes);
    manta__free(s);
  }
}

struct watch {
  struct manta__agent *agent;
  struct manta__shared_ctl *shared;
  int64_t wid;
  int rank, cell;
};

static void *watch_life(void *arg)
{
  struct watch w = *(struct watch *)arg;
  struct manta__ctl *ctl = w.shared->ctl;
  struct manta__agent_death d = {.wid = w.wid, .attempt = ctl->attempt};
  manta__free(arg);
  // One that left by a thread other than its main one could not give the mutex back.
  bool handed = manta__robust_hold(&ctl->cell[w.cell].life) == 1;
  d.died = handed && atomic_load(&ctl->cell[w.cell].running);
  if (d.died)
    manta__ctl_abort(ctl, MANTA__ABORT_RANK + (uint32_t)w.rank);
  manta__robust_release(&ctl->cell[w.cell].life);
  manta__agent_watch_unref(w.shared);
  pthread_mutex_lock(&w.agent->death_lock);
  if (w.agent->death_count < (int)(sizeof w.agent->deaths / sizeof *w.agent->deaths))
    w.agent->deaths[w.agent->death_count++] = d;
  pthread_mutex_unlock(&w.agent->death_lock);
  uv_async_send(&w.agent->death);
  return NULL;
}

void manta__agent_watch_begin(struct manta__agent_worker *w)
{
  struct manta__agent_group *g = w->group;
  if (g->light && g->cells == 1)
    return; // no peer here waits for the news, and a thread costs more than a small trial
  struct watch *k = g->shared && !w->watched ? manta__malloc(sizeof *k) : NULL;
  pthread_attr_t at;
  pthread_t thread;
  if (!k)
    return;
  *k = (struct watch){g->agent, g->shared, w->wid, w->rank, w->cell};
  atomic_fetch_add(&g->shared->refs, 1);
  pthread_attr_init(&at);
  pthread_attr_setstacksize(&at, WATCHER_STACK);
  pthread_attr_setdetachstate(&at, PTHREAD_CREATE_DETACHED);
  w->watched = pthread_create(&thread, &at, watch_life, k) == 0;
  pthread_attr_destroy(&at);
  if (!w->watched) { // its death is then known by its pidfd: later, not never
    manta__agent_watch_unref(g->shared);
    manta__free(k);
  }
}

static void one_death(struct manta__agent *a, const struct manta__agent_death *d)
{
  struct manta__agent_worker *w = manta__agent_worker_find(a, d->wid);
  if (!w || w->attempt != d->attempt || !w->watched)
    return;
  w->watched = false;
  if (!d->died)
    return;
  w->dying = true;
  manta__agent_heirs_expect_end(w);
  manta_value v = MANTA__PACK(dying_msg, .wid = w->wid);
  struct manta__msg m = {.kind = MANTA__M_DYING, .group = w->group->id};
  m.id = w->group->run;
  manta__agent_send_value(a->driver, &m, &v);
}

void manta__agent_watch_deaths(uv_async_t *h)
{
  struct manta__agent *a = h->data;
  pthread_mutex_lock(&a->death_lock);
  struct manta__agent_death list[64];
  while (a->death_count > 0) {
    int n = a->death_count < 64 ? a->death_count : 64;
    a->death_count -= n;
    memcpy(list, a->deaths + a->death_count, sizeof *list * (size_t)n);
    pthread_mutex_unlock(&a->death_lock);
    for (int i = 0; i < n; i++)
      one_death(a, &list[i]);
    pthread_mutex_lock(&a->death_lock);
  }
  pthread_mutex_unlock(&a->death_lock);
}
