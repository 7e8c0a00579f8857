/* SPDX-License-Identifier: Apache-2.0
 *
 * train/run.h - a run inside the driver, from its start to its end.
 *
 * (1) The driver's lock guards it, but for what is marked as the user thread's own; when it is over
 *     nobody changes its end any more, and the user's thread reads that without.
 * (2) The driver's thread moves it: messages of the agents and rows come in, the state machine
 *     (group/membership.h) says what to do. The user's thread begins it, takes what it gives, and
 *     ends it.
 * (3) A handle outlives its trainer: it has parted from it then, and is over.
 *
 *   run_api.c   a run from the user's thread: beginning and end; job.c: what its workers are told
 *   light.h     a run whose record somebody else keeps
 *   rundir.c    its directory: fresh, adopted or only read again
 *   run.c       what happens to it: messages of the agents, steps
 *   ranks.c     what it has by rank
 *   ending.c    its end: results, the last checkpoint, the message
 *   form.h      attempts, and growing back; muster.h: the same on several hosts
 *   exchange.h  what ranks tell each other through the driver; recall.h: their random states
 *   rows.h      rings -> run.log -> align.h: iterations
 *   newest.h    the newest snapshot in memory
 *   next.c      what the user's thread waits for; deliver.h: rows, output and callbacks there
 *   say.h       what it says, to the user and to run.log; screen.h: how it is shown
 *   progress.h  how far it is, for people
 *   terminal.h  a rank that has the driver's terminal
 *   results.h   return values
 *   sinks.h     the process that takes its rows to files and servers
 *   upload.h    its copy in a store
 */
#ifndef MANTA_TRAIN_RUN_H
#define MANTA_TRAIN_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/trainer.h>

#include "ckpt/origin.h"
#include "event/log.h"
#include "group/membership.h"
#include "sink/child.h"
#include "train/align.h"
#include "train/exchange.h"
#include "train/progress.h"
#include "train/results.h"
#include "train/screen.h"
#include "train/terminal.h"
#include "train/upload.h"

struct manta__light;
struct manta__link;
struct manta__msg;
struct manta__peer;

struct manta_run {
  manta_trainer *trainer; /* NULL: the run has parted from it, and is over */
  /* what the user's thread looks at when it waits, of many runs perhaps: close together */
  struct manta__rowset *queue; /* aligned, not taken yet */
  struct manta__text *texts;   /* to be shown */
  bool over;
  bool paused;                 /* the next attempt is to be formed by that thread, after `renew` */
  bool moves;                  /* rows that change are shown */
  struct manta__rowset *batch; /* taken by that thread, whose own it is; as `turn` */
  uint64_t turn;               /* when it was looked after last, among others */

