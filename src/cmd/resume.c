/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/resume.c - `manta resume`: the program of an interrupted run again, which finds its runs by
 * the session that the environment names.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/trainer.h>

#include "base/alloc.h"
#include "base/knob.h"
#include "ckpt/replica.h"
#include "cmd/build.h"
#include "cmd/child.h"
#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/runref.h"
#include "remote/objects.h"

/* How the run was started, out of its first record; borrowed from it. */
struct origin {
  const char *exe, *cwd;
  int64_t session, build, workers, begin_ns;
  char **argv; // NULL-terminated, freed as a whole
};

// --- What stands in the way ----------------------------------------------------------------------

static int print_result(const struct manta__runref *r, const struct manta__standing *s)
{
  const manta_value *results = manta_value_get(&s->sum.finish, "results");
  const manta_value *files = manta_value_get(&s->sum.finish, "files");
  manta__say("%s has finished: there is nothing to resume; its results are", r->name);
  for (size_t i = 0; files && files->type == MANTA_LIST && i < files->count; i++) {
    const manta_value *f = manta_value_at(files, i);
    if (f->type == MANTA_MAP)
      manta__say("the result of rank %zu is in %s/%s", i, r->path,
                 manta_value_as_string(manta_value_get(f, "file"), "?"));
  }
  return results ? manta__print_json(results) : MANTA__EXIT_OK;
}

static int refuse_running(const struct manta__runref *r, const struct manta__standing *s)
{
  if (s->holder > 0)
    manta__say("%s is still running (pid %d)\nhint: manta status %s", r->name, (int)s->holder,
               r->name);
  else
    manta__say("%s is still running in another container or on another host", r->name);
  return MANTA__EXIT_FAILED;
}

// --- How it was started --------------------------------------------------------------------------

static manta_status read_argv(struct origin *o, const manta_value *list, manta_error *err)
{
  size_t n = list && list->type == MANTA_LIST ? list->count : 0;
  if (n == 0)
    return manta_error_set(err, MANTA_ECORRUPT, "the run's log does not say how it was started");
  o->argv = manta__calloc(n + 1, sizeof *o->argv);
  if (!o->argv)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the arguments of the program");
  for (size_t i = 0; i < n; i++)
    o->argv[i] = (char *)(uintptr_t)manta_value_as_string(manta_value_at(list, i), "");
  return MANTA_OK;
}

static manta_status read_origin(struct origin *o, const manta_value *start, manta_error *err)
{
  o->session = manta_value_as_int(manta_value_get(start, "session"), 0);
  o->build = manta_value_as_int(manta_value_get(start, "build"), 0);
  o->workers = manta_value_as_int(manta_value_get(start, "workers"), 0);
  o->cwd = manta_value_as_string(manta_value_get(start, "cwd"), "");
  MANTA_TRY(read_argv(o, manta_value_get(start, "argv"), err));
  o->exe = manta_value_as_string(manta_value_get(start, "exe"), o->argv[0]);
  if (o->session <= 0)
    return manta_error_set(err, MANTA_ECORRUPT,
                           "the run's log names no session, by which it could be found again");
  return MANTA_OK;
}

static void warn_of_change(const struct origin *o)
{
  if (access(o->exe, X_OK) == 0 && manta__build_changed(o->exe, o->build, o->begin_ns))
    manta__say("warning: %s is another build than the one that began this run", o->exe);
}

// --- Going on ------------------------------------------------------------------------------------

static manta_status set_workers(const struct manta__args *a, const struct origin *o,
                                manta_error *err)
{
  const char *given = manta__args_get(a, "workers");
  int64_t n = o->workers;
  char text[24];
  if (given)
    MANTA_TRY(manta__args_int(&n, given, "-n", 1, MANTA_MAX_RANKS, err));
  if (!given && (manta__knob_is_set(MANTA__KNOB_NUM_WORKERS) || n <= 0))
    return MANTA_OK;
  snprintf(text, sizeof text, "%" PRId64, n);
  setenv("MANTA_NUM_WORKERS", text, 1);
  return MANTA_OK;
}

static manta_status set_environment(const struct manta__runref *r, const struct origin *o,
                                    manta_error *err)
{
  char session[24];
  snprintf(session, sizeof session, "%" PRIx64, (uint64_t)o->session);
  char *parent = manta__strndup(r->path, (size_t)(r->name - r->path - 1));
  if (!parent)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the path of results");
  setenv("MANTA_RESUME", session, 1);
  setenv("MANTA_RESULTS", parent[0] ? parent : "/", 1);
  manta__free(parent);
  if (o->cwd[0] && chdir(o->cwd) < 0)
    return manta_error_set(err, MANTA_EIO, "enter its working directory %s: %m", o->cwd);
  return manta__child_prepare(err);
}

// Whoever can write there chose the program: only its user can tell whether that is fine.
static bool is_foreign(const struct manta__args *a, const struct manta__runref *r)
{
  return !manta__args_get(a, "trust") && faccessat(r->fd, MANTA__FETCHED_FILE, F_OK, 0) == 0;
}

static int refuse_foreign(const struct manta__runref *r, const manta_value *start)
{
  char argv[512];
  manta__text_argv(argv, sizeof argv, manta_value_get(start, "argv"));
  manta__say("%s was downloaded; to resume it is to run what its log says: %s\n"
             "hint: manta resume --trust %s, if it is yours",
             r->name, argv, r->path);
  return MANTA__EXIT_FAILED;
}

static int go_on(const struct manta__args *a, const struct manta__runref *r, manta_error *err)
{
  struct origin o = {0};
  manta_value start = {0};
  manta_status st = manta__runref_start(r, &start, &o.begin_ns, err);
  if (st == MANTA_OK && is_foreign(a, r)) {
    int code = refuse_foreign(r, &start);
    manta_value_fini(&start);
    return code;
  }
  if (st == MANTA_OK)
    st = read_origin(&o, &start, err);
  if (st == MANTA_OK)
    st = set_workers(a, &o, err);
  if (st == MANTA_OK)
    st = set_environment(r, &o, err);
  if (st == MANTA_OK)
    warn_of_change(&o);
  int code = st < 0 ? manta__complain(err) : manta__child_run(o.exe, o.argv);
  manta__free(o.argv);
  manta_value_fini(&start);
  return code;
}

int manta__cmd_resume(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__runref r;
  struct manta__standing s;
  const char *what = a->operand[0];
  if (manta__runref_open(&r, what, &err) < 0 ||
      (manta__is_uri(what) && manta__replica_fetch_session(what, &err) < 0))
    return manta__complain(&err);
  int code;
  if (manta__standing_await(&s, &r, &err) < 0) {
    code = manta__complain(&err);
  } else {
    bool done = s.sum.state == MANTA__RUN_DONE;
    code = done ? print_result(&r, &s) : s.holder ? refuse_running(&r, &s) : go_on(a, &r, &err);
    manta__standing_fini(&s);
  }
  manta__runref_close(&r);
  return code;
}
