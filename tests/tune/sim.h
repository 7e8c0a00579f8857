/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/tune/sim.h - a runner of simulated trials: no processes, no time, and faults at random.
 *
 * A trial counts; its value follows from its config and its count. At every step one of those that
 * run, chosen at random, reports, saves, fails or ends. What a runner may not be asked is asserted.
 */
#ifndef MANTA_TEST_SIM_H
#define MANTA_TEST_SIM_H

#include "base/rng.h"
#include "test.h"
#include "tune/runner.h"

#define SIM_SEATS 8

struct sim_seat {
  bool taken, waits, stopping, pausing;
  uint64_t trial;
  int64_t at, began, saved;
  double x;
};

struct sim {
  const struct manta__runner_ops *ops;
  struct manta__rng rng;
  int seats;
  int64_t length;       /* reports of a trial */
  double fail, forgets; /* probabilities: that it dies, and that it does not save */
  struct sim_seat seat[SIM_SEATS];
  int64_t disk[4096]; /* by trial: what it has saved when it was paused or had failed */
  int64_t rows, starts, captures;
  manta_value row, result;
  manta_pair pairs[2];
};

static inline struct sim *sim_of(struct manta__runner *r)
{
  return (struct sim *)(void *)r;
}

static inline struct sim_seat *sim_seat_of(struct sim *s, uint64_t trial)
{
  for (int i = 0; i < s->seats; i++)
    if (s->seat[i].taken && s->seat[i].trial == trial)
      return &s->seat[i];
  return NULL;
}

static inline int sim_room(const struct manta__runner *r)
{
  return ((const struct sim *)(const void *)r)->seats;
}

static inline manta_status sim_start(struct manta__runner *r, const struct manta__launch *l,
                                     manta_error *err)
{
  struct sim *s = sim_of(r);
  assert_null(sim_seat_of(s, l->trial)); // nobody runs twice at once
  for (int i = 0; i < s->seats; i++) {
    if (s->seat[i].taken)
      continue;
    int64_t at = l->from ? l->from->iteration : l->fresh ? 0 : s->disk[l->trial];
    s->seat[i] = (struct sim_seat){.taken = true,
                                   .trial = l->trial,
                                   .at = at,
                                   .began = at,
                                   .saved = l->from ? 0 : at, // what a copy has is the other's
                                   .x = manta_value_as_real(manta_value_get(l->config, "x"), 0)};
    s->starts++;
    return MANTA_OK;
  }
  fail_msg("more trials than seats");
  return MANTA_ENOROOM;
}

static inline int sim_end(struct sim *s, struct sim_seat *x, manta_status how,
                          struct manta__happening *out)
{
  out->kind = MANTA__HAPPENED_END;
  out->result = &s->result;
  if (how < 0)
    manta_error_set(&out->error, how, "it ended so");
  s->disk[x->trial] = x->saved;
  x->taken = false;
  return 1;
}

static inline int sim_next(struct manta__runner *r, double timeout_s, struct manta__happening *out,
                           manta_error *err)
{
  struct sim *s = sim_of(r);
  int ready[SIM_SEATS], n = 0;
  *out = (struct manta__happening){.error = MANTA_ERROR_INIT};
  for (int i = 0; i < s->seats; i++)
    if (s->seat[i].taken && (!s->seat[i].waits || s->seat[i].stopping))
      ready[n++] = i;
  assert_true(n > 0); // all wait for an answer, and none comes: a deadlock
  struct sim_seat *x = &s->seat[ready[manta__rng_below(&s->rng, (uint64_t)n)]];
  out->trial = x->trial;
  if (x->at > x->began && manta__rng_unit(&s->rng) >= s->forgets)
    x->saved = x->at;
  out->saved = x->saved;
  if (manta__rng_unit(&s->rng) < s->fail)
    return sim_end(s, x, MANTA_EUSER, out);
  if (x->stopping || x->pausing)
    return sim_end(s, x, x->stopping ? MANTA_ECANCELED : MANTA_EPREEMPTED, out);
  if (x->at >= s->length)
    return sim_end(s, x, MANTA_OK, out);
  x->at++;
  x->waits = true;
  s->rows++;
  s->pairs[0] = MANTA_KV_REAL("loss", x->x / (double)x->at);
  s->pairs[1] = MANTA_KV_INT("_training_iteration", x->at);
  s->row = (manta_value){.type = MANTA_MAP, .count = 2, .u.pairs = s->pairs};
  out->kind = MANTA__HAPPENED_ROW;
  out->row = &s->row;
  out->iteration = x->at;
  return 1;
}

static inline void sim_go_on(struct manta__runner *r, uint64_t trial)
{
  struct sim_seat *x = sim_seat_of(sim_of(r), trial);
  if (x)
    x->waits = false;
}

static inline void sim_stop(struct manta__runner *r, uint64_t trial)
{
  struct sim_seat *x = sim_seat_of(sim_of(r), trial);
  assert_non_null(x);
  x->stopping = true;
}

static inline void sim_pause(struct manta__runner *r, uint64_t trial)
{
  struct sim_seat *x = sim_seat_of(sim_of(r), trial);
  assert_non_null(x);
  x->pausing = true;
  x->waits = false;
}

static inline manta_status sim_capture(struct manta__runner *r, uint64_t trial, int into,
                                       struct manta__capture *out, manta_error *err)
{
  struct sim *s = sim_of(r);
  struct sim_seat *x = sim_seat_of(s, trial);
  *out = (struct manta__capture){.fd = -1};
  if (!x)
    return MANTA_OK;
  assert_true(x->saved > 0); // nobody copies one that has saved nothing
  *out = (struct manta__capture){.fd = dup(0), .iteration = x->saved};
  s->captures++;
  return MANTA_OK;
}

static inline void sim_close(struct manta__runner *r)
{
}

static const struct manta__runner_ops sim_ops = {.room = sim_room,
                                                 .start = sim_start,
                                                 .next = sim_next,
                                                 .go_on = sim_go_on,
                                                 .stop = sim_stop,
                                                 .pause = sim_pause,
                                                 .capture = sim_capture,
                                                 .close = sim_close};

#endif
