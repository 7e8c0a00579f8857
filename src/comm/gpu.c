/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/gpu.c - tasks whose buffers are device memory go to the module that moves it.
 *
 * The ranks compare their descriptions first, as for host memory: a call that differs, and a rank
 * that passes host memory where others pass a GPU's, is named before a GPU is asked.
 */
#include <string.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "comm/nccl/device.h"

// To ask the driver takes a while, and our own segment is not a GPU's.
bool manta__comm_gpu_task(const manta_comm *c, const struct manta__task *t, int *gpu)
{
  const void *p = t->send ? t->send : t->recv;
  uintptr_t at = (uintptr_t)p - (uintptr_t)c->fabric->base;
  return at >= c->fabric->bytes && manta__device_owns(p, gpu);
}

// A collective of ours in host memory. Its own deadline is the communicator's.
static manta_status exchange(void *ctx, const void *mine, void *all, size_t bytes, int64_t by,
                             manta_error *err)
{
  manta_comm *c = ctx;
  struct manta__task t = {MANTA__CALL_ALLGATHER, mine, all, bytes, NULL, MANTA_U8, MANTA_SUM, 0};
  return manta__comm_run_host(c, &t, err);
}

static manta_status check(void *ctx, manta_error *err)
{
  const struct manta__comm_host *h = &((manta_comm *)ctx)->fabric->host;
  return h->check(h->ctx, err);
}

static void alive(void *ctx, bool waits)
{
  manta__team_alive(&((manta_comm *)ctx)->team, waits);
}

static manta_status open_device(manta_comm *c, int gpu, int64_t by, manta_error *err)
{
  struct manta__device_host host = {.rank = c->rank,
                                    .size = c->size,
                                    .gpu = gpu,
                                    .ctx = c,
                                    .exchange = exchange,
                                    .abort = c->fabric->host.abort,
                                    .check = check,
                                    .alive = alive};
  MANTA_TRY(manta__device_load(&c->gpu.ops, err));
  MANTA_TRY(c->gpu.ops->create(&c->gpu.device, &host, by, err));
  c->gpu.index = gpu;
  return MANTA_OK;
}

static manta_status same_everywhere(manta_comm *c, const struct manta__task *t, manta_error *err)
{
  const uint32_t call = t->call | MANTA__CALL_ON_GPU;
  struct manta__desc d = {.head = manta__desc_head(call, t->type, t->op, (int16_t)t->root),
                          .count = t->count,
                          .send_at = MANTA__NOWHERE,
                          .recv_at = MANTA__NOWHERE};
  if (c->hosts) { // of a call that it does not know it only compares the descriptions
    struct manta__task on_gpu = *t;
    on_gpu.call = (enum manta__call)call;
    return manta__comm_run_host(c, &on_gpu, err);
  }
  manta_status st = manta__team_begin(&c->team, &d, err);
  c->team.turn++;
  return st;
}

manta_status manta__comm_gpu_run(manta_comm *c, const struct manta__task *t, int gpu,
                                 manta_error *err)
{
  int64_t ns = c->team.timeout_ns, by = ns < 0 ? MANTA__NEVER : manta__now() + ns;
  uint64_t ticket;
  if (t->call < MANTA__CALL_SEND)
    MANTA_TRY(same_everywhere(c, t, err));
  if (!c->gpu.device)
    MANTA_TRY(open_device(c, gpu, by, err));
  if (gpu != c->gpu.index)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s: a buffer on GPU %d, but this communicator works on GPU %d",
                           manta__call_name(t->call), gpu, c->gpu.index);
  c->gpu.ops->set_stream(c->gpu.device, c->gpu.stream);
  MANTA_TRY(c->gpu.ops->start(c->gpu.device, t, by, &ticket, err));
  return c->gpu.ops->wait(c->gpu.device, ticket, by, err);
}

void manta__comm_gpu_end(manta_comm *c)
{
  if (c->gpu.device)
    c->gpu.ops->destroy(c->gpu.device);
}

void manta_comm_set_stream(manta_comm *c, void *stream)
{
  c->gpu.stream = stream;
}
