/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/trials.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "event/row.h"
#include "event/rundir.h"
#include "sink/pick.h"
#include "sys/file.h"
#include "sys/sock.h"

#define MAX_OPEN   128  /* at once; the one that was idle longest is closed for another */
#define MAX_FAILED 1000 /* trials that are remembered, since they may be tried again */
#define WARNINGS   10   /* of all trials together */

enum stage { NEW, BEGUN, FAILED_FOR_NOW, OVER };

// How far a trial's sink is.
struct progress {
  int64_t seq; // of the last record that it has
  int stage;
  struct manta__sink_mark mark;
};

struct trial {
  struct trials_sink *of;
  uint32_t number;
  struct progress kept, now; // out for good; given
  manta_value config, memo;
  bool leaves; // nothing more comes for now
  void *sink;  // NULL: closed
  struct manta__sink_env env;
  int rundir, outdir;
  char id[20], name[NAME_MAX + 1], path[PATH_MAX];
  uint64_t used; // when, in records
};

struct trials_sink {
  const struct manta__sink_env *env;
  struct trial **trial;
  size_t count, cap;
  int open, warned;
  uint64_t records;
  manta_value memo;
  bool stale, changed; // the memo; … and it must be kept at once
};

// --- one trial -----------------------------------------------------------------------------------

static void warn_of_trial(const struct manta__sink_env *env, const char *text)
{
  const struct trial *t = (const struct trial *)((const char *)env - offsetof(struct trial, env));
  struct trials_sink *s = t->of;
  char all[1100];
  if (s->warned++ >= WARNINGS)
    return;
  snprintf(all, sizeof all, "%s: %s%s", t->name, text,
           s->warned == WARNINGS ? "\n(no more warnings of this sink are shown)" : "");
  s->env->warn(s->env, all);
}

static void close_trial(struct trial *t)
{
  if (t->sink) {
    t->of->env->each->close(t->sink);
    t->of->open--;
  }
  t->sink = NULL;
  manta__fd_close(&t->rundir);
  manta__fd_close(&t->outdir);
}

static void free_trial(struct trial *t)
{
  close_trial(t);
  manta_value_fini(&t->config);
  manta_value_fini(&t->memo);
  manta__free(t);
}

// The newest are asked for most.
static struct trial *find(const struct trials_sink *s, uint32_t number)
{
  for (size_t i = s->count; i-- > 0;)
    if (s->trial[i]->number == number)
      return s->trial[i];
  return NULL;
}

static struct trial *add(struct trials_sink *s, uint32_t number)
{
  if (s->count == s->cap) {
    size_t cap = s->cap ? 2 * s->cap : 16;
    struct trial **p = manta__realloc(s->trial, cap * sizeof *p);
    if (!p)
      return NULL;
    s->trial = p;
    s->cap = cap;
  }
  struct trial *t = manta__calloc(1, sizeof *t);
  if (!t)
    return NULL;
  unsigned long long id = manta__hash_seed(s->env->run_id, strlen(s->env->run_id), number + 1ull);
  *t = (struct trial){.of = s, .number = number, .rundir = -1, .outdir = -1};
  snprintf(t->id, sizeof t->id, "%016llx", id);
  snprintf(t->name, sizeof t->name, "trial_%05u", number);
  return s->trial[s->count++] = t;
}

// The files go to the directory of the trial, or to one of its name in `logdir`.
static manta_status open_places(struct trial *t, manta_error *err)
{
  const struct manta__sink_env *env = t->of->env;
  const char *logdir = manta_value_as_string(manta_value_get(env->options, "logdir"), NULL);
  if (t->rundir < 0)
    MANTA_TRY(manta__dir_makeat(env->rundir, t->name, &t->rundir, err));
  if (logdir && t->outdir < 0)
    MANTA_TRY(manta__dir_makeat(env->outdir, t->name, &t->outdir, err));
  snprintf(t->path, sizeof t->path, "%.*s/%s", PATH_MAX - NAME_MAX - 2, env->run_dir, t->name);
  t->env = (struct manta__sink_env){.run_id = t->id,
                                    .run_name = t->name,
                                    .run_dir = t->path,
                                    .rundir = t->rundir,
                                    .outdir = logdir ? t->outdir : t->rundir,
                                    .config = &t->config,
                                    .options = env->options,
                                    .memo = &t->memo,
                                    .quit = env->quit,
                                    .warn = warn_of_trial};
  return MANTA_OK;
}

