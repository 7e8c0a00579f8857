/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/sink.h - what a kind of sink is: a table that takes the rows of a run somewhere else.
 *
 *   run.log ──► feed (follows, gathers, picks) ──► sink ──► files, a server, another program
 *
 * Sinks live in a child process of the driver (process.h), one thread each. run.log is the queue of
 * every one of them: each has a follower of its own, so none waits for another, nothing is missing,
 * and what a sink has not taken costs no memory.
 *
 * (1) All calls for one sink come from one thread, in this order: open, then rows, rewound and
 *     event as the log has them, flush when there is nothing more to read, close.
 * (2) A flush that succeeds is a promise: what was given before it is out (handed to the kernel,
 *     acknowledged by the server). Where it then is, `mark` says. Place in the log and mark
 *     together are a bookmark (state.h), which is kept in the run's directory.
 * (3) A call that fails (disk full, server gone) loses nothing: `back` takes the sink to its last
 *     bookmark, and later the same rows come again. The same happens when the process was killed
 *     and another one opens the sink. So what is behind a mark must be forgotten or, where that
 *     cannot be, must do no harm when it comes twice. MANTA_EUNSUPPORTED ends the
 *     sink for this process: it cannot work here.
 * (4) A rewind (a revival: rows after iteration `to` are void) goes one of two ways. A sink that
 *     `cuts` is taken back to a bookmark at or before `to`, and gets what counts since then once
 *     more; it never hears of it. Any other is told by `rewound`, and rows after `to` come again.
 * (5) A call may wait for the outside, but not for ever: at most some seconds. When *env->quit is
 *     set it returns as soon as it can. The run does not wait for it in any case.
 */
#ifndef MANTA_SINK_SINK_H
#define MANTA_SINK_SINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <manta/value.h>

#include "event/log.h"

/* One report. */
struct manta__sink_row {
  int rank;        /* -1: an aggregate of several */
  int64_t wall_ns; /* when it was made */
  manta_value row; /* a map; what only Python could read is its text by now */
};

/* Those of one iteration that this sink is to have, in the order of ranks. Borrowed. */
struct manta__sink_rows {
  int64_t iteration, wall_ns;
  bool complete; /* every rank that was to be there is */
  bool several;  /* more than one row per iteration is to be expected, of several ranks */
  int count;
  const struct manta__sink_row *row;
};

/* A place in the sink's output, whatever the sink takes for it. {0}: the beginning. */
struct manta__sink_mark {
  int64_t word[4];
};

/* What a sink is opened with; borrowed until it is closed. */
struct manta__sink_env {
  const char *run_id;   /* 16 hexadecimal digits; the same after a revival or a resumption */
  const char *run_name; /* of the run's directory */
  const char *run_dir;
  int rundir;                 /* descriptor of it */
  int outdir;                 /* option `logdir`, or rundir */
  const manta_value *config;  /* of the run: a map */
  const manta_value *options; /* a map */
  const manta_value *memo;    /* what `memo` gave last, also in an earlier process; else nil */
  const atomic_bool *quit;
  const struct manta__sink_kind *each; /* of an experiment: the kind of each trial (trials.h) */
  /* Shows a warning where the run shows its own. Any thread. */
  void (*warn)(const struct manta__sink_env *env, const char *text);
};

/* The first argument of all but check and open is what open gave. */
struct manta__sink_kind {
  const char *name;
  const char *help;
  const char *options; /* names besides logdir, workers and aggregate, separated by blanks */
  const char *module;  /* the rest of this table is in a module of this name; NULL: it is here */
  const char *needs;   /* what may be missing if that cannot be loaded */
  const char *file;    /* default of the option `filename`; NULL: it writes no file of a name */
  bool cuts;           /* (4) */
  double linger_s;     /* how long the end of the run waits for it; 0: until all is written */
  double (*linger)(const manta_value *options); /* instead of it, if it depends on them; or NULL */
  const char *later; /* a command that sends what was not sent, "manta mlflow push"; may be NULL */
  /* In the driver, before the run begins: whether the options make sense. May be NULL. */
  manta_status (*check)(const manta_value *options, manta_error *err);
  manta_status (*open)(void **out, const struct manta__sink_env *env, manta_error *err);
  manta_status (*rows)(void *s, const struct manta__sink_rows *rows, manta_error *err);
  /* Instead of rows, rewound and event: every record as the log has it. Its memo changes with each
   * flush. May be NULL. */
  manta_status (*record)(void *s, const struct manta__record *head, const uint8_t *payload,
                         manta_error *err);
  /* NULL: rewinds do not matter to it, or it cuts. */
  manta_status (*rewound)(void *s, int64_t to, int64_t wall_ns, manta_error *err);
  /* Every other record of the log: checkpoints, losses, notes, the end. payload: a map. May be
   * NULL. */
  manta_status (*event)(void *s, const struct manta__record *head, const manta_value *payload,
                        manta_error *err);
  manta_status (*flush)(void *s, manta_error *err);
  void (*mark)(const void *s, struct manta__sink_mark *out);
  /* MANTA_ECORRUPT: what is there is not what the mark is of; it is then taken back to {0}. */
  manta_status (*back)(void *s, const struct manta__sink_mark *m, manta_error *err);
  /* What an opened sink is to know in another process, besides its mark: the id of a run on a
   * server, columns. *changed: it must be kept before anything else happens, and every older
   * bookmark but the beginning is void if it is `void_marks`. May be NULL. */
  const manta_value *(*memo)(void *s, bool *changed, bool *void_marks);
  void (*close)(void *s);
};

/* --- kinds.c: the kinds there are --- */

/* In the order in which they are listed; a row without a name ends it. A row of a module has only
 * what is needed without it. */
extern const struct manta__sink_kind *const manta__sink_kinds[];

/* What a module of a kind shows: manta_sink_entry, of this type. */
#define MANTA__SINK_ENTRY "manta_sink_entry"

/* The row of this name. MANTA_EINVAL lists those there are. */
manta_status manta__sink_find(const char *name, const struct manta__sink_kind **out,
                              manta_error *err);
/* The same, with its module loaded. */
manta_status manta__sink_load(const char *name, const struct manta__sink_kind **out,
                              manta_error *err);
/* Whether the options fit the kind: names that it knows, workers and aggregate as they may be. */
manta_status manta__sink_check(const char *name, const manta_value *options, manta_error *err);

#endif
