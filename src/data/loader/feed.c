/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader/feed.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "data/loader/cache.h"
#include "data/plan/late.h"
#include "sys/thread.h"

#define STACK_BYTES ((size_t)8 << 20) /* functions of the user run there, an import of Python too */

struct feed_item {
  struct feed_item *next;
  manta_batch *batch;
  size_t bytes;
};

/* A block that is being parsed, or was and waits. */
struct feed_slot {
  struct feed_item *first, **last;
  bool done; /* nothing more comes */
  manta_error err;
};

struct manta__feed {
  struct manta__feed_config c;
  int64_t blocks;
  bool *columns; /* all */
  struct manta__cache *cache;
  pthread_mutex_t lock;
  pthread_cond_t ready; /* for the receiver: the slot of its ticket has something */
  pthread_cond_t wake;  /* for threads: there is room, or a slot, or it is another's ticket */
  struct feed_slot *slot;
  int slots, running;
  int64_t ticket; /* of the receiver */
  int64_t begun;  /* tickets that were taken by threads */
  size_t bytes;
  _Atomic bool stops;
  struct manta__feed_times times;
  pthread_t *thread;
};

static struct feed_slot *slot_of(struct manta__feed *f, int64_t ticket)
{
  return &f->slot[ticket % f->slots];
}

static int64_t tickets(const struct manta__feed *f)
{
  int64_t all;
  if (f->blocks == 0)
    return 0;
  if (f->c.passes == 0 || __builtin_mul_overflow(f->c.passes, f->blocks, &all))
    return INT64_MAX;
  return all;
}

static int64_t block_of(const struct manta__feed *f, int64_t ticket)
{
  const struct manta__passes *p = &f->c.dataset->passes;
  int64_t place = ticket % f->blocks;
  return manta__order_nth(f->blocks, p->shuffles, p->seed,
                          (uint64_t)(f->c.epoch + ticket / f->blocks), place);
}

// --- threads ------------------------------------------------------------------------------------

static bool may_parse(struct manta__feed *f, int64_t ticket)
{
  size_t room = f->c.room / (size_t)manta__cache_feeds(f->cache);
  return f->bytes < room || (ticket == f->ticket && !slot_of(f, ticket)->first);
}

static bool has_room(struct manta__feed *f, int64_t ticket)
{
  pthread_mutex_lock(&f->lock);
  bool room = may_parse(f, ticket);
  pthread_mutex_unlock(&f->lock);
  return room;
}

// Until there is room for another batch of this ticket. False: the feed stops.
static bool wait_for_room(struct manta__feed *f, int64_t ticket)
{
  int64_t from = manta__now();
  pthread_mutex_lock(&f->lock);
  while (!f->stops && !may_parse(f, ticket))
    pthread_cond_wait(&f->wake, &f->lock);
  bool goes = !f->stops;
  f->times.idle += manta__now() - from;
  pthread_mutex_unlock(&f->lock);
  return goes;
}

static manta_status put(struct manta__feed *f, int64_t ticket, manta_batch *b, size_t bytes,
                        manta_error *err)
{
  struct feed_slot *s = slot_of(f, ticket);
  struct feed_item *item = manta__calloc(1, sizeof *item);
  if (!item) {
    manta_batch_destroy(b);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a batch");
  }
  *item = (struct feed_item){.batch = b, .bytes = bytes};
  manta__cache_charge((int64_t)bytes);
  pthread_mutex_lock(&f->lock);
  *s->last = item;
  s->last = &item->next;
  f->bytes += bytes;
  if ((int64_t)f->bytes > f->times.bytes_max)
    f->times.bytes_max = (int64_t)f->bytes;
  if (ticket == f->ticket)
    pthread_cond_signal(&f->ready);
  pthread_mutex_unlock(&f->lock);
  return (manta_status)1;
}

static void finish(struct manta__feed *f, int64_t ticket, manta_status st, const manta_error *err)
{
  struct feed_slot *s = slot_of(f, ticket);
  pthread_mutex_lock(&f->lock);
  if (st < 0)
    s->err = *err;
  s->done = true;
  if (ticket == f->ticket)
    pthread_cond_signal(&f->ready);
  pthread_mutex_unlock(&f->lock);
}

/* A block on its way from its scan, or from another feed's, to the receiver. */
struct feed_block {
  int64_t ticket;
  struct manta__cached *shared; /* NULL: nobody else sees it */
  int filled, put;              /* batches that we parsed into it, and that the receiver has */
  struct manta__scan *scan;     /* NULL: another feed parses it */
  manta_batch *left;            /* parsed, and there was no room for it; NULL: none */
};

