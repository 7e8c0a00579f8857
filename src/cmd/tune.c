/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/tune.c - `manta tune`: an experiment as it stands, its best trial, and going on with it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/tune.h>

#include "base/alloc.h"
#include "base/value.h"
#include "cmd/child.h"
#include "cmd/commands.h"
#include "cmd/explist.h"
#include "cmd/format.h"

#define SHOWN 20 // trials in a table for people

static const char *name_of(const manta_tune *t)
{
  const char *slash = strrchr(manta_tune_dir(t), '/');
  return slash ? slash + 1 : manta_tune_dir(t);
}

static const char *metric_of(const struct manta__args *a, const manta_tune *t)
{
  const char *given = manta__args_get(a, "metric");
  return given ? given : manta_value_as_string(manta_value_get(manta_tune_info(t), "metric"), NULL);
}

// The best trial by what was given, or by the experiment's own.
static manta_status find_best(const struct manta__args *a, manta_tune *t, uint64_t *number,
                              manta_error *err)
{
  const char *mode = manta__args_get(a, "mode"), *metric = manta__args_get(a, "metric");
  bool own = manta_value_as_bool(manta_value_get(manta_tune_info(t), "maximize"), false);
  if (mode && strcmp(mode, "min") != 0 && strcmp(mode, "max") != 0)
    return manta_error_set(err, MANTA_EINVAL, "--mode must be min or max, not \"%s\"", mode);
  if (!metric && !mode)
    return manta_tune_best(t, NULL, false, true, number, err);
  return manta_tune_best(t, metric_of(a, t), mode ? !strcmp(mode, "max") : own, true, number, err);
}

// --- as JSON -------------------------------------------------------------------------------------

static manta_status describe_trial(manta_value *v, manta_tune *t, uint64_t number, manta_error *err)
{
  manta_trial x;
  manta_value config = {0}, last = {0}, best = {0};
  MANTA_TRY(manta_tune_trial(t, number, &x, err));
  MANTA_TRY(manta_value_set_map(v));
  MANTA_TRY(manta_value_put_int(v, "trial", (int64_t)number));
  MANTA_TRY(manta_value_put_string(v, "state", manta_trial_state_name(x.state)));
  MANTA_TRY(manta_value_put_int(v, "iteration", x.iteration));
  MANTA_TRY(manta_value_put_int(v, "failures", x.failures));
  MANTA_TRY(manta_value_put_string(v, "dir", x.dir));
  MANTA_TRY(manta_value_put_string(v, "message", x.message));
  MANTA_TRY(manta_value_copy(&config, x.config));
  MANTA_TRY(manta_value_put(v, "config", &config));
  MANTA_TRY(manta_value_copy(&last, x.last));
  MANTA_TRY(manta_value_put(v, "last", &last));
  MANTA_TRY(manta_value_copy(&best, x.best));
  return manta_value_put(v, "best", &best);
}

static manta_status describe(manta_value *v, manta_tune *t, manta_error *err)
{
  manta_value trials = {0};
  MANTA_TRY(manta_value_set_map(v));
  MANTA_TRY(manta_value_put_string(v, "name", name_of(t)));
  MANTA_TRY(manta_value_put_string(v, "path", manta_tune_dir(t)));
  MANTA_TRY(manta_value_put_string(v, "state", manta__exp_state(t)));
  for (int s = MANTA_TRIAL_PENDING; s <= MANTA_TRIAL_FAILED; s++)
    MANTA_TRY(manta_value_put_int(v, manta_trial_state_name((manta_trial_state)s),
                                  (int64_t)manta_tune_count_state(t, (manta_trial_state)s)));
  MANTA_TRY(manta_value_set_list(&trials));
  for (uint64_t i = 0; i < manta_tune_count(t); i++) {
    manta_value one = {0};
    MANTA_TRY(describe_trial(&one, t, i, err));
    MANTA_TRY(manta_value_append(&trials, &one));
  }
  return manta_value_put(v, "trials", &trials);
}

// --- for people ----------------------------------------------------------------------------------

static void print_counts(const manta_tune *t)
{
  char text[256];
  size_t n = 0;
  for (int s = MANTA_TRIAL_PENDING; s <= MANTA_TRIAL_FAILED; s++) {
    uint64_t count = manta_tune_count_state(t, (manta_trial_state)s);
    if (count > 0)
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%" PRIu64 " %s", n ? ", " : "", count,
                            manta_trial_state_name((manta_trial_state)s));
  }
  manta__line("trials", "%" PRIu64 "%s%s", manta_tune_count(t), n ? ": " : "", n ? text : "");
}

// A line of its table: the newest value of the metric, and the config.
static void add_line(struct manta__grid *g, const manta_trial *x, const char *metric)
{
  char value[64] = "", config[96];
  const manta_value *v = metric ? manta__value_path(x->last, metric) : NULL;
  if (v)
    manta__text_value(value, sizeof value, v);
  manta__text_value(config, sizeof config, x->config);
  manta__grid_cell(g, "%" PRIu64, x->number);
  manta__grid_cell(g, "%s", manta_trial_state_name(x->state));
  manta__grid_cell(g, "%" PRId64, x->iteration);
  manta__grid_cell(g, "%s", value);
  manta__grid_cell(g, "%s", manta__text_safe(config));
}

