/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/catalog.h - the runs and experiments of a directory, each with its index, kept up to date as
 * logs grow.
 *
 * (1) One thread does all the reading (manta__catalog_work), in slices, and holds the lock during
 *     each; who shows something takes the lock for as long as that takes.
 * (2) Runs that somebody looks at come first. A run that is over is closed; when its log grows it
 *     is read on from where it was.
 * (3) The indexes take MANTA__CATALOG_BYTES together: past that the run that was looked at longest
 *     ago gives up its series, and is read again when it is asked for.
 * (4) Everything is reached under the directory's descriptor, and no link is followed.
 */
#ifndef MANTA_DASH_CATALOG_H
#define MANTA_DASH_CATALOG_H

#include <pthread.h>

#include "base/buf.h"
#include "dash/index.h"
#include "dash/trials.h"
#include "event/log_follow.h"

#define MANTA__CATALOG_RUNS  4096
#define MANTA__CATALOG_BYTES (16u << 20)

struct manta__entry {
  char *name;
  int64_t changed_ns; /* of its directory, when it was found: the order of reading */
  int dir;            /* its descriptor while it is followed; -1 */
  manta__log_follow *follow;
  struct manta__log_place place; /* up to where it was read, while it is not followed */
  struct manta__index index;
  struct manta__dash_trials *trials; /* of an experiment, whose index is empty; NULL: a run */
  bool whole;                        /* read up to its end at least once since the index began */
  bool live;                         /* somebody writes it */
  int64_t size;                      /* of its log when it was closed */
  int64_t bytes;                     /* of its directory */
  int64_t weighed_ns, used_ns;
  int viewers;
  uint64_t version; /* rises when something is to be shown */
  uint64_t begun;   /* rises when the index begins anew */
  uint32_t seen;    /* the scan that found it */
  char error[256];  /* why it cannot be read, or "" */
};

struct manta__catalog {
  char *dir; /* absolute */
  int fd;
  char *only; /* the one run that is shown, or NULL */
  struct manta__entry **entry;
  size_t count;
  bool full;    /* there are more than MANTA__CATALOG_RUNS */
  int open;     /* runs that are followed */
  bool scanned; /* the directory was looked at in this pass */
  uint32_t scan;
  int64_t next_scan_ns;
  uint64_t version;
  int wake[2]; /* a pipe: something else is to be read */
  pthread_mutex_t lock;
};

/* `dir`: a directory of runs or of one run. MANTA_ENOENT. Close it. */
manta_status manta__catalog_open(struct manta__catalog *c, const char *dir, manta_error *err);
void manta__catalog_close(struct manta__catalog *c);

/* Reads what is new, and waits for more or for the descriptor `also` to be readable, at most until
 * `by`. True: it is. Takes the lock as needed. */
bool manta__catalog_work(struct manta__catalog *c, int also, int64_t by);
/* Has manta__catalog_work look at once; from any thread. */
void manta__catalog_wake(struct manta__catalog *c);

/* Under the lock: the run of this name, or NULL. */
struct manta__entry *manta__catalog_find(struct manta__catalog *c, const char *name);
/* Under the lock: somebody looks at it from now on, or no more. */
void manta__catalog_view(struct manta__catalog *c, struct manta__entry *e, bool on);

/* Without the lock: the end of what a rank printed, at most `most` bytes, from the beginning of a
 * line. MANTA_ENOENT: there is none, or it is no plain file of the run's owner. In tail.c. */
manta_status manta__catalog_tail(struct manta__catalog *c, const char *run, int rank, size_t most,
                                 manta__buf *out, manta_error *err);

/* "running", "finished", "failed", "interrupted", "starting". */
const char *manta__entry_state(const struct manta__entry *e);

#endif
