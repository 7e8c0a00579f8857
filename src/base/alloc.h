/* SPDX-License-Identifier: Apache-2.0
 *
 * base/alloc.h - the only door to the heap.
 *
 * Tests starve any constructor through manta__alloc_fail_after: the n-th allocation from now on
 * fails, once, in the calling thread.
 */
#ifndef MANTA_BASE_ALLOC_H
#define MANTA_BASE_ALLOC_H

#include <stddef.h>

void *manta__malloc(size_t n);
void *manta__calloc(size_t n, size_t size); /* overflow-checked */
/* Like realloc; on failure the old block stays valid. */
void *manta__realloc(void *p, size_t n);
char *manta__strdup(const char *s);
char *manta__strndup(const char *s, size_t n);
char *manta__asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void manta__free(void *p); /* keeps errno */

/* n < 0: off. Returns how many allocations were made in this thread since the last call. */
long manta__alloc_fail_after(long n);

#endif
