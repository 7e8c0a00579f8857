/* SPDX-License-Identifier: Apache-2.0
 *
 * train/run_api.c - a run seen from the user's thread: beginning and end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/knob.h"
#include "ckpt/replica.h"
#include "remote/objects.h"
#include "sys/sock.h"
#include "train/deliver.h"
#include "train/driver.h"
#include "train/form.h"
#include "train/light.h"
#include "train/newest.h"
#include "train/run.h"
#include "train/sinks.h"
#include "train/trainer.h"

#define CLOSE_S       10.0
#define CLOSE_LIGHT_S 0.5 /* … where workers have ended: what is saved behind rows is not kept */
#define drv           manta__drv

// --- making and freeing --------------------------------------------------------------------------

// All that a run holds but its end: log and lock of its directory, untaken rows, callbacks.
static void let_go(manta_run *r)
{
  manta__log_writer_close(r->log);
  r->log = NULL;
  manta__align_fini(&r->align);
  manta__exchange_end(&r->exchange);
  manta__terminal_leave(r);
  manta__progress_fini(r);
  manta__screen_fini(&r->screen);
  manta__deliver_free(r);
  manta__light_free(r);
  manta__free(r->callbacks);
  manta__free(r->own);
  r->callbacks = NULL;
  r->own = NULL;
  r->callback_count = 0;
  manta__results_stop(r);
  int fds[] = {r->rundir, r->logs, r->job_fd};
  manta__fd_close_all(fds, 3);
  r->rundir = r->logs = r->job_fd = -1;
  manta__sink_child_leave(&r->sink);
  manta__origin_close(&r->initial);
}

static void run_free(manta_run *r)
{
  let_go(r);
  manta__results_forget(r);
  manta__free(r->bulk);
  manta__free(r->result);
  manta__free(r->membership.member);
  manta__upload_free(r);
  manta__free(r->dir);
  manta__free(r->score);
  manta_value_fini(&r->config);
  manta_value_fini(&r->sinks);
  manta_value_fini(&r->results);
  manta__free(r);
}

static manta_status collect_callbacks(manta_run *r, const manta_run_config *rc, manta_error *err)
{
  manta_trainer *t = r->trainer;
  size_t n = t->callback_count + rc->callback_count;
  r->callbacks = manta__calloc(n, sizeof *r->callbacks);
  r->own = manta__calloc(rc->callback_count, sizeof *r->own);
  if (!r->callbacks || !r->own)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for callbacks");
  for (size_t i = 0; i < t->callback_count; i++)
    r->callbacks[r->callback_count++] = &t->callbacks[i];
  for (size_t i = 0; i < rc->callback_count; i++) {
    r->own[i] = rc->callbacks[i];
    r->callbacks[r->callback_count++] = &r->own[i];
  }
  return MANTA_OK;
}

static manta_status open_initial(manta_run *r, const char *dir, manta_error *err);

static manta_status open_stored(manta_run *r, const char *uri, manta_error *err)
{
  char *path;
  MANTA_TRY(manta__staging_path(uri, &path, err));
  manta_status st = manta__replica_download(uri, path, err);
  if (st == MANTA_OK)
    st = open_initial(r, path, err);
  manta__free(path);
  return st;
}

static manta_status open_initial(manta_run *r, const char *dir, manta_error *err)
{
  manta_checkpoint *c;
  if (!dir)
    return MANTA_OK;
  if (manta__is_uri(dir))
    return open_stored(r, dir, err);
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return manta_error_set(err, errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "open %s: %m", dir);
  manta_status st = manta__origin_open(&r->initial, fd, err);
  close(fd);
  MANTA_TRY(st);
  r->initial.given = true;
  MANTA_TRY(manta__origin_load(&c, &r->initial, true, err));
  r->initial_iteration = manta_checkpoint_iteration(c);
  manta_checkpoint_close(c);
  return MANTA_OK;
}

// A snapshot in memory, of another run.
static manta_status begin_from(manta_run *r, int fd, manta_error *err)
{
  manta_checkpoint *c;
  struct manta__origin o = {.fd = {fd}, .count = 1, .given = true};
  MANTA_TRY(manta__origin_dup(&r->initial, &o, err));
  r->initial.given = true;
  MANTA_TRY(manta__origin_load(&c, &r->initial, false, err));
  r->initial_iteration = manta_checkpoint_iteration(c);
  manta_checkpoint_close(c);
  return MANTA_OK;
}

