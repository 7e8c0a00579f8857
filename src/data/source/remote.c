/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source/remote.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

#define KNOWN 16384 /* a name has one place; another that needs it comes instead */

struct remote_source {
  struct manta__source source;
  manta__ranges *ranges;
};

// --- what is known ------------------------------------------------------------------------------

struct known_object {
  struct manta__remote_facts facts;
  char name[];
};

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct known_object *known[KNOWN];

static struct known_object **place_of(const char *name)
{
  return &known[manta__hash(name, strlen(name)) % KNOWN];
}

void manta__remote_know(const char *name, const struct manta__remote_facts *facts)
{
  size_t n = strlen(name) + 1;
  struct known_object *k = facts ? manta__malloc(sizeof *k + n) : NULL;
  if (k) {
    k->facts = *facts;
    memcpy(k->name, name, n);
  }
  pthread_mutex_lock(&known_lock);
  struct known_object **at = place_of(name), *old = *at;
  bool ours = !old || facts || !strcmp(old->name, name);
  if (ours)
    *at = k; // without memory nothing is known, which is fine
  pthread_mutex_unlock(&known_lock);
  if (ours)
    manta__free(old);
}

static bool recall(const char *name, struct manta__remote_facts *out)
{
  pthread_mutex_lock(&known_lock);
  const struct known_object *k = *place_of(name);
  bool found = k && !strcmp(k->name, name);
  if (found)
    *out = k->facts;
  pthread_mutex_unlock(&known_lock);
  return found;
}

manta_status manta__remote_size(const char *name, const struct manta__remote_spec *spec,
                                int64_t *out, manta_error *err)
{
  struct manta__remote_facts facts;
  MANTA_TRY(manta__remote_look(name, spec, &facts, err));
  manta__remote_know(name, &facts);
  *out = facts.size;
  return MANTA_OK;
}

// --- sources ------------------------------------------------------------------------------------

static manta_status make(struct manta__source **out, const struct manta__place *place,
                         const char *name, const struct manta__remote_spec *spec,
                         const struct manta__remote_facts *facts, manta_error *err)
{
  struct remote_source *s = manta__calloc(1, sizeof *s);
  manta_status st = s && (s->source.name = manta__strdup(name))
                        ? manta__ranges_open(&s->ranges, name, spec, facts, err)
                        : manta_error_set(err, MANTA_ENOMEM, "%s: no memory to open it", name);
  if (st < 0) {
    if (s)
      manta__remote_close(&s->source);
    return st;
  }
  s->source.place = place;
  s->source.size = facts->size;
  *out = &s->source;
  return MANTA_OK;
}

manta_status manta__remote_open(struct manta__source **out, const struct manta__place *place,
                                const char *name, const struct manta__remote_spec *spec,
                                manta_error *err)
{
  struct manta__remote_facts facts;
  if (!recall(name, &facts)) {
    MANTA_TRY(manta__remote_look(name, spec, &facts, err));
    manta__remote_know(name, &facts);
  }
  return make(out, place, name, spec, &facts, err);
}

manta_status manta__remote_read(struct manta__source *source, int64_t at, void *to, size_t n,
                                manta_error *err)
{
  manta_status st = manta__ranges_read(((struct remote_source *)source)->ranges, at, to, n, err);
  if (st < 0) // whoever opens it again wants to know how it is then
    manta__remote_know(source->name, NULL);
  return st;
}

void manta__remote_expect(struct manta__source *source, int64_t from, int64_t to)
{
  manta__ranges_expect(((struct remote_source *)source)->ranges, from, to);
}

void manta__remote_close(struct manta__source *source)
{
  struct remote_source *s = (struct remote_source *)source;
  struct manta__remote_facts before;
  if (s->ranges && manta__ranges_facts(s->ranges)->etag[0] && recall(source->name, &before) &&
      !before.etag[0]) // of a listing: who reads on later knows which one it was
    manta__remote_know(source->name, manta__ranges_facts(s->ranges));
  manta__ranges_close(s->ranges);
  manta__free(source->name);
  manta__free(s);
}
