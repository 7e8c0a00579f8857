/* SPDX-License-Identifier: Apache-2.0
 *
 * data/share/taker.c - the worker's side: batches that lie in slots of the reader.
 */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "data/plan/apply.h"
#include "data/plan/late.h"
#include "data/share/image.h"
#include "data/share/share.h"
#include "sys/file.h"
#include "sys/shm.h"
#include "sys/sock.h"

#define HELD      2    /* batches of a worker that lie in slots; what it keeps beyond is copied */
#define LOOK_S    0.02 /* how often a wait looks whether it is to end */
#define LOST_MAX  5    /* readers in a row that died without a batch */
#define LOST_WAIT 20000

// --- slots --------------------------------------------------------------------------------------

/* A mapped slot: of the link, and of each batch that lies in it. */
struct taker_map {
  _Atomic int refs;
  void *p;
  size_t bytes;
};

/* A connection: of the taker, and of each batch that came over it. */
struct taker_link {
  _Atomic int refs;
  _Atomic int held; /* batches that were not given back */
  int sock;
  pthread_mutex_t lock;
  bool closed; /* nobody listens any more */
  struct taker_map *map[MANTA__SHARE_SLOTS];
};

struct taker_hold {
  struct taker_link *link;
  struct taker_map *map;
  int32_t slot;
};

static void map_unref(struct taker_map *m)
{
  if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) > 1)
    return;
  manta__shm_unmap(m->p, m->bytes);
  manta__free(m);
}

static void link_unref(struct taker_link *l)
{
  if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) > 1)
    return;
  pthread_mutex_destroy(&l->lock);
  manta__free(l);
}

static void give_back(struct taker_link *l, int32_t slot)
{
  pthread_mutex_lock(&l->lock);
  if (!l->closed)
    manta__sock_send(l->sock, &slot, sizeof slot, NULL, 0); // one who is gone is noticed by recv
  pthread_mutex_unlock(&l->lock);
}

static void release(void *ctx)
{
  struct taker_hold *h = ctx;
  give_back(h->link, h->slot);
  atomic_fetch_sub(&h->link->held, 1);
  map_unref(h->map);
  link_unref(h->link);
  manta__free(h);
}

static void link_close(struct taker_link *l)
{
  pthread_mutex_lock(&l->lock);
  l->closed = true;
  close(l->sock);
  pthread_mutex_unlock(&l->lock);
  for (int i = 0; i < MANTA__SHARE_SLOTS; i++)
    map_unref(l->map[i]);
  link_unref(l);
}

static manta_status take_map(struct taker_link *l, int slot, int fd, manta_error *err)
{
  struct taker_map *m = manta__calloc(1, sizeof *m);
  if (!m)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a batch");
  manta_status st = manta__shm_map(fd, &m->p, &m->bytes, err);
  if (st < 0) {
    manta__free(m);
    return st;
  }
  m->refs = 1;
  map_unref(l->map[slot]);
  l->map[slot] = m;
  return MANTA_OK;
}

// --- batches ------------------------------------------------------------------------------------

struct taker {
  manta_dataset *d;   /* whose late steps the loader does */
  manta_dataset *cut; /* what the reader cuts; borrowed from d */
  struct manta__share_source source;
  struct manta__share_open open;
  int request; /* memfd */
  struct taker_link *link;
  int lost;                       /* readers, since the last batch */
  struct manta__feed_times times; /* of the reader's loader, with its last word */
  int64_t make;
};

// Where it lies: the slot is the reader's again when the batch is destroyed.
static manta_status view(struct taker *t, const struct manta__share_said *m, manta_batch **out,
                         manta_error *err)
{
  struct taker_map *map = t->link->map[m->slot];
  struct taker_hold *h = manta__malloc(sizeof *h);
  struct manta__memory *held = h ? manta__memory_foreign(release, h) : NULL;
  if (!held) {
    manta__free(h);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a batch");
  }
  *h = (struct taker_hold){t->link, map, m->slot};
  atomic_fetch_add(&map->refs, 1);
  atomic_fetch_add(&t->link->refs, 1);
  atomic_fetch_add(&t->link->held, 1);
  manta_status st = manta__image_view(out, t->cut->out, map->p, (size_t)m->bytes, held, err);
  manta__memory_unref(held);
  return st;
}

