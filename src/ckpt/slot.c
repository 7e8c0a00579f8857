/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/slot.c - one slot: a memfd that is made warm, checked and handed on. slots.c has the three.
 *
 * A fresh page of shared memory costs a fault and a zeroing, five times what a copy into a warm one
 * does; so all of that happens here, once, and in large pages where there are any (100 MB: 7 ms
 * instead of 50).
 * (1) The size is sealed: a mapping can't be cut off under its reader.
 * (2) Whoever holds a dup believes nothing that the meta page says before checking it against the
 * size that the kernel says.
 */
#include "ckpt/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sys/pages.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SEALS    (F_SEAL_SHRINK | F_SEAL_GROW)
#define PAGE     4096
#define POPULATE (1u << 20)
#define SLOW_NS  1000000 /* for a large page: small ones take as long */

static_assert(MANTA__SLOT_META % PAGE == 0, "the meta data has pages of its own");

/* --- Making -------------------------------------------------------------------------------------
 */

// In pieces: a signal undoes the piece it interrupts, and a program with a fast timer must get on.
static int allocate(int fd, uint64_t bytes)
{
  for (uint64_t at = 0; at < bytes;) {
    uint64_t n = bytes - at < (4u << 20) ? bytes - at : (4u << 20);
    if (fallocate(fd, 0, (off_t)at, (off_t)n) == 0)
      at += n;
    else if (errno != EINTR)
      return -1;
  }
  return 0;
}

static int populate_piece(char *p, uint64_t bytes)
{
  if (madvise(p, bytes, MADV_POPULATE_WRITE) == 0)
    return 0;
  if (errno != EINVAL)
    return -1;
  for (uint64_t at = 0; at < bytes; at += PAGE)
    ((volatile char *)p)[at] = 0;
  return 0;
}

// Enters every page into the page table; kernels before 5.14 want each one touched. In pieces: the
// call keeps other threads from mapping and unmapping anything until it is done.
static int populate(char *p, uint64_t bytes)
{
  for (uint64_t at = 0; at < bytes; at += POPULATE) {
    uint64_t n = bytes - at < POPULATE ? bytes - at : POPULATE;
    if (populate_piece(p + at, n) < 0)
      return -1;
  }
  return 0;
}

static manta_status no_memory(uint64_t capacity, const char *what, manta_error *err)
{
  manta_status st = errno == EMFILE || errno == ENFILE ? MANTA_ENOROOM : MANTA_ENOMEM;
  return manta_error_set(err, st, "a snapshot slot of %" PRIu64 " bytes: %s: %m", capacity, what);
}

static manta_status map_new(struct manta__slot *s, uint64_t capacity, manta_error *err)
{
  if (ftruncate(s->fd, (off_t)capacity) < 0)
    return no_memory(capacity, "size", err);
  void *p = manta__pages_map(s->fd, capacity, PROT_READ | PROT_WRITE, MAP_SHARED);
  if (p == MAP_FAILED)
    return no_memory(capacity, "map", err);
  s->meta = p;
  s->capacity = capacity;
  manta__pages_enlarge(p, capacity, SLOW_NS);
  if (allocate(s->fd, capacity) < 0)
    return no_memory(capacity, "allocate", err);
  if (populate(p, capacity) < 0)
    return no_memory(capacity, "populate", err);
  if (fcntl(s->fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0)
    return manta_error_set(err, MANTA_EIO, "seal a snapshot slot: %m");
  madvise(p, capacity, MADV_DONTFORK); // else a child keeps the memory of a replaced slot
  return MANTA_OK;
}

/* --- Checks --- */

// Size of a descriptor that is a sealed memfd of whole pages.
static manta_status sealed_size(int fd, uint64_t *size, manta_error *err)
{
  struct stat sb;
  if (fstat(fd, &sb) < 0)
    return manta_error_set(err, MANTA_EIO, "stat a snapshot slot: %m");
  int seals = S_ISREG(sb.st_mode) ? fcntl(fd, F_GET_SEALS) : -1;
  if (seals < 0 || (seals & SEALS) != SEALS)
    return manta_error_set(err, MANTA_EINVAL, "not a snapshot slot: its size is not sealed");
  if (sb.st_size < MANTA__SLOT_META || sb.st_size % PAGE)
    return manta_error_set(err, MANTA_ECORRUPT, "a snapshot slot of %lld bytes",
                           (long long)sb.st_size);
  *size = (uint64_t)sb.st_size;
  return MANTA_OK;
}

// True if [off, off + len) lies in [from, size).
static bool inside(uint64_t off, uint64_t len, uint64_t from, uint64_t size)
{
  return off >= from && off <= size && len <= size - off;
}

// Behind `from`, and no more of it than is allowed.
static bool extras_inside(const struct manta__slot_meta *m, uint64_t from, uint64_t size)
{
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++) {
    const struct manta__slot_part *p = &m->extra[i];
    if (p->len > MANTA__EXTRA_MAX || (p->len > 0 && !inside(p->off, p->len, from, size)))
      return false;
  }
  return true;
}

