/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/status.c - `manta status`: one run, on one screen.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/runref.h"
#include "view/stats.h"

#define NS 1e9

// --- For people ----------------------------------------------------------------------------------

static int look_of(const char *word)
{
  if (!strcmp(word, "failed"))
    return 31;
  return !strcmp(word, "interrupted") ? 33 : 32;
}

static void print_state(const struct manta__standing *s)
{
  char pid[32] = "";
  if (!strcmp(s->word, "running") && s->holder > 0)
    snprintf(pid, sizeof pid, " (pid %d)", (int)s->holder);
  manta__line("state", "%s%s%s%s", manta__paint(stdout, look_of(s->word)), s->word,
              manta__paint(stdout, 0), pid);
}

// A message of several lines stays under its first one.
static void print_message(const struct manta__standing *s)
{
  const char *p = manta_value_as_string(manta_value_get(&s->sum.finish, "message"), "");
  for (const char *name = "error"; *p; name = "") {
    char line[MANTA_ERROR_MESSAGE_MAX];
    int n = (int)strcspn(p, "\n");
    snprintf(line, sizeof line, "%.*s", n, p);
    manta__line(name, "%s", manta__text_safe(line));
    p += n + (p[n] == '\n');
  }
}

static void print_work(const struct manta__standing *s)
{
  const struct manta__run_summary *m = &s->sum;
  char lost[64] = "";
  if (m->lost > 0)
    snprintf(lost, sizeof lost, ", %d worker%s lost", m->lost, m->lost == 1 ? "" : "s");
  manta__line("workers", "%d", m->world);
  manta__line("attempts", "%d%s", m->attempts, lost);
  manta__line("iteration", "%" PRId64, m->iteration);
}

static void add_number(struct manta__grid *g, const struct manta__metric *m)
{
  char text[MANTA__TEXT];
  const struct manta__peak *best = manta__metric_best(m);
  manta__grid_cell(g, "%s", m->name);
  manta__grid_cell(g, "%s", m->at ? manta__text_number(text, m->last) : "-");
  manta__grid_cell(g, "%s", best ? manta__text_number(text, best->value) : "-");
  if (best)
    manta__grid_cell(g, "%" PRId64, best->at);
  else
    manta__grid_cell(g, "-");
}

// Text and lists. Names with an underscore in front are manta's own: the iteration and its times.
static void add_others(struct manta__grid *g, const manta_value *row)
{
  char text[64];
  for (uint32_t i = 0; row->type == MANTA_MAP && i < row->count; i++) {
    const manta_pair *p = &row->u.pairs[i];
    if (p->key[0] == '_' || p->value.type == MANTA_INT || p->value.type == MANTA_REAL ||
        p->value.type == MANTA_MAP)
      continue;
    manta__grid_cell(g, "%s", p->key);
    manta__grid_cell(g, "%s", manta__text_value(text, sizeof text, &p->value));
    manta__grid_cell(g, "-");
    manta__grid_cell(g, "-");
  }
}

static void print_metrics(const struct manta__standing *s, const struct manta__stats *t)
{
  static const char *const titles[] = {"metric", "last", "best", "at iteration"};
  struct manta__grid g;
  manta__grid_init(&g, titles, 4, 1u << 1 | 1u << 2 | 1u << 3);
  for (size_t i = 0; i < t->metric_count; i++)
    add_number(&g, &t->metrics[i]);
  add_others(&g, &s->sum.last);
  if (g.count > 0) {
    putchar('\n');
    manta__grid_print(&g, stdout);
  }
  if (t->metrics_left_out)
    printf("(only the first %d metrics)\n", MANTA__METRICS_MAX);
  manta__grid_fini(&g);
}

static void print_restarts(const struct manta__stats *t)
{
  char span[MANTA__TEXT];
  if (t->restarts == 0 && t->stop_count == 0)
    return;
  manta__line("restarts", "%d: %s lost, %" PRId64 " iteration%s done twice", t->restarts,
              manta__text_duration(span, t->cost_ns), t->repeated, t->repeated == 1 ? "" : "s");
  for (int i = 0; i < t->stop_count; i++) {
    char cause[sizeof t->stops[i].cause];
    const struct manta__stop *s = &t->stops[i];
    snprintf(cause, sizeof cause, "%.*s", (int)strcspn(s->cause, "\n"), s->cause);
    manta__line("", "after iteration %" PRId64 ", %s: rank %d %s", s->iteration,
                manta__text_duration(span, s->wall_ns - t->begin_ns), s->rank,
                manta__text_safe(cause));
  }
}

