/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/report.c - what a report costs, and how many reach a callback.
 *
 *   report cost  --dir D [--batches 20]                    ns of one call, a figure per batch
 *   report flood --dir D [--workers 1] [--rows 200000] [--threads 1]
 *                                                          rows/s, all ranks and threads together
 *
 * In a flood no rank gets more than AHEAD rows ahead of another, as ranks that train together
 * don't: past the window of 1,024 rows an iteration is delivered with gaps.
 */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "bench.h"

#define BATCH       1000
#define PAUSE_NS    15000000 /* longer than the driver lets rows lie */
#define AHEAD       400
#define LOOK        64 /* rows between two looks at the others */
#define MAX_RANKS   64
#define MAX_THREADS 64

struct board {
  struct {
    _Alignas(64) _Atomic int64_t rows;
  } rank[MAX_RANKS];
};

static manta_status report_one(manta_session *s, int64_t i, manta_error *err)
{
  manta_value row =
      MANTA_MAP(MANTA_KV_REAL("loss", (double)i), MANTA_KV_REAL("accuracy", 0.125 * (double)i),
                MANTA_KV_INT("step", i));
  return manta_session_report(s, &row, err);
}

static manta_status cost(manta_session *s, manta_value *result, manta_error *err)
{
  MANTA_TRY(manta_value_set_list(result));
  int64_t batches = manta_session_config_int(s, "batches", 20);
  for (int64_t b = 0, i = 0; b < batches; b++) {
    bench_nap(PAUSE_NS);
    int64_t t0 = bench_now();
    for (int n = 0; n < BATCH; n++)
      MANTA_TRY(report_one(s, ++i, err));
    manta_value ns = manta_value_real((double)(bench_now() - t0) / BATCH);
    MANTA_TRY(manta_value_append(result, &ns));
  }
  return MANTA_OK;
}
MANTA_TRAIN("bench-cost", cost)

static void keep_step(struct board *b, int rank, int world, int64_t mine, bool last)
{
  atomic_store_explicit(&b->rank[rank].rows, last ? INT64_MAX : mine, memory_order_relaxed);
  for (int r = 0; r < world && !last; r++)
    while (mine - atomic_load_explicit(&b->rank[r].rows, memory_order_relaxed) > AHEAD - LOOK)
      bench_nap(20000);
}

static manta_status flood(manta_session *s, manta_value *result, manta_error *err)
{
  struct board *b = bench_board(s, sizeof *b);
  int rank = manta_session_rank(s), world = manta_session_world_size(s);
  int64_t rows = manta_session_config_int(s, "rows", 0), t0 = bench_now();
  for (int64_t i = 1; i <= rows; i++) {
    MANTA_TRY(report_one(s, i, err));
    if (i % LOOK == 0 || i == rows)
      keep_step(b, rank, world, i, i == rows);
  }
  return manta_value_set_int(result, t0);
}
MANTA_TRAIN("bench-flood", flood)

/* One thread of a rank, and every `step`th row from `first` on. */
struct hand {
  pthread_t thread;
  manta_session *s;
  int64_t first, step, rows;
  manta_status st;
  manta_error err;
};

static void *report_part(void *arg)
{
  struct hand *h = arg;
  for (int64_t i = h->first; i <= h->rows && h->st == MANTA_OK; i += h->step)
    h->st = report_one(h->s, i, &h->err);
  return NULL;
}

static manta_status flood_threads(manta_session *s, manta_value *result, manta_error *err)
{
  static struct hand hands[MAX_THREADS];
  int64_t rows = manta_session_config_int(s, "rows", 0), t0 = bench_now();
  int64_t n = manta_session_config_int(s, "threads", 1);
  manta_status st = MANTA_OK;
  for (int64_t i = 0; i < n; i++) {
    hands[i] = (struct hand){.s = s, .first = i + 1, .step = n, .rows = rows};
    hands[i].err = (manta_error)MANTA_ERROR_INIT;
    if (pthread_create(&hands[i].thread, NULL, report_part, &hands[i]) != 0)
      bench_die("no thread");
  }
  for (int64_t i = 0; i < n; i++) {
    pthread_join(hands[i].thread, NULL);
    if (hands[i].st < 0 && st == MANTA_OK) {
      st = hands[i].st;
      *err = hands[i].err;
    }
  }
  return st < 0 ? st : manta_value_set_int(result, t0);
}
MANTA_TRAIN("bench-flood-threads", flood_threads)

