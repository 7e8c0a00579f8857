/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/usage.c - what the workers use, told to the driver once a second: CPU time and memory, out
 * of /proc, and of the GPUs where they have some.
 * (1) A worker costs one small file to read.
 * (2) NVML may wait for the driver of the GPUs, so a thread of libuv's asks it; what it said last
 *     is told. It is not asked while no worker has a GPU.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "sys/gpu.h"

#define FIRST_S 0.3
#define EVERY_S 1.0
#define MAX_USE 512 /* processes on the GPUs of a host */

struct manta__gpu_usage {
  uv_work_t work;
  bool asked;              // the thread is at it: what follows is its
  manta__gpu_watch *watch; // NULL: not yet, or there is none
  bool none;
  struct manta__gpu_use next[MAX_USE];
  int next_count;
  struct manta__gpu_use use[MAX_USE]; // … and this the loop's
  int count;
};

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

// --- GPUs ----------------------------------------------------------------------------------------

static void ask_gpus(uv_work_t *work)
{
  struct manta__gpu_usage *g = work->data;
  if (!g->watch && !g->none)
    g->none = !(g->watch = manta__gpu_watch_open());
  g->next_count = g->watch ? manta__gpu_watch_read(g->watch, g->next, MAX_USE) : 0;
}

static void on_gpus(uv_work_t *work, int status)
{
  struct manta__gpu_usage *g = work->data;
  g->asked = false;
  if (status < 0)
    return;
  memcpy(g->use, g->next, sizeof g->use);
  g->count = g->next_count;
}

static bool has_gpu(const struct manta__agent_worker *w)
{
  const struct manta__share *s = manta__agent_heir_share(w);
  return s && s->gpus && s->gpus[0];
}

static void look_at_gpus(struct manta__agent *a)
{
  if (!a->gpu_usage && !(a->gpu_usage = manta__calloc(1, sizeof *a->gpu_usage)))
    return;
  struct manta__gpu_usage *g = a->gpu_usage;
  g->work.data = g;
  if (!g->asked && !g->none)
    g->asked = uv_queue_work(&a->loop, &g->work, ask_gpus, on_gpus) == 0;
}

static manta_status add_gpus(manta_value *v, const struct manta__agent_worker *w)
{
  const struct manta__gpu_usage *g = w->group->agent->gpu_usage;
  for (int i = 0; g && i < g->count; i++)
    if (g->use[i].pid == w->pid) {
      MANTA_TRY(manta_value_put_int(v, "gpu_memory", g->use[i].memory));
      return manta_value_put_real(v, "gpu_use", g->use[i].busy);
    }
  return MANTA_OK;
}

// --- Workers -------------------------------------------------------------------------------------

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
    st = add_gpus(&v, w);
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
  bool gpus = false;
  for (struct manta__agent_worker *w = g->workers; w && st == MANTA_OK; w = w->next)
    if (w->attempt == g->run.attempt) {
      gpus |= has_gpu(w);
      st = add_worker(&list, w, now);
    }
  if (gpus)
    look_at_gpus(g->agent);
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
