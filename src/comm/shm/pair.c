/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shm/pair.c - bytes from one rank to another: a ring per pair, with a head in front of each
 * message. Memory of the shared heap does not go through the ring: the receiver copies it from its
 * place, and the sender waits until it has.
 */
#include <string.h>

#include "base/clock.h"
#include "comm/shm/team.h"

#define STEP (16u << 10) /* published at once: the other side copies while we do */

struct pair_head {
  uint64_t count, place;
  uint32_t type;
  int32_t tag;
};

#define HEAD 64u
_Static_assert(sizeof(struct pair_head) <= HEAD, "a head is one cache line");

struct channel {
  struct manta__pair *pair;
  uint8_t *ring;
  size_t cap;
};

static struct channel channel(const struct manta__team *t, const struct manta__move *m)
{
  int to = m->sends ? m->peer : t->rank, from = m->sends ? t->rank : m->peer;
  size_t i = (size_t)to * (size_t)t->size + (size_t)from;
  return (struct channel){&t->pair[i], t->rings + i * t->ring_bytes, t->ring_bytes};
}

// Every message begins at a cache line, so a head never wraps.
static uint64_t aligned(uint64_t pos)
{
  return (pos + HEAD - 1) & ~(uint64_t)(HEAD - 1);
}

static size_t smaller(size_t a, size_t b)
{
  return a < b ? a : b;
}

// --- sending ------------------------------------------------------------------------------------

static uint64_t room(const struct channel *ch, uint64_t put)
{
  return ch->cap - (put - atomic_load_explicit(&ch->pair->taken, memory_order_acquire));
}

static void publish_put(const struct manta__team *t, const struct channel *ch, int peer,
                        uint64_t put)
{
  atomic_store(&ch->pair->put, put);
  manta__team_ring(t, peer);
}

static bool send_head(struct manta__team *t, struct manta__move *m, const struct channel *ch)
{
  uint64_t put = aligned(atomic_load_explicit(&ch->pair->put, memory_order_relaxed));
  struct pair_head h = {m->count, m->place, m->type, m->tag};
  if (room(ch, put) < HEAD || room(ch, put) > ch->cap)
    return false;
  memcpy(ch->ring + put % ch->cap, &h, sizeof h);
  publish_put(t, ch, m->peer, put + HEAD);
  m->headed = true;
  return true;
}

static bool send_step(struct manta__team *t, struct manta__move *m)
{
  struct channel ch = channel(t, m);
  if (!m->headed && !send_head(t, m, &ch))
    return false;
  uint64_t put = atomic_load_explicit(&ch.pair->put, memory_order_relaxed);
  if (m->place != MANTA__NOWHERE)
    return atomic_load_explicit(&ch.pair->taken, memory_order_acquire) >= put;
  while (m->done < m->bytes) {
    size_t n = smaller(smaller(room(&ch, put), m->bytes - m->done), STEP);
    n = smaller(n, ch.cap - put % ch.cap);
    if (n == 0)
      return false;
    memcpy(ch.ring + put % ch.cap, m->buf + m->done, n);
    m->done += n;
    put += n;
    publish_put(t, &ch, m->peer, put);
  }
  return true;
}

// --- receiving ----------------------------------------------------------------------------------

static uint64_t waiting(const struct channel *ch, uint64_t taken)
{
  return atomic_load_explicit(&ch->pair->put, memory_order_acquire) - taken;
}

static void publish_taken(const struct manta__team *t, const struct channel *ch, int peer,
                          uint64_t taken)
{
  atomic_store(&ch->pair->taken, taken);
  manta__team_ring(t, peer);
}

// A message that is not what was asked for is taken whole and dropped: the next one may be well.
static void compare(struct manta__move *m, const struct pair_head *h)
{
  size_t bytes = h->count * manta_dtype_bytes((manta_dtype)h->type);
  m->wrong = h->count != m->count || h->type != m->type;
  m->their_count = h->count;
  m->their_type = h->type;
  m->place = h->place;
  m->bytes = bytes;
}

static bool read_head(const struct channel *ch, struct pair_head *h, uint64_t *taken)
{
  *taken = aligned(atomic_load_explicit(&ch->pair->taken, memory_order_relaxed));
  uint64_t there = waiting(ch, *taken);
  if (there < HEAD || there > ch->cap)
    return false;
  memcpy(h, ch->ring + *taken % ch->cap, sizeof *h);
  return true;
}

