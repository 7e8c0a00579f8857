/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/sink.c - what it costs to have the rows of a run in files, too.
 *
 *   sink rows   --dir D [--rows 200000] [--sinks 1]   rows/s, until the files are complete
 *   sink call   --dir D [--rows 100000] [--sinks 1]   p99 in ns of a report, one every --pace-us
 *                                                     (10)
 *   sink memory --dir D [--rows 1000000]              MB that the driver grows by after a fifth
 *   sink events --dir D [--rows 200000]               rows/s of manta_events_add, 3 metrics
 *
 * sinks: JSON, CSV and TensorBoard all together, or none; --mlflow URI: that server instead.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define PACE_US 10

static manta_value row_of(int64_t i, manta_pair pairs[3])
{
  pairs[0] = MANTA_KV_REAL("loss", 1.0 / (double)(i + 3));
  pairs[1] = MANTA_KV_REAL("accuracy", 0.125 * (double)i);
  pairs[2] = MANTA_KV_INT("step", i);
  return (manta_value){.type = MANTA_MAP, .count = 3, .u.pairs = pairs};
}

static int by_value(const void *a, const void *b)
{
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// Reports at once, or one every `pace` ns; gives when it began, and the p99 of a call.
static manta_status reports(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t rows = manta_session_config_int(s, "rows", 0);
  int64_t pace = manta_session_config_int(s, "pace", 0), began = bench_now();
  int64_t *ns = calloc((size_t)rows, sizeof *ns);
  if (!ns)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for samples");
  memset(ns, 1, (size_t)rows * sizeof *ns); // the pages are there before it begins
  for (int64_t i = 0; i < rows; i++) {
    manta_pair pairs[3];
    manta_value row = row_of(i + 1, pairs);
    while (pace && bench_now() < began + i * pace)
      ;
    int64_t t0 = bench_now();
    MANTA_TRY(manta_session_report(s, &row, err));
    ns[i] = bench_now() - t0;
  }
  qsort(ns, (size_t)rows, sizeof *ns, by_value);
  MANTA_TRY(manta_value_set_map(result));
  MANTA_TRY(manta_value_put_int(result, "began", began));
  MANTA_TRY(manta_value_put_int(result, "p99", ns[rows * 99 / 100]));
  free(ns);
  return MANTA_OK;
}
MANTA_TRAIN("bench-sink", reports)

static const manta_sink all[] = {{"json", NULL}, {"csv", NULL}, {"tensorboard", NULL}};

static manta_run_config config_of(const manta_value *config, int argc, char **argv)
{
  static manta_pair uri;
  static manta_value options = {.type = MANTA_MAP, .count = 1, .u.pairs = &uri};
  static const manta_sink mlflow = {"mlflow", &options};
  const char *server = bench_arg_text(argc, argv, "mlflow", NULL);
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  rc.config = config;
  rc.sinks = server ? &mlflow : all;
  rc.sink_count = server ? 1 : bench_arg(argc, argv, "sinks", 1) ? 3 : 0;
  uri = (manta_pair)MANTA_KV_STR("tracking_uri", server);
  return rc;
}

static void measure_run(int argc, char **argv, int64_t rows, int64_t pace)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *t = bench_trainer(argc, argv, 1, 0);
  manta_value config = MANTA_MAP(MANTA_KV_INT("rows", rows), MANTA_KV_INT("pace", pace));
  manta_value results = {0};
  manta_run_config rc = config_of(&config, argc, argv);
  bench_check(manta_trainer_run(t, reports, &rc, &results, &err), "run", &err);
  int64_t end = bench_now();
  const manta_value *one = manta_value_at(&results, 0);
  int64_t began = manta_value_as_int(manta_value_get(one, "began"), 0);
  if (pace)
    bench_sample("p99_ns", (double)manta_value_as_int(manta_value_get(one, "p99"), 0));
  else
    bench_sample("rows_per_s", (double)rows / ((double)(end - began) / 1e9));
  manta_value_fini(&results);
  manta_trainer_destroy(t);
}

static double resident_mb(void)
{
  long pages = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (!f || fscanf(f, "%ld %ld", &pages, &resident) != 2)
    bench_die("/proc/self/statm cannot be read");
  fclose(f);
  return (double)resident * (double)sysconf(_SC_PAGESIZE) / BENCH_MB;
}

static void measure_memory(int argc, char **argv, int64_t rows)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *t = bench_trainer(argc, argv, 1, 0);
  manta_value config = MANTA_MAP(MANTA_KV_INT("rows", rows));
  manta_run_config rc = config_of(&config, argc, argv);
  manta_run *r;
  manta_rows got;
  double early = 0, most = 0;
  int rc_next;
  bench_check(manta_run_start(&r, t, reports, &rc, &err), "start", &err);
  while ((rc_next = manta_run_next(r, -1, &got, &err)) == 1) {
    if (got.iteration % 1000)
      continue;
    double now = resident_mb(), *seen = got.iteration <= rows / 5 ? &early : &most;
    *seen = now > *seen ? now : *seen; // the most: rows that wait to be taken come and go
  }
  bench_check((manta_status)rc_next, "next", &err);
  bench_sample("grown_mb", most > early ? most - early : 0);
  manta_run_close(r);
  manta_trainer_destroy(t);
}

static void measure_events(const char *dir, int64_t rows)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_events *e;
  bench_check(manta_events_open(&e, dir, &err), "open", &err);
  int64_t began = bench_now();
  for (int64_t i = 1; i <= rows; i++) {
    manta_pair pairs[3];
    manta_value row = row_of(i, pairs);
    bench_check(manta_events_add(e, i, &row, &err), "add", &err);
  }
  bench_check(manta_events_flush(e, &err), "flush", &err);
  bench_sample("events_per_s", (double)rows / ((double)(bench_now() - began) / 1e9));
  manta_events_close(e);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  const char *what = argc > 1 ? argv[1] : "";
  int64_t rows = bench_arg(argc, argv, "rows", strcmp(what, "memory") ? 200000 : 1000000);
  if (!strcmp(what, "rows"))
    measure_run(argc, argv, rows, 0);
  else if (!strcmp(what, "call"))
    measure_run(argc, argv, rows, 1000 * bench_arg(argc, argv, "pace-us", PACE_US));
  else if (!strcmp(what, "memory"))
    measure_memory(argc, argv, rows);
  else if (!strcmp(what, "events"))
    measure_events(bench_arg_text(argc, argv, "dir", "."), rows);
  else
    bench_die("usage: sink rows|call|memory|events --dir D");
  return 0;
}
