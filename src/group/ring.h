/* SPDX-License-Identifier: Apache-2.0
 *
 * group/ring.h - the rows of one worker on their way to the driver.
 *
 * A ring in a sealed memfd: one producer (one thread of the worker at a time), one consumer
 * (the driver's I/O thread; the writer process once the driver is dead).
 * (1) head and tail count bytes ever written and released; a record becomes visible by the store
 *     of head, so a worker killed at any moment leaves whole records only.
 * (2) The consumer moves tail after it has handed the bytes to run.log: what lies between tail
 *     and head survives the driver. A record can so be logged twice, never lost; its seq tells.
 * (3) A record never wraps: a PAD record fills the rest. An empty ring starts over at offset 0,
 *     so that only a lagging consumer makes more of it resident.
 * (4) No system call on the fast path: the consumer says when it sleeps, the producer when it
 *     waits.
 */
#ifndef MANTA_GROUP_RING_H
#define MANTA_GROUP_RING_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#include "base/ident.h"

#define MANTA__RING_BYTES (4u << 20)
#define MANTA__RING_WARM  (64u << 10) /* an empty ring past this offset starts over */
#define MANTA__ROW_MAX    (1u << 20)  /* packed bytes of one row */
#define MANTA__RING_MAGIC 0x676e69526e616dull

struct manta__ring_head {
  uint64_t magic;
  uint64_t cap;
  _Alignas(64) _Atomic uint64_t head;
  _Alignas(64) _Atomic uint64_t tail;
  _Alignas(64) _Atomic uint32_t asleep; /* the consumer wants a wake-up through the eventfd */
  _Atomic uint32_t waiting;             /* the producer waits for room: futex */
  _Atomic uint32_t asked;               /* with what was given back last: asked to stop */
};

struct manta__ring_rec {
  uint32_t len;  /* header and payload, rounded up to 8 */
  uint32_t used; /* payload; UINT32_MAX: padding */
  struct manta__ident id;
  int64_t wall_ns;
  int64_t iteration;
};
static_assert(sizeof(struct manta__ring_rec) == 48, "in shared memory");

/* One side's view. The cursors of the other side are cached to keep its cache line where it is. */
struct manta__ring {
  int fd;
  struct manta__ring_head *h;
  uint8_t *data;
  size_t bytes;  /* of the mapping */
  size_t cap;    /* of the data; ours, since the one in the head can be scribbled over */
  uint64_t pos;  /* producer: head; consumer: next to read (≥ tail) */
  uint64_t seen; /* producer: tail as last seen; consumer: head as last seen */
};

manta_status manta__ring_create(int *fd_out, manta_error *err);
/* Maps it; takes the descriptor also on failure. */
manta_status manta__ring_open(struct manta__ring *r, int fd, manta_error *err);
void manta__ring_close(struct manta__ring *r);

/* Producer: room for a record of `payload` bytes, or NULL if there is none now. Write the payload
 * at the returned place, then commit the number of bytes really used. */
uint8_t *manta__ring_reserve(struct manta__ring *r, size_t payload);
/* Makes it visible. Before the next reserve, and before a full fence, after which the producer asks
 * whether the consumer sleeps and must be woken (write to its eventfd): one of both sees the other.
 */
void manta__ring_publish(struct manta__ring *r, size_t payload, const struct manta__ident *id,
                         int64_t wall_ns, int64_t iteration);
static inline bool manta__ring_sleeps(struct manta__ring *r)
{
  return atomic_load(&r->h->asleep) && atomic_exchange(&r->h->asleep, 0);
}
/* Waits until the consumer has moved, at most until `by`. */
void manta__ring_wait_room(struct manta__ring *r, int64_t by);
/* Waits until it has given back all before `pos`, at most until `by`. */
void manta__ring_wait_read(struct manta__ring *r, uint64_t pos, int64_t by);

/* Consumer: the next record, borrowed until manta__ring_release, or NULL. MANTA_ECORRUPT in *st for
 * a ring that a crashing worker scribbled over; nothing more comes out of it then. */
const struct manta__ring_rec *manta__ring_next(struct manta__ring *r, manta_status *st);
static inline const uint8_t *manta__ring_payload(const struct manta__ring_rec *rec)
{
  return (const uint8_t *)(rec + 1);
}
/* Puts the record that was read last back: it is the next one again. */
static inline void manta__ring_unread(struct manta__ring *r, const struct manta__ring_rec *rec)
{
  r->pos -= rec->len;
}
/* Gives back all that was read so far, and wakes a waiting producer. */
void manta__ring_release(struct manta__ring *r);
/* --- A mirror: the same records on another host, at the same positions --- */

/* Consumer here: whole records that lie in one piece, at most `max` bytes of them, or one that is
 * larger; they count as read. NULL: there are none; *st as in manta__ring_next. Padding is left
 * out. They are given back when the mirror's consumer has read them, by release_to. */
const uint8_t *manta__ring_take(struct manta__ring *r, size_t max, uint64_t *pos, size_t *n,
                                manta_status *st);
/* Gives back up to `pos`, and wakes a waiting producer. Positions that cannot be are ignored. */
void manta__ring_release_to(struct manta__ring *r, uint64_t pos);
/* Producer there: adds a part of what was taken, with padding before it if there was some; it
 * becomes visible with the last part. MANTA_EPROTO if it does not follow what is there or does not
 * fit; *wake: the consumer sleeps and must be woken. */
manta_status manta__ring_put(struct manta__ring *r, uint64_t pos, const void *p, size_t n,
                             bool last, bool *wake);
static inline uint64_t manta__ring_tail(const struct manta__ring *r)
{
  return atomic_load_explicit(&r->h->tail, memory_order_acquire);
}

/* About to sleep: false if there is something to read after all. The first producer to wake the
 * sleeper takes the mark off; one that wakes by itself may leave it there. */
bool manta__ring_sleep(struct manta__ring *r);

#endif