static manta_status check_run_config(const manta_run_config *rc, manta_error *err)
{
  if (rc->config && rc->config->type != MANTA_MAP)
    return manta_error_set(err, MANTA_ETYPE, "config must be a map");
  if (rc->workers < 0 || rc->workers > MANTA_MAX_RANKS)
    return manta_error_set(err, MANTA_EINVAL, "workers must be 1 to %d, not %d", MANTA_MAX_RANKS,
                           rc->workers);
  if (rc->verbose < -1 || rc->verbose > 2)
    return manta_error_set(err, MANTA_EINVAL, "verbose must be -1 to 2, not %d", rc->verbose);
  if (rc->keep_best > 0 && !rc->score)
    return manta_error_set(err, MANTA_EINVAL, "keep_best needs score, the metric to compare by");
  return MANTA_OK;
}

static void set_policy(manta_run *r, const manta_run_config *rc)
{
  manta_trainer *t = r->trainer;
  int want = rc->workers > 0 ? rc->workers : t->workers;
  struct manta__policy p = {.want = want,
                            .min = t->min_workers < want ? t->min_workers : want,
                            .max_retries = r->exec ? 0 : t->max_retries,
                            .retry_errors = !r->exec && t->retry_errors,
                            .fresh = !r->exec && !t->keep,
                            .grace_s = t->grace,
                            .grow_after_s = manta__knob_seconds(MANTA__KNOB_GROW_AFTER),
                            .resize_every_s = manta__knob_seconds(MANTA__KNOB_RESIZE_EVERY)};
  manta__membership_init(&r->membership, &p, NULL, 0);
}

static void set_screen(manta_run *r, const manta_display *display)
{
  manta__screen_init(&r->screen, display);
  r->displayed = display != NULL;
  r->moves = !r->trainer->quiet && manta__screen_moves(&r->screen);
  for (size_t i = 0; i < r->callback_count; i++)
    r->moves &= !r->callbacks[i]->output;
}

