/* SPDX-License-Identifier: Apache-2.0
 *
 * sys/pages.h - pages of shared memory, and large ones for it.
 *
 * A page of 2 MB is one fault and one entry of the page table instead of 512: 256 MB of it were
 * there after 20 ms instead of 210, were read twice as fast (8.6 against 18.5 ms) and copied to 1.7
 * times as fast (16 against 27 ms; a KVM guest on an AMD EPYC, where a walk of the table is dear).
 * Kernels give a memfd small pages unless told otherwise for all of the system; but since 6.1 a
 * program may ask for the pages that it has to be put together (MADV_COLLAPSE).
 */
#ifndef MANTA_SYS_PAGES_H
#define MANTA_SYS_PAGES_H

#include <stddef.h>
#include <stdint.h>

#define MANTA__LARGE_PAGE ((size_t)2 << 20)

/* Of a small page here: 4 KB on x86-64; 4, 16 or 64 KB on aarch64, as the kernel was built. */
size_t manta__page_bytes(void);
/* To whole small pages, upwards. What the kernel is told of memory begins at one, and counts to the
 * end of the last: where two share a page, both are meant. */
static inline size_t manta__pages_round(size_t bytes)
{
  size_t page = manta__page_bytes();
  return (bytes + page - 1) & ~(page - 1);
}

/* mmap of the first `bytes` of a file at any address that suits large pages; MAP_FAILED and errno
 * if that can't be. */
void *manta__pages_map(int fd, size_t bytes, int prot, int flags);
/* Has the memory in [p, p + bytes), a shared mapping of a memfd, put into large pages as far as
 * whole ones fit, and in the page table; what was never written is zero. Where the kernel can't or
 * has none, the rest stays as it was; also after two in a row that took longer than `slow_ns` each.
 * A page takes some 0.1 ms, but several where its memory has to be cleared of others, or a virtual
 * machine has to get it first; small ones of the same size take 1 ms. */
void manta__pages_enlarge(void *p, size_t bytes, int64_t slow_ns);

#endif
