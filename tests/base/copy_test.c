/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy copies: every alignment of both ends, around every size at which it changes its ways.
 */
#include "base/copy.h"
#include "test.h"

#define ROOM 20000

static uint8_t src[ROOM], dst[ROOM];

static void check(size_t to, size_t from, size_t n, size_t total)
{
  memset(dst, 0xee, sizeof dst);
  manta__copy(dst + to, src + from, n, total);
  manta__copy_fence();
  for (size_t i = 0; i < sizeof dst; i++) {
    uint8_t want = i >= to && i < to + n ? src[from + i - to] : 0xee;
    if (dst[i] != want)
      fail_msg("copy of %zu bytes from +%zu to +%zu: byte %zu is wrong", n, from, to, i);
  }
}

static void every_alignment_and_size(void **ctx)
{
  static const size_t sizes[] = {0,    1,    63,   64,   127,   1023, 1024,
                                 1025, 1151, 1152, 4096, 16383, 16384};
  for (size_t i = 0; i < ROOM; i++)
    src[i] = (uint8_t)(i * 131 >> 3);
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
    for (size_t to = 0; to < 130; to += 1 + to / 20)
      for (size_t from = 0; from < 70; from += 1 + from / 5)
        for (int big = 0; big < 2; big++)
          check(to, from, sizes[k], big ? MANTA__COPY_STREAM : 0);
}

static void nothing_may_come_from_nowhere(void **ctx)
{
  manta__copy(dst, NULL, 0, MANTA__COPY_STREAM);
  manta__copy(NULL, NULL, 0, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_alignment_and_size),
      cmocka_unit_test(nothing_may_come_from_nowhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
