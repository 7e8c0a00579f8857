/* SPDX-License-Identifier: Apache-2.0 */
#include "group/ctl.h"

#include <limits.h>
#include <stdio.h>

#include "sys/robust.h"
#include "sys/shm.h"
#include "sys/sock.h"

static size_t ctl_bytes(int cells)
{
  return sizeof(struct manta__ctl) + sizeof(struct manta__cell) * (size_t)cells;
}

manta_status manta__ctl_create(int *fd_out, uint64_t run, uint32_t attempt, int cells,
                               const char *host, manta_error *err)
{
  void *p;
  size_t bytes;
  int fd;
  MANTA_TRY(manta__shm_create("manta-ctl", ctl_bytes(cells), &fd, err));
  manta_status st = manta__shm_map(fd, &p, &bytes, err);
  if (st == MANTA_OK) {
    struct manta__ctl *c = p;
    c->magic = MANTA__CTL_MAGIC;
    c->run = run;
    c->attempt = attempt;
    c->cells = (uint32_t)cells;
    snprintf(c->host, sizeof c->host, "%s", host);
    for (int i = 0; i < cells && st == MANTA_OK; i++)
      st = manta__robust_init(&c->cell[i].life, err);
    manta__shm_unmap(p, bytes);
  }
  if (st < 0)
    manta__fd_close(&fd);
  else
    *fd_out = fd;
  return st;
}

manta_status manta__ctl_map(struct manta__ctl **out, size_t *bytes_out, int fd, manta_error *err)
{
  void *p;
  size_t bytes;
  MANTA_TRY(manta__shm_map(fd, &p, &bytes, err));
  struct manta__ctl *c = p;
  if (bytes < sizeof *c || c->magic != MANTA__CTL_MAGIC || bytes != ctl_bytes((int)c->cells)) {
    manta__shm_unmap(p, bytes);
    return manta_error_set(err, MANTA_EPROTO, "not a control segment");
  }
  *out = c;
  *bytes_out = bytes;
  return MANTA_OK;
}

void manta__ctl_explain(struct manta__ctl *c, uint32_t cause, const char *host, const char *how)
{
  if (atomic_load_explicit(&c->told, memory_order_relaxed))
    return;
  snprintf(c->why, sizeof c->why, "rank %u on %s was lost: %s", cause - MANTA__ABORT_RANK,
           host ? host : c->host, how);
  atomic_store_explicit(&c->told, cause, memory_order_release);
}

void manta__ctl_abort(struct manta__ctl *c, uint32_t cause)
{
  uint32_t none = MANTA__ABORT_NONE;
  if (!atomic_compare_exchange_strong(&c->abort, &none, cause))
    return;
  manta__futex_wake(&c->abort, INT_MAX);
  for (uint32_t r = 0; r < c->cells; r++)
    manta__bell_ring(&c->cell[r].bell);
}

manta_status manta__ctl_check(const struct manta__ctl *c, manta_error *err)
{
  // Acquire: what was explained before the abort is seen with it.
  uint32_t cause = atomic_load_explicit(&c->abort, memory_order_acquire);
  if (cause == MANTA__ABORT_NONE)
    return MANTA_OK;
  // Seen before it could be explained: only a death on this host is.
  if (cause >= MANTA__ABORT_RANK)
    return atomic_load_explicit(&c->told, memory_order_acquire) == cause
               ? manta_error_set(err, MANTA_EPEERLOST, "%s", c->why)
               : manta_error_set(err, MANTA_EPEERLOST, "rank %u on %s was lost: it died",
                                 cause - MANTA__ABORT_RANK, c->host);
  return manta_error_set(err, MANTA_EABORTED, "the run is being ended");
}
