/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/dirs.c - the directories of trials, by their numbers or by names that the user gives.
 *
 * A given name is in the log with the trial: who goes on with the experiment, or only reads it,
 * asks nobody. A log is not believed: a name that leads elsewhere is damage.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tune/experiment.h"

#define NUMBER ".number" /* a link in a directory with a given name, to the number of its trial */

void manta__trial_dir(const manta_tune *t, char name[MANTA__TRIAL_DIR_MAX], uint64_t number)
{
  const char *given = t->trials.at[number].dir;
  if (given)
    snprintf(name, MANTA__TRIAL_DIR_MAX, "%s", given);
  else
    snprintf(name, MANTA__TRIAL_DIR_MAX, "trial_%05llu", (unsigned long long)number);
}

// Of a trial that has its directory, or is still to begin.
static bool is_taken(const manta_tune *t, const char *name)
{
  struct stat sb;
  char other[MANTA__TRIAL_DIR_MAX];
  for (size_t i = 0; i < t->pending_count; i++) {
    manta__trial_dir(t, other, t->pending[i]);
    if (!strcmp(other, name))
      return true;
  }
  return fstatat(t->dirfd, name, &sb, AT_SYMLINK_NOFOLLOW) == 0;
}

manta_status manta__trial_name(const manta_tune *t, const manta_value *config,
                               char name[MANTA__TRIAL_DIR_MAX], manta_error *err)
{
  unsigned long long number = t->trials.count;
  const struct manta__plan *p = &t->plan;
  name[0] = 0;
  if (!p->dir_fn)
    return MANTA_OK;
  MANTA_TRY(p->dir_fn(p->dir_ctx, number, config, name, MANTA__TRIAL_DIR_MAX, err));
  if (!manta__rundir_fits_trial(name))
    return manta_error_set(err, MANTA_EINVAL,
                           "\"%s\" cannot be the directory of trial %llu: a name of 1 to %d bytes "
                           "without '/' and control characters, that begins with no '.'",
                           name, number, MANTA__TRIAL_DIR_MAX - 1);
  if (is_taken(t, name))
    return manta_error_set(err, MANTA_EINVAL,
                           "the directory \"%s\" of trial %llu is that of another one\nhint: put "
                           "what tells trials apart into the name, such as their number",
                           name, number);
  return MANTA_OK;
}

manta_status manta__trial_make_dir(const manta_tune *t, uint64_t number, const char *name,
                                   manta_error *err)
{
  char link[MANTA__TRIAL_DIR_MAX + sizeof NUMBER + 1], text[24];
  if (mkdirat(t->dirfd, name, 0755) < 0 && errno != EEXIST)
    return manta_error_set(err, MANTA_EIO, "mkdir %s/%s: %m", t->dir, name);
  if (!t->trials.at[number].dir)
    return MANTA_OK;
  snprintf(link, sizeof link, "%s/" NUMBER, name);
  snprintf(text, sizeof text, "%05llu", (unsigned long long)number);
  if (symlinkat(text, t->dirfd, link) < 0 && errno != EEXIST)
    return manta_error_set(err, MANTA_EIO, "link %s/%s: %m", t->dir, link);
  return MANTA_OK;
}
