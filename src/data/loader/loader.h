/* SPDX-License-Identifier: Apache-2.0
 *
 * data/loader/loader.h - a loader: a cut, and a thread that makes batches ahead.
 *
 *     threads parse blocks (feed) -> rows in order (flow) -> parts of batches (cut) -> next
 */
#ifndef MANTA_DATA_LOADER_LOADER_H
#define MANTA_DATA_LOADER_LOADER_H

#include "data/loader/cut.h"
#include "data/loader/track.h"

/* What next gives: a batch, the end, or a failure. */
struct manta__made {
  manta_status st;
  manta_batch *batch;
  struct manta__position position;
  manta_error err;
};

struct manta_loader {
  manta_dataset *dataset;
  manta_loader_config c;      /* complete */
  struct manta__track *track; /* where it is */
  bool running;               /* the cut is open, and the thread, if there is one, runs */
  struct manta__cut cut;      /* the thread's, if there is one */
  struct manta__made over;    /* how it ended; st 1: it has not */

  pthread_mutex_t lock; /* of all that follows */
  pthread_cond_t full, room;
  struct manta__made *made; /* a ring of c.prefetch */
  int first, count;
  bool stops;
  pthread_t thread;

  manta_loader_stats stats;
  struct manta__feed_times times; /* of cuts that are closed */
  int64_t make, wait;             /* nanoseconds */
};

#endif
