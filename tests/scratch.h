/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/scratch.h - a directory of a test's own, with files in it, gone afterwards.
 */
#ifndef MANTA_TEST_SCRATCH_H
#define MANTA_TEST_SCRATCH_H

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static inline char *scratch_make(void)
{
  static char path[PATH_MAX];
  snprintf(path, sizeof path, "/tmp/manta-test-XXXXXX");
  assert_non_null(mkdtemp(path));
  return path;
}

static inline int scratch_remove_one(const char *p, const struct stat *sb, int flag, struct FTW *f)
{
  return remove(p);
}

static inline void scratch_remove(const char *path)
{
  assert_int_equal(nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Writes DIR/NAME, making the directories on the way. */
static inline void scratch_write(const char *dir, const char *name, const char *text)
{
  char path[PATH_MAX];
  int n = snprintf(path, sizeof path, "%s/%s", dir, name);
  assert_true(n > 0 && n < (int)sizeof path);
  for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
    *p = 0;
    mkdir(path, 0700);
    *p = '/';
  }
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
  close(fd);
}

static inline int scratch_open(const char *dir)
{
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  assert_true(fd >= 0);
  return fd;
}

#endif