  uint64_t id;
  char *dir;
  int rundir, logs, job_fd;
  struct manta__origin initial; /* the checkpoint that the user named, or nothing */
  struct manta__tty tty;
  struct manta__upload upload;
  bool exec;                    /* an execute call: no directory, no rows */
  bool single;                  /* … of rank 0 alone */
  bool light, lockstep;         /* train/light.h; … in lockstep */
  bool dealt;                   /* … nobody waits for an answer to its rows any more */
  struct manta__peer *departed; /* … workers that are gone, with rows that were not answered */
  bool apart, afresh;           /* its function is called in forks; no checkpoint on disk counts */
  bool resumed, replayed;       /* adopted; finished already, only its results are given */
  manta__log_writer *log;
  uint64_t log_seq;
  struct manta__membership membership;
  struct manta__align align;
  struct manta__exchange exchange;
  bool strict_reports, listening;
  const void *payload; /* the caller's, until the job is made */
  size_t payload_bytes;
  int keep_last, keep_best;
  bool score_min, score_optional;
  char *score;
  manta_value config;
  const manta_callbacks **callbacks;
  manta_callbacks *own; /* copies of those given to this run */
  size_t callback_count;
  manta_value *result;      /* by rank of the current attempt */
  struct manta__bulk *bulk; /* … those that are large, or NULL */
  struct manta__storing storing;
  manta_value sinks; /* a list, as in sinks.json */
  struct manta__sink_child sink;
  bool draining;      /* all but the sinks is done */
  bool taken;         /* … were given to the user */
  int64_t held_ns;    /* since when rows wait for a rank that lags behind; 0: none do */
  bool gaps_are_fine; /* it was waited for in vain */
  bool told_noroom, finishing, finished_told;
  int probing, room; /* questions for more room that are on their way, and their answers so far */
  int settling;      /* agents that have not said that all is written */
  int64_t probe_ns;  /* when to ask next */
  manta_status (*renew)(void *ctx, int attempt, manta_error *err);
  void *renew_ctx;
  bool noticed; /* all hosts know that the run was asked to stop */
  bool rewind;  /* the next attempt is not the first */
  int64_t base; /* iteration the current attempt began after */
  int64_t initial_iteration;
  char last_root
      [MANTA_ERROR_MESSAGE_MAX]; /* what ended the last attempt, for the next one's start */
  manta_error error;
  struct manta__timeline { /* of the start, in ns from began; 0: not reached */
    int64_t began, formed, first_row;
  } timeline;
  manta_value results; /* list, when over */
  struct manta__rowset *queue_last;
  size_t queued;
  struct manta__text *texts_last;
  size_t text_bytes;
  bool displayed; /* all is shown on a display of the caller's */
  struct manta__progress progress;
  /* the user thread's own */
  struct manta__screen screen;
  manta_value *values;
  int value_count;
};

/* --- run.c: with the lock held --- */

void manta__run_on_msg(manta_trainer *t, struct manta__link *n, struct manta__msg *m);
/* final: there will not be another one. */
void manta__run_link_lost(manta_trainer *t, struct manta__link *n, const manta_error *why,
                          bool final);
/* Does what is due; returns when it must be called again. */
int64_t manta__run_step(manta_trainer *t, int64_t now);
/* Tells the agent on this host which workers there are elsewhere; `none` any more. */
void manta__run_tell_door(manta_trainer *t, bool none);
/* Sends to the agents of all hosts that are there. */
void manta__run_tell_all(manta_trainer *t, const struct manta__msg *m, const manta_value *v);

/* --- ending.c: with the lock held --- */

/* The group is done: result or error, then the last checkpoint, then r->over. */
void manta__run_finish(manta_run *r);
/* Does what is due; true: there is more, at once. */
bool manta__ending_step(manta_run *r);

/* --- ranks.c --- */

/* Makes room for so many ranks. Before others know of the run, or with the lock held. */
manta_status manta__ranks_reserve(manta_run *r, int count, manta_error *err);
/* The same for t->wids. With the lock held. */
manta_status manta__ranks_reserve_wids(manta_trainer *t, int count, manta_error *err);
/* The run is to have so many workers from its next attempt on. With the lock held. */
manta_status manta__ranks_resize(manta_run *r, int want, manta_error *err);

/* --- the user's thread, without the lock --- */

/* job.c: writes what the workers are told into r->job_fd. */
manta_status manta__job_make(manta_run *r, manta_train_fn fn, manta_error *err);
/* run_api.c: ends the run, tells its callbacks, and leaves to the caller only its end and its
 * results. */
void manta__run_part(manta_run *r, const char *why);
/* rundir.c: makes the run's directory, or adopts that of the run that is resumed, by `resume` or by
 * MANTA_RESUME; *attempt: the first one to make. A finished run is only read again: r->over then.
 */
manta_status manta__run_directory(manta_run *r, manta_train_fn fn, const char *resume,
                                  uint32_t *attempt, manta_error *err);
/* The same for a light run. */
manta_status manta__run_light_directory(manta_run *r, const struct manta__light *l,
                                        manta_error *err);

#endif
