/* SPDX-License-Identifier: Apache-2.0
 *
 * remote/objects.h - storage outside of this host: a folder of a store, in which objects have names
 * like those of files below it.
 *
 * For each kind of store there is a table; today that is S3's (s3objects.c). Whoever stores
 * checkpoints sees only this.
 *
 * (1) An object is there whole or not at all, whatever breaks off.
 * (2) What a busy server refuses, and what breaks off, is tried again after a pause. An error comes
 *     after some seconds of that, and begins with the object's URI.
 * (3) A folder is for one thread at a time.
 */
#ifndef MANTA_REMOTE_OBJECTS_H
#define MANTA_REMOTE_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>

struct manta__objects;
typedef manta_status (*manta__objects_each)(void *ctx, const char *name, int64_t size,
                                            manta_error *err);

/* A kind of store. */
struct manta__store_kind {
  const char *scheme; /* "s3" */
  /* The folder's URI is whole: no slash at its end. Asks nobody. */
  manta_status (*open)(struct manta__objects *o, manta_error *err);
  void (*close)(struct manta__objects *o);
  manta_status (*put)(struct manta__objects *o, const char *name, int fd, int64_t size,
                      manta_error *err);
  manta_status (*put_text)(struct manta__objects *o, const char *name, const char *text,
                           bool unless_there, manta_error *err);
  manta_status (*get)(struct manta__objects *o, const char *name, int fd, manta_error *err);
  manta_status (*list)(struct manta__objects *o, const char *prefix, manta__objects_each each,
                       void *ctx, manta_error *err);
  manta_status (*remove)(struct manta__objects *o, const char *name, manta_error *err);
};

struct manta__objects {
  const struct manta__store_kind *kind;
  char *uri;     /* of the folder: "s3://bucket/runs" */
  void *private; /* the kind's own */
};

/* Whether a path is the URI of something: SCHEME://… */
bool manta__is_uri(const char *path);
/* MANTA_OK for a URI under which something can be stored; else MANTA_EUNSUPPORTED or MANTA_EINVAL
 * with what can be done instead. */
manta_status manta__objects_check(const char *uri, manta_error *err);

/* A folder; nobody is asked yet. The caller closes it. */
manta_status manta__objects_open(struct manta__objects **out, const char *uri, manta_error *err);
void manta__objects_close(struct manta__objects *o); /* NULL is fine */

/* The first `size` bytes of a file. */
manta_status manta__objects_put(struct manta__objects *o, const char *name, int fd, int64_t size,
                                manta_error *err);
/* A short text. unless_there: MANTA_ESTATE if the object is there already (where the store can
 * tell). */
manta_status manta__objects_put_text(struct manta__objects *o, const char *name, const char *text,
                                     bool unless_there, manta_error *err);
/* Into a file, from its beginning. MANTA_ENOENT: it is not there. */
manta_status manta__objects_get(struct manta__objects *o, const char *name, int fd,
                                manta_error *err);
/* Calls `each` for all objects whose names begin with the prefix; none is fine. */
manta_status manta__objects_list(struct manta__objects *o, const char *prefix,
                                 manta__objects_each each, void *ctx, manta_error *err);
/* One that is not there is fine. */
manta_status manta__objects_remove(struct manta__objects *o, const char *name, manta_error *err);

extern const struct manta__store_kind manta__store_s3;

#endif
