/* SPDX-License-Identifier: Apache-2.0
 *
 * data/plan/files.h - the data set that others come from: files of one schema, cut into blocks.
 */
#ifndef MANTA_DATA_PLAN_FILES_H
#define MANTA_DATA_PLAN_FILES_H

#include "data/plan/dataset.h"

struct manta__files {
  manta_dataset d;
  manta_data_config config; /* complete, with copies of what it points to */
  manta_value filter, types;
  struct manta__listing files;
  const struct manta__format *format;
  struct manta__schema *schema; /* of the files */
  int *columns;                 /* [d.out->count]: their numbers in the schema */
  struct manta__blocks blocks;
};

/* Opens the file of number `file`, whose source the caller closes. */
manta_status manta__files_file(struct manta__files *f, int32_t file, struct manta__file *out,
                               manta_error *err);
/* The rows of a block; the step's scan. */
manta_status manta__files_scan(struct manta__scan **out, manta_dataset *d, int64_t block,
                               const struct manta__want *want, manta_error *err);

/* The options with everything filled in, and its own copies; MANTA_EINVAL names one that makes no
 * sense. */
manta_status manta__files_config(struct manta__files *f, const manta_data_config *given,
                                 manta_error *err);
void manta__files_config_fini(struct manta__files *f);

#endif
