/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/mover.c - sends and receives in flight. Whoever waits for one moves all of them; a thread
 * does it for those that were started, while nobody waits.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "comm/hosts/hosts.h"
#include "sys/thread.h"

#define SPINS      2000
#define STACK      (128u << 10)
#define RENDEZVOUS 4096 /* from here on shared memory is copied from its place */

manta_status manta__mover_init(struct manta__mover *m, int size, manta_error *err)
{
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->change, NULL);
  m->last = &m->first;
  m->seen = manta__calloc((size_t)size, sizeof *m->seen);
  m->half = manta__calloc((size_t)size, sizeof(struct manta__move *));
  manta__aside_init(m);
  return m->seen && m->half
             ? MANTA_OK
             : manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator's moves");
}

static void begin(manta_comm *c, manta_work *w)
{
  const struct manta__task *t = &w->task;
  int64_t limit = c->team.timeout_ns;
  bool sends = t->call == MANTA__CALL_SEND;
  size_t bytes = t->count * manta_dtype_bytes(t->type);
  w->moves = true;
  w->any = t->root < 0;
  w->move = (struct manta__move){.sends = sends,
                                 .peer = t->root,
                                 .tag = t->tag,
                                 .buf = sends ? (uint8_t *)(uintptr_t)t->send : t->recv,
                                 .bytes = bytes,
                                 .count = t->count,
                                 .type = t->type,
                                 .place = sends && bytes > RENDEZVOUS
                                              ? manta__heap_offset(c->fabric, t->send, bytes)
                                              : MANTA__NOWHERE,
                                 .by = limit < 0 ? MANTA__NEVER : manta__now() + limit};
}

static void finish(manta_work *w, manta_status st)
{
  w->status = st;
  if (w->task.from)
    *w->task.from = w->move.peer;
  atomic_store_explicit(&w->done, true, memory_order_release);
}

static bool is_remote(const manta_comm *c, const manta_work *w)
{
  return c->hosts && c->hosts->host[w->move.peer] != c->hosts->me;
}

int manta__mover_local(const manta_comm *c, int rank)
{
  return c->hosts ? c->hosts->local[rank] : rank;
}

// --- steps --------------------------------------------------------------------------------------

// Within a host. A team knows its ranks by their places there.
static bool step_here(manta_comm *c, manta_work *w, manta_status *st)
{
  int peer = w->move.peer;
  w->move.peer = manta__mover_local(c, peer);
  bool over = manta__pair_step(&c->team, &w->move, st, &w->err);
  w->move.peer = peer;
  return over;
}

// Of its tag: what was put aside, or else the next in the channel.
static bool step_recv(manta_comm *c, manta_work *w, manta_status *st)
{
  struct manta__move *m = &w->move, **half = &c->mover.half[m->peer];
  if (!m->headed) {
    if ((*st = manta__aside_clear(c, m->peer, &w->err)) < 0 || manta__aside_find(c, w, m->peer, st))
      return true;
    m->held = *half != NULL;
  }
  bool over = step_here(c, w, st);
  if (m->headed)
    *half = over ? NULL : m;
  return over;
}

// Whether `peer` has a message for a receive that takes it from anybody.
static bool has_for(manta_comm *c, const manta_work *w, int peer)
{
  struct manta__move next;
  return !c->mover.half[peer] && manta__pair_peek(&c->team, peer, &next) && next.tag == w->move.tag;
}

static bool step_any(manta_comm *c, manta_work *w, manta_status *st)
{
  bool left = true;
  for (int r = 0; r < c->size; r++) {
    if (r == c->rank)
      continue;
    left = left && atomic_load_explicit(&c->team.line[r].left, memory_order_acquire);
    *st = manta__aside_clear(c, r, &w->err);
    if (*st < 0 || manta__aside_find(c, w, r, st))
      return true;
    if (has_for(c, w, r)) {
      w->any = false;
      w->move.peer = r;
      return step_recv(c, w, st);
    }
  }
  *st = manta__team_trouble(&c->team, c->rank ? 0 : c->size - 1, left, w->move.by, "recv", &w->err);
  return *st < 0;
}

