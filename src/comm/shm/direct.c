/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shm/direct.c - collectives straight out of, and into, the buffers of the other ranks.
 *
 * Nobody stages anything and nobody is waited for: comm/shm/shared.c begins such a call, which
 * places the buffers in the segment, and ends it with a phase that says that nobody reads any
 * more. */
#include <string.h>

#include "base/prefetch.h"
#include "comm/reduce/reduce.h"
#include "comm/shm/shared.h"

#define BLOCK (16u << 10) /* a reduction works in pieces that stay in the first cache */
#define LOOK  (1u << 20)  /* copied before the abort word is looked at */
#define SOME  (4u << 10)  /* lines that are fetched all at once */

// --- the others ---------------------------------------------------------------------------------

static const uint8_t *send_of(const struct manta__team *t, int rank)
{
  return t->fabric->base + manta__team_desc(t, rank)->send_at;
}

static uint8_t *recv_of(const struct manta__team *t, int rank)
{
  return t->fabric->base + manta__team_desc(t, rank)->recv_at;
}

// A direct way may take long: now and then it looks whether it is still of use.
static bool aborted(const struct manta__team *t)
{
  return atomic_load_explicit(t->fabric->host.abort, memory_order_relaxed) != 0;
}

static manta_status give_up(const struct manta__team *t, manta_error *err)
{
  manta__team_give_up(t);
  return t->fabric->host.check(t->fabric->host.ctx, err);
}

// --- copies -------------------------------------------------------------------------------------

static manta_status fetch(struct manta__team *t, uint8_t *to, const uint8_t *from, size_t bytes,
                          manta_error *err)
{
  for (size_t at = 0; at < bytes; at += LOOK) {
    if (aborted(t))
      return give_up(t, err);
    memcpy(to + at, from + at, bytes - at < LOOK ? bytes - at : LOOK);
  }
  return MANTA_OK;
}

// One after the other, each rank beginning with its neighbour: not all at the same buffer.
static manta_status fetch_blocks(struct manta__team *t, const struct manta__transfer *x,
                                 size_t skip, manta_error *err)
{
  for (int i = 1; i < t->size; i++) {
    int r = (t->rank + i) % t->size;
    MANTA_TRY(fetch(t, x->recv + (size_t)r * x->bytes, send_of(t, r) + skip, x->bytes, err));
  }
  uint8_t *own = x->recv + (size_t)t->rank * x->bytes;
  if (own != x->send + skip)
    memcpy(own, x->send + skip, x->bytes);
  return MANTA_OK;
}

manta_status manta__direct_broadcast(struct manta__team *t, const struct manta__transfer *x,
                                     manta_error *err)
{
  return t->rank == x->root ? MANTA_OK : fetch(t, x->recv, send_of(t, x->root), x->bytes, err);
}

manta_status manta__direct_allgather(struct manta__team *t, const struct manta__transfer *x,
                                     manta_error *err)
{
  return fetch_blocks(t, x, 0, err);
}

manta_status manta__direct_gather(struct manta__team *t, const struct manta__transfer *x,
                                  manta_error *err)
{
  return t->rank == x->root ? fetch_blocks(t, x, 0, err) : MANTA_OK;
}

manta_status manta__direct_alltoall(struct manta__team *t, const struct manta__transfer *x,
                                    manta_error *err)
{
  return fetch_blocks(t, x, (size_t)t->rank * x->bytes, err);
}

manta_status manta__direct_scatter(struct manta__team *t, const struct manta__transfer *x,
                                   manta_error *err)
{
  size_t skip = (size_t)t->rank * x->bytes;
  if (t->rank == x->root && x->recv == x->send + skip)
    return MANTA_OK;
  return fetch(t, x->recv, send_of(t, x->root) + skip, x->bytes, err);
}

// --- reductions ---------------------------------------------------------------------------------

manta_status manta__direct_reduce_scatter(struct manta__team *t, const struct manta__transfer *x,
                                          manta_error *err)
{
  size_t skip = (size_t)t->rank * x->bytes;
  for (size_t at = 0; at < x->bytes; at += LOOK) {
    size_t len = x->bytes - at < LOOK ? x->bytes - at : LOOK;
    if (aborted(t))
      return give_up(t, err);
    for (int r = 0; r < t->size; r++)
      t->in[r] = (r == t->rank ? x->send : send_of(t, r)) + skip + at;
    manta__reduce(x->recv + at, t->in, t->size, len / x->size, x->type, x->op);
  }
  return MANTA_OK;
}

// Few lines: to be had for writing at once, instead of first for reading. Of many the processor's
// own prefetching is better.
static void fetch_to_write(const uint8_t *p, size_t len)
{
  for (size_t i = 0; len <= SOME && i < len; i += 64)
    manta__prefetch_to_write(p + i);
}

// Whether a rank may reduce straight into its own buffer, which nobody else reads there.
static bool is_apart(const struct manta__transfer *x)
{
  return x->send == x->recv || x->send + x->bytes <= x->recv || x->recv + x->bytes <= x->send;
}

// Straight out of all buffers into those of `first` … `last`: each byte is touched by one rank.
static manta_status reduce_slice(struct manta__team *t, const struct manta__transfer *x, int first,
                                 int last, manta_error *err)
{
  _Alignas(64) uint8_t block[BLOCK];
  const bool own = first <= t->rank && t->rank <= last && is_apart(x);
  size_t from, to;
  manta__slice(t, x->bytes, &from, &to);
  for (size_t at = from; at < to; at += BLOCK) {
    size_t len = to - at < BLOCK ? to - at : BLOCK;
    if (aborted(t))
      return give_up(t, err);
    for (int r = first; r <= last; r++)
      if (r != t->rank)
        fetch_to_write(recv_of(t, r) + at, len);
    for (int r = 0; r < t->size; r++)
      t->in[r] = send_of(t, r) + at;
    uint8_t *sum = own ? x->recv + at : block;
    manta__reduce(sum, t->in, t->size, len / x->size, x->type, x->op);
    manta__team_claim(t);
    for (int r = first; r <= last; r++)
      if (r != t->rank || !own)
        memcpy(recv_of(t, r) + at, sum, len);
  }
  return MANTA_OK;
}

manta_status manta__direct_allreduce(struct manta__team *t, const struct manta__transfer *x,
                                     manta_error *err)
{
  return reduce_slice(t, x, 0, t->size - 1, err);
}

manta_status manta__direct_reduce(struct manta__team *t, const struct manta__transfer *x,
                                  manta_error *err)
{
  return reduce_slice(t, x, x->root, x->root, err);
}
