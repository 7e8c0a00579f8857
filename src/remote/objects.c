/* SPDX-License-Identifier: Apache-2.0 */
#include "remote/objects.h"

#include <string.h>

#include "base/alloc.h"

static const struct manta__store_kind *const kinds[] = {&manta__store_s3};

bool manta__is_uri(const char *path)
{
  size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
  return n > 0 && !strncmp(path + n, "://", 3);
}

static const struct manta__store_kind *kind_of(const char *uri)
{
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    size_t n = strlen(kinds[i]->scheme);
    if (!strncmp(uri, kinds[i]->scheme, n) && !strncmp(uri + n, "://", 3))
      return kinds[i];
  }
  return NULL;
}

manta_status manta__objects_check(const char *uri, manta_error *err)
{
  struct manta__objects *o;
  bool web = !strncmp(uri, "http://", 7) || !strncmp(uri, "https://", 8);
  if (!kind_of(uri))
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "%s: %s\nhint: a directory, or s3://BUCKET/PREFIX; other servers that "
                           "speak S3 are reached by AWS_ENDPOINT_URL",
                           uri,
                           web ? "http:// can be read, but nothing can be stored there"
                               : "there is no storage of this kind");
  MANTA_TRY(manta__objects_open(&o, uri, err));
  manta__objects_close(o);
  return MANTA_OK;
}

manta_status manta__objects_open(struct manta__objects **out, const char *uri, manta_error *err)
{
  size_t n = strlen(uri);
  while (n && uri[n - 1] == '/')
    n--;
  if (!kind_of(uri))
    return manta__objects_check(uri, err);
  struct manta__objects *o = manta__calloc(1, sizeof *o);
  if (!o || !(o->uri = manta__strndup(uri, n))) {
    manta__free(o);
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to open it", uri);
  }
  o->kind = kind_of(uri);
  manta_status st = o->kind->open(o, err);
  if (st == MANTA_OK) {
    *out = o;
    return MANTA_OK;
  }
  manta__free(o->uri);
  manta__free(o);
  return st;
}

void manta__objects_close(struct manta__objects *o)
{
  if (!o)
    return;
  o->kind->close(o);
  manta__free(o->uri);
  manta__free(o);
}

manta_status manta__objects_put(struct manta__objects *o, const char *name, int fd, int64_t size,
                                manta_error *err)
{
  return o->kind->put(o, name, fd, size, err);
}

manta_status manta__objects_put_text(struct manta__objects *o, const char *name, const char *text,
                                     bool unless_there, manta_error *err)
{
  return o->kind->put_text(o, name, text, unless_there, err);
}

manta_status manta__objects_get(struct manta__objects *o, const char *name, int fd,
                                manta_error *err)
{
  return o->kind->get(o, name, fd, err);
}

manta_status manta__objects_list(struct manta__objects *o, const char *prefix,
                                 manta__objects_each each, void *ctx, manta_error *err)
{
  return o->kind->list(o, prefix, each, ctx, err);
}

manta_status manta__objects_remove(struct manta__objects *o, const char *name, manta_error *err)
{
  return o->kind->remove(o, name, err);
}
