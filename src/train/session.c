/* SPDX-License-Identifier: Apache-2.0 */
#include "train/session.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/manta.h>

#include "base/clock.h"
#include "base/knob.h"
#include "base/log.h"
#include "data/share/callers.h"
#include "train/func.h"
#include "train/save.h"

#define gate manta__session_gate

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

// Every rank counts on from the checkpoint that the attempt begins from. One that the user gave may
// be of other data, or of a run that went through them as often as it was to.
static manta_status begin_attempt(manta_session *s, manta_error *err)
{
  manta_checkpoint *c;
  s->iteration = 0;
  s->origin = -1;
  s->saved_slot = -1;
  s->saves = 0;
  s->score_known = s->reported = false;
  s->loaded = s->let_go = s->has_score = s->kept = false;
  s->files = 0;
  s->directory = 0;
  s->owed = 0;
  s->ahead = false;
  s->last_report_ns = manta__now();
  manta__loaders_fini(&s->loaders);
  if (s->job->origin.count == 0)
    return MANTA_OK;
  MANTA_TRY(manta__origin_load(&c, &s->job->origin, false, err));
  s->iteration = manta_checkpoint_iteration(c);
  manta_status st = MANTA_OK;
  if (!s->job->origin.given) {
    s->origin = s->iteration;
    st = manta__loaders_restore(&s->loaders, manta__checkpoint_extra(c, MANTA__EXTRA_DATA), err);
  }
  manta_checkpoint_close(c);
  return st;
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

static manta_status begin(manta_session *s, struct manta__job *job, manta_error *err)
{
  *s = (manta_session){.job = job, .no_config = {.type = MANTA_MAP}};
  s->comms = (struct manta__comms){.job = job, .rejoin = rejoin, .session = s};
  const manta_value *config = manta_value_get(&job->spec, "config");
  s->config = config && config->type == MANTA_MAP ? config : &s->no_config;
  s->in_run = manta_value_as_bool(manta_value_get(&job->spec, "in_run"), true);
  s->lockstep =
      job->id.rank == 0 && manta_value_as_bool(manta_value_get(&job->spec, "lockstep"), false);
  s->score_key = manta_value_as_string(manta_value_get(&job->spec, "score"), NULL);
  s->score_optional = manta_value_as_bool(manta_value_get(&job->spec, "score_optional"), false);
  s->detailed = manta__knob_bool(MANTA__KNOB_DETAILED_METRICS);
  gethostname(s->host, sizeof s->host - 1);
  s->began_ns = manta__now();
  manta__save_ready(s->in_run);
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
  manta__loaders_fini(&s->loaders);
  if (st == MANTA_OK && manta__session_lacks_score(s))
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

const struct manta__job_ops manta__session_ops = {.run = run_job,
                                                  .take_slot = manta__save_take_slot,
                                                  .end = manta__save_end,
                                                  .serve_reader = manta__caller_main};
