/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/journal.h - the log of an experiment, in EXPERIMENT/experiment: run.log's format
 * (event/log.h).
 *
 * A record is EXPERIMENT (a driver begins or goes on), TRIAL (something happened to a trial; the
 * payload's "what" says it), ROW (what it reported; ident.rank is its number) or FINISH.
 */
#ifndef MANTA_TUNE_JOURNAL_H
#define MANTA_TUNE_JOURNAL_H

#include <manta/tune.h>

#include "event/log.h"

/* What can happen to a trial; the names are in the log. */
enum manta__trial_what {
  MANTA__T_NEW,       /* config; message: the name of its directory, if it has its own */
  MANTA__T_BEGAN,     /* attempt */
  MANTA__T_ROW,       /* row, iteration; it is a record of its own kind */
  MANTA__T_SAVED,     /* iteration */
  MANTA__T_PAUSED,    /* it has ended for now */
  MANTA__T_POPPED,    /* verdict, from: what the scheduler decided about a paused one */
  MANTA__T_COPIED,    /* from, config, iteration */
  MANTA__T_FAILED,    /* message; it is tried again */
  MANTA__T_ENDED,     /* state, message, result */
  MANTA__T_CLOSED,    /* of no trial: no new one comes */
  MANTA__T_REVIVED,   /* a failed one is tried again, since the user said so */
  MANTA__T_RESOURCES, /* resources: it is to pause, and to go on with these */
  MANTA__T_ORIGIN,    /* iteration: where a copy begins, if not at what it copied */
  MANTA__T_YIELDED    /* it is to pause, and to go on when others have had their turn */
};

struct manta__event_rec {
  enum manta__trial_what what;
  uint64_t trial;
  uint32_t attempt;
  int64_t iteration, wall_ns;
  uint64_t from;
  int verdict, state;
  const manta_value *value; /* config, row or result; or NULL */
  const char *message;      /* or NULL */
};

struct manta__journal {
  manta__log_writer *writer; /* NULL: it is only read */
  int dirfd;                 /* of the log; -1: none */
  uint64_t id, seq;
};

/* In directory `dirfd`, which is the experiment's. create: there must be none yet. */
manta_status manta__journal_open(struct manta__journal *j, int dirfd, bool create, bool write,
                                 manta_error *err);
/* Writes no more, so that others may; it can still be read. */
void manta__journal_stop(struct manta__journal *j);
void manta__journal_close(struct manta__journal *j);
/* Of an experiment that did not come to begin: removes what manta__journal_open has made. */
void manta__journal_discard(struct manta__journal *j, int dirfd);
/* The first record of a driver, and the last if all is over. */
manta_status manta__journal_begin(struct manta__journal *j, const manta_value *info,
                                  manta_error *err);
manta_status manta__journal_finish(struct manta__journal *j, const char *message, manta_error *err);
manta_status manta__journal_add(struct manta__journal *j, const struct manta__event_rec *e,
                                manta_error *err);
manta_status manta__journal_flush(struct manta__journal *j, manta_error *err);

/* Reads all that is there. Each may be NULL; one that fails ends it. */
struct manta__journal_reader {
  void *ctx;
  manta_status (*begin)(void *ctx, const manta_value *info, int64_t wall_ns, manta_error *err);
  manta_status (*event)(void *ctx, const struct manta__event_rec *e, manta_error *err);
  manta_status (*finish)(void *ctx, int64_t wall_ns, manta_error *err);
};
manta_status manta__journal_read(struct manta__journal *j, const struct manta__journal_reader *r,
                                 manta_error *err);

#endif
