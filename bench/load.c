/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/load.c - CSV files become batches of a loader.
 *
 *   load epochs --dir D [--threads 2] [--batch 1024] [--reps 5] [--filter 0]
 *   load first  --set D --dir RUNS [--workers 2] [--reps 5]
 *   load memory --set D --dir RUNS [--workers 2] [--mb 20000] [--limit 256]
 *
 * epochs prints load_mb_s, from opening the data set until the last batch of its first epoch was
 * given back, and again_mb_s, the same of the second epoch, whose blocks are in memory. first
 * prints first_ms: from the first statement of a train function until the loader of the last worker
 * has given a batch. memory goes once through so many megabytes, made of links to the files of the
 * set, in a run with that limit (in MB), and prints pss_mb, the most that all processes of the run
 * had together, and load_mb_s.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

#define PATH   4096
#define LOOK   100000000 /* ns between two looks at the memory */
#define PIDS   4096
#define SET_KV MANTA_KV_STR("set", dir)

static double megabytes(const char *dir)
{
  double bytes = 0;
  DIR *d = opendir(dir);
  for (const struct dirent *e; d && (e = readdir(d));) {
    char path[PATH];
    struct stat sb;
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    if (e->d_name[0] != '.' && stat(path, &sb) == 0)
      bytes += (double)sb.st_size;
  }
  if (d)
    closedir(d);
  return bytes / 1e6;
}

// --- epochs -------------------------------------------------------------------------------------

static manta_dataset *open_set(const char *dir, bool filters)
{
  static const char text[] = "[\">\", [\"col\", \"x0\"], 0]";
  manta_error err = MANTA_ERROR_INIT;
  manta_value filter = {0};
  manta_dataset *d, *some;
  bench_check(manta_dataset_open(&d, &dir, 1, NULL, &err), "open", &err);
  if (!filters)
    return d;
  bench_check(manta_value_from_json(&filter, text, sizeof text - 1, &err), "filter", &err);
  bench_check(manta_dataset_filter(&some, d, &filter, &err), "filter", &err);
  manta_value_fini(&filter);
  manta_dataset_close(d);
  return some;
}

static int64_t take_all(manta_loader *l)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_batch *b;
  manta_status st;
  int64_t rows = 0;
  while ((st = manta_loader_next(l, &b, &err)) == 1) {
    rows += manta_batch_rows(b);
    manta_batch_destroy(b);
  }
  bench_check(st, "next", &err);
  return rows;
}

static void epochs(int argc, char **argv)
{
  const char *dir = bench_arg_text(argc, argv, "dir", ".");
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  double mb = megabytes(dir);
  c.batch_rows = bench_arg(argc, argv, "batch", 1024);
  c.threads = (int)bench_arg(argc, argv, "threads", 2);
  for (long i = 0; i <= bench_arg(argc, argv, "reps", 5); i++) { // the first is not counted
    int64_t from = bench_now();
    manta_dataset *d = open_set(dir, bench_arg(argc, argv, "filter", 0) != 0);
    manta_loader *l;
    bench_check(manta_loader_open(&l, d, &c, &err), "loader", &err);
    if (take_all(l) == 0)
      bench_die("%s: there are no rows", dir);
    int64_t end = bench_now();
    bench_check(manta_loader_begin(l, 1, &err), "begin", &err);
    take_all(l);
    int64_t again = bench_now();
    manta_loader_close(l);
    manta_dataset_close(d);
    if (i == 0)
      continue;
    bench_sample("load_mb_s", mb / ((double)(end - from) / 1e9));
    bench_sample("again_mb_s", mb / ((double)(again - end) / 1e9));
  }
}

// --- in a run -----------------------------------------------------------------------------------

struct board {
  _Atomic int64_t first_ns; /* of the last worker */
  _Atomic int64_t rows;
  _Atomic int64_t end_ns; /* when the last worker had all */
};

static manta_status open_shard(manta_session *s, manta_dataset **d, manta_loader **l,
                               manta_error *err)
{
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  c.batch_rows = 1024 * manta_session_world_size(s);
  c.memory_limit = (size_t)manta_session_config_int(s, "limit", 0) << 20;
  *d = open_set(manta_session_config_string(s, "set", "."), false);
  return manta_session_loader(l, s, "train", *d, &c, err);
}

static manta_status take_one(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t from = bench_now();
  struct board *board = bench_board(s, sizeof *board);
  manta_dataset *d;
  manta_loader *l;
  manta_batch *b;
  MANTA_TRY(open_shard(s, &d, &l, err));
  MANTA_TRY(manta_loader_next(l, &b, err));
  int64_t took = bench_now() - from, most = board->first_ns;
  while (took > most && !atomic_compare_exchange_weak(&board->first_ns, &most, took))
    ;
  manta_batch_destroy(b);
  manta_loader_close(l);
  manta_dataset_close(d);
  return MANTA_OK;
}

static manta_status take_shard(manta_session *s, manta_value *result, manta_error *err)
{
  struct board *board = bench_board(s, sizeof *board);
  manta_dataset *d;
  manta_loader *l;
  MANTA_TRY(open_shard(s, &d, &l, err));
  atomic_fetch_add(&board->rows, take_all(l));
  int64_t now = bench_now(), last = board->end_ns;
  while (now > last && !atomic_compare_exchange_weak(&board->end_ns, &last, now))
    ;
  bench_nap(3 * LOOK); // a run that is over at once is looked at, too
  manta_loader_close(l);
  manta_dataset_close(d);
  return MANTA_OK;
}

