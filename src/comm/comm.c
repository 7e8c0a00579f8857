/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/comm.c - communicators, and the public calls: each checks its arguments and becomes a task.
 */
#include "comm/comm.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/hosts/hosts.h"
#include "comm/reduce/reduce.h"
#include "sys/pages.h"

// --- making -------------------------------------------------------------------------------------

bool manta__comm_is_here(const struct manta__fabric *f, int run)
{
  const struct manta__span *s = f->host.span;
  return !s || s->host[run] == s->host[s->rank];
}

// The ranks of the group that are on this host, by their places on it. Their number; ours in *own.
static int find_here(const struct manta__fabric *f, int rank, int size, const int *run, int *place,
                     int *own)
{
  int n = 0;
  for (int r = 0; r < size; r++) {
    if (!manta__comm_is_here(f, run[r]))
      continue;
    *own = r == rank ? n : *own;
    for (place[n] = 0; f->here[place[n]] != run[r];)
      place[n]++;
    n++;
  }
  return n;
}

static manta_status make_hosts(manta_comm *c, uint32_t group, manta_error *err)
{
  const struct manta__span *s = c->fabric->host.span;
  int *host = manta__calloc((size_t)c->size, sizeof *host);
  struct manta__hosts *h = manta__calloc(1, sizeof *h);
  for (int r = 0; host && r < c->size; r++)
    host[r] = s->host[c->run[r]];
  struct manta__hosts_config cfg = {.wire = s->wire,
                                    .team = &c->team,
                                    .rank = c->rank,
                                    .size = c->size,
                                    .wire_rank = c->run,
                                    .host = host,
                                    .group = group};
  manta_status st = host && h ? manta__hosts_init(h, &cfg, err)
                              : manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator");
  manta__free(host);
  if (st < 0)
    manta__free(h);
  else
    c->hosts = h;
  return st;
}

static manta_status fill_comm(manta_comm *c, uint64_t at, const int *run, uint32_t group,
                              manta_error *err)
{
  int own = 0, *place = manta__calloc((size_t)c->size, sizeof *place);
  c->run = manta__calloc((size_t)c->size, sizeof *c->run);
  if (!place || !c->run) {
    manta__free(place);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator");
  }
  memcpy(c->run, run, (size_t)c->size * sizeof *run);
  int n = find_here(c->fabric, c->rank, c->size, run, place, &own);
  manta_status st = manta__team_init(&c->team, c->fabric, at, own, n, place, err);
  if (st == MANTA_OK && n < c->size)
    st = make_hosts(c, group, err);
  manta__free(place);
  return st;
}

manta_status manta__comm_make(manta_comm **out, struct manta__fabric *f, uint64_t at, int rank,
                              int size, const int *run, uint32_t group, manta_error *err)
{
  manta_comm *c = manta__calloc(1, sizeof *c);
  if (!c)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator");
  c->fabric = f;
  c->rank = rank;
  c->size = size;
  manta__backlog_init(&c->lane);
  pthread_mutex_init(&c->all_lock, NULL);
  manta_status st = manta__mover_init(&c->mover, size, err);
  if (st == MANTA_OK)
    st = fill_comm(c, at, run, group, err);
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
  manta__backlog_fini(&c->lane);
  manta__mover_fini(c);
  manta__comm_gpu_end(c);
  if (c->hosts)
    manta__hosts_fini(c->hosts);
  manta__team_fini(&c->team);
  while (c->all)
    manta__work_free(c->all);
  pthread_mutex_destroy(&c->all_lock);
  manta__free(c->hosts);
  manta__free(c->run);
  manta__free(c);
}

static void be_the_world(manta_comm *c, const struct manta__comm_host *host)
{
  c->is_world = true;
  c->rebuild = host->rebuild;
  c->ctx = host->ctx;
}

manta_status manta__comm_create(manta_comm **out, const struct manta__comm_host *host,
                                manta_error *err)
{
  struct manta__fabric *f;
  MANTA_TRY(manta__fabric_create(&f, host, err));
  int rank = host->span ? host->span->rank : host->rank;
  int size = host->span ? host->span->size : host->size;
  int *run = manta__calloc((size_t)size, sizeof *run);
  for (int r = 0; run && r < size; r++)
    run[r] = r;
  manta_status st = run ? manta__comm_make(out, f, 0, rank, size, run, 0, err)
                        : manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator");
  manta__free(run);
  if (st < 0)
    manta__fabric_destroy(f);
  else
    be_the_world(*out, host);
  return st;
}

manta_comm *manta__comm_create_failed(const struct manta__comm_host *host, int rank, int size,
                                      const manta_error *why)
{
  manta_comm *c = manta__calloc(1, sizeof *c);
  manta_error *copy = manta__malloc(sizeof *copy);
  if (!c || !copy) {
    manta__free(c);
    manta__free(copy);
    return NULL;
  }
  *copy = *why;
  c->rank = rank;
  c->size = size;
  be_the_world(c, host);
  c->failed = copy;
  return c;
}

