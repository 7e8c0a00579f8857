/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/ls.c - `manta ls`: the runs and the experiments that are there, one line each.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/value.h"
#include "cmd/commands.h"
#include "cmd/explist.h"
#include "cmd/format.h"
#include "cmd/runlist.h"
#include "sys/tree.h"
#include "view/stats.h"

#define NS 1e9

// The newest row of rank 0, without manta's own names: "loss 0.12, acc 0.9".
static void write_metrics(char *out, size_t size, const manta_value *row)
{
  size_t n = 0;
  out[0] = 0;
  for (uint32_t i = 0; row->type == MANTA_MAP && i < row->count && n + 1 < size; i++) {
    char text[64], key[64];
    const manta_pair *p = &row->u.pairs[i];
    if (p->key[0] == '_')
      continue;
    snprintf(key, sizeof key, "%s", p->key);
    int k = snprintf(out + n, size - n, "%s%s %s", n ? ", " : "", manta__text_safe(key),
                     manta__text_safe((char *)manta__text_value(text, sizeof text, &p->value)));
    n += k > 0 ? (size_t)k : 0;
  }
}

// "loss 0.0123": what a run is judged by, and the best that it had.
static void add_best(struct manta__grid *g, const struct manta__stats *t)
{
  char text[MANTA__TEXT];
  const struct manta__metric *m = manta__stats_main(t);
  const struct manta__peak *best = manta__metric_best(m);
  if (best)
    manta__grid_cell(g, "%s %s", m->name, manta__text_number(text, best->value));
  else
    manta__grid_cell(g, "-");
}

static void add_line(struct manta__grid *g, const struct manta__runref *r,
                     const struct manta__standing *s, const struct manta__stats *t)
{
  char age[MANTA__TEXT], size[MANTA__TEXT], metrics[80];
  write_metrics(metrics, sizeof metrics, &s->sum.last);
  manta__grid_cell(g, "%s", r->name);
  manta__grid_cell(g, "%s", s->word);
  manta__grid_cell(g, "%" PRId64, s->sum.iteration);
  add_best(g, t);
  manta__grid_cell(g, "%s",
                   s->sum.end_ns ? manta__text_duration(age, manta__standing_age(s)) : "-");
  manta__grid_cell(g, "%s", manta__text_size(size, (uint64_t)manta__tree_bytes(r->fd)));
  manta__grid_cell(g, "%s", metrics);
}

static manta_status put_best(manta_value *v, const struct manta__stats *t)
{
  manta_value best = {0};
  const struct manta__metric *m = manta__stats_main(t);
  const struct manta__peak *p = manta__metric_best(m);
  manta_status st = MANTA_OK;
  if (p) {
    const manta_value map =
        MANTA_MAP(MANTA_KV_STR("metric", m->name),
                  MANTA_KV_STR("goal", m->goal == MANTA__GOAL_MIN ? "min" : "max"),
                  MANTA_KV_REAL("value", p->value), MANTA_KV_INT("iteration", p->at));
    st = manta_value_copy(&best, &map);
  }
  if (st == MANTA_OK)
    st = manta_value_put(v, "best", &best);
  manta_value_fini(&best);
  return st;
}

static manta_status add_json(manta_value *list, const struct manta__runref *r,
                             const struct manta__standing *s, const struct manta__stats *t)
{
  manta_value v = {0}, last = {0};
  manta_status st = manta_value_copy(&last, &s->sum.last);
  if (st == MANTA_OK)
    st = manta_value_set_map(&v);
  if (st == MANTA_OK)
    st = manta_value_put_string(&v, "name", r->name);
  if (st == MANTA_OK)
    st = manta_value_put_string(&v, "kind", "run");
  if (st == MANTA_OK)
    st = manta_value_put_string(&v, "path", r->path);
  if (st == MANTA_OK)
    st = manta_value_put_string(&v, "state", s->word);
  if (st == MANTA_OK && s->sum.end_ns)
    st = manta_value_put_real(&v, "age", (double)manta__standing_age(s) / NS);
  if (st == MANTA_OK)
    st = manta_value_put_int(&v, "bytes", manta__tree_bytes(r->fd));
  if (st == MANTA_OK)
    st = manta_value_put_int(&v, "iteration", s->sum.iteration);
  if (st == MANTA_OK)
    st = put_best(&v, t);
  if (st == MANTA_OK)
    st = manta_value_put(&v, "metrics", &last);
  if (st == MANTA_OK)
    st = manta_value_append(list, &v);
  manta_value_fini(&last);
  manta_value_fini(&v);
  return st;
}

