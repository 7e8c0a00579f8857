/* SPDX-License-Identifier: Apache-2.0
 *
 * train/light.h - a run whose record somebody else keeps: a trial of an experiment.
 *
 * It has no log, and its directory is one that the caller made: checkpoints and output go there.
 * Everything else is a run like others: manta_run_next and manta_run_next_any give its rows and its
 * end, and manta_run_close frees it.
 */
#ifndef MANTA_TRAIN_LIGHT_H
#define MANTA_TRAIN_LIGHT_H

#include <manta/trainer.h>

struct manta__peer;

struct manta__light {
  const char *dir;  /* is there */
  bool fresh;       /* nothing was ever saved there: nobody looks */
  bool adopted;     /* a driver that is gone ran it: its agent may still write, and is waited for */
  uint32_t attempt; /* the first one to make */
  bool apart;       /* the function is called in a fork of its worker (group/apart.h) */
  bool lockstep;    /* rank 0's report returns when its row was answered */
  bool score_optional; /* rank 0 may save without having reported the score */
  int from;            /* begin from this slot in memory, whatever is on disk; -1: none. Borrowed */
};

manta_status manta__light_start(manta_run **out, manta_trainer *t, manta_train_fn fn,
                                const manta_run_config *rc, const struct manta__light *l,
                                manta_error *err);
/* The rows that were given out are dealt with: what was saved after them may be made durable, and
 * in lockstep the reports return. For each of them, and soon: a full ring and the end of the run
 * wait for it. pause: in lockstep the report itself says that the trial is asked to stop. */
void manta__light_answer(manta_run *r, bool pause);
/* The trial is to end with the rows that were given out: none of them is answered, but what was
 * saved before them may be made durable when its workers have ended. */
void manta__light_dealt(manta_run *r);
/* Whether a further row was read: an answer now would let go of nothing. */
bool manta__light_more(manta_run *r);
/* Iteration of its newest snapshot in memory; 0: there is none. */
int64_t manta__light_saved(manta_run *r);
/* A copy of that snapshot, which nobody writes any more, for `from` of others; -1 in *fd: there is
 * none. A directory of the user's that goes with it is in the folder MANTA__TAKEN of `into`, as
 * links; it is not if it cannot be linked to. */
#define MANTA__TAKEN ".taken"
manta_status manta__light_capture(manta_run *r, int into, int *fd, int64_t *iteration,
                                  manta_error *err);

/* --- for the run, with the driver's lock held --- */

/* A worker is gone: its rows stay until they are answered, or the writer would wait for that. */
void manta__light_part(manta_run *r, struct manta__peer *p);
/* No worker has anything to say any more. */
void manta__light_finish(manta_run *r);
void manta__light_free(manta_run *r);

#endif
