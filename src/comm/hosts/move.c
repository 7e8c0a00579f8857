/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/hosts/move.c - a send or a receive between ranks of different hosts: a head, with the data
 * behind it if they are few, else as a message of their own.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/hosts/hosts.h"

#define FEW (32u << 10)

struct move_head {
  uint64_t count;
  uint32_t type, rides; /* rides: the data follow at once */
};

static const char *name_of(const struct manta__move *m)
{
  return m->sends ? "send" : "recv";
}

static manta_status no_memory(const struct manta__move *m, manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for a message", name_of(m));
}

// Starts m->req[i], the head or the data.
static manta_status post(struct manta__hosts *h, struct manta__move *m, void *buf, size_t bytes,
                         int i, manta_error *err)
{
  uint64_t tag = manta__hosts_move_tag(h, m->sends ? h->rank : m->peer, m->tag, i);
  int peer = h->wire_rank[m->peer];
  manta_status st = m->sends ? manta__wire_send(h->wire, peer, buf, bytes, tag, &m->req[i], err)
                             : manta__wire_recv(h->wire, peer, buf, bytes, tag, &m->req[i], err);
  return st < 0 ? manta__hosts_failed(h, m->peer, st, name_of(m), err) : MANTA_OK;
}

static manta_status start_send(struct manta__hosts *h, struct manta__move *m, manta_error *err)
{
  struct move_head head = {m->count, m->type, m->bytes <= FEW};
  size_t bytes = sizeof head + (head.rides ? m->bytes : 0);
  if (!(m->box = manta__malloc(bytes)))
    return no_memory(m, err);
  memcpy(m->box, &head, sizeof head);
  if (head.rides && m->bytes)
    memcpy(m->box + sizeof head, m->buf, m->bytes);
  MANTA_TRY(post(h, m, m->box, bytes, 0, err));
  return head.rides ? MANTA_OK : post(h, m, m->buf, m->bytes, 1, err);
}

static manta_status start_recv(struct manta__hosts *h, struct manta__move *m, manta_error *err)
{
  if (!(m->box = manta__malloc(sizeof(struct move_head) + FEW)))
    return no_memory(m, err);
  return post(h, m, m->box, sizeof(struct move_head) + FEW, 0, err);
}

// The head is there. What was not asked for is received all the same, and dropped.
static manta_status take_head(struct manta__hosts *h, struct manta__move *m, manta_error *err)
{
  struct move_head head;
  memcpy(&head, m->box, sizeof head);
  size_t bytes = head.count * manta_dtype_bytes((manta_dtype)head.type);
  m->wrong = head.count != m->count || head.type != m->type;
  m->their_count = head.count;
  m->their_type = head.type;
  m->headed = true;
  if (head.rides) {
    if (!m->wrong && bytes)
      memcpy(m->buf, m->box + sizeof head, bytes);
    return MANTA_OK;
  }
  if (m->wrong) {
    manta__free(m->box);
    if (!(m->box = manta__malloc(bytes)))
      return no_memory(m, err);
  }
  return post(h, m, m->wrong ? m->box : m->buf, bytes, 1, err);
}

static manta_status test(struct manta__hosts *h, struct manta__move *m, int i, manta_error *err)
{
  manta_status st = m->req[i] ? manta__wire_test(h->wire, &m->req[i], NULL) : MANTA_OK;
  return st < 0 ? manta__hosts_failed(h, m->peer, st, name_of(m), err) : st;
}

// MANTA_OK: over.
static manta_status advance(struct manta__hosts *h, struct manta__move *m, manta_error *err)
{
  int idle = 0;
  if (!m->box)
    MANTA_TRY(m->sends ? start_send(h, m, err) : start_recv(h, m, err));
  manta__wire_turn(h->wire, &idle);
  manta_status st = test(h, m, 0, err);
  if (st == MANTA_OK && !m->sends && !m->headed)
    st = take_head(h, m, err);
  return st == MANTA_OK ? test(h, m, 1, err) : st;
}

static manta_status verdict(const struct manta__hosts *h, const struct manta__move *m,
                            manta_error *err)
{
  if (!m->wrong)
    return MANTA_OK;
  return manta_error_set(
      err, MANTA_EINVAL, "recv of %llu %s from rank %d, but rank %d sends %llu %s to rank %d",
      (unsigned long long)m->count, manta_dtype_name((manta_dtype)m->type), m->peer, m->peer,
      (unsigned long long)m->their_count, manta_dtype_name((manta_dtype)m->their_type), h->rank);
}

bool manta__hosts_step(struct manta__hosts *h, struct manta__move *m, manta_status *st,
                       manta_error *err)
{
  *st = advance(h, m, err);
  bool over = *st != MANTA__NET_PENDING;
  if (!over)
    *st = manta__hosts_trouble(h, m->peer, m->by, name_of(m), err);
  else if (*st == MANTA_OK)
    *st = verdict(h, m, err);
  if (*st == MANTA_OK && !over)
    return false;
  manta__hosts_drop(h, m);
  return true;
}

void manta__hosts_drop(struct manta__hosts *h, struct manta__move *m)
{
  manta__wire_drop(h->wire, m->req, 2);
  manta__free(m->box);
  m->box = NULL;
}
