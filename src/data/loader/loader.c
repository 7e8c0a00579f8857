/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader/loader.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "data/loader/cache.h"
#include "sys/host.h"
#include "sys/thread.h"

#define STACK_BYTES  ((size_t)1 << 20)
#define THREADS      8
#define THREADS_MAX  256
#define PREFETCH     2
#define SMALL        16                /* batches may be ahead, however few were asked for, */
#define SMALL_BYTES  ((size_t)1 << 20) /* that have no more than this together, nor more than */
#define SMALL_PART   64                /* one part of so many of the memory */
#define PREFETCH_MAX 1024
#define MEMORY_MIN   ((size_t)1 << 20)
#define MEMORY       ((size_t)1 << 30) /* where nobody knows how much there is */

// --- options ------------------------------------------------------------------------------------

static void fill_in(manta_loader_config *c)
{
  struct manta__host h = {0};
  size_t memory = 0;
  int cpus = 1;
  if ((c->threads == 0 || c->memory_limit == 0) && manta__host_read(&h, "", NULL) == MANTA_OK) {
    cpus = h.cpus < 1 ? 1 : h.cpus > THREADS ? THREADS : (int)h.cpus;
    int64_t all = h.mem_limit && h.mem_limit < h.mem_total ? h.mem_limit : h.mem_total;
    memory = (size_t)(all / 4);
    manta__host_fini(&h);
  }
  c->ranks = c->ranks ? c->ranks : 1;
  c->batch_rows = c->batch_rows ? c->batch_rows : c->ranks;
  c->threads = c->threads ? c->threads : cpus;
  c->prefetch = c->prefetch < 0 ? 0 : c->prefetch ? c->prefetch : PREFETCH;
  c->memory_limit = c->memory_limit ? c->memory_limit : memory ? memory : MEMORY;
}

static manta_status check(const manta_loader_config *c, manta_error *err)
{
  if (c->ranks < 1 || c->rank < 0 || c->rank >= c->ranks)
    return manta_error_set(err, MANTA_EINVAL, "rank %d of %d", c->rank, c->ranks);
  if (c->batch_rows < 1 || c->batch_rows > MANTA__ROWS_MAX)
    return manta_error_set(err, MANTA_EINVAL, "a global batch of %" PRId64 " rows: 1 to %d",
                           c->batch_rows, MANTA__ROWS_MAX);
  if ((unsigned)c->tail > MANTA_TAIL_PAD || c->epoch < 0)
    return manta_error_set(err, MANTA_EINVAL, "tail %d, epoch %" PRId64 ": there is no such",
                           (int)c->tail, c->epoch);
  if (c->threads < 1 || c->threads > THREADS_MAX || c->prefetch > PREFETCH_MAX)
    return manta_error_set(err, MANTA_EINVAL, "%d threads, %d batches ahead: at most %d and %d",
                           c->threads, c->prefetch, THREADS_MAX, PREFETCH_MAX);
  if (c->memory_limit < MEMORY_MIN)
    return manta_error_set(err, MANTA_EINVAL, "a memory limit of %zu bytes: at least %zu",
                           c->memory_limit, MEMORY_MIN);
  return MANTA_OK;
}

// --- making batches -----------------------------------------------------------------------------

// A batch on which they fail was not given out.
static void do_late(manta_loader *l, struct manta__made *m, const struct manta__position *before)
{
  manta_status st = manta__late_do(&l->late, &m->batch, &m->err);
  if (st < 0) {
    m->st = st;
    m->position = *before;
  }
}

static struct manta__made make(manta_loader *l)
{
  struct manta__made m = {.err = MANTA_ERROR_INIT};
  struct manta__position before = l->cut.position;
  int64_t from = manta__now(), *spent = &l->make;
  if (l->supply.next) {
    manta__track_get(l->track, &(int64_t){0}, &before);
    m.position = before;
    m.st = l->supply.next(l->supply.ctx, &m.batch, &m.position, &m.err);
    spent = &l->wait;
  } else {
    m.st = manta__cut_next(&l->cut, &m.batch, &m.err);
    m.position = l->cut.position;
  }
  if (m.st == 1)
    do_late(l, &m, &before);
  pthread_mutex_lock(&l->lock);
  *spent += manta__now() - from;
  pthread_mutex_unlock(&l->lock);
  return m;
}

static void discard(struct manta__made *m)
{
  manta__cache_charge(-(int64_t)m->bytes);
  if (m->st == 1)
    manta_batch_destroy(m->batch);
}

static bool has_room(const manta_loader *l, size_t bytes)
{
  size_t small = l->c.memory_limit / SMALL_PART;
  small = small < SMALL_BYTES ? small : SMALL_BYTES;
  return l->count < l->c.prefetch || (l->count < l->cap && l->waiting + bytes <= small);
}

// A batch costs less than to wake somebody for it: those that can be made at once are given
// together.
static bool goes_on(const manta_loader *l, const struct manta__made *m)
{
  return m->st == 1 && l->late.count == 0 && l->cut.rows >= l->c.batch_rows &&
         has_room(l, m->bytes);
}

