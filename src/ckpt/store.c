/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/store.c - the writing side of checkpoints/; list.c has the readers. The rules are in
 * store.h.
 *
 * (1) A write happens in .tmp-NNNNNN, gets its number by rename once all files are synced, and
 *     counts from the moment its manifest is renamed into place.
 * (2) Numbers only rise, past whatever else lies there under a number, valid or not.
 * (3) Leftovers are removed only by a process that holds the lock on checkpoints/: without it,
 *     they may be what another writer (of a run that is just ending) is at work on.
 */
#include "ckpt/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pack.h"
#include "ckpt/ckdir.h"
#include "ckpt/random.h"
#include "ckpt/retain.h"
#include "ckpt/safetensors.h"
#include "ckpt/slot.h"
#include "sys/file.h"
#include "sys/sock.h"
#include "sys/tree.h"

#define GONE "gone-" /* before the name of a user's directory that is being removed */

/* What a write has for its manifest, until it is committed or discarded. */
struct pending {
  struct pending *next;
  char name[32]; /* of the checkpoint */
  struct manta__extras extras;
};

struct manta__store {
  int dir; /* checkpoints/ */
  struct manta__retention keep;
  struct manta__manifest *list; /* oldest first */
  size_t count, cap;
  int64_t next; /* number of the next checkpoint */
  struct pending *pending;
};

/* --- Opening --- */

struct store_scan {
  manta__store *store;
  bool clean;
  manta_error *err;
};

static manta_status reserve_one(manta__store *s, manta_error *err)
{
  if (s->count < s->cap)
    return MANTA_OK;
  size_t cap = s->cap ? 2 * s->cap : 8;
  struct manta__manifest *p = manta__realloc(s->list, cap * sizeof *p);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a list of %zu checkpoints", cap);
  s->list = p;
  s->cap = cap;
  return MANTA_OK;
}

static void remove_leftover(const struct store_scan *scan, const char *name)
{
  if (scan->clean && manta__ckdir_remove(scan->store->dir, name) < 0)
    manta__warn("remove unfinished checkpoint %s: %m", name);
}

static manta_status look_at(void *ctx, const char *name)
{
  struct store_scan *scan = ctx;
  manta__store *s = scan->store;
  manta_error why = MANTA_ERROR_INIT;
  int64_t number = manta__ckdir_number(name);
  if (!strncmp(name, MANTA__CKPT_TEMP, strlen(MANTA__CKPT_TEMP)))
    remove_leftover(scan, name);
  if (number < 0)
    return MANTA_OK;
  if (number >= s->next)
    s->next = number + 1;
  MANTA_TRY(reserve_one(s, scan->err));
  manta_status st = manta__ckdir_read(s->dir, name, &s->list[s->count], &why);
  if (st == MANTA_OK)
    s->count++;
  else if (st == MANTA_ENOENT)
    remove_leftover(scan, name);
  else if (st == MANTA_ENOMEM)
    return manta_error_set(scan->err, st, "%s", why.message);
  else
    manta__warn("checkpoint %s is left alone and not counted: %s", name, why.message);
  return MANTA_OK;
}

static int by_number(const void *a, const void *b)
{
  int64_t x = manta__ckdir_number(((const struct manta__manifest *)a)->name);
  int64_t y = manta__ckdir_number(((const struct manta__manifest *)b)->name);
  return (x > y) - (x < y);
}

// One process at a time writes here; it keeps the lock as long as the store is open.
static bool lock(manta__store *s)
{
  int64_t by = manta__deadline(s->keep.lock_wait_s);
  while (flock(s->dir, LOCK_EX | LOCK_NB) < 0) {
    if (manta__now() >= by)
      return false;
    usleep(2000);
  }
  return true;
}

static manta_status load(manta__store *s, manta_error *err)
{
  struct store_scan scan = {s, lock(s), err};
  if (!scan.clean)
    manta__debug("lock checkpoints: %m; leftovers stay");
  MANTA_TRY(manta__ckdir_each(s->dir, look_at, &scan, err));
  if (s->count)
    qsort(s->list, s->count, sizeof *s->list, by_number);
  return MANTA_OK;
}

manta_status manta__store_open(manta__store **out, int rundir, const struct manta__retention *keep,
                               manta_error *err)
{
  manta__store *s = manta__calloc(1, sizeof *s);
  if (!s)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the checkpoint store");
  s->dir = -1;
  s->keep = *keep;
  s->next = 1;
  manta_status st = manta__dir_makeat(rundir, "checkpoints", &s->dir, err);
  if (st == MANTA_OK)
    st = load(s, err);
  if (st < 0)
    manta__store_close(s);
  else
    *out = s;
  return st;
}

