/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/base/copy_ways.h - base/copy.c once more, as other processors get it.
 */
#ifndef MANTA_TEST_COPY_WAYS_H
#define MANTA_TEST_COPY_WAYS_H

#include <stddef.h>

void sse2_copy(void *dst, const void *src, size_t n, size_t total);
void sse2_copy_past(void *dst, const void *src, size_t n);
void sse2_copy_fence(void);
void plain_copy(void *dst, const void *src, size_t n, size_t total);
void plain_copy_past(void *dst, const void *src, size_t n);
void plain_copy_fence(void);

#endif
