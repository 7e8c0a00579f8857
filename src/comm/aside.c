/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/aside.c - messages that came before a receive with their tag: taken out of their channel,
 * for what is wanted lies behind them.
 *
 * Only for a receive that would wait otherwise; else a message stays where it is.
 */
#include "base/alloc.h"
#include "comm/comm.h"

#define MOST ((size_t)1 << 30) /* bytes of all that are aside */

struct manta__aside {
  struct manta__aside *next;
  int peer; /* in the communicator; that of the move is its place on the host */
  bool over;
  struct manta__move move;
  uint8_t data[];
};

void manta__aside_init(struct manta__mover *m)
{
  m->aside_last = &m->aside;
}

void manta__aside_fini(struct manta__mover *m)
{
  for (struct manta__aside *a = m->aside, *next; a; a = next) {
    next = a->next;
    manta__free(a);
  }
}

static bool is_wanted(const struct manta__mover *m, int peer, int tag)
{
  for (const manta_work *w = m->first; w; w = w->next)
    if (!w->move.sends && !w->move.headed && w->move.tag == tag && (w->any || w->move.peer == peer))
      return true;
  return false;
}

static manta_status begin(struct manta__mover *m, int peer, const struct manta__move *next,
                          struct manta__aside **out, manta_error *err)
{
  bool room = next->bytes <= MOST && m->aside_bytes <= MOST - next->bytes;
  struct manta__aside *a = room ? manta__malloc(sizeof *a + next->bytes) : NULL;
  if (!a)
    return manta_error_set(
        err, MANTA_ENOROOM,
        "recv: cannot keep %zu bytes of another tag from rank %d: %zu are kept already",
        next->bytes, peer, m->aside_bytes);
  *a = (struct manta__aside){.peer = peer, .move = *next};
  a->move.buf = a->data;
  *m->aside_last = a;
  m->aside_last = &a->next;
  m->aside_bytes += next->bytes;
  m->half[peer] = &a->move;
  *out = a;
  return MANTA_OK;
}

// The one that is in the middle of its message, or NULL.
static struct manta__aside *unfinished(const struct manta__mover *m, int peer)
{
  for (struct manta__aside *a = m->aside; a; a = a->next)
    if (&a->move == m->half[peer])
      return a;
  return NULL;
}

manta_status manta__aside_clear(manta_comm *c, int peer, manta_error *err)
{
  struct manta__mover *m = &c->mover;
  struct manta__aside *a = m->half[peer] ? unfinished(m, peer) : NULL;
  struct manta__move next;
  manta_status st;
  for (;;) {
    if (a) {
      if (!manta__pair_step(&c->team, &a->move, &st, err))
        return MANTA_OK;
      a->over = st == MANTA_OK;
      m->half[peer] = NULL;
      MANTA_TRY(st);
    }
    if (m->half[peer] || !manta__pair_peek(&c->team, manta__mover_local(c, peer), &next) ||
        is_wanted(m, peer, next.tag))
      return MANTA_OK;
    MANTA_TRY(begin(m, peer, &next, &a, err));
  }
}

bool manta__aside_find(manta_comm *c, manta_work *w, int peer, manta_status *st)
{
  struct manta__mover *m = &c->mover;
  for (struct manta__aside **p = &m->aside; *p; p = &(*p)->next) {
    struct manta__aside *a = *p;
    if (a->peer != peer || !a->over || a->move.tag != w->move.tag)
      continue;
    w->move.peer = a->move.peer;
    *st = manta__pair_take(&c->team, &w->move, &a->move, &w->err);
    w->move.peer = peer;
    *p = a->next;
    if (!*p)
      m->aside_last = p;
    m->aside_bytes -= a->move.bytes;
    manta__free(a);
    return true;
  }
  return false;
}
