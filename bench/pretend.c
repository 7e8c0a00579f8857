/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/pretend.c - a run that nobody ran: a directory with a log such as a real one writes, for
 * whoever shows runs.
 *
 *   pretend DIR NAME [--rows N] [--ranks R] [--loss-at ROW] [--fail] [--seed S] [--live]
 *           [--nan]
 *
 * Every rank reports N times (1000), with samples of its use of the host and a checkpoint now and
 * then. --loss-at: the last rank is lost after that iteration, and all begin again at the
 * checkpoint before it. --live: the log stays open, and each line of standard input adds an
 * iteration, or does what it names: "lose" a worker, "finish". --nan: a fourth
 * metric, which is never a number.
 */
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench.h"
#include "event/log.h"
#include "sys/file.h"

#define NS      1000000000ll
#define STEP_NS (NS / 20)
#define MAX_RUN 20000 /* samples and checkpoints of one run */
#define SAMPLES 20    /* iterations between two */

struct pretence {
  manta__log_writer *log;
  int64_t rows, ranks, loss_at, seed;
  bool fail, live, nan;
  int64_t iteration, wall, saved; /* saved: iteration of the newest checkpoint */
  uint32_t attempt;
  uint64_t seq;
};

static void add(struct pretence *p, enum manta__event kind, int rank, manta_value v)
{
  manta_error err = MANTA_ERROR_INIT;
  void *packed;
  size_t n;
  struct manta__ident id = {0x70726574656e64 + (uint64_t)p->seed, p->attempt, rank, ++p->seq};
  bench_check(manta_value_pack(&v, &packed, &n, &err), "pack", &err);
  bench_check(manta__log_add(p->log, kind, &id, p->wall, packed, n, &err), "run.log", &err);
  manta_free(packed);
}

static double noise(struct pretence *p, int64_t i)
{
  uint64_t x = (uint64_t)(i * 7919 + p->seed * 104729);
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
  return (double)(x >> 40) / (double)(1u << 24) - 0.5;
}

static void add_row(struct pretence *p, int rank)
{
  double t = (double)p->iteration / (double)(p->rows > 1 ? p->rows : 1);
  double r = noise(p, p->iteration * 31 + rank);
  double loss = 2.3 * exp(-3.5 * t) + 0.08 + 0.06 * r * (1.2 - t) + 0.01 * (double)p->seed;
  double slow = rank == p->ranks - 1 && p->ranks > 3 ? 1.9 : 1;
  manta_value row =
      MANTA_MAP(MANTA_KV_REAL("loss", loss), MANTA_KV_REAL("accuracy", 1 - 0.3 * loss),
                MANTA_KV_REAL("lr", 1e-3 * (0.02 + fabs(cos(1.5 * t)))),
                MANTA_KV_INT("_timestamp", p->wall / NS),
                MANTA_KV_REAL("_time_this_iter_s", (0.05 + 0.004 * r) * slow),
                MANTA_KV_INT("_training_iteration", p->iteration), MANTA_KV_REAL("broken", NAN));
  row.count -= p->nan ? 0 : 1;
  add(p, MANTA__EV_ROW, rank, row);
}

static void add_sample(struct pretence *p)
{
  manta_value list = {0};
  manta_error err = MANTA_ERROR_INIT;
  bench_check(manta_value_set_list(&list), "sample", &err);
  for (int r = 0; r < p->ranks; r++) {
    manta_value one =
        MANTA_MAP(MANTA_KV_INT("rank", r), MANTA_KV_INT("pid", 4000 + r + 100 * p->attempt),
                  MANTA_KV_REAL("cpu", 0.93 + 0.1 * noise(p, p->iteration + r)),
                  MANTA_KV_INT("rss", 410000000 + 9000000 * r + p->iteration % 3000 * 10000));
    manta_value own = {0};
    bench_check(manta_value_copy(&own, &one), "sample", &err);
    bench_check(manta_value_append(&list, &own), "sample", &err);
  }
  add(p, MANTA__EV_SAMPLE, -1,
      MANTA_MAP(MANTA_KV_STR("host", "node-1"), MANTA_KV("workers", list)));
  manta_value_fini(&list);
}

static void begin_attempt(struct pretence *p)
{
  add(p, MANTA__EV_ATTEMPT, -1,
      MANTA_MAP(MANTA_KV_INT("world", p->ranks), MANTA_KV_INT("from", p->iteration)));
}

static void begin_run(struct pretence *p)
{
  manta_value argv = {.type = MANTA_LIST, .count = 2, .u.items = (manta_value[2]){{0}}};
  argv.u.items[0] = manta_value_borrow_string("./train");
  argv.u.items[1] = manta_value_borrow_string("--epochs=20");
  manta_value optimizer =
      MANTA_MAP(MANTA_KV_STR("name", "adam"), MANTA_KV_REAL("lr", 1e-3 * (double)(1 + p->seed)));
  manta_value config = MANTA_MAP(MANTA_KV_INT("batch_size", 64), MANTA_KV_INT("seed", p->seed),
                                 MANTA_KV("optimizer", optimizer));
  add(p, MANTA__EV_RUN, -1,
      MANTA_MAP(MANTA_KV_STR("name", "pretend"), MANTA_KV_STR("function", "train"),
                MANTA_KV("argv", argv), MANTA_KV("config", config), MANTA_KV_STR("cwd", "/work"),
                MANTA_KV_STR("version", manta_version()), MANTA_KV_STR("score", "loss"),
                MANTA_KV_BOOL("score_min", true)));
  begin_attempt(p);
}

