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

/* The same for `d`, a step over the files, which have that schema there: other types of the same
 * columns. */
manta_status manta__files_scan_as(struct manta__scan **out, manta_dataset *d,
                                  struct manta__files *f, struct manta__schema *schema,
                                  int64_t block, const struct manta__want *want, manta_error *err);

/* A data set without files, with these options; unref it if it cannot be finished. */
manta_status manta__files_begin(struct manta__files **out, const manta_data_config *config,
                                manta_error *err);
/* The columns that it gives, of its schema; and what follows from its blocks. */
manta_status manta__files_choose(struct manta__files *f, manta_error *err);
void manta__files_end(struct manta__files *f);

/* As they are found and cut (plan/pack.h): the step's pack and unpack. */
manta_status manta__files_pack(const manta_dataset *d, manta_value *to, manta_error *err);
manta_status manta__files_unpack(manta_dataset **out, manta_dataset *const *in, size_t inputs,
                                 const manta_value *from, manta_error *err);

/* The options with everything filled in, and its own copies; MANTA_EINVAL names one that makes no
 * sense. */
manta_status manta__files_config(struct manta__files *f, const manta_data_config *given,
                                 manta_error *err);
void manta__files_config_fini(struct manta__files *f);

#endif