static manta_status parse_one(struct manta__feed *f, struct manta__scan *scan, manta_batch **out,
                              manta_error *err)
{
  int64_t from = manta__now();
  manta_status st = manta__scan_next(scan, out, err);
  pthread_mutex_lock(&f->lock);
  f->times.parse += manta__now() - from;
  pthread_mutex_unlock(&f->lock);
  return st;
}

static manta_status begin_scan(struct manta__feed *f, struct feed_block *b, manta_error *err)
{
  struct manta__want want = {f->columns, NULL};
  return manta__dataset_scan(&b->scan, f->c.dataset, block_of(f, b->ticket), &want, err);
}

// The receiver gets what the block has from b->put on. 0: that was all; 1: the block was given up.
// Without `waits`: what there is room for; 0.
static manta_status hand_over(struct manta__feed *f, struct feed_block *b, bool waits,
                              manta_error *err)
{
  for (;; b->put++) {
    manta_batch *batch;
    size_t bytes;
    if (!waits && (b->put == b->filled || !has_room(f, b->ticket)))
      return MANTA_OK;
    if (waits && !wait_for_room(f, b->ticket))
      return MANTA_OK;
    manta_status st = manta__cached_next(b->shared, b->put, &f->stops, &batch, &bytes);
    if (st == MANTA_ESTATE)
      return (manta_status)1;
    if (st != 1)
      return st < 0 ? manta_error_set(err, st, "no memory for a batch") : st;
    MANTA_TRY(put(f, b->ticket, batch, bytes, err));
  }
}

// Parses for all feeds, without a wait. 1: there was no room for b->left.
static manta_status fill(struct manta__feed *f, struct feed_block *b, manta_error *err)
{
  manta_status st = begin_scan(f, b, err);
  while (st >= 0 && (st = parse_one(f, b->scan, &b->left, err)) == 1) {
    if (f->stops || !manta__cached_add(b->shared, b->left, manta__batch_bytes(b->left)))
      break;
    manta_batch_destroy(b->left);
    b->left = NULL;
    b->filled++;
    st = hand_over(f, b, false, err);
  }
  manta__cached_end(b->shared, st == 0);
  return st;
}

// Parses for ourselves; what was had from others comes first in the scan, and is passed over.
static manta_status parse_rest(struct manta__feed *f, struct feed_block *b, manta_error *err)
{
  manta_status st = MANTA_OK;
  int skip = b->scan ? 0 : b->put;
  if (!b->scan)
    MANTA_TRY(begin_scan(f, b, err));
  while (!f->stops) {
    manta_batch *batch = b->left;
    b->left = NULL;
    if (!batch && (st = parse_one(f, b->scan, &batch, err)) != 1)
      return st;
    if (skip-- > 0 || !wait_for_room(f, b->ticket))
      manta_batch_destroy(batch);
    else
      MANTA_TRY(put(f, b->ticket, batch, manta__batch_bytes(batch), err));
  }
  return MANTA_OK;
}

static manta_status give_block(struct manta__feed *f, struct feed_block *b, manta_error *err)
{
  manta_status filled = MANTA_OK;
  if (manta__cache_take(f->cache, block_of(f, b->ticket), &b->shared) && b->shared)
    filled = fill(f, b, err);
  if (b->shared) {
    manta_status st = hand_over(f, b, true, filled < 0 ? NULL : err);
    manta__cached_drop(b->shared);
    if (st != 1 || filled < 0)
      return filled < 0 ? filled : st;
  }
  return parse_rest(f, b, err);
}

static void parse_block(struct manta__feed *f, int64_t ticket)
{
  struct feed_block b = {.ticket = ticket};
  manta_error err = MANTA_ERROR_INIT;
  if (!wait_for_room(f, ticket)) // the first batch is in the buffers of the scan soon
    return;
  manta_status st = give_block(f, &b, &err);
  manta__scan_close(b.scan);
  manta_batch_destroy(b.left);
  finish(f, ticket, st, &err);
}

static void *parse(void *ctx)
{
  struct manta__feed *f = ctx;
  for (;;) {
    pthread_mutex_lock(&f->lock);
    while (!f->stops && f->begun < tickets(f) && f->begun >= f->ticket + f->slots)
      pthread_cond_wait(&f->wake, &f->lock);
    int64_t ticket = f->begun;
    bool goes = !f->stops && ticket < tickets(f);
    f->begun += goes;
    pthread_mutex_unlock(&f->lock);
    if (!goes)
      return NULL;
    parse_block(f, ticket);
  }
}

// --- the receiver -------------------------------------------------------------------------------

