/* SPDX-License-Identifier: Apache-2.0 */
#include "train/comms.h"

#include <pthread.h>

#include <manta/trainer.h>

#include "base/alloc.h"
#include "base/clock.h"

// --- what a communicator asks of its host -------------------------------------------------------

static manta_status check(void *ctx, manta_error *err)
{
  struct manta__comms *c = ctx;
  return manta__ctl_check(c->job->ctl, err);
}

static struct manta__bell *bell(void *ctx, int local)
{
  struct manta__comms *c = ctx;
  return &c->job->ctl->cell[local].bell;
}

static void alive(void *ctx, bool waits)
{
  struct manta__cell *cell = ((struct manta__comms *)ctx)->job->cell;
  atomic_store_explicit(&cell->beat_ns, manta__now_coarse(), memory_order_relaxed);
  // Release: a clock that goes again goes from now, not from before the wait.
  atomic_store_explicit(&cell->stalled, waits, memory_order_release);
}

static manta_status agree(void *ctx, int64_t *value, int64_t by, manta_error *err)
{
  struct manta__comms *c = ctx;
  return manta__worker_agree(c->job, value, by, err);
}

static manta_status rebuild(void *ctx, manta_comm **out, manta_error *err)
{
  struct manta__comms *c = ctx;
  manta_status st = c->rejoin(c->session, err);
  *out = manta__comms_get(c);
  return st;
}

// --- between hosts ------------------------------------------------------------------------------

static manta_status exchange(void *ctx, const void *blob, size_t size, const void **all,
                             size_t *bytes, manta_error *err)
{
  struct manta__comms *c = ctx;
  manta__blobs_fini(&c->blobs);
  MANTA_TRY(manta__worker_exchange(c->job, blob, size, &c->blobs, MANTA__NEVER, err));
  for (int r = 0; r < c->job->world; r++) {
    all[r] = c->blobs.data[r];
    bytes[r] = c->blobs.bytes[r];
  }
  return MANTA_OK;
}

// A failure of this host alone, told to those who read it on another.
static manta_status name_host(const struct manta__comms *c, const manta_error *why,
                              manta_error *err)
{
  return manta_error_set(err, why->status, "host %s: %s", c->job->host_name[c->job->node_rank],
                         why->message);
}

// The address that the driver has for this host, or else the way to one that it has for another.
static manta_status look_for_face(struct manta__comms *c, manta_error *err)
{
  const struct manta__job *job = c->job;
  const char *told = job->host_addr[job->node_rank];
  manta_error why = MANTA_ERROR_INIT;
  if (job->hosts == 1)
    c->face = (struct manta__iface){"lo", "127.0.0.1"};
  else if (manta__iface_choose(&c->face, told, job->host_addr, (size_t)job->hosts, &why) < 0)
    return name_host(c, &why, err);
  return MANTA_OK;
}

manta_status manta__comms_face(struct manta__comms *c, const struct manta__iface **out,
                               manta_error *err)
{
  static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER; // any thread may ask
  manta_status st = MANTA_OK;
  pthread_mutex_lock(&looking);
  if (!c->face.name[0])
    st = look_for_face(c, err);
  pthread_mutex_unlock(&looking);
  *out = &c->face;
  return st;
}

static manta_status open_wire(struct manta__comms *c, manta_error *err)
{
  const struct manta__job *job = c->job;
  const struct manta__net_ops *ops;
  const struct manta__iface *face;
  struct manta__net *net;
  MANTA_TRY(manta__comms_face(c, &face, err));
  bool *remote = manta__calloc((size_t)job->world, sizeof *remote);
  if (!remote)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d ranks", job->world);
  for (int r = 0; r < job->world; r++)
    remote[r] = job->host_of[r] != job->node_rank;
  struct manta__net_config cfg = {.rank = job->id.rank,
                                  .size = job->world,
                                  .remote = remote,
                                  .local = face->name,
                                  .ctx = c,
                                  .exchange = exchange};
  manta_error why = MANTA_ERROR_INIT;
  manta_status st = manta__net_load("ucx", &ops, &why);
  if (st == MANTA_OK)
    st = ops->create(&net, &cfg, &why);
  manta__free(remote);
  manta__blobs_fini(&c->blobs);
  if (st < 0)
    return name_host(c, &why, err);
  MANTA_TRY(manta__wire_init(&c->wire, net, err));
  c->span = (struct manta__span){job->id.rank, job->world, job->host_of, &c->wire};
  return MANTA_OK;
}

// --- the communicator ---------------------------------------------------------------------------

static struct manta__comm_host describe(struct manta__comms *c)
{
  const struct manta__job *job = c->job;
  return (struct manta__comm_host){.rank = job->local_rank,
                                   .size = job->local_world,
                                   .span = c->span.wire ? &c->span : NULL,
                                   .heap_fd = job->heap_fd,
                                   .ctx = c,
                                   .abort = &job->ctl->abort,
                                   .check = check,
                                   .bell = bell,
                                   .alive = alive,
                                   .agree = agree,
                                   .rebuild = rebuild};
}

static manta_status open_comm(struct manta__comms *c, manta_error *err)
{
  if (c->job->hosts > 1)
    MANTA_TRY(open_wire(c, err));
  struct manta__comm_host host = describe(c);
  return manta__comm_create(&c->comm, &host, err);
}

// No thread but ours uses it any more. To close it in peace takes the peers' help, for which one
// that has failed does not wait: its failure is what explains theirs.
static void close_wire(struct manta__comms *c, bool failed)
{
  if (c->span.wire && failed)
    c->wire.net->ops->stop(c->wire.net);
  if (c->span.wire)
    manta__wire_fini(c->span.wire);
  c->span.wire = NULL;
}

manta_comm *manta__comms_get(struct manta__comms *c)
{
  manta_error err = MANTA_ERROR_INIT;
  if (c->comm)
    return c->comm;
  if (open_comm(c, &err) < 0) {
    close_wire(c, true);
    struct manta__comm_host host = describe(c);
    c->comm = manta__comm_create_failed(&host, c->job->id.rank, c->job->world, &err);
  }
  return c->comm;
}

// Those of this host may look for us in the segment; of other hosts nobody does before we asked.
static void be_there(struct manta__comms *c)
{
  if (!c->comm && c->job->world > 1 && c->job->hosts == 1)
    manta__comms_get(c);
}

void manta__comms_depart(struct manta__comms *c)
{
  be_there(c);
  manta__comm_depart(c->comm);
}

void manta__comms_leave(struct manta__comms *c, bool failed)
{
  be_there(c);
  manta__comm_destroy(c->comm);
  c->comm = NULL;
  c->face.name[0] = 0; // the next attempt may have other hosts
  close_wire(c, failed);
}
