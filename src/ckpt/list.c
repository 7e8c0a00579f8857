/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/list.c - the reading side of checkpoints/: which are there, which is the newest, the best.
 *
 * Readers change nothing, and may run beside the writer: a checkpoint that disappears between two
 * steps has been deleted by retention and is passed over in silence.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "ckpt/ckdir.h"
#include "ckpt/retain.h"
#include "ckpt/store.h"

struct list {
  int dir;
  bool verify;
  struct manta__manifest *item;
  size_t count, cap;
  manta_error *err;
};

static manta_status grow(struct list *l)
{
  if (l->count < l->cap)
    return MANTA_OK;
  size_t cap = l->cap ? 2 * l->cap : 8;
  struct manta__manifest *p = manta__realloc(l->item, cap * sizeof *p);
  if (!p)
    return manta_error_set(l->err, MANTA_ENOMEM, "no memory for a list of %zu checkpoints", cap);
  l->item = p;
  l->cap = cap;
  return MANTA_OK;
}

// True if a failure is the checkpoint's own and was warned about (or is none: it has gone).
static bool passed_over(const char *name, manta_status st, const manta_error *why)
{
  if (st == MANTA_ENOMEM)
    return false;
  if (st != MANTA_ENOENT)
    manta__warn("checkpoints/%s is not usable: %s", name, why->message);
  return true;
}

static manta_status look_at(void *ctx, const char *name)
{
  struct list *l = ctx;
  manta_error why = MANTA_ERROR_INIT;
  if (manta__ckdir_number(name) < 0)
    return MANTA_OK;
  MANTA_TRY(grow(l));
  manta_status st = manta__ckdir_read(l->dir, name, &l->item[l->count], &why);
  if (st == MANTA_OK && l->verify)
    st = manta__ckdir_verify(l->dir, &l->item[l->count], &why);
  if (st == MANTA_OK)
    l->count++;
  else if (!passed_over(name, st, &why))
    return manta_error_set(l->err, st, "%s", why.message);
  return MANTA_OK;
}

static int by_number(const void *a, const void *b)
{
  int64_t x = manta__ckdir_number(((const struct manta__manifest *)a)->name);
  int64_t y = manta__ckdir_number(((const struct manta__manifest *)b)->name);
  return (x > y) - (x < y);
}

// A run without checkpoints/ has none; that is no error.
static manta_status list_in(int rundir, bool verify, struct list *l, manta_error *err)
{
  *l = (struct list){.verify = verify, .err = err};
  l->dir = openat(rundir, "checkpoints", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (l->dir < 0)
    return errno == ENOENT ? MANTA_OK : manta_error_set(err, MANTA_EIO, "open checkpoints: %m");
  manta_status st = manta__ckdir_each(l->dir, look_at, l, err);
  if (l->count)
    qsort(l->item, l->count, sizeof *l->item, by_number);
  return st;
}

static void list_fini(struct list *l)
{
  if (l->dir >= 0)
    close(l->dir);
  manta__free(l->item);
}

manta_status manta__store_list(int rundir, bool verify, struct manta__manifest **out, size_t *count,
                               manta_error *err)
{
  struct list l;
  manta_status st = list_in(rundir, verify, &l, err);
  if (st == MANTA_OK) {
    *out = l.item;
    *count = l.count;
    l.item = NULL;
  }
  list_fini(&l);
  return st;
}

// Opens the newest that is whole.
static manta_status open_newest(struct list *l, int *dir_out, struct manta__manifest *m_out,
                                manta_error *err)
{
  for (size_t i = l->count; i-- > 0;) {
    manta_error why = MANTA_ERROR_INIT;
    const struct manta__manifest *m = &l->item[i];
    manta_status st = manta__ckdir_verify(l->dir, m, &why);
    int dir = -1;
    if (st == MANTA_OK &&
        (dir = openat(l->dir, m->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) >= 0) {
      *dir_out = dir;
      *m_out = *m;
      return MANTA_OK;
    }
    if (st < 0 && !passed_over(m->name, st, &why))
      return manta_error_set(err, st, "%s", why.message);
  }
  return manta_error_set(err, MANTA_ENOENT, "no usable checkpoint");
}

manta_status manta__store_newest(int rundir, int *dir_out, struct manta__manifest *m_out,
                                 manta_error *err)
{
  struct list l;
  manta_status st = list_in(rundir, false, &l, err);
  if (st == MANTA_OK)
    st = open_newest(&l, dir_out, m_out, err);
  list_fini(&l);
  return st;
}

manta_status manta__store_best(int rundir, bool score_min, struct manta__manifest *m_out,
                               manta_error *err)
{
  struct list l;
  manta_status st = list_in(rundir, false, &l, err);
  int64_t best = st == MANTA_OK ? manta__retain_best(l.item, l.count, score_min, NULL) : -1;
  if (best >= 0)
    *m_out = l.item[best];
  else if (st == MANTA_OK)
    st = manta_error_set(err, MANTA_ENOENT, "no checkpoint with a score");
  list_fini(&l);
  return st;
}
