/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/state.h - how far a sink is: bookmarks, and the file that keeps them.
 *
 * (1) A bookmark is a place in run.log together with the place in the sink's output that has all up
 *     to there. The first one is always {0}: the beginning of both.
 * (2) At most MANTA__BOOKMARKS are kept: the newest ones densely, older ones thinned out. A rewind
 *     goes back to the last one at or before its iteration and reads on from there.
 * (3) The file .sinks/NAME in the run's directory has the newest bookmark, the memo, and the
 *     options that they were made with: with others the sink begins anew. It is replaced by a
 *     rename, without a sync: after a power cut the output may not be what the mark says, which
 *     `back` of the sink sees, and then all is written again from the log.
 */
#ifndef MANTA_SINK_STATE_H
#define MANTA_SINK_STATE_H

#include "event/log_follow.h"
#include "sink/sink.h"

#define MANTA__STATE_FOLDER ".sinks"
#define MANTA__BOOKMARKS    64

struct manta__bookmark {
  struct manta__log_place place;
  int64_t iteration; /* the last one that has gone out */
  uint32_t attempt;
  int world;
  struct manta__sink_mark mark;
};

struct manta__sink_state {
  char name[64]; /* of the file */
  int rundir;
  const manta_value *options; /* borrowed */
  manta_value memo;
  struct manta__bookmark mark[MANTA__BOOKMARKS];
  int count; /* at least 1 */
};

/* Reads the file, or begins anew. name: of the sink among those of its run. */
void manta__state_init(struct manta__sink_state *s, int rundir, const char *name,
                       const manta_value *options);
void manta__state_fini(struct manta__sink_state *s);
/* The newest one. */
const struct manta__bookmark *manta__state_newest(const struct manta__sink_state *s);
void manta__state_add(struct manta__sink_state *s, const struct manta__bookmark *b);
/* Forgets those behind iteration `to`; -1: all but the beginning. Gives the newest that is left. */
const struct manta__bookmark *manta__state_back(struct manta__sink_state *s, int64_t to);
manta_status manta__state_save(const struct manta__sink_state *s, manta_error *err);

#endif
