/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/mlflow.c - a run of MLflow's for a run of ours: params, metrics, tags, artifacts, status.
 *
 * (1) The MLflow run carries the tag manta.run. It is looked for before one is made, and its id is
 *     in the memo: a revival, a resumption or another process never make a second one.
 * (2) A metric that was sent cannot be taken back. So an iteration is sent once: after a rewind,
 *     what comes again of iterations that are there already is left out. A batch that is sent
 *     again because its answer was lost does no harm: MLflow keeps one of two equal values.
 * (3) What the server refuses for good (a name, a value) is told once and left out; all else is
 *     tried again, from the last bookmark.
 */
#include "sink/trackers.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "base/value.h"
#include "sink/leaves.h"
#include "sys/sock.h"

#define BATCH     1000 /* metrics of a call */
#define PARAMS    100  /* of a call */
#define VALUE_MAX 6000 /* bytes of a param */
#define KEY_MAX   250
#define DEPTH     8 /* of directories that are uploaded */
#define LINGER_S  5.0
#define IMPORT_S  45.0 /* for a store: its package is imported first */
#define MS        1000000

struct mlflow_sink {
  const struct manta__sink_env *env;
  manta__mlflow *link;
  manta_value memo; /* run_id, artifact_uri */
  bool memo_changed;
  const char *run_id, *root; /* in the memo */
  manta_value metrics;       /* a list: those that wait */
  int64_t sent, seen;        /* iterations: at the server, in part perhaps; in `metrics`, too */
  bool params_sent, told, well;
  const char *status; /* to be sent, or NULL */
  int64_t end_ms;     /* with it; 0: none */
  bool over;          /* the run has ended by itself */
  manta__buf path;    /* of leaves */
};

static const char *option(const struct mlflow_sink *s, const char *name, const char *variable)
{
  const char *given = manta_value_as_string(manta_value_get(s->env->options, name), NULL);
  const char *set = variable && !given ? getenv(variable) : given;
  return set && *set ? set : NULL;
}

