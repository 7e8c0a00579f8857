/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/pretend_trials.c - a tuning experiment that nobody ran: its log, as tune/journal.c writes
 * it, for whoever shows experiments.
 *
 *   pretend_trials DIR NAME [--trials N]
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench.h"
#include "event/log.h"
#include "sys/file.h"

#define NS    1000000000ll
#define STEPS 30 /* of a trial that is not stopped */

struct pretence {
  manta__log_writer *log;
  int64_t wall;
  uint64_t seq;
  double best;
};

static void add(struct pretence *p, enum manta__event kind, int trial, manta_value v)
{
  manta_error err = MANTA_ERROR_INIT;
  void *packed;
  size_t n;
  struct manta__ident id = {0x747269616c73, 0, trial, ++p->seq};
  bench_check(manta_value_pack(&v, &packed, &n, &err), "pack", &err);
  bench_check(manta__log_add(p->log, kind, &id, p->wall, packed, n, &err), "run.log", &err);
  manta_free(packed);
}

static double unit(int trial, int k)
{
  return (double)(bench_mix((uint32_t)(trial * 16 + k)) >> 8) / (double)(1u << 24);
}

static void run_trial(struct pretence *p, int trial)
{
  static const char *const names[] = {"adam", "sgd", "lion"};
  double lr = pow(10, -4 + 3 * unit(trial, 1)), drop = 0.5 * unit(trial, 2);
  int64_t width = 32 << (int)(4 * unit(trial, 3));
  double end = 0.1 + 0.3 * fabs(log10(lr) + 2.4) + 0.2 * drop + 8.0 / (double)width;
  manta_value optimizer =
      MANTA_MAP(MANTA_KV_REAL("lr", lr), MANTA_KV_STR("name", names[(int)(3 * unit(trial, 4))]));
  manta_value config = MANTA_MAP(MANTA_KV("optimizer", optimizer), MANTA_KV_REAL("dropout", drop),
                                 MANTA_KV_INT("width", width), MANTA_KV_INT("epochs", STEPS));
  add(p, MANTA__EV_TRIAL, trial, MANTA_MAP(MANTA_KV_STR("what", "new"), MANTA_KV("value", config)));
  add(p, MANTA__EV_TRIAL, trial, MANTA_MAP(MANTA_KV_STR("what", "began")));
  bool bad = trial % 11 == 7, stops = end > 2 * p->best;
  int steps = bad ? 3 : stops ? STEPS / 4 : STEPS;
  for (int i = 1; i <= steps; i++) {
    p->wall += NS / 8;
    double loss = end + 2 * exp(-0.3 * i) + 0.02 * unit(trial, 100 + i);
    p->best = fmin(p->best, loss);
    add(p, MANTA__EV_ROW, trial,
        MANTA_MAP(MANTA_KV_REAL("loss", loss), MANTA_KV_INT("_training_iteration", i)));
  }
  add(p, MANTA__EV_TRIAL, trial,
      MANTA_MAP(MANTA_KV_STR("what", "ended"),
                MANTA_KV_STR("state", bad     ? "failed"
                                      : stops ? "stopped"
                                              : "finished"),
                MANTA_KV_STR("message", bad ? "loss is NaN" : "")));
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  struct pretence p = {.best = INFINITY};
  int top, dir, log;
  long trials = bench_arg(argc, argv, "trials", 24);
  if (argc < 3)
    bench_die("usage: pretend_trials DIR NAME [--trials N]");
  bench_check(manta__dir_make(argv[1], &top, &err), argv[1], &err);
  bench_check(manta__dir_makeat(top, argv[2], &dir, &err), argv[2], &err);
  bench_check(manta__dir_makeat(dir, "experiment", &log, &err), "experiment", &err);
  bench_check(manta__log_writer_open(&p.log, log, true, &err), "run.log", &err);
  p.wall = manta__wall() - trials * STEPS * NS / 8;
  add(&p, MANTA__EV_EXPERIMENT, -1,
      MANTA_MAP(MANTA_KV_STR("metric", "loss"), MANTA_KV_BOOL("maximize", false),
                MANTA_KV_STR("searcher", "tpe"), MANTA_KV_STR("scheduler", "asha"),
                MANTA_KV_INT("samples", trials), MANTA_KV_INT("total", trials)));
  for (int i = 0; i < trials; i++)
    run_trial(&p, i);
  add(&p, MANTA__EV_FINISH, -1, MANTA_MAP(MANTA_KV_STR("status", "OK")));
  manta__log_writer_close(p.log);
  close(log);
  close(dir);
  close(top);
  return 0;
}
