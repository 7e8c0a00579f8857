/* SPDX-License-Identifier: Apache-2.0
 *
 * event/log.h - run.log: everything that happened in a run, append-only, checksummed, in segments.
 *
 * Files: run.log, then run.log.2, run.log.3, … each up to MANTA__LOG_SEGMENT bytes. A record is a fixed
 * header and a MessagePack payload.
 * (1) A record is valid only if magic, length and hash agree; the first that is not ends the log.
 * (2) A writer that opens a log cuts off the torn tail, with a warning that says how much.
 * (3) A failed write (disk full) never leaves half a record: the file is cut back, the records stay
 *     in memory up to MANTA__LOG_BACKLOG, and are written when there is room again; past that the
 *     oldest rows are dropped and counted, one warning.
 * (4) Records of one writer are in order of adding; (run, attempt, rank, seq) identifies each, and
 *     readers drop a record whose (attempt, rank, seq) they have seen.
 */
#ifndef MANTA_EVENT_LOG_H
#define MANTA_EVENT_LOG_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/value.h>

#include "base/ident.h"

#define MANTA__LOG_SEGMENT (64ll << 20)
#define MANTA__LOG_BACKLOG (16u << 20)
#define MANTA__LOG_MAX_PAYLOAD (64u << 20)
#define MANTA__LOG_MAGIC   0x676f4c6du /* "mLog" */

/* Payloads are maps; the keys each kind has are in record.c's table. */
enum manta__event {
  MANTA__EV_RUN = 1,  /* the run begins: id, name, function, build, argv, cwd, config, session, ordinal */
  MANTA__EV_ATTEMPT,  /* an attempt begins: world, from (iteration), cause */
  MANTA__EV_ROW,      /* a report of ident.rank; payload is the row itself */
  MANTA__EV_REWIND,   /* rows after `to` of earlier attempts are void */
  MANTA__EV_CKPT,     /* a checkpoint is on disk: dir, iteration, bytes, score */
  MANTA__EV_LOST,     /* a worker was lost: rank, host, pid, cause */
  MANTA__EV_NOTE,     /* a warning shown to the user: text */
  MANTA__EV_FINISH    /* the run ended: status, message, results */
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

/* create: the log must not exist yet. Else it is opened for appending (2). The descriptor is dup'ed. */
manta_status manta__log_writer_open(manta__log_writer **out, int dirfd, bool create,
                                    manta_error *err);
/* Flushes and closes. NULL is fine. */
void manta__log_writer_close(manta__log_writer *w);
/* Adds a record to the buffer; no system call until the buffer is large. Not thread-safe. */
manta_status manta__log_add(manta__log_writer *w, enum manta__event kind,
                            const struct manta__ident *id, int64_t wall_ns, const void *payload,
                            size_t len, manta_error *err);
manta_status manta__log_add_value(manta__log_writer *w, enum manta__event kind,
                                  const struct manta__ident *id, const manta_value *v,
                                  manta_error *err);
/* Hands what is buffered to the kernel: one write. A failure is warned about once and remembered (3). */
manta_status manta__log_flush(manta__log_writer *w, manta_error *err);
/* Number of the segment being written, from 1. */
int manta__log_segment(const manta__log_writer *w);

/* fdatasync of segments from..to, by any process that has the directory. */
manta_status manta__log_sync(int dirfd, int from, int to, manta_error *err);

manta_status manta__log_reader_open(manta__log_reader **out, int dirfd, manta_error *err);
void manta__log_reader_close(manta__log_reader *r);
/* 1: the next record, borrowed until the next call. 0: the end so far (call again to follow a growing
 * log). Negative: an I/O error. A torn tail is an end. */
int manta__log_next(manta__log_reader *r, struct manta__record *head, const uint8_t **payload,
                    manta_error *err);
/* Bytes behind the last valid record that are not one: > 0 means torn (or being written). */
int64_t manta__log_torn(const manta__log_reader *r);

#endif