void manta__comm_destroy(manta_comm *c)
{
  if (!c)
    return;
  if (c->failed) {
    manta__free(c->failed);
    manta__free(c);
    return;
  }
  struct manta__fabric *f = c->fabric;
  for (manta_comm *i = f->comms; i; i = i->next)
    manta__team_quit(&i->team);
  while (f->comms)
    manta__comm_end(f->comms);
  manta__fabric_destroy(f);
}

void manta__comm_depart(manta_comm *c)
{
  if (!c || c->failed)
    return;
  for (manta_comm *i = c->fabric->comms; i; i = i->next)
    manta__team_depart(&i->team);
}

int manta__comm_departed(const manta_comm *c)
{
  for (int r = 0; c && !c->failed && r < c->team.size; r++)
    if (atomic_load(&c->team.line[r].left))
      return manta__team_label(&c->team, r);
  return -1;
}

int manta_comm_rank(const manta_comm *c)
{
  return c->rank;
}

int manta_comm_size(const manta_comm *c)
{
  return c->size;
}

manta_status manta_comm_agree(manta_comm *c, int64_t *value, manta_error *err)
{
  MANTA_TRY(manta__comm_usable(c, err));
  const struct manta__comm_host *h = &c->fabric->host;
  int64_t ns = c->team.timeout_ns;
  if (!c->is_world || !h->agree)
    return manta_error_set(err, MANTA_EINVAL, "only all ranks of a run can agree");
  return h->agree(h->ctx, value, ns < 0 ? MANTA__NEVER : manta__now() + ns, err);
}

manta_status manta_comm_rebuild(manta_comm **c, manta_error *err)
{
  if (!*c || !(*c)->is_world || !(*c)->rebuild)
    return manta_error_set(err, MANTA_EINVAL, "only the communicator of a run can be rebuilt");
  return (*c)->rebuild((*c)->ctx, c, err);
}

void manta_comm_set_timeout(manta_comm *c, double seconds)
{
  c->team.timeout_ns = seconds >= 0 && seconds < 3e8 ? (int64_t)(seconds * 1e9) : -1;
}

void manta_comm_cancel(manta_comm *c)
{
  if (c && !c->failed)
    manta__team_quit(&c->team);
}

// --- tasks --------------------------------------------------------------------------------------

manta_status manta__comm_run(manta_comm *c, const struct manta__task *t, manta_error *err)
{
  int gpu;
  MANTA_TRY(manta__team_ready(&c->team, t->call, c->team.gone, err));
  if (manta__comm_gpu_task(c, t, &gpu))
    return manta__comm_gpu_run(c, t, gpu, err);
  return manta__comm_run_host(c, t, err);
}

manta_status manta__comm_run_host(manta_comm *c, const struct manta__task *t, manta_error *err)
{
  return c->hosts ? manta__hosts_run(c->hosts, t, err) : manta__team_run(&c->team, t, err);
}

static bool reduces(enum manta__call call)
{
  return call >= MANTA__CALL_ALLREDUCE && call <= MANTA__CALL_REDUCE_SCATTER;
}

manta_status manta__comm_usable(const manta_comm *c, manta_error *err)
{
  if (!c)
    return manta_error_set(err, MANTA_EINVAL, "no communicator");
  if (c->failed && err)
    *err = *c->failed;
  return c->failed ? c->failed->status : MANTA_OK;
}

static manta_status check_move(const manta_comm *c, const struct manta__task *t, manta_error *err)
{
  int gpu;
  const char *call = manta__call_name(t->call);
  bool any = t->call == MANTA__CALL_RECV && t->root == -1;
  if (t->root >= c->size || (t->root < 0 && !any))
    return manta_error_set(err, MANTA_EINVAL, "%s: there is no rank %d among %d", call, t->root,
                           c->size);
  if (t->root == c->rank)
    return manta_error_set(err, MANTA_EINVAL, "%s: rank %d is this rank itself", call, t->root);
  if (t->tag < 0 || t->tag > MANTA_TAG_MAX)
    return manta_error_set(err, MANTA_EINVAL, "%s: tag %d is not in 0 to %d", call, t->tag,
                           MANTA_TAG_MAX);
  if (any && c->hosts)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s from any rank works on one host only, and the ranks are on several",
                           call);
  if ((any || t->tag) && manta__comm_gpu_task(c, t, &gpu))
    return manta_error_set(err, MANTA_EINVAL,
                           "%s on GPU memory needs an explicit rank and takes no tag", call);
  return MANTA_OK;
}

