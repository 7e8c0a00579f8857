/* SPDX-License-Identifier: Apache-2.0
 *
 * train/progress.h - the progress of a run, shown while it goes on and once more at its end.
 *
 * On a terminal it is a block below the line that the cursor is in; elsewhere a line, once a second
 * at first and less often later; in a notebook HTML that replaces what was there.
 * (1) The driver's thread keeps the statistics, with its lock held: a row costs a walk over its
 *     numbers. The user's thread shows them, inside run or next, when it is time.
 * (2) All of it goes to standard error, so that what a program prints stays as it is.
 */
#ifndef MANTA_TRAIN_PROGRESS_H
#define MANTA_TRAIN_PROGRESS_H

#include <manta/trainer.h>

#include "base/clock.h"
#include "event/log.h"
#include "view/stats.h"

struct manta__progress {
  int verbose; /* 0: nothing is shown, or kept */
  bool html;
  int64_t due_ns;   /* when it is to be shown again */
  int64_t shown_ns; /* … and was last, by a line */
  int64_t rows;     /* that had come by then */
  bool told;        /* the end was shown */
  struct manta__stats stats;
};

/* What the user wants; before anything else of the run. */
void manta__progress_init(manta_run *r, const manta_run_config *rc);
void manta__progress_fini(manta_run *r);
/* A resumed run: what its log says so far. Before the log is written to. */
void manta__progress_resume(manta_run *r);
/* What happens to the run; with the lock held. */
void manta__progress_row(manta_run *r, const struct manta__ident *id, int64_t wall_ns,
                         const void *payload, size_t len);
void manta__progress_event(manta_run *r, enum manta__event kind, const struct manta__ident *id,
                           const manta_value *v);
/* When it must be shown next: MANTA__NEVER, or a time that may have come. */
int64_t manta__progress_next(const manta_run *r);
bool manta__progress_due(const manta_run *r);
/* Shows it. With the lock held, which is dropped for the while. */
void manta__progress_show(manta_run *r);
/* The summary, once. The user's thread, without the lock. */
void manta__progress_end(manta_run *r);

#endif