static manta_status copy(struct taker *t, const struct manta__share_said *m, manta_batch **out,
                         manta_error *err)
{
  struct manta__memory *own = manta__memory_create(t->d->pool, (size_t)m->bytes);
  if (!own)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a batch");
  memcpy(own->data, t->link->map[m->slot]->p, (size_t)m->bytes);
  give_back(t->link, m->slot);
  manta_status st = manta__image_view(out, t->cut->out, own->data, (size_t)m->bytes, own, err);
  manta__memory_unref(own);
  return st;
}

static manta_status unfold(struct taker *t, const struct manta__share_said *m, int fd,
                           manta_batch **out, manta_error *err)
{
  if (m->slot < 0 || m->slot >= t->open.slots)
    return manta_error_set(err, MANTA_EPROTO, "the reader speaks of a slot that there is not");
  if (fd >= 0)
    MANTA_TRY(take_map(t->link, m->slot, fd, err));
  struct taker_map *map = t->link->map[m->slot];
  if (!map || m->bytes > map->bytes)
    return manta_error_set(err, MANTA_EPROTO, "the reader speaks of bytes that there are not");
  return atomic_load(&t->link->held) < HELD ? view(t, m, out, err) : copy(t, m, out, err);
}

// --- the reader ---------------------------------------------------------------------------------

static manta_status reach(struct taker *t, manta_error *err)
{
  struct taker_link *l = manta__calloc(1, sizeof *l);
  if (!l)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a loader");
  manta_status st = t->source.connect(t->source.ctx, &l->sock, err);
  if (st < 0) {
    manta__free(l);
    return st;
  }
  l->refs = 1;
  pthread_mutex_init(&l->lock, NULL);
  manta__sock_send(l->sock, &t->open, sizeof t->open, &t->request, 1); // recv knows if it is gone
  t->link = l;
  return MANTA_OK;
}

static void part(struct taker *t)
{
  if (t->link)
    link_close(t->link);
  t->link = NULL;
}

// 1: *m; 0: the reader is gone.
static manta_status hear(struct taker *t, struct manta__share_said *m, int *fd, manta_error *err)
{
  int count, rc;
  while ((rc = manta__fd_wait(t->link->sock, false, manta__deadline(LOOK_S))) == 0)
    MANTA_TRY(t->source.check(t->source.ctx, err));
  *fd = -1;
  *m = (struct manta__share_said){0};
  ssize_t n = rc < 0 ? -1 : manta__sock_recv(t->link->sock, m, sizeof *m, fd, 1, &count);
  return (manta_status)(n >= (ssize_t)offsetof(struct manta__share_said, text));
}

// Another one, behind the last batch.
static manta_status replace(struct taker *t, manta_error *err)
{
  part(t);
  if (t->lost++ == LOST_MAX)
    return manta_error_set(err, MANTA_EWORKER,
                           "the process that reads the data of this host died %d times without "
                           "giving a batch\nhint: it may be out of memory: set a smaller "
                           "memory_limit, or MANTA_DATA_READER=never",
                           LOST_MAX);
  if (t->lost > 1)
    usleep(LOST_WAIT);
  return reach(t, err);
}

// Of all files, by all workers of the host: what the data set here would have counted.
static void note(struct taker *t, const struct manta__share_said *m)
{
  struct manta__tally *tally = &manta__late_base(t->d)->tally;
  t->times = m->times;
  t->make = m->make;
  t->open.from = m->at;
  atomic_store(&tally->bytes, m->file_bytes);
  atomic_store(&tally->skipped, m->skipped);
  atomic_store(&tally->step_there, m->step);
  atomic_store(&tally->read_there, m->read);
}

// A function's, as if it had been called here.
static void print(const char *text)
{
  size_t n = strlen(text);
  if (n)
    manta__write_all(STDOUT_FILENO, text, n, NULL);
}

static manta_status fail(struct taker *t, const struct manta__share_said *m, int fd,
                         manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  void *p;
  size_t bytes;
  manta_error_set(&why, (manta_status)m->status, "%s", m->text);
  if (fd >= 0 && manta__shm_map(fd, &p, &bytes, NULL) == MANTA_OK) {
    manta__apply_raised(t->d, p, bytes, &why);
    manta__shm_unmap(p, bytes);
  }
  return manta_error_set(err, why.status, "%s", why.message);
}

