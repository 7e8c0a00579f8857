/* SPDX-License-Identifier: Apache-2.0 */
#include "train/save.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "ckpt/ckdir.h"
#include "group/proto.h"
#include "sys/file.h"
#include "train/shard.h"

#define gate        manta__session_gate
#define SLOT_WAIT_S 600.0 /* for a free slot: the disk is that slow, or the agent is gone */

struct manta__saves manta__saved;
#define saved manta__saved

// --- slots ---------------------------------------------------------------------------------------

void manta__save_ready(bool warm)
{
  if (!saved.ready) {
    manta__slots_init(&saved.slots);
    manta__slots_init_one(&saved.own);
    saved.ready = true;
  }
  if (warm)
    manta__slots_warm_adopted(&saved.slots);
}

void manta__save_take_slot(int index, int fd)
{
  manta__save_ready(false);
  manta__slots_adopt(&saved.slots, index, fd);
}

void manta__save_end(void)
{
  if (!saved.ready)
    return;
  manta__slots_fini(&saved.slots);
  manta__slots_fini(&saved.own);
}

void manta__save_let_go(manta_session *s)
{
  s->let_go |= s->job->origin.count > 0;
  manta__origin_close(&s->job->origin);
}

// --- a state ------------------------------------------------------------------------------------

static manta_status check_score(const manta_session *s, manta_error *err)
{
  if (!manta__session_lacks_score(s))
    return MANTA_OK;
  return manta_error_set(err, MANTA_EINVAL,
                         "checkpoints are kept by the score \"%s\", which no report before this "
                         "save has as a number\nhint: report it before the first save, or name "
                         "another metric (checkpoint_score_attribute)",
                         s->score_key);
}

static manta_status stop_waiting(void *ctx, manta_error *err)
{
  manta_session *s = ctx;
  manta_session_heartbeat(s);
  return manta__ctl_check(s->job->ctl, err);
}

static manta_status hand_over(manta_session *s, int index, const struct manta__snapshot *snap,
                              uint64_t ring_pos, manta_error *err)
{
  struct manta__slot *slot = &saved.slots.slot[index];
  struct manta__snap_msg body = {.slot = index,
                                 .iteration = snap->iteration,
                                 .capacity = (int64_t)slot->meta->capacity,
                                 .ring_pos = ring_pos,
                                 .saves = s->saves};
  struct manta__msg m = {.kind = MANTA__M_SNAP,
                         .id = snap->id,
                         .data = &body,
                         .len = sizeof body,
                         .fd = {slot->fd},
                         .fds = slot->announced ? 0 : 1};
  MANTA_TRY(manta__worker_send(s->job->worker, &m, err));
  slot->announced = true;
  return MANTA_OK;
}

// What goes with a state, of one moment: count, score and rows so far. `numbered`: it has a place
// in the sequence.
static manta_status describe(manta_session *s, bool numbered, struct manta__snapshot *out,
                             uint64_t *ring_pos, manta_error *err)
{
  MANTA_TRY(manta__gate_enter_also(&gate, &gate.row, err));
  *out = (struct manta__snapshot){.id = numbered ? manta__session_next_id(s) : s->job->id,
                                  .iteration = manta_session_iteration(s) + s->ahead,
                                  .world = s->job->world,
                                  .has_score = s->has_score,
                                  .score = s->score};
  *ring_pos = s->job->worker->ring.pos + s->ahead; // one byte of the next row stands for all of it
  manta__mutex_leave(&gate.row);
  return MANTA_OK;
}

static manta_status save(manta_session *s, const manta_state *state, manta_fill_fn fill,
                         void *fill_ctx, manta_error *err)
{
  struct manta__snapshot snap;
  uint64_t ring_pos;
  int index;
  MANTA_TRY(describe(s, true, &snap, &ring_pos, err));
  snap.files = s->files;
  snap.directory = s->directory != 0;
  bool late = snap.directory && snap.iteration != s->directory;
  s->directory = 0;
  if (late)
    return manta_error_set(err, MANTA_EINVAL,
                           "a directory belongs to the report that follows it and to the save after"
                           " that one");
  manta_value positions = {0};
  MANTA_TRY(manta__loaders_save(&s->loaders, &positions, err));
  snap.extra[MANTA__EXTRA_DATA] = &positions;
  snap.fill = fill;
  snap.fill_ctx = fill_ctx;
  s->files = 0;
  atomic_store(&s->job->cell->stalled, 1);
  manta_status st = manta__slots_save(&saved.slots, state, &snap, manta__deadline(SLOT_WAIT_S),
                                      stop_waiting, s, &index, err);
  manta_session_heartbeat(s);
  atomic_store(&s->job->cell->stalled, 0);
  manta_value_fini(&positions);
  if (st == MANTA_OK)
    st = hand_over(s, index, &snap, ring_pos, err);
  if (st == MANTA_OK)
    s->saved_slot = index;
  return st;
}

