/* SPDX-License-Identifier: Apache-2.0
 *
 * train/rundir.c - the directory of a run: made afresh, adopted from a run that broke off, or only
 * read again if that one had finished.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/knob.h"
#include "base/log.h"
#include "base/value.h"
#include "ckpt/replica.h"
#include "event/rundir.h"
#include "remote/objects.h"
#include "sys/file.h"
#include "sys/proc.h"
#include "sys/sock.h"
#include "train/func.h"
#include "train/light.h"
#include "train/run.h"
#include "train/trainer.h"

#define ADOPT_WAIT_S 40.0 /* for the agent of a lost driver to finish its last write */
#define CLAIMS       5
#define drv          manta__drv

static manta_status describe_run(manta_value *v, const manta_run *r, manta_train_fn fn, int ordinal,
                                 manta_error *err)
{
  manta_value argv = {0}, config = {0};
  char cwd[4096] = "";
  struct manta__exe exe;
  MANTA_TRY(manta_value_set_map(v));
  MANTA_TRY(manta__func_describe(v, fn, err));
  MANTA_TRY(manta__strings_to_value(&argv, drv.argv, (size_t)drv.argc));
  MANTA_TRY(manta_value_put(v, "argv", &argv));
  MANTA_TRY(manta__value_abridge(&config, &r->config));
  MANTA_TRY(manta_value_put(v, "config", &config));
  MANTA_TRY(manta__exe_self(&exe, err));
  MANTA_TRY(manta_value_put_string(v, "exe", exe.path));
  MANTA_TRY(manta_value_put_string(v, "name", r->trainer->name));
  MANTA_TRY(manta_value_put_string(v, "cwd", getcwd(cwd, sizeof cwd) ? cwd : ""));
  MANTA_TRY(manta_value_put_string(v, "version", MANTA_VERSION));
  MANTA_TRY(manta_value_put_int(v, "workers", r->membership.policy.want));
  MANTA_TRY(manta_value_put_int(v, "pid", getpid()));
  MANTA_TRY(manta_value_put_string(v, "score", r->score));
  MANTA_TRY(manta_value_put_bool(v, "score_min", r->score_min));
  MANTA_TRY(manta_value_put_int(v, "session", (int64_t)drv.session));
  return manta_value_put_int(v, "ordinal", ordinal);
}

static manta_status log_run(manta_run *r, manta_train_fn fn, int ordinal, manta_error *err)
{
  manta_value v = {0};
  struct manta__ident id = {r->id, 0, -1, ++r->log_seq};
  manta_status st = describe_run(&v, r, fn, ordinal, err);
  if (st == MANTA_ENOMEM)
    manta_error_set(err, st, "no memory to describe the run");
  if (st == MANTA_OK)
    st = manta__log_add_value(r->log, MANTA__EV_RUN, &id, &v, err);
  if (st == MANTA_OK)
    manta__progress_event(r, MANTA__EV_RUN, &id, &v);
  manta_value_fini(&v);
  return st < 0 ? st : manta__log_flush(r->log, err);
}

// The lock is on the open directory, which agent and writer share: it is free when all three are
// gone.
static manta_status lock_directory(int fd, const char *dir, manta_error *err)
{
  int64_t by = manta__deadline(ADOPT_WAIT_S);
  bool told = false;
  while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return manta_error_set(err, MANTA_EIO, "lock %s: %m", dir);
    if (manta__now() > by)
      return manta_error_set(err, MANTA_ESTATE, "the run %s is still running\nhint: manta ps", dir);
    if (!told)
      manta__info("waiting for the last write of %s", dir);
    told = true;
    usleep(2000);
  }
  return MANTA_OK;
}

