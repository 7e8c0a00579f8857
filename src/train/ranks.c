/* SPDX-License-Identifier: Apache-2.0
 *
 * train/ranks.c - what a run has by rank: as much as the workers that it is to have.
 *
 * (1) There is room for policy.want ranks: no attempt has more.
 * (2) The arrays only grow, and not any more when the run is over: what the user was given then
 *     stays where it is.
 */
#include "base/alloc.h"
#include "train/run.h"
#include "train/trainer.h"

manta_status manta__ranks_reserve(manta_run *r, int count, manta_error *err)
{
  struct manta__membership *g = &r->membership;
  if (count <= g->places)
    return MANTA_OK;
  MANTA_TRY(manta__results_reserve(r, count, err));
  struct manta__member *p = manta__realloc(g->member, (size_t)count * sizeof *p);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a run of %d workers", count);
  manta__membership_extend(g, p, count);
  return MANTA_OK;
}

manta_status manta__ranks_reserve_wids(manta_trainer *t, int count, manta_error *err)
{
  if (count <= t->wid_places)
    return MANTA_OK;
  int64_t *p = manta__realloc(t->wids, (size_t)count * sizeof *p);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a run of %d workers", count);
  t->wids = p;
  t->wid_places = count;
  return MANTA_OK;
}

manta_status manta__ranks_resize(manta_run *r, int want, manta_error *err)
{
  if (r->over)
    return MANTA_OK;
  MANTA_TRY(manta__ranks_reserve(r, want, err));
  MANTA_TRY(manta__ranks_reserve_wids(r->trainer, want, err));
  manta__membership_resize(&r->membership, want);
  return MANTA_OK;
}
