/* SPDX-License-Identifier: Apache-2.0
 *
 * data/loader/loader.h - a loader: a cut, and a thread that makes batches ahead.
 *
 *     threads parse blocks (feed) -> rows in order (flow) -> parts of batches (cut) -> late steps
 *     -> next
 */
#ifndef MANTA_DATA_LOADER_LOADER_H
#define MANTA_DATA_LOADER_LOADER_H

#include "data/loader/cut.h"
#include "data/loader/track.h"
#include "data/plan/late.h"

/* What next gives: a batch, the end, or a failure. */
struct manta__made {
  manta_status st;
  manta_batch *batch;
  size_t bytes; /* of the batch, that count while it waits */
  struct manta__position position;
  manta_error err;
};

/* Who makes the batches instead of a cut of the loader's own: another process. They come without
 * the late steps. */
struct manta__supply {
  void *ctx;
  /* From there on; MANTA_EUNSUPPORTED: it cannot, and the loader does it itself. */
  manta_status (*open)(void *ctx, int64_t epoch, const struct manta__position *from,
                       manta_error *err);
  /* 1, a batch and the position behind it; 0: the end. */
  manta_status (*next)(void *ctx, manta_batch **out, struct manta__position *at, manta_error *err);
  void (*close)(void *ctx); /* what open began */
  void (*add_times)(void *ctx, struct manta__feed_times *to, int64_t *make);
  void (*fini)(void *ctx);
};

struct manta_loader {
  manta_dataset *dataset;
  struct manta__late late;     /* its last steps, done with each batch */
  struct manta__supply supply; /* {0}: none */
  manta_loader_config c;       /* complete */
  struct manta__track *track;  /* where it is */
  bool running;                /* the cut is open, and the thread, if there is one, runs */
  struct manta__cut cut;       /* the thread's, if there is one */
  struct manta__made over;     /* how it ended; st 1: it has not */

  pthread_mutex_t lock; /* of all that follows */
  pthread_cond_t full, room;
  struct manta__made *made; /* a ring */
  int cap, first, count;
  size_t waiting; /* bytes in it */
  bool stops;
  pthread_t thread;

  manta_loader_stats stats;
  struct manta__feed_times times; /* of cuts that are closed */
  int64_t make, wait;             /* nanoseconds */
};

/* The options with everything filled in; MANTA_EINVAL. */
manta_status manta__loader_config(manta_loader_config *out, const manta_loader_config *given,
                                  manta_error *err);
/* A loader of such options; takes the supply ({0}: none), also if it fails. */
manta_status manta__loader_open(manta_loader **out, manta_dataset *d, const manta_loader_config *c,
                                const struct manta__supply *supply, manta_error *err);
/* Goes there. */
void manta__loader_go(manta_loader *l, int64_t epoch, const struct manta__position *at);

#endif
