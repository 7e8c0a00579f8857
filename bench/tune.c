/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/tune.c - how many trials an experiment runs in a second, and what many of them cost.
 *
 *   tune trials --dir D [--trials 2000] [--reuse 1] [--wait 1]
 *                       trials/s: 3 reports each, two at once; wait: each report is decided upon
 *   tune many --dir D [--trials 100000] [--reuse 1]
 *                       the driver's memory, and the rates of the first and the last 1,000
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static manta_status trial(manta_session *s, manta_value *result, manta_error *err)
{
  double x = manta_session_config_real(s, "x", 0);
  for (int i = 1; i <= 3; i++) {
    manta_value row = MANTA_MAP(MANTA_KV_REAL("loss", x / i));
    MANTA_TRY(manta_session_report(s, &row, err));
  }
  return MANTA_OK;
}
MANTA_TRAIN("bench-trial", trial)

static double resident_mb(void)
{
  FILE *f = fopen("/proc/self/status", "r");
  char line[256];
  double kb = 0;
  while (f && fgets(line, sizeof line, f))
    if (!strncmp(line, "VmHWM:", 6))
      kb = strtod(line + 6, NULL);
  if (f)
    fclose(f);
  return kb / 1024;
}

static manta_tune *start(int argc, char **argv, long trials, bool wait)
{
  static manta_value space, stop;
  manta_error err = MANTA_ERROR_INIT;
  manta_tune_config c = MANTA_TUNE_CONFIG_INIT;
  manta_tune *t;
  manta_value x = {0}, never = manta_value_real(1e300);
  bench_check(manta_space_uniform(&x, 0, 1, 0, false), "space", &err);
  bench_check(manta_value_set_map(&space), "space", &err);
  bench_check(manta_value_put(&space, "x", &x), "space", &err);
  bench_check(manta_value_set_map(&stop), "stop", &err);
  bench_check(manta_value_put(&stop, "loss", &never), "stop", &err);
  c.space = &space;
  c.samples = trials;
  c.metric = "loss";
  c.concurrency = 2;
  c.reuse = bench_arg(argc, argv, "reuse", 0) != 0;
  c.stop = wait ? &stop : NULL;
  c.logdir = bench_arg_text(argc, argv, "dir", "/tmp");
  bench_check(manta_tune_start(&t, trial, &c, &err), "start", &err);
  return t;
}

// Takes events until so many trials have ended; false: there are no more.
static bool take(manta_tune *t, long *ended, long upto)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_tune_event e;
  while (*ended < upto) {
    int rc = manta_tune_next(t, 60, &e, &err);
    bench_check((manta_status)rc, "next", &err);
    if (rc == 0)
      return false;
    *ended += e.kind == MANTA_TUNE_ENDED;
  }
  return true;
}

static double rate(manta_tune *t, long *ended, long upto)
{
  long before = *ended;
  int64_t t0 = bench_now();
  take(t, ended, upto);
  return (double)(*ended - before) / ((double)(bench_now() - t0) * 1e-9);
}

static void trials(int argc, char **argv)
{
  long n = bench_arg(argc, argv, "trials", 2000), ended = 0;
  manta_tune *t = start(argc, argv, n, bench_arg(argc, argv, "wait", 0) != 0);
  take(t, &ended, 2); // both seats are warm
  bench_sample("trials_per_s", rate(t, &ended, n));
  if (manta_tune_count_state(t, MANTA_TRIAL_FINISHED) != (uint64_t)n)
    bench_die("not all trials have finished");
  manta_tune_close(t);
}

static void many(int argc, char **argv)
{
  long n = bench_arg(argc, argv, "trials", 100000), ended = 0, part = n < 4000 ? n / 4 : 1000;
  manta_tune *t = start(argc, argv, n, false);
  take(t, &ended, 2);
  bench_sample("first_per_s", rate(t, &ended, part + 2));
  take(t, &ended, n - part);
  bench_sample("last_per_s", rate(t, &ended, n));
  bench_sample("driver_mb", resident_mb());
  manta_tune_close(t);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  if (argc > 1 && !strcmp(argv[1], "trials"))
    trials(argc, argv);
  else if (argc > 1 && !strcmp(argv[1], "many"))
    many(argc, argv);
  else
    bench_die("tune trials|many --dir D");
  return 0;
}