static bool recv_head(struct manta__team *t, struct manta__move *m, const struct channel *ch)
{
  uint64_t taken;
  struct pair_head h;
  if (m->held || !read_head(ch, &h, &taken) || h.tag != m->tag)
    return false;
  compare(m, &h);
  if (m->place != MANTA__NOWHERE && !m->wrong)
    memcpy(m->buf, t->fabric->base + m->place, m->bytes);
  if (m->place != MANTA__NOWHERE)
    m->done = m->bytes;
  publish_taken(t, ch, m->peer, taken + HEAD);
  m->headed = true;
  return true;
}

static bool recv_step(struct manta__team *t, struct manta__move *m)
{
  struct channel ch = channel(t, m);
  if (!m->headed && !recv_head(t, m, &ch))
    return false;
  uint64_t taken = atomic_load_explicit(&ch.pair->taken, memory_order_relaxed);
  while (m->done < m->bytes) {
    size_t n = smaller(smaller(waiting(&ch, taken), m->bytes - m->done), STEP);
    n = smaller(n, ch.cap - taken % ch.cap);
    if (n == 0)
      return false;
    if (!m->wrong)
      memcpy(m->buf + m->done, ch.ring + taken % ch.cap, n);
    m->done += n;
    taken += n;
    publish_taken(t, &ch, m->peer, taken);
  }
  return true;
}

// --- a step -------------------------------------------------------------------------------------

static manta_status verdict(struct manta__team *t, const struct manta__move *m, manta_error *err)
{
  int peer = manta__team_label(t, m->peer);
  if (!m->sends && m->place != MANTA__NOWHERE)
    MANTA_TRY(manta__team_verify(t, m->peer, "recv", err));
  if (!m->wrong)
    return MANTA_OK;
  return manta_error_set(
      err, MANTA_EINVAL, "recv of %llu %s from rank %d, but rank %d sends %llu %s to rank %d",
      (unsigned long long)m->count, manta_dtype_name((manta_dtype)m->type), peer, peer,
      (unsigned long long)m->their_count, manta_dtype_name((manta_dtype)m->their_type),
      manta__team_label(t, t->rank));
}

// Whether what is asked for may lie behind a message with another tag, which is to be put aside
// first: it may have come since others were.
static bool may_lie_behind(const struct manta__team *t, const struct manta__move *m)
{
  uint64_t taken;
  struct pair_head h;
  struct channel ch = channel(t, m);
  return !m->sends && !m->headed && read_head(&ch, &h, &taken) && h.tag != m->tag;
}

bool manta__pair_step(struct manta__team *t, struct manta__move *m, manta_status *st,
                      manta_error *err)
{
  // A message that was cut short has left its channel in the middle of nowhere.
  if ((*st = manta__team_ready(t, m->sends ? MANTA__CALL_SEND : MANTA__CALL_RECV, -1, err)) < 0)
    return true;
  // Looked at first: what it sent before it left is still there, also behind another's message.
  bool left = !m->held && atomic_load_explicit(&t->line[m->peer].left, memory_order_acquire);
  if (m->sends ? send_step(t, m) : recv_step(t, m)) {
    *st = verdict(t, m, err);
    return true;
  }
  left = left && !may_lie_behind(t, m);
  *st = manta__team_trouble(t, m->peer, left, m->by, m->sends ? "send" : "recv", err);
  return *st < 0;
}

// --- other tags ---------------------------------------------------------------------------------

bool manta__pair_peek(const struct manta__team *t, int from, struct manta__move *out)
{
  uint64_t taken;
  struct pair_head h;
  *out = (struct manta__move){.peer = from, .by = MANTA__NEVER};
  struct channel ch = channel(t, out);
  if (!read_head(&ch, &h, &taken))
    return false;
  out->count = h.count;
  out->type = h.type;
  out->tag = h.tag;
  out->bytes = h.count * manta_dtype_bytes((manta_dtype)h.type);
  return true;
}

manta_status manta__pair_take(struct manta__team *t, struct manta__move *m,
                              const struct manta__move *from, manta_error *err)
{
  struct pair_head h = {from->count, MANTA__NOWHERE, from->type, from->tag};
  compare(m, &h);
  if (!m->wrong && m->bytes)
    memcpy(m->buf, from->buf, m->bytes);
  return verdict(t, m, err);
}
