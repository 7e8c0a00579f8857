/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/copies.c - what a trial that copies another one begins from.
 *
 * (1) While both have the same driver it is a capture: the other's newest snapshot, in memory. It
 *     is held until the copy has saved, so that one that fails before begins from the same state,
 *     whatever the other has deleted meanwhile. The copy's own worker has it mapped as long. The
 *     files of a directory that goes with it are held by links in the copy's own directory.
 * (2) After that driver it is the other's newest checkpoint on disk, until the copy has one of its
 *     own; what it saved before it was a copy does not count any more.
 * (3) What is on disk may be older than what was captured, and the copy's first rows would count as
 *     seen; or newer. The log says where it really begins.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "ckpt/store.h"
#include "sys/file.h"
#include "sys/sock.h"
#include "sys/tree.h"
#include "train/light.h"
#include "tune/experiment.h"

struct manta__capture *manta__capture_of(manta_tune *t, uint64_t number)
{
  for (int i = 0; i < t->capture_count; i++)
    if (t->captured[i] == number)
      return &t->captures[i];
  return NULL;
}

static int open_dir(const manta_tune *t, uint64_t number)
{
  char name[MANTA__TRIAL_DIR_MAX];
  manta__trial_dir(t, name, number);
  return openat(t->dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool forget(manta_tune *t, uint64_t number)
{
  struct manta__capture *c = manta__capture_of(t, number);
  if (!c)
    return false;
  close(c->fd);
  t->captured[c - t->captures] = MANTA__NO_TRIAL;
  return true;
}

void manta__capture_drop(manta_tune *t, uint64_t number)
{
  int dir = forget(t, number) ? open_dir(t, number) : -1;
  if (dir < 0)
    return;
  manta__tree_remove(dir, MANTA__TAKEN, NULL);
  close(dir);
}

// Takes c.
static manta_status keep(manta_tune *t, uint64_t number, struct manta__capture c, manta_error *err)
{
  forget(t, number);
  struct manta__capture *place = manta__capture_of(t, MANTA__NO_TRIAL);
  if (!place) {
    size_t n = (size_t)t->capture_count + 1;
    struct manta__capture *all = manta__realloc(t->captures, n * sizeof *all);
    t->captures = all ? all : t->captures;
    uint64_t *whose = manta__realloc(t->captured, n * sizeof *whose);
    t->captured = whose ? whose : t->captured;
    if (!all || !whose) {
      close(c.fd);
      return manta_error_set(err, MANTA_ENOMEM, "no memory for a copy");
    }
    place = &t->captures[t->capture_count++];
  }
  *place = c;
  t->captured[place - t->captures] = number;
  return MANTA_OK;
}

manta_status manta__capture_take(manta_tune *t, uint64_t number, uint64_t from, manta_error *err)
{
  struct manta__capture c = {.fd = -1};
  int into = open_dir(t, number);
  manta_status st = manta__runner_ops(t->runner)->capture(t->runner, from, into, &c, err);
  manta__fd_close(&into);
  return st == MANTA_OK && c.fd >= 0 ? keep(t, number, c, err) : st;
}

void manta__captures_fini(manta_tune *t)
{
  for (int i = 0; i < t->capture_count; i++)
    if (t->captured[i] != MANTA__NO_TRIAL)
      close(t->captures[i].fd);
  manta__free(t->captures);
  manta__free(t->captured);
}

// Whether a trial has a checkpoint on disk, made in this attempt or later; its path and iteration.
static bool find_newest(const manta_tune *t, uint64_t number, uint32_t attempt, char *path,
                        int64_t *iteration)
{
  struct manta__manifest man;
  int dir, fd = open_dir(t, number);
  if (fd < 0)
    return false;
  manta_status st = manta__store_newest(fd, &dir, &man, NULL);
  close(fd);
  if (st < 0)
    return false;
  manta__dir_path(dir, path);
  close(dir);
  *iteration = man.iteration;
  return man.id.attempt >= attempt;
}

bool manta__copy_origin(const manta_tune *t, uint64_t number, char path[PATH_MAX],
                        int64_t *iteration)
{
  const struct manta__trial *x = &t->trials.at[number];
  *iteration = x->iteration;
  if (x->copied == 0 || find_newest(t, number, x->copied, path, iteration))
    return false;
  if (find_newest(t, x->from, 0, path, iteration))
    return true;
  if (!find_newest(t, number, 0, path, iteration))
    *iteration = 0;
  manta__warn("trial %llu is a copy of trial %llu, of which nothing is on disk: it begins from "
              "what it has saved itself",
              (unsigned long long)number, (unsigned long long)x->from);
  return false;
}
