/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/tune/ondisk.h - what a trial sees of its checkpoints on disk.
 */
#ifndef MANTA_TEST_ONDISK_H
#define MANTA_TEST_ONDISK_H

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/store.h"

/* Iteration of the newest checkpoint of the run, or 0. */
static inline int64_t newest(const char *run_dir)
{
  struct manta__manifest man;
  int fd = open(run_dir, O_RDONLY | O_DIRECTORY), dir;
  manta_status st = manta__store_newest(fd, &dir, &man, NULL);
  close(fd);
  if (st < 0)
    return 0;
  close(dir);
  return man.iteration;
}

/* Whether the newest one is written, and no checkpoint yet because it has no manifest. */
static inline bool is_written(const char *run_dir)
{
  char top[PATH_MAX], last[NAME_MAX + 1] = "";
  snprintf(top, sizeof top, "%s/checkpoints", run_dir);
  DIR *d = opendir(top);
  for (struct dirent *e; d && (e = readdir(d));)
    if (e->d_name[0] == '0' && strcmp(e->d_name, last) > 0)
      snprintf(last, sizeof last, "%s", e->d_name);
  int dir = d && last[0] ? openat(dirfd(d), last, O_RDONLY | O_DIRECTORY) : -1;
  bool found = dir >= 0 && faccessat(dir, "state.safetensors", F_OK, 0) == 0 &&
               faccessat(dir, "manifest.json", F_OK, 0) < 0;
  close(dir);
  if (d)
    closedir(d);
  return found;
}

#endif
