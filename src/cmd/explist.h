/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/explist.h - the experiments of a directory of results, and how one stands.
 */
#ifndef MANTA_CMD_EXPLIST_H
#define MANTA_CMD_EXPLIST_H

#include <limits.h>
#include <sys/types.h>

#include <manta/tune.h>

/* Newest first. {0} is none. */
struct manta__explist {
  struct manta__explist_item {
    char name[NAME_MAX + 1];
    int64_t when; /* its log was written last, wall clock */
  } * item;
  size_t count;
};

/* Those in the directory `fd`, links left out; -1: there is none. */
manta_status manta__explist_read(struct manta__explist *out, int fd, manta_error *err);
void manta__explist_fini(struct manta__explist *l);

/* The process that runs it, or 0. */
pid_t manta__exp_holder(const manta_tune *t);
/* "running", "finished" or "interrupted". */
const char *manta__exp_state(const manta_tune *t);
/* Trials that have ended. */
uint64_t manta__exp_done(const manta_tune *t);
/* Trials that there are to be, or are, if nobody knows how many there will be. */
uint64_t manta__exp_total(const manta_tune *t);

#endif
