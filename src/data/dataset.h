/* SPDX-License-Identifier: Apache-2.0
 *
 * data/dataset.h - a data set: files of one schema, cut into blocks, and how they are to be read.
 *
 * This room puts the others together: source/ finds and reads files, format/ with csv/, lines/ and
 * binary/ makes columns of them, expr/ filters, order/ says which row comes when.
 *
 * (1) Once it is open a data set does not change. Readers hold a reference on it, and all that they
 *     share: schema, blocks, options, the pool of memory and the tally.
 * (2) Blocks are numbered in the order of files and bytes; that order is the source order of
 *     order/order.h, and the number of a block and a row's number in it name a row.
 */
#ifndef MANTA_DATA_DATASET_H
#define MANTA_DATA_DATASET_H

#include "data/format/format.h"

struct manta_dataset {
  _Atomic int refs;
  manta_data_config config; /* complete, with copies of what it points to */
  manta_value filter, types;
  struct manta__listing files;
  const struct manta__format *format;
  struct manta__schema *schema; /* of the files */
  struct manta__schema *out;    /* of batches */
  int *columns;                 /* [out->count]: their numbers in the schema */
  struct manta__blocks blocks;
  struct manta__pool *pool;
  struct manta__tally tally;
};

manta_dataset *manta__dataset_ref(manta_dataset *d);
void manta__dataset_unref(manta_dataset *d); /* NULL is fine */
/* Opens the file of number `file`, whose source the caller closes. */
manta_status manta__dataset_file(manta_dataset *d, int32_t file, struct manta__file *out,
                                 manta_error *err);

/* The options with everything filled in, and its own copies; MANTA_EINVAL names one that makes no
 * sense. */
manta_status manta__config_copy(manta_dataset *d, const manta_data_config *given, manta_error *err);
void manta__config_fini(manta_dataset *d);

#endif
