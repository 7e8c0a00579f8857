/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/comm.c - communicators, and the public calls: each checks its arguments and becomes a task.
 */
#include "comm/comm.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/reduce.h"

// --- making -------------------------------------------------------------------------------------

manta_status manta__comm_make(manta_comm **out, struct manta__fabric *f, uint64_t at, int rank,
                              int size, const int *world, manta_error *err)
{
  manta_comm *c = manta__calloc(1, sizeof *c);
  if (!c)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator");
  c->fabric = f;
  c->rank = rank;
  c->size = size;
  manta__lane_init(&c->lane);
  manta_status st = manta__mover_init(&c->mover, size, err);
  if (st == MANTA_OK)
    st = manta__team_init(&c->team, f, at, rank, size, world, err);
  c->next = f->comms;
  f->comms = c;
  if (st < 0) {
    manta__comm_end(c);
    return st;
  }
  *out = c;
  return MANTA_OK;
}

// What is in flight is waited for; who must not wait has told the team to quit.
void manta__comm_end(manta_comm *c)
{
  for (manta_comm **p = &c->fabric->comms; *p; p = &(*p)->next)
    if (*p == c) {
      *p = c->next;
      break;
    }
  manta__lane_fini(&c->lane);
  manta__mover_fini(c);
  manta__team_fini(&c->team);
  while (c->all)
    manta__work_free(c->all);
  manta__free(c);
}

manta_status manta__comm_create(manta_comm **out, const struct manta__comm_host *host,
                                manta_error *err)
{
  struct manta__fabric *f;
  MANTA_TRY(manta__fabric_create(&f, host, err));
  int *world = manta__calloc((size_t)host->size, sizeof *world);
  for (int r = 0; world && r < host->size; r++)
    world[r] = r;
  manta_status st = world ? manta__comm_make(out, f, 0, host->rank, host->size, world, err)
                          : manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator");
  manta__free(world);
  if (st < 0)
    manta__fabric_destroy(f);
  else
    (*out)->world = true;
  return st;
}

void manta__comm_destroy(manta_comm *c)
{
  if (!c)
    return;
  struct manta__fabric *f = c->fabric;
  for (manta_comm *i = f->comms; i; i = i->next)
    manta__team_quit(&i->team);
  while (f->comms)
    manta__comm_end(f->comms);
  manta__fabric_destroy(f);
}

int manta_comm_rank(const manta_comm *c)
{
  return c->rank;
}

int manta_comm_size(const manta_comm *c)
{
  return c->size;
}

void manta_comm_set_timeout(manta_comm *c, double seconds)
{
  c->team.timeout_ns = seconds >= 0 && seconds < 3e8 ? (int64_t)(seconds * 1e9) : -1;
}

// --- tasks --------------------------------------------------------------------------------------

manta_status manta__comm_run(manta_comm *c, const struct manta__task *t, manta_error *err)
{
  return manta__team_run(&c->team, t, err);
}

static bool reduces(enum manta__call call)
{
  return call >= MANTA__CALL_ALLREDUCE && call <= MANTA__CALL_REDUCE_SCATTER;
}

static manta_status check(const manta_comm *c, const struct manta__task *t, manta_error *err)
{
  if (manta_dtype_bytes(t->type) == 0 || t->count > SIZE_MAX / 16 / (size_t)c->size)
    return manta_error_set(err, MANTA_EINVAL, "%s: %zu elements of type %s",
                           manta__call_name(t->call), t->count, manta_dtype_name(t->type));
  if (reduces(t->call) && !manta__reduce_valid(t->type, t->op))
    return manta_error_set(err, MANTA_EINVAL, "%s: this operation makes no sense for %s",
                           manta__call_name(t->call), manta_dtype_name(t->type));
  if (t->root >= c->size || t->root < 0)
    return manta_error_set(err, MANTA_EINVAL, "%s: root %d of %d ranks", manta__call_name(t->call),
                           t->root, c->size);
  if (t->call >= MANTA__CALL_SEND && t->root == c->rank)
    return manta_error_set(err, MANTA_EINVAL, "%s: rank %d is this rank itself",
                           manta__call_name(t->call), t->root);
  return MANTA_OK;
}

