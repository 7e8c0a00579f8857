/* SPDX-License-Identifier: Apache-2.0
 *
 * train/load.c - what manta_session_load gives: what this rank saved last, rank 0's newest, or what
 * the attempt began from.
 */
#include <string.h>
#include <unistd.h>

#include "ckpt/store.h"
#include "sys/shm.h"
#include "train/save.h"

#define gate manta__session_gate

// A slot of ours is filled again by the third save from now: give a copy of its own.
static manta_status load_saved(const manta_session *s, manta_checkpoint **out, manta_error *err)
{
  const struct manta__slot *from = &manta__saved.slots.slot[s->saved_slot];
  void *p;
  size_t bytes;
  int fd;
  MANTA_TRY(manta__shm_create("manta-load", (size_t)from->meta->capacity, &fd, err));
  manta_status st = manta__shm_map(fd, &p, &bytes, err);
  if (st == MANTA_OK) {
    memcpy(p, from->meta, bytes);
    atomic_store(&((struct manta__slot_meta *)p)->state, MANTA__SLOT_RETIRED);
    manta__shm_unmap(p, bytes);
    st = manta__checkpoint_from_fd(out, fd, false, err);
  }
  close(fd);
  return st;
}

// It is mapped as it is: the next part goes into another slot.
static manta_status load_kept(manta_checkpoint **out, manta_error *err)
{
  manta__slot_move(manta__saved.own.slot[0].meta, MANTA__SLOT_READY, MANTA__SLOT_RETIRED);
  return manta__checkpoint_from_fd(out, manta__saved.own.slot[0].fd, false, err);
}

static manta_status load_origin(const manta_session *s, manta_checkpoint **out, manta_error *err)
{
  const struct manta__origin *o = &s->job->origin;
  if (s->let_go)
    return manta_error_set(err, MANTA_ESTATE, "rank 0 has saved nothing that could be loaded");
  return o->count > 0 ? manta__origin_load(out, o, false, err) : MANTA_OK;
}

// Rank 0's newest: at least as many saves as this rank has made, and as rank 0 is known to have.
static manta_status load_newest(manta_session *s, manta_checkpoint **out, manta_error *err)
{
  struct manta__job *job = s->job;
  uint64_t done = atomic_load(&job->ctl->saves), least = done > s->saves ? done : s->saves;
  int fd;
  if (s->kept && done <= s->saves)
    return load_kept(out, err);
  if (least == 0 && job->hosts == 1)
    return load_origin(s, out, err);
  MANTA_TRY(manta__worker_fetch(job, least, &fd, err));
  if (fd < 0)
    return load_origin(s, out, err);
  manta__save_let_go(s);
  manta_status st = manta__checkpoint_from_fd(out, fd, false, err);
  close(fd);
  return st;
}

// A rank's first load, before its first save, is of what the attempt began from, however late. In
// `save`.
static manta_status load(manta_session *s, manta_checkpoint **out, manta_error *err)
{
  bool first = !s->loaded && s->saves == 0;
  s->loaded = true;
  if (s->saved_slot >= 0)
    return load_saved(s, out, err);
  if (first || s->job->id.rank == 0 || !s->in_run)
    return load_origin(s, out, err);
  return load_newest(s, out, err);
}

manta_status manta_session_load(manta_session *s, manta_checkpoint **out, manta_error *err)
{
  *out = NULL;
  MANTA_TRY(manta__gate_enter(&gate, &gate.save, "load", err));
  manta_status st = load(s, out, err);
  manta__mutex_leave(&gate.save);
  return st;
}
