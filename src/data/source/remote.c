/* SPDX-License-Identifier: Apache-2.0 */
#include "data/source/remote.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "data/source/spool.h"

#define KNOWN 16384 /* a name has one place; another that needs it comes instead */

/* It has one of both. */
struct remote_source {
  struct manta__source source;
  manta__ranges *ranges;
  struct manta__spool *spool;
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

// Asks the server; one that does not tell the size has to give the whole.
static manta_status look(const char *name, const struct manta__remote_spec *spec,
                         struct manta__remote_facts *out, manta_error *err)
{
  struct manta__spool *spool;
  MANTA_TRY(manta__remote_look(name, spec, out, err));
  if (out->size < 0) {
    MANTA_TRY(manta__spool_take(&spool, name, spec, err));
    out->size = manta__spool_size(spool);
    manta__spool_give(spool); // it stays there for a while
  }
  manta__remote_know(name, out);
  return MANTA_OK;
}

manta_status manta__remote_size(const char *name, const struct manta__remote_spec *spec,
                                int64_t *out, manta_error *err)
{
  struct manta__remote_facts facts;
  manta__spool_forget(name);
  MANTA_TRY(look(name, spec, &facts, err));
  *out = facts.size;
  return MANTA_OK;
}

// --- sources ------------------------------------------------------------------------------------

// A copy of what is given only as a whole, unless it is too large: then it is read as a stream.
static manta_status connect_to(struct remote_source *s, const struct manta__remote_spec *spec,
                               const struct manta__remote_facts *facts, manta_error *err)
{
  const char *name = s->source.name;
  s->source.size = facts->size;
  if (facts->whole) {
    manta_status st = manta__spool_take(&s->spool, name, spec, err);
    if (st == MANTA_OK)
      s->source.size = manta__spool_size(s->spool);
    if (st != MANTA_ETOOBIG)
      return st;
  }
  return manta__ranges_open(&s->ranges, name, spec, facts, err);
}

static manta_status make(struct manta__source **out, const struct manta__place *place,
                         const char *name, const struct manta__remote_spec *spec,
                         const struct manta__remote_facts *facts, manta_error *err)
{
  struct remote_source *s = manta__calloc(1, sizeof *s);
  manta_status st = s && (s->source.name = manta__strdup(name))
                        ? connect_to(s, spec, facts, err)
                        : manta_error_set(err, MANTA_ENOMEM, "%s: no memory to open it", name);
  if (st < 0) {
    if (s)
      manta__remote_close(&s->source);
    return st;
  }
  s->source.place = place;
  *out = &s->source;
  return MANTA_OK;
}

manta_status manta__remote_open(struct manta__source **out, const struct manta__place *place,
                                const char *name, const struct manta__remote_spec *spec,
                                manta_error *err)
{
  struct manta__remote_facts facts;
  if (!recall(name, &facts))
    MANTA_TRY(look(name, spec, &facts, err));
  return make(out, place, name, spec, &facts, err);
}

manta_status manta__remote_read(struct manta__source *source, int64_t at, void *to, size_t n,
                                manta_error *err)
{
  struct remote_source *s = (struct remote_source *)source;
  if (s->spool)
    return manta__spool_read(s->spool, at, to, n, err);
  manta_status st = manta__ranges_read(s->ranges, at, to, n, err);
  if (st < 0) // whoever opens it again wants to know how it is then
    manta__remote_know(source->name, NULL);
  return st;
}

void manta__remote_expect(struct manta__source *source, int64_t from, int64_t to)
{
  struct remote_source *s = (struct remote_source *)source;
  if (s->ranges)
    manta__ranges_expect(s->ranges, from, to);
}

void manta__remote_close(struct manta__source *source)
{
  struct remote_source *s = (struct remote_source *)source;
  struct manta__remote_facts before;
  const struct manta__remote_facts *now = s->ranges ? manta__ranges_facts(s->ranges) : NULL;
  // A listing has no etag, and nobody knows of ranges before one was asked for: whoever reads on
  // later does.
  if (now && recall(source->name, &before) &&
      ((now->etag[0] && !before.etag[0]) || now->whole != before.whole))
    manta__remote_know(source->name, now);
  manta__ranges_close(s->ranges);
  manta__spool_give(s->spool);
  manta__free(source->name);
  manta__free(s);
}
