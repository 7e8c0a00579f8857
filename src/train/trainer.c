/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/knob.h"
#include "base/log.h"
#include "ckpt/replica.h"
#include "ckpt/store.h"
#include "event/rundir.h"
#include "remote/objects.h"
#include "sink/setup.h"
#include "sys/file.h"
#include "sys/omp.h"
#include "sys/sock.h"
#include "train/form.h"
#include "train/run.h"

#define START_S    300.0 /* a framework may have to be imported, from a cold disk */
#define SHUTDOWN_S 7.0   /* the agent gives workers 5 s */
#define drv        manta__drv

// --- create --------------------------------------------------------------------------------------

static manta_status check_config(const manta_trainer_config *c, manta_error *err)
{
  if (c->workers < 0 || c->workers > MANTA_MAX_RANKS)
    return manta_error_set(err, MANTA_EINVAL, "workers must be 1 to %d, not %d", MANTA_MAX_RANKS,
                           c->workers);
  if (c->min_workers < 0 || (c->workers > 0 && c->min_workers > c->workers))
    return manta_error_set(err, MANTA_EINVAL, "min_workers must be 0 to workers (%d), not %d",
                           c->workers, c->min_workers);
  if (!(c->step_timeout_s >= 0) || !(c->grace_s >= 0) || !(c->cpus_per_worker >= 0) ||
      !(c->gpus_per_worker >= 0) || !(c->host_timeout_s >= 0))
    return manta_error_set(err, MANTA_EINVAL,
                           "step_timeout_s, grace_s, cpus_per_worker, gpus_per_worker and "
                           "host_timeout_s must be >= 0");
  if (c->threads_per_worker < 0)
    return manta_error_set(err, MANTA_EINVAL, "threads_per_worker must be >= 0, not %d",
                           c->threads_per_worker);
  if (c->max_retries < -2)
    return manta_error_set(err, MANTA_EINVAL, "max_retries must be -2, -1, 0 or more, not %d",
                           c->max_retries);
  if (c->config && c->config->type != MANTA_MAP)
    return manta_error_set(err, MANTA_ETYPE, "config must be a map");
  if (c->resources && c->resources->type != MANTA_MAP)
    return manta_error_set(err, MANTA_ETYPE, "resources must be a map of numbers");
  return MANTA_OK;
}

// Of a worker's the driver has been warned.
static manta_status check_environment(manta_error *err)
{
  if (!manta__knob_is_set(MANTA__KNOB_WORKER))
    manta__knobs_warn_unknown();
  return manta__knobs_check(err);
}

static int workers_from_env(void)
{
  int64_t n = 1;
  manta__knob_whole(MANTA__KNOB_NUM_WORKERS, &n);
  return (int)n;
}

// Argument beats environment beats default. A trainer inside a worker shares out what that has.
static int choose_threads(const manta_trainer_config *c, int workers)
{
  const char *env = getenv("OMP_NUM_THREADS");
  if (c->threads_per_worker > 0)
    return c->threads_per_worker;
  if (env && *env)
    return manta__knob_is_set(MANTA__KNOB_WORKER) ? manta__omp_share(strtod(env, NULL), workers)
                                                  : 0;
  return c->cpus_per_worker >= 1 ? (int)c->cpus_per_worker : -1;
}

