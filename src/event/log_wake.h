/* SPDX-License-Identifier: Apache-2.0
 *
 * event/log_wake.h - one descriptor that becomes readable when something happened to a run's log.
 *
 * (1) Where the kernel sees every write to the directory (inotify, on the file systems of this
 *     machine), a write wakes at once; elsewhere, as on network file systems, the log is looked at
 *     every MANTA__WAKE_POLL_MS.
 * (2) Who has just read records is not woken again before MANTA__WAKE_BATCH_MS: rows that come by
 *     the thousand are read in batches.
 * (3) Who sees no write is woken every MANTA__WAKE_IDLE_MS all the same: the death of a writer may
 *     change no file.
 */
#ifndef MANTA_EVENT_LOG_WAKE_H
#define MANTA_EVENT_LOG_WAKE_H

#include <stdbool.h>

#include <manta/status.h>

#define MANTA__WAKE_POLL_MS  100
#define MANTA__WAKE_BATCH_MS 10
#define MANTA__WAKE_IDLE_MS  1000

struct manta__log_wake {
  int fd;     /* to poll for reading */
  int timer;  /* … and what is behind it */
  int notify; /* -1: it is polled */
};

/* It is polled at first. */
manta_status manta__log_wake_open(struct manta__log_wake *w, manta_error *err);
/* From now on it is watched, if that can be; dirfd: the run directory, borrowed. It wakes at once:
 * what has happened before was not seen. To end a watch takes the kernel some milliseconds, so who
 * does not wait does without. */
void manta__log_wake_watch(struct manta__log_wake *w, int dirfd);
void manta__log_wake_close(struct manta__log_wake *w);
/* Forgets what has happened so far; to be called before one looks. */
void manta__log_wake_clear(struct manta__log_wake *w);
/* Waits for what happens next; to be called after one has looked. batch: records were found (2). */
void manta__log_wake_arm(struct manta__log_wake *w, bool batch);

#endif
