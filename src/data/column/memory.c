/* SPDX-License-Identifier: Apache-2.0 */
#include "data/column/memory.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"

#define ALIGN  64
#define SLACK  64 /* behind the end */
#define IDLE_N 256

struct manta__pool {
  pthread_mutex_t lock;
  size_t idle_max, idle_bytes, out_bytes;
  int idle_count, out_count;
  bool closed;
  struct manta__memory *idle[IDLE_N];
};

static struct manta__memory *allocate(size_t bytes)
{
  size_t head = sizeof(struct manta__memory) + ALIGN - 1;
  if (bytes > SIZE_MAX / 2)
    return NULL;
  struct manta__memory *m = manta__malloc(head + bytes + SLACK);
  if (!m)
    return NULL;
  uintptr_t data = ((uintptr_t)(m + 1) + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1);
  *m = (struct manta__memory){.refs = 1, .data = (void *)data, .bytes = bytes};
  return m;
}

// The smallest that fits and is not twice as large as it need be.
static struct manta__memory *take_idle(struct manta__pool *p, size_t bytes)
{
  int best = -1;
  for (int i = 0; i < p->idle_count; i++)
    if (p->idle[i]->bytes >= bytes && p->idle[i]->bytes / 2 <= bytes &&
        (best < 0 || p->idle[i]->bytes < p->idle[best]->bytes))
      best = i;
  if (best < 0)
    return NULL;
  struct manta__memory *m = p->idle[best];
  p->idle[best] = p->idle[--p->idle_count];
  p->idle_bytes -= m->bytes;
  m->refs = 1;
  return m;
}

struct manta__memory *manta__memory_create(struct manta__pool *pool, size_t bytes)
{
  struct manta__memory *m = NULL;
  if (!pool)
    return allocate(bytes);
  pthread_mutex_lock(&pool->lock);
  m = take_idle(pool, bytes);
  pthread_mutex_unlock(&pool->lock);
  if (!m && !(m = allocate(bytes)))
    return NULL;
  m->pool = pool;
  pthread_mutex_lock(&pool->lock);
  pool->out_count++;
  pool->out_bytes += m->bytes;
  pthread_mutex_unlock(&pool->lock);
  return m;
}

struct manta__memory *manta__memory_foreign(void (*release)(void *ctx), void *ctx)
{
  struct manta__memory *m = manta__malloc(sizeof *m);
  if (m)
    *m = (struct manta__memory){.refs = 1, .release = release, .ctx = ctx};
  return m;
}

struct manta__memory *manta__memory_ref(struct manta__memory *m)
{
  if (m)
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
  return m;
}

static void destroy_pool(struct manta__pool *p)
{
  for (int i = 0; i < p->idle_count; i++)
    manta__free(p->idle[i]);
  pthread_mutex_destroy(&p->lock);
  manta__free(p);
}

static void give_back(struct manta__pool *p, struct manta__memory *m)
{
  pthread_mutex_lock(&p->lock);
  p->out_count--;
  p->out_bytes -= m->bytes;
  bool keep = !p->closed && p->idle_count < IDLE_N && m->bytes <= p->idle_max - p->idle_bytes;
  if (keep) {
    p->idle[p->idle_count++] = m;
    p->idle_bytes += m->bytes;
  }
  bool last = p->closed && p->out_count == 0;
  pthread_mutex_unlock(&p->lock);
  if (!keep)
    manta__free(m);
  if (last)
    destroy_pool(p);
}

void manta__memory_unref(struct manta__memory *m)
{
  if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) > 1)
    return;
  if (m->pool) {
    give_back(m->pool, m);
    return;
  }
  if (m->release)
    m->release(m->ctx);
  manta__free(m);
}

bool manta__memory_grow(struct manta__memory **m, struct manta__pool *pool, size_t used,
                        size_t bytes)
{
  struct manta__memory *old = *m;
  if (old && old->bytes >= bytes)
    return true;
  struct manta__memory *n = manta__memory_create(pool, bytes);
  if (!n)
    return false;
  if (old && used)
    memcpy(n->data, old->data, used);
  manta__memory_unref(old);
  *m = n;
  return true;
}

struct manta__pool *manta__pool_create(size_t idle_max)
{
  struct manta__pool *p = manta__calloc(1, sizeof *p);
  if (!p)
    return NULL;
  p->idle_max = idle_max;
  pthread_mutex_init(&p->lock, NULL);
  return p;
}

void manta__pool_close(struct manta__pool *p)
{
  if (!p)
    return;
  pthread_mutex_lock(&p->lock);
  p->closed = true;
  bool last = p->out_count == 0;
  pthread_mutex_unlock(&p->lock);
  if (last)
    destroy_pool(p);
}

size_t manta__pool_out(struct manta__pool *p)
{
  pthread_mutex_lock(&p->lock);
  size_t bytes = p->out_bytes;
  pthread_mutex_unlock(&p->lock);
  return bytes;
}
