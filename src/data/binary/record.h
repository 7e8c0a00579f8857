/* SPDX-License-Identifier: Apache-2.0
 *
 * data/binary/record.h - the records of a TFRecord file:
 *
 *     u64 length │ u32 masked CRC-32C of it │ bytes │ u32 masked CRC-32C of them
 *
 * (1) Both checksums are compared. Behind a length that is damaged nothing can be found any more:
 *     the rest of the block counts as one record. Bytes that are damaged are one record.
 * (2) Where records begin is known only from the one in front. A file is cut by going from length
 *     to length, without the bytes between them. (A search for a place where the checksums fit
 *     would find records that lie inside of records.)
 */
#ifndef MANTA_DATA_BINARY_RECORD_H
#define MANTA_DATA_BINARY_RECORD_H

#include "data/format/format.h"

#define MANTA__RECORD_FRAME 12 /* bytes in front of the record's own */

/* {0} is closed; close twice is harmless. */
struct manta__records {
  const struct manta__file *file; /* borrowed */
  struct manta__window window;
  int64_t from;
  const uint8_t *p; /* the record that next has found */
  size_t n;
  int64_t offset; /* of the record in the decoded file */
  size_t used;
};

manta_status manta__records_open(struct manta__records *r, const struct manta__file *file,
                                 int64_t from, int64_t to, manta_error *err);
void manta__records_close(struct manta__records *r);
/* 1 and a record; 0 at the end; MANTA_ECORRUPT: it is damaged, and the next call goes on behind it,
 * as far as there is anything. */
manta_status manta__records_next(struct manta__records *r, manta_error *err);

/* As struct manta__format has it. */
manta_status manta__records_cut(const struct manta__file *f, int32_t number,
                                struct manta__blocks *out, manta_error *err);

#endif
