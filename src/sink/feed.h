/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/feed.h - one sink and the thread that feeds it from run.log.
 */
#ifndef MANTA_SINK_FEED_H
#define MANTA_SINK_FEED_H

#include <pthread.h>

#include "sink/sink.h"

typedef struct manta__sink_feed manta__sink_feed;

/* What all feeds of a process share. */
struct manta__sink_feed_run {
  const char *run_id, *run_name, *run_dir;
  int rundir;
  int logdir;  /* of the log: the experiment's of `trials`, else rundir */
  bool trials; /* the run is an experiment */
  const manta_value *config;
  bool replay; /* the run is over: a sink that fails again and again is given up */
  /* Where warnings go; any thread. */
  void (*warn)(void *ctx, const char *text);
  /* A feed has ended; from its thread. */
  void (*ended)(void *ctx);
  void *ctx;
};

/* How the end of the log is known. */
enum manta__sink_feed_end {
  MANTA__SINK_FEED_GOES_ON,
  MANTA__SINK_FEED_WRITTEN, /* all that there will be is in the log */
  MANTA__SINK_FEED_ORPHANED /* the driver is gone: the log ends when nobody holds its lock */
};

/* Begins to feed; `name` is the sink's among those of its run. What `run` points to stays. */
manta_status manta__sink_feed_start(manta__sink_feed **out, const struct manta__sink_feed_run *run,
                                    const char *name, const char *kind, const manta_value *options,
                                    manta_error *err);
/* Any thread. */
void manta__sink_feed_end(manta__sink_feed *f, enum manta__sink_feed_end how);
/* It is to stop now, whatever is left. */
void manta__sink_feed_quit(manta__sink_feed *f);
bool manta__sink_feed_ended(const manta__sink_feed *f);
/* Whether all of the log went out; after it has ended. */
bool manta__sink_feed_whole(const manta__sink_feed *f);
double manta__sink_feed_linger(const manta__sink_feed *f);
/* When it last took a record, of an experiment: each of its trials lingers by itself. */
int64_t manta__sink_feed_moved(const manta__sink_feed *f);
/* Waits for the thread, and frees. */
void manta__sink_feed_join(manta__sink_feed *f);

#endif
