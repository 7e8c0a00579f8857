/* SPDX-License-Identifier: Apache-2.0 */
#include "train/recall.h"

#include <string.h>

#include <manta/session.h>

#include "base/alloc.h"
#include "base/log.h"
#include "ckpt/random.h"
#include "train/run.h"
#include "train/say.h"
#include "train/trainer.h"

void manta__recall_take(manta_run *r, const struct manta__msg *m)
{
  struct manta__random_msg head;
  manta_error err = MANTA_ERROR_INIT;
  if (r->rundir < 0 || m->len < sizeof head || m->len > sizeof head + MANTA_RANDOM_MAX)
    return;
  memcpy(&head, m->data, sizeof head);
  if (manta__random_put(r->rundir, m->id.attempt, head.iteration, m->id.rank,
                        (const uint8_t *)m->data + sizeof head, m->len - sizeof head, &err) < 0)
    manta__run_warn(r->trainer, "random states of rank %d are not kept: %s", m->id.rank,
                    err.message);
}

void manta__recall_answer(manta_run *r, struct manta__link *n, const struct manta__msg *m)
{
  struct manta__recalled_msg head = {.owner = -1};
  manta_error err = MANTA_ERROR_INIT;
  int64_t iteration;
  void *bytes = NULL;
  size_t len = 0;
  if (!manta__msg_copy(m, &iteration, sizeof iteration))
    return;
  if (r->rundir >= 0)
    head.owner = manta__random_get(r->rundir, m->id.attempt, iteration, m->id.rank, &bytes, &len);
  uint8_t *p = manta__malloc(sizeof head + len);
  if (p) {
    memcpy(p, &head, sizeof head);
    if (len)
      memcpy(p + sizeof head, bytes, len);
    struct manta__msg out = {.kind = MANTA__M_RECALLED,
                             .group = r->trainer->group,
                             .id = m->id,
                             .call = m->call,
                             .data = p,
                             .len = sizeof head + len};
    if (manta__link_send(n, &out, NULL, &err) < 0)
      manta__warn("%s", err.message);
  }
  manta__free(p);
  manta_free(bytes);
}
