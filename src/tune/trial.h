/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/trial.h - trials: their states, and what is kept of each while there are a hundred thousand.
 *
 *            begin            row, saved
 *   PENDING ───────► RUNNING ◄──────────┐
 *      ▲               │ │ └────────────┘
 *      │ failed, again │ ├─ pause ──► PAUSED ── go on ──► PENDING
 *      └───────────────┤ ├─ end ────► FINISHED
 *                      │ ├─ stop ───► STOPPED   (also from PENDING and PAUSED)
 *                      │ └─ failed ─► FAILED
 *
 * (1) A state changes by manta__trial_move alone, which refuses what the picture does not show.
 * (2) Config and rows are kept packed: a trial costs its bytes and this struct, no more.
 * (3) An ended trial never runs again, but for FAILED when the user asks for that (revive).
 */
#ifndef MANTA_TUNE_TRIAL_H
#define MANTA_TUNE_TRIAL_H

#include <manta/tune.h>

/* A packed value; NULL: nil. */
struct manta__packed {
  uint8_t *bytes;
  uint32_t len;
};
manta_status manta__packed_set(struct manta__packed *p, const manta_value *v, manta_error *err);
manta_status manta__packed_get(const struct manta__packed *p, manta_value *out, manta_error *err);
void manta__packed_fini(struct manta__packed *p);

struct manta__trial {
  uint8_t state;  /* manta_trial_state */
  uint8_t asked;  /* manta_verdict about the newest row that is not carried out yet */
  uint8_t popped; /* … and one that came meanwhile, about the pause that is asked for; or GO_ON */
  bool again;     /* there was one */
  bool saved;     /* it has a checkpoint */
  bool ran;       /* it ran under a driver that is gone */
  bool outside;   /* searcher and scheduler have done with it, and it runs once more */
  int failures;
  uint32_t attempt;  /* times that it was begun */
  uint32_t turns;    /* … that it has let others go first, or was made a copy */
  int64_t iteration; /* of its newest row; rows up to there are not counted again */
  int64_t saved_at;  /* iteration of its newest checkpoint */
  uint32_t copied;   /* … when it became a copy: what it saved before is of no use; 0: none */
  int64_t base; /* … iteration of what it copied; none of its rows is there while it is its own */
  uint64_t from;              /* whom it copies, or copied last */
  double time, value, top;    /* newest time and metric, and the best metric; NaN: none */
  double trained_s;           /* from row to row, all attempts together: "time_total_s" */
  double *point;              /* of a config that is not the searcher's any more, or NULL */
  int64_t began_ns, ended_ns; /* wall clock; 0: not yet */
  struct manta__packed config, last, best, result;
  struct manta__packed resources; /* other ones than those of all; or nil */
  struct manta__packed wanted;    /* the config that a copy is to have; nil: one like the copied */
  char *message;                  /* of its newest failure, or NULL */
  char *dir;                      /* the name of its directory; NULL: the usual one */
};
#define MANTA__NO_TRIAL UINT64_MAX

bool manta__trial_ended(const struct manta__trial *t);
/* Of two values of a metric. NaN is never better; what is finite is better than what is not. */
bool manta__value_better(double value, double than, bool maximize);
/* MANTA_ESTATE: the picture above does not show it. */
manta_status manta__trial_move(struct manta__trial *t, manta_trial_state to, manta_error *err);

/* All of them, by number. {0} is empty. */
struct manta__trials {
  struct manta__trial *at;
  uint64_t count, cap;
  uint64_t in_state[MANTA_TRIAL_FAILED + 1];
};
/* Adds a pending one. */
manta_status manta__trials_add(struct manta__trials *all, const manta_value *config,
                               manta_error *err);
manta_status manta__trials_move(struct manta__trials *all, uint64_t number, manta_trial_state to,
                                manta_error *err);
void manta__trials_fini(struct manta__trials *all);

#endif
