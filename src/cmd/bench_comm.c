/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/bench_comm.c - one size of one collective, measured on the workers of a trainer.
 *
 * Before each call every rank writes its send buffer anew and all meet at a barrier; the time of
 * the call is that of the slowest rank. A last call that is not timed is checked.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "cmd/bench.h"
#include "cmd/pattern.h"

#define WARM_UP   2 /* the first touches the pages */
#define TRIAL     3 /* calls whose time says how many there will be */
#define MIN_CALLS 5
#define MAX_CALLS 20000

// --- the collectives ----------------------------------------------------------------------------

static manta_status allreduce(manta_comm *c, const void *send, void *recv, size_t count,
                              manta_dtype type, manta_error *err)
{
  return manta_comm_allreduce(c, send, recv, count, type, MANTA_SUM, err);
}

static manta_status reduce(manta_comm *c, const void *send, void *recv, size_t count,
                           manta_dtype type, manta_error *err)
{
  return manta_comm_reduce(c, send, recv, count, type, MANTA_SUM, 0, err);
}

static manta_status broadcast(manta_comm *c, const void *send, void *recv, size_t count,
                              manta_dtype type, manta_error *err)
{
  return manta_comm_broadcast(c, recv, count, type, 0, err);
}

static manta_status reduce_scatter(manta_comm *c, const void *send, void *recv, size_t count,
                                   manta_dtype type, manta_error *err)
{
  return manta_comm_reduce_scatter(c, send, recv, count, type, MANTA_SUM, err);
}

static manta_status gather(manta_comm *c, const void *send, void *recv, size_t count,
                           manta_dtype type, manta_error *err)
{
  return manta_comm_gather(c, send, recv, count, type, 0, err);
}

static manta_status scatter(manta_comm *c, const void *send, void *recv, size_t count,
                            manta_dtype type, manta_error *err)
{
  return manta_comm_scatter(c, send, recv, count, type, 0, err);
}

static manta_status sendrecv(manta_comm *c, const void *send, void *recv, size_t count,
                             manta_dtype type, manta_error *err)
{
  int rank = manta_comm_rank(c), n = manta_comm_size(c);
  manta_work *work;
  MANTA_TRY(manta_comm_recv_start(c, recv, count, type, (rank + n - 1) % n, &work, err));
  manta_status sent = manta_comm_send(c, send, count, type, (rank + 1) % n, err);
  manta_status got = manta_work_wait(work, sent < 0 ? NULL : err);
  return sent < 0 ? sent : got;
}

static double once(int n)
{
  return 1;
}

static double but_own(int n)
{
  return (double)(n - 1) / n;
}

static double there_and_back(int n)
{
  return 2.0 * (n - 1) / n;
}

const struct manta__bench_op manta__bench_ops[] = {
    {.name = "allreduce",
     .in_place = true,
     .reduces = true,
     .call = allreduce,
     .bus = there_and_back},
    {.name = "reduce", .reduces = true, .rooted = true, .call = reduce, .bus = once},
    {.name = "broadcast", .in_place = true, .rooted = true, .call = broadcast, .bus = once},
    {.name = "allgather", .recv_all = true, .call = manta_comm_allgather, .bus = but_own},
    {.name = "reduce_scatter",
     .send_all = true,
     .reduces = true,
     .call = reduce_scatter,
     .bus = but_own},
    {.name = "alltoall",
     .send_all = true,
     .recv_all = true,
     .call = manta_comm_alltoall,
     .bus = but_own},
    {.name = "gather", .recv_all = true, .rooted = true, .call = gather, .bus = but_own},
    {.name = "scatter", .send_all = true, .rooted = true, .call = scatter, .bus = but_own},
    {.name = "sendrecv", .ring = true, .call = sendrecv, .bus = once},
    {0}};

const struct manta__bench_op *manta__bench_op_find(const char *name)
{
  for (const struct manta__bench_op *op = manta__bench_ops; op->name; op++)
    if (!strcmp(op->name, name))
      return op;
  return NULL;
}

