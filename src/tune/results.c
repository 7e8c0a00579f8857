/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/results.c - what an experiment has come to: its trials, the best of them, their rows.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ckpt/store.h"
#include "event/rundir.h"
#include "sys/file.h"
#include "tune/experiment.h"

#define LOG_FILE "experiment/run.log"

// --- finding -------------------------------------------------------------------------------------

static bool is_experiment(int top, const char *name, int64_t *when)
{
  char log[PATH_MAX];
  struct stat sb;
  if (snprintf(log, sizeof log, "%s/" LOG_FILE, name) >= (int)sizeof log ||
      fstatat(top, log, &sb, 0) < 0)
    return false;
  *when = sb.st_mtim.tv_sec * 1000000000ll + sb.st_mtim.tv_nsec;
  return true;
}

// The one of them that was written last.
static bool find_newest(int top, char *name, size_t size)
{
  int64_t newest = -1, when;
  DIR *d = fdopendir(dup(top));
  for (struct dirent *e; d && (e = readdir(d));)
    if (e->d_name[0] != '.' && is_experiment(top, e->d_name, &when) && when > newest) {
      newest = when;
      snprintf(name, size, "%s", e->d_name);
    }
  if (d)
    closedir(d);
  return newest >= 0;
}

static manta_status open_found(int top, const char *name, int *fd_out, char **path_out,
                               manta_error *err)
{
  char path[PATH_MAX];
  int fd = openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return manta_error_set(err, MANTA_EIO, "open %s: %m", name);
  manta__dir_path(fd, path);
  if (!(*path_out = manta__strdup(path))) {
    close(fd);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a path");
  }
  *fd_out = fd;
  return MANTA_OK;
}

