/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/nccl/nccl.c - device memory by NCCL: making a communicator, starting, waiting, and giving
 * up. */
#include "comm/nccl/nccl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"

#define GRACE_S      0.2 /* NCCL sees a closed connection before the agent has said who died */
#define FINISH_S     3   /* until the data of a communicator that is destroyed is out */
#define SPINS        200 /* queries before the first sleep; one takes a microsecond */
#define SLEEP_NS     20000
#define SLEEP_MAX_NS 200000

// --- errors -------------------------------------------------------------------------------------

manta_status manta__cuda_error(const struct cuda *t, int result, const char *what, manta_error *err)
{
  const char *name = NULL;
  if (t->error_name(result, &name) != CU_SUCCESS || !name)
    name = "unknown error";
  return manta_error_set(err, MANTA_EIO, "%s: %s (%d)", what, name, result);
}

static manta_status status_of(int result)
{
  switch (result) {
  case NCCL_REMOTE_ERROR:
    return MANTA_EPEERLOST;
  case NCCL_INVALID_ARGUMENT:
  case NCCL_INVALID_USAGE:
    return MANTA_EINVAL;
  default:
    return MANTA_EIO;
  }
}

manta_status manta__nccl_error(const struct nccl *t, struct nccl_comm *comm, int result,
                               const char *what, manta_error *err)
{
  const char *text = t->error_string(result), *last = t->last_error(comm);
  return manta_error_set(err, status_of(result), "%s: NCCL: %s%s%.500s", what,
                         text ? text : "unknown error", last && *last ? "\n" : "",
                         last ? last : "");
}

// A communicator that has failed says so; one that ran out of time is out of step with the others.
static manta_status tell_why(const struct manta__device *d, manta_error *err)
{
  if (d->why.status == MANTA_ETIMEDOUT)
    return manta_error_set(err, MANTA_ESTATE,
                           "the communicator ended when a call missed its deadline");
  if (err)
    *err = d->why;
  return d->why.status;
}

// The end of the communicator, with the reason in `why`.
static manta_status give_up(struct manta__device *d, const manta_error *why, manta_error *err)
{
  if (d->comm) {
    d->why = *why;
    d->stuck = !manta__nccl_reap(d, d->nccl->abort);
    d->comm = NULL;
  }
  if (err)
    *err = *why;
  return why->status;
}

// --- inside -------------------------------------------------------------------------------------

void manta__nccl_enter(const struct manta__device *d, struct nccl_inside *in)
{
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &in->signals);
  d->cuda->push(d->ctx);
}

void manta__nccl_leave(const struct manta__device *d, const struct nccl_inside *in)
{
  struct cu_context *popped;
  d->cuda->pop(&popped);
  pthread_sigmask(SIG_SETMASK, &in->signals, NULL);
}

// --- waiting ------------------------------------------------------------------------------------

struct pace {
  int turns;
  long ns;
};

static void rest(const struct manta__device *d, struct pace *p)
{
  if (p->turns++ < SPINS)
    return;
  if (p->ns == 0 && d->host.alive)
    d->host.alive(d->host.ctx, true);
  p->ns = p->ns == 0 ? SLEEP_NS : p->ns * 2 < SLEEP_MAX_NS ? p->ns * 2 : SLEEP_MAX_NS;
  nanosleep(&(struct timespec){0, p->ns}, NULL);
}

static bool aborted(const struct manta__device *d)
{
  return atomic_load_explicit(d->host.abort, memory_order_acquire) != 0;
}

static manta_status ask_why(const struct manta__device *d, manta_error *err)
{
  manta_status st = d->host.check(d->host.ctx, err);
  return st < 0 ? st : manta_error_set(err, MANTA_EABORTED, "the attempt was ended");
}

// NCCL has failed. If a rank died, the agent's word is the better reason, and it is on its way.
static manta_status explain(const struct manta__device *d, int result, const char *what,
                            manta_error *err)
{
  int64_t by = manta__deadline(GRACE_S);
  while (!aborted(d) && manta__now() < by)
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  return aborted(d) ? ask_why(d, err) : manta__nccl_error(d->nccl, d->comm, result, what, err);
}

// What ends a wait besides its end.
static manta_status interrupted(const struct manta__device *d, const char *what, int64_t by,
                                manta_error *err)
{
  if (aborted(d))
    return ask_why(d, err);
  if (by != MANTA__NEVER && manta__now() > by)
    return manta_error_set(
        err, MANTA_ETIMEDOUT,
        "%s on device memory: rank %d of %d waited for others until its deadline", what,
        d->host.rank, d->host.size);
  return MANTA_OK;
}

