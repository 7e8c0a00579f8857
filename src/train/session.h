/* SPDX-License-Identifier: Apache-2.0
 *
 * train/session.h - the worker's side of a run: the one place that joins report count, checkpoint
 * and data position.
 *
 *   session.c   the session of this process, from a job to the end of its function
 *   passed.c    what came with the job, and a result that goes back as bytes
 *   report.c    one row into the ring, with the score that checkpoints are kept by
 *   save.h      snapshots; save.c: a state into a slot, load.c: one back out of it
 *   loaders.h   its loaders, whose positions are saved and restored
 *   leave.c     a process that ends inside of its function
 *   gate.h      the threads of the worker in these calls; comms.h: its communicators
 */
#ifndef MANTA_TRAIN_SESSION_H
#define MANTA_TRAIN_SESSION_H

#include <limits.h>

#include <manta/session.h>

#include "group/worker.h"
#include "train/comms.h"
#include "train/gate.h"
#include "train/loaders.h"

struct manta_session {
  struct manta__job *job;
  const manta_value *config;
  manta_value no_config;
  bool in_run;   /* false: an execute call, which neither reports nor saves */
  bool lockstep; /* a report returns when the driver has decided about it */
  _Atomic int64_t iteration;
  int64_t origin; /* iteration of the run's checkpoint that the attempt began from, or -1 */
  int64_t last_report_ns, began_ns;
  int64_t compared_ns, apart_ns; /* the wall clock and ours: when compared, and their difference */
  const char *score_key;         /* NULL: checkpoints have no score */
  bool score_optional, has_score;
  _Atomic bool score_known; /* the attempt has reported it, be it as NaN */
  _Atomic bool reported;    /* … or other metrics, where there is a score to be reported */
  double score;
  int saved_slot;         /* newest of this attempt, or -1 */
  bool kept;              /* on other ranks than 0: `own` has this rank's part of it */
  bool loaded;            /* load was called */
  bool let_go;            /* what the attempt began from is no longer open */
  _Atomic uint64_t saves; /* how often save was called, on whatever rank */
  uint64_t files;         /* number of the directory whose files go with the next save, or 0 */
  int64_t directory;      /* iteration whose directory goes with the next save, or 0 */
  _Atomic bool ahead;     /* the next save belongs to the report after it */
  _Atomic int64_t owed;   /* … to this one, which the newest save was made for, or 0 */
  char files_dir[PATH_MAX], directory_path[PATH_MAX];
  struct manta__comms comms;
  struct manta__loaders loaders;
  bool detailed;
  char host[256];
};

/* What a worker does with a job: find the function, make a session, call it. */
extern const struct manta__job_ops manta__session_ops;
/* What the session stands on; borrowed, for as long as the function runs. */
struct manta__job *manta__session_job(const manta_session *s);
struct manta__comms *manta__session_comms(manta_session *s);

/* --- for the calls of a session: session.c, report.c, save.c, load.c, passed.c, leave.c --- */

/* The threads of the worker in them. */
extern struct manta__gate manta__session_gate;
/* MANTA_ESTATE in an execute call, which neither reports nor saves. */
manta_status manta__session_in_run(const manta_session *s, const char *what, manta_error *err);
/* The next number of this rank's one sequence; in `row`. */
struct manta__ident manta__session_next_id(const manta_session *s);
/* MANTA_EPREEMPTED. */
manta_status manta__session_asked_to_stop(manta_error *err);
/* Takes the score of the next checkpoint out of a row, if it has one; in `row`. */
void manta__session_note_score(manta_session *s, const manta_value *row);
/* True: checkpoints are kept by a score, and this rank, which saves, has reported rows without. */
bool manta__session_lacks_score(const manta_session *s);

#endif