// Letters for the server, which takes what Python's \w does, as far as it is easily told.
static bool is_letter(uint32_t c)
{
  static const uint32_t ranges[][2] = {
      {0xc0, 0xd6},     {0xd8, 0xf6},     {0xf8, 0x24f},   {0x3a3, 0x3f5},   {0x400, 0x481},
      {0x48a, 0x52f},   {0x5d0, 0x5ea},   {0x620, 0x64a},  {0x3041, 0x3096}, {0x30a1, 0x30fa},
      {0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xac00, 0xd7a3}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (c >= ranges[i][0] && c <= ranges[i][1])
      return true;
  return false;
}

// The character at p, of n bytes; 0: none that has two or three.
static uint32_t character(const uint8_t *p, size_t n)
{
  if (n == 2)
    return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
  return n == 3 ? (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu) : 0;
}

// What the server takes in the name of a metric or a param; each other character becomes "_".
static void clean_name(char out[KEY_MAX + 1], const char *name, const char *suffix)
{
  const uint8_t *p = (const uint8_t *)name;
  size_t at = 0, most = KEY_MAX - strlen(suffix);
  for (size_t left = strlen(name), n; left > 0 && at < most; p += n, left -= n) {
    n = manta__utf8_step(p, left);
    n = n ? n : 1;
    bool fine = n == 1 ? isalnum(*p) || strchr("_-. :/", *p) : is_letter(character(p, n));
    if (at + (fine ? n : 1) > most)
      break;
    memcpy(out + at, fine ? (const char *)p : "_", fine ? n : 1);
    at += fine ? n : 1;
  }
  snprintf(out + at, KEY_MAX + 1 - at, "%s", suffix);
}

// (3): true, and told, if it is of no use to send it again.
static bool is_refused(struct mlflow_sink *s, manta_status st, const manta_error *err)
{
  if (st != MANTA_EINVAL)
    return false;
  if (!s->told)
    s->env->warn(s->env, err->message);
  s->told = true;
  return true;
}

// --- lists of maps -------------------------------------------------------------------------------

static manta_status append_copy(manta_value *list, const manta_value *map)
{
  manta_value one = {0};
  MANTA_TRY(manta_value_copy(&one, map));
  manta_status st = manta_value_append(list, &one);
  manta_value_fini(&one);
  return st;
}

static manta_status append_tag(manta_value *list, const char *key, const char *value)
{
  const manta_value map = MANTA_MAP(MANTA_KV_STR("key", key), MANTA_KV_STR("value", value));
  return append_copy(list, &map);
}

// --- the MLflow run ------------------------------------------------------------------------------

static manta_status find_experiment(struct mlflow_sink *s, char id[64], manta_error *err)
{
  const char *name = option(s, "experiment_name", "MLFLOW_EXPERIMENT_NAME");
  const char *given = name ? NULL : option(s, "experiment_id", "MLFLOW_EXPERIMENT_ID");
  if (given) {
    snprintf(id, 64, "%s", given);
    return MANTA_OK;
  }
  const manta_value by_name = MANTA_MAP(MANTA_KV_STR("experiment_name", name ? name : "Default"));
  const manta_value make = MANTA_MAP(MANTA_KV_STR("name", name ? name : "Default"));
  manta_value answer = {0};
  manta_status st =
      manta__mlflow_call(s->link, "experiments/get-by-name", true, &by_name, &answer, err);
  const manta_value *found = manta_value_get(&answer, "experiment");
  if (st == MANTA_ENOENT) {
    st = manta__mlflow_call(s->link, "experiments/create", false, &make, &answer, err);
    found = &answer;
  }
  snprintf(id, 64, "%s", manta_value_as_string(manta_value_get(found, "experiment_id"), ""));
  manta_value_fini(&answer);
  if (st == MANTA_OK && !*id)
    return manta_error_set(err, MANTA_EPROTO, "%s names no experiment: is it an MLflow server?",
                           option(s, "tracking_uri", "MLFLOW_TRACKING_URI"));
  return st;
}

static manta_status keep_run(struct mlflow_sink *s, const manta_value *run, manta_error *err)
{
  const manta_value *info = manta_value_get(run, "info");
  const char *id = manta_value_as_string(manta_value_get(info, "run_id"), NULL);
  const char *root = manta_value_as_string(manta_value_get(info, "artifact_uri"), "");
  if (!id)
    return manta_error_set(err, MANTA_EPROTO, "the server names no run");
  const manta_value memo = MANTA_MAP(MANTA_KV_STR("run_id", id), MANTA_KV_STR("root", root));
  if (manta_value_copy(&s->memo, &memo) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a sink");
  s->memo_changed = true;
  return MANTA_OK;
}

// MANTA_ENOENT: there is none of ours yet.
static manta_status search_run(struct mlflow_sink *s, const char *experiment, manta_error *err)
{
  char filter[96];
  manta_value answer = {0}, id = manta_value_borrow_string(experiment);
  const manta_value ids = {.type = MANTA_LIST, .count = 1, .u.items = &id};
  snprintf(filter, sizeof filter, "tags.`manta.run` = '%s'", s->env->run_id);
  const manta_value body =
      MANTA_MAP(MANTA_KV("experiment_ids", ids), MANTA_KV_STR("filter", filter),
                MANTA_KV_INT("max_results", 1));
  manta_status st = manta__mlflow_call(s->link, "runs/search", false, &body, &answer, err);
  const manta_value *first = manta_value_at(manta_value_get(&answer, "runs"), 0);
  if (st == MANTA_OK)
    st = first ? keep_run(s, first, err) : MANTA_ENOENT;
  manta_value_fini(&answer);
  return st;
}

static manta_status fill_tags(struct mlflow_sink *s, manta_value *tags)
{
  const manta_value *given = manta_value_get(s->env->options, "tags");
  MANTA_TRY(manta_value_set_list(tags));
  MANTA_TRY(append_tag(tags, "manta.run", s->env->run_id));
  MANTA_TRY(append_tag(tags, "manta.directory", s->env->run_dir));
  MANTA_TRY(append_tag(tags, "mlflow.source.type", "JOB"));
  for (uint32_t i = 0; given && given->type == MANTA_MAP && i < given->count; i++) {
    const manta_pair *p = &given->u.pairs[i];
    char *text = NULL;
    manta_status st =
        p->value.type == MANTA_STRING ? MANTA_OK : manta_value_to_json(&p->value, -1, &text, NULL);
    if (st == MANTA_OK)
      st = append_tag(tags, p->key, text ? text : p->value.u.s);
    manta_free(text);
    MANTA_TRY(st);
  }
  return MANTA_OK;
}

static manta_status create_run(struct mlflow_sink *s, const char *experiment, manta_error *err)
{
  manta_value tags = {0}, answer = {0};
  const char *name = option(s, "run_name", NULL);
  manta_status st = fill_tags(s, &tags);
  const manta_value body =
      MANTA_MAP(MANTA_KV_STR("experiment_id", experiment),
                MANTA_KV_STR("run_name", name ? name : s->env->run_name),
                MANTA_KV_INT("start_time", manta__wall() / MS), MANTA_KV("tags", tags));
  if (st < 0)
    manta_error_set(err, st, "no memory for a sink");
  else
    st = manta__mlflow_call(s->link, "runs/create", false, &body, &answer, err);
  if (st == MANTA_OK)
    st = keep_run(s, manta_value_get(&answer, "run"), err);
  manta_value_fini(&answer);
  manta_value_fini(&tags);
  return st;
}

// One that the user has made himself.
static manta_status adopt_run(struct mlflow_sink *s, const char *id, manta_error *err)
{
  manta_value answer = {0};
  const manta_value body = MANTA_MAP(MANTA_KV_STR("run_id", id));
  manta_status st = manta__mlflow_call(s->link, "runs/get", true, &body, &answer, err);
  if (st == MANTA_OK)
    st = keep_run(s, manta_value_get(&answer, "run"), err);
  manta_value_fini(&answer);
  return st;
}

static manta_status have_run(struct mlflow_sink *s, manta_error *err)
{
  char experiment[64];
  const char *given = option(s, "run_id", NULL);
  if (s->memo.type == MANTA_MAP)
    return MANTA_OK;
  if (given)
    return adopt_run(s, given, err);
  MANTA_TRY(find_experiment(s, experiment, err));
  manta_status st = search_run(s, experiment, err);
  return st == MANTA_ENOENT ? create_run(s, experiment, err) : st;
}

// --- opening -------------------------------------------------------------------------------------

static void mlflow_close(void *sink);

static manta_status mlflow_open(void **out, const struct manta__sink_env *env, manta_error *err)
{
  struct mlflow_sink *s = manta__calloc(1, sizeof *s);
  if (!s)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a sink");
  s->env = env;
  manta__buf_init(&s->path, 64u << 10);
  const char *uri = option(s, "tracking_uri", "MLFLOW_TRACKING_URI");
  manta_status st = manta_value_set_list(&s->metrics);
  if (st == MANTA_OK && env->memo && env->memo->type == MANTA_MAP)
    st = manta_value_copy(&s->memo, env->memo);
  if (st < 0)
    manta_error_set(err, st, "no memory for a sink");
  if (st == MANTA_OK)
    st = manta__mlflow_open(&s->link, uri ? uri : "", option(s, "python", NULL), env->quit, err);
  if (st == MANTA_OK)
    st = have_run(s, err);
  if (st < 0) {
    mlflow_close(s);
    return st;
  }
  s->run_id = manta_value_as_string(manta_value_get(&s->memo, "run_id"), "");
  s->root = manta_value_as_string(manta_value_get(&s->memo, "root"), "");
  *out = s;
  return MANTA_OK;
}

static const manta_value *mlflow_memo(void *sink, bool *changed, bool *void_marks)
{
  struct mlflow_sink *s = sink;
  *changed = s->memo_changed;
  *void_marks = false;
  s->memo_changed = false;
  return &s->memo;
}

// --- params --------------------------------------------------------------------------------------

static manta_status send_params(struct mlflow_sink *s, manta_value *list, manta_error *err)
{
  manta_value answer = {0};
  const manta_value body = MANTA_MAP(MANTA_KV_STR("run_id", s->run_id), MANTA_KV("params", *list));
  manta_status st = MANTA_OK;
  if (list->count > 0)
    st = manta__mlflow_call(s->link, "runs/log-batch", false, &body, &answer, err);
  manta_value_fini(&answer);
  if (st < 0 && !is_refused(s, st, err))
    return st;
  return manta_value_set_list(list);
}

struct params {
  struct mlflow_sink *s;
  manta_value list;
  manta_error *err;
};

static manta_status add_param(void *ctx, const char *name, const manta_value *v)
{
  struct params *p = ctx;
  char key[KEY_MAX + 1], value[VALUE_MAX + 1], *json = NULL;
  clean_name(key, name, "");
  if (v->type != MANTA_STRING)
    MANTA_TRY(manta_value_to_json(v, -1, &json, NULL));
  snprintf(value, sizeof value, "%s", json ? json : v->u.s);
  manta_free(json);
  MANTA_TRY(append_tag(&p->list, key, value));
  return p->list.count < PARAMS ? MANTA_OK : send_params(p->s, &p->list, p->err);
}

static manta_status log_params(struct mlflow_sink *s, manta_error *err)
{
  struct params p = {.s = s, .err = err};
  if (s->params_sent)
    return MANTA_OK;
  manta_status st = manta_value_set_list(&p.list);
  if (st == MANTA_OK)
    st = manta__leaves(s->env->config, &s->path, add_param, &p);
  if (st == MANTA_OK)
    st = send_params(s, &p.list, err);
  manta_value_fini(&p.list);
  s->params_sent = st == MANTA_OK;
  return st;
}

// --- metrics -------------------------------------------------------------------------------------

static manta_status send_metrics(struct mlflow_sink *s, manta_error *err)
{
  for (uint32_t at = 0, n; at < s->metrics.count; at += n) {
    n = s->metrics.count - at < BATCH ? s->metrics.count - at : BATCH;
    manta_value answer = {0};
    const manta_value part = {.type = MANTA_LIST, .count = n, .u.items = s->metrics.u.items + at};
    const manta_value body =
        MANTA_MAP(MANTA_KV_STR("run_id", s->run_id), MANTA_KV("metrics", part));
    manta_status st = manta__mlflow_call(s->link, "runs/log-batch", false, &body, &answer, err);
    manta_value_fini(&answer);
    if (st < 0 && !is_refused(s, st, err))
      return st;
  }
  s->sent = s->seen > s->sent ? s->seen : s->sent;
  return manta_value_set_list(&s->metrics);
}

struct metrics {
  struct mlflow_sink *s;
  int64_t step, ms;
  char suffix[32];
};

static manta_status add_metric(void *ctx, const char *name, const manta_value *v)
{
  struct metrics *m = ctx;
  char key[KEY_MAX + 1];
  double x = v->type == MANTA_BOOL ? v->u.b : manta_value_as_real(v, 0);
  if ((v->type != MANTA_INT && v->type != MANTA_REAL && v->type != MANTA_BOOL) || name[0] == '_')
    return MANTA_OK;
  if (v->type == MANTA_INT)
    x = (double)v->u.i;
  clean_name(key, name, m->suffix);
  manta_value value = manta_value_real(x);
  if (!isfinite(x)) // as protobuf's JSON has it
    value = manta_value_borrow_string(isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
  const manta_value one =
      MANTA_MAP(MANTA_KV_STR("key", key), MANTA_KV("value", value),
                MANTA_KV_INT("timestamp", m->ms), MANTA_KV_INT("step", m->step));
  return append_copy(&m->s->metrics, &one);
}

static manta_status mlflow_rows(void *sink, const struct manta__sink_rows *rows, manta_error *err)
{
  struct mlflow_sink *s = sink;
  if (rows->iteration <= s->sent) // (2)
    return MANTA_OK;
  s->seen = rows->iteration;
  for (int i = 0; i < rows->count; i++) {
    const struct manta__sink_row *r = &rows->row[i];
    struct metrics m = {s, rows->iteration, r->wall_ns / MS, ""};
    if (rows->several)
      snprintf(m.suffix, sizeof m.suffix, "/rank-%d", r->rank);
    if (manta__leaves(&r->row, &s->path, add_metric, &m) < 0)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for metrics");
  }
  return s->metrics.count < BATCH ? MANTA_OK : send_metrics(s, err);
}

// Those that wait and are void now are not sent.
static manta_status mlflow_rewound(void *sink, int64_t to, int64_t wall_ns, manta_error *err)
{
  struct mlflow_sink *s = sink;
  manta_value left = {0};
  manta_status st = manta_value_set_list(&left);
  for (uint32_t i = 0; st == MANTA_OK && i < s->metrics.count; i++) {
    manta_value *one = &s->metrics.u.items[i];
    if (manta_value_as_int(manta_value_get(one, "step"), 0) <= to)
      st = manta_value_append(&left, one);
  }
  if (st == MANTA_OK)
    manta_value_move(&s->metrics, &left);
  manta_value_fini(&left);
  s->seen = s->seen < to ? s->seen : to;
  return st < 0 ? manta_error_set(err, st, "no memory for metrics") : MANTA_OK;
}

// --- artifacts -----------------------------------------------------------------------------------

static manta_status upload_folder(struct mlflow_sink *s, const char *folder, int depth,
                                  manta_error *err);

static manta_status upload_entry(struct mlflow_sink *s, const char *path, int depth,
                                 manta_error *err)
{
  struct stat sb;
  if (fstatat(s->env->rundir, path, &sb, AT_SYMLINK_NOFOLLOW) < 0)
    return MANTA_OK; // gone meanwhile
  if (S_ISDIR(sb.st_mode))
    return upload_folder(s, path, depth + 1, err);
  return S_ISREG(sb.st_mode) ? manta__mlflow_upload(s->link, s->run_id, s->root, s->env->rundir,
                                                    s->env->run_dir, path, err)
                             : MANTA_OK;
}

// All of the run's directory but its log, which is what everything else was made of.
static manta_status upload_folder(struct mlflow_sink *s, const char *folder, int depth,
                                  manta_error *err)
{
  int fd = depth < DEPTH
               ? openat(s->env->rundir, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
               : -1;
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  manta_status st = MANTA_OK;
  if (!d) {
    manta__fd_close(&fd);
    return MANTA_OK;
  }
  for (struct dirent *e; st == MANTA_OK && (e = readdir(d));) {
    if (e->d_name[0] == '.' || !strncmp(e->d_name, "run.log", 7))
      continue;
    char *path = strcmp(folder, ".") ? manta__asprintf("%s/%s", folder, e->d_name)
                                     : manta__strdup(e->d_name);
    st = path ? upload_entry(s, path, depth, err)
              : manta_error_set(err, MANTA_ENOMEM, "no memory for artifacts");
    manta__free(path);
  }
  closedir(d);
  return st;
}

static manta_status upload(struct mlflow_sink *s, manta_error *err)
{
  if (!manta_value_as_bool(manta_value_get(s->env->options, "save_artifact"), false))
    return MANTA_OK;
  manta_status st = upload_folder(s, ".", 0, err);
  if (st != MANTA_EUNSUPPORTED)
    return st;
  s->env->warn(s->env, err->message);
  return MANTA_OK;
}

// --- the end -------------------------------------------------------------------------------------

static manta_status mlflow_event(void *sink, const struct manta__record *head,
                                 const manta_value *payload, manta_error *err)
{
  struct mlflow_sink *s = sink;
  const char *status = manta_value_as_string(manta_value_get(payload, "status"), "");
  if (head->kind == MANTA__EV_ATTEMPT) {
    s->status = head->id.attempt > 0 ? "RUNNING" : NULL;
    s->end_ms = 0;
    s->over = false;
  } else if (head->kind == MANTA__EV_FINISH) {
    s->status = !strcmp(status, "OK") ? "FINISHED" : "FAILED";
    s->end_ms = head->wall_ns / MS;
    s->over = true;
  }
  return MANTA_OK;
}

static manta_status send_status(struct mlflow_sink *s, const char *status, int64_t end_ms,
                                manta_error *err)
{
  manta_value answer = {0};
  const manta_value ended =
      MANTA_MAP(MANTA_KV_STR("run_id", s->run_id), MANTA_KV_STR("status", status),
                MANTA_KV_INT("end_time", end_ms));
  manta_value body = ended;
  body.count = end_ms ? 3 : 2;
  manta_status st = manta__mlflow_call(s->link, "runs/update", false, &body, &answer, err);
  manta_value_fini(&answer);
  return st;
}

static manta_status mlflow_flush(void *sink, manta_error *err)
{
  struct mlflow_sink *s = sink;
  s->well = false;
  MANTA_TRY(log_params(s, err));
  MANTA_TRY(send_metrics(s, err));
  if (s->status && s->over)
    MANTA_TRY(upload(s, err));
  if (s->status)
    MANTA_TRY(send_status(s, s->status, s->end_ms, err));
  s->status = NULL;
  s->well = true;
  return MANTA_OK;
}

static void mlflow_mark(const void *sink, struct manta__sink_mark *out)
{
  const struct mlflow_sink *s = sink;
  *out = (struct manta__sink_mark){{s->sent, s->params_sent, s->over, 0}};
}

static manta_status mlflow_back(void *sink, const struct manta__sink_mark *m, manta_error *err)
{
  struct mlflow_sink *s = sink;
  s->sent = s->seen = m->word[0];
  s->params_sent = m->word[1];
  s->over = m->word[2];
  s->status = NULL;
  return manta_value_set_list(&s->metrics);
}

static void mlflow_close(void *sink)
{
  struct mlflow_sink *s = sink;
  if (s->run_id && s->well && !s->over && !atomic_load(s->env->quit)) // it can be resumed
    send_status(s, "KILLED", manta__wall() / MS, NULL);
  manta__mlflow_close(s->link);
  manta_value_fini(&s->memo);
  manta_value_fini(&s->metrics);
  manta__buf_fini(&s->path);
  manta__free(s);
}

static double mlflow_linger(const manta_value *options)
{
  const char *uri = manta_value_as_string(manta_value_get(options, "tracking_uri"), NULL);
  uri = uri ? uri : getenv("MLFLOW_TRACKING_URI");
  return uri && !strncmp(uri, "http", 4) ? LINGER_S : IMPORT_S;
}

static manta_status mlflow_check(const manta_value *options, manta_error *err)
{
  static const char *const texts[] = {"tracking_uri", "experiment_id", "experiment_name",
                                      "run_name",     "run_id",        "python"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    const manta_value *v = manta_value_get(options, texts[i]);
    if (v && v->type != MANTA_STRING && v->type != MANTA_NIL)
      return manta_error_set(err, MANTA_ETYPE, "sink mlflow: %s must be a string", texts[i]);
  }
  const manta_value *tags = manta_value_get(options, "tags");
  if (tags && tags->type != MANTA_MAP && tags->type != MANTA_NIL)
    return manta_error_set(err, MANTA_ETYPE, "sink mlflow: tags must be a map");
  return MANTA_OK;
}

const struct manta__sink_kind manta__sink_mlflow = {
    .name = "mlflow",
    .help = "a run on an MLflow server, or in a store that the mlflow package opens",
    .options =
        "tracking_uri experiment_id experiment_name run_name run_id tags save_artifact python",
    .linger_s = LINGER_S,
    .linger = mlflow_linger,
    .later = "manta mlflow push",
    .check = mlflow_check,
    .open = mlflow_open,
    .rows = mlflow_rows,
    .rewound = mlflow_rewound,
    .event = mlflow_event,
    .flush = mlflow_flush,
    .mark = mlflow_mark,
    .back = mlflow_back,
    .memo = mlflow_memo,
    .close = mlflow_close,
};
