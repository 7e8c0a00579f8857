/* SPDX-License-Identifier: Apache-2.0 */
#include "train/light.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/ckdir.h"
#include "ckpt/slot.h"
#include "sys/file.h"
#include "sys/shm.h"
#include "sys/sock.h"
#include "sys/tree.h"
#include "train/driver.h"
#include "train/run.h"
#include "train/trainer.h"

#define drv           manta__drv
#define CAPTURE_TRIES 3

static void free_departed(manta_run *r)
{
  for (struct manta__peer *p; (p = r->departed);) {
    r->departed = p->next;
    manta__ring_release(&p->ring);
    manta__peer_free(p);
  }
}

void manta__light_answer(manta_run *r, bool pause)
{
  pthread_mutex_lock(&drv.lock);
  bool all = !r->queue && !r->batch; // what was read was given out
  for (struct manta__peer *p = r->trainer ? r->trainer->peers : NULL; p; p = p->next)
    if (p->ring.h && (all || r->lockstep)) {
      atomic_store(&p->ring.h->asked, pause);
      manta__ring_release(&p->ring);
    }
  if (all || r->lockstep)
    free_departed(r);
  pthread_mutex_unlock(&drv.lock);
}

void manta__light_part(manta_run *r, struct manta__peer *p)
{
  if (!p->ring.h || manta__ring_tail(&p->ring) == p->ring.pos) {
    manta__peer_free(p);
    return;
  }
  p->next = r->departed;
  r->departed = p;
}

void manta__light_dealt(manta_run *r)
{
  pthread_mutex_lock(&drv.lock);
  r->dealt = true;
  if (r->finishing)
    manta__light_finish(r);
  pthread_mutex_unlock(&drv.lock);
}

void manta__light_finish(manta_run *r)
{
  for (struct manta__peer *p = r->dealt && r->trainer ? r->trainer->peers : NULL; p; p = p->next)
    if (p->ring.h)
      manta__ring_release(&p->ring);
  if (r->dealt)
    free_departed(r);
}

void manta__light_free(manta_run *r)
{
  free_departed(r);
}

bool manta__light_more(manta_run *r)
{
  pthread_mutex_lock(&drv.lock);
  bool more = r->queue || r->batch;
  pthread_mutex_unlock(&drv.lock);
  return more;
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

// The user's directory that goes with a capture, which its run deletes when it has newer ones.
// False: that has happened.
static bool hold_files(const manta_run *r, int fd, int into)
{
  void *p = NULL;
  size_t bytes;
  char name[48];
  int from = -1, to = -1;
  if (manta__shm_map(fd, &p, &bytes, NULL) < 0)
    return false;
  const struct manta__slot_meta *m = p;
  bool good = m->directory == 0;
  manta__ckdir_user_name(name, m->id.attempt, m->iteration);
  manta__shm_unmap(p, bytes);
  if (good)
    return true;
  manta__tree_remove(into, MANTA__TAKEN, NULL);
  from = openat(r->rundir, "checkpoints", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  good = from >= 0 && manta__dir_makeat(into, MANTA__TAKEN, &to, NULL) == MANTA_OK &&
         manta__tree_link(from, name, to);
  manta__fd_close(&from);
  manta__fd_close(&to);
  return good;
}

manta_status manta__light_capture(manta_run *r, int into, int *fd, int64_t *iteration,
                                  manta_error *err)
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
    if (good && (hold_files(r, *fd, into) || i == CAPTURE_TRIES - 1))
      return MANTA_OK;
    manta__fd_close(fd);
  }
  return why.status < 0 ? manta_error_set(err, why.status, "%s", why.message) : MANTA_OK;
}