// One look. 1: not yet.
typedef int (*look_fn)(const struct manta__device *d, const char *what, manta_error *err);

static int look_state(const struct manta__device *d, const char *what, manta_error *err)
{
  int state = NCCL_SUCCESS;
  int rc = d->nccl->async_error(d->comm, &state);
  if (rc == NCCL_SUCCESS && state == NCCL_IN_PROGRESS)
    return 1;
  if (rc == NCCL_SUCCESS && state == NCCL_SUCCESS)
    return MANTA_OK;
  return (int)explain(d, rc == NCCL_SUCCESS ? state : rc, what, err);
}

static int look_event(const struct manta__device *d, const char *what, manta_error *err)
{
  int rc = d->cuda->event_query(d->done[d->finished % MANTA__DEVICE_FLIGHT]);
  if (rc == CU_SUCCESS)
    return MANTA_OK;
  if (rc != CU_NOT_READY)
    return (int)manta__cuda_error(d->cuda, rc, what, err);
  int st = look_state(d, what, err);
  return st < 0 ? st : 1;
}

static manta_status wait_until(struct manta__device *d, look_fn look, const char *what, int64_t by,
                               manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  struct pace pace = {0};
  int st;
  while ((st = look(d, what, &why)) == 1) {
    if ((st = (int)interrupted(d, what, by, &why)) < 0)
      break;
    rest(d, &pace);
  }
  if (pace.ns > 0 && d->host.alive)
    d->host.alive(d->host.ctx, false);
  return st < 0 ? give_up(d, &why, err) : MANTA_OK;
}

// Until NCCL has done what it was asked for, and can be asked for more.
static manta_status settle(struct manta__device *d, int result, const char *what, int64_t by,
                           manta_error *err)
{
  if (result == NCCL_SUCCESS)
    return MANTA_OK;
  if (result == NCCL_IN_PROGRESS)
    return wait_until(d, look_state, what, by, err);
  manta_error why = MANTA_ERROR_INIT;
  explain(d, result, what, &why);
  return give_up(d, &why, err);
}

// --- operations ---------------------------------------------------------------------------------

static manta_status cuda_or_give_up(struct manta__device *d, int result, const char *what,
                                    manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  if (result == CU_SUCCESS)
    return MANTA_OK;
  manta__cuda_error(d->cuda, result, what, &why);
  return give_up(d, &why, err);
}

// Our own stream begins where the default stream is now.
static manta_status follow_default(struct manta__device *d, manta_error *err)
{
  int rc = d->cuda->event_record(d->before, NULL);
  if (rc == CU_SUCCESS)
    rc = d->cuda->stream_wait(d->own, d->before, 0);
  return cuda_or_give_up(d, rc, "ordering behind the default stream", err);
}

static manta_status launch(struct manta__device *d, const struct manta__task *t, int64_t by,
                           manta_error *err)
{
  const char *name = manta__nccl_name(t->call);
  struct cu_stream *stream = d->given ? d->given : d->own;
  if (!d->given)
    MANTA_TRY(follow_default(d, err));
  MANTA_TRY(settle(d, manta__nccl_put(d, t, stream), name, by, err));
  int rc = d->cuda->event_record(d->done[d->begun % MANTA__DEVICE_FLIGHT], stream);
  return cuda_or_give_up(d, rc, name, err);
}

static manta_status wait_for_oldest(struct manta__device *d, int64_t by, manta_error *err)
{
  const char *name = manta__nccl_name(d->call[d->finished % MANTA__DEVICE_FLIGHT]);
  return wait_until(d, look_event, name, by, err);
}

static manta_status nccl_wait(struct manta__device *d, uint64_t ticket, int64_t by,
                              manta_error *err)
{
  if (ticket == 0 || ticket > d->begun)
    return manta_error_set(err, MANTA_EINVAL, "no operation has ticket %llu",
                           (unsigned long long)ticket);
  struct nccl_inside in;
  manta_status st = MANTA_OK;
  manta__nccl_enter(d, &in);
  while (st == MANTA_OK && d->finished < ticket) {
    st = d->comm ? wait_for_oldest(d, by, err) : tell_why(d, err);
    d->finished += st == MANTA_OK;
  }
  manta__nccl_leave(d, &in);
  return st;
}