static manta_status check(const struct manta__slot_meta *m, uint32_t state, uint64_t size,
                          manta_error *err)
{
  if (m->magic != MANTA__SLOT_MAGIC || m->capacity != size || state > MANTA__SLOT_RETIRED)
    return manta_error_set(err, MANTA_ECORRUPT,
                           "not a snapshot slot: magic, size or state is wrong");
  if (!manta__slot_filled(state))
    return MANTA_OK;
  if (m->tensors_off != MANTA__SLOT_META ||
      !inside(m->tensors_off, m->tensors_len, MANTA__SLOT_META, size) ||
      !inside(m->value_off, m->value_len, m->tensors_off + m->tensors_len, size) ||
      m->value_len > MANTA_STATE_VALUE_MAX || m->iteration < 0 ||
      !extras_inside(m, m->value_off + m->value_len, size))
    return manta_error_set(err, MANTA_ECORRUPT, "a snapshot slot whose content is not within it");
  return MANTA_OK;
}

static manta_status check_page(const struct manta__slot_meta *page, uint64_t size,
                               struct manta__slot_meta *copy, manta_error *err)
{
  uint32_t state = atomic_load_explicit(&page->state, memory_order_acquire);
  memcpy(copy, page, sizeof *copy);
  atomic_store_explicit(&copy->state, state, memory_order_relaxed);
  return check(copy, state, size, err);
}

/* --- Making and dropping --- */

static uint64_t next_serial(void)
{
  static _Atomic uint64_t made;
  return atomic_fetch_add(&made, 1) + 1;
}

manta_status manta__slot_make(struct manta__slot *out, uint64_t capacity, manta_error *err)
{
  struct manta__slot s = {.fd = memfd_create("manta-slot", MFD_CLOEXEC | MFD_ALLOW_SEALING),
                          .serial = next_serial()};
  if (s.fd < 0)
    return no_memory(capacity, "memfd_create", err);
  manta_status st = map_new(&s, capacity, err);
  if (st < 0) {
    manta__slot_drop(&s);
    return st;
  }
  s.meta->tensors_off = s.meta->value_off = MANTA__SLOT_META;
  s.meta->capacity = capacity;
  s.meta->magic = MANTA__SLOT_MAGIC;
  *out = s;
  return MANTA_OK;
}

manta_status manta__slot_adopt(struct manta__slot *out, int fd, manta_error *err)
{
  struct manta__slot s = {.fd = fd, .serial = next_serial(), .announced = true};
  manta_status st = sealed_size(fd, &s.capacity, err);
  void *p = st == MANTA_OK ? manta__pages_map(fd, s.capacity, PROT_READ | PROT_WRITE, MAP_SHARED)
                           : MAP_FAILED;
  if (st == MANTA_OK && p == MAP_FAILED)
    st = no_memory(s.capacity, "map", err);
  if (p != MAP_FAILED)
    s.meta = p;
  struct manta__slot_meta copy;
  if (st == MANTA_OK)
    st = check_page(p, s.capacity, &copy, err);
  if (st == MANTA_OK && atomic_load(&copy.state) != MANTA__SLOT_FREE)
    st = manta_error_set(err, MANTA_ESTATE, "the snapshot slot is not free");
  if (st == MANTA_OK && populate((char *)p + MANTA__SLOT_META, s.capacity - MANTA__SLOT_META) < 0)
    st = no_memory(s.capacity, "populate", err);
  if (st < 0) {
    manta__slot_drop(&s);
    return st;
  }
  madvise(p, s.capacity, MADV_DONTFORK);
  *out = s;
  return MANTA_OK;
}

void manta__slot_drop(struct manta__slot *s)
{
  if (s->meta)
    munmap(s->meta, s->capacity);
  if (s->fd >= 0)
    close(s->fd);
  *s = (struct manta__slot){.fd = -1};
}

/* --- The state word --- */

bool manta__slot_filled(uint32_t state)
{
  return state == MANTA__SLOT_READY || state == MANTA__SLOT_WRITING || state == MANTA__SLOT_RETIRED;
}

bool manta__slot_move(struct manta__slot_meta *m, uint32_t from, uint32_t to)
{
  if (!atomic_compare_exchange_strong(&m->state, &from, to))
    return false;
  if (to == MANTA__SLOT_FREE)
    manta__slot_wake(&m->state);
  return true;
}

void manta__slot_wake(_Atomic uint32_t *word)
{
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void manta__slot_wait(const _Atomic uint32_t *word, uint32_t value, int ms)
{
  struct timespec t = {ms / 1000, ms % 1000 * 1000000l};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

/* --- Those who hold a dup --- */

manta_status manta__slot_map_meta(int fd, struct manta__slot_meta **out, manta_error *err)
{
  uint64_t size = 0;
  MANTA_TRY(sealed_size(fd, &size, err));
  void *p = mmap(NULL, MANTA__SLOT_META, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED)
    return manta_error_set(err, MANTA_ENOMEM, "map a snapshot slot: %m");
  struct manta__slot_meta copy;
  manta_status st = check_page(p, size, &copy, err);
  if (st < 0)
    munmap(p, MANTA__SLOT_META);
  else
    *out = p;
  return st;
}

manta_status manta__slot_map(int fd, const uint8_t **base, size_t *size,
                             struct manta__slot_meta *copy, manta_error *err)
{
  uint64_t bytes = 0;
  MANTA_TRY(sealed_size(fd, &bytes, err));
  void *p = manta__pages_map(fd, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE);
  if (p == MAP_FAILED)
    return manta_error_set(err, MANTA_ENOMEM, "map a snapshot slot: %m");
  manta_status st = check_page(p, bytes, copy, err);
  if (st == MANTA_OK && !manta__slot_filled(atomic_load(&copy->state)))
    st = manta_error_set(err, MANTA_ESTATE, "the snapshot slot holds no snapshot");
  if (st < 0) {
    munmap(p, bytes);
    return st;
  }
  *base = p;
  *size = bytes;
  return MANTA_OK;
}
