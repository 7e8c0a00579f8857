/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/wandb.c - a run of Weights & Biases for a run of ours, by the user's own wandb package in a
 * helper process.
 *
 * (1) The id of the W&B run is ours: a revival, a resumption or another process go on with it.
 * (2) A step that was logged cannot be taken back, and W&B ignores steps that go backwards: after a
 *     rewind, what comes again of iterations that are there already is left out.
 * (3) wandb keeps what it cannot send in a directory of its own, and `wandb sync` sends it later:
 *     an answer of the helper means that wandb has the rows.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "sink/helper.h"
#include "sink/leaves.h"
#include "sink/trackers.h"

#define BATCH    1000
#define OPEN_S   90.0 /* imports, and a login */
#define ASK_S    20.0
#define END_S    60.0
#define LINGER_S 30.0

struct wandb_sink {
  const struct manta__sink_env *env;
  manta__helper *helper;
  manta_value rows; /* a list of {"step", "time", "values": {…}} */
  int64_t sent, seen;
  bool over, failed, ended;
  manta__buf path;
};

static void wandb_close(void *sink)
{
  struct wandb_sink *s = sink;
  manta__helper_end(s->helper, atomic_load(s->env->quit) ? 0.5 : END_S);
  manta_value_fini(&s->rows);
  manta__buf_fini(&s->path);
  manta__free(s);
}

static manta_status start(struct wandb_sink *s, manta_error *err)
{
  const manta_value none = {.type = MANTA_MAP};
  const struct manta__sink_env *env = s->env;
  const char *python = manta_value_as_string(manta_value_get(env->options, "python"), NULL);
  manta_value answer = {0};
  MANTA_TRY(manta__helper_start(&s->helper, python, "wandb", env->quit, err));
  const manta_value ask = MANTA_MAP(
      MANTA_KV_STR("call", "open"), MANTA_KV_STR("id", env->run_id),
      MANTA_KV_STR("name", env->run_name), MANTA_KV_STR("dir", env->run_dir),
      MANTA_KV("config", *env->config),
      MANTA_KV("options", env->options && env->options->type == MANTA_MAP ? *env->options : none));
  manta_status st = manta__helper_ask(s->helper, &ask, &answer, OPEN_S, err);
  manta_value_fini(&answer);
  return st;
}

static manta_status wandb_open(void **out, const struct manta__sink_env *env, manta_error *err)
{
  struct wandb_sink *s = manta__calloc(1, sizeof *s);
  if (!s)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a sink");
  s->env = env;
  manta__buf_init(&s->path, 64u << 10);
  manta_status st = manta_value_set_list(&s->rows);
  if (st == MANTA_OK)
    st = start(s, err);
  if (st < 0)
    wandb_close(s);
  else
    *out = s;
  return st;
}

// --- rows ----------------------------------------------------------------------------------------

struct leaf {
  manta_value *values;
  char suffix[32];
};

static manta_status add_leaf(void *ctx, const char *name, const manta_value *v)
{
  struct leaf *l = ctx;
  char key[512];
  manta_value copy = {0};
  if (name[0] == '_' || v->type == MANTA_BYTES)
    return MANTA_OK;
  snprintf(key, sizeof key, "%s%s", name, l->suffix);
  if (v->type == MANTA_REAL && !isfinite(v->u.r)) // JSON has none
    copy = manta_value_borrow_string(isnan(v->u.r) ? "NaN" : v->u.r > 0 ? "Infinity" : "-Infinity");
  else
    MANTA_TRY(manta_value_copy(&copy, v));
  manta_status st = manta_value_put(l->values, key, &copy);
  manta_value_fini(&copy);
  return st;
}

static manta_status add_rows(struct wandb_sink *s, const struct manta__sink_rows *rows)
{
  manta_value one = {0}, values = {0};
  struct leaf leaf = {.values = &values};
  manta_status st = manta_value_set_map(&values);
  for (int i = 0; i < rows->count && st == MANTA_OK; i++) {
    if (rows->several)
      snprintf(leaf.suffix, sizeof leaf.suffix, "/rank-%d", rows->row[i].rank);
    st = manta__leaves(&rows->row[i].row, &s->path, add_leaf, &leaf);
  }
  if (st == MANTA_OK)
    st = manta_value_set_map(&one);
  if (st == MANTA_OK)
    st = manta_value_put_int(&one, "step", rows->iteration);
  if (st == MANTA_OK)
    st = manta_value_put_real(&one, "time", (double)rows->wall_ns / 1e9);
  if (st == MANTA_OK)
    st = manta_value_put(&one, "values", &values);
  if (st == MANTA_OK)
    st = manta_value_append(&s->rows, &one);
  manta_value_fini(&one);
  manta_value_fini(&values);
  return st;
}