// Runs the task, or starts it if the caller wants a work.
static manta_status submit(manta_comm *c, const struct manta__task *t, manta_work **work,
                           manta_error *err)
{
  if (work)
    *work = NULL;
  MANTA_TRY(check(c, t, err));
  if (t->call >= MANTA__CALL_SEND)
    return work ? manta__mover_start(c, t, work, err) : manta__mover_run(c, t, err);
  if (work)
    return manta__lane_start(c, t, work, err);
  if (atomic_load_explicit(&c->lane.pending, memory_order_acquire) == 0)
    return manta__comm_run(c, t, err);
  manta_work *w;
  MANTA_TRY(manta__lane_start(c, t, &w, err));
  return manta_work_wait(w, err);
}

// --- the calls ----------------------------------------------------------------------------------

manta_status manta_comm_allreduce_start(manta_comm *c, const void *send, void *recv, size_t count,
                                        manta_dtype type, manta_op op, manta_work **work,
                                        manta_error *err)
{
  struct manta__task t = {MANTA__CALL_ALLREDUCE, send, recv, count, NULL, type, op, 0};
  return submit(c, &t, work, err);
}

manta_status manta_comm_allreduce(manta_comm *c, const void *send, void *recv, size_t count,
                                  manta_dtype type, manta_op op, manta_error *err)
{
  return manta_comm_allreduce_start(c, send, recv, count, type, op, NULL, err);
}

manta_status manta_comm_reduce_start(manta_comm *c, const void *send, void *recv, size_t count,
                                     manta_dtype type, manta_op op, int root, manta_work **work,
                                     manta_error *err)
{
  struct manta__task t = {MANTA__CALL_REDUCE, send, recv, count, NULL, type, op, root};
  return submit(c, &t, work, err);
}

manta_status manta_comm_reduce(manta_comm *c, const void *send, void *recv, size_t count,
                               manta_dtype type, manta_op op, int root, manta_error *err)
{
  return manta_comm_reduce_start(c, send, recv, count, type, op, root, NULL, err);
}

manta_status manta_comm_broadcast_start(manta_comm *c, void *buf, size_t count, manta_dtype type,
                                        int root, manta_work **work, manta_error *err)
{
  struct manta__task t = {MANTA__CALL_BROADCAST, buf, buf, count, NULL, type, MANTA_SUM, root};
  return submit(c, &t, work, err);
}

manta_status manta_comm_broadcast(manta_comm *c, void *buf, size_t count, manta_dtype type,
                                  int root, manta_error *err)
{
  return manta_comm_broadcast_start(c, buf, count, type, root, NULL, err);
}

manta_status manta_comm_allgather_start(manta_comm *c, const void *send, void *recv, size_t count,
                                        manta_dtype type, manta_work **work, manta_error *err)
{
  struct manta__task t = {MANTA__CALL_ALLGATHER, send, recv, count, NULL, type, MANTA_SUM, 0};
  return submit(c, &t, work, err);
}

manta_status manta_comm_allgather(manta_comm *c, const void *send, void *recv, size_t count,
                                  manta_dtype type, manta_error *err)
{
  return manta_comm_allgather_start(c, send, recv, count, type, NULL, err);
}

manta_status manta_comm_allgatherv_start(manta_comm *c, const void *send, void *recv,
                                         const size_t *counts, manta_dtype type, manta_work **work,
                                         manta_error *err)
{
  struct manta__task t = {MANTA__CALL_ALLGATHERV, send, recv, 0, counts, type, MANTA_SUM, 0};
  for (int r = 0; r < c->size; r++) {
    if (counts[r] > SIZE_MAX / 16 / (size_t)c->size)
      t.count = SIZE_MAX; // refused below
    t.count = t.count == SIZE_MAX ? SIZE_MAX : t.count + counts[r];
  }
  return submit(c, &t, work, err);
}

manta_status manta_comm_allgatherv(manta_comm *c, const void *send, void *recv,
                                   const size_t *counts, manta_dtype type, manta_error *err)
{
  return manta_comm_allgatherv_start(c, send, recv, counts, type, NULL, err);
}

