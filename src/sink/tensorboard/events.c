/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/tensorboard/events.c - event files for programs: what manta_events_* of manta/sink.h does.
 */
#include "sink/events.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "sink/tensorboard/eventfile.h"
#include "sys/file.h"

// A file that is not there yet: a program may have several in one second.
static manta_status open_new(struct manta__eventfile *e, int dirfd, manta_error *err)
{
  static const struct manta__outfile_mark beginning;
  char name[200], process[16];
  snprintf(process, sizeof process, "%d", (int)getpid());
  manta__eventfile_name(name, sizeof name, process);
  size_t n = strlen(name);
  for (int i = 1; faccessat(dirfd, name, F_OK, 0) == 0; i++)
    snprintf(name + n, sizeof name - n, ".%d", i);
  MANTA_TRY(manta__eventfile_open(e, dirfd, name, err));
  manta_status st = manta__eventfile_back(e, beginning, err);
  if (st < 0)
    manta__eventfile_close(e);
  return st;
}

static manta_status open_file(void **out, const char *dir, manta_error *err)
{
  int dirfd;
  struct manta__eventfile *e = manta__calloc(1, sizeof *e);
  if (!e)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for an event file");
  manta_status st = manta__dir_make(dir, &dirfd, err);
  if (st == MANTA_OK) {
    st = open_new(e, dirfd, err);
    close(dirfd);
  }
  if (st < 0)
    manta__free(e);
  else
    *out = e;
  return st;
}

static manta_status row(void *e, int64_t step, double wall_s, const manta_value *values,
                        manta_error *err)
{
  if (values->type != MANTA_MAP)
    return manta_error_set(err, MANTA_ETYPE, "a row of events must be a map");
  return manta__eventfile_row(e, (struct manta__when){step, wall_s}, "", values, err);
}

static manta_status text(void *e, int64_t step, double wall_s, const char *tag, const char *words,
                         manta_error *err)
{
  return manta__eventfile_text(e, (struct manta__when){step, wall_s}, tag, words, strlen(words),
                               err);
}

static manta_status hparams(void *e, double wall_s, const manta_value *values,
                            const manta_value *metrics, const char *group, manta_error *err)
{
  struct manta__when when = {0, wall_s};
  if (values->type != MANTA_MAP)
    return manta_error_set(err, MANTA_ETYPE, "hyperparameters must be a map");
  if (metrics)
    MANTA_TRY(manta__eventfile_experiment(e, when, values, metrics, err));
  return manta__eventfile_hparams(e, when, values, group ? group : "", err);
}

static manta_status end(void *e, double wall_s, bool ok, manta_error *err)
{
  return manta__eventfile_end(e, (struct manta__when){0, wall_s}, ok, err);
}

static manta_status restart(void *e, int64_t step, double wall_s, manta_error *err)
{
  return manta__eventfile_restart(e, (struct manta__when){step, wall_s}, err);
}

static manta_status flush(void *e, manta_error *err)
{
  return manta__outfile_flush(&((struct manta__eventfile *)e)->file, err);
}

static void close_file(void *e)
{
  manta_error err = MANTA_ERROR_INIT;
  if (flush(e, &err) < 0)
    manta__warn("%s", err.message);
  manta__eventfile_close(e);
  manta__free(e);
}

extern const struct manta__events_ops manta_events_entry;
__attribute__((visibility("default"))) const struct manta__events_ops manta_events_entry = {
    .open = open_file,
    .row = row,
    .text = text,
    .hparams = hparams,
    .end = end,
    .restart = restart,
    .flush = flush,
    .close = close_file,
};
