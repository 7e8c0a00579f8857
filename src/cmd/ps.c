/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd/ps.c - `manta ps`: what is going on, of all this user's drivers on this host.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/ask.h"
#include "cmd/commands.h"
#include "cmd/format.h"
#include "cmd/runref.h"
#include "sys/sock.h"

/* What one line shows. */
struct item {
  struct manta__live live;
  char name[256], program[256], state[16];
  int64_t begin_ns; // 0: unknown
  int workers;
};

// --- Collecting ----------------------------------------------------------------------------------

static void read_cmdline(pid_t pid, char *buf, size_t size)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, buf, size - 1);
  manta__fd_close(&fd);
  buf[n > 0 ? n : 0] = 0;
  for (ssize_t i = 0; i + 1 < n; i++)
    if (!buf[i])
      buf[i] = ' ';
}

static void read_start(struct item *it)
{
  manta_value start = {0};
  manta_error err = MANTA_ERROR_INIT;
  struct manta__runref r;
  if (!it->live.path[0] || manta__runref_open(&r, it->live.path, &err) < 0)
    return;
  snprintf(it->name, sizeof it->name, "%s", r.name);
  if (manta__runref_start(&r, &start, &it->begin_ns, &err) == MANTA_OK)
    manta__text_argv(it->program, sizeof it->program, manta_value_get(&start, "argv"));
  manta_value_fini(&start);
  manta__runref_close(&r);
}

static bool any_running(const manta_value *workers)
{
  for (size_t i = 0; workers && i < workers->count; i++)
    if (!strcmp(manta_value_as_string(manta_value_get(manta_value_at(workers, i), "state"), ""),
                "running"))
      return true;
  return false;
}

// Those of the last attempt that are about to end do not count.
static int count_staying(const manta_value *workers)
{
  int n = 0;
  for (size_t i = 0; workers && i < workers->count; i++)
    n += strcmp(manta_value_as_string(manta_value_get(manta_value_at(workers, i), "state"), ""),
                "ending") != 0;
  return n;
}

// A driver that is gone has left its agent the last checkpoint to write.
static void fill(struct item *it)
{
  const manta_value *workers = manta_value_get(it->live.run, "workers");
  const char *state = any_running(workers) ? "running" : "idle";
  snprintf(it->name, sizeof it->name, "-");
  snprintf(it->state, sizeof it->state, "%s", it->live.driver < 0 ? "ending" : state);
  it->workers = count_staying(workers);
  read_start(it);
  if (!it->program[0] && it->live.driver > 0)
    read_cmdline(it->live.driver, it->program, sizeof it->program);
}

// --- Printing ------------------------------------------------------------------------------------

static void number_cell(struct manta__grid *g, const manta_value *v)
{
  int64_t n = manta_value_as_int(v, -1);
  if (n >= 0)
    manta__grid_cell(g, "%" PRId64, n);
  else
    manta__grid_cell(g, "-");
}

// Agents list the newest worker first: from the end they come as they were started.
static void add_workers(struct manta__grid *g, const struct item *it)
{
  const manta_value *workers = manta_value_get(it->live.run, "workers");
  for (size_t i = workers ? workers->count : 0; i-- > 0;) {
    const manta_value *w = manta_value_at(workers, i);
    manta__grid_cell(g, "%s", it->name);
    manta__grid_cell(g, "%d", (int)it->live.driver);
    manta__grid_cell(g, "%d", (int)it->live.agent);
    number_cell(g, manta_value_get(w, "rank"));
    number_cell(g, manta_value_get(w, "attempt"));
    number_cell(g, manta_value_get(w, "pid"));
    manta__grid_cell(g, "%s", manta_value_as_string(manta_value_get(w, "state"), "-"));
    manta__grid_cell(g, "%s", it->program);
  }
}

