/* SPDX-License-Identifier: Apache-2.0
 *
 * base/prefetch.h - a cache line that will be written.
 */
#ifndef MANTA_BASE_PREFETCH_H
#define MANTA_BASE_PREFETCH_H

/* Gets the line of p for writing. For a plain x86-64 compilers make of their builtin a fetch for
 * reading, behind which the write has to take the line from the others all the same; the
 * instruction itself is a hint that every 64-bit processor takes or passes over. */
static inline void manta__prefetch_to_write(const void *p)
{
#if defined(__x86_64__)
  __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
  __builtin_prefetch(p, 1);
#endif
}

#endif
