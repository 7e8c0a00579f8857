/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader/cache.h"

#include "base/alloc.h"

enum cached_state { FILLING, WHOLE, GIVEN_UP };

struct manta__cached {
  struct manta__cached *next; /* of those that can be found */
  struct manta__cache *cache;
  int64_t block;
  int refs; /* of feeds; the list's is `listed` */
  bool listed;
  enum cached_state state;
  int takes; /* by feeds */
  uint64_t serial;
  manta_batch **batch;
  size_t *size;
  int count, cap;
  size_t bytes;
};

struct manta__cache {
  _Atomic int feeds;
  size_t limit; /* the largest of its feeds */
  struct manta__cached *first;
  struct manta__cache *next; /* of all */
};

/* Of the process: a budget is for all data sets together. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t grown = PTHREAD_COND_INITIALIZER;
static struct manta__cache *caches;
static int64_t charged;
static size_t kept;
static uint64_t serials;

// --- blocks -------------------------------------------------------------------------------------

// All of this file's static functions are called with the lock.
static void unref(struct manta__cached *b)
{
  if (b->refs || b->listed)
    return;
  kept -= b->bytes;
  for (int i = 0; i < b->count; i++)
    manta_batch_destroy(b->batch[i]);
  manta__free(b->batch);
  manta__free(b->size);
  manta__free(b);
}

static void unlist(struct manta__cached *b)
{
  struct manta__cached **at = &b->cache->first;
  if (!b->listed)
    return;
  while (*at != b)
    at = &(*at)->next;
  *at = b->next;
  b->listed = false;
}

static bool before(const struct manta__cached *a, const struct manta__cached *b)
{
  bool a_wanted = a->takes < a->cache->feeds, b_wanted = b->takes < b->cache->feeds;
  if (a_wanted != b_wanted)
    return b_wanted;
  return a_wanted ? a->serial < b->serial : a->serial > b->serial;
}

// The block that gives way before all others; NULL: none can.
static struct manta__cached *victim(void)
{
  struct manta__cached *worst = NULL;
  for (struct manta__cache *c = caches; c; c = c->next)
    for (struct manta__cached *b = c->first; b; b = b->next)
      if (b->state == WHOLE && (!worst || before(b, worst)))
        worst = b;
  return worst;
}

// Of data sets that are being read; if none is, what they have may stay.
static size_t limit_of_all(void)
{
  size_t limit[2] = {0};
  for (struct manta__cache *c = caches; c; c = c->next)
    limit[c->feeds > 0] = c->limit > limit[c->feeds > 0] ? c->limit : limit[c->feeds > 0];
  return limit[limit[1] > 0];
}

// False: it is still too much.
static bool make_room(void)
{
  size_t limit = limit_of_all();
  while (kept && kept + (size_t)charged > limit) {
    struct manta__cached *b = victim();
    if (!b)
      return false;
    unlist(b);
    unref(b);
  }
  return true;
}

static void give_up(struct manta__cached *b)
{
  unlist(b);
  b->state = GIVEN_UP;
  pthread_cond_broadcast(&grown);
}

// --- who fills ----------------------------------------------------------------------------------

static struct manta__cached *find(struct manta__cache *c, int64_t block)
{
  struct manta__cached *b = c->first;
  while (b && b->block != block)
    b = b->next;
  return b;
}

bool manta__cache_take(struct manta__cache *c, int64_t block, struct manta__cached **out)
{
  pthread_mutex_lock(&lock);
  struct manta__cached *b = find(c, block);
  bool fills = !b;
  if (!b && (b = manta__calloc(1, sizeof *b))) {
    *b = (struct manta__cached){.next = c->first, .cache = c, .block = block, .listed = true};
    c->first = b;
  }
  if (b) {
    b->refs++;
    b->takes++;
    b->serial = fills ? ++serials : b->serial;
  }
  pthread_mutex_unlock(&lock);
  *out = b;
  return fills;
}

void manta__cached_drop(struct manta__cached *b)
{
  if (!b)
    return;
  pthread_mutex_lock(&lock);
  b->refs--;
  unref(b);
  pthread_mutex_unlock(&lock);
}

static bool push(struct manta__cached *b, const manta_batch *batch, size_t bytes)
{
  kept += bytes;
  bool fits = make_room();
  kept -= bytes;
  if (!fits)
    return false;
  if (b->count == b->cap) {
    int cap = b->cap ? 2 * b->cap : 4;
    manta_batch **more = manta__realloc(b->batch, (size_t)cap * sizeof *more);
    if (!more)
      return false;
    b->batch = more;
    size_t *sizes = manta__realloc(b->size, (size_t)cap * sizeof *sizes);
    if (!sizes)
      return false;
    b->size = sizes;
    b->cap = cap;
  }
  if (manta__batch_copy(&b->batch[b->count], batch, NULL) < 0)
    return false;
  b->size[b->count++] = bytes;
  b->bytes += bytes;
  kept += bytes;
  return true;
}

bool manta__cached_add(struct manta__cached *b, const manta_batch *batch, size_t bytes)
{
  pthread_mutex_lock(&lock);
  bool goes = b->state == FILLING && push(b, batch, bytes);
  if (goes)
    pthread_cond_broadcast(&grown);
  else if (b->state == FILLING)
    give_up(b);
  pthread_mutex_unlock(&lock);
  return goes;
}

void manta__cached_end(struct manta__cached *b, bool whole)
{
  pthread_mutex_lock(&lock);
  if (whole && b->state == FILLING) {
    b->state = WHOLE;
    pthread_cond_broadcast(&grown);
  } else if (b->state == FILLING) {
    give_up(b);
  }
  pthread_mutex_unlock(&lock);
}

// --- who follows --------------------------------------------------------------------------------

manta_status manta__cached_next(struct manta__cached *b, int k, const _Atomic bool *stop,
                                manta_batch **out, size_t *bytes)
{
  manta_status st;
  pthread_mutex_lock(&lock);
  while (b->state == FILLING && k >= b->count && !*stop)
    pthread_cond_wait(&grown, &lock);
  if (*stop || (k >= b->count && b->state == GIVEN_UP)) {
    st = MANTA_ESTATE;
  } else if (k >= b->count) {
    st = MANTA_OK;
  } else {
    st = manta__batch_copy(out, b->batch[k], NULL);
    *bytes = b->size[k];
    st = st < 0 ? st : (manta_status)1;
  }
  pthread_mutex_unlock(&lock);
  return st;
}

void manta__cache_wake(void)
{
  pthread_mutex_lock(&lock);
  pthread_cond_broadcast(&grown);
  pthread_mutex_unlock(&lock);
}

// --- data sets and feeds ------------------------------------------------------------------------

// The data set is gone, and with it all its feeds.
static void destroy(void *ctx)
{
  struct manta__cache *c = ctx, **at = &caches;
  pthread_mutex_lock(&lock);
  while (c->first) {
    struct manta__cached *b = c->first;
    unlist(b);
    unref(b);
  }
  while (*at != c)
    at = &(*at)->next;
  *at = c->next;
  pthread_mutex_unlock(&lock);
  manta__free(c);
}

struct manta__cache *manta__cache_join(manta_dataset *d, size_t limit)
{
  limit -= limit / 4; // for what pools keep, for the buffers of readers, and for what is half full
  pthread_mutex_lock(&lock);
  struct manta__cache *c = d->cache;
  if (!c && (c = manta__calloc(1, sizeof *c))) {
    c->next = caches;
    caches = c;
    d->cache = c;
    d->drop_cache = destroy;
  }
  if (c) {
    c->limit = c->feeds && c->limit > limit ? c->limit : limit;
    c->feeds++;
    make_room();
  }
  pthread_mutex_unlock(&lock);
  return c;
}

void manta__cache_leave(struct manta__cache *c)
{
  pthread_mutex_lock(&lock);
  c->feeds--;
  pthread_mutex_unlock(&lock);
}

int manta__cache_feeds(const struct manta__cache *c)
{
  return c->feeds;
}

void manta__cache_charge(int64_t bytes)
{
  pthread_mutex_lock(&lock);
  charged += bytes;
  if (bytes > 0)
    make_room();
  pthread_mutex_unlock(&lock);
}
