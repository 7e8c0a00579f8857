/* SPDX-License-Identifier: Apache-2.0
 *
 * data/source/source.h - where bytes come from: one door for files, HTTP and S3.
 *
 * A place is named as users write it: a path, or SCHEME://…. For each scheme there is a file with a
 * table (struct manta__place); that of local files is file.c, and source.c knows them all.
 *
 * (1) A source is open, has a name and a size, and can be read at any offset, by several threads at
 *     once. Its size is that of the moment when it was opened.
 * (2) A read gives all bytes that it was asked for or fails. Bytes that were there when the source
 *     was opened and are not there any more mean that it was cut while it was read: MANTA_EIO says
 *     so. (Files are read by pread for that reason: a mapped file that is cut kills its readers.)
 * (3) Messages begin with the name of the source.
 */
#ifndef MANTA_DATA_SOURCE_SOURCE_H
#define MANTA_DATA_SOURCE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

struct manta__source;

/* What a listing found. The name is the list's. */
struct manta__found {
  char *name;
  int64_t size;
};

/* {0} is empty. */
struct manta__listing {
  struct manta__found *found;
  size_t count, cap;
};
#define MANTA__FILES_MAX 10000000

struct manta__place {
  const char *scheme; /* "s3"; "" for local files */
  /* Opens what is there; MANTA_ENOENT, MANTA_EDENIED, MANTA_EIO. */
  manta_status (*open)(struct manta__source **out, const char *name, manta_error *err);
  /* Reads n bytes at `at`, both inside the size. */
  manta_status (*read)(struct manta__source *s, int64_t at, void *to, size_t n, manta_error *err);
  /* These bytes will be read, in order: some may be fetched ahead. NULL: that is of no use. */
  void (*expect)(struct manta__source *s, int64_t from, int64_t to);
  void (*close)(struct manta__source *s);
  /* Adds what the name stands for: itself, what matches the pattern, what lies in the folder, in
   * the order of their names. Nothing at all is MANTA_ENOENT. */
  manta_status (*list)(struct manta__listing *to, const char *name, manta_error *err);
};

/* The common part of every source; a place embeds it as its first member. */
struct manta__source {
  const struct manta__place *place;
  char *name;
  int64_t size;
  _Atomic int64_t *took; /* nanoseconds in reads are added here; NULL: nowhere */
};

extern const struct manta__place manta__place_file, manta__place_http, manta__place_https,
    manta__place_s3;

/* MANTA_EUNSUPPORTED: a scheme that nobody knows. The caller closes it. */
manta_status manta__source_open(struct manta__source **out, const char *name, manta_error *err);
void manta__source_close(struct manta__source *s); /* NULL is fine */
manta_status manta__source_read(struct manta__source *s, int64_t at, void *to, size_t n,
                                manta_error *err);

void manta__source_expect(struct manta__source *s, int64_t from, int64_t to);

/* All that the names stand for, those of the first name first. Files whose names begin with "." or
 * "_" are passed over where a folder is listed. */
manta_status manta__listing_make(struct manta__listing *out, const char *const *names, size_t count,
                                 manta_error *err);
/* Copies the name. */
manta_status manta__listing_add(struct manta__listing *l, const char *name, int64_t size,
                                manta_error *err);
/* Those from number `from` on, by their names. */
void manta__listing_sort(struct manta__listing *l, size_t from);
void manta__listing_fini(struct manta__listing *l);

#endif
