/* SPDX-License-Identifier: Apache-2.0
 *
 * train/results.h - the return values of a run, by rank.
 *
 * Small ones come in a message and go into run.log. A worker hands one that is too large for that
 * over as memory. When the run has ended well the driver's thread writes it to results/rank-R.KIND
 * in the run's directory, a piece at a time between its other duties, and FINISH names the file: a
 * run that is resumed reads it there.
 * (1) A file appears, by rename, when it is whole; FINISH has its length and its hash.
 * (2) A disk that is full is a warning: the results reach the caller all the same.
 * (3) Values are unpacked on the user's thread; one that cannot be is named with its file.
 */
#ifndef MANTA_TRAIN_RESULTS_H
#define MANTA_TRAIN_RESULTS_H

#include <stdbool.h>
#include <stddef.h>

#include <manta/trainer.h>

struct manta__msg;
struct manta__done_msg;
struct manta__bulk; /* a large one */

struct manta__storing { /* large results on their way into files */
  bool busy;
  int rank, dir, fd; /* fd: of the file that is being written, or -1 */
  size_t at;
  void *hash; /* XXH3_state_t */
};

/* The result in a DONE; a large one is taken from the message. */
manta_status manta__results_give(manta_run *r, struct manta__msg *m,
                                 const struct manta__done_msg *done, manta_error *err);
void manta__results_forget(manta_run *r);
/* Room for the results of `count` ranks, of which there are r->membership.places so far. */
manta_status manta__results_reserve(manta_run *r, int count, manta_error *err);
/* Begins to write the large ones into files; false: there are none, or it cannot be. Each step
 * writes a piece; false after the last. */
bool manta__results_store(manta_run *r);
bool manta__results_step(manta_run *r);
void manta__results_stop(manta_run *r);
/* The files of FINISH, by rank; nil if there are none. */
manta_status manta__results_files(const manta_run *r, manta_value *out);
/* The large results of a run that had finished. */
manta_status manta__results_open(manta_run *r, const manta_value *finish, manta_error *err);
/* On the user's thread, after the end: r->results becomes whole. Again after a failure. */
manta_status manta__results_take(manta_run *r, manta_error *err);

#endif