manta_status manta__experiment_find(const char *what, int *fd_out, char **path_out,
                                    manta_error *err)
{
  char *logdir, name[NAME_MAX + 1];
  int64_t when;
  bool newest = !what || !strcmp(what, "latest");
  if (!newest && is_experiment(AT_FDCWD, what, &when))
    return open_found(AT_FDCWD, what, fd_out, path_out, err);
  MANTA_TRY(manta__rundir_default(&logdir, err));
  int top = open(logdir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  manta_status st;
  if (top >= 0 && newest && find_newest(top, name, sizeof name))
    st = open_found(top, name, fd_out, path_out, err);
  else if (top >= 0 && !newest && is_experiment(top, what, &when))
    st = open_found(top, what, fd_out, path_out, err);
  else
    st = manta_error_set(err, MANTA_ENOENT, "there is no experiment %s, neither here nor in %s",
                         newest ? "at all" : what, logdir);
  if (top >= 0)
    close(top);
  manta_free(logdir);
  return st;
}

// --- trials --------------------------------------------------------------------------------------

const char *manta_tune_dir(const manta_tune *t)
{
  return t->dir;
}

const manta_value *manta_tune_info(const manta_tune *t)
{
  return &t->info;
}

uint64_t manta_tune_count(const manta_tune *t)
{
  return t->trials.count;
}

uint64_t manta_tune_count_state(const manta_tune *t, manta_trial_state s)
{
  return s >= MANTA_TRIAL_PENDING && s <= MANTA_TRIAL_FAILED ? t->trials.in_state[s] : 0;
}

static manta_status check_number(const manta_tune *t, uint64_t number, manta_error *err)
{
  return number < t->trials.count
             ? MANTA_OK
             : manta_error_set(err, MANTA_ENOENT, "there is no trial %llu: there are %llu",
                               (unsigned long long)number, (unsigned long long)t->trials.count);
}

manta_status manta_tune_trial(manta_tune *t, uint64_t number, manta_trial *out, manta_error *err)
{
  char name[MANTA__TRIAL_DIR_MAX];
  MANTA_TRY(check_number(t, number, err));
  const struct manta__trial *x = &t->trials.at[number];
  const struct manta__packed *from[] = {&x->config, &x->last, &x->best, &x->result};
  for (int i = 0; i < 4; i++)
    MANTA_TRY(manta__packed_get(from[i], &t->view[i], err));
  manta__trial_dir(t, name, number);
  snprintf(t->view_dir, sizeof t->view_dir, "%s/%s", t->dir, name);
  *out = (manta_trial){.number = number,
                       .state = (manta_trial_state)x->state,
                       .config = &t->view[0],
                       .last = &t->view[1],
                       .best = &t->view[2],
                       .result = &t->view[3],
                       .iteration = x->iteration,
                       .failures = x->failures,
                       .dir = t->view_dir,
                       .message = x->message ? x->message : "",
                       .began_s = (double)x->began_ns * 1e-9,
                       .trained_s = x->trained_s,
                       .ended_s = (double)x->ended_ns * 1e-9};
  return MANTA_OK;
}

// --- the best ------------------------------------------------------------------------------------

struct contest {
  const char *metric;
  bool maximize;
  double value; /* of the best so far; NaN: none */
  uint64_t number;
};

static void compare(struct contest *c, double value, uint64_t number)
{
  if (!manta__value_better(value, c->value, c->maximize))
    return;
  c->value = value;
  c->number = number;
}

static manta_status compare_lasts(manta_tune *t, struct contest *c, manta_error *err)
{
  for (uint64_t i = 0; i < t->trials.count; i++) {
    manta_value row = {0};
    MANTA_TRY(manta__packed_get(&t->trials.at[i].last, &row, err));
    compare(c, manta_value_as_real(manta__row_metric(&row, c->metric), NAN), i);
    manta_value_fini(&row);
  }
  return MANTA_OK;
}

static manta_status compare_row(void *ctx, const struct manta__event_rec *e, manta_error *err)
{
  struct contest *c = ctx;
  if (e->what == MANTA__T_ROW)
    compare(c, manta_value_as_real(manta__row_metric(e->value, c->metric), NAN), e->trial);
  return MANTA_OK;
}

// What trials have reported instead.
static manta_status no_best(manta_tune *t, const char *metric, manta_error *err)
{
  char names[512] = "nothing";
  bool found = false;
  for (uint64_t i = 0; i < t->trials.count && !found; i++) {
    manta_value row = {0};
    if (manta__packed_get(&t->trials.at[i].last, &row, NULL) < 0)
      continue;
    found = row.type == MANTA_MAP;
    if (found)
      manta__row_names(&row, names, sizeof names);
    manta_value_fini(&row);
  }
  return manta_error_set(err, MANTA_ENOENT,
                         "no trial has reported \"%s\" as a number; reported: %s", metric, names);
}

manta_status manta_tune_best(manta_tune *t, const char *metric, bool maximize, bool any_row,
                             uint64_t *number, manta_error *err)
{
  bool own = !metric;
  struct contest c = {.metric = own ? t->plan.metric : metric,
                      .maximize = own ? t->plan.maximize : maximize,
                      .value = NAN};
  struct manta__journal_reader reader = {.ctx = &c, .event = compare_row};
  if (!c.metric)
    return manta_error_set(err, MANTA_EINVAL, "the experiment has no metric: name one");
  if (own)
    for (uint64_t i = 0; i < t->trials.count; i++)
      compare(&c, any_row ? t->trials.at[i].top : t->trials.at[i].value, i);
  else if (any_row)
    MANTA_TRY(manta__journal_read(&t->journal, &reader, err));
  else
    MANTA_TRY(compare_lasts(t, &c, err));
  if (isnan(c.value))
    return no_best(t, c.metric, err);
  *number = c.number;
  return MANTA_OK;
}

// --- what lies on disk ---------------------------------------------------------------------------

manta_status manta_tune_checkpoint_dir(manta_tune *t, uint64_t number, char *buf, size_t size,
                                       manta_error *err)
{
  char name[MANTA__TRIAL_DIR_MAX], path[PATH_MAX];
  struct manta__manifest man;
  int dir;
  MANTA_TRY(check_number(t, number, err));
  manta__trial_dir(t, name, number);
  int fd = openat(t->dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return manta_error_set(err, MANTA_ENOENT, "trial %llu was never begun",
                           (unsigned long long)number);
  manta_status st = manta__store_newest(fd, &dir, &man, err);
  close(fd);
  MANTA_TRY(st);
  manta__dir_path(dir, path);
  close(dir);
  if (snprintf(buf, size, "%s", path) >= (int)size)
    return manta_error_set(err, MANTA_ETOOBIG, "%s is longer than %zu bytes", path, size);
  return MANTA_OK;
}

manta_status manta_tune_checkpoint(manta_tune *t, uint64_t number, manta_checkpoint **out,
                                   manta_error *err)
{
  char path[PATH_MAX];
  manta_error why = MANTA_ERROR_INIT;
  *out = NULL;
  manta_status st = manta_tune_checkpoint_dir(t, number, path, sizeof path, &why);
  if (st == MANTA_ENOENT && number < t->trials.count)
    return MANTA_OK;
  return st < 0 ? manta_error_set(err, st, "%s", why.message)
                : manta_checkpoint_open(out, path, false, err);
}

struct walk {
  uint64_t number;
  void *ctx;
  manta_status (*row)(void *ctx, const manta_value *row, manta_error *err);
};

static manta_status walk_event(void *ctx, const struct manta__event_rec *e, manta_error *err)
{
  const struct walk *w = ctx;
  return e->what == MANTA__T_ROW && e->trial == w->number ? w->row(w->ctx, e->value, err)
                                                          : MANTA_OK;
}

manta_status manta_tune_rows(manta_tune *t, uint64_t number, void *ctx,
                             manta_status (*row)(void *ctx, const manta_value *row,
                                                 manta_error *err),
                             manta_error *err)
{
  struct walk w = {number, ctx, row};
  struct manta__journal_reader reader = {.ctx = &w, .event = walk_event};
  MANTA_TRY(check_number(t, number, err));
  if (t->journal.writer)
    MANTA_TRY(manta__journal_flush(&t->journal, err));
  return manta__journal_read(&t->journal, &reader, err);
}
