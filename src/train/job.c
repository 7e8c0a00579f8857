/* SPDX-License-Identifier: Apache-2.0
 *
 * train/job.c - what the workers of a run are told to do: function, config, environment, payload.
 */
#include <limits.h>
#include <unistd.h>

#include "group/proto.h"
#include "sys/file.h"
#include "sys/shm.h"
#include "train/func.h"
#include "train/run.h"
#include "train/trainer.h"

static manta_status fill_job(manta_value *job, manta_run *r, manta_train_fn fn, manta_error *err)
{
  manta_value env = {0}, config = {0};
  char cwd[4096], dir[PATH_MAX];
  MANTA_TRY(manta_value_set_map(job));
  MANTA_TRY(manta__func_describe(job, fn, err));
  MANTA_TRY(manta__program_environment(&r->trainer->program, false, &env));
  MANTA_TRY(manta_value_put(job, "env", &env));
  if (getcwd(cwd, sizeof cwd))
    MANTA_TRY(manta_value_put_string(job, "cwd", cwd));
  MANTA_TRY(manta_value_copy(&config, &r->config));
  MANTA_TRY(manta_value_put(job, "config", &config));
  MANTA_TRY(manta_value_put_bool(job, "in_run", !r->exec));
  MANTA_TRY(manta_value_put_bool(job, "single", r->single));
  if (r->rundir >= 0) {
    manta__dir_path(r->rundir, dir);
    MANTA_TRY(manta_value_put_string(job, "dir", dir));
  }
  if (r->score)
    MANTA_TRY(manta_value_put_string(job, "score", r->score));
  if (r->score_optional)
    MANTA_TRY(manta_value_put_bool(job, "score_optional", true));
  if (r->light) {
    MANTA_TRY(manta_value_put_bool(job, "apart", r->apart));
    MANTA_TRY(manta_value_put_bool(job, "lockstep", r->lockstep));
  }
  return manta_value_put_int(job, "threads", r->trainer->worker_threads);
}

// struct manta__job_head, the description, the payload.
static manta_status write_job(manta_run *r, const void *spec, size_t len, manta_error *err)
{
  struct manta__job_head h = {.spec = len, .payload = r->payload ? r->payload_bytes : 0};
  size_t at = (sizeof h + len + MANTA__JOB_PAGE - 1) / MANTA__JOB_PAGE * MANTA__JOB_PAGE;
  MANTA_TRY(manta__shm_create("manta-job", at + h.payload, &r->job_fd, err));
  if (manta__write_all(r->job_fd, &h, sizeof h, NULL) == 0 &&
      manta__write_all(r->job_fd, spec, len, NULL) == 0 &&
      lseek(r->job_fd, (off_t)at, SEEK_SET) >= 0 &&
      manta__write_all(r->job_fd, r->payload, h.payload, NULL) == 0)
    return MANTA_OK;
  return manta_error_set(err, MANTA_ENOMEM, "no memory for a job of %zu bytes: %m",
                         at + (size_t)h.payload);
}

// All workers read the same description out of one memfd.
manta_status manta__job_make(manta_run *r, manta_train_fn fn, manta_error *err)
{
  manta_value job = {0};
  void *bytes = NULL;
  size_t len;
  manta_status st = fill_job(&job, r, fn, err);
  if (st == MANTA_ENOMEM)
    manta_error_set(err, st, "no memory to describe the job");
  if (st == MANTA_OK)
    st = manta_value_pack(&job, &bytes, &len, err);
  if (st == MANTA_OK)
    st = write_job(r, bytes, len, err);
  manta_free(bytes);
  manta_value_fini(&job);
  r->payload = NULL;
  return st;
}
