/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/data/files.h - files of any bytes in a directory of the test's own; compressed ones too.
 */
#ifndef MANTA_TEST_FILES_H
#define MANTA_TEST_FILES_H

#include <zlib.h>
#include <zstd.h>

#include "scratch.h"

/* Writes DIR/NAME and returns its path, which the next call but seven overwrites. */
static inline const char *file_write(const char *dir, const char *name, const void *p, size_t n)
{
  static char paths[8][PATH_MAX];
  static int next;
  char *path = paths[next++ % 8];
  assert_true(snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  assert_true(fd >= 0);
  for (size_t at = 0; at < n;) {
    ssize_t w = write(fd, (const char *)p + at, n - at);
    assert_true(w > 0);
    at += (size_t)w;
  }
  close(fd);
  return path;
}

static inline const char *file_text(const char *dir, const char *name, const char *text)
{
  return file_write(dir, name, text, strlen(text));
}

/* gzip (window 31), or bare deflate (window -15). The caller frees it. */
static inline void *deflate_bytes(const void *p, size_t n, int window, size_t *out_n)
{
  z_stream z = {0};
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
  size_t cap = deflateBound(&z, n) + 64;
  void *out = malloc(cap);
  z.next_in = (Bytef *)(uintptr_t)p;
  z.avail_in = (uInt)n;
  z.next_out = out;
  z.avail_out = (uInt)cap;
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  *out_n = cap - z.avail_out;
  deflateEnd(&z);
  return out;
}

static inline void *zstd_bytes(const void *p, size_t n, size_t *out_n)
{
  size_t cap = ZSTD_compressBound(n);
  void *out = malloc(cap);
  *out_n = ZSTD_compress(out, cap, p, n, 3);
  assert_false(ZSTD_isError(*out_n));
  return out;
}

#endif