static void lose(struct pretence *p)
{
  add(p, MANTA__EV_LOST, -1,
      MANTA_MAP(MANTA_KV_INT("rank", p->ranks - 1), MANTA_KV_STR("host", "node-1"),
                MANTA_KV_INT("pid", 4000 + p->ranks - 1),
                MANTA_KV_STR("cause", "killed by signal 9 (SIGKILL)")));
  p->wall += 3 * NS;
  p->attempt++;
  p->iteration = p->saved;
  add(p, MANTA__EV_REWIND, -1, MANTA_MAP(MANTA_KV_INT("to", p->saved)));
  begin_attempt(p);
}

static void iterate(struct pretence *p)
{
  int64_t every = p->rows / 40 > 50 ? p->rows / 40 : 50;
  int64_t sample = p->rows / MAX_RUN > SAMPLES ? p->rows / MAX_RUN : SAMPLES;
  char dir[32];
  p->iteration++;
  p->wall += STEP_NS;
  for (int r = 0; r < p->ranks; r++)
    add_row(p, r);
  if (p->iteration % sample == 0)
    add_sample(p);
  if (p->iteration % every != 0)
    return;
  p->saved = p->iteration;
  snprintf(dir, sizeof dir, "ckpt-%06lld", (long long)p->iteration);
  add(p, MANTA__EV_CKPT, -1,
      MANTA_MAP(MANTA_KV_STR("dir", dir), MANTA_KV_INT("iteration", p->iteration),
                MANTA_KV_INT("bytes", 48000000), MANTA_KV_REAL("score", 0.2)));
}

static void finish(struct pretence *p)
{
  add(p, MANTA__EV_FINISH, -1,
      MANTA_MAP(
          MANTA_KV_STR("status", p->fail ? "EUSER" : "OK"),
          MANTA_KV_STR("message", p->fail ? "rank 0: ValueError: batch 7 has no labels" : "")));
}

static void write_output(int dir)
{
  manta_error err = MANTA_ERROR_INIT;
  int logs;
  static const char text[] = "epoch 1 begins\n\033[32mloss 2.21\033[0m\nloss 1.87\nsaved\n";
  bench_check(manta__dir_makeat(dir, "logs", &logs, &err), "logs", &err);
  bench_check(manta__file_replace(logs, "rank-0.log", text, sizeof text - 1, &err), "log", &err);
  close(logs);
}

static void live(struct pretence *p)
{
  char line[64];
  manta_error err = MANTA_ERROR_INIT;
  manta__log_flush(p->log, &err);
  printf("ready\n");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    p->wall = manta__wall();
    if (!strcmp(line, "lose\n"))
      lose(p);
    else if (!strcmp(line, "finish\n"))
      finish(p);
    else
      iterate(p);
    bench_check(manta__log_flush(p->log, &err), "run.log", &err);
  }
}

static void parse(struct pretence *p, int argc, char **argv)
{
  static const struct option options[] = {{"rows", 1, NULL, 'n'},    {"ranks", 1, NULL, 'r'},
                                          {"loss-at", 1, NULL, 'l'}, {"seed", 1, NULL, 's'},
                                          {"nan", 0, NULL, 'N'},     {"fail", 0, NULL, 'f'},
                                          {"live", 0, NULL, 'w'},    {0}};
  int c;
  *p = (struct pretence){.rows = 1000, .ranks = 2};
  while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
    int64_t n = optarg ? strtoll(optarg, NULL, 10) : 0;
    p->rows = c == 'n' ? n : p->rows;
    p->ranks = c == 'r' ? n : p->ranks;
    p->loss_at = c == 'l' ? n : p->loss_at;
    p->seed = c == 's' ? n : p->seed;
    p->fail |= c == 'f';
    p->nan |= c == 'N';
    p->live |= c == 'w';
  }
  if (argc - optind != 2 || p->rows < 0 || p->ranks < 1 || p->ranks > 4096)
    bench_die("usage: pretend DIR NAME [--rows N] [--ranks R] [--loss-at ROW] [--live] ...");
}

int main(int argc, char **argv)
{
  struct pretence p;
  manta_error err = MANTA_ERROR_INIT;
  int top, dir;
  parse(&p, argc, argv);
  bench_check(manta__dir_make(argv[optind], &top, &err), argv[optind], &err);
  bench_check(manta__dir_makeat(top, argv[optind + 1], &dir, &err), argv[optind + 1], &err);
  bench_check(manta__log_writer_open(&p.log, dir, true, &err), "run.log", &err);
  write_output(dir);
  p.wall = manta__wall() - (p.rows + 100) * STEP_NS;
  begin_run(&p);
  while (p.iteration < p.rows) {
    iterate(&p);
    if (p.iteration == p.loss_at && p.attempt == 0)
      lose(&p);
  }
  if (p.live)
    live(&p);
  else
    finish(&p);
  manta__log_writer_close(p.log);
  close(dir);
  close(top);
  return 0;
}
