/* SPDX-License-Identifier: Apache-2.0 */
#include "train/session.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <manta/manta.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pack.h"
#include "ckpt/ckdir.h"
#include "ckpt/slot.h"
#include "ckpt/store.h"
#include "group/proto.h"
#include "sys/file.h"
#include "sys/shm.h"
#include "sys/sock.h"
#include "train/comms.h"
#include "train/func.h"
#include "train/shard.h"

#define WAIT_STEP_NS  20000000 /* how often a waiting call looks at the abort word */
#define SLOT_WAIT_S   600.0    /* for a free slot: the disk is that slow, or the agent is gone */
#define AUTO_FIELDS   3
#define AUTO_BYTES    96
#define DETAIL_FIELDS 5
#define DETAIL_BYTES  512

struct manta_session {
  struct manta__job *job;
  const manta_value *config;
  manta_value no_config;
  bool in_run; // false: an execute call, which neither reports nor saves
  int64_t iteration;
  int64_t last_report_ns, began_ns;
  const char *score_key; // NULL: checkpoints have no score
  bool has_score;
  double score;
  int saved_slot; // newest of this attempt, or -1
  bool kept;      // on other ranks than 0: `own` has this rank's part of it
  bool saves;     // save was called, on whatever rank
  uint64_t files; // number of the directory whose files go with the next save, or 0
  char files_dir[PATH_MAX];
  struct manta__comms comms;
  bool detailed;
  char host[256];
};

// Slots outlive the session: the next attempt in this process finds them warm.
static struct manta__slots slots, own;
static bool slots_ready;
static manta_session *current;

manta_session *manta_session_current(void)
{
  return current;
}

struct manta__job *manta__session_job(const manta_session *s)
{
  return s->job;
}

// --- who am I ------------------------------------------------------------------------------------

