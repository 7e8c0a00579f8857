/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/runner.h - has trials run: what the experiment asks of whoever does it.
 *
 * The one that counts (tune/seats.c) has a seat for each trial that may run at once: a trainer with
 * the workers of a trial, which stay from trial to trial. A trial is a light run on it
 * (train/light.h): its function is called in a fork of the waiting worker, so that a crash, a
 * kill for memory or a hang ends that trial and nothing else; with `reuse` in the worker itself.
 * Distributed trials are the same with more workers, and fresh processes from the zygote. Tests and
 * benches have a runner of simulated trials.
 *
 * (1) A trial that was started gives events until its END, which is the last.
 * (2) A ROW waits for go_on, stop or pause: the trial's report returns only then, if the experiment
 *     asked for that (lockstep). So a decision about a row meets the trial where it made it.
 * (3) stop and pause do not wait: an END follows. After pause it is MANTA_EPREEMPTED, and the
 *     trial has saved if it ever saves; after stop it is MANTA_ECANCELED.
 */
#ifndef MANTA_TUNE_RUNNER_H
#define MANTA_TUNE_RUNNER_H

#include <manta/tune.h>

struct manta__runner; /* begins with a pointer to its ops */

/* A checkpoint in memory that outlives its trial: what others begin from. */
struct manta__capture {
  int fd; /* of a slot that nobody writes any more; -1: none */
  int64_t iteration;
};

struct manta__launch {
  uint64_t trial;
  uint32_t attempt;
  const manta_value *config;
  const char *dir;                   /* of the trial; is there */
  bool fresh;                        /* it was never begun */
  bool adopted;                      /* … by this driver */
  const struct manta__capture *from; /* begin from this … */
  const char *origin;           /* … or a checkpoint's directory; NULL: its own newest, if any */
  const manta_value *resources; /* other ones than the experiment's, or NULL */
};

enum manta__happening_kind { MANTA__HAPPENED_ROW, MANTA__HAPPENED_END, MANTA__HAPPENED_NOTE };

struct manta__happening {
  enum manta__happening_kind kind;
  uint64_t trial;
  const manta_value *row;    /* of rank 0; borrowed until the next call */
  int64_t iteration;         /* of the row */
  bool more;                 /* … and the next one is here: no answer is due before it */
  int64_t saved;             /* iteration of its newest checkpoint in memory; 0: none */
  const manta_value *result; /* END: what rank 0 returned, or NULL */
  bool overdue;              /* END: it was ended because it ran too long */
  manta_error error;         /* END: status 0 if it ended well; NOTE: the text */
};

struct manta__runner_ops {
  /* Trials that may run at once now. */
  int (*room)(const struct manta__runner *r);
  manta_status (*start)(struct manta__runner *r, const struct manta__launch *l, manta_error *err);
  /* 1: *out; 0: no trial runs; negative: MANTA_ETIMEDOUT, or an error of the runner itself. */
  int (*next)(struct manta__runner *r, double timeout_s, struct manta__happening *out,
              manta_error *err);
  void (*go_on)(struct manta__runner *r, uint64_t trial);
  void (*stop)(struct manta__runner *r, uint64_t trial);
  void (*pause)(struct manta__runner *r, uint64_t trial);
  /* The newest checkpoint that a trial has in memory; out->fd -1: there is none. Close it.
   * into: the directory of the trial that it is for (train/light.h). */
  manta_status (*capture)(struct manta__runner *r, uint64_t trial, int into,
                          struct manta__capture *out, manta_error *err);
  void (*close)(struct manta__runner *r);
};

/* What all trials of an experiment have in common. Borrowed until the runner is closed. */
struct manta__seats_config {
  manta_train_fn fn;
  const manta_trainer_config *trainer; /* or NULL */
  const void *payload;
  size_t payload_bytes;
  const char *name, *logdir;
  int concurrency; /* 0: as many as there is room for */
  bool reuse, lockstep;
  int keep_last, keep_best; /* checkpoints of a trial: the newest, and those with the best … */
  const char *score;        /* … of this metric; or NULL */
  bool score_min;
  bool score_optional; /* a trial may save without having reported it */
  double trial_s;      /* the longest that a trial may run; 0: no limit */
  double wait_s;       /* for room: the agent of a driver that was killed ends soon */
  void (*output_fn)(void *ctx, uint64_t trial, int rank, const char *text, size_t len);
  void *output_ctx;
};

/* MANTA_ENOROOM: no host has what a trial needs. */
manta_status manta__seats_open(struct manta__runner **out, const struct manta__seats_config *c,
                               manta_error *err);

static inline const struct manta__runner_ops *manta__runner_ops(const struct manta__runner *r)
{
  return *(const struct manta__runner_ops *const *)(const void *)r;
}

#endif