static void print_checkpoint(const manta_value *c, const struct manta__stats *t)
{
  char size[MANTA__TEXT], ago[MANTA__TEXT];
  if (c->type != MANTA_MAP) {
    manta__line("checkpoint", "none");
    return;
  }
  manta__line("checkpoint", "%s, iteration %" PRId64 ", %s, %s ago; %" PRId64 " written",
              manta_value_as_string(manta_value_get(c, "dir"), "?"),
              manta_value_as_int(manta_value_get(c, "iteration"), 0),
              manta__text_size(size, (uint64_t)manta_value_as_int(manta_value_get(c, "bytes"), 0)),
              manta__text_duration(ago, manta__wall() - t->ckpt_ns), t->checkpoints);
}

static int64_t end_of(const struct manta__standing *s)
{
  return strcmp(s->word, "running") ? s->sum.end_ns : manta__wall();
}

static void print_times(const struct manta__standing *s)
{
  char from[MANTA__TEXT], span[MANTA__TEXT], ago[MANTA__TEXT];
  bool running = !strcmp(s->word, "running");
  if (s->sum.begin_ns == 0) {
    manta__line("began", "unknown: run.log has no record");
    return;
  }
  manta__line("began", "%s", manta__text_time(from, s->sum.begin_ns));
  manta__line(running ? "runs for" : "took", "%s",
              manta__text_duration(span, end_of(s) - s->sum.begin_ns));
  const manta_value *start = manta_value_get(&s->sum.finish, "start");
  double row = manta_value_as_real(manta_value_get(start, "first_row_s"), 0);
  if (row > 0)
    manta__line("start", "workers after %.1f ms, first row after %.1f ms",
                manta_value_as_real(manta_value_get(start, "formed_s"), 0) * 1e3, row * 1e3);
  if (!running)
    manta__line("ended", "%s ago", manta__text_duration(ago, manta__wall() - s->sum.end_ns));
}

static void print_speed(const struct manta__standing *s, const struct manta__stats *t)
{
  char now[MANTA__TEXT], mean[MANTA__TEXT];
  manta__text_rate(mean, manta__stats_mean_rate(t));
  if (!strcmp(s->word, "running"))
    manta__line("speed", "%s, %s on average",
                manta__text_rate(now, manta__stats_rate(t, manta__wall())), mean);
  else
    manta__line("speed", "%s", mean);
}

static void print_text(const struct manta__runref *r, const struct manta__standing *s,
                       const struct manta__stats *t)
{
  char argv[512];
  const manta_value *words = manta_value_get(&s->sum.start, "argv");
  printf("%s%s%s\n\n", manta__paint(stdout, 1), r->name, manta__paint(stdout, 0));
  print_state(s);
  print_message(s);
  manta__line("program", "%s", manta__text_argv(argv, sizeof argv, words));
  print_work(s);
  print_speed(s, t);
  print_checkpoint(&s->sum.ckpt, t);
  print_restarts(t);
  print_times(s);
  manta__line("directory", "%s", r->path);
  if (s->sum.torn > 0)
    manta__line("torn", "%" PRId64 " bytes at the end of run.log are no record", s->sum.torn);
  print_metrics(s, t);
  if (!strcmp(s->word, "interrupted"))
    printf("\nto continue: manta resume %s\n", r->name);
}

// --- For scripts ---------------------------------------------------------------------------------

static manta_status put_copy(manta_value *v, const char *key, const manta_value *from)
{
  manta_value copy = {0};
  if (from)
    MANTA_TRY(manta_value_copy(&copy, from));
  manta_status st = manta_value_put(v, key, &copy);
  manta_value_fini(&copy);
  return st;
}

static manta_status fill_summary(manta_value *v, const struct manta__standing *s)
{
  const struct manta__run_summary *m = &s->sum;
  char id[24];
  snprintf(id, sizeof id, "%016" PRIx64, m->id);
  MANTA_TRY(manta_value_put_string(v, "id", id));
  MANTA_TRY(manta_value_put_string(v, "state", s->word));
  MANTA_TRY(manta_value_put_int(v, "pid", s->holder));
  MANTA_TRY(manta_value_put_int(v, "workers", m->world));
  MANTA_TRY(manta_value_put_int(v, "attempts", m->attempts));
  MANTA_TRY(manta_value_put_int(v, "lost", m->lost));
  MANTA_TRY(manta_value_put_int(v, "iteration", m->iteration));
  MANTA_TRY(manta_value_put_int(v, "rows", m->rows));
  MANTA_TRY(manta_value_put_int(v, "torn", m->torn));
  MANTA_TRY(manta_value_put_real(v, "begin", (double)m->begin_ns / NS));
  MANTA_TRY(manta_value_put_real(v, "end", (double)m->end_ns / NS));
  return manta_value_put_real(v, "seconds", (double)(end_of(s) - m->begin_ns) / NS);
}