static void empty_slot(struct feed_slot *s)
{
  while (s->first) {
    struct feed_item *item = s->first;
    s->first = item->next;
    manta_batch_destroy(item->batch);
    manta__free(item);
  }
  *s = (struct feed_slot){.last = &s->first};
}

manta_status manta__feed_next(struct manta__feed *f, struct manta__fed *out, manta_error *err)
{
  pthread_mutex_lock(&f->lock);
  for (; f->ticket < tickets(f); pthread_cond_broadcast(&f->wake)) {
    struct feed_slot *s = slot_of(f, f->ticket);
    while (!s->first && !s->done)
      pthread_cond_wait(&f->ready, &f->lock);
    struct feed_item *item = s->first;
    if (item) {
      *out = (struct manta__fed){item->batch, f->ticket, item->bytes};
      if (!(s->first = item->next))
        s->last = &s->first;
      pthread_cond_broadcast(&f->wake); // nothing of its ticket is waiting any more
      pthread_mutex_unlock(&f->lock);
      manta__free(item);
      return (manta_status)1;
    }
    if (s->err.status < 0) {
      if (err)
        *err = s->err;
      manta_status st = s->err.status;
      pthread_mutex_unlock(&f->lock);
      return st;
    }
    empty_slot(s);
    f->ticket++;
  }
  pthread_mutex_unlock(&f->lock);
  return 0;
}

void manta__feed_drop(struct manta__feed *f, size_t bytes)
{
  pthread_mutex_lock(&f->lock);
  f->bytes -= bytes;
  pthread_cond_broadcast(&f->wake);
  pthread_mutex_unlock(&f->lock);
  manta__cache_charge(-(int64_t)bytes);
}

void manta__feed_add_times(struct manta__feed *f, struct manta__feed_times *to)
{
  pthread_mutex_lock(&f->lock);
  to->parse += f->times.parse;
  to->idle += f->times.idle;
  if (f->times.bytes_max > to->bytes_max)
    to->bytes_max = f->times.bytes_max;
  pthread_mutex_unlock(&f->lock);
}

// --- life ---------------------------------------------------------------------------------------

void manta__feed_close(struct manta__feed *f)
{
  if (!f)
    return;
  pthread_mutex_lock(&f->lock);
  f->stops = true;
  pthread_cond_broadcast(&f->wake);
  pthread_mutex_unlock(&f->lock);
  manta__cache_wake();
  for (int i = 0; i < f->running; i++)
    pthread_join(f->thread[i], NULL);
  for (int i = 0; f->slot && i < f->slots; i++)
    empty_slot(&f->slot[i]);
  if (f->cache) {
    manta__cache_charge(-(int64_t)f->bytes);
    manta__cache_leave(f->cache);
  }
  pthread_cond_destroy(&f->ready);
  pthread_cond_destroy(&f->wake);
  pthread_mutex_destroy(&f->lock);
  manta__free(f->slot);
  manta__free(f->thread);
  manta__free(f->columns);
  manta__free(f);
}

static manta_status start(struct manta__feed *f, manta_error *err)
{
  f->slots = 2 * f->c.threads + 2;
  f->columns = manta__columns_flags(f->c.dataset, true);
  f->cache = manta__cache_join(manta__late_rows(f->c.dataset), f->c.limit);
  f->slot = manta__calloc((size_t)f->slots, sizeof *f->slot);
  f->thread = manta__calloc((size_t)f->c.threads, sizeof *f->thread);
  if (!f->columns || !f->cache || !f->slot || !f->thread)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to read a data set");
  for (int i = 0; i < f->slots; i++)
    empty_slot(&f->slot[i]);
  for (; f->running < f->c.threads; f->running++) {
    int rc = manta__thread_start(&f->thread[f->running], "manta-parse", STACK_BYTES, parse, f);
    if (rc && f->running == 0)
      return manta_error_set(err, MANTA_ENOMEM, "no thread to read a data set: error %d", rc);
    if (rc)
      break; // with fewer
  }
  return MANTA_OK;
}

manta_status manta__feed_open(struct manta__feed **out, const struct manta__feed_config *c,
                              manta_error *err)
{
  struct manta__feed *f = manta__calloc(1, sizeof *f);
  if (!f)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to read a data set");
  f->c = *c;
  f->blocks = c->dataset->blocks;
  f->ticket = f->begun = c->ticket;
  pthread_mutex_init(&f->lock, NULL);
  pthread_cond_init(&f->ready, NULL);
  pthread_cond_init(&f->wake, NULL);
  manta_status st = start(f, err);
  if (st < 0) {
    manta__feed_close(f);
    return st;
  }
  *out = f;
  return MANTA_OK;
}
