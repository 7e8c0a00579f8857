/* SPDX-License-Identifier: Apache-2.0 */
#include "train/session.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <manta/manta.h>

#include "base/clock.h"
#include "base/knob.h"
#include "base/log.h"
#include "ckpt/ckdir.h"
#include "ckpt/slot.h"
#include "ckpt/store.h"
#include "group/proto.h"
#include "sys/file.h"
#include "sys/shm.h"
#include "sys/sock.h"
#include "train/func.h"
#include "train/shard.h"

#define gate        manta__session_gate
#define SLOT_WAIT_S 600.0 /* for a free slot: the disk is that slow, or the agent is gone */

// Slots outlive the session: the next attempt in this process finds them warm.
static struct manta__slots slots, own;
static bool slots_ready;
// A thread may come when the function has returned: what it finds is still there, and shut.
static manta_session only;
struct manta__gate manta__session_gate = MANTA__GATE_INIT;
static manta_session *_Atomic current;

manta_session *manta_session_current(void)
{
  return current;
}

struct manta__job *manta__session_job(const manta_session *s)
{
  return s->job;
}

struct manta__comms *manta__session_comms(manta_session *s)
{
  return &s->comms;
}

// --- who am I ------------------------------------------------------------------------------------

int manta_session_rank(const manta_session *s)
{
  return s->job->id.rank;
}
manta_status manta_session_address(manta_session *s, const char **address, const char **interface,
                                   manta_error *err)
{
  const struct manta__iface *face;
  MANTA_TRY(manta__comms_face(&s->comms, &face, err));
  *address = face->address;
  *interface = face->name;
  return MANTA_OK;
}
int64_t manta_session_iteration(const manta_session *s)
{
  return atomic_load_explicit(&s->iteration, memory_order_relaxed);
}
const manta_value *manta_session_config(const manta_session *s)
{
  return s->config;
}

// --- signs of life -------------------------------------------------------------------------------

void manta_session_heartbeat(manta_session *s)
{
  atomic_store_explicit(&s->job->cell->beat_ns, manta__now(), memory_order_relaxed);
}

manta_status manta_session_check(const manta_session *s, manta_error *err)
{
  return manta__ctl_check(s->job->ctl, err);
}

bool manta_session_preempted(const manta_session *s)
{
  return atomic_load_explicit(&s->job->ctl->notice, memory_order_relaxed) != 0;
}

manta_status manta__session_in_run(const manta_session *s, const char *what, manta_error *err)
{
  return s->in_run ? MANTA_OK : manta_error_set(err, MANTA_ESTATE, "%s outside of a run", what);
}

struct manta__ident manta__session_next_id(const manta_session *s)
{
  struct manta__ident id = s->job->id;
  id.seq = ++s->job->worker->seq;
  return id;
}

manta_status manta__session_asked_to_stop(manta_error *err)
{
  return manta_error_set(err, MANTA_EPREEMPTED, "asked to stop");
}

// Else retention would keep by a score that never comes. Before the first report there is none.
static bool lacks_score(const manta_session *s)
{
  return s->score_key && !s->score_known && s->job->id.rank == 0 && s->reported;
}

static manta_status check_score(const manta_session *s, manta_error *err)
{
  if (!lacks_score(s))
    return MANTA_OK;
  return manta_error_set(err, MANTA_EINVAL,
                         "checkpoints are kept by the score \"%s\", which no report before this "
                         "save has as a number\nhint: report it before the first save, or name "
                         "another metric (checkpoint_score_attribute)",
                         s->score_key);
}

// --- checkpoints ---------------------------------------------------------------------------------

static manta_status stop_waiting(void *ctx, manta_error *err)
{
  manta_session *s = ctx;
  manta_session_heartbeat(s);
  return manta__ctl_check(s->job->ctl, err);
}

static manta_status hand_over(manta_session *s, int index, const struct manta__snapshot *snap,
                              uint64_t ring_pos, manta_error *err)
{
  struct manta__slot *slot = &slots.slot[index];
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
                                  .iteration = manta_session_iteration(s),
                                  .world = s->job->world,
                                  .has_score = s->has_score,
                                  .score = s->score};
  *ring_pos = s->job->worker->ring.pos;
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
  snap.fill = fill;
  snap.fill_ctx = fill_ctx;
  s->files = 0;
  atomic_store(&s->job->cell->stalled, 1);
  manta_status st = manta__slots_save(&slots, state, &snap, manta__deadline(SLOT_WAIT_S),
                                      stop_waiting, s, &index, err);
  manta_session_heartbeat(s);
  atomic_store(&s->job->cell->stalled, 0);
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
  if (own.slot[0].meta)
    manta__slot_move(own.slot[0].meta, MANTA__SLOT_READY, MANTA__SLOT_FREE);
  MANTA_TRY(
      manta__slots_save(&own, part, &snap, manta__deadline(SLOT_WAIT_S), NULL, NULL, &index, err));
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

static void let_go(manta_session *s)
{
  s->let_go |= s->job->origin.count > 0;
  manta__origin_close(&s->job->origin);
}