struct tally {
  int64_t rows, gaps, torn, last_ns;
  double sum;
};

static manta_status on_result(void *ctx, const manta_rows *rows, manta_error *err)
{
  struct tally *t = ctx;
  for (int i = 0; i < rows->count; i++) {
    const manta_value *row = &rows->rows[i], *loss = manta_value_get(row, "loss");
    int64_t step = manta_value_as_int(manta_value_get(row, "step"), -1);
    double x = manta_value_as_real(loss, 0), d = x - (double)step;
    d += manta_value_as_real(manta_value_get(row, "accuracy"), -1) - 0.125 * x;
    t->torn += d < 0 || d > 0;
    t->rows += loss != NULL;
    t->sum += x;
  }
  t->gaps += !rows->complete;
  t->last_ns = bench_now();
  return MANTA_OK;
}

static void run(manta_trainer *t, manta_train_fn fn, const manta_value *config, struct tally *tally,
                manta_value *results)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_callbacks cb = {.ctx = tally, .result = on_result};
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  rc.config = config;
  rc.callbacks = &cb;
  rc.callback_count = 1;
  bench_check(manta_trainer_run(t, fn, &rc, results, &err), "run", &err);
}

static void check_tally(const struct tally *t, int workers, int64_t rows)
{
  double sum = (double)workers * (double)rows * (double)(rows + 1) / 2;
  if (t->rows != workers * rows || t->gaps || t->torn || t->sum < sum || t->sum > sum)
    bench_die("%lld of %lld rows came, %lld torn, %lld iterations with gaps, sum %.17g instead of "
              "%.17g",
              (long long)t->rows, (long long)(workers * rows), (long long)t->torn,
              (long long)t->gaps, t->sum, sum);
}

static void measure_cost(int argc, char **argv)
{
  struct tally tally = {0};
  manta_value results = {0};
  int64_t batches = bench_arg(argc, argv, "batches", 20);
  manta_trainer *t = bench_trainer(argc, argv, 1, -2);
  manta_value config = MANTA_MAP(MANTA_KV_INT("batches", batches));
  run(t, cost, &config, &tally, &results);
  check_tally(&tally, 1, batches * BATCH);
  const manta_value *list = manta_value_at(&results, 0);
  for (size_t i = 0; list && i < list->count; i++)
    bench_sample("report_ns", manta_value_as_real(manta_value_at(list, i), 0));
  manta_value_fini(&results);
  manta_trainer_destroy(t);
}

// From the first report of any rank to the return of the last callback.
static void measure_flood(int argc, char **argv)
{
  struct tally tally = {0};
  manta_value results = {0};
  int workers = (int)bench_arg(argc, argv, "workers", 1);
  if (workers < 1 || workers > MAX_RANKS)
    bench_die("1 to %d workers", MAX_RANKS);
  int64_t rows = bench_arg(argc, argv, "rows", 200000), first = INT64_MAX;
  int64_t threads = bench_arg(argc, argv, "threads", 1);
  if (threads < 1 || threads > MAX_THREADS || (threads > 1 && workers > 1))
    bench_die("1 to %d threads, of one worker", MAX_THREADS);
  manta_trainer *t = bench_trainer(argc, argv, workers, -2);
  char board[64];
  bench_board_make(sizeof(struct board), board, sizeof board);
  manta_value config = MANTA_MAP(MANTA_KV_INT("rows", rows), MANTA_KV_INT("threads", threads),
                                 MANTA_KV_STR("board", board));
  run(t, threads > 1 ? flood_threads : flood, &config, &tally, &results);
  check_tally(&tally, workers, rows);
  for (int i = 0; i < workers; i++) {
    int64_t t0 = manta_value_as_int(manta_value_at(&results, (size_t)i), INT64_MAX);
    first = t0 < first ? t0 : first;
  }
  bench_sample("rows_per_s", (double)tally.rows * 1e9 / (double)(tally.last_ns - first));
  manta_value_fini(&results);
  manta_trainer_destroy(t);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "cost"))
    measure_cost(argc, argv);
  else if (!strcmp(what, "flood"))
    measure_flood(argc, argv);
  else
    bench_die("usage: report cost|flood --dir D");
  return 0;
}