static void add_row(struct manta__grid *g, const struct item *it)
{
  char text[MANTA__TEXT];
  manta__grid_cell(g, "%s", it->name);
  if (it->live.driver > 0)
    manta__grid_cell(g, "%d", (int)it->live.driver);
  else
    manta__grid_cell(g, "-");
  manta__grid_cell(g, "%d", it->workers);
  manta__grid_cell(g, "%" PRId64, manta_value_as_int(manta_value_get(it->live.run, "attempt"), 0));
  manta__grid_cell(g, "%s", it->state);
  manta__grid_cell(g, "%s",
                   it->begin_ns ? manta__text_duration(text, manta__wall() - it->begin_ns) : "-");
  manta__grid_cell(g, "%s", it->program);
}

static void print_table(const manta_value *ps, bool verbose)
{
  static const char *const brief[] = {"run",   "driver", "workers", "attempt",
                                      "state", "age",    "program"};
  static const char *const full[] = {"run",     "driver", "agent", "rank",
                                     "attempt", "pid",    "state", "program"};
  struct manta__grid g;
  struct manta__live_at at = {0};
  struct item it = {0};
  manta__grid_init(&g, verbose ? full : brief, verbose ? 8 : 7,
                   verbose ? 0x1fu << 1 : 1u << 1 | 1u << 2 | 1u << 3);
  while (manta__live_next(ps, &at, &it.live)) {
    fill(&it);
    if (verbose)
      add_workers(&g, &it);
    else
      add_row(&g, &it);
    it = (struct item){0};
  }
  if (g.count > 0)
    manta__grid_print(&g, stdout);
  else
    manta__say("nothing is running");
  manta__grid_fini(&g);
}

static manta_status add_json(manta_value *list, const struct item *it)
{
  manta_value v = {0}, workers = {0};
  const manta_value *w = manta_value_get(it->live.run, "workers");
  MANTA_TRY(manta_value_set_map(&v));
  MANTA_TRY(manta_value_put_string(&v, "run", it->name));
  MANTA_TRY(manta_value_put_string(&v, "path", it->live.path));
  MANTA_TRY(manta_value_put_int(&v, "driver", it->live.driver));
  MANTA_TRY(manta_value_put_int(&v, "agent", it->live.agent));
  MANTA_TRY(manta_value_put_string(&v, "program", it->program));
  MANTA_TRY(manta_value_put_string(&v, "state", it->state));
  MANTA_TRY(manta_value_put_int(&v, "attempt",
                                manta_value_as_int(manta_value_get(it->live.run, "attempt"), 0)));
  if (it->begin_ns)
    MANTA_TRY(manta_value_put_real(&v, "age", (double)(manta__wall() - it->begin_ns) / 1e9));
  if (w)
    MANTA_TRY(manta_value_copy(&workers, w));
  MANTA_TRY(manta_value_put(&v, "workers", &workers));
  return manta_value_append(list, &v);
}

static int print_json(const manta_value *ps)
{
  manta_value list = {0};
  struct manta__live_at at = {0};
  struct item it = {0};
  manta_status st = manta_value_set_list(&list);
  while (st == MANTA_OK && manta__live_next(ps, &at, &it.live)) {
    fill(&it);
    st = add_json(&list, &it);
    it = (struct item){0};
  }
  manta_error err = MANTA_ERROR_INIT;
  if (st < 0)
    manta_error_set(&err, st, "no memory for the list of runs");
  int code = st < 0 ? manta__complain(&err) : manta__print_json(&list);
  manta_value_fini(&list);
  return code;
}

int manta__cmd_ps(const struct manta__args *a)
{
  manta_value ps = {0};
  manta_error err = MANTA_ERROR_INIT;
  int code = MANTA__EXIT_OK;
  if (manta__ask_ps(&ps, false, &err) < 0)
    code = manta__complain(&err);
  else if (manta__args_has(a, "json"))
    code = print_json(&ps);
  else
    print_table(&ps, manta__args_has(a, "verbose"));
  manta_value_fini(&ps);
  return code;
}
