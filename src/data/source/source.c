/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source/source.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

static const struct manta__place *const places[] = {&manta__place_file, &manta__place_http,
                                                    &manta__place_https, &manta__place_s3};
#define PLACES (sizeof places / sizeof *places)

// The length of SCHEME in SCHEME://…; 0 for a path.
static size_t scheme_length(const char *name)
{
  size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");
  return n && !strncmp(name + n, "://", 3) ? n : 0;
}

static manta_status find_place(const struct manta__place **out, const char **name, manta_error *err)
{
  size_t n = scheme_length(*name);
  if (n == 4 && !strncmp(*name, "file", 4)) { // file:///path
    *name += strlen("file://");
    n = 0;
  }
  for (size_t i = 0; i < PLACES; i++)
    if (strlen(places[i]->scheme) == n && !strncmp(places[i]->scheme, *name, n)) {
      *out = places[i];
      return MANTA_OK;
    }
  return manta_error_set(err, MANTA_EUNSUPPORTED,
                         "%s: manta reads nothing from %.*s://\nhint: there are local paths, "
                         "patterns and folders, http://, https:// and s3://",
                         *name, (int)n, *name);
}

manta_status manta__source_open(struct manta__source **out, const char *name, manta_error *err)
{
  const struct manta__place *place;
  MANTA_TRY(find_place(&place, &name, err));
  return place->open(out, name, err);
}

void manta__source_close(struct manta__source *s)
{
  if (s)
    s->place->close(s);
}

manta_status manta__source_read(struct manta__source *s, int64_t at, void *to, size_t n,
                                manta_error *err)
{
  if (at < 0 || at > s->size || (int64_t)n > s->size - at)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s: %zu bytes at %" PRId64 " are not in its %" PRId64 " bytes", s->name,
                           n, at, s->size);
  if (n == 0)
    return MANTA_OK;
  int64_t from = manta__now();
  manta_status st = s->place->read(s, at, to, n, err);
  if (s->took)
    atomic_fetch_add_explicit(s->took, manta__now() - from, memory_order_relaxed);
  return st;
}

void manta__source_expect(struct manta__source *s, int64_t from, int64_t to)
{
  if (s->place->expect)
    s->place->expect(s, from, to);
}

// --- listings -----------------------------------------------------------------------------------

manta_status manta__listing_add(struct manta__listing *l, const char *name, int64_t size,
                                manta_error *err)
{
  char *copy = NULL;
  if (l->count == MANTA__FILES_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "%s: more than %d files", name, MANTA__FILES_MAX);
  if (l->count == l->cap) {
    size_t cap = l->cap ? 2 * l->cap : 16;
    struct manta__found *more = manta__realloc(l->found, cap * sizeof *more);
    if (!more)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for the names of %zu files", cap);
    l->found = more;
    l->cap = cap;
  }
  if (!(copy = manta__strdup(name)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the name of a file");
  l->found[l->count++] = (struct manta__found){copy, size};
  return MANTA_OK;
}

static int by_name(const void *a, const void *b)
{
  return strcmp(((const struct manta__found *)a)->name, ((const struct manta__found *)b)->name);
}

void manta__listing_sort(struct manta__listing *l, size_t from)
{
  qsort(l->found + from, l->count - from, sizeof *l->found, by_name);
}

void manta__listing_fini(struct manta__listing *l)
{
  for (size_t i = 0; i < l->count; i++)
    manta__free(l->found[i].name);
  manta__free(l->found);
  *l = (struct manta__listing){0};
}

manta_status manta__listing_make(struct manta__listing *out, const char *const *names, size_t count,
                                 manta_error *err)
{
  struct manta__listing l = {0};
  manta_status st = count ? MANTA_OK : manta_error_set(err, MANTA_EINVAL, "no files are named");
  for (size_t i = 0; i < count && st == MANTA_OK; i++) {
    const struct manta__place *place;
    const char *name = names[i];
    st = find_place(&place, &name, err);
    if (st == MANTA_OK)
      st = place->list(&l, name, err);
  }
  if (st < 0) {
    manta__listing_fini(&l);
    return st;
  }
  *out = l;
  return MANTA_OK;
}
