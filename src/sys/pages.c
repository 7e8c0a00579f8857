/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define LARGE MANTA__LARGE_PAGE

static uintptr_t rounded_up(uintptr_t at)
{
  return (at + LARGE - 1) & ~(uintptr_t)(LARGE - 1);
}

size_t manta__page_bytes(void)
{
  return (size_t)sysconf(_SC_PAGESIZE);
}

// The room is taken first, with one page more, and what is before and behind given back.
void *manta__pages_map(int fd, size_t bytes, int prot, int flags)
{
  if (bytes < LARGE || bytes > SIZE_MAX - LARGE)
    return mmap(NULL, bytes, prot, flags, fd, 0);
  size_t whole = manta__pages_round(bytes) + LARGE;
  char *room = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    return MAP_FAILED;
  char *at = (char *)rounded_up((uintptr_t)room), *end = at + (whole - LARGE);
  void *p = mmap(at, bytes, prot, flags | MAP_FIXED, fd, 0);
  if (p == MAP_FAILED) {
    int why = errno;
    munmap(room, whole);
    errno = why;
    return MAP_FAILED;
  }
  if (at > room)
    munmap(room, (size_t)(at - room));
  if (room + whole > end)
    munmap(end, (size_t)(room + whole - end));
  return p;
}

// One page has to be there to be put together with the 511 that are not, which costs no copy. The
// write must not change what a peer may be writing.
static int collapse(char *p)
{
  __atomic_fetch_or(p, 0, __ATOMIC_RELAXED);
  return madvise(p, LARGE, MADV_COLLAPSE);
}

void manta__pages_enlarge(void *p, size_t bytes, int64_t slow_ns)
{
  if (bytes < LARGE)
    return;
  char *at = (char *)rounded_up((uintptr_t)p), *end = (char *)p + bytes;
  if (at >= end || (size_t)(end - at) < LARGE)
    return;
  madvise(at, (size_t)(end - at) & ~(LARGE - 1), MADV_HUGEPAGE); // then the write may suffice
  for (int slow = 0; (size_t)(end - at) >= LARGE && slow < 2; at += LARGE) {
    int64_t began = manta__now();
    if (collapse(at) < 0 && errno != EAGAIN && errno != EBUSY)
      return;
    slow = manta__now() - began > slow_ns ? slow + 1 : 0; // one may be a turn of another program
  }
}
