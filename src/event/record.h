/* SPDX-License-Identifier: Apache-2.0
 *
 * event/record.h - one record of run.log: its kinds, its checksum, its file names.
 */
#ifndef MANTA_EVENT_RECORD_H
#define MANTA_EVENT_RECORD_H

#include "event/log.h"

#define MANTA__RECORD_HEAD sizeof(struct manta__record)

/* A kind of record; `keys` are those of its payload, separated by blanks. */
struct manta__event_info {
  enum manta__event kind;
  const char *name, *keys, *help;
};

/* The row of the table, or NULL for a kind that this build does not know. */
const struct manta__event_info *manta__event_info(uint32_t kind);

/* The checksum over header and payload (h->len bytes). */
uint64_t manta__record_hash(const struct manta__record *h, const void *payload);
/* Could this be a header? Says nothing about the hash. */
bool manta__record_head_ok(const struct manta__record *h);

#define MANTA__SEGMENT_NAME_MAX 24
/* run.log, run.log.2, run.log.3, … */
void manta__segment_name(char name[MANTA__SEGMENT_NAME_MAX], int segment);

/* Opens one for reading. MANTA_ENOENT: there is none. */
manta_status manta__segment_open(int dirfd, int segment, int *fd_out, manta_error *err);

/* A reader that begins at this offset of this segment, which must be the end of a record or 0; and
 * where it is: segment, and offset behind the last valid record that it gave. */
manta_status manta__log_reader_open_at(manta__log_reader **out, int dirfd, int segment, int64_t at,
                                       manta_error *err);
int manta__log_reader_segment(const manta__log_reader *r);
int64_t manta__log_reader_at(const manta__log_reader *r);

/* The segment that a reader is in, after manta__log_next has given 0. */
struct manta__log_tail {
  int64_t size;
  bool gone; /* the file was deleted */
  bool bad;  /* what is next is no record, though all of it is there: zeros, or a wrong checksum */
};
manta_status manta__log_reader_tail(const manta__log_reader *r, struct manta__log_tail *out,
                                    manta_error *err);

#endif
