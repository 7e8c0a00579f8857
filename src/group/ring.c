/* SPDX-License-Identifier: Apache-2.0 */
#include "group/ring.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/shm.h"
#include "sys/sock.h"

#define DATA_AT 4096 /* the head has a page of its own */
#define PADDING UINT32_MAX

manta_status manta__ring_create(int *fd_out, manta_error *err)
{
  MANTA_TRY(manta__shm_create("manta-ring", DATA_AT + MANTA__RING_BYTES, fd_out, err));
  struct manta__ring_head h = {.magic = MANTA__RING_MAGIC, .cap = MANTA__RING_BYTES};
  if (pwrite(*fd_out, &h, sizeof h, 0) != (ssize_t)sizeof h) {
    manta_error_set(err, MANTA_EIO, "write to a ring: %m");
    manta__fd_close(fd_out);
    return MANTA_EIO;
  }
  return MANTA_OK;
}

manta_status manta__ring_open(struct manta__ring *r, int fd, manta_error *err)
{
  void *p;
  *r = (struct manta__ring){.fd = fd};
  manta_status st = manta__shm_map(fd, &p, &r->bytes, err);
  if (st < 0) {
    manta__fd_close(&r->fd);
    return st;
  }
  r->h = p;
  r->data = (uint8_t *)p + DATA_AT;
  r->cap = r->bytes > DATA_AT ? r->bytes - DATA_AT : 0;
  if (r->cap == 0 || r->cap % 8 || r->h->magic != MANTA__RING_MAGIC || r->h->cap != r->cap) {
    manta__ring_close(r);
    return manta_error_set(err, MANTA_EPROTO, "not a ring");
  }
  r->pos = r->seen = atomic_load(&r->h->tail);
  return MANTA_OK;
}

void manta__ring_close(struct manta__ring *r)
{
  if (r->h) {
    manta__shm_unmap(r->h, r->bytes);
    manta__fd_close(&r->fd);
  }
  *r = (struct manta__ring){.fd = -1};
}

// --- producer -----------------------------------------------------------------------------------

static size_t round8(size_t n)
{
  return (n + 7) & ~(size_t)7;
}

static bool has_room(struct manta__ring *r, size_t need)
{
  if (r->pos - r->seen + need <= r->cap)
    return true;
  r->seen = atomic_load_explicit(&r->h->tail, memory_order_acquire);
  return r->pos - r->seen + need <= r->cap;
}

static void put_padding(struct manta__ring *r, size_t len)
{
  struct manta__ring_rec *rec = (struct manta__ring_rec *)(r->data + r->pos % r->cap);
  rec->len = (uint32_t)len;
  rec->used = PADDING;
  r->pos += len;
}

// Whether to begin again at offset 0: the ring is empty and has wandered off its warm pages. The
// padding takes up room too: what is bigger than the part before `at` goes where it is.
static bool start_over(struct manta__ring *r, size_t at, size_t need)
{
  if (at < MANTA__RING_WARM || need > at)
    return false;
  r->seen = atomic_load_explicit(&r->h->tail, memory_order_acquire);
  return r->seen == r->pos;
}

uint8_t *manta__ring_reserve(struct manta__ring *r, size_t payload)
{
  size_t need = round8(sizeof(struct manta__ring_rec) + payload);
  size_t at = r->pos % r->cap, rest = r->cap - at;
  bool wrap =
      rest < need + 8 || start_over(r, at, need); // 8: what is left must hold a padding's head
  if (!has_room(r, wrap ? rest + need : need))
    return NULL;
  if (wrap)
    put_padding(r, rest);
  return r->data + r->pos % r->cap + sizeof(struct manta__ring_rec);
}

void manta__ring_publish(struct manta__ring *r, size_t payload, const struct manta__ident *id,
                         int64_t wall_ns, int64_t iteration)
{
  struct manta__ring_rec *rec = (struct manta__ring_rec *)(r->data + r->pos % r->cap);
  *rec = (struct manta__ring_rec){.len = (uint32_t)round8(sizeof *rec + payload),
                                  .used = (uint32_t)payload,
                                  .id = *id,
                                  .wall_ns = wall_ns,
                                  .iteration = iteration};
  r->pos += rec->len;
  atomic_store_explicit(&r->h->head, r->pos, memory_order_release);
}

void manta__ring_wait_room(struct manta__ring *r, int64_t by)
{
  atomic_store(&r->h->waiting, 1);
  if (atomic_load(&r->h->tail) == r->seen)
    manta__futex_wait(&r->h->waiting, 1, by);
  atomic_store(&r->h->waiting, 0);
}