static manta_status fill_run(manta_run *r, const manta_run_config *rc, manta_error *err)
{
  set_policy(r, rc);
  MANTA_TRY(manta__ranks_reserve(r, r->membership.policy.want, err));
  r->keep_last = rc->keep_last == 0 ? 2 : rc->keep_last;
  r->keep_best = rc->keep_best;
  r->score_min = rc->score_min;
  r->strict_reports = rc->strict_reports;
  r->payload = rc->payload;
  r->payload_bytes = rc->payload_bytes;
  r->renew = rc->renew;
  r->renew_ctx = rc->renew_ctx;
  if (rc->score && !(r->score = manta__strdup(rc->score)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a run");
  const manta_value *config = rc->config ? rc->config : &r->trainer->config;
  manta_status st = config->type == MANTA_MAP ? manta_value_copy(&r->config, config)
                                              : manta_value_set_map(&r->config);
  if (st < 0)
    return manta_error_set(err, st, "no memory for the config");
  MANTA_TRY(collect_callbacks(r, rc, err));
  MANTA_TRY(manta__run_sinks_collect(r, rc, err));
  set_screen(r, rc->display);
  manta__progress_init(r, rc);
  MANTA_TRY(manta__terminal_take(r, err));
  for (size_t i = 0; i < r->callback_count; i++)
    r->listening |= r->callbacks[i]->result != NULL;
  MANTA_TRY(manta__align_init(&r->align, !r->listening, err));
  return open_initial(r, rc->checkpoint, err);
}

// What is to be done: a run to its end, a run row by row, a call on all workers, a call on rank 0.
enum purpose { RUN, ITERATE, EXECUTE, EXECUTE_SINGLE };

static manta_run *run_alloc(manta_trainer *t, enum purpose what)
{
  manta_run *r = manta__calloc(1, sizeof *r);
  if (r) {
    r->trainer = t;
    r->timeline.began = manta__now();
    r->exec = what >= EXECUTE;
    r->single = what == EXECUTE_SINGLE;
    r->rundir = r->logs = r->job_fd = -1;
    r->tty.fd = r->tty.rank = r->sink.sock = -1;
  }
  return r;
}

// --- the public calls ----------------------------------------------------------------------------

static manta_status launch(manta_run *r, manta_train_fn fn, uint32_t attempt, manta_error *err)
{
  manta_trainer *t = r->trainer;
  MANTA_TRY(manta__job_make(r, fn, err));
  pthread_mutex_lock(&drv.lock);
  manta_status st = MANTA_OK;
  if (t->run)
    st = manta_error_set(err, MANTA_ESTATE, "the trainer has a run already: close it first");
  if (st == MANTA_OK)
    st = manta__ranks_reserve_wids(t, r->membership.places, err);
  if (st == MANTA_OK)
    st = manta__link_up(t->host[0].link, err);
  if (st == MANTA_OK) {
    t->run = r;
    t->told_open = t->told_open && r->exec; // a call is no run of its own
    __atomic_store_n(&t->notice, 0, __ATOMIC_RELEASE);
    t->world = 0;
    if (!r->exec)
      manta__newest_drop(t);
    manta__run_begin(r, attempt);
    manta__driver_wake();
  }
  pthread_mutex_unlock(&drv.lock);
  return st;
}

// What comes before its workers are asked for: an identity, a place for what it leaves.
static manta_status settle_in(manta_run *r, manta_train_fn fn, const manta_run_config *rc,
                              const struct manta__light *l, uint32_t *attempt, manta_error *err)
{
  manta_trainer *t = r->trainer;
  if (r->exec && getrandom(&r->id, sizeof r->id, 0) != sizeof r->id)
    return manta_error_set(err, MANTA_EIO, "getrandom: %m");
  if (r->exec)
    return MANTA_OK;
  if (l) {
    r->light = true;
    r->apart = l->apart;
    r->lockstep = l->lockstep;
    r->score_optional = l->score_optional;
    r->afresh = l->fresh || l->from >= 0;
    *attempt = l->attempt;
    MANTA_TRY(manta__run_light_directory(r, l, err));
  } else {
    MANTA_TRY(manta__run_directory(r, fn, rc->resume, attempt, err));
  }
  manta__free(t->run_dir);
  t->run_dir = manta__strdup(r->dir);
  t->score_min = r->score_min;
  if (!l)
    manta__run_sinks_start(r);
  manta__call_start(r);
  return MANTA_OK;
}

static manta_status start(manta_run **out, manta_trainer *t, manta_train_fn fn,
                          const manta_run_config *given, enum purpose what,
                          const struct manta__light *l, manta_error *err)
{
  static const manta_run_config dflt = MANTA_RUN_CONFIG_INIT;
  manta_run_config full, *rc = &full;
  uint32_t attempt = 0;
  MANTA_TRY(manta__config_take(rc, sizeof *rc, given ? (const void *)given : &dflt,
                               "MANTA_RUN_CONFIG_INIT", err));
  MANTA_TRY(check_run_config(rc, err));
  MANTA_TRY(manta__knobs_check(err));
  if (t->run)
    return manta_error_set(err, MANTA_ESTATE, "the trainer has a run already: close it first");
  if (rc->execute && what == ITERATE)
    what = rc->single ? EXECUTE_SINGLE : EXECUTE;
  manta_run *r = run_alloc(t, what);
  if (!r)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a run");
  manta_status st = fill_run(r, rc, err);
  if (st == MANTA_OK && l && l->from >= 0)
    st = begin_from(r, l->from, err);
  if (st == MANTA_OK && what == ITERATE)
    r->align.drop = false;
  if (st == MANTA_OK)
    st = settle_in(r, fn, rc, l, &attempt, err);
  if (st == MANTA_OK && r->replayed)
    t->run = r;
  else if (st == MANTA_OK)
    st = launch(r, fn, attempt, err);
  if (st < 0) {
    run_free(r);
    return st;
  }
  *out = r;
  return MANTA_OK;
}

manta_status manta_run_start(manta_run **out, manta_trainer *t, manta_train_fn fn,
                             const manta_run_config *rc, manta_error *err)
{
  return start(out, t, fn, rc, ITERATE, NULL, err);
}

manta_status manta__light_start(manta_run **out, manta_trainer *t, manta_train_fn fn,
                                const manta_run_config *rc, const struct manta__light *l,
                                manta_error *err)
{
  return start(out, t, fn, rc, ITERATE, l, err);
}

bool manta_run_finished(const manta_run *r)
{
  if (drv.dead)
    return true;
  pthread_mutex_lock(&drv.lock);
  bool over = r->over && !r->queue && !r->batch;
  pthread_mutex_unlock(&drv.lock);
  return over;
}

const manta_value *manta_run_results(const manta_run *r)
{
  if (!manta_run_finished(r) || r->error.status < 0)
    return NULL;
  return manta__results_take((manta_run *)(uintptr_t)r, NULL) < 0 ? NULL : &r->results;
}

const manta_value *manta_run_failure(const manta_run *r)
{
  int rank = r->error.rank;
  bool known =
      manta_run_finished(r) && r->error.status < 0 && rank >= 0 && rank < r->membership.world;
  return known && r->result[rank].type != MANTA_NIL ? &r->result[rank] : NULL;
}

// Waits for the end of a run that is told to stop; with the lock held.
static void stop_run(manta_run *r, const char *why)
{
  int64_t by = manta__deadline(r->light && r->finishing ? CLOSE_LIGHT_S : CLOSE_S);
  if (!r->over)
    manta__membership_stop(&r->membership, MANTA_ECANCELED, why);
  manta__driver_wake();
  while (!r->over && drv.running && manta__now() < by) {
    r->queued = 0; // nobody will take them: let the rings run empty
    struct timespec t = {by / 1000000000, by % 1000000000};
    pthread_cond_timedwait(&drv.cond, &drv.lock, &t);
  }
  if (!r->over)
    manta_error_set(&r->error, MANTA_ECANCELED, "%s", why);
  r->over = true; // also where its workers did not answer: nobody waits for them any more
}

void manta__run_part(manta_run *r, const char *why)
{
  manta_trainer *t = r->trainer;
  pthread_mutex_lock(&drv.lock);
  stop_run(r, why);
  for (int i = 0; i < t->hosts; i++)
    manta__rpc_forget(&t->host[i].link->rpc, r);
  manta__muster_end(t);
  t->run = NULL;
  r->trainer = NULL;
  pthread_mutex_unlock(&drv.lock);
  manta__call_finish(r);
  manta__upload_end(r);
  let_go(r);
}

void manta_run_close(manta_run *r)
{
  if (!r || drv.dead) // a forked child: run and lock are its parent's
    return;
  if (r->trainer)
    manta__run_part(r, "closed before its end");
  run_free(r);
}

static manta_status run_to_end(manta_run *r, manta_value *results, manta_error *err)
{
  int rc;
  while ((rc = manta_run_next(r, -1, NULL, err)) == 1)
    ;
  if (rc == 0 && results && manta_value_copy(results, &r->results) < 0)
    rc = manta_error_set(err, MANTA_ENOMEM, "no memory for the results");
  manta_run_close(r);
  return (manta_status)rc;
}

manta_status manta_trainer_run(manta_trainer *t, manta_train_fn fn, const manta_run_config *rc,
                               manta_value *results, manta_error *err)
{
  manta_run *r;
  MANTA_TRY(start(&r, t, fn, rc, RUN, NULL, err));
  return run_to_end(r, results, err);
}

static manta_status execute(manta_trainer *t, manta_train_fn fn, const manta_value *arg,
                            enum purpose what, manta_value *results, manta_error *err)
{
  manta_run *r;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  rc.config = arg;
  MANTA_TRY(start(&r, t, fn, &rc, what, NULL, err));
  return run_to_end(r, results, err);
}

manta_status manta_trainer_execute(manta_trainer *t, manta_train_fn fn, const manta_value *arg,
                                   manta_value *results, manta_error *err)
{
  return execute(t, fn, arg, EXECUTE, results, err);
}

manta_status manta_trainer_execute_single(manta_trainer *t, manta_train_fn fn,
                                          const manta_value *arg, manta_value *result,
                                          manta_error *err)
{
  manta_value all = {0};
  manta_status st = execute(t, fn, arg, EXECUTE_SINGLE, &all, err);
  const manta_value *first = manta_value_at(&all, 0);
  if (st == MANTA_OK && result && first && manta_value_copy(result, first) < 0)
    st = manta_error_set(err, MANTA_ENOMEM, "no memory for the result");
  manta_value_fini(&all);
  return st;
}
