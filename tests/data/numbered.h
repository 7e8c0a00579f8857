/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/data/numbered.h - a data set whose rows say which they are: n is the number of the row, in
 * the order of the files.
 */
#ifndef MANTA_TEST_NUMBERED_H
#define MANTA_TEST_NUMBERED_H

#include "files.h"
#include "reading.h"

/* DIR/NAME/part-K.csv, `rows` rows each: n, twice (2 n), word ("w" and n % 7). Every third file has
 * ten rows more. */
static inline const char *numbered_write(const char *folder, const char *name, int files, int rows)
{
  static char path[PATH_MAX];
  char *text = malloc((size_t)(rows + 10) * 48 + 64);
  int n = 0;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  mkdir(path, 0700);
  for (int f = 0; f < files; f++) {
    char file[64];
    size_t at = (size_t)snprintf(text, 64, "n,twice,word\n");
    for (int i = 0; i < rows + (f % 3 == 2 ? 10 : 0); i++, n++)
      at += (size_t)snprintf(text + at, 48, "%d,%d,w%d\n", n, 2 * n, n % 7);
    snprintf(file, sizeof file, "%s/part-%03d.csv", name, f);
    file_write(folder, file, text, at);
  }
  free(text);
  return path;
}

static inline manta_dataset *numbered_open(const char *folder, const char *name, int files,
                                           int rows, size_t block_bytes)
{
  const char *path = numbered_write(folder, name, files, rows);
  manta_data_config c = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  c.block_bytes = block_bytes;
  c.batch_rows = 100;
  assert_ok(manta_dataset_open(&d, &path, 1, &c, &err), &err);
  return d;
}

/* A step in the place of the data set that it is made of. */
#define STEP(d, call)                                                                              \
  do {                                                                                             \
    manta_dataset *step_out;                                                                       \
    manta_error step_err = MANTA_ERROR_INIT;                                                       \
    assert_ok(call, &step_err);                                                                    \
    manta_dataset_close(d);                                                                        \
    (d) = step_out;                                                                                \
  } while (0)

static inline manta_dataset *with_filter(manta_dataset *d, const char *json)
{
  manta_value v = tree_of(json);
  STEP(d, manta_dataset_filter(&step_out, d, &v, &step_err));
  manta_value_fini(&v);
  return d;
}

static inline manta_dataset *with_column(manta_dataset *d, const char *name, const char *json)
{
  manta_value v = tree_of(json);
  STEP(d, manta_dataset_add(&step_out, d, name, &v, &step_err));
  manta_value_fini(&v);
  return d;
}

#endif
