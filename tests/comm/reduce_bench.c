/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_reduce - GB/s (of what is read and written) of the reductions that training waits for. One
 * process measures one instruction set: MANTA_COMM_ISA=avx2 bench_reduce
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/reduce/reduce.h"

#define MAX_N 8

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one call: the best of three rounds of about 40 ms. */
static double time_of(void *out, const void *const *in, int n, size_t count, manta_dtype type)
{
  double best = 1e9;
  for (int round = 0; round < 3; round++) {
    long calls = 0;
    double start = now(), t;
    do {
      for (size_t i = 0; i < (count < 100000 ? 16 : 1); i++, calls++)
        manta__reduce(out, in, n, count, type, MANTA_SUM);
    } while ((t = now() - start) < 0.04);
    if (t / (double)calls < best)
      best = t / (double)calls;
  }
  return best;
}

static void measure(void *const *buf, int n, size_t bytes, manta_dtype type)
{
  const void *in[MAX_N];
  for (int i = 0; i < n; i++)
    in[i] = buf[i];
  size_t count = bytes / manta_dtype_bytes(type);
  double apart = time_of(buf[MAX_N], in, n, count, type);
  double in_place = time_of(buf[0], in, n, count, type);
  double gb = 1e-9 * (double)bytes * (n + 1);
  printf("%-6s %-4s n %d %9zu B: %8.1f ns %6.1f GB/s, in place %8.1f ns %6.1f GB/s\n",
         manta__reduce_isa(), manta_dtype_name(type), n, bytes, 1e9 * apart, gb / apart,
         1e9 * in_place, gb / in_place);
}

int main(void)
{
  static const size_t sizes[] = {16, 1024, 65536, 100000000};
  static const manta_dtype types[] = {MANTA_F32, MANTA_BF16, MANTA_F16};
  static const int ns[] = {2, 3, 4, 8};
  void *buf[MAX_N + 1];
  for (int i = 0; i <= MAX_N; i++) {
    buf[i] = aligned_alloc(4096, 100003840);
    if (!buf[i])
      return 1;
    memset(buf[i], 0, 100003840);
  }
  for (size_t t = 0; t < 3; t++)
    for (size_t k = 0; k < 4; k++)
      for (size_t s = 0; s < 4; s++)
        measure(buf, ns[k], sizes[s], types[t]);
  for (int i = 0; i <= MAX_N; i++)
    free(buf[i]);
  return 0;
}
