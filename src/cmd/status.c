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

// Names with an underscore in front are manta's own: the iteration and its times.
static void print_metrics(const manta_value *row)
{
  char text[256];
  const char *name = "metrics";
  for (uint32_t i = 0; row->type == MANTA_MAP && i < row->count; i++) {
    const manta_pair *p = &row->u.pairs[i];
    if (p->key[0] == '_')
      continue;
    manta__line(name, "%s %s", p->key, manta__text_value(text, sizeof text, &p->value));
    name = "";
  }
}

static void print_checkpoint(const manta_value *c)
{
  char size[MANTA__TEXT];
  if (c->type != MANTA_MAP) {
    manta__line("checkpoint", "none");
    return;
  }
  manta__line("checkpoint", "%s, iteration %" PRId64 ", %s",
              manta_value_as_string(manta_value_get(c, "dir"), "?"),
              manta_value_as_int(manta_value_get(c, "iteration"), 0),
              manta__text_size(size, (uint64_t)manta_value_as_int(manta_value_get(c, "bytes"), 0)));
}

static int64_t end_of(const struct manta__standing *s)
{
  return strcmp(s->word, "running") ? s->sum.end_ns : manta__wall();
}

static void print_times(const struct manta__standing *s)
{
  char from[MANTA__TEXT], span[MANTA__TEXT], ago[MANTA__TEXT];
  bool running = !strcmp(s->word, "running");
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

static void print_text(const struct manta__runref *r, const struct manta__standing *s)
{
  char argv[512];
  const manta_value *words = manta_value_get(&s->sum.start, "argv");
  printf("%s%s%s\n\n", manta__paint(stdout, 1), r->name, manta__paint(stdout, 0));
  print_state(s);
  print_message(s);
  manta__line("program", "%s", manta__text_argv(argv, sizeof argv, words));
  print_work(s);
  print_metrics(&s->sum.last);
  print_checkpoint(&s->sum.ckpt);
  print_times(s);
  manta__line("directory", "%s", r->path);
  if (s->sum.torn > 0)
    manta__line("torn", "%" PRId64 " bytes at the end of run.log are no record", s->sum.torn);
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

static manta_status fill_json(manta_value *v, const struct manta__runref *r,
                              const struct manta__standing *s)
{
  const struct manta__run_summary *m = &s->sum;
  MANTA_TRY(manta_value_set_map(v));
  MANTA_TRY(manta_value_put_string(v, "name", r->name));
  MANTA_TRY(manta_value_put_string(v, "path", r->path));
  MANTA_TRY(fill_summary(v, s));
  MANTA_TRY(put_copy(v, "argv", manta_value_get(&m->start, "argv")));
  MANTA_TRY(put_copy(v, "config", manta_value_get(&m->start, "config")));
  MANTA_TRY(put_copy(v, "metrics", &m->last));
  MANTA_TRY(put_copy(v, "checkpoint", &m->ckpt));
  MANTA_TRY(put_copy(v, "results", manta_value_get(&m->finish, "results")));
  if (manta_value_get(&m->finish, "files"))
    MANTA_TRY(put_copy(v, "files", manta_value_get(&m->finish, "files")));
  return put_copy(v, "message", manta_value_get(&m->finish, "message"));
}

static int print_json(const struct manta__runref *r, const struct manta__standing *s)
{
  manta_value v = {0};
  manta_error err = MANTA_ERROR_INIT;
  manta_status st = fill_json(&v, r, s);
  if (st < 0)
    manta_error_set(&err, st, "no memory to describe the run");
  int code = st < 0 ? manta__complain(&err) : manta__print_json(&v);
  manta_value_fini(&v);
  return code;
}

int manta__cmd_status(const struct manta__args *a)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__runref r;
  struct manta__standing s;
  int code = MANTA__EXIT_OK;
  if (manta__runref_open(&r, a->operand[0], &err) < 0)
    return manta__complain(&err);
  if (manta__standing_read(&s, &r, &err) < 0) {
    code = manta__complain(&err);
  } else {
    if (manta__args_has(a, "json"))
      code = print_json(&r, &s);
    else
      print_text(&r, &s);
    manta__standing_fini(&s);
  }
  manta__runref_close(&r);
  return code;
}