static struct pending **find_pending(manta__store *s, const char *name)
{
  struct pending **p = &s->pending;
  while (*p && strcmp((*p)->name, name) != 0)
    p = &(*p)->next;
  return p;
}

static void drop_pending(struct pending **at)
{
  struct pending *p = *at;
  if (!p)
    return;
  *at = p->next;
  manta__extras_fini(&p->extras);
  manta__free(p);
}

void manta__store_close(manta__store *s)
{
  if (!s)
    return;
  while (s->pending)
    drop_pending(&s->pending);
  if (s->dir >= 0)
    close(s->dir);
  manta__free(s->list);
  manta__free(s);
}

/* --- Writing --- */

/* A snapshot in its slot: mapped, and looked at. */
struct store_source {
  const uint8_t *base;
  size_t size;
  struct manta__slot_meta meta;
};

// A checkpoint that could not be opened again must not come to count.
static manta_status check_content(const struct store_source *src, manta_error *err)
{
  struct manta__st tensors = {0};
  manta_value value = {0};
  MANTA_TRY(
      manta__st_open(&tensors, src->base + src->meta.tensors_off, src->meta.tensors_len, err));
  manta__st_fini(&tensors);
  MANTA_TRY(manta_value_unpack(&value, src->base + src->meta.value_off, src->meta.value_len, err));
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++) {
    const struct manta__slot_part *p = &src->meta.extra[i];
    manta_value_fini(&value);
    if (p->len)
      MANTA_TRY(manta_value_unpack(&value, src->base + p->off, p->len, err));
  }
  manta_value_fini(&value);
  return MANTA_OK;
}

// The extras of the checkpoint that is to get the next number.
static manta_status note_extras(manta__store *s, const struct store_source *src, manta_error *err)
{
  struct pending *p = manta__calloc(1, sizeof *p);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory to write a checkpoint");
  manta_status st = MANTA_OK;
  for (int i = 0; i < MANTA__EXTRA_COUNT && st == MANTA_OK; i++) {
    const struct manta__slot_part *part = &src->meta.extra[i];
    if (part->len)
      st = manta__extras_put(&p->extras, (enum manta__extra)i, src->base + part->off, part->len,
                             err);
  }
  p->next = s->pending;
  s->pending = p;
  if (st < 0)
    drop_pending(&s->pending);
  return st;
}

static bool has_extras(const struct store_source *src)
{
  for (int i = 0; i < MANTA__EXTRA_COUNT; i++)
    if (src->meta.extra[i].len)
      return true;
  return false;
}

static void describe(struct manta__manifest *m, const struct manta__slot_meta *meta)
{
  *m = (struct manta__manifest){.id = meta->id,
                                .iteration = meta->iteration,
                                .wall_ns = meta->wall_ns,
                                .world = meta->world,
                                .directory = meta->directory != 0,
                                .has_score = meta->has_score && !isnan(meta->score),
                                .file_count = 2};
  m->score = m->has_score ? meta->score : 0;
  m->bytes = meta->tensors_len + meta->value_len;
}

// It lies there already: what counts must only be on the disk.
static manta_status sync_user(const manta__store *s, const struct manta__manifest *m,
                              manta_error *err)
{
  char name[48];
  manta__ckdir_user_name(name, m->id.attempt, m->iteration);
  int dir = openat(s->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0)
    return manta_error_set(err, MANTA_EIO, "open the directory %s: %m", name);
  manta_status st = manta__tree_sync(dir, err);
  close(dir);
  return st;
}

// Those that have come so far; a checkpoint without them is one, too.
static void sync_random(const manta__store *s, const struct manta__manifest *m)
{
  char name[48];
  manta_error why = MANTA_ERROR_INIT;
  manta__random_name(name, m->id.attempt, m->iteration);
  int dir = openat(s->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir >= 0 && manta__tree_sync(dir, &why) < 0)
    manta__warn("random states of a checkpoint: %s", why.message);
  manta__fd_close(&dir);
}

