/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/backlog.c - collectives that were started: a queue, and whoever runs its first.
 *
 * A thread of ours does; or somebody who waits, if the thread has not come to it yet.
 */
#include <string.h>

#include "base/alloc.h"
#include "comm/comm.h"
#include "sys/thread.h"

#define STACK (512u << 10)

void manta__backlog_init(struct manta__backlog *l)
{
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->change, NULL);
  l->last = &l->first;
}

// --- works --------------------------------------------------------------------------------------

manta_work *manta__work_new(manta_comm *c, const struct manta__task *t, manta_error *err)
{
  size_t counts = t->counts ? (size_t)c->size : 0;
  manta_work *w = manta__calloc(1, sizeof *w + counts * sizeof *w->counts);
  if (!w) {
    manta_error_set(err, MANTA_ENOMEM, "no memory to start an operation");
    return NULL;
  }
  w->comm = c;
  w->task = *t;
  w->err = (manta_error)MANTA_ERROR_INIT;
  if (counts) {
    memcpy(w->counts, t->counts, counts * sizeof *w->counts);
    w->task.counts = w->counts;
  }
  pthread_mutex_lock(&c->all_lock);
  w->next_all = c->all;
  if (c->all)
    c->all->prev_all = w;
  c->all = w;
  pthread_mutex_unlock(&c->all_lock);
  return w;
}

void manta__work_free(manta_work *w)
{
  manta_comm *c = w->comm;
  pthread_mutex_lock(&c->all_lock);
  if (w->prev_all)
    w->prev_all->next_all = w->next_all;
  else
    c->all = w->next_all;
  if (w->next_all)
    w->next_all->prev_all = w->prev_all;
  pthread_mutex_unlock(&c->all_lock);
  manta__free(w);
}

bool manta_work_test(const manta_work *w)
{
  return atomic_load_explicit(&w->done, memory_order_acquire);
}

// --- running ------------------------------------------------------------------------------------

// Called with the lock, and gives it away while it runs.
static void run_first(struct manta__backlog *l)
{
  manta_work *w = l->first;
  l->busy = true;
  pthread_mutex_unlock(&l->lock);
  w->status = manta__comm_run(w->comm, &w->task, &w->err);
  pthread_mutex_lock(&l->lock);
  l->busy = false;
  l->first = w->next;
  if (!l->first)
    l->last = &l->first;
  atomic_store_explicit(&w->done, true, memory_order_release);
  atomic_fetch_sub_explicit(&l->pending, 1, memory_order_release);
  pthread_cond_broadcast(&l->change);
}

static void *serve(void *arg)
{
  struct manta__backlog *l = arg;
  manta__team_background();
  pthread_mutex_lock(&l->lock);
  while (!l->stop || l->first) {
    if (l->first && !l->busy)
      run_first(l);
    else
      pthread_cond_wait(&l->change, &l->lock);
  }
  pthread_mutex_unlock(&l->lock);
  return NULL;
}

manta_status manta__backlog_start(manta_comm *c, const struct manta__task *t, manta_work **out,
                                  manta_error *err)
{
  struct manta__backlog *l = &c->lane;
  manta_work *w = manta__work_new(c, t, err);
  if (!w)
    return MANTA_ENOMEM;
  pthread_mutex_lock(&l->lock);
  *l->last = w;
  l->last = &w->next;
  atomic_fetch_add_explicit(&l->pending, 1, memory_order_relaxed);
  pthread_cond_broadcast(&l->change);
  pthread_mutex_unlock(&l->lock);
  // Without a thread it is run by whoever waits: later, not wrong.
  if (!l->has_thread)
    l->has_thread = manta__thread_start(&l->thread, "manta-comm", STACK, serve, l) == 0;
  *out = w;
  return MANTA_OK;
}

void manta__backlog_wait(struct manta__backlog *l, manta_work *w)
{
  pthread_mutex_lock(&l->lock);
  while (!manta_work_test(w)) {
    if (l->busy) {
      manta__team_alive(&w->comm->team, true);
      pthread_cond_wait(&l->change, &l->lock);
      manta__team_alive(&w->comm->team, false);
    } else {
      run_first(l);
    }
  }
  pthread_mutex_unlock(&l->lock);
}

// What is in flight ends first: its team has been told to quit, or its peers come.
void manta__backlog_fini(struct manta__backlog *l)
{
  pthread_mutex_lock(&l->lock);
  l->stop = true;
  pthread_cond_broadcast(&l->change);
  while (l->first) {
    if (l->busy)
      pthread_cond_wait(&l->change, &l->lock);
    else
      run_first(l);
  }
  pthread_mutex_unlock(&l->lock);
  if (l->has_thread)
    pthread_join(l->thread, NULL);
  pthread_mutex_destroy(&l->lock);
  pthread_cond_destroy(&l->change);
}

manta_status manta_work_wait(manta_work *w, manta_error *err)
{
  if (!w)
    return MANTA_OK;
  if (w->moves)
    manta__mover_wait(w->comm, w);
  else
    manta__backlog_wait(&w->comm->lane, w);
  manta_status st = w->status;
  if (st < 0 && err)
    *err = w->err;
  manta__work_free(w);
  return st;
}