// Messages with another host that have the same tag are in order; those of different tags are not.
static bool is_behind(const manta_comm *c, const manta_work *w)
{
  for (const manta_work *i = c->mover.first; i != w; i = i->next)
    if (i->move.peer == w->move.peer && i->move.sends == w->move.sends &&
        i->move.tag == w->move.tag)
      return true;
  return false;
}

// Sends within a host go one by one.
static bool step_send(manta_comm *c, manta_work *w, manta_status *st)
{
  uint32_t *seen = &c->mover.seen[w->move.peer];
  if (*seen == c->mover.round)
    return false;
  if (step_here(c, w, st))
    return true;
  *seen = c->mover.round;
  return false;
}

// Whether an earlier receive, which had nothing a moment ago, may take what is there now.
static bool is_later(const manta_comm *c, const manta_work *w)
{
  if (w->move.sends || w->move.headed || is_remote(c, w))
    return false;
  for (const manta_work *i = c->mover.first; i != w; i = i->next)
    if (!i->move.sends && !i->move.headed && i->move.tag == w->move.tag &&
        (i->any || w->any || i->move.peer == w->move.peer))
      return true;
  return false;
}

static bool step_one(manta_comm *c, manta_work *w, manta_status *st)
{
  if (is_later(c, w)) {
    *st = manta__team_trouble(&c->team, c->team.rank, false, w->move.by, "recv", &w->err);
    return *st < 0;
  }
  if (w->any)
    return step_any(c, w, st);
  if (is_remote(c, w))
    return !is_behind(c, w) && manta__hosts_step(c->hosts, &w->move, st, &w->err);
  return w->move.sends ? step_send(c, w, st) : step_recv(c, w, st);
}

// One step of each that may take one. Called with the lock; true if one ended.
static bool step_all(manta_comm *c)
{
  struct manta__mover *m = &c->mover;
  bool ended = false;
  m->round++;
  for (manta_work **p = &m->first; *p;) {
    manta_work *w = *p;
    manta_status st = MANTA_OK;
    if (!step_one(c, w, &st)) {
      p = &w->next;
      continue;
    }
    *p = w->next;
    if (!*p)
      m->last = p;
    finish(w, st);
    ended = true;
  }
  if (ended) // another thread of ours may wait for it
    manta__team_ring(&c->team, c->team.rank);
  return ended;
}

static void add(struct manta__mover *m, manta_work *w)
{
  w->next = NULL;
  *m->last = w;
  m->last = &w->next;
}

static bool step(manta_comm *c)
{
  pthread_mutex_lock(&c->mover.lock);
  bool ended = step_all(c);
  pthread_mutex_unlock(&c->mover.lock);
  return ended;
}

// Just behind the nearest deadline of all; the lock is not held.
static int64_t nearest(manta_comm *c)
{
  int64_t by = MANTA__NEVER - 1;
  pthread_mutex_lock(&c->mover.lock);
  for (manta_work *w = c->mover.first; w; w = w->next)
    by = w->move.by < by ? w->move.by : by;
  pthread_mutex_unlock(&c->mover.lock);
  return by + 1;
}

static bool any_remote(manta_comm *c)
{
  bool any = false;
  pthread_mutex_lock(&c->mover.lock);
  for (manta_work *w = c->mover.first; w && !any; w = w->next)
    any = is_remote(c, w);
  pthread_mutex_unlock(&c->mover.lock);
  return any;
}

// A ring of this host and a message of another can't be waited for at once: the wire waits only for
// a few milliseconds.
static void sleep_until(manta_comm *c, struct manta__bell *bell, uint32_t seen)
{
  int idle = c->hosts ? c->hosts->wire->spins : 0;
  if (any_remote(c))
    manta__wire_turn(c->hosts->wire, &idle);
  else
    manta__bell_wait(bell, seen, nearest(c));
}