static manta_status take_memo(struct trial *t, manta_error *err)
{
  const struct manta__sink_kind *kind = t->of->env->each;
  bool changed = false, void_marks = false;
  const manta_value *memo = kind->memo ? kind->memo(t->sink, &changed, &void_marks) : NULL;
  if (!changed)
    return MANTA_OK;
  if (manta_value_copy(&t->memo, memo) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a sink");
  t->of->stale = t->of->changed = true;
  return MANTA_OK;
}

static manta_status flush_trial(struct trial *t, manta_error *err)
{
  const struct manta__sink_kind *kind = t->of->env->each;
  if (t->sink && t->now.seq != t->kept.seq) {
    MANTA_TRY(kind->flush(t->sink, err));
    MANTA_TRY(take_memo(t, err));
    kind->mark(t->sink, &t->now.mark);
  }
  t->of->stale |= t->now.seq != t->kept.seq;
  t->kept = t->now;
  return MANTA_OK;
}

static manta_status make_room(struct trials_sink *s, manta_error *err)
{
  struct trial *idle = NULL;
  if (s->open < MAX_OPEN)
    return MANTA_OK;
  for (size_t i = 0; i < s->count; i++)
    if (s->trial[i]->sink && (!idle || s->trial[i]->used < idle->used))
      idle = s->trial[i];
  if (!idle)
    return MANTA_OK;
  MANTA_TRY(flush_trial(idle, err));
  close_trial(idle);
  return MANTA_OK;
}

static manta_status replay(struct trial *t, int64_t below, manta_error *err);

// What is not as its mark says is written anew.
static manta_status open_trial(struct trial *t, manta_error *err)
{
  static const struct manta__sink_mark beginning;
  const struct manta__sink_kind *kind = t->of->env->each;
  t->used = t->of->records;
  if (t->sink)
    return MANTA_OK;
  MANTA_TRY(make_room(t->of, err));
  MANTA_TRY(open_places(t, err));
  MANTA_TRY(kind->open(&t->sink, &t->env, err));
  t->of->open++;
  MANTA_TRY(take_memo(t, err));
  manta_status st = kind->back(t->sink, &t->kept.mark, err);
  if (st != MANTA_ECORRUPT)
    return st;
  MANTA_TRY(kind->back(t->sink, &beginning, err));
  return replay(t, t->kept.seq + 1, err);
}

// --- records -------------------------------------------------------------------------------------

static manta_status tell(struct trial *t, const struct manta__record *h, enum manta__event kind,
                         const manta_value *payload, manta_error *err)
{
  const struct manta__sink_kind *each = t->of->env->each;
  struct manta__record head = *h;
  head.kind = kind;
  return each->event ? each->event(t->sink, &head, payload, err) : MANTA_OK;
}

static manta_status on_row(struct trial *t, const struct manta__record *h, const uint8_t *payload,
                           manta_error *err)
{
  struct manta__sink_row row = {.rank = 0, .wall_ns = h->wall_ns};
  MANTA_TRY(open_trial(t, err));
  MANTA_TRY(manta_value_unpack(&row.row, payload, h->len, err));
  manta__pick_clean(&row.row);
  struct manta__sink_rows rows = {.iteration = manta__row_iteration(payload, h->len),
                                  .wall_ns = h->wall_ns,
                                  .complete = true,
                                  .count = 1,
                                  .row = &row};
  manta_status st = t->of->env->each->rows(t->sink, &rows, err);
  manta_value_fini(&row.row);
  return st;
}

static manta_status on_began(struct trial *t, const struct manta__record *h, manta_error *err)
{
  const manta_value run = MANTA_MAP(MANTA_KV("config", t->config));
  const manta_value attempt = MANTA_MAP(MANTA_KV_INT("world", 1));
  MANTA_TRY(open_trial(t, err));
  if (t->now.stage == NEW)
    MANTA_TRY(tell(t, h, MANTA__EV_RUN, &run, err));
  t->now.stage = BEGUN;
  return tell(t, h, MANTA__EV_ATTEMPT, &attempt, err);
}

// A trial that the scheduler stopped has not failed. One that has may be asked to try again.
static manta_status on_ended(struct trial *t, const struct manta__record *h, const manta_value *v,
                             manta_error *err)
{
  const char *state = manta_value_as_string(manta_value_get(v, "state"), "");
  bool failed = !strcmp(state, "failed");
  const manta_value how =
      MANTA_MAP(MANTA_KV_STR("status", failed ? "EUSER" : "OK"),
                MANTA_KV_STR("message", manta_value_as_string(manta_value_get(v, "message"), "")));
  if (t->now.stage != NEW) { // else it was stopped before it ran
    MANTA_TRY(open_trial(t, err));
    MANTA_TRY(tell(t, h, MANTA__EV_FINISH, &how, err));
  }
  t->leaves = true;
  t->now.stage = failed ? FAILED_FOR_NOW : OVER;
  return MANTA_OK;
}

static manta_status set_config(struct trial *t, const manta_value *v, manta_error *err)
{
  const manta_value *config = manta_value_get(v, "value");
  manta_status st = config && config->type == MANTA_MAP ? manta_value_copy(&t->config, config)
                                                        : manta_value_set_map(&t->config);
  manta__pick_clean(&t->config);
  return st < 0 ? manta_error_set(err, st, "no memory for the config of a trial") : MANTA_OK;
}

// Its directory may have a name of its own. One that leads elsewhere is no name.
static void take_name(struct trial *t, const char *name)
{
  if (name && manta__rundir_fits_trial(name))
    snprintf(t->name, sizeof t->name, "%s", name);
}

static manta_status begin_new(struct trial *t, const manta_value *v, manta_error *err)
{
  take_name(t, manta_value_as_string(manta_value_get(v, "message"), NULL));
  return set_config(t, v, err);
}

static manta_status on_what(struct trial *t, const struct manta__record *h, const manta_value *v,
                            manta_error *err)
{
  const char *what = manta_value_as_string(manta_value_get(v, "what"), "");
  if (!strcmp(what, "new"))
    return begin_new(t, v, err);
  if (!strcmp(what, "began"))
    return on_began(t, h, err);
  if (!strcmp(what, "paused"))
    t->leaves = true;
  if (!strcmp(what, "ended"))
    return on_ended(t, h, v, err);
  if (strcmp(what, "copied"))
    return MANTA_OK;
  MANTA_TRY(flush_trial(t, err)); // it is opened again with another config
  close_trial(t);
  return set_config(t, v, err);
}

// A record of the trial. v: the map of a TRIAL record.
static manta_status give(struct trial *t, const struct manta__record *h, const uint8_t *payload,
                         const manta_value *v, manta_error *err)
{
  if ((int64_t)h->id.seq <= t->now.seq)
    return MANTA_OK;
  t->leaves = false;
  MANTA_TRY(h->kind == MANTA__EV_ROW ? on_row(t, h, payload, err) : on_what(t, h, v, err));
  t->now.seq = (int64_t)h->id.seq;
  return MANTA_OK;
}

// Of a TRIAL record; "" if it is about no trial.
static const char *what_of(const manta_value *v)
{
  const char *what = manta_value_as_string(manta_value_get(v, "what"), "");
  return strcmp(what, "closed") ? what : "";
}

static manta_status replay_record(struct trial *t, const struct manta__record *h,
                                  const uint8_t *payload, manta_error *err)
{
  manta_value v = {0};
  manta_status st =
      h->kind == MANTA__EV_TRIAL ? manta_value_unpack(&v, payload, h->len, err) : MANTA_OK;
  if (st == MANTA_OK && (h->kind == MANTA__EV_ROW || *what_of(&v)))
    st = give(t, h, payload, &v, err);
  manta_value_fini(&v);
  return st;
}

// All of the trial that is in the log before record `below`, from the beginning.
static manta_status replay(struct trial *t, int64_t below, manta_error *err)
{
  manta__log_reader *log;
  struct manta__record h;
  const uint8_t *payload;
  int folder, rc = 0;
  t->now = (struct progress){0};
  MANTA_TRY(manta__dir_makeat(t->of->env->rundir, MANTA__TRIALS_FOLDER, &folder, err));
  manta_status st = manta__log_reader_open(&log, folder, err);
  manta__fd_close(&folder);
  MANTA_TRY(st);
  while (st == MANTA_OK && (rc = manta__log_next(log, &h, &payload, err)) == 1 &&
         (int64_t)h.id.seq < below)
    if ((uint32_t)h.id.rank == t->number && (h.kind == MANTA__EV_ROW || h.kind == MANTA__EV_TRIAL))
      st = replay_record(t, &h, payload, err);
  manta__log_reader_close(log);
  return rc < 0 ? (manta_status)rc : st;
}

// One that is not known was over, or failed long ago, and is tried again.
static manta_status know(struct trials_sink *s, const struct manta__record *h, const char *what,
                         struct trial **out, manta_error *err)
{
  *out = find(s, (uint32_t)h->id.rank);
  bool again = !strcmp(what, "revived");
  if (*out || (!again && strcmp(what, "new")))
    return MANTA_OK;
  if (!(*out = add(s, (uint32_t)h->id.rank)))
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a trial");
  return again ? replay(*out, (int64_t)h->id.seq, err) : MANTA_OK;
}

static manta_status on_trial(struct trials_sink *s, const struct manta__record *h,
                             const uint8_t *payload, const manta_value *v, manta_error *err)
{
  struct trial *t = NULL;
  MANTA_TRY(know(s, h, v ? what_of(v) : "", &t, err));
  if (!t || (v && !*what_of(v)))
    return MANTA_OK;
  MANTA_TRY(give(t, h, payload, v, err));
  if (t->leaves) {
    MANTA_TRY(flush_trial(t, err));
    close_trial(t);
  }
  return MANTA_OK;
}

static manta_status trials_record(void *sink, const struct manta__record *h, const uint8_t *payload,
                                  manta_error *err)
{
  struct trials_sink *s = sink;
  manta_value v = {0};
  s->records++;
  if (h->kind == MANTA__EV_ROW)
    return on_trial(s, h, payload, NULL, err);
  if (h->kind != MANTA__EV_TRIAL)
    return MANTA_OK;
  manta_status st = manta_value_unpack(&v, payload, h->len, err);
  if (st == MANTA_OK)
    st = on_trial(s, h, payload, &v, err);
  manta_value_fini(&v);
  return st;
}

// --- what is kept --------------------------------------------------------------------------------

// Those that are over were so in the last bookmark: the log is not read from before it.
static void drop_ended(struct trials_sink *s)
{
  size_t to = 0, failed = 0;
  for (size_t i = 0; i < s->count; i++)
    failed += s->trial[i]->kept.stage == FAILED_FOR_NOW;
  for (size_t i = 0; i < s->count; i++) {
    struct trial *t = s->trial[i];
    bool fails = t->kept.stage == FAILED_FOR_NOW;
    if (t->kept.seq == t->now.seq && (t->kept.stage == OVER || (fails && failed > MAX_FAILED)))
      free_trial(t);
    else
      s->trial[to++] = t;
    failed -= fails;
  }
  s->stale |= to != s->count;
  s->count = to;
}

static manta_status describe(const struct trial *t, manta_value *out)
{
  const int64_t *w = t->kept.mark.word;
  manta_value words[4];
  for (int i = 0; i < 4; i++)
    words[i] = manta_value_int(w[i]);
  const manta_value mark = {.type = MANTA_LIST, .count = 4, .u.items = words};
  const manta_value all = MANTA_MAP(
      MANTA_KV_INT("trial", t->number), MANTA_KV_INT("seq", t->kept.seq),
      MANTA_KV_INT("stage", t->kept.stage), MANTA_KV("mark", mark), MANTA_KV("config", t->config),
      MANTA_KV("memo", t->memo), MANTA_KV_STR("name", t->name));
  return manta_value_copy(out, &all);
}

static void rebuild_memo(struct trials_sink *s)
{
  manta_value list = {0};
  manta_status st = manta_value_set_list(&list);
  for (size_t i = 0; st == MANTA_OK && i < s->count; i++) {
    manta_value one = {0};
    st = describe(s->trial[i], &one);
    if (st == MANTA_OK)
      st = manta_value_append(&list, &one);
    manta_value_fini(&one);
  }
  if (st == MANTA_OK) {
    manta_value_move(&s->memo, &list);
    s->stale = false;
  }
  manta_value_fini(&list);
}

static manta_status trials_flush(void *sink, manta_error *err)
{
  struct trials_sink *s = sink;
  drop_ended(s);
  for (size_t i = 0; i < s->count; i++)
    MANTA_TRY(flush_trial(s->trial[i], err));
  if (s->stale)
    rebuild_memo(s);
  return MANTA_OK;
}

// Between two flushes it is made only if it is asked for.
static const manta_value *trials_memo(void *sink, bool *changed, bool *void_marks)
{
  struct trials_sink *s = sink;
  *changed = s->changed;
  *void_marks = false;
  if (s->stale && s->changed)
    rebuild_memo(s);
  s->changed = false;
  return &s->memo;
}

static bool take_trial(struct trials_sink *s, const manta_value *kept)
{
  struct trial *t = add(s, (uint32_t)manta_value_as_int(manta_value_get(kept, "trial"), 0));
  const manta_value *config = manta_value_get(kept, "config"),
                    *memo = manta_value_get(kept, "memo");
  if (!t)
    return false;
  t->kept.seq = manta_value_as_int(manta_value_get(kept, "seq"), 0);
  t->kept.stage = (int)manta_value_as_int(manta_value_get(kept, "stage"), NEW);
  for (size_t i = 0; i < 4; i++)
    t->kept.mark.word[i] = manta_value_as_int(manta_value_at(manta_value_get(kept, "mark"), i), 0);
  t->now = t->kept;
  take_name(t, manta_value_as_string(manta_value_get(kept, "name"), NULL));
  return (!memo || manta_value_copy(&t->memo, memo) == MANTA_OK) &&
         (config && config->type == MANTA_MAP ? manta_value_copy(&t->config, config)
                                              : manta_value_set_map(&t->config)) == MANTA_OK;
}

// --- life ----------------------------------------------------------------------------------------

static void trials_close(void *sink)
{
  struct trials_sink *s = sink;
  for (size_t i = 0; i < s->count; i++)
    free_trial(s->trial[i]);
  manta_value_fini(&s->memo);
  manta__free(s->trial);
  manta__free(s);
}

static manta_status trials_open(void **out, const struct manta__sink_env *env, manta_error *err)
{
  struct trials_sink *s = manta__calloc(1, sizeof *s);
  bool good = s != NULL;
  if (s)
    s->env = env;
  for (size_t i = 0; good && env->memo->type == MANTA_LIST && i < env->memo->count; i++)
    good = take_trial(s, manta_value_at(env->memo, i));
  if (good) {
    s->stale = true;
    *out = s;
    return MANTA_OK;
  }
  if (s)
    trials_close(s);
  return manta_error_set(err, MANTA_ENOMEM, "no memory for a sink");
}

static void trials_mark(const void *sink, struct manta__sink_mark *out)
{
  const struct trials_sink *s = sink;
  *out = (struct manta__sink_mark){{(int64_t)s->count, 0, 0, 0}};
}

// What is not out is given again: each trial goes on after what it has for good.
static manta_status trials_back(void *sink, const struct manta__sink_mark *m, manta_error *err)
{
  struct trials_sink *s = sink;
  (void)m;
  (void)err;
  for (size_t i = 0; i < s->count; i++) {
    close_trial(s->trial[i]);
    s->trial[i]->now = s->trial[i]->kept;
  }
  return MANTA_OK;
}

const struct manta__sink_kind manta__sink_trials = {
    .name = "trials",
    .open = trials_open,
    .record = trials_record,
    .flush = trials_flush,
    .mark = trials_mark,
    .back = trials_back,
    .memo = trials_memo,
    .close = trials_close,
};
