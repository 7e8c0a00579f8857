/* SPDX-License-Identifier: Apache-2.0
 *
 * remote/s3url.c - names of S3, and the URLs that they have.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "remote/s3.h"

manta_status manta__s3_parse(struct manta__s3_name *out, const char *name, manta_error *err)
{
  const char *bucket = name + strlen("s3://"), who[] = "anonymous@";
  out->anonymous = !strncmp(bucket, who, strlen(who));
  bucket += out->anonymous ? strlen(who) : 0;
  size_t n = strcspn(bucket, "/");
  if (n == 0 || n >= sizeof out->bucket ||
      strspn(bucket, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") < n)
    return manta_error_set(err, MANTA_EINVAL, "%s: has no bucket: s3://BUCKET/KEY", name);
  snprintf(out->bucket, sizeof out->bucket, "%.*s", (int)n, bucket);
  out->key = bucket[n] ? bucket + n + 1 : bucket + n;
  return MANTA_OK;
}

char *manta__s3_escape(const char *text, bool slashes)
{
  char *out = manta__malloc(3 * strlen(text) + 1), *to = out;
  for (; out && *text; text++) {
    unsigned char c = (unsigned char)*text;
    bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                 strchr("-_.~", c) || (slashes && c == '/');
    to += plain ? (*to = (char)c, 1) : snprintf(to, 4, "%%%02X", c);
  }
  if (out)
    *to = 0;
  return out;
}

char *manta__s3_url(const struct manta__s3_account *a, const char *bucket, const char *key,
                    const char *query)
{
  char *path = manta__s3_escape(key, true), *url = NULL;
  size_t n = strlen(a->endpoint);
  const char *mark = query ? "?" : "";
  query = query ? query : "";
  if (path && n) // beside buckets, as servers other than AWS want it
    url = manta__asprintf("%.*s/%s/%s%s%s", (int)(a->endpoint[n - 1] == '/' ? n - 1 : n),
                          a->endpoint, bucket, path, mark, query);
  else if (path && strchr(bucket, '.')) // no certificate is for that name
    url = manta__asprintf("https://s3.%s.amazonaws.com/%s/%s%s%s", a->region, bucket, path, mark,
                          query);
  else if (path)
    url = manta__asprintf("https://%s.s3.%s.amazonaws.com/%s%s%s", bucket, a->region, path, mark,
                          query);
  manta__free(path);
  return url;
}