// Sleeps until somebody rings, unless something could still be moved.
static void doze(manta_comm *c, const manta_work *w)
{
  struct manta__bell *bell = manta__team_bell(&c->team);
  uint32_t seen = manta__bell_prepare(bell);
  atomic_thread_fence(memory_order_seq_cst);
  if (!step(c) && !(w && manta_work_test(w)) && !atomic_load(&c->mover.stop)) {
    manta__team_alive(&c->team, true);
    sleep_until(c, bell, seen);
    manta__team_alive(&c->team, false);
  }
  manta__bell_done(bell);
}

void manta__mover_wait(manta_comm *c, manta_work *w)
{
  int spins = c->team.crowded ? 50 : SPINS;
  for (int i = 0; i < spins && !manta_work_test(w); i++)
    step(c);
  while (!manta_work_test(w))
    doze(c, w);
}

static void *serve(void *arg)
{
  manta_comm *c = arg;
  struct manta__mover *m = &c->mover;
  manta__team_background();
  pthread_mutex_lock(&m->lock);
  while (!atomic_load(&m->stop)) {
    if (!m->first) { // off the bell: else every ring of a peer would be a system call
      pthread_cond_wait(&m->change, &m->lock);
      continue;
    }
    pthread_mutex_unlock(&m->lock);
    doze(c, NULL);
    pthread_mutex_lock(&m->lock);
  }
  pthread_mutex_unlock(&m->lock);
  return NULL;
}

void manta__mover_fini(manta_comm *c)
{
  struct manta__mover *m = &c->mover;
  // What was started ends first: our team has been told to quit, or the peer comes.
  for (manta_work *w = c->all; w; w = w->next_all)
    if (w->moves)
      manta__mover_wait(c, w);
  pthread_mutex_lock(&m->lock);
  atomic_store(&m->stop, true);
  pthread_cond_broadcast(&m->change);
  pthread_mutex_unlock(&m->lock);
  if (m->has_thread) {
    manta__team_ring(&c->team, c->team.rank);
    pthread_join(m->thread, NULL);
  }
  for (manta_work *w = m->first; w; w = w->next)
    if (is_remote(c, w))
      manta__hosts_drop(c->hosts, &w->move);
  pthread_mutex_destroy(&m->lock);
  pthread_cond_destroy(&m->change);
  manta__aside_fini(m);
  manta__free(m->half);
  manta__free(m->seen);
}

manta_status manta__mover_run(manta_comm *c, const struct manta__task *t, manta_error *err)
{
  manta_work w = {.comm = c, .task = *t, .err = MANTA_ERROR_INIT};
  manta__team_alive(&c->team, false);
  begin(c, &w);
  pthread_mutex_lock(&c->mover.lock);
  add(&c->mover, &w);
  step_all(c);
  pthread_mutex_unlock(&c->mover.lock);
  manta__mover_wait(c, &w);
  if (w.status < 0 && err)
    *err = w.err;
  return w.status;
}

manta_status manta__mover_start(manta_comm *c, const struct manta__task *t, manta_work **out,
                                manta_error *err)
{
  struct manta__mover *m = &c->mover;
  manta_work *w = manta__work_new(c, t, err);
  if (!w)
    return MANTA_ENOMEM;
  begin(c, w);
  pthread_mutex_lock(&m->lock);
  add(m, w);
  step_all(c);
  bool idle = m->first == NULL;
  pthread_cond_broadcast(&m->change);
  pthread_mutex_unlock(&m->lock);
  // Without a thread it is moved by whoever waits: slower, not wrong.
  if (!idle && !m->has_thread)
    m->has_thread = manta__thread_start(&m->thread, "manta-move", STACK, serve, c) == 0;
  *out = w;
  return MANTA_OK;
}
