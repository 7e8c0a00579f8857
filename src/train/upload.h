/* SPDX-License-Identifier: Apache-2.0
 *
 * train/upload.h - a run that is stored under a URI: the uploader as its driver sees it.
 *
 * The run's directory is the staging directory of the URI; the uploader (agent/uploader.h), a child
 * of ours, keeps the copy. It is started again when it dies. At the end of the run it is asked to
 * send all, and waited for: MANTA_UPLOAD_WAIT seconds at most, since nothing is lost here.
 */
#ifndef MANTA_TRAIN_UPLOAD_H
#define MANTA_TRAIN_UPLOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <manta/trainer.h>

#include "wire/conn.h"

struct manta__upload {
  char *uri;         /* of the run; NULL: it is not stored elsewhere */
  manta__conn *conn; /* NULL: no uploader runs */
  pid_t pid;
  int starts;
  int64_t retry_ns; /* when it is started again */
  int64_t asked_ns;
  bool asked, stored; /* to send all; it has */
};

/* Starts the uploader, if the run has a URI. */
manta_status manta__upload_start(manta_run *r, manta_error *err);
/* Reads what it says, and starts it again if it died. Returns when to look again. With the lock
 * held, before it was asked. */
int64_t manta__upload_step(manta_run *r, int64_t now);
/* Until all is stored, or not any longer: tells what is missing then. The run is over. */
void manta__upload_end(manta_run *r);
/* In a forked child of the driver. */
void manta__upload_forget(manta_run *r);
void manta__upload_free(manta_run *r);

#endif