int manta_session_rank(const manta_session *s)
{
  return s->job->id.rank;
}
int manta_session_local_rank(const manta_session *s)
{
  return s->job->local_rank;
}
int manta_session_world_size(const manta_session *s)
{
  return s->job->world;
}
int manta_session_local_world_size(const manta_session *s)
{
  return s->job->local_world;
}
int manta_session_node_rank(const manta_session *s)
{
  return s->job->node_rank;
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
int manta_session_attempt(const manta_session *s)
{
  return (int)s->job->id.attempt;
}
int64_t manta_session_iteration(const manta_session *s)
{
  return s->iteration;
}
const manta_value *manta_session_config(const manta_session *s)
{
  return s->config;
}
int64_t manta_session_config_int(const manta_session *s, const char *key, int64_t dflt)
{
  return manta_value_as_int(manta_value_get(s->config, key), dflt);
}
double manta_session_config_real(const manta_session *s, const char *key, double dflt)
{
  return manta_value_as_real(manta_value_get(s->config, key), dflt);
}
bool manta_session_config_bool(const manta_session *s, const char *key, bool dflt)
{
  return manta_value_as_bool(manta_value_get(s->config, key), dflt);
}
const char *manta_session_config_string(const manta_session *s, const char *key, const char *dflt)
{
  return manta_value_as_string(manta_value_get(s->config, key), dflt);
}

const void *manta_session_payload(const manta_session *s, size_t *bytes)
{
  const manta_value *v = manta_value_get(&s->job->spec, "payload");
  bool given = v && v->type == MANTA_BYTES;
  *bytes = given ? v->count : 0;
  return given ? v->u.s : NULL;
}

// --- signs of life -------------------------------------------------------------------------------

// A running median by small steps: it needs no memory and shrugs off outliers.
static void beat(manta_session *s, int64_t now)
{
  struct manta__cell *c = s->job->cell;
  int64_t took = now - atomic_load_explicit(&c->beat_ns, memory_order_relaxed);
  int64_t typical = atomic_load_explicit(&c->step_ns, memory_order_relaxed);
  int64_t move = typical / 16 + 1;
  typical = typical == 0 ? took : typical + (took > typical ? move : -move);
  atomic_store_explicit(&c->step_ns, typical, memory_order_relaxed);
  atomic_store_explicit(&c->beat_ns, now, memory_order_relaxed);
}

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

static manta_status preempted(manta_error *err)
{
  return manta_error_set(err, MANTA_EPREEMPTED, "asked to stop");
}

// --- report --------------------------------------------------------------------------------------

static uint8_t *put_key(uint8_t *p, const char *key)
{
  return manta__pack_string(p, key, (uint32_t)strlen(key));
}

static uint8_t *put_details(uint8_t *p, manta_session *s, int64_t wall, int64_t now)
{
  const char *address, *interface;
  char date[32];
  struct tm tm;
  if (manta_session_address(s, &address, &interface, NULL) < 0)
    address = "127.0.0.1";
  time_t t = (time_t)(wall / 1000000000);
  localtime_r(&t, &tm);
  strftime(date, sizeof date, "%Y-%m-%d_%H-%M-%S", &tm);
  p = manta__pack_string(put_key(p, "_date"), date, (uint32_t)strlen(date));
  p = manta__pack_string(put_key(p, "_hostname"), s->host, (uint32_t)strlen(s->host));
  p = manta__pack_string(put_key(p, "_node_ip"), address, (uint32_t)strlen(address));
  p = manta__pack_int(put_key(p, "_pid"), getpid());
  return manta__pack_real(put_key(p, "_time_total_s"), (double)(now - s->began_ns) / 1e9);
}

static uint8_t *put_row(uint8_t *p, manta_session *s, const manta_value *row, int64_t wall,
                        int64_t now)
{
  p = manta__pack_map(p, row->count + AUTO_FIELDS + (s->detailed ? DETAIL_FIELDS : 0));
  for (uint32_t i = 0; i < row->count; i++) {
    p = put_key(p, row->u.pairs[i].key);
    p = manta__pack_into(p, &row->u.pairs[i].value);
  }
  p = manta__pack_int(put_key(p, "_timestamp"), wall / 1000000000);
  p = manta__pack_real(put_key(p, "_time_this_iter_s"), (double)(now - s->last_report_ns) / 1e9);
  p = manta__pack_int(put_key(p, "_training_iteration"), s->iteration + 1);
  return s->detailed ? put_details(p, s, wall, now) : p;
}

// The driver is slower than we are: wait, with our clock standing still, until it has read some.
static manta_status await_room(manta_session *s, size_t need, uint8_t **out, manta_error *err)
{
  struct manta__ring *ring = &s->job->worker->ring;
  manta_status st = MANTA_OK;
  atomic_store(&s->job->cell->stalled, 1);
  while (!(*out = manta__ring_reserve(ring, need)) &&
         (st = manta__ctl_check(s->job->ctl, err)) == 0)
    manta__ring_wait_room(ring, manta__now() + WAIT_STEP_NS);
  manta_session_heartbeat(s);
  atomic_store(&s->job->cell->stalled, 0);
  return st;
}

static void note_score(manta_session *s, const manta_value *row)
{
  const manta_value *v = manta_value_get(row, s->score_key);
  if (!v)
    return;
  s->score = manta_value_as_real(v, NAN);
  s->has_score = !isnan(s->score);
}

static manta_status check_row(const manta_session *s, const manta_value *row, size_t *need,
                              manta_error *err)
{
  if (!s->in_run || s->job->worker->dead)
    return manta_error_set(err, MANTA_ESTATE, "report outside of a run, or in a forked child");
  if (!row || row->type != MANTA_MAP)
    return manta_error_set(err, MANTA_ETYPE, "a report is a map of metrics");
  size_t n = manta__pack_size(row);
  if (n == 0 || n > MANTA__ROW_MAX)
    return manta_error_set(
        err, MANTA_ETOOBIG,
        "a report of %zu bytes is over the limit of %u\nhint: what is large belongs "
        "into a checkpoint",
        n, MANTA__ROW_MAX);
  *need = n + AUTO_BYTES + (s->detailed ? DETAIL_BYTES : 0);
  return MANTA_OK;
}

manta_status manta_session_report(manta_session *s, const manta_value *row, manta_error *err)
{
  size_t need = 0;
  struct manta__worker *w = s->job->worker;
  MANTA_TRY(check_row(s, row, &need, err));
  MANTA_TRY(manta__ctl_check(s->job->ctl, err));
  uint8_t *at = manta__ring_reserve(&w->ring, need);
  if (!at)
    MANTA_TRY(await_room(s, need, &at, err));
  int64_t now = manta__now(), wall = manta__wall();
  uint8_t *end = put_row(at, s, row, wall, now);
  struct manta__ident id = s->job->id;
  id.seq = ++w->seq;
  s->iteration++;
  s->last_report_ns = now;
  if (manta__ring_commit(&w->ring, (size_t)(end - at), &id, wall, s->iteration)) {
    ssize_t n = write(w->wake, &(uint64_t){1}, 8);
    (void)n; // the counter is full: then it is awake
  }
  beat(s, now);
  if (s->score_key)
    note_score(s, row);
  // Whoever never saves has nothing to wait for after a notice.
  if (manta_session_preempted(s) && !s->saves)
    return preempted(err);
  return MANTA_OK;
}

// --- checkpoints ---------------------------------------------------------------------------------

static manta_status stop_waiting(void *ctx, manta_error *err)
{
  manta_session *s = ctx;
  manta_session_heartbeat(s);
  return manta__ctl_check(s->job->ctl, err);
}

static manta_status hand_over(manta_session *s, int index, uint64_t seq, manta_error *err)
{
  struct manta__worker *w = s->job->worker;
  struct manta__slot *slot = &slots.slot[index];
  struct manta__snap_msg snap = {.slot = index,
                                 .iteration = s->iteration,
                                 .capacity = (int64_t)slot->meta->capacity,
                                 .ring_pos = w->ring.pos};
  struct manta__msg m = {.kind = MANTA__M_SNAP,
                         .id = s->job->id,
                         .data = &snap,
                         .len = sizeof snap,
                         .fd = {slot->fd},
                         .fds = slot->announced ? 0 : 1};
  m.id.seq = seq;
  MANTA_TRY(manta__conn_send(w->conn, &m, err));
  MANTA_TRY(manta__conn_drain(w->conn, manta__deadline(60), err));
  slot->announced = true;
  return MANTA_OK;
}

static struct manta__snapshot describe(const manta_session *s)
{
  return (struct manta__snapshot){.id = s->job->id,
                                  .iteration = s->iteration,
                                  .world = s->job->world,
                                  .has_score = s->has_score,
                                  .score = s->score};
}

static manta_status save(manta_session *s, const manta_state *state, manta_fill_fn fill,
                         void *fill_ctx, manta_error *err)
{
  struct manta__snapshot snap = describe(s);
  int index;
  snap.files = s->files;
  snap.fill = fill;
  snap.fill_ctx = fill_ctx;
  s->files = 0;
  snap.id.seq = ++s->job->worker->seq;
  atomic_store(&s->job->cell->stalled, 1);
  manta_status st = manta__slots_save(&slots, state, &snap, manta__deadline(SLOT_WAIT_S),
                                      stop_waiting, s, &index, err);
  manta_session_heartbeat(s);
  atomic_store(&s->job->cell->stalled, 0);
  if (st == MANTA_OK)
    st = hand_over(s, index, snap.id.seq, err);
  if (st == MANTA_OK)
    s->saved_slot = index;
  return st;
}

// This rank's part of what rank 0 saved, so that it can be loaded without asking anybody.
static manta_status keep(manta_session *s, const manta_state *part, manta_error *err)
{
  struct manta__snapshot snap = describe(s);
  int index;
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
  if (!s->in_run || s->job->worker->dead)
    return manta_error_set(err, MANTA_ESTATE, "save outside of a run, or in a forked child");
  MANTA_TRY(manta__ctl_check(s->job->ctl, err));
  manta_session_heartbeat(s);
  s->saves = true;
  return MANTA_OK;
}

manta_status manta_session_save_by(manta_session *s, const manta_state *state, manta_fill_fn fill,
                                   void *ctx, manta_error *err)
{
  MANTA_TRY(begin_save(s, err));
  if (s->job->id.rank == 0)
    MANTA_TRY(save(s, state, fill, ctx, err));
  return manta_session_preempted(s) ? preempted(err) : MANTA_OK;
}

manta_status manta_session_save(manta_session *s, const manta_state *state, manta_error *err)
{
  return manta_session_save_by(s, state, NULL, NULL, err);
}

manta_status manta_session_save_sharded(manta_session *s, const manta_state *state,
                                        manta_error *err)
{
  MANTA_TRY(begin_save(s, err));
  MANTA_TRY(manta__shard_save(manta_session_comm(s), state, save_part, s, err));
  return manta_session_preempted(s) ? preempted(err) : MANTA_OK;
}

// Its number is not above that of the save that follows: a later checkpoint sweeps what is left.
static manta_status make_files(manta_session *s, int rundir, const char *path, manta_error *err)
{
  char name[48];
  int dir;
  uint64_t number = s->job->worker->seq + 1;
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

manta_status manta_session_files(manta_session *s, const char **dir, manta_error *err)
{
  const char *path = manta_value_as_string(manta_value_get(&s->job->spec, "dir"), NULL);
  if (!s->in_run || s->job->worker->dead || s->job->id.rank != 0 || !path)
    return manta_error_set(err, MANTA_ESTATE, "only rank 0 of a run has files beside its state");
  int rundir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (rundir < 0)
    return manta_error_set(err, MANTA_EUNSUPPORTED, "this host has no directory %s: %m", path);
  manta_status st = make_files(s, rundir, path, err);
  close(rundir);
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

manta_status manta_session_load(manta_session *s, manta_checkpoint **out, manta_error *err)
{
  *out = NULL;
  if (s->saved_slot >= 0)
    return load_saved(s, out, err);
  if (s->kept)
    return load_kept(out, err);
  if (s->job->ckpt_fd < 0)
    return MANTA_OK;
  return manta__checkpoint_from_fd(out, s->job->ckpt_fd, false, err);
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
  s->saves = s->has_score = s->kept = false;
  s->files = 0;
  s->last_report_ns = manta__now();
  if (s->job->ckpt_fd < 0)
    return MANTA_OK;
  MANTA_TRY(manta__checkpoint_from_fd(&c, s->job->ckpt_fd, false, err));
  s->iteration = manta_checkpoint_iteration(c);
  manta_checkpoint_close(c);
  return MANTA_OK;
}

// The next attempt, without leaving the function.
static manta_status rejoin(void *session, manta_error *err)
{
  manta_session *s = session;
  if (manta__ctl_check(s->job->ctl, NULL) != MANTA_EPEERLOST)
    return manta_error_set(err, MANTA_ESTATE, "no rank is lost");
  manta__comms_leave(&s->comms, true);
  take_notices(NULL);
  MANTA_TRY(manta__worker_rejoin(s->job, err));
  take_notices(s->job->ctl);
  return begin_attempt(s, err);
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
  const char *detail = getenv("MANTA_DETAILED_METRICS");
  s->detailed = detail && !strcmp(detail, "1");
  gethostname(s->host, sizeof s->host - 1);
  s->began_ns = manta__now();
  ready_slots();
  if (s->in_run)
    manta__slots_warm_adopted(&slots);
  return begin_attempt(s, err);
}

static manta_status run_job(struct manta__job *job, manta_value *result, manta_error *err)
{
  manta_session s;
  manta_train_fn fn;
  MANTA_TRY(manta__func_find(&fn, &job->spec, err));
  MANTA_TRY(begin(&s, job, err));
  if (job->id.rank != 0 && manta_value_as_bool(manta_value_get(&job->spec, "single"), false))
    return MANTA_OK;
  take_notices(job->ctl);
  current = &s;
  manta_status st = fn(&s, result, err);
  current = NULL;
  manta__comms_leave(&s.comms, st < 0);
  take_notices(NULL);
  if (st < 0 && err->message[0] == 0)
    manta_error_set(err, st, "the train function returned %s: %s", manta_status_name(st),
                    manta_status_text(st));
  return st;
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