static void first(int argc, char **argv)
{
  const char *dir = bench_arg_text(argc, argv, "set", ".");
  char path[64];
  struct board *board = bench_board_make(sizeof *board, path, sizeof path);
  manta_error err = MANTA_ERROR_INIT;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_trainer *t = bench_trainer(argc, argv, (int)bench_arg(argc, argv, "workers", 2), -2);
  manta_value config = MANTA_MAP(SET_KV, MANTA_KV_STR("board", path));
  rc.config = &config;
  for (long i = bench_arg(argc, argv, "reps", 5); i > 0; i--) {
    board->first_ns = 0;
    bench_check(manta_trainer_run(t, take_one, &rc, NULL, &err), "run", &err);
    bench_sample("first_ms", (double)board->first_ns / 1e6);
  }
  manta_trainer_destroy(t);
}

// --- memory -------------------------------------------------------------------------------------

static double pss_of(long pid)
{
  char path[64], line[256];
  double kb = 0;
  snprintf(path, sizeof path, "/proc/%ld/smaps_rollup", pid);
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f))
    if (!strncmp(line, "Pss:", 4))
      kb = strtod(line + 4, NULL);
  if (f)
    fclose(f);
  return kb;
}

static long parent_of(long pid)
{
  char path[64], line[512];
  long parent = 0;
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  FILE *f = fopen(path, "r");
  if (f && fgets(line, sizeof line, f)) {
    const char *end = strrchr(line, ')'); // a name may have any letters
    if (end && strlen(end) > 4)
      parent = strtol(end + 4, NULL, 10);
  }
  if (f)
    fclose(f);
  return parent;
}

// Of this process and all below it, in MB.
static double pss_of_all(void)
{
  static long pid[PIDS], parent[PIDS];
  int n = 0;
  double kb = pss_of(getpid());
  DIR *d = opendir("/proc");
  for (const struct dirent *e; d && n < PIDS && (e = readdir(d));)
    if ((pid[n] = strtol(e->d_name, NULL, 10)) > 0) {
      parent[n] = parent_of(pid[n]);
      n++;
    }
  if (d)
    closedir(d);
  for (int i = 0; i < n; i++) {
    long up = parent[i];
    for (int k = 0; k < n && up > 1 && up != getpid(); k++)
      if (pid[k] == up) {
        up = parent[k];
        k = -1;
      }
    if (up == getpid())
      kb += pss_of(pid[i]);
  }
  return kb / 1024;
}

struct watch {
  _Atomic bool stops;
  double most;
};

static void *watch(void *ctx)
{
  struct watch *w = ctx;
  while (!w->stops) {
    double now = pss_of_all();
    w->most = now > w->most ? now : w->most;
    bench_nap(LOOK);
  }
  return NULL;
}

// A folder of links to the files of the set, over and over, until they have so many megabytes.
static double link_set(const char *set, const char *to, double mb)
{
  double have = 0;
  for (int round = 0; have < mb; round++) {
    DIR *d = opendir(set);
    double before = have;
    for (const struct dirent *e; d && have < mb && (e = readdir(d));) {
      char from[PATH], path[PATH];
      struct stat sb;
      snprintf(from, sizeof from, "%.3000s/%.255s", set, e->d_name);
      snprintf(path, sizeof path, "%.3000s/%06d-%.200s", to, round, e->d_name);
      if (e->d_name[0] == '.' || stat(from, &sb) < 0 || symlink(from, path) < 0)
        continue;
      have += (double)sb.st_size / 1e6;
    }
    if (d)
      closedir(d);
    if (have <= before)
      bench_die("%s: no files to link to", set);
  }
  return have;
}

static void unlink_set(const char *dir)
{
  DIR *d = opendir(dir);
  for (const struct dirent *e; d && (e = readdir(d));) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    if (e->d_name[0] != '.')
      unlink(path);
  }
  if (d)
    closedir(d);
  rmdir(dir);
}

static void memory(int argc, char **argv)
{
  char links[] = "/tmp/manta-links-XXXXXX", path[64];
  struct board *board = bench_board_make(sizeof *board, path, sizeof path);
  manta_error err = MANTA_ERROR_INIT;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  struct watch w = {0};
  pthread_t thread;
  if (!mkdtemp(links))
    bench_die("no folder for links");
  const char *dir = links;
  char real[PATH];
  if (!realpath(bench_arg_text(argc, argv, "set", "."), real))
    bench_die("no such set");
  double mb = link_set(real, links, (double)bench_arg(argc, argv, "mb", 20000));
  manta_trainer *t = bench_trainer(argc, argv, (int)bench_arg(argc, argv, "workers", 2), -2);
  manta_value config = MANTA_MAP(SET_KV, MANTA_KV_STR("board", path),
                                 MANTA_KV_INT("limit", bench_arg(argc, argv, "limit", 256)));
  rc.config = &config;
  if (pthread_create(&thread, NULL, watch, &w) != 0)
    bench_die("no thread");
  int64_t from = bench_now();
  manta_status st = manta_trainer_run(t, take_shard, &rc, NULL, &err);
  double s = (double)(board->end_ns - from) / 1e9;
  w.stops = true;
  pthread_join(thread, NULL);
  manta_trainer_destroy(t);
  unlink_set(links);
  bench_check(st, "run", &err);
  if (board->rows == 0)
    bench_die("there are no rows");
  bench_sample("pss_mb", w.most);
  bench_sample("load_mb_s", mb / s);
}

int main(int argc, char **argv)
{
  const char *what;
  if (manta_init(&argc, &argv) < 0)
    return 1;
  what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "epochs"))
    epochs(argc, argv);
  else if (!strcmp(what, "first"))
    first(argc, argv);
  else if (!strcmp(what, "memory"))
    memory(argc, argv);
  else
    bench_die("load epochs, first or memory");
  return 0;
}
