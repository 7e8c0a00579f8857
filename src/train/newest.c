/* SPDX-License-Identifier: Apache-2.0 */
#include "train/newest.h"

#include <sys/mman.h>

#include "base/log.h"
#include "ckpt/slot.h"
#include "group/proto.h"
#include "sys/sock.h"
#include "train/trainer.h"

// Whether a worker has made the reports that the newest snapshot stands for.
static bool reported(const struct manta__newest *n, const struct manta__peer *p)
{
  return !p->ring.h || atomic_load_explicit(&p->ring.h->head, memory_order_acquire) >= n->ring_pos;
}

// The writer, which has the same slot, looks at the mark before it commits.
static void disown(struct manta__newest *n)
{
  struct manta__slot_meta *meta;
  manta_error err = MANTA_ERROR_INIT;
  if (manta__slot_map_meta(n->fd, &meta, &err) < 0) {
    manta__warn("a snapshot whose report never came: %s", err.message);
    return;
  }
  atomic_store_explicit(&meta->unreported, 1, memory_order_release);
  munmap(meta, MANTA__SLOT_META);
}

void manta__newest_drop(manta_trainer *t)
{
  manta__fd_close(&t->newest.fd);
  t->newest = (struct manta__newest){.fd = -1};
}

void manta__newest_settle(manta_trainer *t, const struct manta__peer *p)
{
  struct manta__newest *n = &t->newest;
  if (n->fd >= 0 && n->wid == p->wid && !reported(n, p)) {
    disown(n);
    manta__newest_drop(t);
    n->disowned = true;
  }
}

void manta__newest_take(manta_trainer *t, struct manta__msg *m, const struct manta__snap_msg *s,
                        const struct manta__peer *from)
{
  if (from)
    manta__newest_settle(t, from); // two of one report: the second one counts
  manta__newest_drop(t);
  t->newest = (struct manta__newest){.fd = manta__msg_take_fd(m, 0),
                                     .wid = s->wid,
                                     .slot = s->slot,
                                     .iteration = s->iteration,
                                     .capacity = s->capacity,
                                     .ring_pos = s->ring_pos};
}