// This rank's part of what rank 0 saved, so that it can be loaded without asking anybody.
static manta_status keep(manta_session *s, const manta_state *part, manta_error *err)
{
  struct manta__snapshot snap;
  uint64_t ring_pos;
  int index;
  MANTA_TRY(describe(s, false, &snap, &ring_pos, err));
  s->kept = false;
  if (saved.own.slot[0].meta)
    manta__slot_move(saved.own.slot[0].meta, MANTA__SLOT_READY, MANTA__SLOT_FREE);
  MANTA_TRY(manta__slots_save(&saved.own, part, &snap, manta__deadline(SLOT_WAIT_S), NULL, NULL,
                              &index, err));
  s->kept = true;
  return MANTA_OK;
}

static manta_status save_part(void *session, const manta_state *state, manta_fill_fn fill,
                              void *fill_ctx, manta_error *err)
{
  manta_session *s = session;
  return s->job->id.rank == 0 ? save(s, state, fill, fill_ctx, err) : keep(s, state, err);
}

static manta_status begin_save(manta_session *s, manta_error *err)
{
  MANTA_TRY(manta__session_in_run(s, "save", err));
  MANTA_TRY(manta__ctl_check(s->job->ctl, err));
  MANTA_TRY(check_score(s, err));
  manta_session_heartbeat(s);
  s->saves++;
  return MANTA_OK;
}

// Whether this call may say that the run was asked to stop: one ahead leaves that to its report.
static bool tells_of_notice(manta_session *s)
{
  bool ahead = atomic_exchange(&s->ahead, false);
  s->owed = ahead ? manta_session_iteration(s) + 1 : 0;
  return !ahead && manta_session_preempted(s);
}

// Other ranks may wait for rank 0 to have saved as often as they: a save that failed counts.
static manta_status end_save(manta_session *s, manta_status st, manta_error *err)
{
  struct manta__job *job = s->job;
  struct manta__snap_msg none = {.slot = -1, .saves = s->saves};
  struct manta__msg m = {.kind = MANTA__M_SNAP, .id = job->id, .data = &none, .len = sizeof none};
  if (st == MANTA_OK)
    manta__save_let_go(s); // from now on there is something newer
  if (job->id.rank == 0) {
    if (st < 0 && manta__ctl_check(job->ctl, NULL) == MANTA_OK)
      manta__worker_send(job->worker, &m, NULL);
    atomic_store(&job->ctl->saves, s->saves);
  }
  bool tell = tells_of_notice(s);
  return st == MANTA_OK && tell ? manta__session_asked_to_stop(err) : st;
}

// In `save`.
static manta_status save_whole(manta_session *s, const manta_state *state, manta_fill_fn fill,
                               void *ctx, manta_error *err)
{
  MANTA_TRY(begin_save(s, err));
  s->kept = false;
  return end_save(s, s->job->id.rank == 0 ? save(s, state, fill, ctx, err) : MANTA_OK, err);
}

manta_status manta_session_save_by(manta_session *s, const manta_state *state, manta_fill_fn fill,
                                   void *ctx, manta_error *err)
{
  MANTA_TRY(manta__gate_enter(&gate, &gate.save, "save", err));
  manta_status st = save_whole(s, state, fill, ctx, err);
  manta__mutex_leave(&gate.save);
  return st;
}

void manta_session_ahead(manta_session *s, const manta_value *row)
{
  s->ahead = s->in_run;
  if (!row || !s->score_key || manta__gate_enter(&gate, &gate.row, "save", NULL) < 0)
    return;
  manta__session_note_score(s, row);
  manta__mutex_leave(&gate.row);
}