static size_t send_count(const struct manta__bench_job *j, int ranks)
{
  return j->op->send_all ? j->count * (size_t)ranks : j->count;
}

static size_t recv_count(const struct manta__bench_job *j, int ranks)
{
  return j->op->recv_all ? j->count * (size_t)ranks : j->count;
}

size_t manta__bench_bytes(const struct manta__bench_job *j, int ranks)
{
  size_t send = send_count(j, ranks), recv = recv_count(j, ranks);
  return (send > recv ? send : recv) * manta_dtype_bytes(j->type);
}

size_t manta__bench_memory(const struct manta__bench_job *j, int ranks)
{
  size_t recv = j->op->in_place ? 0 : recv_count(j, ranks);
  return (send_count(j, ranks) + recv) * manta_dtype_bytes(j->type);
}

// --- in a worker --------------------------------------------------------------------------------

struct bench {
  manta_comm *c;
  struct manta__bench_job job;
  int rank, ranks;
  void *send, *recv;
  struct manta__pattern mine;
};

static manta_status get_buffer(struct bench *b, size_t count, void **out, manta_error *err)
{
  size_t bytes = count * manta_dtype_bytes(b->job.type);
  if (!b->job.private_)
    return manta_shm_alloc(b->c, bytes, out, err);
  *out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*out != MAP_FAILED)
    return MANTA_OK;
  *out = NULL;
  return manta_error_set(err, MANTA_ENOMEM, "no memory for a buffer of %zu bytes", bytes);
}

static void put_buffer(struct bench *b, size_t count, void *p)
{
  if (!b->job.private_)
    manta_shm_free(b->c, p);
  else if (p)
    munmap(p, count * manta_dtype_bytes(b->job.type));
}

static manta_status get_buffers(struct bench *b, manta_error *err)
{
  MANTA_TRY(get_buffer(b, send_count(&b->job, b->ranks), &b->send, err));
  b->recv = b->send;
  return b->job.op->in_place ? MANTA_OK
                             : get_buffer(b, recv_count(&b->job, b->ranks), &b->recv, err);
}

static void put_buffers(struct bench *b)
{
  if (b->recv != b->send)
    put_buffer(b, recv_count(&b->job, b->ranks), b->recv);
  put_buffer(b, send_count(&b->job, b->ranks), b->send);
}

static manta_status call_once(struct bench *b, double *us, manta_error *err)
{
  manta__pattern_write(&b->mine, b->send, send_count(&b->job, b->ranks), 0);
  MANTA_TRY(manta_comm_barrier(b->c, err));
  int64_t from = manta__now();
  MANTA_TRY(b->job.op->call(b->c, b->send, b->recv, b->job.count, b->job.type, err));
  *us = (double)(manta__now() - from) / 1e3;
  return MANTA_OK;
}

// Rank 0 decides how many calls fit the time, and tells the others.
static manta_status choose_calls(struct bench *b, int64_t *calls, manta_error *err)
{
  double us;
  for (int i = 0; i < WARM_UP; i++)
    MANTA_TRY(call_once(b, &us, err));
  int64_t from = manta__now();
  for (int i = 0; i < TRIAL; i++)
    MANTA_TRY(call_once(b, &us, err));
  double fit = b->job.seconds * 1e9 * TRIAL / (double)(manta__now() - from + 1);
  *calls = fit < MIN_CALLS ? MIN_CALLS : fit > MAX_CALLS ? MAX_CALLS : (int64_t)fit;
  return manta_comm_broadcast(b->c, calls, 1, MANTA_I64, 0, err);
}

