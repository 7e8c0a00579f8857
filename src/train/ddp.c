/* SPDX-License-Identifier: Apache-2.0 */
#include "train/ddp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"

#define BUCKET_MIN 1024
#define BUCKET_MAX ((size_t)1 << 40)
#define LEAVE_S    1.0
#define LEAVE_NAP  200000 /* ns */

// --- making -------------------------------------------------------------------------------------

static manta_status check_config(manta_ddp_config *c, manta_error *err)
{
  if (c->bucket_bytes == 0)
    c->bucket_bytes = MANTA_DDP_BUCKET_BYTES;
  if (c->check_every == 0)
    c->check_every = MANTA_DDP_CHECK_EVERY;
  if (c->bucket_bytes < BUCKET_MIN || c->bucket_bytes > BUCKET_MAX)
    return manta_error_set(err, MANTA_EINVAL, "bucket_bytes must be 0 or at least %d, not %zu",
                           BUCKET_MIN, c->bucket_bytes);
  if (c->overlap < MANTA_DDP_OVERLAP_AUTO || c->overlap > MANTA_DDP_OVERLAP_OFF)
    return manta_error_set(err, MANTA_EINVAL, "overlap must be auto, on or off, not %d",
                           (int)c->overlap);
  if (!(c->clip_norm >= 0) || isinf(c->clip_norm))
    return manta_error_set(err, MANTA_EINVAL, "clip_norm must be 0 or a positive number, not %g",
                           c->clip_norm);
  if (c->check_every < -1)
    return manta_error_set(err, MANTA_EINVAL, "check_every must be -1 or more, not %d",
                           c->check_every);
  return MANTA_OK;
}

manta_status manta_ddp_create(manta_ddp **out, manta_comm *comm, const manta_ddp_config *cfg,
                              manta_error *err)
{
  manta_ddp_config dflt = MANTA_DDP_CONFIG_INIT, c;
  MANTA_TRY(manta__config_take(&c, sizeof c, cfg ? (const void *)cfg : &dflt,
                               "MANTA_DDP_CONFIG_INIT", err));
  MANTA_TRY(check_config(&c, err));
  if (!comm)
    return manta_error_set(err, MANTA_EINVAL, "no communicator");
  manta_ddp *d = manta__calloc(1, sizeof *d);
  if (!d)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a set of parameters");
  d->comm = comm;
  d->cfg = c;
  *out = d;
  return MANTA_OK;
}

// Whether its reduction has ended by `by`.
static bool ended(manta_work *w, int64_t by)
{
  while (w && !manta_work_test(w)) {
    if (manta__now() > by)
      return false;
    nanosleep(&(struct timespec){0, LEAVE_NAP}, NULL);
  }
  manta_work_wait(w, NULL);
  return true;
}

// A reduction whose peers don't come is left to the communicator, with its shared memory, which
// ends with the attempt.
static void free_bucket(manta_ddp *d, struct manta__bucket *b, int64_t by)
{
  if (ended(b->work, by)) {
    manta_shm_free(d->comm, b->param);
    manta_shm_free(d->comm, b->grad);
    manta_shm_free(d->comm, b->packed);
  }
  manta__free(b->left);
}

void manta_ddp_destroy(manta_ddp *d)
{
  if (!d)
    return;
  int64_t by = manta__deadline(LEAVE_S);
  for (size_t i = d->buckets; i > 0; i--)
    free_bucket(d, &d->bucket[i - 1], by);
  manta_shm_free(d->comm, d->square);
  for (size_t i = 0; i < d->count; i++)
    manta__free((char *)(uintptr_t)d->param[i].name);
  manta__free(d->param);
  manta__free(d->grad);
  manta__free(d->layout);
  manta__free(d->bucket);
  manta__free(d->saved);
  manta__free(d);
}

manta_status manta__ddp_in(const manta_ddp *d, bool sealed, manta_error *err)
{
  if (d->error.status < 0) {
    if (err)
      *err = d->error;
    return d->error.status;
  }
  if (d->sealed != sealed)
    return manta_error_set(err, MANTA_ESTATE,
                           sealed ? "manta_ddp_begin comes first" : "manta_ddp_begin was called");
  return MANTA_OK;
}

manta_status manta__ddp_end(manta_ddp *d, manta_status st, manta_error *err)
{
  if (st < 0) {
    d->error.status = st;
    if (err)
      *err = d->error;
  }
  return st;
}

// --- adding -------------------------------------------------------------------------------------

static manta_status no_memory(manta_error *err)
{
  return manta_error_set(err, MANTA_ENOMEM, "no memory for another parameter");
}

// An array with room for one more than `count`; the old one if that fails.
static bool grow(void **array, size_t size, size_t cap)
{
  void *p = manta__realloc(*array, cap * size);
  if (p)
    *array = p;
  return p != NULL;
}

