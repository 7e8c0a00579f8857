/* SPDX-License-Identifier: Apache-2.0
 *
 * train/hosts.c - the hosts of a trainer, and the agents on them. Which hosts: engine/hosts.h.
 */
#include "engine/hosts.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/knob.h"
#include "train/trainer.h"

#define TIMEOUT_S 15.0

static manta_status add(manta_trainer *t, struct manta__host_entry *e, manta_error *err)
{
  struct manta__link *n = manta__link_use(&e->host, err);
  if (!n)
    return err ? err->status : MANTA_ENOMEM;
  for (int i = 0; i < t->hosts; i++)
    if (t->host[i].link == n) {
      manta__link_drop(n);
      return manta_error_set(err, MANTA_EINVAL, "hosts[%d] is the same as hosts[%d]", t->hosts, i);
    }
  struct manta__trainer_host *p = &t->host[t->hosts++];
  *p = (struct manta__trainer_host){.link = n, .slots = e->slots, .address = e->address};
  e->address = NULL;
  return MANTA_OK;
}

static manta_status add_all(manta_trainer *t, struct manta__host_list *l, double timeout_s,
                            manta_error *err)
{
  t->host = manta__calloc(l->count, sizeof *t->host);
  if (!t->host)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %zu hosts", l->count);
  for (size_t i = 0; i < l->count; i++) {
    l->item[i].host.timeout_s = timeout_s;
    MANTA_TRY(add(t, &l->item[i], err));
  }
  return MANTA_OK;
}

static manta_status take(manta_trainer *t, const manta_trainer_config *c, manta_error *err)
{
  struct manta__host_list list;
  bool alone = manta__knob_is_set(MANTA__KNOB_WORKER); // a worker's own trainers stay where it is
  MANTA_TRY(manta__engine_hosts_find(&list, c->hosts, c->host_count, alone, err));
  manta_status st = add_all(t, &list, c->host_timeout_s > 0 ? c->host_timeout_s : TIMEOUT_S, err);
  manta__engine_hosts_fini(&list);
  return st;
}

manta_status manta__hostlist_take(manta_trainer *t, const manta_trainer_config *c, manta_error *err)
{
  MANTA_TRY(take(t, c, err));
  if (t->hosts == 1 && !manta__link_remote(t->host[0].link))
    return MANTA_OK;
  t->door = manta__link_use(manta__engine_here(), err);
  return t->door ? MANTA_OK : MANTA_ENOMEM;
}

void manta__hostlist_drop(manta_trainer *t)
{
  manta__link_drop(t->door);
  t->door = NULL;
  for (int i = 0; i < t->hosts; i++) {
    manta__link_drop(t->host[i].link);
    manta__free(t->host[i].address);
  }
  manta__muster_end(t);
  t->hosts = 0;
}
