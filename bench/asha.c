/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/asha.c - how many epochs ASHA spends until it has found the best.
 *
 *   asha --table curves.txt [--orders 30] [--workers 4] [--grace 1] [--factor 3]
 *
 * Replays the learning curves of the table (bench/curves.py): trials in another order each time,
 * `workers` at once, which take turns. Samples: epochs until one has reported the least error of
 * the table, of all that were spent, and how many trials were stopped. peers/ray_asha.py does the
 * same with Ray's scheduler.
 */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "bench.h"
#include "tune/scheduler.h"

#define MOST_CURVES  4096
#define MOST_EPOCHS  128
#define MOST_WORKERS 64

static int curves[MOST_CURVES][MOST_EPOCHS], curve_count, epochs, least = 999;

static void read_table(const char *path)
{
  char line[3 * MOST_EPOCHS + 2];
  FILE *f = fopen(path, "r");
  if (!f)
    bench_die("%s: %m", path);
  while (fgets(line, sizeof line, f) && curve_count < MOST_CURVES) {
    int n = (int)strcspn(line, "\n") / 3;
    if (n == 0 || (epochs && n != epochs))
      bench_die("%s: line %d has %d epochs", path, curve_count + 1, n);
    epochs = n;
    for (int i = 0; i < n; i++) {
      const char *d = line + 3 * i;
      curves[curve_count][i] = (d[0] - '0') * 100 + (d[1] - '0') * 10 + (d[2] - '0');
      least = curves[curve_count][i] < least ? curves[curve_count][i] : least;
    }
    curve_count++;
  }
  fclose(f);
}

/* Which curve each trial has: a permutation by the order's number, the same in ray_asha.py. */
static void shuffle(uint64_t order, int *of)
{
  for (int i = 0; i < curve_count; i++)
    of[i] = i;
  for (int i = curve_count - 1; i > 0; i--) {
    int k = (int)(manta__rng_mix(order * MOST_CURVES + (uint64_t)i) % (uint64_t)(i + 1));
    int other = of[i];
    of[i] = of[k];
    of[k] = other;
  }
}

static void replay(uint64_t order, int workers, const struct manta__schedule_config *config)
{
  static int of[MOST_CURVES];
  struct manta__scheduler *s;
  manta_error err = MANTA_ERROR_INIT;
  int trial[MOST_WORKERS], at[MOST_WORKERS], begun = 0, spent = 0, found = 0, stopped = 0;
  shuffle(order, of);
  bench_check(manta__scheduler_create(&s, "asha", config, &err), "asha", &err);
  for (int i = 0; i < workers; i++)
    trial[i] = -1;
  for (int live = 1; live;) {
    live = 0;
    for (int i = 0; i < workers; i++) {
      if (trial[i] < 0 && begun < curve_count) {
        trial[i] = begun++;
        at[i] = 0;
        bench_check(manta__scheduler_begin(s, (uint64_t)trial[i], &err), "begin", &err);
      }
      if (trial[i] < 0)
        continue;
      live++;
      int value = curves[of[trial[i]]][at[i]++];
      struct manta__decision d;
      bench_check(manta__scheduler_report(s, (uint64_t)trial[i], at[i], value, &d, &err), "report",
                  &err);
      spent++;
      found = found || value > least ? found : spent;
      stopped += d.verdict == MANTA__STOP && at[i] < epochs;
      if (d.verdict == MANTA__STOP || at[i] == epochs)
        trial[i] = -1;
    }
  }
  manta__scheduler_destroy(s);
  bench_sample("found", found ? found : spent);
  bench_sample("spent", spent);
  bench_sample("stopped", stopped);
}

int main(int argc, char **argv)
{
  long orders = bench_arg(argc, argv, "orders", 30), workers = bench_arg(argc, argv, "workers", 4);
  read_table(bench_arg_text(argc, argv, "table", "bench/curves.txt"));
  if (workers < 1 || workers > MOST_WORKERS)
    bench_die("workers: 1 to %d", MOST_WORKERS);
  struct manta__schedule_config config = {.max_time = epochs,
                                          .grace = (double)bench_arg(argc, argv, "grace", 1),
                                          .factor = (double)bench_arg(argc, argv, "factor", 3)};
  for (long i = 0; i < orders; i++)
    replay((uint64_t)i, (int)workers, &config);
  return 0;
}