manta_status manta_comm_reduce_scatter_start(manta_comm *c, const void *send, void *recv,
                                             size_t count, manta_dtype type, manta_op op,
                                             manta_work **work, manta_error *err)
{
  struct manta__task t = {MANTA__CALL_REDUCE_SCATTER, send, recv, count, NULL, type, op, 0};
  return submit(c, &t, work, err);
}

manta_status manta_comm_reduce_scatter(manta_comm *c, const void *send, void *recv, size_t count,
                                       manta_dtype type, manta_op op, manta_error *err)
{
  return manta_comm_reduce_scatter_start(c, send, recv, count, type, op, NULL, err);
}

manta_status manta_comm_alltoall_start(manta_comm *c, const void *send, void *recv, size_t count,
                                       manta_dtype type, manta_work **work, manta_error *err)
{
  struct manta__task t = {MANTA__CALL_ALLTOALL, send, recv, count, NULL, type, MANTA_SUM, 0};
  return submit(c, &t, work, err);
}

manta_status manta_comm_alltoall(manta_comm *c, const void *send, void *recv, size_t count,
                                 manta_dtype type, manta_error *err)
{
  return manta_comm_alltoall_start(c, send, recv, count, type, NULL, err);
}

manta_status manta_comm_gather_start(manta_comm *c, const void *send, void *recv, size_t count,
                                     manta_dtype type, int root, manta_work **work,
                                     manta_error *err)
{
  struct manta__task t = {MANTA__CALL_GATHER, send, recv, count, NULL, type, MANTA_SUM, root};
  return submit(c, &t, work, err);
}

manta_status manta_comm_gather(manta_comm *c, const void *send, void *recv, size_t count,
                               manta_dtype type, int root, manta_error *err)
{
  return manta_comm_gather_start(c, send, recv, count, type, root, NULL, err);
}

manta_status manta_comm_scatter_start(manta_comm *c, const void *send, void *recv, size_t count,
                                      manta_dtype type, int root, manta_work **work,
                                      manta_error *err)
{
  struct manta__task t = {MANTA__CALL_SCATTER, send, recv, count, NULL, type, MANTA_SUM, root};
  return submit(c, &t, work, err);
}

manta_status manta_comm_scatter(manta_comm *c, const void *send, void *recv, size_t count,
                                manta_dtype type, int root, manta_error *err)
{
  return manta_comm_scatter_start(c, send, recv, count, type, root, NULL, err);
}

manta_status manta_comm_barrier_start(manta_comm *c, manta_work **work, manta_error *err)
{
  struct manta__task t = {MANTA__CALL_BARRIER, NULL, NULL, 0, NULL, MANTA_U8, MANTA_SUM, 0};
  return submit(c, &t, work, err);
}

manta_status manta_comm_barrier(manta_comm *c, manta_error *err)
{
  return manta_comm_barrier_start(c, NULL, err);
}

manta_status manta_comm_send_start(manta_comm *c, const void *buf, size_t count, manta_dtype type,
                                   int to, manta_work **work, manta_error *err)
{
  struct manta__task t = {MANTA__CALL_SEND, buf, NULL, count, NULL, type, MANTA_SUM, to};
  return submit(c, &t, work, err);
}

manta_status manta_comm_send(manta_comm *c, const void *buf, size_t count, manta_dtype type, int to,
                             manta_error *err)
{
  return manta_comm_send_start(c, buf, count, type, to, NULL, err);
}

manta_status manta_comm_recv_start(manta_comm *c, void *buf, size_t count, manta_dtype type,
                                   int from, manta_work **work, manta_error *err)
{
  struct manta__task t = {MANTA__CALL_RECV, NULL, buf, count, NULL, type, MANTA_SUM, from};
  return submit(c, &t, work, err);
}

manta_status manta_comm_recv(manta_comm *c, void *buf, size_t count, manta_dtype type, int from,
                             manta_error *err)
{
  return manta_comm_recv_start(c, buf, count, type, from, NULL, err);
}