static manta_status put_best(manta_value *v, const struct manta__stats *t)
{
  manta_value all = {0}, one = {0};
  manta_status st = manta_value_set_map(&all);
  for (size_t i = 0; i < t->metric_count && st == MANTA_OK; i++) {
    const struct manta__peak *p = manta__metric_best(&t->metrics[i]);
    if (!p)
      continue;
    const manta_value map =
        MANTA_MAP(MANTA_KV_REAL("value", p->value), MANTA_KV_INT("iteration", p->at));
    st = manta_value_copy(&one, &map);
    if (st == MANTA_OK)
      st = manta_value_put(&all, t->metrics[i].name, &one);
  }
  if (st == MANTA_OK)
    st = manta_value_put(v, "best", &all);
  manta_value_fini(&one);
  manta_value_fini(&all);
  return st;
}

static manta_status fill_json(manta_value *v, const struct manta__runref *r,
                              const struct manta__standing *s, const struct manta__stats *t)
{
  const struct manta__run_summary *m = &s->sum;
  MANTA_TRY(manta_value_set_map(v));
  MANTA_TRY(manta_value_put_string(v, "name", r->name));
  MANTA_TRY(manta_value_put_string(v, "path", r->path));
  MANTA_TRY(fill_summary(v, s));
  MANTA_TRY(manta_value_put_int(v, "checkpoints", t->checkpoints));
  MANTA_TRY(manta_value_put_int(v, "restarts", t->restarts));
  MANTA_TRY(manta_value_put_real(v, "restart_seconds", (double)t->cost_ns / NS));
  MANTA_TRY(manta_value_put_int(v, "repeated", t->repeated));
  MANTA_TRY(put_copy(v, "start", manta_value_get(&m->finish, "start")));
  MANTA_TRY(put_best(v, t));
  MANTA_TRY(put_copy(v, "argv", manta_value_get(&m->start, "argv")));
  MANTA_TRY(put_copy(v, "config", manta_value_get(&m->start, "config")));
  MANTA_TRY(put_copy(v, "metrics", &m->last));
  MANTA_TRY(put_copy(v, "checkpoint", &m->ckpt));
  MANTA_TRY(put_copy(v, "results", manta_value_get(&m->finish, "results")));
  if (manta_value_get(&m->finish, "files"))
    MANTA_TRY(put_copy(v, "files", manta_value_get(&m->finish, "files")));
  return put_copy(v, "message", manta_value_get(&m->finish, "message"));
}

static int print_json(const struct manta__runref *r, const struct manta__standing *s,
                      const struct manta__stats *t)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = fill_json(&v, r, s, t);
  if (st < 0)
    manta_error_set(&err, st, "no memory to describe the run");
  int code = st < 0 ? manta__complain(&err) : manta__print_json(&v);
  manta_value_fini(&v);
  return code;
}

static int show(const struct manta__args *a, const struct manta__runref *r)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__standing s;
  struct manta__stats t = {0};
  int code = MANTA__EXIT_OK;
  if (manta__standing_read(&s, r, &err) < 0)
    return manta__complain(&err);
  if (manta__stats_read(&t, r->fd, &err) < 0)
    code = manta__complain(&err);
  else if (manta__args_has(a, "json"))
    code = print_json(r, &s, &t);
  else
    print_text(r, &s, &t);
  manta__stats_fini(&t);
  manta__standing_fini(&s);
  return code;
}

// No run is meant: perhaps an experiment.
static int show_other(const struct manta__args *a, const manta_error *err)
{
  manta_error why = MANTA_ERROR_INIT;
  manta_tune *t;
  if (manta_tune_open(&t, a->operand[0], &why) < 0)
    return manta__complain(why.status == MANTA_ENOENT ? err : &why);
  int code = manta__show_experiment(a, t, &why);
  manta_tune_close(t);
  return code;
}

int manta__cmd_status(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__runref r;
  if (manta__runref_open(&r, a->operand[0], &err) < 0)
    return show_other(a, &err);
  int code = show(a, &r);
  manta__runref_close(&r);
  return code;
}
