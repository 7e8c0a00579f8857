/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy copies: every alignment of both ends, around every size at which it changes its ways.
 */
#include "base/copy.h"
#include "copy_ways.h"
#include "test.h"

#define ROOM 20000

static uint8_t src[ROOM], dst[ROOM];

// As this processor does it, as one without AVX2, as one that has no such stores at all.
static const struct way {
  void (*copy)(void *dst, const void *src, size_t n, size_t total);
  void (*past)(void *dst, const void *src, size_t n);
  void (*fence)(void);
} ways[] = {{manta__copy, manta__copy_past, manta__copy_fence},
            {sse2_copy, sse2_copy_past, sse2_copy_fence},
            {plain_copy, plain_copy_past, plain_copy_fence}};
#define WAYS (sizeof ways / sizeof *ways)

// total: of manta__copy, or SIZE_MAX for manta__copy_past.
static void check(const struct way *w, size_t to, size_t from, size_t n, size_t total)
{
  size_t end = to + n + 256; // more than any way could touch at once
  memset(dst, 0xee, end);
  if (total == SIZE_MAX)
    w->past(dst + to, src + from, n);
  else
    w->copy(dst + to, src + from, n, total);
  w->fence();
  for (size_t i = 0; i < end; i++) {
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
        for (size_t w = 0; w < WAYS; w++) {
          check(&ways[w], to, from, sizes[k], w ? MANTA__COPY_STREAM : 0);
          check(&ways[w], to, from, sizes[k], w ? SIZE_MAX : MANTA__COPY_STREAM);
          if (w == 0)
            check(&ways[w], to, from, sizes[k], SIZE_MAX);
        }
}

// A tensor without elements may have no address. UBSan would report a memcpy from NULL.
static void a_copy_of_nothing_needs_no_address(void **ctx)
{
  static const size_t totals[] = {0, MANTA__COPY_STREAM};
  for (size_t w = 0; w < WAYS; w++)
    for (size_t k = 0; k < sizeof totals / sizeof *totals; k++) {
      memset(dst, 0xee, sizeof dst);
      ways[w].copy(dst + 65, NULL, 0, totals[k]); // not aligned: the streaming path has a head
      ways[w].copy(NULL, NULL, 0, totals[k]);
      ways[w].fence();
      for (size_t i = 0; i < sizeof dst; i++)
        assert_int_equal(dst[i], 0xee);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_alignment_and_size),
      cmocka_unit_test(a_copy_of_nothing_needs_no_address),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
