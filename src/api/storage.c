/* SPDX-License-Identifier: Apache-2.0
 *
 * api/storage.c - manta/storage.h: what lies under a URI.
 */
#include <manta/storage.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <manta/value.h>

#include "ckpt/replica.h"
#include "remote/objects.h"

manta_status manta_storage_check(const char *uri, manta_error *err)
{
  return manta__objects_check(uri, err);
}

manta_status manta_storage_local(const char *uri, char **out, manta_error *err)
{
  MANTA_TRY(manta__objects_check(uri, err));
  return manta__staging_path(uri, out, err);
}

struct storage_search {
  const char *name;
  int found;
};

static manta_status on_object(void *ctx, const char *name, int64_t size, manta_error *err)
{
  struct storage_search *s = ctx;
  s->found |= !strcmp(name, s->name);
  return MANTA_OK;
}

int manta_storage_has(const char *uri, const char *name, manta_error *err)
{
  struct storage_search s = {.name = name};
  struct manta__objects *o;
  MANTA_TRY(manta__objects_open(&o, uri, err));
  manta_status st = manta__objects_list(o, name, on_object, &s, err);
  manta__objects_close(o);
  return st < 0 ? (int)st : s.found;
}

manta_status manta_storage_fetch(const char *uri, char **out, manta_error *err)
{
  return manta__replica_fetch(uri, out, err);
}

manta_status manta_storage_upload(const char *path, const char *uri, manta_error *err)
{
  return manta__replica_upload(path, uri, err);
}

manta_status manta_storage_download(const char *uri, const char *dir, manta_error *err)
{
  return manta__replica_download(uri, dir, err);
}

manta_status manta_storage_complete(const char *dir, manta_error *err)
{
  struct manta__replica *m = NULL;
  char *uri = NULL;
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return manta_error_set(err, errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "open %s: %m", dir);
  manta_status st = manta__replica_uri(fd, &uri, err);
  if (st == MANTA_ENOENT)
    manta_error_set(err, st,
                    "%s: is no run that is stored elsewhere\nhint: the logdir of its "
                    "trainer must be s3://BUCKET/PREFIX",
                    dir);
  if (st == MANTA_OK)
    st = manta__replica_open(&m, fd, uri, err);
  if (st == MANTA_OK)
    st = manta__replica_pass(m, true, err);
  manta__replica_close(m);
  manta_free(uri);
  close(fd);
  return st;
}