static manta_status print_trials(manta_tune *t, const char *metric, manta_error *err)
{
  const char *titles[] = {"TRIAL", "STATE", "ITERATION", metric ? metric : "", "CONFIG"};
  struct manta__grid g;
  uint64_t n = manta_tune_count(t);
  manta_status st = MANTA_OK;
  manta__grid_init(&g, titles, 5, 1u << 0 | 1u << 2 | 1u << 3);
  for (uint64_t i = n > SHOWN ? n - SHOWN : 0; i < n && st == MANTA_OK; i++) {
    manta_trial x;
    if ((st = manta_tune_trial(t, i, &x, err)) == MANTA_OK)
      add_line(&g, &x, metric);
  }
  if (st == MANTA_OK)
    manta__grid_print(&g, stdout);
  if (st == MANTA_OK && n > SHOWN)
    printf("the newest %d of %" PRIu64 "; --json has all\n", SHOWN, n);
  manta__grid_fini(&g);
  return st;
}

// Why, of the first one: others often say the same.
static void print_failed(manta_tune *t)
{
  manta_trial x;
  if (manta_tune_count_state(t, MANTA_TRIAL_FAILED) == 0)
    return;
  for (uint64_t i = 0; i < manta_tune_count(t); i++) {
    if (manta_tune_trial(t, i, &x, NULL) < 0 || x.state != MANTA_TRIAL_FAILED)
      continue;
    char said[400];
    snprintf(said, sizeof said, "%.*s", (int)strcspn(x.message, "\n"), x.message);
    manta__line("failed", "trial %" PRIu64 ": %s", i, manta__text_safe(said));
    return;
  }
}

static void print_best(const struct manta__args *a, manta_tune *t)
{
  uint64_t best;
  manta_trial x;
  char value[64], config[200];
  const char *metric = metric_of(a, t);
  if (!metric || find_best(a, t, &best, NULL) < 0 || manta_tune_trial(t, best, &x, NULL) < 0)
    return;
  const manta_value *v = manta__value_path(x.best, metric);
  manta__text_value(config, sizeof config, x.config);
  manta__line("best", "trial %" PRIu64 "%s%s %s  %s", best, v ? ": " : "", v ? metric : "",
              v ? manta__text_value(value, sizeof value, v) : "", manta__text_safe(config));
}

int manta__show_experiment(const struct manta__args *a, manta_tune *t, manta_error *err)
{
  if (manta__args_has(a, "json")) {
    manta_value v = {0};
    manta_status st = describe(&v, t, err);
    int code = st < 0 ? manta__complain(err) : manta__print_json(&v);
    manta_value_fini(&v);
    return code;
  }
  pid_t pid = manta__exp_holder(t);
  manta__line("name", "%s", name_of(t));
  manta__line("state", "%s", manta__exp_state(t));
  if (pid > 0)
    manta__line("pid", "%d", (int)pid);
  print_counts(t);
  print_best(a, t);
  print_failed(t);
  return print_trials(t, metric_of(a, t), err) < 0 ? manta__complain(err) : MANTA__EXIT_OK;
}

static int show_best(const struct manta__args *a, manta_tune *t, manta_error *err)
{
  uint64_t best = 0;
  manta_trial x;
  manta_value v = {0};
  manta_status st = find_best(a, t, &best, err);
  if (st == MANTA_OK && manta__args_has(a, "json"))
    st = describe_trial(&v, t, best, err);
  else if (st == MANTA_OK && (st = manta_tune_trial(t, best, &x, err)) == MANTA_OK)
    st = manta_value_copy(&v, x.config);
  int code = st < 0 ? manta__complain(err) : manta__print_json(&v);
  manta_value_fini(&v);
  return code;
}

// --- going on ------------------------------------------------------------------------------------

static int run_again(const manta_value *info, manta_error *err)
{
  const manta_value *list = manta_value_get(info, "argv");
  size_t n = list && list->type == MANTA_LIST ? list->count : 0;
  char **argv = n ? manta__calloc(n + 1, sizeof *argv) : NULL;
  if (!argv) {
    manta_error_set(err, n ? MANTA_ENOMEM : MANTA_ECORRUPT,
                    "the experiment's log does not say how it was started");
    return manta__complain(err);
  }
  for (size_t i = 0; i < n; i++)
    argv[i] = (char *)(uintptr_t)manta_value_as_string(manta_value_at(list, i), "");
  int code = manta__child_run(manta_value_as_string(manta_value_get(info, "exe"), argv[0]), argv);
  manta__free(argv);
  return code;
}

static int go_on(manta_tune *t, manta_error *err)
{
  const manta_value *info = manta_tune_info(t);
  const char *cwd = manta_value_as_string(manta_value_get(info, "cwd"), "");
  pid_t pid = manta__exp_holder(t);
  if (pid != 0) {
    manta__say("%s is still running (pid %d)\nhint: manta tune status %s", name_of(t), (int)pid,
               name_of(t));
    return MANTA__EXIT_FAILED;
  }
  setenv("MANTA_TUNE_RESUME", manta_tune_dir(t), 1);
  if (cwd[0] && chdir(cwd) < 0) {
    manta_error_set(err, MANTA_EIO, "enter its working directory %s: %m", cwd);
    return manta__complain(err);
  }
  return manta__child_prepare(err) < 0 ? manta__complain(err) : run_again(info, err);
}

int manta__cmd_tune(const struct manta__args *a)
{
  manta_tune *t;
  manta_error err = MANTA_ERROR_INIT;
  const char *what = a->operand[0];
  bool status = !strcmp(what, "status"), best = !strcmp(what, "best");
  if (!status && !best && strcmp(what, "resume") != 0) {
    manta_error_set(&err, MANTA_EINVAL,
                    "manta tune has no \"%s\"\nhint: there are status, best and resume", what);
    return manta__complain(&err);
  }
  if (manta_tune_open(&t, a->operand[1], &err) < 0)
    return manta__complain(&err);
  int code = status ? manta__show_experiment(a, t, &err)
             : best ? show_best(a, t, &err)
                    : go_on(t, &err);
  manta_tune_close(t);
  return code;
}
