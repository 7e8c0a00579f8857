/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/rpc.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

#define FIRST_PLACES 16

static struct manta__rpc_call *find(struct manta__rpc *r, uint64_t call)
{
  for (int i = 0; i < r->places; i++)
    if (r->pending[i].call == call)
      return &r->pending[i];
  return NULL;
}

// A place for one more call, or NULL with the error.
static struct manta__rpc_call *make_place(struct manta__rpc *r, manta_error *err)
{
  struct manta__rpc_call *p = find(r, 0);
  if (p)
    return p;
  int places = r->places ? 2 * r->places : FIRST_PLACES;
  if (places > MANTA__RPC_PENDING) {
    manta_error_set(err, MANTA_ETOOBIG, "%d requests wait for a reply", r->places);
    return NULL;
  }
  if (!(p = manta__realloc(r->pending, (size_t)places * sizeof *p))) {
    manta_error_set(err, MANTA_ENOMEM, "no memory for a request");
    return NULL;
  }
  memset(p + r->places, 0, (size_t)(places - r->places) * sizeof *p);
  r->pending = p;
  p += r->places;
  r->places = places;
  return p;
}

// Frees the entry before the callback runs: it may make a new call.
static void end(struct manta__rpc_call *p, manta_status st, struct manta__msg *reply)
{
  struct manta__rpc_call was = *p;
  *p = (struct manta__rpc_call){0};
  was.fn(was.ctx, st, reply);
}

manta_status manta__rpc_call(struct manta__rpc *r, manta__conn *c, struct manta__msg *m,
                             const manta_value *v, int64_t by, manta__rpc_fn fn, void *ctx,
                             manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  struct manta__rpc_call *p = make_place(r, &why);
  if (!p)
    return manta_error_set(err, why.status, "%s", why.message);
  m->call = ++r->calls;
  MANTA_TRY(v ? manta__conn_send_value(c, m, v, err) : manta__conn_send(c, m, err));
  *p = (struct manta__rpc_call){m->call, by, fn, ctx};
  return MANTA_OK;
}

bool manta__rpc_take(struct manta__rpc *r, struct manta__msg *m)
{
  if (!(m->flags & MANTA__FRAME_REPLY))
    return false;
  struct manta__rpc_call *p = m->call ? find(r, m->call) : NULL;
  if (p)
    end(p, MANTA_OK, m);
  return true;
}

int64_t manta__rpc_expire(struct manta__rpc *r, int64_t now)
{
  int64_t next = MANTA__NEVER;
  for (int i = 0; i < r->places; i++)
    if (r->pending[i].call && r->pending[i].by <= now)
      end(&r->pending[i], MANTA_ETIMEDOUT, NULL);
  // Only now: a callback may have made a call in a place we had passed.
  for (int i = 0; i < r->places; i++)
    if (r->pending[i].call && r->pending[i].by < next)
      next = r->pending[i].by;
  return next;
}

void manta__rpc_forget(struct manta__rpc *r, const void *ctx)
{
  for (int i = 0; i < r->places; i++)
    if (r->pending[i].call && r->pending[i].ctx == ctx)
      r->pending[i] = (struct manta__rpc_call){0};
}

void manta__rpc_abandon(struct manta__rpc *r, manta_status st)
{
  for (int i = 0; i < r->places; i++)
    if (r->pending[i].call)
      end(&r->pending[i], st, NULL);
}

void manta__rpc_fini(struct manta__rpc *r)
{
  manta__free(r->pending);
  *r = (struct manta__rpc){.calls = r->calls};
}
