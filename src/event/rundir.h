/* SPDX-License-Identifier: Apache-2.0
 *
 * event/rundir.h - one run, one directory: making, finding and listing them.
 *
 *   LOGDIR/NAME_0007_2026-11-15_04-46-27/   run.log  checkpoints/  logs/rank-N.log[.1]
 */
#ifndef MANTA_EVENT_RUNDIR_H
#define MANTA_EVENT_RUNDIR_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/value.h>

/* Makes the next numbered directory for `name` (characters outside [A-Za-z0-9._-] become '-') under
 * logdir. Race-free between processes. Gives its descriptor and its absolute path (manta_free). */
manta_status manta__rundir_create(const char *logdir, const char *name, int *fd_out,
                                  char **path_out, manta_error *err);
/* The default logdir: MANTA_RESULTS, else ~/manta_results. manta_free it. */
manta_status manta__rundir_default(char **out, manta_error *err);

/* Finds the run a user means: a path, or the name (or a unique end or beginning of the name) of a
 * directory in the default logdir, or NULL or "latest" for the newest. Gives descriptor and
 * absolute path. MANTA_ENOENT says where it looked; an ambiguous name lists the candidates. */
manta_status manta__rundir_find(const char *what, int *fd_out, char **path_out, manta_error *err);

/* What a run's log says, put together: rewinds applied, duplicate records dropped. {0} is empty. */
struct manta__run_summary {
  char *path; /* absolute */
  uint64_t id;
  manta_value start; /* payload of EV_RUN */
  enum manta__run_state {
    MANTA__RUN_EMPTY, /* no record */
    MANTA__RUN_GOING, /* no finish, or an attempt began after it */
    MANTA__RUN_DONE,
    MANTA__RUN_FAILED
  } state;
  manta_value finish; /* payload of EV_FINISH, or nil */
  int attempts, world, lost;
  int64_t iteration;        /* newest row of rank 0 that is not void */
  int64_t rows;             /* rows that count, all ranks */
  manta_value last;         /* that row, or nil */
  manta_value ckpt;         /* payload of the newest EV_CKPT, or nil */
  int64_t begin_ns, end_ns; /* wall clock of the first and the last record */
  int64_t torn;             /* bytes of a torn tail */
};
manta_status manta__run_summary_read(struct manta__run_summary *out, int dirfd, const char *path,
                                     manta_error *err);
void manta__run_summary_fini(struct manta__run_summary *s);

/* Runs under logdir, newest first: an array of absolute paths to free one by one and as a whole
 * (manta_free). */
manta_status manta__rundir_list(const char *logdir, char ***out, size_t *count, manta_error *err);

/* Directory under logdir of run number `ordinal` (from 1) of the program invocation `session`, or
 * MANTA_ENOENT: what `manta resume` hands out to the k-th run. */
manta_status manta__rundir_of_session(const char *logdir, uint64_t session, int ordinal,
                                      char **path_out, manta_error *err);

/* Whether it can be the name of a trial's directory in that of an experiment: no path, nothing
 * hidden, and not the log's own. */
#define MANTA__TRIAL_DIR_MAX 201
bool manta__rundir_fits_trial(const char *name);

#endif
