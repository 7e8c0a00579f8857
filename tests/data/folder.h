/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/data/folder.h - what tests of files have in common: a directory of their own, and a data
 * set of a text in it.
 */
#ifndef MANTA_TEST_FOLDER_H
#define MANTA_TEST_FOLDER_H

#include "files.h"
#include "reading.h"

static char *dir; /* made for the group of tests, and removed behind it */

static inline int set_up(void **state)
{
  dir = scratch_make();
  return 0;
}

static inline int tear_down(void **state)
{
  scratch_remove(dir);
  return 0;
}

static inline manta_dataset *open_text(const char *name, const char *text)
{
  const char *path = file_text(dir, name, text);
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  assert_ok(manta_dataset_open(&d, &path, 1, NULL, &err), &err);
  return d;
}

#endif
