/* SPDX-License-Identifier: Apache-2.0
 *
 * event/log_follow.h - reading run.log while it is being written, from any process.
 *
 *   manta__log_follow *f;
 *   manta__log_follow_open(&f, rundir, NULL, &err)
 *   for (;;)
 *     switch (manta__log_follow_next(f, &head, &payload, &err)) {
 *     case MANTA__FOLLOW_RECORD: … take it …
 *     case MANTA__FOLLOW_WAIT:   … poll manta__log_follow_fd, or manta__log_follow_wait …
 *
 * (1) The follower only reads. It holds no lock and keeps no writer waiting, and its memory is that
 *     of a chunk or of the largest record.
 * (2) A record is given once it is whole and its checksum right. What is behind the last one is
 *     waited for: a writer may be in the middle of it, or cut it off and go on. Nothing is read
 *     twice, and of what was given nothing is taken back but by FOLLOW_CUT.
 * (3) A resumed run goes on in the same log: FOLLOW_END may be followed by further records. Rows
 *     that a REWIND makes void are given as they come, and the REWIND behind them.
 * (4) A place can be kept, in a file or in another process, and taken up again. It names the record
 *     it is behind; a log that does not have that record any more is not gone on with (FOLLOW_CUT).
 * (5) Bytes are looked at in memory of the follower's own: what somebody does to the file meanwhile
 *     is an error or waited for, never believed.
 *
 * One thread at a time. The directory's descriptor is dup'ed, and may be moved or deleted.
 */
#ifndef MANTA_EVENT_LOG_FOLLOW_H
#define MANTA_EVENT_LOG_FOLLOW_H

#include "event/log.h"

/* Behind a record of a log. {0}: the beginning. */
struct manta__log_place {
  int64_t segment;    /* from 1 */
  int64_t start, end; /* of the record, in its segment */
  uint64_t hash;      /* of the record */
};
static_assert(sizeof(struct manta__log_place) == 32, "may be kept as it is");

enum manta__follow {
  MANTA__FOLLOW_WAIT,   /* nothing new: the writer is at work */
  MANTA__FOLLOW_RECORD, /* the next record */
  MANTA__FOLLOW_END,    /* nothing new, and nobody holds the writer's lock: the run is over, was
                           killed, or has not begun. Wait to see whether it is resumed */
  MANTA__FOLLOW_CUT, /* the log has lost records that were given (a power cut): it begins anew with
                           the first one. Forget what came before */
  MANTA__FOLLOW_GONE /* the log was deleted: there is no more, ever */
};

typedef struct manta__log_follow manta__log_follow;

/* dirfd: the run directory; its log need not be there yet. from: NULL: the beginning. A place that
 * makes no sense is a log that was cut. */
manta_status manta__log_follow_open(manta__log_follow **out, int dirfd,
                                    const struct manta__log_place *from, manta_error *err);
void manta__log_follow_close(manta__log_follow *f);
/* One of enum manta__follow, or a failure: MANTA_ECORRUPT if the writer has gone on behind bytes
 * that are no record, MANTA_EIO. After a failure it may be called again. head and payload are set
 * with FOLLOW_RECORD; payload is borrowed until the next call. */
int manta__log_follow_next(manta__log_follow *f, struct manta__record *head,
                           const uint8_t **payload, manta_error *err);
/* Readable when manta__log_follow_next should be called again, unless it gave RECORD or CUT: then
 * that is at once. */
int manta__log_follow_fd(manta__log_follow *f);
/* Waits for that until `by`; false: it has passed. */
bool manta__log_follow_wait(manta__log_follow *f, int64_t by);
/* Behind the last record that was given. */
struct manta__log_place manta__log_follow_place(const manta__log_follow *f);

#endif
