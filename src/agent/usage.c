/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/usage.c - what the workers use, told to the driver once a second: CPU time and memory, out
 * of /proc. A worker costs one small file to read.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/clock.h"

#define FIRST_S 0.3
#define EVERY_S 1.0

/* Of /proc/PID/stat. */
struct stat_line {
  unsigned long long ticks; // of CPU time
  long long pages;          // resident
};

static bool read_stat(pid_t pid, struct stat_line *out)
{
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0)
    close(fd);
  if (n <= 0)
    return false;
  text[n] = 0;
  // pid (name) state …: the name may hold anything, so from its last ')' on.
  const char *p = strrchr(text, ')');
  unsigned long long user, system;
  if (!p || sscanf(p + 1,
                   " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d"
                   " %*d %*d %*u %*u %lld",
                   &user, &system, &out->pages) != 3)
    return false;
  out->ticks = user + system;
  return true;
}

// Adds the worker's map to the list. Without an earlier look at it its CPU time is not told.
static manta_status add_worker(manta_value *list, struct manta__agent_worker *w, int64_t now)
{
  struct stat_line s;
  if (w->state != WORKER_RUNNING || w->rank < 0 || w->pid <= 0 || !read_stat(w->pid, &s))
    return MANTA_OK;
  manta_value v = {0};
  double ticks_s = (double)sysconf(_SC_CLK_TCK);
  manta_status st = manta_value_set_map(&v);
  if (st == MANTA_OK)
    st = manta_value_put_int(&v, "rank", w->rank);
  if (st == MANTA_OK)
    st = manta_value_put_int(&v, "pid", w->pid);
  if (st == MANTA_OK && w->usage_ns > 0 && now > w->usage_ns)
    st = manta_value_put_real(&v, "cpu",
                              (double)(s.ticks - w->usage_ticks) / ticks_s * 1e9 /
                                  (double)(now - w->usage_ns));
  if (st == MANTA_OK)
    st = manta_value_put_int(&v, "rss", s.pages * sysconf(_SC_PAGESIZE));
  if (st == MANTA_OK)
    st = manta_value_append(list, &v);
  manta_value_fini(&v);
  w->usage_ns = now;
  w->usage_ticks = s.ticks;
  return st;
}

static void on_usage(uv_timer_t *t)
{
  struct manta__agent_group *g = t->data;
  manta_value list = {0};
  int64_t now = manta__now();
  if (!g->ctl || g->agent->driver_lost || manta_value_set_list(&list) < 0)
    return;
  manta_status st = MANTA_OK;
  for (struct manta__agent_worker *w = g->workers; w && st == MANTA_OK; w = w->next)
    if (w->attempt == g->run.attempt)
      st = add_worker(&list, w, now);
  if (st == MANTA_OK && list.count > 0) {
    manta_value v = MANTA__PACK(sample_msg, .host = g->agent->host, .workers = &list);
    manta__agent_send_value(
        g->agent->driver,
        &(struct manta__msg){.kind = MANTA__M_SAMPLE, .group = g->id, .id = g->run}, &v);
  }
  manta_value_fini(&list);
}

void manta__agent_usage_begin(struct manta__agent_group *g)
{
  manta__agent_timer_stop(&g->usage);
  g->usage = manta__agent_timer(g->agent, FIRST_S, EVERY_S, on_usage, g);
}