static void *make_ahead(void *ctx)
{
  manta_loader *l = ctx;
  for (bool goes = true; goes;) {
    struct manta__made m = make(l);
    m.bytes = m.st == 1 ? manta__batch_bytes(m.batch) : 0;
    manta__cache_charge((int64_t)m.bytes);
    pthread_mutex_lock(&l->lock);
    while (!l->stops && !has_room(l, m.bytes)) {
      pthread_cond_signal(&l->full);
      pthread_cond_wait(&l->room, &l->lock);
    }
    goes = !l->stops && m.st == 1;
    if (l->stops) {
      discard(&m);
    } else {
      l->made[(l->first + l->count++) % l->cap] = m;
      l->waiting += m.bytes;
    }
    if (!goes_on(l, &m))
      pthread_cond_signal(&l->full);
    pthread_mutex_unlock(&l->lock);
  }
  return NULL;
}

static struct manta__made take(manta_loader *l)
{
  int64_t from = manta__now();
  pthread_mutex_lock(&l->lock);
  while (l->count == 0)
    pthread_cond_wait(&l->full, &l->lock);
  struct manta__made m = l->made[l->first];
  l->first = (l->first + 1) % l->cap;
  l->count--;
  l->waiting -= m.bytes;
  l->wait += manta__now() - from;
  if (l->count <= l->cap / 2) // and then for several at once
    pthread_cond_signal(&l->room);
  pthread_mutex_unlock(&l->lock);
  manta__cache_charge(-(int64_t)m.bytes);
  return m;
}

// By its supply, or by its own cut if there is none that can.
static manta_status begin_supply(manta_loader *l, manta_error *err)
{
  struct manta__position from;
  int64_t epoch;
  manta__track_get(l->track, &epoch, &from);
  manta_status st = l->supply.open(l->supply.ctx, epoch, &from, err);
  if (st != MANTA_EUNSUPPORTED)
    return st < 0 ? st : (manta_status)1;
  l->supply.fini(l->supply.ctx);
  l->supply = (struct manta__supply){0};
  return MANTA_OK;
}

static bool makes_ahead(const manta_loader *l)
{
  return l->c.prefetch > 0 && !l->supply.next;
}

static manta_status begin(manta_loader *l, manta_error *err)
{
  manta_status st = l->supply.next ? begin_supply(l, err) : MANTA_OK;
  l->running = st == 1;
  if (st != MANTA_OK)
    return st < 0 ? st : MANTA_OK;
  MANTA_TRY(manta__dataset_prepare(l->late.early, err));
  struct manta__cut_config c = {
      .flow = {.dataset = l->late.early,
               .passes = l->dataset->passes.times,
               .threads = l->c.threads,
               .memory_limit = l->c.memory_limit},
      .batch_rows = l->c.batch_rows,
      .rank = l->c.rank,
      .ranks = l->c.ranks,
      .tail = l->c.tail,
  };
  manta__track_get(l->track, &c.flow.epoch, &c.flow.from);
  MANTA_TRY(manta__cut_open(&l->cut, &c, err));
  if (makes_ahead(l)) {
    int rc = manta__thread_start(&l->thread, "manta-batch", STACK_BYTES, make_ahead, l);
    if (rc) {
      manta__cut_close(&l->cut);
      return manta_error_set(err, MANTA_ENOMEM, "no thread to make batches: error %d", rc);
    }
  }
  l->running = true;
  return MANTA_OK;
}

static void stop_thread(manta_loader *l)
{
  pthread_mutex_lock(&l->lock);
  l->stops = true;
  pthread_cond_signal(&l->room);
  pthread_mutex_unlock(&l->lock);
  pthread_join(l->thread, NULL);
  for (; l->count; l->count--) {
    discard(&l->made[l->first]);
    l->first = (l->first + 1) % l->cap;
  }
  l->waiting = 0;
  l->stops = false;
}

// Ends the thread and closes the cut; the position stays.
static void stop(manta_loader *l)
{
  if (!l->running)
    return;
  l->running = false;
  if (l->supply.next) {
    l->supply.close(l->supply.ctx);
    return;
  }
  if (makes_ahead(l))
    stop_thread(l);
  manta__cut_close(&l->cut);
  pthread_mutex_lock(&l->lock);
  l->times.parse += l->cut.times.parse;
  l->times.idle += l->cut.times.idle;
  if (l->cut.times.bytes_max > l->times.bytes_max)
    l->times.bytes_max = l->cut.times.bytes_max;
  pthread_mutex_unlock(&l->lock);
}

manta_status manta_loader_next(manta_loader *l, manta_batch **out, manta_error *err)
{
  if (l->over.st == 1 && !l->running)
    MANTA_TRY(begin(l, err));
  struct manta__made m = l->over;
  if (l->over.st == 1)
    m = makes_ahead(l) ? take(l) : make(l);
  manta__track_move(l->track, &m.position, m.st == 0);
  if (m.st == 1) {
    *out = m.batch;
    l->stats.batches++;
    l->stats.rows += m.batch->rows;
    atomic_fetch_add_explicit(&l->dataset->tally.rows, m.batch->rows, memory_order_relaxed);
    return m.st;
  }
  if (l->over.st == 1) {
    l->over = m;
    stop(l);
  }
  if (m.st < 0 && err)
    *err = m.err;
  return m.st;
}

