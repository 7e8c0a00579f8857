/* SPDX-License-Identifier: Apache-2.0
 *
 * train/ddp_step.c - a step: gradients become ready, buckets are reduced, and all are waited for.
 *
 * With overlap a bucket is started by the ready call that completes it and all before it; without,
 * everything is done in sync. The reductions and their order are the same.
 */
#include <string.h>

#include "train/ddp.h"

// --- one bucket ---------------------------------------------------------------------------------

struct ddp_span { // what travels
  void *data;
  size_t count;
  manta_dtype type;
};

static struct ddp_span travelling(const struct manta__bucket *b)
{
  if (b->packed)
    return (struct ddp_span){b->packed, b->used, MANTA_BF16};
  return (struct ddp_span){b->grad, b->used, b->type};
}

static void pack(struct manta__bucket *b)
{
  if (b->packed)
    manta__pack_bf16(b->packed, b->left, (const float *)b->grad, b->used);
}

static manta_status start(manta_ddp *d, struct manta__bucket *b, manta_error *err)
{
  pack(b);
  struct ddp_span s = travelling(b);
  return manta_comm_allreduce_start(d->comm, s.data, s.data, s.count, s.type, MANTA_MEAN, &b->work,
                                    err);
}

static manta_status reduce(manta_ddp *d, struct manta__bucket *b, manta_error *err)
{
  pack(b);
  struct ddp_span s = travelling(b);
  return manta_comm_allreduce(d->comm, s.data, s.data, s.count, s.type, MANTA_MEAN, err);
}

static manta_status wait(struct manta__bucket *b, manta_error *err)
{
  manta_work *w = b->work;
  b->work = NULL;
  return manta_work_wait(w, err);
}

// The gradients of the bucket are the mean.
static manta_status finish(manta_ddp *d, struct manta__bucket *b, manta_error *err)
{
  MANTA_TRY(d->overlap ? wait(b, err) : reduce(d, b, err));
  if (b->packed)
    manta__unpack_bf16((float *)b->grad, b->packed, b->used);
  return MANTA_OK;
}

// --- the step -----------------------------------------------------------------------------------

// Starts what is complete, in order; all: also what is not.
static manta_status start_next(manta_ddp *d, bool all, manta_error *err)
{
  while (d->next > 0 && (all || d->bucket[d->next - 1].missing == 0)) {
    d->next--;
    MANTA_TRY(start(d, &d->bucket[d->next], err));
  }
  return MANTA_OK;
}

manta_status manta_ddp_ready(manta_ddp *d, size_t index, manta_error *err)
{
  MANTA_TRY(manta__ddp_in(d, true, err));
  if (index >= d->count)
    return manta_error_set(err, MANTA_EINVAL, "parameter %zu of %zu", index, d->count);
  if (d->paused)
    return MANTA_OK;
  if (d->layout[index].ready)
    return manta_error_set(err, MANTA_ESTATE, "the gradient of '%s' was ready already",
                           d->grad[index].name);
  d->layout[index].ready = true;
  d->touched = true;
  d->bucket[d->layout[index].bucket].missing--;
  return d->overlap ? manta__ddp_end(d, start_next(d, false, &d->error), err) : MANTA_OK;
}

static void begin_step(manta_ddp *d)
{
  d->next = d->buckets;
  d->touched = false;
  for (size_t i = 0; i < d->count; i++)
    d->layout[i].ready = false;
  for (size_t i = 0; i < d->buckets; i++)
    d->bucket[i].missing = d->bucket[i].members;
}

static manta_status sync(manta_ddp *d, double *norm, manta_error *err)
{
  bool squares = norm || d->cfg.clip_norm > 0;
  if (d->overlap)
    MANTA_TRY(start_next(d, true, err));
  for (size_t i = d->buckets; i > 0; i--) {
    MANTA_TRY(finish(d, &d->bucket[i - 1], err));
    if (squares)
      manta__ddp_squares(d, i - 1);
  }
  begin_step(d);
  d->steps++;
  if (squares)
    MANTA_TRY(manta__ddp_clip(d, norm, err));
  bool check = d->cfg.check_every > 0 && d->steps % d->cfg.check_every == 0;
  return check ? manta__ddp_check_replicas(d, err) : MANTA_OK;
}

manta_status manta_ddp_sync(manta_ddp *d, double *norm, manta_error *err)
{
  MANTA_TRY(manta__ddp_in(d, true, err));
  if (d->paused)
    return manta_error_set(err, MANTA_ESTATE, "sync while paused");
  return manta__ddp_end(d, sync(d, norm, &d->error), err);
}

static manta_status untouched(const manta_ddp *d, manta_error *err)
{
  MANTA_TRY(manta__ddp_in(d, true, err));
  if (d->touched)
    return manta_error_set(err, MANTA_ESTATE, "some gradients are ready: sync comes first");
  return MANTA_OK;
}

manta_status manta_ddp_pause(manta_ddp *d, bool paused, manta_error *err)
{
  MANTA_TRY(untouched(d, err));
  d->paused = paused;
  return MANTA_OK;
}

manta_status manta_ddp_zero_grad(manta_ddp *d, manta_error *err)
{
  MANTA_TRY(untouched(d, err));
  for (size_t i = 0; i < d->buckets; i++)
    memset(d->bucket[i].grad, 0, d->bucket[i].used * manta_dtype_bytes(d->bucket[i].type));
  return MANTA_OK;
}
