/* SPDX-License-Identifier: Apache-2.0 */
#include "train/light.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/slot.h"
#include "sys/shm.h"
#include "train/driver.h"
#include "train/run.h"
#include "train/trainer.h"

#define drv           manta__drv
#define CAPTURE_TRIES 3

void manta__light_answer(manta_run *r)
{
  pthread_mutex_lock(&drv.lock);
  bool all = !r->queue && !r->batch; // what was read was given out
  for (struct manta__peer *p = r->trainer ? r->trainer->peers : NULL; p; p = p->next)
    if (p->ring.h && (all || r->lockstep))
      manta__ring_release(&p->ring);
  pthread_mutex_unlock(&drv.lock);
}

int64_t manta__light_saved(manta_run *r)
{
  pthread_mutex_lock(&drv.lock);
  const manta_trainer *t = r->trainer;
  int64_t at = t && t->newest.fd >= 0 ? t->newest.iteration : 0;
  pthread_mutex_unlock(&drv.lock);
  return at;
}

static bool whole(const struct manta__slot_meta *m)
{
  uint32_t state = atomic_load_explicit(&m->state, memory_order_acquire);
  return state == MANTA__SLOT_READY || state == MANTA__SLOT_WRITING || state == MANTA__SLOT_RETIRED;
}

// False: its worker has filled it again meanwhile; there is a newer one then.
static bool copy_slot(int from, int *fd, int64_t *iteration, manta_error *err)
{
  void *p = NULL, *q = NULL;
  size_t bytes, copied;
  bool good = false;
  if (manta__shm_map(from, &p, &bytes, err) < 0)
    return false;
  struct manta__slot_meta *m = p;
  uint64_t seq = m->id.seq;
  if (whole(m) && manta__shm_create("manta-capture", bytes, fd, err) == MANTA_OK &&
      manta__shm_map(*fd, &q, &copied, err) == MANTA_OK) {
    memcpy(q, p, bytes);
    good = whole(m) && m->id.seq == seq;
    *iteration = ((struct manta__slot_meta *)q)->iteration;
    atomic_store(&((struct manta__slot_meta *)q)->state, MANTA__SLOT_RETIRED);
    manta__shm_unmap(q, copied);
  }
  manta__shm_unmap(p, bytes);
  if (!good && *fd >= 0) {
    close(*fd);
    *fd = -1;
  }
  return good;
}

manta_status manta__light_capture(manta_run *r, int *fd, int64_t *iteration, manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  *fd = -1;
  for (int i = 0; i < CAPTURE_TRIES; i++) {
    pthread_mutex_lock(&drv.lock);
    int newest = r->trainer ? r->trainer->newest.fd : -1;
    int own = newest >= 0 ? fcntl(newest, F_DUPFD_CLOEXEC, 3) : -1;
    pthread_mutex_unlock(&drv.lock);
    if (own < 0)
      return MANTA_OK;
    bool good = copy_slot(own, fd, iteration, &why);
    close(own);
    if (good)
      return MANTA_OK;
  }
  return why.status < 0 ? manta_error_set(err, why.status, "%s", why.message) : MANTA_OK;
}