void manta__ring_wait_read(struct manta__ring *r, uint64_t pos, int64_t by)
{
  atomic_store(&r->h->waiting, 1);
  if (atomic_load(&r->h->tail) < pos)
    manta__futex_wait(&r->h->waiting, 1, by);
  atomic_store(&r->h->waiting, 0);
}

// --- consumer -----------------------------------------------------------------------------------

// A worker may still be scribbling: what was checked must be what is used, so it is read once.
static uint32_t read_once(const uint32_t *p)
{
  return *(const volatile uint32_t *)p;
}

static bool sane(const struct manta__ring *r, uint32_t len, uint32_t used, size_t at)
{
  if (len < 8 || len % 8 || len > r->cap - at || len > r->seen - r->pos)
    return false;
  return used == PADDING || round8(sizeof(struct manta__ring_rec) + (size_t)used) == len;
}

const struct manta__ring_rec *manta__ring_next(struct manta__ring *r, manta_status *st)
{
  *st = MANTA_OK;
  for (;;) {
    if (r->pos == r->seen) {
      r->seen = atomic_load_explicit(&r->h->head, memory_order_acquire);
      if (r->pos == r->seen)
        return NULL;
    }
    size_t at = r->pos % r->cap;
    const struct manta__ring_rec *rec = (const struct manta__ring_rec *)(r->data + at);
    // An odd position (of a tail that was damaged before we came) might lie across the end.
    bool odd = r->pos % 8 != 0 || r->seen - r->pos > r->cap;
    uint32_t len = odd ? 0 : read_once(&rec->len), used = odd ? 0 : read_once(&rec->used);
    if (!sane(r, len, used, at)) {
      *st = MANTA_ECORRUPT;
      return NULL;
    }
    r->pos += len;
    if (used != PADDING)
      return rec;
  }
}

void manta__ring_release(struct manta__ring *r)
{
  if (atomic_load_explicit(&r->h->tail, memory_order_relaxed) == r->pos)
    return;
  atomic_store(&r->h->tail, r->pos);
  if (atomic_exchange(&r->h->waiting, 0))
    manta__futex_wake(&r->h->waiting, 1);
}

bool manta__ring_sleep(struct manta__ring *r)
{
  atomic_store(&r->h->asleep, 1);
  if (atomic_load(&r->h->head) == r->pos)
    return true;
  atomic_store(&r->h->asleep, 0);
  return false;
}

// --- mirror -------------------------------------------------------------------------------------

// Bytes of the record that was read last, which begins at `rec`: its own word for it may have
// changed since it was checked.
static size_t length_of(const struct manta__ring *r, const struct manta__ring_rec *rec)
{
  size_t from = (size_t)((const uint8_t *)rec - r->data), to = r->pos % r->cap;
  return (to ? to : r->cap) - from;
}

const uint8_t *manta__ring_take(struct manta__ring *r, size_t max, uint64_t *pos, size_t *n,
                                manta_status *st)
{
  const struct manta__ring_rec *rec = manta__ring_next(r, st);
  const uint8_t *first = (const uint8_t *)rec;
  if (!rec)
    return NULL;
  *n = length_of(r, rec);
  *pos = r->pos - *n;
  for (;;) {
    uint64_t before = r->pos;
    manta_status later;
    rec = manta__ring_next(r, &later);
    if (!rec || (const uint8_t *)rec != first + *n || *n + length_of(r, rec) > max) {
      r->pos = before;
      return first;
    }
    *n += length_of(r, rec);
  }
}

void manta__ring_release_to(struct manta__ring *r, uint64_t pos)
{
  uint64_t tail = atomic_load_explicit(&r->h->tail, memory_order_relaxed);
  if (pos - tail > r->pos - tail || pos == tail)
    return;
  atomic_store(&r->h->tail, pos);
  if (atomic_exchange(&r->h->waiting, 0))
    manta__futex_wake(&r->h->waiting, 1);
}

manta_status manta__ring_put(struct manta__ring *r, uint64_t pos, const void *p, size_t n,
                             bool last, bool *wake)
{
  uint64_t gap = pos - r->pos, tail = manta__ring_tail(r);
  size_t at = r->pos % r->cap;
  *wake = false;
  if (gap % 8 || (gap > 0 && gap != r->cap - at) || gap > r->cap || n > r->cap - (gap ? 0 : at) ||
      r->pos + gap + n - tail > r->cap)
    return MANTA_EPROTO;
  if (gap > 0)
    put_padding(r, gap);
  memcpy(r->data + r->pos % r->cap, p, n);
  r->pos += n;
  if (!last)
    return MANTA_OK;
  atomic_store(&r->h->head, r->pos);
  *wake = atomic_load(&r->h->asleep) && atomic_exchange(&r->h->asleep, 0);
  return MANTA_OK;
}
