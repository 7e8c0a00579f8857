/* SPDX-License-Identifier: Apache-2.0
 *
 * train/gate.h - several threads of a worker in the calls of its session.
 *
 * (1) Whoever changes the ring, the sequence or the count of reports is in `row`; whoever changes
 *     the slots or the next save's files is in `save`. Who needs both takes `save` first.
 * (2) The job is touched by those who are in, and by those who wait and have found the gate open
 *     after they were counted: shutting waits for both. A shut gate has both mutexes taken.
 * (3) An abort ends every wait here, whatever the thread that is in waits for.
 * (4) A forked child stops before the gate: a mutex may be taken by a thread that it has not.
 * (5) Alone, a call pays for one mutex, and looks at nothing else.
 */
#ifndef MANTA_TRAIN_GATE_H
#define MANTA_TRAIN_GATE_H

#include "group/worker.h"
#include "sys/mutex.h"

enum manta__gate_state {
  MANTA__GATE_SHUT,    /* no function runs */
  MANTA__GATE_BETWEEN, /* the function takes part in the next attempt, but not yet */
  MANTA__GATE_OPEN
};

struct manta__gate {
  struct manta__mutex row, save;
  _Atomic int state;
  _Atomic int waiting;          /* threads */
  struct manta__worker *worker; /* NULL: there was no job yet */
  const struct manta__job *job; /* while it is open */
};
/* Shut. */
#define MANTA__GATE_INIT                                                                           \
  {                                                                                                \
    .row = {1}, .save = { 1 }                                                                      \
  }

/* Takes `m`, one of the gate's own, as if by manta__mutex_try, or waits for it. MANTA_ESTATE: no
 * function runs, or a forked child of the worker calls, which `what` names. MANTA_EPEERLOST,
 * MANTA_EABORTED: the attempt ends. Leave with manta__mutex_leave. */
manta_status manta__gate_wait(struct manta__gate *g, struct manta__mutex *m, const char *what,
                              manta_error *err);
static inline manta_status manta__gate_enter(struct manta__gate *g, struct manta__mutex *m,
                                             const char *what, manta_error *err)
{
  if (g->worker && !g->worker->dead && manta__mutex_try(m))
    return MANTA_OK;
  return manta__gate_wait(g, m, what, err);
}

/* The same by who is in `save` and wants `row`, too: a gate that is being shut waits for it. */
manta_status manta__gate_enter_also(struct manta__gate *g, struct manta__mutex *m,
                                    manta_error *err);

/* By the thread that runs the function. */
void manta__gate_open(struct manta__gate *g, const struct manta__job *job);
/* Waits until nobody is in or near; those who come get an error. Harmless if it is shut. */
void manta__gate_shut(struct manta__gate *g, enum manta__gate_state how);

#endif