static manta_status read_all(const struct manta__runlist *l, struct manta__grid *g,
                             manta_value *list, manta_error *err)
{
  manta_status st = MANTA_OK;
  for (size_t i = 0; i < l->count && st == MANTA_OK; i++) {
    struct manta__runref r;
    struct manta__standing s;
    struct manta__stats t = {0};
    manta_error why = MANTA_ERROR_INIT;
    if (manta__runlist_read(l, i, &r, &s, &why) < 0) {
      manta__say("%s", why.message);
      continue;
    }
    if (manta__stats_read(&t, r.fd, &why) < 0)
      manta__say("%s: %s", r.name, why.message);
    if (list)
      st = add_json(list, &r, &s, &t);
    else
      add_line(g, &r, &s, &t);
    manta__stats_fini(&t);
    manta__standing_fini(&s);
    manta__runref_close(&r);
  }
  return st < 0 ? manta_error_set(err, st, "no memory to list runs") : MANTA_OK;
}

// --- experiments ---------------------------------------------------------------------------------

/* One of them, read. */
struct standing {
  manta_tune *t;
  const char *name, *state, *metric; /* metric NULL: it has none */
  uint64_t best;                     /* the trial */
  double value;                      /* of the metric; NaN: no trial has reported it */
  int64_t age, bytes;
};

