/* SPDX-License-Identifier: Apache-2.0 */
#include "train/gate.h"

#include <time.h>

#include "base/clock.h"

#define LOOK_NS 20000000 /* how often a waiting call looks at the abort word */
#define NAP_NS  200000

static manta_status closed(enum manta__gate_state state, const char *what, manta_error *err)
{
  if (state == MANTA__GATE_BETWEEN)
    return manta_error_set(err, MANTA_EPEERLOST,
                           "a peer was lost; this rank has yet to begin the next attempt");
  return manta_error_set(err, MANTA_ESTATE, "%s outside of a train function, or after it returned",
                         what);
}

// The job may be looked at while the gate is open.
static manta_status look(const struct manta__gate *g, const char *what, manta_error *err)
{
  enum manta__gate_state state = atomic_load(&g->state);
  return state == MANTA__GATE_OPEN ? manta__ctl_check(g->job->ctl, err) : closed(state, what, err);
}

manta_status manta__gate_wait(struct manta__gate *g, struct manta__mutex *m, const char *what,
                              manta_error *err)
{
  if (g->worker && g->worker->dead)
    return manta_error_set(err, MANTA_ESTATE,
                           "%s in a child process of a worker: only the worker itself can call it\n"
                           "hint: send the values to the worker, and call it there",
                           what);
  manta_status st;
  atomic_fetch_add(&g->waiting, 1);
  while ((st = look(g, what, err)) == MANTA_OK && !manta__mutex_wait(m, manta__now() + LOOK_NS))
    ;
  atomic_fetch_sub(&g->waiting, 1);
  return st;
}

manta_status manta__gate_enter_also(struct manta__gate *g, struct manta__mutex *m, manta_error *err)
{
  manta_status st = MANTA_OK;
  if (manta__mutex_try(m))
    return MANTA_OK;
  while ((st = manta__ctl_check(g->job->ctl, err)) == MANTA_OK &&
         !manta__mutex_wait(m, manta__now() + LOOK_NS))
    ;
  return st;
}

void manta__gate_open(struct manta__gate *g, const struct manta__job *job)
{
  if (!g->worker)
    g->worker = job->worker;
  g->job = job;
  atomic_store(&g->state, MANTA__GATE_OPEN);
  manta__mutex_leave(&g->row);
  manta__mutex_leave(&g->save);
}

void manta__gate_shut(struct manta__gate *g, enum manta__gate_state how)
{
  if (atomic_exchange(&g->state, how) != MANTA__GATE_OPEN)
    return;
  manta__mutex_wait(&g->save, MANTA__NEVER); // ended by an abort, at the latest: see (3)
  manta__mutex_wait(&g->row, MANTA__NEVER);
  while (atomic_load(&g->waiting) > 0)
    nanosleep(&(struct timespec){0, NAP_NS}, NULL);
}
