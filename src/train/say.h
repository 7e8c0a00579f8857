/* SPDX-License-Identifier: Apache-2.0
 *
 * train/say.h - what a run says: to the user, who sees it on the thread inside run or next, and to
 * run.log.
 *
 * (1) Text that the user has not looked at is kept up to a limit, and dropped beyond it; a worker's
 *     is in its log file, a warning in run.log.
 * (2) With the driver's lock held, all of it.
 */
#ifndef MANTA_TRAIN_SAY_H
#define MANTA_TRAIN_SAY_H

#include <stdbool.h>
#include <stddef.h>

#include <manta/trainer.h>

#include "event/log.h"

struct manta__msg;

struct manta__text { /* something to show: output of a worker, or a warning */
  struct manta__text *next;
  int rank;   /* -1: a warning of ours, -2: something to know */
  int stream; /* of the worker: 1, 2 */
  bool live;  /* its rows that change, all of them */
  size_t len;
  char data[];
};

/* Queues a message of an agent to be shown: lines of a rank, or its rows that change. Dropped when
 * the user has not looked for long. */
void manta__run_show(manta_trainer *t, const struct manta__msg *m);
/* Tells the user something, in one line, and logs it. */
void manta__run_tell(manta_trainer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Shows a warning to the user, and logs it. */
void manta__run_warn(manta_trainer *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void manta__run_log(manta_run *r, enum manta__event kind, const manta_value *v);
#define MANTA__OUTLOOK_MAX 4300
/* How a run that has a directory could go on if it ended now, in one line. */
void manta__run_outlook(const manta_run *r, char *buf, size_t size);

#endif