static manta_status write_files(const manta__store *s, int dir, const struct store_source *src,
                                struct manta__manifest *m, manta_error *err)
{
  const struct manta__slot_meta *meta = &src->meta;
  manta_error why = MANTA_ERROR_INIT;
  char files[48];
  MANTA_TRY(manta__ckdir_put(dir, MANTA__CKPT_TENSORS, src->base + meta->tensors_off,
                             meta->tensors_len, &m->files[0], err));
  MANTA_TRY(manta__ckdir_put(dir, MANTA__CKPT_VALUE, src->base + meta->value_off, meta->value_len,
                             &m->files[1], err));
  manta__ckdir_files_name(files, meta->id.attempt, meta->files);
  if (meta->files && manta__ckdir_adopt(s->dir, files, dir, &why) < 0)
    manta__warn("a checkpoint lacks its files: %s", why.message);
  if (m->directory)
    MANTA_TRY(sync_user(s, m, err));
  sync_random(s, m);
  return fsync(dir) < 0 ? manta_error_set(err, MANTA_EIO, "sync a checkpoint: %m") : MANTA_OK;
}

// A directory of its own, under a number that nobody has.
static manta_status make_temp(manta__store *s, char temp[48], int *dir, manta_error *err)
{
  struct stat sb;
  for (;; s->next++) {
    char name[32];
    manta__ckdir_name(name, s->next);
    snprintf(temp, 48, "%s%s", MANTA__CKPT_TEMP, name);
    if (fstatat(s->dir, name, &sb, AT_SYMLINK_NOFOLLOW) == 0)
      continue;
    if (mkdirat(s->dir, temp, 0700) == 0)
      break;
    if (errno != EEXIST)
      return manta_error_set(err, MANTA_EIO, "make checkpoint directory %s: %m", temp);
  }
  *dir = openat(s->dir, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (*dir >= 0)
    return MANTA_OK;
  manta_error_set(err, MANTA_EIO, "open checkpoint directory %s: %m", temp);
  unlinkat(s->dir, temp, AT_REMOVEDIR);
  return MANTA_EIO;
}

// From its temporary name to its number, durably.
static manta_status give_number(manta__store *s, const char *temp, struct manta__manifest *m,
                                manta_error *err)
{
  manta__ckdir_name(m->name, s->next);
  if (renameat(s->dir, temp, s->dir, m->name) < 0)
    return manta_error_set(err, MANTA_EIO, "rename %s to %s: %m", temp, m->name);
  s->next++;
  if (fsync(s->dir) == 0)
    return MANTA_OK;
  manta_error_set(err, MANTA_EIO, "sync checkpoints: %m");
  manta__ckdir_remove(s->dir, m->name);
  return MANTA_EIO;
}

static manta_status write_source(manta__store *s, const struct store_source *src,
                                 struct manta__manifest *out, manta_error *err)
{
  struct manta__manifest m;
  char temp[48];
  int dir = -1;
  MANTA_TRY(check_content(src, err));
  MANTA_TRY(make_temp(s, temp, &dir, err));
  describe(&m, &src->meta);
  manta_status st = write_files(s, dir, src, &m, err);
  close(dir);
  if (st == MANTA_OK)
    st = give_number(s, temp, &m, err);
  if (st < 0)
    manta__ckdir_remove(s->dir, temp);
  else
    *out = m;
  return st;
}

manta_status manta__store_write(manta__store *s, int slot_fd, struct manta__manifest *out,
                                manta_error *err)
{
  struct store_source src;
  MANTA_TRY(manta__slot_map(slot_fd, &src.base, &src.size, &src.meta, err));
  bool noted = has_extras(&src);
  manta_status st = noted ? note_extras(s, &src, err) : MANTA_OK;
  if (st == MANTA_OK) {
    st = write_source(s, &src, out, err);
    if (noted && st < 0)
      drop_pending(&s->pending);
    else if (noted)
      memcpy(s->pending->name, out->name, sizeof out->name);
  }
  munmap((void *)(uintptr_t)src.base, src.size);
  return st;
}

/* --- Committing --- */

static manta_status put_manifest(manta__store *s, const struct manta__manifest *m, manta_error *err)
{
  char *text = NULL;
  size_t len = 0;
  const struct pending *p = *find_pending(s, m->name);
  MANTA_TRY(manta__manifest_write(m, p ? &p->extras : NULL, &text, &len, err));
  int dir = openat(s->dir, m->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  manta_status st = dir < 0 ? manta_error_set(err, MANTA_EIO, "open checkpoint %s: %m", m->name)
                            : manta__file_replace(dir, MANTA__CKPT_MANIFEST, text, len, err);
  if (dir >= 0)
    close(dir);
  manta_free(text);
  return st;
}

// Under another name first: who copies it meanwhile, as another trial does, has all of it or learns
// that it is gone.
static void remove_user(const manta__store *s, const char *name)
{
  manta_error why = MANTA_ERROR_INIT;
  char gone[80];
  snprintf(gone, sizeof gone, GONE "%s", name);
  if (strncmp(name, GONE, strlen(GONE)) == 0 || renameat(s->dir, name, s->dir, gone) < 0)
    snprintf(gone, sizeof gone, "%s", name);
  if (manta__tree_remove(s->dir, gone, &why) < 0)
    manta__warn("remove the directory %s of a checkpoint: %s", name, why.message);
}

// The checkpoint first: from then on nobody claims the user's directory.
static bool remove_one(const manta__store *s, const struct manta__manifest *m)
{
  char name[48];
  if (manta__ckdir_remove(s->dir, m->name) < 0) {
    manta__warn("remove checkpoint %s: %m", m->name);
    return false;
  }
  manta__ckdir_user_name(name, m->id.attempt, m->iteration);
  if (m->directory)
    remove_user(s, name);
  return true;
}

static void retain(manta__store *s, bool *stays)
{
  size_t kept = 0;
  manta__retain_mark(s->list, s->count, &s->keep, stays);
  for (size_t i = 0; i < s->count; i++)
    if (stays[i] || !remove_one(s, &s->list[i]))
      s->list[kept++] = s->list[i];
  s->count = kept;
}

struct sweep {
  const manta__store *store;
  const struct manta__manifest *newest;
};

// `user`: by one that has a directory of the user's.
static bool claimed(const manta__store *s, uint32_t attempt, int64_t iteration, bool user)
{
  for (size_t i = 0; i < s->count; i++)
    if ((s->list[i].directory || !user) && s->list[i].id.attempt == attempt &&
        s->list[i].iteration == iteration)
      return true;
  return false;
}

// The directory of a snapshot that was dropped, or that was never made.
static void sweep_beside(const struct sweep *w, const char *name, uint32_t attempt,
                         int64_t iteration, bool user)
{
  const struct manta__manifest *m = w->newest;
  bool old = attempt < m->id.attempt || (attempt == m->id.attempt && iteration <= m->iteration);
  if (old && !claimed(w->store, attempt, iteration, user))
    remove_user(w->store, name);
}

// The rank's own files of a snapshot that was dropped, or that was never made.
static manta_status sweep_one(void *ctx, const char *name)
{
  const struct sweep *w = ctx;
  const struct manta__ident *id = &w->newest->id;
  uint32_t attempt;
  uint64_t number;
  int64_t iteration;
  if (strncmp(name, GONE, strlen(GONE)) == 0)
    remove_user(w->store, name); // of a writer that died
  else if (manta__ckdir_user_parse(name, &attempt, &iteration))
    sweep_beside(w, name, attempt, iteration, true);
  else if (manta__random_parse(name, &attempt, &iteration))
    sweep_beside(w, name, attempt, iteration, false);
  if (!manta__ckdir_files_parse(name, &attempt, &number))
    return MANTA_OK;
  if (attempt < id->attempt || (attempt == id->attempt && number <= id->seq))
    manta__ckdir_remove(w->store->dir, name);
  return MANTA_OK;
}

static void sweep_files(const manta__store *s, const struct manta__manifest *newest)
{
  struct sweep w = {s, newest};
  manta__ckdir_each(s->dir, sweep_one, &w, NULL);
}

manta_status manta__store_commit(manta__store *s, const struct manta__manifest *m, manta_error *err)
{
  if (manta__ckdir_number(m->name) < 0 || (s->count && by_number(m, &s->list[s->count - 1]) <= 0))
    return manta_error_set(err, MANTA_EINVAL, "commit checkpoint \"%s\": not the newest", m->name);
  manta_status st = reserve_one(s, err);
  bool *stays = manta__malloc(s->count + 1);
  if (st == MANTA_OK && !stays)
    st = manta_error_set(err, MANTA_ENOMEM, "no memory to commit a checkpoint");
  if (st == MANTA_OK)
    st = put_manifest(s, m, err);
  if (st < 0) {
    manta__store_discard(s, m);
  } else {
    drop_pending(find_pending(s, m->name));
    s->list[s->count++] = *m;
    retain(s, stays);
    sweep_files(s, m);
  }
  manta__free(stays);
  return st;
}

void manta__store_discard(manta__store *s, const struct manta__manifest *m)
{
  drop_pending(find_pending(s, m->name));
  if (manta__ckdir_number(m->name) >= 0 && manta__ckdir_remove(s->dir, m->name) < 0)
    manta__warn("remove checkpoint %s: %m", m->name);
}