static manta_status check(const manta_comm *c, const struct manta__task *t, manta_error *err)
{
  MANTA_TRY(manta__comm_usable(c, err));
  if (manta_dtype_bytes(t->type) == 0 || t->count > SIZE_MAX / 16 / (size_t)c->size)
    return manta_error_set(err, MANTA_EINVAL, "%s: cannot take %zu elements of type %s",
                           manta__call_name(t->call), t->count, manta_dtype_name(t->type));
  if (reduces(t->call) && !manta__reduce_valid(t->type, t->op))
    return manta_error_set(err, MANTA_EINVAL, "%s: this operation is not defined for %s",
                           manta__call_name(t->call), manta_dtype_name(t->type));
  if (t->call >= MANTA__CALL_SEND)
    return check_move(c, t, err);
  if (t->root >= c->size || t->root < 0)
    return manta_error_set(err, MANTA_EINVAL, "%s: there is no root %d among %d ranks",
                           manta__call_name(t->call), t->root, c->size);
  return MANTA_OK;
}

// Runs the task, or starts it if the caller wants a work.
static manta_status submit(manta_comm *c, const struct manta__task *t, manta_work **work,
                           manta_error *err)
{
  if (work)
    *work = NULL;
  MANTA_TRY(check(c, t, err));
  int gpu;
  if (t->call >= MANTA__CALL_SEND &&
      !manta__comm_gpu_task(c, t, &gpu)) // a GPU takes all in their turn
    return work ? manta__mover_start(c, t, work, err) : manta__mover_run(c, t, err);
  if (work)
    return manta__backlog_start(c, t, work, err);
  if (atomic_load_explicit(&c->lane.pending, memory_order_acquire) == 0)
    return manta__comm_run(c, t, err);
  manta_work *w;
  MANTA_TRY(manta__backlog_start(c, t, &w, err));
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
  return manta_comm_send_tagged_start(c, buf, count, type, to, 0, work, err);
}

manta_status manta_comm_send(manta_comm *c, const void *buf, size_t count, manta_dtype type, int to,
                             manta_error *err)
{
  return manta_comm_send_start(c, buf, count, type, to, NULL, err);
}

manta_status manta_comm_recv_start(manta_comm *c, void *buf, size_t count, manta_dtype type,
                                   int from, manta_work **work, manta_error *err)
{
  struct manta__task t = {
      .call = MANTA__CALL_RECV, .recv = buf, .count = count, .type = type, .root = from};
  return submit(c, &t, work, err);
}

manta_status manta_comm_recv(manta_comm *c, void *buf, size_t count, manta_dtype type, int from,
                             manta_error *err)
{
  return manta_comm_recv_start(c, buf, count, type, from, NULL, err);
}

manta_status manta_comm_send_tagged_start(manta_comm *c, const void *buf, size_t count,
                                          manta_dtype type, int to, int tag, manta_work **work,
                                          manta_error *err)
{
  struct manta__task t = {
      .call = MANTA__CALL_SEND, .send = buf, .count = count, .type = type, .root = to, .tag = tag};
  return submit(c, &t, work, err);
}

manta_status manta_comm_send_tagged(manta_comm *c, const void *buf, size_t count, manta_dtype type,
                                    int to, int tag, manta_error *err)
{
  return manta_comm_send_tagged_start(c, buf, count, type, to, tag, NULL, err);
}

manta_status manta_comm_recv_tagged_start(manta_comm *c, void *buf, size_t count, manta_dtype type,
                                          int *from, int tag, manta_work **work, manta_error *err)
{
  struct manta__task t = {.call = MANTA__CALL_RECV,
                          .recv = buf,
                          .count = count,
                          .type = type,
                          .root = *from,
                          .tag = tag,
                          .from = from};
  return submit(c, &t, work, err);
}

manta_status manta_comm_recv_tagged(manta_comm *c, void *buf, size_t count, manta_dtype type,
                                    int *from, int tag, manta_error *err)
{
  return manta_comm_recv_tagged_start(c, buf, count, type, from, tag, NULL, err);
}

// --- memory that all can read
// ---------------------------------------------------------------------

manta_status manta_shm_alloc(manta_comm *c, size_t bytes, void **out, manta_error *err)
{
  uint64_t at = 0;
  MANTA_TRY(manta__comm_usable(c, err));
  MANTA_TRY(manta__heap_take(c->fabric, bytes, &at, err));
  *out = c->fabric->base + at;
  manta__pages_enlarge(*out, bytes, INT64_MAX); // once, for all of the training
  return MANTA_OK;
}

// A call that we gave up may go on elsewhere, and write to buffers of ours.
static bool may_be_in_use(const struct manta__fabric *f)
{
  for (const manta_comm *c = f->comms; c; c = c->next)
    if (atomic_load(&c->team.line[c->team.rank].gave_up))
      return true;
  return false;
}

void manta_shm_free(manta_comm *c, void *p)
{
  bool stays = !p || c->failed || may_be_in_use(c->fabric); // until the attempt ends
  uint64_t at = stays ? MANTA__NOWHERE : manta__heap_offset(c->fabric, p, 1);
  if (at != MANTA__NOWHERE)
    manta__heap_give(c->fabric, at);
}
