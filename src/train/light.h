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

struct manta__light {
  const char *dir;  /* is there */
  bool fresh;       /* nothing was ever saved there: nobody looks */
  bool adopted;     /* a driver that is gone ran it: its agent may still write, and is waited for */
  uint32_t attempt; /* the first one to make */
  bool apart;       /* the function is called in a fork of its worker (group/apart.h) */
  bool lockstep;    /* rank 0's report returns when its row was answered */
  int from;         /* begin from this slot in memory, whatever is on disk; -1: none. Borrowed */
};

manta_status manta__light_start(manta_run **out, manta_trainer *t, manta_train_fn fn,
                                const manta_run_config *rc, const struct manta__light *l,
                                manta_error *err);
/* The rows that were given out are dealt with: what was saved after them may be made durable, and
 * in lockstep the reports return. For each of them, and soon: a full ring and the end of the run
 * wait for it. */
void manta__light_answer(manta_run *r);
/* Iteration of its newest snapshot in memory; 0: there is none. */
int64_t manta__light_saved(manta_run *r);
/* A copy of that snapshot, which nobody writes any more, for `from` of others; -1 in *fd: there is
 * none. */
manta_status manta__light_capture(manta_run *r, int *fd, int64_t *iteration, manta_error *err);

#endif