static manta_status taker_next(void *ctx, manta_batch **out, struct manta__position *at,
                               manta_error *err)
{
  struct taker *t = ctx;
  struct manta__share_said m;
  manta_status st;
  int fd;
  while ((st = hear(t, &m, &fd, err)) == 0)
    MANTA_TRY(replace(t, err));
  MANTA_TRY(st);
  m.text[sizeof m.text - 1] = 0;
  st = m.status < 0 ? fail(t, &m, fd, err) : (manta_status)m.status;
  if (st >= 0)
    print(m.text);
  if (st == 1) {
    manta_status took = unfold(t, &m, fd, out, err);
    st = took < 0 ? took : st;
  }
  manta__fd_close(&fd);
  if (st >= 0) {
    note(t, &m);
    t->lost = 0;
  }
  *at = t->open.from;
  return st;
}

static manta_status taker_open(void *ctx, int64_t epoch, const struct manta__position *from,
                               manta_error *err)
{
  struct taker *t = ctx;
  t->open.epoch = epoch;
  t->open.from = *from;
  return reach(t, err);
}

static void taker_close(void *ctx)
{
  part(ctx);
}

static void taker_times(void *ctx, struct manta__feed_times *to, int64_t *make)
{
  const struct taker *t = ctx;
  to->parse += t->times.parse;
  to->idle += t->times.idle;
  *make += t->make;
  if (t->times.bytes_max > to->bytes_max)
    to->bytes_max = t->times.bytes_max;
}

static void taker_fini(void *ctx)
{
  struct taker *t = ctx;
  part(t);
  manta__fd_close(&t->request);
  manta__dataset_unref(t->d);
  manta__free(t);
}

// --- life ---------------------------------------------------------------------------------------

// With the plan as bytes: its hash names the data set in the reader.
static manta_status describe(struct taker *t, manta_value *request, manta_error *err)
{
  manta_value plan = {0};
  void *bytes = NULL;
  size_t n = 0;
  manta_status st = manta__plan_pack(t->cut, &plan, err);
  if (st == MANTA_OK)
    st = manta_value_pack(&plan, &bytes, &n, err);
  t->open.plan = manta__hash(bytes, n);
  if (st == MANTA_OK)
    st = manta_value_set_map(request);
  if (st == MANTA_OK)
    st = manta__plan_put_bytes(request, "plan", bytes, n);
  if (st == MANTA_OK)
    st = manta__home_put(request);
  manta_free(bytes);
  manta_value_fini(&plan);
  return st < 0 && st != MANTA_EUNSUPPORTED ? manta_error_set(err, st, "no memory for a plan") : st;
}

static manta_status make_request(struct taker *t, manta_error *err)
{
  manta_value request = {0};
  void *bytes = NULL;
  size_t n = 0;
  manta_status st = describe(t, &request, err);
  if (st == MANTA_OK)
    st = manta_value_pack(&request, &bytes, &n, err);
  if (st == MANTA_OK)
    st = manta__shm_of("manta-plan", bytes, n, &t->request, err);
  manta_free(bytes);
  manta_value_fini(&request);
  return st;
}

manta_status manta__taker_create(struct manta__supply *out, manta_dataset *d,
                                 const manta_loader_config *c,
                                 const struct manta__share_source *source, manta_error *err)
{
  struct manta__late late;
  MANTA_TRY(manta__late_split(&late, d, err));
  struct taker *t = manta__calloc(1, sizeof *t);
  if (!t)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a loader");
  *t = (struct taker){
      .d = manta__dataset_ref(d), .cut = late.early, .source = *source, .request = -1};
  int slots = HELD + (c->prefetch > 0 ? c->prefetch : 1);
  t->open =
      (struct manta__share_open){.magic = MANTA__SHARE_MAGIC,
                                 .batch_rows = c->batch_rows,
                                 .rank = c->rank,
                                 .ranks = c->ranks,
                                 .tail = (int32_t)c->tail,
                                 .threads = c->threads,
                                 .slots = slots < MANTA__SHARE_SLOTS ? slots : MANTA__SHARE_SLOTS,
                                 .speaks = source->speaks,
                                 .memory_limit = c->memory_limit};
  manta_status st = make_request(t, err);
  if (st < 0) {
    taker_fini(t);
    return st;
  }
  *out = (struct manta__supply){.ctx = t,
                                .open = taker_open,
                                .next = taker_next,
                                .close = taker_close,
                                .add_times = taker_times,
                                .fini = taker_fini};
  return MANTA_OK;
}
