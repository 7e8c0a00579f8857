/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/explist.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "event/lock.h"
#include "tune/experiment.h"

// --- those of a directory ------------------------------------------------------------------------

static bool look_at(int top, const char *name, struct manta__explist_item *out)
{
  char log[NAME_MAX + 32];
  struct stat sb;
  if (name[0] == '.' || fstatat(top, name, &sb, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(sb.st_mode))
    return false;
  snprintf(log, sizeof log, "%s/experiment/run.log", name);
  if (fstatat(top, log, &sb, AT_SYMLINK_NOFOLLOW) < 0)
    return false;
  snprintf(out->name, sizeof out->name, "%s", name);
  out->when = sb.st_mtim.tv_sec * 1000000000ll + sb.st_mtim.tv_nsec;
  return true;
}

static int newest_first(const void *a, const void *b)
{
  const struct manta__explist_item *x = a, *y = b;
  return x->when != y->when ? (x->when < y->when ? 1 : -1) : strcmp(y->name, x->name);
}

static manta_status add(struct manta__explist *l, const struct manta__explist_item *item)
{
  if ((l->count & (l->count - 1)) == 0) { // full, at powers of two
    struct manta__explist_item *more =
        manta__realloc(l->item, (l->count ? 2 * l->count : 1) * sizeof *more);
    if (!more)
      return MANTA_ENOMEM;
    l->item = more;
  }
  l->item[l->count++] = *item;
  return MANTA_OK;
}

manta_status manta__explist_read(struct manta__explist *out, int fd, manta_error *err)
{
  struct manta__explist_item item;
  manta_status st = MANTA_OK;
  *out = (struct manta__explist){0};
  int own = fd >= 0 ? openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  DIR *d = own >= 0 ? fdopendir(own) : NULL;
  for (struct dirent *e; d && st == MANTA_OK && (e = readdir(d));)
    if (look_at(fd, e->d_name, &item))
      st = add(out, &item);
  if (d)
    closedir(d);
  if (st < 0) {
    manta__explist_fini(out);
    return manta_error_set(err, st, "no memory to list experiments");
  }
  if (out->count > 0)
    qsort(out->item, out->count, sizeof *out->item, newest_first);
  return MANTA_OK;
}

void manta__explist_fini(struct manta__explist *l)
{
  manta__free(l->item);
  *l = (struct manta__explist){0};
}

// --- how one stands ------------------------------------------------------------------------------

pid_t manta__exp_holder(const manta_tune *t)
{
  char path[4200];
  snprintf(path, sizeof path, "%s/experiment", manta_tune_dir(t));
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  pid_t pid = fd >= 0 ? manta__runlock_holder(fd) : 0;
  if (fd >= 0)
    close(fd);
  return pid;
}

uint64_t manta__exp_done(const manta_tune *t)
{
  return manta_tune_count_state(t, MANTA_TRIAL_FINISHED) +
         manta_tune_count_state(t, MANTA_TRIAL_STOPPED) +
         manta_tune_count_state(t, MANTA_TRIAL_FAILED);
}

uint64_t manta__exp_total(const manta_tune *t)
{
  int64_t total = manta_value_as_int(manta_value_get(manta_tune_info(t), "total"), 0);
  uint64_t count = manta_tune_count(t);
  return total <= 0 || total == INT32_MAX || (uint64_t)total < count ? count : (uint64_t)total;
}

const char *manta__exp_state(const manta_tune *t)
{
  return manta__exp_holder(t) != 0 ? "running" : t->over ? "finished" : "interrupted";
}