static manta_status fill(manta_trainer *t, const manta_trainer_config *c, manta_error *err)
{
  t->workers = c->workers > 0 ? c->workers : workers_from_env();
  t->min_workers = c->min_workers > 0 ? c->min_workers : 1;
  t->elastic = c->min_workers > 0;
  t->max_retries = c->max_retries == 0 ? 3 : c->max_retries == -2 ? 0 : c->max_retries;
  t->retry_errors = c->retry_errors;
  t->keep = c->keep_workers;
  t->step_timeout = c->step_timeout_s;
  t->grace = c->grace_s > 0 ? c->grace_s : 0.25;
  t->cpus = c->cpus_per_worker;
  t->strict_cpus = c->cpus_per_worker > 0;
  t->gpus = c->gpus_per_worker;
  t->pin = c->pin;
  t->worker_threads = choose_threads(c, t->workers);
  t->show_all = c->show_all_output;
  t->quiet = c->quiet;
  t->log_limit = c->log_limit > 0 ? c->log_limit : 64ll << 20;
  t->newest.fd = -1;
  const char *name = c->name ? c->name : program_invocation_short_name;
  if (!(t->name = manta__strdup(name)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a trainer");
  if (c->logdir && manta__is_uri(c->logdir)) {
    MANTA_TRY(manta__objects_check(c->logdir, err));
    MANTA_TRY(manta__staging_path(c->logdir, &t->logdir, err));
    if (!(t->storage = manta__strdup(c->logdir)))
      return manta_error_set(err, MANTA_ENOMEM, "no memory for a trainer");
  } else if (c->logdir) {
    if (!(t->logdir = manta__strdup(c->logdir)))
      return manta_error_set(err, MANTA_ENOMEM, "no memory for a trainer");
  } else {
    MANTA_TRY(manta__rundir_default(&t->logdir, err));
  }
  if ((c->config && manta_value_copy(&t->config, c->config) < 0) ||
      (c->resources && manta_value_copy(&t->resources, c->resources) < 0))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a config");
  MANTA_TRY(manta__program_copy(&t->program, c->program, err));
  t->threads = manta__program_threads(&t->program, c->threads_per_worker);
  if (c->callback_count > 0) {
    if (!(t->callbacks = manta__calloc(c->callback_count, sizeof *t->callbacks)))
      return manta_error_set(err, MANTA_ENOMEM, "no memory for callbacks");
    memcpy(t->callbacks, c->callbacks, c->callback_count * sizeof *t->callbacks);
    t->callback_count = c->callback_count;
  }
  for (size_t i = 0; i < c->sink_count; i++)
    MANTA_TRY(manta__setup_add(&t->sinks, &c->sinks[i], err));
  return MANTA_OK;
}

static void trainer_free(manta_trainer *t)
{
  while (t->peers) {
    struct manta__peer *p = t->peers;
    t->peers = p->next;
    manta__peer_free(p);
  }
  manta__fd_close(&t->newest.fd);
  manta__muster_end(t);
  manta__free(t->host);
  manta__free(t->name);
  manta__free(t->logdir);
  manta__free(t->storage);
  manta__free(t->run_dir);
  manta__free(t->wids);
  manta__free(t->callbacks);
  manta_value_fini(&t->sinks);
  manta__program_fini(&t->program);
  manta_value_fini(&t->config);
  manta_value_fini(&t->resources);
  manta__free(t);
}

manta_status manta_trainer_create(manta_trainer **out, const manta_trainer_config *cfg,
                                  manta_error *err)
{
  static const manta_trainer_config dflt = MANTA_TRAINER_CONFIG_INIT;
  manta_trainer_config full, *c = &full;
  MANTA_TRY(manta__config_take(c, sizeof *c, cfg ? (const void *)cfg : &dflt,
                               "MANTA_TRAINER_CONFIG_INIT", err));
  MANTA_TRY(check_config(c, err));
  MANTA_TRY(check_environment(err));
  manta_trainer *t = manta__calloc(1, sizeof *t);
  if (!t)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a trainer");
  t->newest.fd = -1;
  manta_status st = fill(t, c, err);
  pthread_mutex_lock(&drv.lock);
  if (st == MANTA_OK)
    st = manta__hostlist_take(t, c, err);
  if (st < 0) {
    manta__hostlist_drop(t);
    pthread_mutex_unlock(&drv.lock);
    trainer_free(t);
    return st;
  }
  t->group = ++drv.groups;
  t->next = drv.trainers;
  drv.trainers = t;
  pthread_mutex_unlock(&drv.lock);
  *out = t;
  return MANTA_OK;
}

// --- start and end -------------------------------------------------------------------------------

static bool wait_until(int64_t by)
{
  if (by == MANTA__NEVER)
    return pthread_cond_wait(&drv.cond, &drv.lock) == 0;
  struct timespec t = {by / 1000000000, by % 1000000000};
  return pthread_cond_timedwait(&drv.cond, &drv.lock, &t) != ETIMEDOUT;
}

static bool unborn(const manta_trainer *t)
{
  for (struct manta__peer *p = t->peers; p; p = p->next)
    if (p->pid == 0)
      return true;
  return false;
}

manta_status manta_trainer_start(manta_trainer *t, manta_error *err)
{
  pthread_mutex_lock(&drv.lock);
  int64_t by = manta__deadline(START_S);
  manta_status st = t->run ? MANTA_OK : manta__run_spawn(t, err);
  while (st == MANTA_OK && (t->spawning || unborn(t)))
    if (!wait_until(by))
      st = manta_error_set(err, MANTA_ETIMEDOUT, "workers did not start within %.0f s", START_S);
  if (st == MANTA_OK && t->spawn_error.status < 0) {
    st = t->spawn_error.status;
    if (err)
      *err = t->spawn_error;
  }
  pthread_mutex_unlock(&drv.lock);
  return st;
}

static void disband(manta_trainer *t)
{
  struct manta__msg m = {.kind = MANTA__M_DISBAND, .group = t->group};
  int64_t by = manta__deadline(SHUTDOWN_S);
  manta__run_tell_all(t, &m, NULL);
  if (t->door && t->door->conn)
    manta__link_send(t->door, &m, NULL, NULL);
  while (t->peers && wait_until(by)) // those of a lost agent are dropped
    ;
  while (t->peers) {
    struct manta__peer *p = t->peers;
    t->peers = p->next;
    manta__peer_free(p);
  }
  t->world = 0;
}

void manta_trainer_shutdown(manta_trainer *t)
{
  if (drv.dead)
    return;
  pthread_mutex_lock(&drv.lock);
  if (t->run && !t->run->over)
    manta__membership_stop(&t->run->membership, MANTA_ECANCELED, "the trainer was shut down");
  manta__driver_wake();
  while (t->run && !t->run->over && drv.running)
    wait_until(manta__deadline(1));
  if (drv.running)
    disband(t);
  pthread_mutex_unlock(&drv.lock);
}

void manta_trainer_destroy(manta_trainer *t)
{
  if (!t || drv.dead) // a forked child: all of it is its parent's
    return;
  if (t->run)
    manta__run_part(t->run, "the trainer was destroyed");
  manta_trainer_shutdown(t);
  pthread_mutex_lock(&drv.lock);
  for (manta_trainer **p = &drv.trainers; *p; p = &(*p)->next)
    if (*p == t) {
      *p = t->next;
      break;
    }
  manta__hostlist_drop(t);
  manta__driver_down();
  pthread_mutex_unlock(&drv.lock);
  trainer_free(t);
}

// --- while it runs -------------------------------------------------------------------------------

manta_status manta_trainer_resize(manta_trainer *t, int workers, manta_error *err)
{
  if (workers < 1 || workers > MANTA_MAX_RANKS)
    return manta_error_set(err, MANTA_EINVAL, "workers must be 1 to %d, not %d", MANTA_MAX_RANKS,
                           workers);
  pthread_mutex_lock(&drv.lock);
  manta_status st = t->run ? manta__ranks_resize(t->run, workers, err) : MANTA_OK;
  if (st == MANTA_OK) {
    t->workers = workers;
    if (t->min_workers > workers)
      t->min_workers = workers;
    manta__driver_wake();
  }
  pthread_mutex_unlock(&drv.lock);
  return st;
}

void manta_trainer_hold(manta_trainer *t, bool hold)
{
  pthread_mutex_lock(&drv.lock);
  struct manta__msg m = {.kind = MANTA__M_REST, .group = t->group};
  manta_value v = MANTA__PACK(rest_msg, .hold = hold);
  t->hold = hold;
  if (drv.running && t->peers && !t->spawning && (!t->run || t->run->over))
    manta__run_tell_all(t, &m, &v);
  pthread_mutex_unlock(&drv.lock);
}

// Async-signal-safe: a flag and a write. The thread does the rest.
void manta_trainer_notice(manta_trainer *t)
{
  __atomic_store_n(&t->notice, 1, __ATOMIC_RELEASE);
  manta__driver_wake();
}

void manta_trainer_cancel(manta_trainer *t)
{
  pthread_mutex_lock(&drv.lock);
  if (t->parked)
    manta__membership_stop(&t->parked->membership, MANTA_ECANCELED, "canceled");
  if (t->run)
    manta__membership_stop(&t->run->membership, MANTA_ECANCELED, "canceled");
  manta__driver_wake();
  pthread_mutex_unlock(&drv.lock);
}

void manta_trainer_keep(manta_trainer *t, bool keep)
{
  pthread_mutex_lock(&drv.lock);
  t->keep = keep;
  pthread_mutex_unlock(&drv.lock);
}

// --- what can be asked ---------------------------------------------------------------------------

int manta_trainer_workers(const manta_trainer *t)
{
  return t->workers;
}

const char *manta_trainer_logdir(const manta_trainer *t)
{
  return t->logdir;
}

const char *manta_trainer_storage(const manta_trainer *t)
{
  return t->storage;
}

const char *manta_trainer_run_dir(const manta_trainer *t)
{
  return t->run_dir ? t->run_dir : "";
}

int manta_trainer_pid(const manta_trainer *t, int rank)
{
  int pid = -1;
  pthread_mutex_lock(&drv.lock);
  for (struct manta__peer *p = t->peers; p && rank >= 0 && rank < t->world; p = p->next)
    if (p->pid > 0 && (p->wid == t->wids[rank] || (pid < 0 && p->seat == rank)))
      pid = p->pid;
  pthread_mutex_unlock(&drv.lock);
  return pid;
}

static manta_status newest_in_memory(manta_trainer *t, manta_checkpoint **out, manta_error *err)
{
  pthread_mutex_lock(&drv.lock);
  int fd = t->newest.fd >= 0 ? dup(t->newest.fd) : -1;
  pthread_mutex_unlock(&drv.lock);
  if (fd < 0)
    return MANTA_ENOENT;
  manta_status st = manta__checkpoint_from_fd(out, fd, false, err);
  close(fd);
  return st;
}

manta_status manta_trainer_checkpoint(manta_trainer *t, manta_checkpoint **out, manta_error *err)
{
  *out = NULL;
  // While a run goes on its slots are written again and again: only a finished one's stays as it
  // is.
  if ((!t->run || t->run->over) && newest_in_memory(t, out, err) == MANTA_OK)
    return MANTA_OK;
  if (!t->run_dir)
    return MANTA_OK;
  int rundir, fd;
  struct manta__manifest m;
  MANTA_TRY(manta__dir_make(t->run_dir, &rundir, err));
  manta_status st = manta__store_newest(rundir, &fd, &m, err);
  close(rundir);
  if (st == MANTA_ENOENT)
    return MANTA_OK;
  if (st == MANTA_OK) {
    st = manta__checkpoint_from_fd(out, fd, false, err);
    close(fd);
  }
  return st;
}

manta_status manta_trainer_best_checkpoint(manta_trainer *t, char *buf, size_t size,
                                           manta_error *err)
{
  struct manta__manifest m;
  int rundir;
  if (!t->run_dir)
    return manta_error_set(err, MANTA_ENOENT, "there was no run yet");
  MANTA_TRY(manta__dir_make(t->run_dir, &rundir, err));
  manta_status st = manta__store_best(rundir, t->score_min, &m, err);
  close(rundir);
  if (st == MANTA_OK && snprintf(buf, size, "%s/checkpoints/%s", t->run_dir, m.name) >= (int)size)
    st = manta_error_set(err, MANTA_ETOOBIG, "the path needs more than %zu bytes", size);
  return st;
}
