/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/data/make_binary.h - numpy arrays, zip files and TFRecords, written by hand.
 */
#ifndef MANTA_TEST_MAKE_BINARY_H
#define MANTA_TEST_MAKE_BINARY_H

#include "base/buf.h"
#include "base/crc.h"
#include "files.h"

static inline void put(manta__buf *b, const void *p, size_t n)
{
  assert_status(manta__buf_append(b, p, n), MANTA_OK);
}

static inline void put_le(manta__buf *b, uint64_t v, int bytes)
{
  put(b, &v, (size_t)bytes); // hosts are little endian
}

/* --- numpy --- */

static inline void put_npy(manta__buf *b, const char *descr, bool fortran, const char *shape,
                           const void *data, size_t n)
{
  char dict[256];
  int len = snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }",
                     descr, fortran ? "True" : "False", shape);
  while ((10 + len + 1) % 64)
    dict[len++] = ' ';
  dict[len++] = '\n';
  put(b, "\x93NUMPY\x01\x00", 8);
  put_le(b, (uint64_t)len, 2);
  put(b, dict, (size_t)len);
  put(b, data, n);
}

/* --- zip --- */

struct zip_writer {
  manta__buf file, directory;
  int count;
};

static inline void zip_begin(struct zip_writer *z)
{
  *z = (struct zip_writer){0};
  manta__buf_init(&z->file, 1 << 26);
  manta__buf_init(&z->directory, 1 << 20);
}

/* With `wide`, the sizes are in a zip64 field, as numpy writes them. */
static inline void zip_add(struct zip_writer *z, const char *name, const void *p, size_t n,
                           bool deflated, bool wide)
{
  size_t packed_n = n, offset = z->file.len;
  void *packed = deflated ? deflate_bytes(p, n, -15, &packed_n) : NULL;
  uint32_t crc = manta__crc32(0, p, n);
  for (int pass = 0; pass < 2; pass++) { // the local header, and the entry of the directory
    manta__buf *b = pass ? &z->directory : &z->file;
    put_le(b, pass ? 0x02014b50 : 0x04034b50, 4);
    if (pass)
      put_le(b, 45, 2);
    put_le(b, 45, 2);
    put_le(b, 0, 2);
    put_le(b, deflated ? 8 : 0, 2);
    put_le(b, 0, 4);
    put_le(b, crc, 4);
    put_le(b, wide ? 0xffffffff : packed_n, 4);
    put_le(b, wide ? 0xffffffff : n, 4);
    put_le(b, strlen(name), 2);
    put_le(b, wide ? 20 : 0, 2);
    if (pass) {
      put_le(b, 0, 2);
      put_le(b, 0, 2);
      put_le(b, 0, 2);
      put_le(b, 0, 4);
      put_le(b, offset, 4);
    }
    put(b, name, strlen(name));
    if (wide) {
      put_le(b, 1, 2);
      put_le(b, 16, 2);
      put_le(b, n, 8);
      put_le(b, packed_n, 8);
    }
  }
  put(&z->file, packed ? packed : p, packed_n);
  z->count++;
  free(packed);
}

static inline const char *zip_end(struct zip_writer *z, const char *folder, const char *name)
{
  size_t at = z->file.len;
  put(&z->file, z->directory.data, z->directory.len);
  put_le(&z->file, 0x06054b50, 4);
  put_le(&z->file, 0, 4);
  put_le(&z->file, (uint64_t)z->count, 2);
  put_le(&z->file, (uint64_t)z->count, 2);
  put_le(&z->file, z->directory.len, 4);
  put_le(&z->file, at, 4);
  put_le(&z->file, 5, 2);
  put(&z->file, "hello", 5); // a comment
  const char *path = file_write(folder, name, z->file.data, z->file.len);
  manta__buf_fini(&z->file);
  manta__buf_fini(&z->directory);
  return path;
}

/* --- TFRecord --- */

static inline void put_varint(manta__buf *b, uint64_t v)
{
  for (; v >= 128; v >>= 7)
    assert_status(manta__buf_putc(b, (char)(v | 128)), MANTA_OK);
  assert_status(manta__buf_putc(b, (char)v), MANTA_OK);
}

static inline void put_field(manta__buf *b, int number, const void *p, size_t n)
{
  put_varint(b, (uint64_t)number << 3 | 2);
  put_varint(b, n);
  put(b, p, n);
}

/* A feature of kind 1 (bytes: each of `n` strings), 2 (floats) or 3 (integers), packed or not. */
static inline void put_feature(manta__buf *features, const char *name, int kind, const void *values,
                               size_t n, bool packed)
{
  manta__buf list, body, feature, entry;
  manta__buf *all[] = {&list, &body, &feature, &entry};
  for (int i = 0; i < 4; i++)
    manta__buf_init(all[i], 1 << 20);
  for (size_t i = 0; i < n; i++) {
    const char *text = kind == 1 ? ((const char *const *)values)[i] : NULL;
    if (kind == 1)
      put_field(&list, 1, text, strlen(text));
    else {
      manta__buf *to = packed ? &body : &list;
      if (!packed)
        put_varint(to, kind == 2 ? 1 << 3 | 5 : 1 << 3);
      if (kind == 2)
        put(to, (const float *)values + i, 4);
      else
        put_varint(to, (uint64_t)((const int64_t *)values)[i]);
    }
  }
  if (packed && kind != 1)
    put_field(&list, 1, body.data, body.len);
  put_field(&feature, kind, list.data, list.len);
  put_field(&entry, 1, name, strlen(name));
  put_field(&entry, 2, feature.data, feature.len);
  put_field(features, 1, entry.data, entry.len);
  for (int i = 0; i < 4; i++)
    manta__buf_fini(all[i]);
}

static inline void put_record(manta__buf *file, const void *p, size_t n)
{
  uint64_t len = n;
  put(file, &len, 8);
  put_le(file, manta__crc32c_masked(&len, 8), 4);
  put(file, p, n);
  put_le(file, manta__crc32c_masked(p, n), 4);
}

/* An Example of these features; empties them. */
static inline void put_example(manta__buf *file, manta__buf *features)
{
  manta__buf example;
  manta__buf_init(&example, 1 << 20);
  put_field(&example, 1, features->data, features->len);
  put_record(file, example.data, example.len);
  manta__buf_fini(&example);
  features->len = 0;
}

#endif