static int64_t bytes_of(const manta_tune *t)
{
  int fd = open(manta_tune_dir(t), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int64_t bytes = fd >= 0 ? manta__tree_bytes(fd) : 0;
  if (fd >= 0)
    close(fd);
  return bytes;
}

static bool stand(struct standing *s, const char *dir, const struct manta__explist_item *e)
{
  char path[PATH_MAX];
  manta_trial x;
  manta_error why = MANTA_ERROR_INIT;
  snprintf(path, sizeof path, "%s/%s", dir, e->name);
  if (manta_tune_open(&s->t, path, &why) < 0) {
    manta__say("%s: %s", e->name, why.message);
    return false;
  }
  s->name = e->name;
  s->state = manta__exp_state(s->t);
  s->metric = manta_value_as_string(manta_value_get(manta_tune_info(s->t), "metric"), NULL);
  s->value = NAN;
  if (s->metric && manta_tune_best(s->t, NULL, false, true, &s->best, NULL) == MANTA_OK &&
      manta_tune_trial(s->t, s->best, &x, NULL) == MANTA_OK)
    s->value = manta_value_as_real(manta__value_path(x.best, s->metric), NAN);
  int64_t age = manta__wall() - e->when;
  s->age = !strcmp(s->state, "running") || age < 0 ? 0 : age;
  s->bytes = bytes_of(s->t);
  return true;
}

static void add_experiment_line(struct manta__grid *g, const struct standing *s)
{
  char text[MANTA__TEXT];
  manta__grid_cell(g, "%s", s->name);
  manta__grid_cell(g, "%s", s->state);
  manta__grid_cell(g, "%" PRIu64 "/%" PRIu64, manta__exp_done(s->t), manta__exp_total(s->t));
  if (isnan(s->value))
    manta__grid_cell(g, "-");
  else
    manta__grid_cell(g, "%s %s", s->metric, manta__text_number(text, s->value));
  manta__grid_cell(g, "%s", manta__text_duration(text, s->age));
  manta__grid_cell(g, "%s", manta__text_size(text, (uint64_t)s->bytes));
}

static manta_status best_of(manta_value *best, const struct standing *s)
{
  if (isnan(s->value))
    return MANTA_OK;
  bool max = manta_value_as_bool(manta_value_get(manta_tune_info(s->t), "maximize"), false);
  const manta_value map =
      MANTA_MAP(MANTA_KV_STR("metric", s->metric), MANTA_KV_STR("goal", max ? "max" : "min"),
                MANTA_KV_REAL("value", s->value), MANTA_KV_INT("trial", (int64_t)s->best));
  return manta_value_copy(best, &map);
}

static manta_status describe_experiment(manta_value *v, const struct standing *s)
{
  manta_value best = {0};
  MANTA_TRY(manta_value_set_map(v));
  MANTA_TRY(manta_value_put_string(v, "name", s->name));
  MANTA_TRY(manta_value_put_string(v, "kind", "experiment"));
  MANTA_TRY(manta_value_put_string(v, "path", manta_tune_dir(s->t)));
  MANTA_TRY(manta_value_put_string(v, "state", s->state));
  MANTA_TRY(manta_value_put_real(v, "age", (double)s->age / NS));
  MANTA_TRY(manta_value_put_int(v, "bytes", s->bytes));
  MANTA_TRY(manta_value_put_int(v, "done", (int64_t)manta__exp_done(s->t)));
  MANTA_TRY(manta_value_put_int(v, "trials", (int64_t)manta__exp_total(s->t)));
  MANTA_TRY(best_of(&best, s));
  return manta_value_put(v, "best", &best);
}

static manta_status add_experiment_json(manta_value *list, const struct standing *s)
{
  manta_value v = {0};
  manta_status st = describe_experiment(&v, s);
  if (st == MANTA_OK)
    st = manta_value_append(list, &v);
  manta_value_fini(&v);
  return st;
}

static manta_status read_experiments(const struct manta__runlist *l, struct manta__grid *g,
                                     manta_value *list, manta_error *err)
{
  struct manta__explist found;
  MANTA_TRY(manta__explist_read(&found, l->fd, err));
  manta_status st = MANTA_OK;
  for (size_t i = 0; i < found.count && st == MANTA_OK; i++) {
    struct standing s;
    if (!stand(&s, l->dir, &found.item[i]))
      continue;
    if (list)
      st = add_experiment_json(list, &s);
    else
      add_experiment_line(g, &s);
    manta_tune_close(s.t);
  }
  manta__explist_fini(&found);
  return st < 0 ? manta_error_set(err, st, "no memory to list experiments") : MANTA_OK;
}

// --- both ----------------------------------------------------------------------------------------

static bool print_grid(struct manta__grid *g, bool first)
{
  bool any = g->count > 0;
  if (any && !first)
    putchar('\n');
  if (any)
    manta__grid_print(g, stdout);
  manta__grid_fini(g);
  return any;
}

static int print_table(const struct manta__runlist *l, manta_error *err)
{
  static const char *const runs[] = {"run", "state", "iteration", "best", "age", "size", "metrics"};
  static const char *const experiments[] = {"experiment", "state", "trials", "best", "age", "size"};
  struct manta__grid g;
  manta__grid_init(&g, runs, 7, 1u << 2 | 1u << 4 | 1u << 5);
  read_all(l, &g, NULL, err);
  bool any = print_grid(&g, true);
  manta__grid_init(&g, experiments, 6, 1u << 2 | 1u << 4 | 1u << 5);
  read_experiments(l, &g, NULL, err);
  if (!print_grid(&g, !any) && !any)
    manta__say("there are no runs in %s", l->dir);
  return MANTA__EXIT_OK;
}

static int print_json(const struct manta__runlist *l, manta_error *err)
{
  manta_value list = {0};
  manta_status st = manta_value_set_list(&list);
  if (st == MANTA_OK)
    st = read_all(l, NULL, &list, err);
  if (st == MANTA_OK)
    st = read_experiments(l, NULL, &list, err);
  int code = st < 0 ? manta__complain(err) : manta__print_json(&list);
  manta_value_fini(&list);
  return code;
}

int manta__cmd_ls(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__runlist l;
  if (manta__runlist_open(&l, a->operand[0], &err) < 0)
    return manta__complain(&err);
  int code = manta__args_has(a, "json") ? print_json(&l, &err) : print_table(&l, &err);
  manta__runlist_close(&l);
  return code;
}
