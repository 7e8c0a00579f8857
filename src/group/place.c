/* SPDX-License-Identifier: Apache-2.0 */
#include "group/place.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "sys/omp.h"

static void set_number(const char *name, int64_t n)
{
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)n);
  setenv(name, text, 1);
}

// A worker that serves one job after the other has it from the one before: what came later goes.
static bool keep_environment(const manta_value *list)
{
  for (size_t i = 0; i < list->count; i++)
    if (!environ[i] || strcmp(environ[i], manta_value_as_string(manta_value_at(list, i), "")) != 0)
      return false;
  environ[list->count] = NULL;
  return true;
}

void manta__place_environment(const manta_value *list)
{
  if (!list || list->type != MANTA_LIST || (environ && keep_environment(list)))
    return;
  clearenv();
  for (size_t i = 0; i < list->count; i++) {
    const char *pair = manta_value_as_string(manta_value_at(list, i), "");
    const char *eq = strchr(pair, '=');
    if (!eq || eq == pair)
      continue;
    char name[256];
    size_t n = (size_t)(eq - pair);
    if (n < sizeof name) {
      memcpy(name, pair, n);
      name[n] = 0;
      setenv(name, eq + 1, 1);
    }
  }
}

static void take_cpus(const manta_value *list)
{
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t i = 0; list && i < list->count; i++) {
    int64_t cpu = manta_value_as_int(manta_value_at(list, i), -1);
    if (cpu >= 0 && cpu < CPU_SETSIZE)
      CPU_SET((size_t)cpu, &set);
  }
  if (CPU_COUNT(&set) > 0 && sched_setaffinity(0, sizeof set, &set) < 0)
    manta__warn("cannot pin this worker: %m");
}

// Descendants that never exec have the environment the kernel shows of us, which setenv does not
// touch: there is room for the mark in it if a zygote left it.
void manta__place_mark(const char *mark)
{
  static char *room;
  for (char **e = environ; !room && *e; e++)
    if (!strcmp(*e, MANTA__MARK_ENV "=" MANTA__MARK_ROOM))
      room = *e + sizeof MANTA__MARK_ENV;
  if (room && strlen(mark) < sizeof MANTA__MARK_ROOM) {
    memset(room, 0, sizeof MANTA__MARK_ROOM - 1);
    memcpy(room, mark, strlen(mark));
  }
}

// The run's own number, or the host's part of it; 0: as the environment says.
static void take_threads(const struct manta__job *job, const struct manta__job_msg *head)
{
  int64_t threads = manta_value_as_int(manta_value_get(&job->spec, "threads"), 0);
  if (threads < 0)
    threads = head->threads;
  if (threads > 0 && threads <= INT_MAX)
    manta__omp_set_threads((int)threads);
}

// torchrun's names, so that code written for it finds its place.
void manta__place_take(const struct manta__job *job, const struct manta__job_msg *head)
{
  set_number("RANK", job->id.rank);
  set_number("WORLD_SIZE", job->world);
  set_number("LOCAL_RANK", job->local_rank);
  set_number("LOCAL_WORLD_SIZE", job->local_world);
  set_number("NODE_RANK", job->node_rank);
  take_threads(job, head);
  if (head->gpus)
    setenv("CUDA_VISIBLE_DEVICES", head->gpus, 1);
  setenv(MANTA__MARK_ENV, head->mark, 1);
  take_cpus(head->cpus);
}