static manta_status count_wrong(struct bench *b, int64_t *wrong, manta_error *err)
{
  const struct manta__bench_op *op = b->job.op;
  size_t size = manta_dtype_bytes(b->job.type), count = b->job.count;
  struct manta__pattern want;
  double us;
  MANTA_TRY(call_once(b, &us, err));
  *wrong = 0;
  bool gets = !op->rooted || b->rank == 0 || !(op->reduces || op->recv_all);
  for (int block = 0; gets && block < (op->recv_all ? b->ranks : 1); block++) {
    if (op->reduces)
      manta__pattern_of_sum(&want, b->job.type, b->ranks);
    else
      manta__pattern_of_rank(&want, b->job.type,
                             op->ring ? (b->rank + b->ranks - 1) % b->ranks : block);
    *wrong += (int64_t)manta__pattern_wrong(&want, (char *)b->recv + (size_t)block * count * size,
                                            count, op->send_all ? (size_t)b->rank * count : 0);
  }
  return manta_comm_allreduce(b->c, wrong, wrong, 1, MANTA_I64, MANTA_SUM, err);
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static manta_status measure(struct bench *b, double *us, manta_value *result, manta_error *err)
{
  int64_t calls, wrong;
  MANTA_TRY(choose_calls(b, &calls, err));
  for (int64_t i = 0; i < calls; i++)
    MANTA_TRY(call_once(b, &us[i], err));
  MANTA_TRY(manta_comm_allreduce(b->c, us, us, (size_t)calls, MANTA_F64, MANTA_MAX, err));
  MANTA_TRY(count_wrong(b, &wrong, err));
  qsort(us, (size_t)calls, sizeof *us, by_value);
  MANTA_TRY(manta_value_set_map(result));
  MANTA_TRY(manta_value_put_int(result, "calls", calls));
  MANTA_TRY(manta_value_put_int(result, "wrong", wrong));
  MANTA_TRY(manta_value_put_real(result, "min", us[0]));
  MANTA_TRY(manta_value_put_real(result, "p50", us[calls / 2]));
  return manta_value_put_real(result, "p99", us[(calls * 99 + 99) / 100 - 1]);
}

static manta_status bench_comm(manta_session *s, manta_value *result, manta_error *err)
{
  static double us[MAX_CALLS];
  struct bench b = {.c = manta_session_comm(s),
                    .rank = manta_session_rank(s),
                    .ranks = manta_session_world_size(s)};
  b.job = (struct manta__bench_job){
      .op = manta__bench_op_find(manta_session_config_string(s, "op", "")),
      .type = (manta_dtype)manta_session_config_int(s, "type", MANTA_F32),
      .count = (size_t)manta_session_config_int(s, "count", 0),
      .private_ = manta_session_config_bool(s, "private", false),
      .seconds = manta_session_config_real(s, "seconds", 0)};
  if (!b.c || !b.job.op)
    return manta_error_set(err, MANTA_EINVAL, "nothing to measure");
  manta__pattern_of_rank(&b.mine, b.job.type, b.rank);
  manta_status st = get_buffers(&b, err);
  if (st == MANTA_OK)
    st = measure(&b, us, result, err);
  put_buffers(&b);
  return st;
}
MANTA_TRAIN("manta-bench-comm", bench_comm)

// --- in the driver ------------------------------------------------------------------------------

manta_status manta__bench_comm(manta_trainer *t, const struct manta__bench_job *j,
                               struct manta__bench_result *out, manta_error *err)
{
  manta_value results = {0};
  manta_value arg =
      MANTA_MAP(MANTA_KV_STR("op", j->op->name), MANTA_KV_INT("type", (int64_t)j->type),
                MANTA_KV_INT("count", (int64_t)j->count), MANTA_KV_BOOL("private", j->private_),
                MANTA_KV_REAL("seconds", j->seconds));
  MANTA_TRY(manta_trainer_execute(t, bench_comm, &arg, &results, err));
  const manta_value *r = manta_value_at(&results, 0);
  *out = (struct manta__bench_result){.calls = manta_value_as_int(manta_value_get(r, "calls"), 0),
                                      .wrong = manta_value_as_int(manta_value_get(r, "wrong"), -1),
                                      .min = manta_value_as_real(manta_value_get(r, "min"), 0),
                                      .p50 = manta_value_as_real(manta_value_get(r, "p50"), 0),
                                      .p99 = manta_value_as_real(manta_value_get(r, "p99"), 0)};
  manta_value_fini(&results);
  return MANTA_OK;
}