manta_status manta_session_save(manta_session *s, const manta_state *state, manta_error *err)
{
  return manta_session_save_by(s, state, NULL, NULL, err);
}

manta_status manta_session_save_sharded(manta_session *s, const manta_state *state,
                                        manta_error *err)
{
  MANTA_TRY(manta__gate_enter(&gate, &gate.save, "save", err));
  manta_status st = begin_save(s, err);
  if (st == MANTA_OK)
    st = end_save(s, manta__shard_save(manta_session_comm(s), state, save_part, s, err), err);
  manta__mutex_leave(&gate.save);
  return st;
}

// --- files beside it ----------------------------------------------------------------------------

// Its number is not above that of the save that follows: a later checkpoint sweeps what is left.
static manta_status make_files(manta_session *s, int rundir, const char *path, manta_error *err)
{
  char name[48];
  int dir;
  MANTA_TRY(manta__gate_enter_also(&gate, &gate.row, err));
  uint64_t number = s->job->worker->seq + 1;
  manta__mutex_leave(&gate.row);
  MANTA_TRY(manta__dir_makeat(rundir, "checkpoints", &dir, err));
  manta__ckdir_files_name(name, s->job->id.attempt, number);
  manta__ckdir_remove(dir, name); // of a call before this one, without a save between
  int rc = mkdirat(dir, name, 0700);
  close(dir);
  if (rc < 0)
    return manta_error_set(err, MANTA_EIO, "make the directory %s: %m", name);
  int n = snprintf(s->files_dir, sizeof s->files_dir, "%s/checkpoints/%s", path, name);
  if (n < 0 || (size_t)n >= sizeof s->files_dir)
    return manta_error_set(err, MANTA_ETOOBIG, "the path of the run's directory is too long");
  s->files = number;
  return MANTA_OK;
}

// In `save`.
static manta_status find_files(manta_session *s, manta_error *err)
{
  const char *path = manta_session_run_dir(s);
  if (!s->in_run || s->job->id.rank != 0 || !path)
    return manta_error_set(err, MANTA_ESTATE, "only rank 0 of a run has files beside its state");
  int rundir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (rundir < 0)
    return manta_error_set(err, MANTA_EUNSUPPORTED, "this host has no directory %s: %m", path);
  manta_status st = make_files(s, rundir, path, err);
  close(rundir);
  return st;
}

manta_status manta_session_files(manta_session *s, const char **dir, manta_error *err)
{
  MANTA_TRY(manta__gate_enter(&gate, &gate.save, "files", err));
  manta_status st = find_files(s, err);
  manta__mutex_leave(&gate.save);
  if (st == MANTA_OK)
    *dir = s->files_dir;
  return st;
}

// --- a directory of the user's -------------------------------------------------------------------

// In `save`.
static manta_status find_directory(manta_session *s, manta_error *err)
{
  const char *path = manta_session_run_dir(s);
  char name[48];
  int rundir, dir;
  MANTA_TRY(manta__session_in_run(s, "directory", err));
  if (!path || (rundir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
    return manta_error_set(err, MANTA_EUNSUPPORTED,
                           "this host has no directory %s: %m\n"
                           "hint: checkpoints that are directories need a logdir that all hosts "
                           "have mounted",
                           path ? path : "of the run");
  manta_status st = manta__dir_makeat(rundir, "checkpoints", &dir, err);
  close(rundir);
  MANTA_TRY(st);
  close(dir);
  s->directory = manta_session_iteration(s) + 1;
  manta__ckdir_user_name(name, s->job->id.attempt, s->directory);
  int n = snprintf(s->directory_path, sizeof s->directory_path, "%s/checkpoints/%s", path, name);
  if (n < 0 || (size_t)n >= sizeof s->directory_path)
    return manta_error_set(err, MANTA_ETOOBIG, "the path of the run's directory is too long");
  return MANTA_OK;
}

manta_status manta_session_directory(manta_session *s, const char **dir, manta_error *err)
{
  MANTA_TRY(manta__gate_enter(&gate, &gate.save, "directory", err));
  manta_status st = find_directory(s, err);
  manta__mutex_leave(&gate.save);
  if (st == MANTA_OK)
    *dir = s->directory_path;
  return st;
}