static manta_status nccl_start(struct manta__device *d, const struct manta__task *t, int64_t by,
                               uint64_t *ticket, manta_error *err)
{
  MANTA_TRY(manta__nccl_check(d, t, err));
  if (d->begun - d->finished == MANTA__DEVICE_FLIGHT)
    MANTA_TRY(nccl_wait(d, d->finished + 1, by, err));
  if (!d->comm)
    return tell_why(d, err);
  struct nccl_inside in;
  manta__nccl_enter(d, &in);
  manta_status st = launch(d, t, by, err);
  manta__nccl_leave(d, &in);
  if (st < 0)
    return st;
  d->call[d->begun % MANTA__DEVICE_FLIGHT] = t->call;
  *ticket = ++d->begun;
  return MANTA_OK;
}

static bool nccl_test(struct manta__device *d, uint64_t ticket)
{
  if (!d->comm || ticket <= d->finished || aborted(d))
    return true;
  struct nccl_inside in;
  bool done = true;
  int state = NCCL_SUCCESS;
  manta__nccl_enter(d, &in);
  if (d->nccl->async_error(d->comm, &state) == NCCL_SUCCESS && state == NCCL_SUCCESS)
    done = d->cuda->event_query(d->done[(ticket - 1) % MANTA__DEVICE_FLIGHT]) != CU_NOT_READY;
  manta__nccl_leave(d, &in);
  return done;
}

static void nccl_set_stream(struct manta__device *d, void *stream)
{
  d->given = stream;
}

// --- the end ------------------------------------------------------------------------------------

static void finish(struct manta__device *d)
{
  struct nccl_inside in;
  manta__nccl_enter(d, &in);
  manta_status st =
      settle(d, d->nccl->finalize(d->comm), "destroy", manta__deadline(FINISH_S), NULL);
  manta__nccl_leave(d, &in);
  if (st < 0)
    return; // it was given up
  d->stuck = !manta__nccl_reap(d, d->nccl->destroy);
  d->comm = NULL;
}

// What is under way on a communicator that got stuck may still use these: better lost than waited
// for.
static void release(struct manta__device *d)
{
  struct nccl_inside in;
  manta__nccl_enter(d, &in);
  if (d->word && !d->stuck)
    d->cuda->free(d->word);
  for (int i = 0; i < MANTA__DEVICE_FLIGHT; i++)
    if (d->done[i])
      d->cuda->event_destroy(d->done[i]);
  if (d->before)
    d->cuda->event_destroy(d->before);
  if (d->own)
    d->cuda->stream_destroy(d->own);
  manta__nccl_leave(d, &in);
  if (!d->stuck)
    d->cuda->release(d->gpu);
}

static void nccl_destroy(struct manta__device *d)
{
  if (!d)
    return;
  if (d->comm)
    finish(d);
  if (d->ctx)
    release(d);
  manta__free(d);
}

// --- making -------------------------------------------------------------------------------------

// What ranks tell each other before NCCL is asked, so that nobody waits for one that can't come.
struct nccl_hello {
  int32_t status;
  int32_t code; // NCCL's version
  union {
    struct nccl_id id;
    char why[376];
  };
};
static_assert(sizeof(struct nccl_hello) == 384, "exchanged");

static int make_objects(struct manta__device *d)
{
  const struct cuda *t = d->cuda;
  int rc = t->stream_create(&d->own, CU_STREAM_NON_BLOCKING);
  if (rc == CU_SUCCESS)
    rc = t->alloc(&d->word, 16);
  if (rc == CU_SUCCESS)
    rc = t->event_create(&d->before, CU_EVENT_NO_TIMING);
  for (int i = 0; i < MANTA__DEVICE_FLIGHT && rc == CU_SUCCESS; i++)
    rc = t->event_create(&d->done[i], CU_EVENT_NO_TIMING);
  return rc;
}

static manta_status prepare(struct manta__device *d, manta_error *err)
{
  MANTA_TRY(manta__nccl_load(&d->nccl, &d->cuda, err));
  int rc = d->cuda->init(0);
  if (rc != CU_SUCCESS)
    return manta__cuda_error(d->cuda, rc, "CUDA does not start", err);
  if ((rc = d->cuda->device(&d->gpu, d->host.gpu)) == CU_SUCCESS)
    rc = d->cuda->retain(&d->ctx, d->gpu);
  if (rc != CU_SUCCESS)
    return manta__cuda_error(d->cuda, rc, "no context on the GPU", err);
  struct nccl_inside in;
  manta__nccl_enter(d, &in);
  rc = make_objects(d);
  manta__nccl_leave(d, &in);
  return rc == CU_SUCCESS ? MANTA_OK : manta__cuda_error(d->cuda, rc, "no objects on the GPU", err);
}