// A name that another host has taken in the same second: the next one is tried.
static manta_status claim(manta_run *r, int ordinal, manta_error *err)
{
  const char *name = strrchr(r->dir, '/') + 1, *uri = r->trainer->storage;
  int n = (int)strlen(uri);
  while (n && uri[n - 1] == '/')
    n--;
  manta__free(r->upload.uri);
  if (!(r->upload.uri = manta__asprintf("%.*s/%s", n, uri, name)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the URI of a run");
  manta_status st = manta__replica_claim(r->rundir, r->upload.uri, drv.session, ordinal, err);
  if (st < 0 && rmdir(r->dir) == 0)
    manta__debug("%s is not used", r->dir);
  return st;
}

static manta_status make_directory(manta_run *r, int ordinal, manta_error *err)
{
  const manta_trainer *t = r->trainer;
  for (int tries = 0;; tries++) {
    MANTA_TRY(manta__rundir_create(t->logdir, t->name, &r->rundir, &r->dir, err));
    manta_status st = t->storage ? claim(r, ordinal, err) : MANTA_OK;
    if (st != MANTA_ESTATE || tries == CLAIMS)
      return st;
    manta__fd_close(&r->rundir);
    manta__free(r->dir);
    r->dir = NULL;
    sleep(1);
  }
}

static manta_status fresh_directory(manta_run *r, int ordinal, manta_error *err)
{
  MANTA_TRY(make_directory(r, ordinal, err));
  MANTA_TRY(lock_directory(r->rundir, r->dir, err));
  if (getrandom(&r->id, sizeof r->id, 0) != sizeof r->id)
    return manta_error_set(err, MANTA_EIO, "getrandom: %m");
  return manta__log_writer_open(&r->log, r->rundir, true, err);
}

// A finished run is not run again: its results are read from its log, and from the files it names.
static manta_status replay(manta_run *r, struct manta__run_summary *s, manta_error *err)
{
  const manta_value *results = manta_value_get(&s->finish, "results");
  r->replayed = r->over = true;
  if (results && manta_value_copy(&r->results, results) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the results");
  return manta__results_open(r, &s->finish, err);
}

static manta_status adopt_directory(manta_run *r, const char *path, uint32_t *attempt,
                                    manta_error *err)
{
  struct manta__run_summary s = {0};
  MANTA_TRY(manta__dir_make(path, &r->rundir, err));
  if (!(r->dir = manta__strdup(path)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory");
  MANTA_TRY(lock_directory(r->rundir, path, err));
  MANTA_TRY(manta__run_summary_read(&s, r->rundir, path, err));
  if (manta__replica_uri(r->rundir, &r->upload.uri, NULL) < 0)
    r->upload.uri = NULL; // it is stored here alone
  r->resumed = true;
  r->id = s.id;
  r->log_seq = 1u << 30; // beyond what the last driver counted
  *attempt = (uint32_t)s.attempts;
  manta_status st = MANTA_OK;
  if (s.state == MANTA__RUN_DONE)
    st = replay(r, &s, err);
  else
    st = manta__log_writer_open(&r->log, r->rundir, false, err);
  if (st == MANTA_OK)
    manta__progress_resume(r);
  manta__run_summary_fini(&s);
  r->rewind = *attempt > 0;
  return st;
}

static manta_status find_unfinished(const char *resume, char **path, manta_error *err)
{
  int fd;
  if (manta__is_uri(resume))
    return manta__replica_fetch(resume, path, err);
  MANTA_TRY(manta__rundir_find(resume, &fd, path, err));
  close(fd);
  return MANTA_OK;
}

manta_status manta__run_directory(manta_run *r, manta_train_fn fn, const char *resume,
                                  uint32_t *attempt, manta_error *err)
{
  uint64_t session;
  char *path = NULL;
  bool resuming = manta__knob_hex(MANTA__KNOB_RESUME, &session);
  pthread_mutex_lock(&drv.lock);
  int ordinal = ++drv.ordinals;
  if (resuming)
    drv.session = session;
  manta_status st = manta__driver_session(err);
  session = drv.session;
  pthread_mutex_unlock(&drv.lock);
  *attempt = 0;
  MANTA_TRY(st);
  if (resume) {
    st = find_unfinished(resume, &path, err);
    if (st == MANTA_OK)
      st = adopt_directory(r, path, attempt, err);
  } else if (resuming && manta__rundir_of_session(r->trainer->logdir, session, ordinal, &path,
                                                  NULL) == MANTA_OK) {
    st = adopt_directory(r, path, attempt, err);
  } else {
    st = fresh_directory(r, ordinal, err);
    if (st == MANTA_OK)
      st = log_run(r, fn, ordinal, err);
  }
  manta_free(path);
  if (st < 0)
    return st;
  if (!r->replayed)
    MANTA_TRY(manta__upload_start(r, err));
  return manta__dir_makeat(r->rundir, "logs", &r->logs, err);
}

// What workers print goes beside the checkpoints. The lock is for a driver after us; our own agent
// may have it from an earlier run there.
manta_status manta__run_light_directory(manta_run *r, const struct manta__light *l,
                                        manta_error *err)
{
  r->rundir = open(l->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (r->rundir < 0)
    return manta_error_set(err, MANTA_EIO, "open %s: %m", l->dir);
  if (!(r->dir = manta__strdup(l->dir)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a run");
  if (flock(r->rundir, LOCK_EX | LOCK_NB) < 0 && l->adopted)
    MANTA_TRY(lock_directory(r->rundir, l->dir, err));
  r->logs = fcntl(r->rundir, F_DUPFD_CLOEXEC, 3);
  if (r->logs < 0 || getrandom(&r->id, sizeof r->id, 0) != sizeof r->id)
    return manta_error_set(err, MANTA_EIO, "%s: %m", l->dir);
  return MANTA_OK;
}