// Other ranks may wait for rank 0 to have saved as often as they: a save that failed counts.
static manta_status end_save(manta_session *s, manta_status st, manta_error *err)
{
  struct manta__job *job = s->job;
  struct manta__snap_msg none = {.slot = -1, .saves = s->saves};
  struct manta__msg m = {.kind = MANTA__M_SNAP, .id = job->id, .data = &none, .len = sizeof none};
  if (st == MANTA_OK)
    let_go(s); // from now on there is something newer
  if (job->id.rank == 0) {
    if (st < 0 && manta__ctl_check(job->ctl, NULL) == MANTA_OK)
      manta__worker_send(job->worker, &m, NULL);
    atomic_store(&job->ctl->saves, s->saves);
  }
  return st == MANTA_OK && manta_session_preempted(s) ? manta__session_asked_to_stop(err) : st;
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
  const char *path = manta_value_as_string(manta_value_get(&s->job->spec, "dir"), NULL);
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

// A slot of ours is filled again by the third save from now: give a copy of its own.
static manta_status load_saved(const manta_session *s, manta_checkpoint **out, manta_error *err)
{
  const struct manta__slot *from = &slots.slot[s->saved_slot];
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
  manta__slot_move(own.slot[0].meta, MANTA__SLOT_READY, MANTA__SLOT_RETIRED);
  return manta__checkpoint_from_fd(out, own.slot[0].fd, false, err);
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
  let_go(s);
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

// --- collectives ---------------------------------------------------------------------------------

manta_comm *manta_session_comm(manta_session *s)
{
  return manta__comms_get(&s->comms);
}

// --- a job ---------------------------------------------------------------------------------------

static struct manta__ctl *notice_ctl;
static pid_t notice_pid;

// A notice to this process alone counts for the run. A forked child of ours must not speak for it.
static void on_sigterm(int sig)
{
  struct manta__ctl *c = notice_ctl;
  if (c && getpid() == notice_pid)
    atomic_store(&c->notice, 1);
  else
    _exit(128 + sig);
}

static void take_notices(struct manta__ctl *ctl)
{
  struct sigaction now, ours = {.sa_handler = on_sigterm, .sa_flags = SA_RESTART};
  notice_ctl = ctl;
  notice_pid = getpid();
  if (ctl && sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
    sigaction(SIGTERM, &ours, NULL);
}

// Every rank counts on from the checkpoint that the attempt begins from.
static manta_status begin_attempt(manta_session *s, manta_error *err)
{
  manta_checkpoint *c;
  s->iteration = 0;
  s->saved_slot = -1;
  s->saves = 0;
  s->score_known = s->reported = false;
  s->loaded = s->let_go = s->has_score = s->kept = false;
  s->files = 0;
  s->last_report_ns = manta__now();
  if (s->job->origin.count == 0)
    return MANTA_OK;
  MANTA_TRY(manta__origin_load(&c, &s->job->origin, false, err));
  s->iteration = manta_checkpoint_iteration(c);
  manta_checkpoint_close(c);
  return MANTA_OK;
}

static manta_status join_next(manta_session *s, manta_error *err)
{
  manta__comms_leave(&s->comms, true);
  take_notices(NULL);
  MANTA_TRY(manta__worker_rejoin(s->job, err));
  take_notices(s->job->ctl);
  return begin_attempt(s, err);
}

// The next attempt, without leaving the function. Calls of other threads have ended by then.
static manta_status rejoin(void *session, manta_error *err)
{
  manta_session *s = session;
  if (manta__ctl_check(s->job->ctl, NULL) != MANTA_EPEERLOST)
    return manta_error_set(err, MANTA_ESTATE, "no rank is lost");
  manta__gate_shut(&gate, MANTA__GATE_BETWEEN);
  manta_status st = join_next(s, err);
  manta__gate_open(&gate, s->job);
  return st;
}

static void ready_slots(void)
{
  if (slots_ready)
    return;
  manta__slots_init(&slots);
  manta__slots_init_one(&own);
  slots_ready = true;
}

static void take_slot(int index, int fd)
{
  ready_slots();
  manta__slots_adopt(&slots, index, fd);
}

static manta_status begin(manta_session *s, struct manta__job *job, manta_error *err)
{
  *s = (manta_session){.job = job, .no_config = {.type = MANTA_MAP}};
  s->comms = (struct manta__comms){.job = job, .rejoin = rejoin, .session = s};
  const manta_value *config = manta_value_get(&job->spec, "config");
  s->config = config && config->type == MANTA_MAP ? config : &s->no_config;
  s->in_run = manta_value_as_bool(manta_value_get(&job->spec, "in_run"), true);
  s->score_key = manta_value_as_string(manta_value_get(&job->spec, "score"), NULL);
  s->detailed = manta__knob_bool(MANTA__KNOB_DETAILED_METRICS);
  gethostname(s->host, sizeof s->host - 1);
  s->began_ns = manta__now();
  ready_slots();
  if (s->in_run)
    manta__slots_warm_adopted(&slots);
  return begin_attempt(s, err);
}

static manta_status run_job(struct manta__job *job, manta_value *result, manta_error *err)
{
  manta_session *s = &only;
  manta_train_fn fn;
  MANTA_TRY(manta__func_find(&fn, &job->spec, err));
  MANTA_TRY(begin(s, job, err));
  if (job->id.rank != 0 && manta_value_as_bool(manta_value_get(&job->spec, "single"), false))
    return MANTA_OK;
  take_notices(job->ctl);
  manta__gate_open(&gate, job);
  current = s;
  manta_status st = fn(s, result, err);
  current = NULL;
  manta_session_settle(s);
  if (st == MANTA_OK && lacks_score(s))
    manta__warn("no report has the score \"%s\", by which checkpoints were to be kept",
                s->score_key);
  manta__comms_leave(&s->comms, st < 0);
  take_notices(NULL);
  if (st < 0 && err->message[0] == 0)
    manta_error_set(err, st, "the train function returned %s: %s", manta_status_name(st),
                    manta_status_text(st));
  return st;
}

void manta_session_settle(manta_session *s)
{
  manta__gate_shut(&gate, MANTA__GATE_SHUT);
}

static void end(void)
{
  if (!slots_ready)
    return;
  manta__slots_fini(&slots);
  manta__slots_fini(&own);
}

const struct manta__job_ops manta__session_ops = {
    .run = run_job, .take_slot = take_slot, .end = end};
