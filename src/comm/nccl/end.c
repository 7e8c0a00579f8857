/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/nccl/end.c - the end of a communicator, with a deadline.
 *
 * NCCL's abort waits for kernels and threads to notice; it does so at once, unless a driver or a
 * network is in a state that nobody foresaw. The user's thread must not pay for that: the call is
 * made in a thread of its own, which is given up when it takes too long.
 */
#include <pthread.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/nccl/nccl.h"
#include "sys/shm.h"

#define LIMIT_S 3

enum { RUNS, DONE, LEFT };

struct reap {
  const struct cuda *cuda;
  struct cu_context *ctx;
  struct nccl_comm *comm;
  int (*how)(struct nccl_comm *comm);
  _Atomic uint32_t state; // whoever comes second frees this
};

static void *run(void *arg)
{
  struct reap *r = arg;
  struct cu_context *popped;
  r->cuda->push(r->ctx);
  r->how(r->comm);
  r->cuda->pop(&popped);
  if (atomic_exchange(&r->state, DONE) == LEFT)
    manta__free(r);
  else
    manta__futex_wake(&r->state, 1);
  return NULL;
}

static bool wait_for(struct reap *r)
{
  int64_t by = manta__deadline(LIMIT_S);
  while (atomic_load(&r->state) == RUNS && manta__now() < by)
    manta__futex_wait(&r->state, RUNS, by);
  return atomic_exchange(&r->state, LEFT) == DONE;
}

bool manta__nccl_reap(const struct manta__device *d, int (*how)(struct nccl_comm *comm))
{
  struct nccl_inside in;
  pthread_t thread;
  struct reap *r = manta__calloc(1, sizeof *r);
  if (r)
    *r = (struct reap){.cuda = d->cuda, .ctx = d->ctx, .comm = d->comm, .how = how};
  manta__nccl_enter(d, &in);
  bool own = r && pthread_create(&thread, NULL, run, r) == 0;
  if (!own)
    how(d->comm); // no memory, no thread: then without a deadline
  manta__nccl_leave(d, &in);
  bool back = !own || wait_for(r);
  if (own && back)
    pthread_join(thread, NULL);
  else if (own)
    pthread_detach(thread);
  if (back)
    manta__free(r);
  return back;
}