static manta_status reserve(manta_ddp *d, manta_error *err)
{
  if (d->count == d->cap) {
    size_t cap = d->cap ? d->cap * 2 : 16;
    if (!grow((void **)&d->param, sizeof *d->param, cap) ||
        !grow((void **)&d->grad, sizeof *d->grad, cap) ||
        !grow((void **)&d->layout, sizeof *d->layout, cap))
      return no_memory(err);
    d->cap = cap;
  }
  if (d->buckets == d->bucket_cap) {
    size_t cap = d->bucket_cap ? d->bucket_cap * 2 : 16;
    if (!grow((void **)&d->bucket, sizeof *d->bucket, cap))
      return no_memory(err);
    d->bucket_cap = cap;
  }
  return MANTA_OK;
}

// Elements that a parameter takes up in a bucket: the next one is aligned.
static size_t rounded(size_t count, manta_dtype type)
{
  size_t unit = MANTA__DDP_ALIGN / manta_dtype_bytes(type);
  return (count + unit - 1) / unit * unit;
}

// A new bucket, with room for at least `count` elements. Pages come when they are touched.
static manta_status open_bucket(manta_ddp *d, size_t count, manta_dtype type, manta_error *err)
{
  size_t cap = d->cfg.bucket_bytes / MANTA__DDP_ALIGN * MANTA__DDP_ALIGN / manta_dtype_bytes(type);
  struct manta__bucket b = {.type = type, .cap = count > cap ? count : cap, .first = d->count};
  size_t bytes = b.cap * manta_dtype_bytes(type);
  MANTA_TRY(manta_shm_alloc(d->comm, bytes, (void **)&b.param, err));
  manta_status st = manta_shm_alloc(d->comm, bytes, (void **)&b.grad, err);
  if (st < 0) {
    manta_shm_free(d->comm, b.param);
    return st;
  }
  d->bucket[d->buckets++] = b;
  return MANTA_OK;
}

// The newest bucket of this type, if there is room in it, or a new one.
static manta_status find_bucket(manta_ddp *d, size_t count, manta_dtype type, size_t *out,
                                manta_error *err)
{
  size_t i = d->buckets;
  while (i > 0 && d->bucket[i - 1].type != type)
    i--;
  if (i == 0 || d->bucket[i - 1].cap - d->bucket[i - 1].used < count) {
    MANTA_TRY(open_bucket(d, count, type, err));
    i = d->buckets;
  }
  *out = i - 1;
  return MANTA_OK;
}

static void place(manta_ddp *d, char *name, size_t count, manta_dtype type, size_t bucket)
{
  struct manta__bucket *b = &d->bucket[bucket];
  size_t at = b->used * manta_dtype_bytes(type), i = d->count++;
  d->param[i] = (manta_tensor){name, type, 1, {(int64_t)count}, b->param + at};
  d->grad[i] = (manta_tensor){name, type, 1, {(int64_t)count}, b->grad + at};
  d->layout[i] = (struct manta__ddp_param){.bucket = bucket, .block = d->blocks};
  d->blocks += manta__norm_blocks(count);
  b->used += rounded(count, type);
  b->members++;
}

static manta_status check_param(const manta_ddp *d, const char *name, size_t count,
                                manta_dtype type, manta_error *err)
{
  if (!name || !name[0] || strlen(name) > MANTA_TENSOR_NAME_MAX || strchr(name, '\n'))
    return manta_error_set(err, MANTA_EINVAL, "a parameter needs a name of 1 to %d bytes, one line",
                           MANTA_TENSOR_NAME_MAX);
  if (type != MANTA_F32 && type != MANTA_F64 && type != MANTA_F16 && type != MANTA_BF16)
    return manta_error_set(err, MANTA_EINVAL, "parameter '%s': gradients cannot be of type %s",
                           name, manta_dtype_name(type));
  if (count > SIZE_MAX / 64)
    return manta_error_set(err, MANTA_EINVAL, "parameter '%s': %zu elements", name, count);
  if (d->count >= MANTA_DDP_MAX_PARAMS)
    return manta_error_set(err, MANTA_ETOOBIG, "more than %d parameters", MANTA_DDP_MAX_PARAMS);
  return MANTA_OK;
}

manta_status manta_ddp_add(manta_ddp *d, const char *name, size_t count, manta_dtype type,
                           void **param, void **grad, manta_error *err)
{
  size_t bucket;
  MANTA_TRY(manta__ddp_in(d, false, err));
  MANTA_TRY(check_param(d, name, count, type, err));
  MANTA_TRY(reserve(d, err));
  MANTA_TRY(find_bucket(d, rounded(count, type), type, &bucket, err));
  char *copy = manta__strdup(name);
  if (!copy)
    return no_memory(err);
  place(d, copy, count, type, bucket);
  if (param)
    *param = d->param[d->count - 1].data;
  if (grad)
    *grad = d->grad[d->count - 1].data;
  return MANTA_OK;
}

// --- begin --------------------------------------------------------------------------------------

static int by_name(const void *a, const void *b)
{
  return strcmp(((const manta_tensor *)a)->name, ((const manta_tensor *)b)->name);
}