// --- positions ----------------------------------------------------------------------------------

void manta__loader_go(manta_loader *l, int64_t epoch, const struct manta__position *at)
{
  stop(l);
  manta__track_go(l->track, epoch, at);
  l->over = (struct manta__made){.st = (manta_status)1};
}

manta_status manta_loader_begin(manta_loader *l, int64_t epoch, manta_error *err)
{
  if (epoch < 0)
    return manta_error_set(err, MANTA_EINVAL, "epoch %" PRId64 ": they count from 0 on", epoch);
  manta__loader_go(l, epoch, &(struct manta__position){0});
  return MANTA_OK;
}

int64_t manta_loader_epoch(const manta_loader *l)
{
  struct manta__position at;
  int64_t epoch;
  manta__track_get(l->track, &epoch, &at);
  return epoch + at.pass;
}

manta_status manta_loader_save(const manta_loader *l, manta_value *out, manta_error *err)
{
  return manta__track_save(l->track, out, err);
}

manta_status manta_loader_load(manta_loader *l, const manta_value *state, manta_error *err)
{
  struct manta__position at;
  int64_t epoch;
  MANTA_TRY(manta__track_read(l->track, state, &epoch, &at, err));
  manta__loader_go(l, epoch, &at);
  return MANTA_OK;
}

manta_status manta_loader_mark(manta_loader *l, const manta_value *state, manta_error *err)
{
  return manta__track_mark(l->track, state, err);
}

// --- life ---------------------------------------------------------------------------------------

manta_status manta__loader_config(manta_loader_config *out, const manta_loader_config *given,
                                  manta_error *err)
{
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  if (given)
    MANTA_TRY(manta__config_take(&c, sizeof c, given, "MANTA_LOADER_CONFIG_INIT", err));
  c.size = sizeof c;
  fill_in(&c);
  MANTA_TRY(check(&c, err));
  *out = c;
  return MANTA_OK;
}

manta_status manta__loader_open(manta_loader **out, manta_dataset *d, const manta_loader_config *c,
                                const struct manta__supply *supply, manta_error *err)
{
  struct manta__late late;
  int cap = c->prefetch > SMALL ? c->prefetch : SMALL;
  manta_status st = manta__late_split(&late, d, err);
  manta_loader *l = st == MANTA_OK ? manta__calloc(1, sizeof *l) : NULL;
  if (l)
    l->made = manta__calloc((size_t)cap, sizeof *l->made);
  if (l && l->made)
    l->track = manta__track_create(d, c->epoch);
  if (!l || !l->track) {
    if (supply->fini)
      supply->fini(supply->ctx);
    if (l)
      manta__free(l->made);
    manta__free(l);
    return st < 0 ? st : manta_error_set(err, MANTA_ENOMEM, "no memory for a loader");
  }
  l->dataset = manta__dataset_ref(d);
  l->late = late;
  l->supply = *supply;
  l->c = *c;
  l->cap = cap;
  l->over.st = (manta_status)1;
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->full, NULL);
  pthread_cond_init(&l->room, NULL);
  *out = l;
  return MANTA_OK;
}

manta_status manta_loader_open(manta_loader **out, manta_dataset *d,
                               const manta_loader_config *config, manta_error *err)
{
  manta_loader_config c;
  MANTA_TRY(manta__loader_config(&c, config, err));
  MANTA_TRY(manta__dataset_prepare(d, err));
  return manta__loader_open(out, d, &c, &(struct manta__supply){0}, err);
}

void manta_loader_close(manta_loader *l)
{
  if (!l)
    return;
  stop(l);
  if (l->supply.fini)
    l->supply.fini(l->supply.ctx);
  manta__track_close(l->track);
  manta__track_unref(l->track);
  manta__dataset_unref(l->dataset);
  pthread_mutex_destroy(&l->lock);
  pthread_cond_destroy(&l->full);
  pthread_cond_destroy(&l->room);
  manta__free(l->made);
  manta__free(l);
}

void manta_loader_get_stats(manta_loader *l, manta_loader_stats *out)
{
  pthread_mutex_lock(&l->lock);
  struct manta__feed_times t = l->times;
  *out = l->stats;
  int64_t make = l->make;
  out->wait = (double)l->wait * 1e-9;
  pthread_mutex_unlock(&l->lock);
  if (l->supply.next)
    l->supply.add_times(l->supply.ctx, &t, &make);
  else if (l->running)
    manta__flow_add_times(l->cut.flow, &t);
  out->make = (double)make * 1e-9;
  out->parse = (double)t.parse * 1e-9;
  out->idle = (double)t.idle * 1e-9;
  out->bytes_max = t.bytes_max;
}
