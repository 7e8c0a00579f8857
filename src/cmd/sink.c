/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/sink.c - `manta sink` and `manta mlflow push`: what the sinks of a run have not got yet, from
 * its log.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/runref.h"
#include "sink/process.h"
#include "sink/setup.h"
#include "sink/trials.h"
#include "sys/sock.h"
#include "tune/experiment.h"

// A run, or an experiment, whose trials have the sinks.
static manta_status open_ref(struct manta__runref *r, const char *what, manta_error *err)
{
  manta_status st = manta__runref_open(r, what, err);
  if (st != MANTA_ENOENT || !what ||
      manta__experiment_find(what, &r->fd, &r->path, NULL) != MANTA_OK)
    return st;
  const char *slash = strrchr(r->path, '/');
  r->name = slash ? slash + 1 : r->path;
  return MANTA_OK;
}

int manta__cmd_sink(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__runref r = MANTA__RUNREF_NONE;
  manta_status st = open_ref(&r, a->operand[0], &err);
  if (st == MANTA_OK)
    st = manta__sink_replay(r.fd, manta__args_get(a, "kind"), &err);
  if (st == MANTA_ENOENT && r.fd >= 0)
    manta_error_set(&err, st, "the run %s has no sinks", r.name);
  manta__runref_close(&r);
  return st < 0 ? manta__complain(&err) : MANTA__EXIT_OK;
}

// --- manta mlflow push ---------------------------------------------------------------------------

static bool has_mlflow(const manta_value *sinks)
{
  for (size_t i = 0; sinks && i < sinks->count; i++)
    if (!strcmp(manta_value_as_string(manta_value_get(manta_value_at(sinks, i), "kind"), ""),
                "mlflow"))
      return true;
  return false;
}

// The id of an experiment is in every record of its log. MANTA_ENOENT: it is a run.
static manta_status experiment_id(const struct manta__runref *r, char id[24], manta_error *err)
{
  manta__log_reader *log;
  struct manta__record head;
  const uint8_t *payload;
  int fd = openat(r->fd, MANTA__TRIALS_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return MANTA_ENOENT;
  manta_status st = manta__log_reader_open(&log, fd, err);
  manta__fd_close(&fd);
  MANTA_TRY(st);
  int rc = manta__log_next(log, &head, &payload, err);
  manta__log_reader_close(log);
  if (rc == 0)
    return manta_error_set(err, MANTA_ECORRUPT, "the log of %s is empty", r->name);
  if (rc == 1)
    snprintf(id, 24, "%016llx", (unsigned long long)head.id.run);
  return rc < 0 ? (manta_status)rc : MANTA_OK;
}

static manta_status add_mlflow(const struct manta__runref *r, manta_value *sinks,
                               const struct manta__args *a, manta_error *err)
{
  const char *uri = manta__args_get(a, "tracking-uri"), *name = manta__args_get(a, "experiment");
  const manta_value options =
      MANTA_MAP(MANTA_KV_STR("tracking_uri", uri), MANTA_KV_STR("experiment_name", name));
  const manta_sink sink = {"mlflow", &options};
  const manta_value none = {.type = MANTA_MAP};
  manta_value start = {0};
  int64_t wall_ns;
  struct manta__run_summary sum = {0};
  char id[24];
  MANTA_TRY(manta_sink_check(&sink, err));
  MANTA_TRY(manta__setup_add(sinks, &sink, err));
  manta_status is_tuned = experiment_id(r, id, err);
  if (is_tuned == MANTA_OK)
    return manta__setup_write(r->fd, id, &none, sinks, err);
  if (is_tuned != MANTA_ENOENT)
    return is_tuned;
  MANTA_TRY(manta__runref_start(r, &start, &wall_ns, err));
  manta_status st = manta__run_summary_read(&sum, r->fd, r->path, err);
  snprintf(id, sizeof id, "%016llx", (unsigned long long)sum.id);
  const manta_value *config = manta_value_get(&start, "config");
  if (st == MANTA_OK)
    st = manta__setup_write(r->fd, id, config ? config : &none, sinks, err);
  manta__run_summary_fini(&sum);
  manta_value_fini(&start);
  return st;
}

// A run that was not started with MLflow can be sent there as well.
static manta_status prepare(const struct manta__runref *r, const struct manta__args *a,
                            manta_error *err)
{
  manta_value setup = {0}, sinks = {0};
  manta_status st = manta__setup_read(r->fd, &setup, err);
  const manta_value *given = manta_value_get(&setup, "sinks");
  if (st == MANTA_ENOENT)
    st = MANTA_OK;
  if (st == MANTA_OK && given && manta_value_copy(&sinks, given) < 0)
    st = manta_error_set(err, MANTA_ENOMEM, "no memory for sinks");
  if (st == MANTA_OK && !has_mlflow(given))
    st = add_mlflow(r, &sinks, a, err);
  manta_value_fini(&setup);
  manta_value_fini(&sinks);
  return st;
}

int manta__cmd_mlflow(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__runref r = MANTA__RUNREF_NONE;
  if (strcmp(a->operand[0], "push")) {
    manta__say("manta mlflow can only push, not \"%s\"\nhint: manta mlflow push RUN",
               a->operand[0]);
    return MANTA__EXIT_USAGE;
  }
  manta_status st = open_ref(&r, a->operand[1], &err);
  if (st == MANTA_OK)
    st = prepare(&r, a, &err);
  if (st == MANTA_OK)
    st = manta__sink_replay(r.fd, "mlflow", &err);
  manta__runref_close(&r);
  return st < 0 ? manta__complain(&err) : MANTA__EXIT_OK;
}
