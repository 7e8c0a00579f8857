/* SPDX-License-Identifier: Apache-2.0
 *
 * wire/rpc.h - requests that wait for their reply, each with a deadline.
 *
 * (1) The callback of a call comes exactly once: with the reply, with MANTA_ETIMEDOUT, or with
 *     MANTA_ECLOSED when the connection is given up; never from inside manta__rpc_call.
 * (2) If manta__rpc_call fails, the callback never comes.
 */
#ifndef MANTA_WIRE_RPC_H
#define MANTA_WIRE_RPC_H

#include "wire/conn.h"

#define MANTA__RPC_PENDING 4096 /* at once; a driver of many runs has one or two for each */

/* reply is NULL unless st is MANTA_OK. */
typedef void (*manta__rpc_fn)(void *ctx, manta_status st, struct manta__msg *reply);

struct manta__rpc { /* {0} is empty */
  uint64_t calls;
  struct manta__rpc_call {
    uint64_t call; /* 0: free */
    int64_t by;
    manta__rpc_fn fn;
    void *ctx;
  } * pending;
  int places; /* that it has */
};

/* v may be NULL: the request holds nothing. */
manta_status manta__rpc_call(struct manta__rpc *r, manta__conn *c, struct manta__msg *m,
                             const manta_value *v, int64_t by, manta__rpc_fn fn, void *ctx,
                             manta_error *err);
/* Hands a received message to its call; false if it is no reply, which has MANTA__FRAME_REPLY and
 * the request's number in `call`. A reply that nobody waits for any more is dropped. */
bool manta__rpc_take(struct manta__rpc *r, struct manta__msg *m);
/* Ends calls whose deadline has passed; returns the next deadline or MANTA__NEVER. */
int64_t manta__rpc_expire(struct manta__rpc *r, int64_t now);
/* Forgets calls with this context: their callback never comes. */
void manta__rpc_forget(struct manta__rpc *r, const void *ctx);
/* Ends all calls with `st`. */
void manta__rpc_abandon(struct manta__rpc *r, manta_status st);
/* Frees; there are no calls any more. Twice is harmless. */
void manta__rpc_fini(struct manta__rpc *r);

#endif