static manta_status check_names(const manta_ddp *d, manta_error *err)
{
  manta_tensor *sorted = manta__calloc(d->count + 1, sizeof *sorted);
  manta_status st = MANTA_OK;
  if (!sorted)
    return no_memory(err);
  if (d->count > 0)
    memcpy(sorted, d->param, d->count * sizeof *sorted);
  qsort(sorted, d->count, sizeof *sorted, by_name);
  for (size_t i = 1; i < d->count && st == MANTA_OK; i++)
    if (!strcmp(sorted[i - 1].name, sorted[i].name))
      st = manta_error_set(err, MANTA_EINVAL, "two parameters are named '%s'", sorted[i].name);
  manta__free(sorted);
  return st;
}

static manta_status prepare_bucket(manta_ddp *d, struct manta__bucket *b, manta_error *err)
{
  b->missing = b->members;
  if (!d->cfg.compress || b->type != MANTA_F32)
    return MANTA_OK;
  MANTA_TRY(manta_shm_alloc(d->comm, b->used * sizeof *b->packed, (void **)&b->packed, err));
  b->left = manta__calloc(b->used + 1, sizeof *b->left);
  return b->left ? MANTA_OK : no_memory(err);
}

static manta_status begin(manta_ddp *d, manta_error *err)
{
  MANTA_TRY(check_names(d, err));
  MANTA_TRY(manta__ddp_agree(d, err));
  d->overlap = d->cfg.overlap == MANTA_DDP_OVERLAP_ON;
  if (d->cfg.overlap == MANTA_DDP_OVERLAP_AUTO)
    MANTA_TRY(manta__ddp_choose_overlap(d, &d->overlap, err));
  MANTA_TRY(manta_shm_alloc(d->comm, d->blocks * sizeof *d->square, (void **)&d->square, err));
  for (size_t i = 0; i < d->buckets; i++) {
    struct manta__bucket *b = &d->bucket[i];
    MANTA_TRY(prepare_bucket(d, b, err));
    MANTA_TRY(manta_comm_broadcast(d->comm, b->param, b->used, b->type, 0, err));
  }
  d->next = d->buckets;
  d->sealed = true;
  return MANTA_OK;
}

manta_status manta_ddp_begin(manta_ddp *d, manta_error *err)
{
  MANTA_TRY(manta__ddp_in(d, false, err));
  return manta__ddp_end(d, begin(d, &d->error), err);
}

// --- looking ------------------------------------------------------------------------------------

size_t manta_ddp_count(const manta_ddp *d)
{
  return d->count;
}

const manta_tensor *manta_ddp_param(const manta_ddp *d, size_t i)
{
  return i < d->count ? &d->param[i] : NULL;
}

const manta_tensor *manta_ddp_grad(const manta_ddp *d, size_t i)
{
  return i < d->count ? &d->grad[i] : NULL;
}

bool manta_ddp_overlaps(const manta_ddp *d)
{
  return d->overlap;
}

// --- checkpoints --------------------------------------------------------------------------------

// What rounding left over differs by rank, and a checkpoint is one rank's: nobody keeps it.
static void forget_left(manta_ddp *d)
{
  for (size_t i = 0; i < d->buckets; i++)
    if (d->bucket[i].left)
      memset(d->bucket[i].left, 0, d->bucket[i].used * sizeof *d->bucket[i].left);
}

manta_status manta_ddp_save(manta_ddp *d, manta_session *s, const manta_tensor *more, size_t count,
                            const manta_value *value, manta_error *err)
{
  MANTA_TRY(manta__ddp_in(d, true, err));
  if (count > MANTA_STATE_MAX_TENSORS)
    return manta_error_set(err, MANTA_ETOOBIG, "%zu tensors beside the parameters", count);
  manta_tensor *all = manta__realloc(d->saved, (d->count + count + 1) * sizeof *all);
  if (!all)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a list of tensors");
  d->saved = all;
  if (d->count > 0)
    memcpy(all, d->param, d->count * sizeof *all);
  if (count > 0)
    memcpy(all + d->count, more, count * sizeof *all);
  manta_state state = {all, d->count + count, value};
  forget_left(d);
  return manta_session_save(s, &state, err);
}

static manta_status check_type(const manta_checkpoint *c, const manta_tensor *p, manta_error *err)
{
  const manta_tensor *t = manta_checkpoint_tensor(c, p->name);
  if (t && t->dtype != p->dtype)
    return manta_error_set(err, MANTA_ETYPE, "tensor '%s' is of %s, the parameter of %s", p->name,
                           manta_dtype_name(t->dtype), manta_dtype_name(p->dtype));
  return MANTA_OK;
}

manta_status manta_ddp_load(manta_ddp *d, const manta_checkpoint *c, manta_error *err)
{
  MANTA_TRY(manta__ddp_in(d, d->sealed, err));
  for (size_t i = 0; i < d->count; i++) {
    const manta_tensor *p = &d->param[i];
    MANTA_TRY(check_type(c, p, err));
    MANTA_TRY(manta_checkpoint_copy(c, p->name, p->data, (size_t)manta_tensor_bytes(p), err));
  }
  forget_left(d);
  return MANTA_OK;
}
