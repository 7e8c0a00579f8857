/* SPDX-License-Identifier: Apache-2.0
 *
 * event/log.h - run.log: everything that happened in a run, append-only, checksummed, in segments.
 *
 * Files: run.log, then run.log.2, run.log.3, … each up to MANTA__LOG_SEGMENT bytes. A record is a
 * fixed header and a MessagePack payload.
 * (1) A record is valid only if magic, length and hash agree; the first that is not ends its
 *     segment. In the last segment that is a torn tail. In an earlier one it is damage: readers
 *     warn and go on with the next segment, for a writer may long have gone on there. Segments are
 *     consecutive: the first that is missing ends the log.
 * (2) A writer that opens a log cuts off the torn tail, with a warning that says how much. One
 *     writer at a time.
 * (3) A failed write (disk full) never leaves half a record: the file is cut back, the records stay
 *     in memory up to MANTA__LOG_BACKLOG, and are written when there is room again; past that the
 *     oldest rows are dropped and counted, with one warning, and a note in the log once there is
 *     room again. Other records are kept; one for which there is no memory left is refused.
 * (4) Records of one writer are in order of adding; (run, attempt, rank, seq) identifies each. The
 *     rows of one rank and attempt come with rising seq, and readers drop a row whose seq does not
 *     rise: it was salvaged twice. Other records may be late: a checkpoint's carries the seq of its
 *     snapshot and is written behind newer rows.
 */
#ifndef MANTA_EVENT_LOG_H
#define MANTA_EVENT_LOG_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/value.h>

#include "base/ident.h"

#define MANTA__LOG_SEGMENT     (64ll << 20)
#define MANTA__LOG_BACKLOG     (16u << 20)
#define MANTA__LOG_MAX_PAYLOAD (64u << 20)
#define MANTA__LOG_MAGIC       0x676f4c6du /* "mLog" */
#define MANTA__LOG_SELF        (-2)        /* ident.rank of what the writer itself notes */

/* Payloads are maps; the keys each kind has are in record.c's table. */
enum manta__event {
  MANTA__EV_RUN = 1,    /* the run begins: name, function, argv, config, session, ordinal, … */
  MANTA__EV_ATTEMPT,    /* an attempt begins: world, from (iteration), cause */
  MANTA__EV_ROW,        /* a report of ident.rank; payload is the row itself */
  MANTA__EV_REWIND,     /* rows after `to` of earlier attempts are void */
  MANTA__EV_CKPT,       /* a checkpoint is on disk: dir, iteration, bytes, score */
  MANTA__EV_LOST,       /* a worker was lost: rank, host, pid, cause */
  MANTA__EV_NOTE,       /* a warning shown to the user: text */
  MANTA__EV_FINISH,     /* the run ended: status, message, results */
  MANTA__EV_SAMPLE,     /* what the workers of a host use, about once a second: host, workers */
  MANTA__EV_EXPERIMENT, /* a driver begins an experiment, or goes on with it (tune/journal.h) */
  MANTA__EV_TRIAL       /* something happened to trial ident.rank, whose rows are EV_ROW */
};

struct manta__record {
  uint32_t magic;
  uint32_t len; /* of the payload */
  uint32_t kind;
  uint32_t zero;
  struct manta__ident id;
  int64_t wall_ns;
  uint64_t hash; /* XXH3 of the payload, seeded with XXH3 of the header before this field */
};
static_assert(sizeof(struct manta__record) == 56, "on disk");

typedef struct manta__log_writer manta__log_writer;
typedef struct manta__log_reader manta__log_reader;

/* create: the log must not exist yet (MANTA_ESTATE). Else it is opened for appending (2),
 * MANTA_ENOENT if there is none. MANTA_ESTATE names the process that is writing it. The descriptor
 * is dup'ed. */
manta_status manta__log_writer_open(manta__log_writer **out, int dirfd, bool create,
                                    manta_error *err);
/* Flushes and closes; warns of what could not be written. NULL is fine. In a fork of the process
 * that opened it, it only frees: the records are the parent's to write. */
void manta__log_writer_close(manta__log_writer *w);
/* Adds a record to the buffer; no system call until the buffer is large. Not thread-safe. A disk
 * that is full is no failure of this call (3); MANTA_ETOOBIG and MANTA_ENOMEM mean that it was not
 * added. */
manta_status manta__log_add(manta__log_writer *w, enum manta__event kind,
                            const struct manta__ident *id, int64_t wall_ns, const void *payload,
                            size_t len, manta_error *err);
manta_status manta__log_add_value(manta__log_writer *w, enum manta__event kind,
                                  const struct manta__ident *id, const manta_value *v,
                                  manta_error *err);
/* Hands what is buffered to the kernel: one write. A failure is MANTA_EIO, warned about once, and
 * tried again by the next call (3). */
manta_status manta__log_flush(manta__log_writer *w, manta_error *err);
/* For tests: other limits than MANTA__LOG_SEGMENT and MANTA__LOG_BACKLOG. */
void manta__log_set_limits(manta__log_writer *w, int64_t segment, size_t backlog);

/* fdatasync of segments from..to and of the directory, by any process that has it. */
manta_status manta__log_sync(int dirfd, int from, int to, manta_error *err);

/* MANTA_ENOENT if there is no first segment. The descriptor is dup'ed. */
manta_status manta__log_reader_open(manta__log_reader **out, int dirfd, manta_error *err);
void manta__log_reader_close(manta__log_reader *r);
/* 1: the next record, borrowed until the next call. 0: the end so far (call again to follow a
 * growing log). Negative: an I/O error. A torn tail is an end. */
int manta__log_next(manta__log_reader *r, struct manta__record *head, const uint8_t **payload,
                    manta_error *err);
/* Bytes seen so far that are no record: behind the last valid one (a torn tail, or a record that is
 * being written), and what was skipped as damaged. */
int64_t manta__log_torn(const manta__log_reader *r);

#endif