static void tell_failure(struct nccl_hello *h, manta_status st, const manta_error *why)
{
  h->status = (int32_t)st;
  snprintf(h->why, sizeof h->why, "%.375s", why->message);
}

// One round: what we say goes to all, and the first who can't go on is named to all.
static manta_status agree(const struct manta__device *d, const struct nccl_hello *mine,
                          struct nccl_hello *all, int64_t by, manta_error *err)
{
  MANTA_TRY(d->host.exchange(d->host.ctx, mine, all, sizeof *mine, by, err));
  for (int r = 0; r < d->host.size; r++) {
    if (all[r].status < 0)
      return manta_error_set(err, (manta_status)all[r].status, "rank %d: %.*s", r,
                             (int)sizeof all[r].why, all[r].why);
    if (all[r].code != all[0].code)
      return manta_error_set(err, MANTA_EUNSUPPORTED,
                             "the ranks have different versions of NCCL: rank 0 %d, rank %d %d",
                             (int)all[0].code, r, (int)all[r].code);
  }
  return MANTA_OK;
}

// Rank 0 listens from here on, so its address is made when all are there.
static manta_status agree_on_id(const struct manta__device *d, struct nccl_hello *all, int64_t by,
                                manta_error *err)
{
  struct nccl_hello mine = {.code = d->nccl->code};
  if (d->host.rank == 0) {
    struct nccl_inside in;
    manta_error why = MANTA_ERROR_INIT;
    manta__nccl_enter(d, &in);
    int rc = d->nccl->unique_id(&mine.id);
    manta__nccl_leave(d, &in);
    if (rc != NCCL_SUCCESS)
      tell_failure(&mine, manta__nccl_error(d->nccl, NULL, rc, "address", &why), &why);
  }
  return agree(d, &mine, all, by, err);
}

static manta_status meet(struct manta__device *d, const struct nccl_id *id, int64_t by,
                         manta_error *err)
{
  struct nccl_config config = {
      .size = sizeof config, .magic = NCCL_CONFIG_MAGIC, .version = NCCL_OLDEST, .blocking = 0};
  struct nccl_inside in;
  manta__nccl_enter(d, &in);
  int rc = d->nccl->init(&d->comm, d->host.size, *id, d->host.rank, &config);
  manta_status st =
      d->comm ? settle(d, rc, "connecting", by, err) : explain(d, rc, "connecting", err);
  manta__nccl_leave(d, &in);
  return st;
}

static manta_status build(struct manta__device *d, struct nccl_hello *all, int64_t by,
                          manta_error *err)
{
  struct nccl_hello mine = {0};
  manta_error why = MANTA_ERROR_INIT;
  manta_status st = prepare(d, &why);
  if (st < 0)
    tell_failure(&mine, st, &why);
  else
    mine.code = d->nccl->code;
  MANTA_TRY(agree(d, &mine, all, by, err));
  MANTA_TRY(agree_on_id(d, all, by, err));
  return meet(d, &all[0].id, by, err);
}

static manta_status nccl_create(struct manta__device **out, const struct manta__device_host *host,
                                int64_t by, manta_error *err)
{
  struct manta__device *d = manta__calloc(1, sizeof *d);
  struct nccl_hello *all = manta__calloc((size_t)host->size, sizeof *all);
  manta_status st = d && all
                        ? MANTA_OK
                        : manta_error_set(err, MANTA_ENOMEM, "no memory for a device communicator");
  if (st == MANTA_OK) {
    d->host = *host;
    st = build(d, all, by, err);
  }
  manta__free(all);
  if (st < 0)
    nccl_destroy(d);
  else
    *out = d;
  return st;
}

static const struct manta__device_ops ops = {
    .abi = MANTA__DEVICE_ABI,
    .name = "nccl",
    .create = nccl_create,
    .destroy = nccl_destroy,
    .set_stream = nccl_set_stream,
    .start = nccl_start,
    .wait = nccl_wait,
    .test = nccl_test,
};

extern MANTA_API const struct manta__device_ops *const manta_device_entry;
const struct manta__device_ops *const manta_device_entry = &ops;
