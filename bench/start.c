/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/start.c - how long until the first line of the train function runs in every worker.
 *
 *   start --dir D [--workers 4] [--again K] [--keep 1]   a fresh trainer, then K runs on it
 *   start --dir D --workers 256 --hold 1      memory of driver and agent while all workers are up
 */
#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define UP_LIMIT_S 60

struct board {
  _Atomic int up;
  _Atomic int go;
};

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t now = bench_now();
  if (manta_session_config_string(s, "board", NULL)) {
    struct board *b = bench_board(s, sizeof *b);
    atomic_fetch_add(&b->up, 1);
    while (!atomic_load(&b->go))
      bench_nap(2000000);
  }
  return manta_value_set_int(result, now);
}
MANTA_TRAIN("bench-start", train)

static manta_status nothing(manta_session *s, manta_value *result, manta_error *err)
{
  return manta_value_set_int(result, bench_now());
}
MANTA_TRAIN("bench-nothing", nothing)

static int64_t latest(const manta_value *results, int workers)
{
  int64_t last = 0;
  if (results->count != (uint32_t)workers)
    bench_die("%u results of %d workers", results->count, workers);
  for (int i = 0; i < workers; i++) {
    int64_t t = manta_value_as_int(manta_value_at(results, (size_t)i), 0);
    last = t > last ? t : last;
  }
  return last;
}

static void measure_start(manta_trainer *t, int workers, int64_t created)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  int64_t t0 = bench_now();
  bench_check(manta_trainer_run(t, train, NULL, &results, &err), "run", &err);
  int64_t first = latest(&results, workers);
  bench_sample("start_ms", (double)(first - t0) / 1e6);
  bench_sample("start_from_create_ms", (double)(first - created) / 1e6);
  manta_value_fini(&results);
}

static void measure_again(manta_trainer *t, int workers)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  int64_t t0 = bench_now();
  bench_check(manta_trainer_run(t, nothing, NULL, &results, &err), "second run", &err);
  bench_sample("again_ms", (double)(bench_now() - t0) / 1e6);
  bench_sample("again_first_ms", (double)(latest(&results, workers) - t0) / 1e6);
  manta_value_fini(&results);
}

// --- memory -------------------------------------------------------------------------------------

// A field in KB of a file of /proc/PID, in MB; 0 if there is none.
static double proc_mb(int pid, const char *file, const char *field)
{
  char path[64], line[256];
  double kb = 0;
  snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
  FILE *f = fopen(path, "re");
  while (f && fgets(line, sizeof line, f))
    if (!strncmp(line, field, strlen(field)))
      kb = strtod(line + strlen(field), NULL);
  if (f)
    fclose(f);
  return kb / 1024;
}

// The driver's only child.
static int find_agent(void)
{
  char path[320], line[512];
  int found = 0, ppid;
  DIR *d = opendir("/proc");
  for (struct dirent *e; d && (e = readdir(d));) {
    if (!isdigit((unsigned char)e->d_name[0]))
      continue;
    snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
    FILE *f = fopen(path, "re");
    if (f && fgets(line, sizeof line, f) && strrchr(line, ')') &&
        sscanf(strrchr(line, ')') + 1, " %*c %d", &ppid) == 1 && ppid == (int)getpid())
      found = (int)strtol(e->d_name, NULL, 10);
    if (f)
      fclose(f);
  }
  if (d)
    closedir(d);
  return found;
}

static void measure_memory(void)
{
  int agent = find_agent(), me = (int)getpid();
  if (!agent)
    bench_die("the agent is not found");
  bench_sample("driver_rss_mb", proc_mb(me, "status", "VmRSS:"));
  bench_sample("agent_rss_mb", proc_mb(agent, "status", "VmRSS:"));
  bench_sample("rss_mb", proc_mb(me, "status", "VmRSS:") + proc_mb(agent, "status", "VmRSS:"));
  bench_sample("pss_mb",
               proc_mb(me, "smaps_rollup", "Pss:") + proc_mb(agent, "smaps_rollup", "Pss:"));
}

static void measure_held(manta_trainer *t, int workers)
{
  manta_error err = MANTA_ERROR_INIT;
  char path[64];
  struct board *b = bench_board_make(sizeof *b, path, sizeof path);
  manta_value config = MANTA_MAP(MANTA_KV_STR("board", path));
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_run *run;
  rc.config = &config;
  int64_t t0 = bench_now();
  bench_check(manta_run_start(&run, t, train, &rc, &err), "run", &err);
  while (atomic_load(&b->up) < workers) {
    if (bench_now() - t0 > UP_LIMIT_S * 1000000000ll)
      bench_die("%d of %d workers are up after %d s", atomic_load(&b->up), workers, UP_LIMIT_S);
    bench_nap(1000000);
  }
  measure_memory();
  atomic_store(&b->go, 1);
  manta_rows rows;
  int rc_next = manta_run_next(run, -1, &rows, &err);
  bench_check((manta_status)(rc_next < 0 ? rc_next : 0), "run", &err);
  bench_sample("up_ms", (double)(latest(manta_run_results(run), workers) - t0) / 1e6);
  manta_run_close(run);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  int workers = (int)bench_arg(argc, argv, "workers", 4);
  int64_t created = bench_now();
  manta_trainer *t = bench_trainer(argc, argv, workers, -2);
  manta_trainer_keep(t, bench_arg(argc, argv, "keep", 0) > 0);
  if (bench_arg(argc, argv, "hold", 0)) {
    measure_held(t, workers);
  } else {
    measure_start(t, workers, created);
    for (long i = bench_arg(argc, argv, "again", 0); i > 0; i--)
      measure_again(t, workers);
  }
  manta_trainer_destroy(t);
  return 0;
}