static manta_status send_rows(struct wandb_sink *s, manta_error *err)
{
  manta_value answer = {0};
  const manta_value ask = MANTA_MAP(MANTA_KV_STR("call", "rows"), MANTA_KV("rows", s->rows));
  if (s->rows.count == 0)
    return MANTA_OK;
  manta_status st = manta__helper_ask(s->helper, &ask, &answer, ASK_S, err);
  manta_value_fini(&answer);
  MANTA_TRY(st);
  s->sent = s->seen;
  return manta_value_set_list(&s->rows);
}

// Those that wait and are void now are not sent.
static manta_status wandb_rewound(void *sink, int64_t to, int64_t wall_ns, manta_error *err)
{
  struct wandb_sink *s = sink;
  manta_value left = {0};
  manta_status st = manta_value_set_list(&left);
  for (uint32_t i = 0; st == MANTA_OK && i < s->rows.count; i++) {
    manta_value *one = &s->rows.u.items[i];
    if (manta_value_as_int(manta_value_get(one, "step"), 0) <= to)
      st = manta_value_append(&left, one);
  }
  if (st == MANTA_OK)
    manta_value_move(&s->rows, &left);
  manta_value_fini(&left);
  s->seen = s->seen < to ? s->seen : to;
  return st < 0 ? manta_error_set(err, st, "no memory for rows") : MANTA_OK;
}

static manta_status wandb_rows(void *sink, const struct manta__sink_rows *rows, manta_error *err)
{
  struct wandb_sink *s = sink;
  if (rows->iteration <= s->sent) // (2)
    return MANTA_OK;
  if (add_rows(s, rows) < 0)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for rows");
  s->seen = rows->iteration;
  return s->rows.count < BATCH ? MANTA_OK : send_rows(s, err);
}

static manta_status wandb_event(void *sink, const struct manta__record *head,
                                const manta_value *payload, manta_error *err)
{
  struct wandb_sink *s = sink;
  const char *status = manta_value_as_string(manta_value_get(payload, "status"), "");
  if (head->kind == MANTA__EV_FINISH) {
    s->over = true;
    s->failed = strcmp(status, "OK") != 0;
  } else if (head->kind == MANTA__EV_ATTEMPT) {
    s->over = false;
  }
  return MANTA_OK;
}

static manta_status wandb_flush(void *sink, manta_error *err)
{
  struct wandb_sink *s = sink;
  manta_value answer = {0};
  MANTA_TRY(send_rows(s, err));
  if (!s->over || s->ended)
    return MANTA_OK;
  const manta_value ask =
      MANTA_MAP(MANTA_KV_STR("call", "finish"), MANTA_KV_BOOL("failed", s->failed));
  manta_status st = manta__helper_ask(s->helper, &ask, &answer, END_S, err);
  manta_value_fini(&answer);
  s->ended = st == MANTA_OK;
  return st;
}

static void wandb_mark(const void *sink, struct manta__sink_mark *out)
{
  const struct wandb_sink *s = sink;
  *out = (struct manta__sink_mark){{s->sent, s->ended, 0, 0}};
}

// A helper that is gone is started again; it goes on with the same run (1).
static manta_status wandb_back(void *sink, const struct manta__sink_mark *m, manta_error *err)
{
  struct wandb_sink *s = sink;
  s->sent = s->seen = m->word[0];
  s->ended = m->word[1];
  s->over = s->ended;
  if (manta__helper_gone(s->helper)) {
    manta__helper_end(s->helper, 0);
    s->helper = NULL;
    MANTA_TRY(start(s, err));
  }
  return manta_value_set_list(&s->rows);
}

static manta_status wandb_check(const manta_value *options, manta_error *err)
{
  static const char *const texts[] = {"project", "entity", "group",       "name",
                                      "mode",    "python", "api_key_file"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    const manta_value *v = manta_value_get(options, texts[i]);
    if (v && v->type != MANTA_STRING && v->type != MANTA_NIL)
      return manta_error_set(err, MANTA_ETYPE, "sink wandb: %s must be a string", texts[i]);
  }
  return MANTA_OK;
}

const struct manta__sink_kind manta__sink_wandb = {
    .name = "wandb",
    .help = "a run of Weights & Biases, by the wandb package",
    .options = "project entity group name tags mode python init excludes api_key_file "
               "upload_checkpoints",
    .linger_s = LINGER_S,
    .check = wandb_check,
    .open = wandb_open,
    .rows = wandb_rows,
    .rewound = wandb_rewound,
    .event = wandb_event,
    .flush = wandb_flush,
    .mark = wandb_mark,
    .back = wandb_back,
    .close = wandb_close,
};
