/* SPDX-License-Identifier: Apache-2.0
 *
 * data/source/s3.c - s3://: objects, and what names and patterns stand for.
 */
#include "remote/s3.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/source/remote.h"

// --- objects ------------------------------------------------------------------------------------

static manta_status no_memory(const char *name, manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "%s: no memory to open it", name);
}

static struct manta__remote_spec spec_of(const struct manta__s3_account *a, const char *url)
{
  return (struct manta__remote_spec){url, a->sign, a->user, a->secret, a->token};
}

// What a name stands for, and who asks for it.
static manta_status parse(const char *name, struct manta__s3_name *at, struct manta__s3_account *a,
                          manta_error *err)
{
  MANTA_TRY(manta__s3_parse(at, name, err));
  (at->anonymous ? manta__s3_anonymous : manta__s3_account)(a);
  return MANTA_OK;
}

static manta_status open_s3(struct manta__source **out, const char *name, manta_error *err)
{
  struct manta__s3_account a;
  struct manta__s3_name at;
  MANTA_TRY(parse(name, &at, &a, err));
  char *url = manta__s3_url(&a, at.bucket, at.key, NULL);
  if (!url)
    return no_memory(name, err);
  struct manta__remote_spec spec = spec_of(&a, url);
  manta_status st = manta__remote_open(out, &manta__place_s3, name, &spec, err);
  manta__free(url);
  return st;
}

// --- listings -----------------------------------------------------------------------------------

struct s3_search {
  struct manta__listing *to;
  const struct manta__s3_name *name;
  size_t folder;       /* bytes of a key that are the folder */
  const char *pattern; /* NULL: all below the folder */
};

// "." and "_" in front of a name, or of a folder on the way to it.
static bool is_hidden(const char *below)
{
  for (const char *p = below; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL)
    if (*p == '.' || *p == '_')
      return true;
  return false;
}

// The size need not be asked for again when it is opened. (The ETags of listings are not those of
// the objects on every server.)
static manta_status on_object(void *ctx, const struct manta__s3_object *object, manta_error *err)
{
  const struct s3_search *s = ctx;
  const char *key = object->key;
  struct manta__remote_facts facts = {.size = object->size};
  size_t n = strlen(key);
  if (n == 0 || key[n - 1] == '/') // what stands for a folder
    return MANTA_OK;
  if (s->pattern ? fnmatch(s->pattern, key, FNM_PATHNAME | FNM_PERIOD) != 0
                 : is_hidden(key + s->folder))
    return MANTA_OK;
  char *name =
      manta__asprintf("s3://%s%s/%s", s->name->anonymous ? "anonymous@" : "", s->name->bucket, key);
  if (!name)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a listing");
  manta__remote_know(name, &facts);
  manta_status st = manta__listing_add(s->to, name, object->size, err);
  manta__free(name);
  return st;
}

static manta_status search(struct s3_search *s, const struct manta__s3_account *a, const char *name,
                           const char *prefix, manta_error *err)
{
  size_t before = s->to->count;
  MANTA_TRY(manta__s3_list(a, name, s->name->bucket, prefix, on_object, s, err));
  if (s->to->count == before)
    return manta_error_set(err, MANTA_ENOENT, "%s: %s", name,
                           s->pattern ? "no object matches this pattern" : "there is no object");
  manta__listing_sort(s->to, before);
  return MANTA_OK;
}

static manta_status list_pattern(struct manta__listing *to, const struct manta__s3_account *a,
                                 const char *name, const struct manta__s3_name *at,
                                 manta_error *err)
{
  struct s3_search s = {.to = to, .name = at, .pattern = at->key};
  char *prefix = manta__strndup(at->key, strcspn(at->key, "*?["));
  if (!prefix)
    return no_memory(name, err);
  manta_status st = search(&s, a, name, prefix, err);
  manta__free(prefix);
  return st;
}

static manta_status list_folder(struct manta__listing *to, const struct manta__s3_account *a,
                                const char *name, const struct manta__s3_name *at, manta_error *err)
{
  size_t n = strlen(at->key);
  char *prefix = manta__asprintf("%s%s", at->key, n && at->key[n - 1] != '/' ? "/" : "");
  if (!prefix)
    return no_memory(name, err);
  struct s3_search s = {.to = to, .name = at, .folder = strlen(prefix)};
  manta_status st = search(&s, a, name, prefix, err);
  manta__free(prefix);
  return st;
}

static manta_status list_s3(struct manta__listing *to, const char *name, manta_error *err)
{
  struct manta__s3_account a;
  struct manta__s3_name at;
  int64_t size;
  MANTA_TRY(parse(name, &at, &a, err));
  if (strpbrk(at.key, "*?["))
    return list_pattern(to, &a, name, &at, err);
  if (!at.key[0] || at.key[strlen(at.key) - 1] == '/')
    return list_folder(to, &a, name, &at, err);
  char *url = manta__s3_url(&a, at.bucket, at.key, NULL);
  if (!url)
    return no_memory(name, err);
  struct manta__remote_spec spec = spec_of(&a, url);
  manta_status st = manta__remote_size(name, &spec, &size, err);
  manta__free(url);
  if (st == MANTA_ENOENT) // no object, but perhaps a folder
    return list_folder(to, &a, name, &at, err);
  return st < 0 ? st : manta__listing_add(to, name, size, err);
}

const struct manta__place manta__place_s3 = {
    .scheme = "s3",
    .open = open_s3,
    .read = manta__remote_read,
    .expect = manta__remote_expect,
    .close = manta__remote_close,
    .list = list_s3,
};
