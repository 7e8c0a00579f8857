/* SPDX-License-Identifier: Apache-2.0
 *
 * data/share/giver.c - the reader's side: a loader for each connection, slots that it fills.
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "data/loader/cache.h"
#include "data/plan/pack.h"
#include "data/share/callers.h"
#include "data/share/image.h"
#include "data/share/share.h"
#include "sys/shm.h"
#include "sys/sock.h"

#define SETS_MAX 64   /* data sets that are kept for their blocks */
#define OPEN_S   60.0 /* for a worker to say what it wants */

// --- data sets ----------------------------------------------------------------------------------

/* By their plans. */
struct giver_set {
  uint64_t hash;
  manta_dataset *d; /* NULL: unused */
  int users;
  uint64_t used;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct giver_set sets[SETS_MAX];
static uint64_t uses;
static bool placed; // environment and directory are the workers'

static struct giver_set *find_set(uint64_t hash)
{
  struct giver_set *place = NULL;
  for (int i = 0; i < SETS_MAX; i++) {
    if (sets[i].d && sets[i].hash == hash)
      return &sets[i];
    if (!sets[i].users && (!place || sets[i].used < place->used))
      place = &sets[i];
  }
  if (place) {
    manta__dataset_unref(place->d);
    *place = (struct giver_set){.hash = hash};
  }
  return place;
}

static manta_status make_set(struct giver_set *s, const manta_value *request, manta_error *err)
{
  const manta_value *packed = manta_value_get(request, "plan");
  manta_value plan = {0};
  if (!packed || packed->type != MANTA_BYTES)
    return manta__plan_malformed(err);
  MANTA_TRY(manta_value_unpack(&plan, packed->u.s, packed->count, err));
  manta_status st = manta__plan_unpack(&s->d, &plan, err);
  manta_value_fini(&plan);
  return st;
}

static manta_status open_set(struct giver_set **out, uint64_t hash, const void *p, size_t bytes,
                             manta_error *err)
{
  manta_value request = {0};
  struct giver_set *s = find_set(hash);
  if (!s)
    return manta_error_set(err, MANTA_ENOROOM, "more than %d data sets are being read", SETS_MAX);
  if (!s->d) {
    MANTA_TRY(manta_value_unpack(&request, p, bytes, err));
    if (!placed)
      manta__home_take(&request);
    placed = true;
    manta_status st = make_set(s, &request, err);
    manta_value_fini(&request);
    MANTA_TRY(st);
  }
  s->users++;
  s->used = ++uses;
  *out = s;
  return MANTA_OK;
}

static void close_set(struct giver_set *s)
{
  pthread_mutex_lock(&lock);
  s->users--;
  pthread_mutex_unlock(&lock);
}

// --- who is served ------------------------------------------------------------------------------

/* A connection, by its number. */
struct giver_client {
  struct giver_client *next;
  uint64_t number;
  int sock;
};

static struct giver_client *clients;
static uint64_t served;

static void enter(struct giver_client *c, int sock)
{
  pthread_mutex_lock(&lock);
  *c = (struct giver_client){clients, ++served, sock};
  clients = c;
  pthread_mutex_unlock(&lock);
}

static void leave(const struct giver_client *c)
{
  struct giver_client **at = &clients;
  pthread_mutex_lock(&lock);
  while (*at != c)
    at = &(*at)->next;
  *at = c->next;
  pthread_mutex_unlock(&lock);
}

uint64_t manta__giver_served(void)
{
  pthread_mutex_lock(&lock);
  uint64_t n = served;
  pthread_mutex_unlock(&lock);
  return n;
}

bool manta__giver_waits(uint64_t until)
{
  bool any = false, waits = false;
  pthread_mutex_lock(&lock);
  for (const struct giver_client *c = clients; c && !waits; c = c->next) {
    struct pollfd p = {.fd = c->sock, .events = POLLRDHUP};
    any |= c->number <= until;
    waits = c->number <= until && (poll(&p, 1, 0) <= 0 || !(p.revents & (POLLHUP | POLLRDHUP)));
  }
  pthread_mutex_unlock(&lock);
  return waits || !any;
}

// --- a connection -------------------------------------------------------------------------------

struct giver_slot {
  int fd; /* -1: none yet */
  void *p;
  size_t bytes;
  bool free;
};

struct giver {
  int sock;
  struct manta__share_open want;
  struct giver_set *set;
  manta_loader *l;
  struct giver_slot slot[MANTA__SHARE_SLOTS];
};

static void drop_slot(struct giver_slot *s)
{
  if (s->p) {
    manta__cache_charge(-(int64_t)s->bytes);
    manta__shm_unmap(s->p, s->bytes);
  }
  manta__fd_close(&s->fd);
  s->p = NULL;
}

// A larger one if need be; *fresh: the worker does not know it.
static manta_status size_slot(struct giver_slot *s, size_t bytes, bool *fresh, manta_error *err)
{
  *fresh = !s->p || s->bytes < bytes;
  if (!*fresh)
    return MANTA_OK;
  drop_slot(s);
  s->p = NULL;
  MANTA_TRY(manta__image_create("manta-batch", bytes + bytes / 4, &s->fd, &s->p, &s->bytes, err));
  manta__cache_charge((int64_t)s->bytes);
  return MANTA_OK;
}

// The number of a slot that the worker does not use; -1: the worker is gone.
static int free_slot(struct giver *g)
{
  for (;;) {
    int32_t back;
    int fds[1], count;
    for (int i = 0; i < g->want.slots; i++)
      if (g->slot[i].free)
        return i;
    if (manta__sock_recv(g->sock, &back, sizeof back, fds, 0, &count) != sizeof back || back < 0 ||
        back >= g->want.slots)
      return -1;
    g->slot[back].free = true;
  }
}

static void fill_in_times(struct giver *g, struct manta__share_said *m)
{
  manta_loader_stats t;
  manta_data_stats d;
  int64_t epoch;
  manta_loader_get_stats(g->l, &t);
  manta_dataset_stats(g->set->d, &d);
  m->times =
      (struct manta__feed_times){(int64_t)(t.parse * 1e9), (int64_t)(t.idle * 1e9), t.bytes_max};
  m->make = (int64_t)(t.make * 1e9);
  m->step = (int64_t)(d.step * 1e9);
  m->read = (int64_t)(d.read * 1e9);
  m->file_bytes = d.bytes;
  m->skipped = d.skipped;
  manta__track_get(g->l->track, &epoch, &m->at);
}

// False: the worker is gone.
static bool say(struct giver *g, struct manta__share_said *m, int fd)
{
  size_t n = offsetof(struct manta__share_said, text) + strlen(m->text) + 1;
  return manta__sock_send(g->sock, m, n, &fd, fd >= 0) == (ssize_t)n;
}

// With what functions gave beside it.
static void say_failure(struct giver *g, struct manta__share_said *m, const manta_error *err)
{
  int fd = manta__callers_take_raised(err->message);
  memcpy(m->text, err->message, sizeof err->message);
  say(g, m, fd);
  manta__fd_close(&fd);
}

// False: nothing more is to be said.
static bool give_one(struct giver *g)
{
  struct manta__share_said m = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_batch *b = NULL;
  bool fresh = false;
  int k = free_slot(g);
  if (k < 0)
    return false;
  struct giver_slot *s = &g->slot[k];
  manta_status st = manta_loader_next(g->l, &b, &err);
  m.slot = k;
  fill_in_times(g, &m);
  if (st == 1) {
    m.bytes = manta__image_bytes(b);
    manta_status sized = size_slot(s, m.bytes, &fresh, &err);
    if (sized == MANTA_OK)
      manta__image_write(s->p, b);
    st = sized < 0 ? sized : st;
    manta_batch_destroy(b);
  }
  m.status = st;
  s->free = false;
  if (st < 0)
    say_failure(g, &m, &err);
  else if (g->want.speaks)
    manta__callers_take_output(m.text, sizeof m.text);
  return st >= 0 && say(g, &m, fresh && st == 1 ? s->fd : -1) && st == 1;
}

// --- its beginning ------------------------------------------------------------------------------

static bool makes_sense(const struct manta__share_open *o)
{
  return o->magic == MANTA__SHARE_MAGIC && o->slots > 0 && o->slots <= MANTA__SHARE_SLOTS &&
         o->from.pass >= 0 && o->from.rows >= 0 && o->from.ticket >= 0 && o->from.before >= 0 &&
         o->from.taken >= 0 && o->epoch >= 0;
}

static manta_status open_plan(struct giver *g, int fd, manta_error *err)
{
  void *p;
  size_t bytes;
  MANTA_TRY(manta__shm_map(fd, &p, &bytes, err));
  pthread_mutex_lock(&lock);
  manta_status st = open_set(&g->set, g->want.plan, p, bytes, err);
  pthread_mutex_unlock(&lock);
  manta__shm_unmap(p, bytes);
  return st;
}

static manta_status open_loader(struct giver *g, int fd, manta_error *err)
{
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  const struct manta__share_open *w = &g->want;
  MANTA_TRY(open_plan(g, fd, err));
  c.batch_rows = w->batch_rows;
  c.rank = w->rank;
  c.ranks = w->ranks;
  c.tail = (manta_tail)w->tail;
  c.threads = w->threads;
  c.prefetch = -1; // the slots are what is made ahead
  c.memory_limit = w->memory_limit;
  MANTA_TRY(manta_loader_open(&g->l, g->set->d, &c, err));
  manta__loader_go(g->l, w->epoch, &w->from);
  return MANTA_OK;
}

// False: the worker is gone, or no worker.
static bool hear(struct giver *g, int *fd)
{
  int count = 0;
  if (manta__fd_wait(g->sock, false, manta__deadline(OPEN_S)) != 1)
    return false;
  ssize_t n = manta__sock_recv(g->sock, &g->want, sizeof g->want, fd, 1, &count);
  if (n == (ssize_t)sizeof g->want && count == 1 && makes_sense(&g->want))
    return true;
  if (count)
    manta__fd_close(fd);
  return false;
}

void manta__giver_serve(int sock)
{
  struct giver g = {.sock = sock};
  struct giver_client client;
  manta_error err = MANTA_ERROR_INIT;
  int fd = -1;
  for (int i = 0; i < MANTA__SHARE_SLOTS; i++)
    g.slot[i] = (struct giver_slot){.fd = -1, .free = true};
  enter(&client, sock);
  if (hear(&g, &fd)) {
    struct manta__share_said m = {.status = open_loader(&g, fd, &err)};
    if (m.status < 0)
      say_failure(&g, &m, &err);
    while (m.status == MANTA_OK && give_one(&g))
      ;
  }
  manta__fd_close(&fd);
  manta_loader_close(g.l);
  if (g.set)
    close_set(g.set);
  for (int i = 0; i < MANTA__SHARE_SLOTS; i++)
    drop_slot(&g.slot[i]);
  leave(&client);
  close(sock);
}
