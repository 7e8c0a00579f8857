/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/runref.h - the run that a user means, and how it stands.
 */
#ifndef MANTA_CMD_RUNREF_H
#define MANTA_CMD_RUNREF_H

#include <stdbool.h>
#include <sys/types.h>

#include <manta/value.h>

#include "event/rundir.h"

/* A run's directory, open. {0} with fd -1 is none. */
struct manta__runref {
  int fd;
  char *path;       /* absolute */
  const char *name; /* the last part of it */
};
#define MANTA__RUNREF_NONE ((struct manta__runref){.fd = -1})

/* As manta__rundir_find, and if that finds none, among the runs that are going on, wherever their
 * directories are. */
manta_status manta__runref_open(struct manta__runref *out, const char *what, manta_error *err);
void manta__runref_close(struct manta__runref *r);

/* The first record of its log (argv, cwd, session, …) and when it was written. */
manta_status manta__runref_start(const struct manta__runref *r, manta_value *out, int64_t *wall_ns,
                                 manta_error *err);

/* A run's log summed up, and whether somebody writes it. */
struct manta__standing {
  struct manta__run_summary sum;
  pid_t holder;     /* who writes it; 0: nobody; -1: one that cannot be told */
  bool ending;      /* the holder is no driver but saves what a lost one has left */
  const char *word; /* "running", "finished", "failed" or "interrupted" */
};
manta_status manta__standing_read(struct manta__standing *out, const struct manta__runref *r,
                                  manta_error *err);
/* The same, after the last writes of a lost driver's agent have ended. */
manta_status manta__standing_await(struct manta__standing *out, const struct manta__runref *r,
                                   manta_error *err);
void manta__standing_fini(struct manta__standing *s);

/* The words of an argv list on one line, cut to the buffer. */
const char *manta__text_argv(char *buf, size_t size, const manta_value *argv);

#endif
