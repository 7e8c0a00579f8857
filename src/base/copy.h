/* SPDX-License-Identifier: Apache-2.0
 *
 * base/copy.h - a memory copy past the caches.
 */
#ifndef MANTA_BASE_COPY_H
#define MANTA_BASE_COPY_H

#include <stddef.h>

/* A copy of this many bytes or more goes past the caches. */
#define MANTA__COPY_STREAM (2u << 20)

/* memcpy for a block that is part of a copy of `total` bytes: past the caches if the whole is
 * large. What it wrote is ordered before a later release store only after manta__copy_fence. */
void manta__copy(void *dst, const void *src, size_t n, size_t total);
/* The same for one block, always past the caches. */
void manta__copy_past(void *dst, const void *src, size_t n);
void manta__copy_fence(void);

#endif
