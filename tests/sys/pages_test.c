/* SPDX-License-Identifier: Apache-2.0
 *
 * Large pages for shared memory: what they hold stays, and where the kernel can, they are large.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "holder.h"
#include "sys/pages.h"
#include "test.h"

#define LARGE MANTA__LARGE_PAGE
#define BOTH  (PROT_READ | PROT_WRITE)

static int make(size_t bytes)
{
  int fd = memfd_create("test", MFD_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
  return fd;
}

static unsigned char *map(int fd, size_t bytes)
{
  unsigned char *p = manta__pages_map(fd, bytes, BOTH, MAP_SHARED);
  assert_ptr_not_equal(p, MAP_FAILED);
  return p;
}

// KB of the mapping at p that the page table has in large pages.
static long large_kb(const void *p)
{
  char line[512];
  unsigned long from = 0, to = 0;
  long kb = 0;
  FILE *f = fopen("/proc/self/smaps", "re");
  assert_non_null(f);
  while (fgets(line, sizeof line, f)) {
    long n;
    sscanf(line, "%lx-%lx ", &from, &to);
    if (from <= (unsigned long)p && (unsigned long)p < to &&
        sscanf(line, "ShmemPmdMapped: %ld", &n) == 1)
      kb += n;
  }
  fclose(f);
  return kb;
}

static void a_mapping_suits_large_pages(void **ctx)
{
  static const size_t bytes[] = {LARGE, LARGE + 1, LARGE + 4096, 3 * LARGE, 5 * LARGE - 17};
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
    int fd = make(bytes[i]);
    unsigned char *p = map(fd, bytes[i]);
    assert_int_equal((uintptr_t)p % LARGE, 0);
    p[0] = 1;
    p[bytes[i] - 1] = 2;
    assert_int_equal(munmap(p, bytes[i]), 0);
    close(fd);
  }
}

static void count_mappings(long *count, unsigned long *bytes)
{
  FILE *f = fopen("/proc/self/maps", "re");
  char line[512];
  unsigned long from = 0, to = 0;
  assert_non_null(f);
  for (*count = 0, *bytes = 0; fgets(line, sizeof line, f); ++*count) {
    assert_int_equal(sscanf(line, "%lx-%lx ", &from, &to), 2);
    *bytes += to - from;
  }
  fclose(f);
}

// What is reserved around it goes back: a thousand mappings leave as much room as there was. (What
// stayed might be one mapping in the end, so it is also measured.)
static void nothing_stays_around_a_mapping(void **ctx)
{
  int fd = make(LARGE + 4096);
  long before, after;
  unsigned long used, in_use;
  count_mappings(&before, &used);
  for (int i = 0; i < 1000; i++)
    munmap(map(fd, LARGE + 4096), LARGE + 4096);
  count_mappings(&after, &in_use);
  assert_in_range(after, 1, before + 3); // the allocator's own
  assert_in_range(in_use, 1, used + 32 * LARGE);
  close(fd);
}

static void what_can_not_be_mapped_is_told(void **ctx)
{
  assert_ptr_equal(manta__pages_map(-1, 4 * LARGE, BOTH, MAP_SHARED), MAP_FAILED);
  assert_int_equal(errno, EBADF);
  assert_ptr_equal(manta__pages_map(-1, 100, BOTH, MAP_SHARED), MAP_FAILED);
  assert_int_equal(errno, EBADF);
  assert_ptr_equal(manta__pages_map(-1, SIZE_MAX - 4095, BOTH, MAP_SHARED), MAP_FAILED);
}

static int add_one(void *p)
{
  for (size_t i = 0; i < 4 * LARGE; i++)
    ((unsigned char *)p)[i]++;
  return 0;
}

// Large pages are made of what there was, and another process that has them mapped sees the same.
static void what_was_written_stays(void **ctx)
{
  int said, fd = make(5 * LARGE - 4096);
  unsigned char *p = map(fd, 5 * LARGE - 4096), *q = map(fd, 5 * LARGE - 4096);
  for (size_t i = 0; i < 3 * LARGE; i += 1000)
    p[i] = (unsigned char)(i / 1000);
  manta__pages_enlarge(p + 100, 5 * LARGE - 4096 - 100,
                       INT64_MAX); // the first and the last stay small
  holder_kill(holder_start(add_one, q, &said));
  for (size_t i = 0; i < 4 * LARGE; i++)
    if (p[i] != (unsigned char)((i % 1000 || i >= 3 * LARGE ? 0 : i / 1000) + 1))
      fail_msg("byte %zu is %d", i, p[i]);
  munmap(p, 5 * LARGE - 4096);
  munmap(q, 5 * LARGE - 4096);
  close(fd);
}

static void pages_become_large(void **ctx)
{
  int fd = make(8 * LARGE);
  unsigned char *p = map(fd, 8 * LARGE);
  p[0] = 1;
  p[1] = 2;
  manta__pages_enlarge(p, 8 * LARGE, -1); // all are too slow
  assert_in_range(large_kb(p), 0, 2 * LARGE / 1024);
  manta__pages_enlarge(p, 8 * LARGE, INT64_MAX);
  long kb = large_kb(p);
  assert_int_equal(p[0] * 10 + p[1], 12);
  munmap(p, 8 * LARGE);
  close(fd);
  if (kb == 0)
    skip_because("the kernel has no large pages for this program");
  assert_int_equal(kb, 8 * LARGE / 1024);
}

// Less than a large page, none at all, and memory that can't be put together: no harm.
static void too_little_is_left_alone(void **ctx)
{
  int fd = make(LARGE);
  unsigned char *p = map(fd, LARGE), *one = NULL;
  manta__pages_enlarge(p, LARGE - 1, INT64_MAX);
  manta__pages_enlarge(p + 1, LARGE - 1, INT64_MAX);
  manta__pages_enlarge(p, 0, INT64_MAX);
  manta__pages_enlarge(one, 0, INT64_MAX);
  assert_int_equal(large_kb(p), 0);
  munmap(p, LARGE);
  close(fd);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_mapping_suits_large_pages),
      cmocka_unit_test(nothing_stays_around_a_mapping),
      cmocka_unit_test(what_can_not_be_mapped_is_told),
      cmocka_unit_test(what_was_written_stays),
      cmocka_unit_test(pages_become_large),
      cmocka_unit_test(too_little_is_left_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
