/* SPDX-License-Identifier: Apache-2.0 */
#include "train/loaders.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/config.h"
#include "base/knob.h"
#include "base/log.h"
#include "data/plan/late.h"
#include "data/plan/pack.h"
#include "data/share/share.h"
#include "train/session.h"

#define gate      manta__session_gate
#define NAMES_MAX 128 /* of a run: all positions are a small part of a checkpoint */

// --- names --------------------------------------------------------------------------------------

void manta__loaders_fini(struct manta__loaders *l)
{
  for (int i = 0; i < l->count; i++) {
    manta__track_unref(l->entry[i].track);
    manta_value_fini(&l->entry[i].restored);
  }
  manta__free(l->entry);
  *l = (struct manta__loaders){0};
}

static struct manta__loaders_entry *find(struct manta__loaders *l, const char *name)
{
  for (int i = 0; i < l->count; i++)
    if (!strcmp(l->entry[i].name, name))
      return &l->entry[i];
  return NULL;
}

static manta_status add(struct manta__loaders *l, const char *name,
                        struct manta__loaders_entry **out, manta_error *err)
{
  size_t n = name ? strlen(name) : 0;
  if (n == 0 || n >= MANTA__LOADER_NAME)
    return manta_error_set(err, MANTA_EINVAL, "the name of a loader has 1 to %d bytes, not %zu",
                           MANTA__LOADER_NAME - 1, n);
  if (l->count == NAMES_MAX)
    return manta_error_set(err, MANTA_EINVAL, "a run has loaders of %d names at most", NAMES_MAX);
  struct manta__loaders_entry *more =
      manta__realloc(l->entry, (size_t)(l->count + 1) * sizeof *more);
  if (!more)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a loader");
  l->entry = more;
  *out = &l->entry[l->count++];
  **out = (struct manta__loaders_entry){0};
  memcpy((*out)->name, name, n);
  return MANTA_OK;
}

// --- positions ----------------------------------------------------------------------------------

manta_status manta__loaders_restore(struct manta__loaders *l, const manta_value *positions,
                                    manta_error *err)
{
  if (positions->type != MANTA_MAP)
    return MANTA_OK;
  for (size_t i = 0; i < positions->count; i++) {
    struct manta__loaders_entry *e = NULL;
    MANTA_TRY(add(l, positions->u.pairs[i].key, &e, err));
    manta_status st = manta_value_copy(&e->restored, &positions->u.pairs[i].value);
    if (st < 0)
      return manta_error_set(err, st, "no memory for a position");
  }
  return MANTA_OK;
}

static manta_status put(manta_value *out, const struct manta__loaders_entry *e, manta_error *err)
{
  manta_value v = {0};
  if (e->track)
    MANTA_TRY(manta__track_save(e->track, &v, err));
  manta_status st = e->track ? MANTA_OK : manta_value_copy(&v, &e->restored);
  if (st == MANTA_OK)
    st = manta_value_put(out, e->name, &v);
  manta_value_fini(&v);
  return st < 0 ? manta_error_set(err, st, "no memory for a position") : MANTA_OK;
}

manta_status manta__loaders_save(const struct manta__loaders *l, manta_value *out, manta_error *err)
{
  manta_value map = {0};
  manta_status st = l->count ? manta_value_set_map(&map) : MANTA_OK;
  for (int i = 0; i < l->count && st == MANTA_OK; i++)
    st = put(&map, &l->entry[i], err);
  if (st == MANTA_OK)
    manta_value_move(out, &map);
  manta_value_fini(&map);
  return st;
}

static manta_status go_on(struct manta__loaders_entry *e, manta_loader *loader, manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  if (e->restored.type == MANTA_NIL)
    return MANTA_OK;
  manta_status st = manta_loader_load(loader, &e->restored, &why);
  if (st < 0)
    return manta_error_set(err, st, "what the checkpoint has for the loader \"%s\" %s", e->name,
                           why.message);
  manta_value_fini(&e->restored);
  return MANTA_OK;
}

manta_status manta__loaders_enter(struct manta__loaders *l, const char *name, manta_loader *loader,
                                  manta_error *err)
{
  struct manta__loaders_entry *e = name ? find(l, name) : NULL;
  if (!e)
    MANTA_TRY(add(l, name, &e, err));
  if (e->track && manta__track_is_open(e->track))
    return manta_error_set(
        err, MANTA_EINVAL,
        "a loader of the name \"%s\" is open\nhint: close it first, or give this "
        "one a name of its own",
        name);
  MANTA_TRY(go_on(e, loader, err));
  manta__track_unref(e->track);
  e->track = manta__track_ref(loader->track);
  return MANTA_OK;
}

// --- the reader of the host ---------------------------------------------------------------------

static manta_status still_runs(void *session, manta_error *err)
{
  manta_session *s = session;
  if (gate.state != MANTA__GATE_OPEN)
    return manta_error_set(err, MANTA_ESTATE, "a loader of a train function that has returned");
  return manta__ctl_check(s->job->ctl, err);
}

// Where none can be had the loader parses by itself.
static manta_status reach_reader(void *session, int *sock, manta_error *err)
{
  manta_session *s = session;
  manta_error why = MANTA_ERROR_INIT;
  MANTA_TRY(still_runs(s, err));
  manta_status st = manta__worker_reader(s->job, sock, &why);
  if (st == MANTA_OK)
    return st;
  MANTA_TRY(still_runs(s, err));
  manta__warn("%s; this worker parses by itself", why.message);
  return manta_error_set(err, MANTA_EUNSUPPORTED, "%s", why.message);
}

// One worker alone has nobody to share with, but functions run in processes of the reader.
static bool wants_reader(const struct manta__job *job, manta_dataset *d)
{
  const char *word = manta__knob_text(MANTA__KNOB_DATA_READER);
  struct manta__late late;
  if (word && word[0])
    return !strcmp(word, "always");
  return job->local_world > 1 ||
         (manta__late_split(&late, d, NULL) == MANTA_OK && manta__plan_calls(late.early));
}

static manta_status open_loader(manta_loader **out, manta_session *s, manta_dataset *d,
                                const manta_loader_config *c, manta_error *err)
{
  struct manta__share_source reader = {s, reach_reader, still_runs, s->job->local_rank == 0};
  struct manta__supply supply = {0};
  if (wants_reader(s->job, d)) {
    manta_status st = manta__taker_create(&supply, d, c, &reader, err);
    if (st < 0 && st != MANTA_EUNSUPPORTED)
      return st;
  }
  if (!supply.next)
    MANTA_TRY(manta__dataset_prepare(d, err));
  return manta__loader_open(out, d, c, &supply, err);
}

// --- a loader -----------------------------------------------------------------------------------

manta_status manta_session_loader(manta_loader **out, manta_session *s, const char *name,
                                  manta_dataset *d, const manta_loader_config *config,
                                  manta_error *err)
{
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_loader *l;
  if (config)
    MANTA_TRY(manta__config_take(&c, sizeof c, config, "MANTA_LOADER_CONFIG_INIT", err));
  c.size = sizeof c;
  c.rank = manta_session_rank(s);
  c.ranks = manta_session_world_size(s);
  MANTA_TRY(manta__loader_config(&c, &c, err));
  MANTA_TRY(open_loader(&l, s, d, &c, err));
  manta_status st = manta__gate_enter(&gate, &gate.save, "loader", err);
  if (st == MANTA_OK) {
    st = manta__loaders_enter(&s->loaders, name, l, err);
    manta__mutex_leave(&gate.save);
  }
  if (st < 0)
    manta_loader_close(l);
  else
    *out = l;
  return st;
}
