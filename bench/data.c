/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/data.c - CSV files become columns.
 *
 *   data make   --dir D [--rows 1000000] [--files 8] [--digits 6]
 *   data read   --dir D [--threads 1] [--reps 5] [--filter 0]
 *   data verify --dir D
 *   data get    --dir URI [--mb 1024] [--reps 5]
 *
 * make writes the reference set: 20 columns of floats with so many significant digits, one of
 * integers, and a header (184 MB with a million rows). read prints csv_mb_s, a figure per pass over
 * all files: from opening the data set until the last batch was given back; with a filter, rows
 * whose first column is above 0. verify compares every number with strtod's, and prints `wrong`.
 * get reads so many MB of bytes behind a URI, by one thread, and prints get_mb_s.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench.h"

#define FLOATS  20
#define THREADS 64
#define LINE    1024

// --- make ---------------------------------------------------------------------------------------

static void make_file(const char *dir, long file, long rows, int digits)
{
  char path[4096];
  uint32_t x = (uint32_t)file * 7919 + 1;
  snprintf(path, sizeof path, "%s/part-%02ld.csv", dir, file);
  FILE *f = fopen(path, "w");
  if (!f)
    bench_die("%s: cannot be written", path);
  for (int c = 0; c < FLOATS; c++)
    fprintf(f, "x%d,", c);
  fprintf(f, "label\n");
  for (long r = 0; r < rows; r++) {
    for (int c = 0; c < FLOATS; c++) {
      x = bench_mix(x + 1);
      fprintf(f, "%.*g,", digits, ((double)x / 4294967296.0 - 0.5) * 20);
    }
    fprintf(f, "%u\n", bench_mix(x) % 1000000);
  }
  if (fclose(f) != 0)
    bench_die("%s: cannot be written", path);
}

static void make(int argc, char **argv)
{
  const char *dir = bench_arg_text(argc, argv, "dir", ".");
  long rows = bench_arg(argc, argv, "rows", 1000000), files = bench_arg(argc, argv, "files", 8);
  for (long i = 0; i < files; i++)
    make_file(dir, i, rows / files + (i < rows % files), (int)bench_arg(argc, argv, "digits", 6));
}

// --- read ---------------------------------------------------------------------------------------

static double megabytes(const char *dir)
{
  double bytes = 0;
  DIR *d = opendir(dir);
  for (const struct dirent *e; d && (e = readdir(d));) {
    char path[4096];
    struct stat sb;
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    if (e->d_name[0] != '.' && stat(path, &sb) == 0)
      bytes += (double)sb.st_size;
  }
  if (d)
    closedir(d);
  return bytes / 1e6;
}

struct pass {
  manta_dataset *dataset;
  _Atomic int64_t next, rows;
};

static void *read_blocks(void *ctx)
{
  struct pass *p = ctx;
  manta_error err = MANTA_ERROR_INIT;
  int64_t block;
  while ((block = atomic_fetch_add(&p->next, 1)) < manta_dataset_blocks(p->dataset)) {
    manta_reader *r;
    manta_batch *b;
    manta_status st;
    bench_check(manta_reader_open(&r, p->dataset, block, 1, &err), "open a block", &err);
    while ((st = manta_reader_next(r, &b, &err)) == 1) {
      atomic_fetch_add(&p->rows, manta_batch_rows(b));
      manta_batch_destroy(b);
    }
    bench_check(st, "read a block", &err);
    manta_reader_close(r);
  }
  return NULL;
}

static int64_t read_once(const char *dir, int threads, const manta_data_config *cfg)
{
  struct pass p = {0};
  pthread_t thread[THREADS];
  manta_error err = MANTA_ERROR_INIT;
  bench_check(manta_dataset_open(&p.dataset, &dir, 1, cfg, &err), "open", &err);
  for (int i = 1; i < threads; i++)
    if (pthread_create(&thread[i], NULL, read_blocks, &p) != 0)
      bench_die("no thread");
  read_blocks(&p);
  for (int i = 1; i < threads; i++)
    pthread_join(thread[i], NULL);
  manta_dataset_close(p.dataset);
  return p.rows;
}

static void measure(int argc, char **argv)
{
  const char *dir = bench_arg_text(argc, argv, "dir", ".");
  static const char text[] = "[\">\", [\"col\", \"x0\"], 0]";
  manta_data_config cfg = MANTA_DATA_CONFIG_INIT;
  manta_error err = MANTA_ERROR_INIT;
  manta_value filter = {0};
  int threads = (int)bench_arg(argc, argv, "threads", 1);
  double mb = megabytes(dir);
  if (threads < 1 || threads > THREADS)
    bench_die("1 to %d threads", THREADS);
  if (bench_arg(argc, argv, "filter", 0)) {
    bench_check(manta_value_from_json(&filter, text, sizeof text - 1, &err), "filter", &err);
    cfg.filter = &filter;
  }
  read_once(dir, threads, &cfg); // the files are in memory now
  for (long i = bench_arg(argc, argv, "reps", 5); i > 0; i--) {
    int64_t from = bench_now();
    if (read_once(dir, threads, &cfg) == 0)
      bench_die("%s: there are no rows", dir);
    bench_sample("csv_mb_s", mb / ((double)(bench_now() - from) / 1e9));
  }
  manta_value_fini(&filter);
}

// --- verify -------------------------------------------------------------------------------------

// Values of a line that are not those of row `row` of the batch.
static long wrong_in(const char *line, const manta_column *columns, int64_t row)
{
  long wrong = 0;
  char *end;
  for (int c = 0; c <= FLOATS; c++, line = end + 1) {
    if (c == FLOATS) {
      wrong +=
          ((const int64_t *)columns[c].data)[columns[c].offset + row] != strtoll(line, &end, 10);
      break;
    }
    double want = strtod(line, &end);
    wrong +=
        memcmp((const double *)columns[c].data + columns[c].offset + row, &want, sizeof want) != 0;
  }
  return wrong;
}

static long verify_batch(FILE *f, const manta_batch *b)
{
  manta_column columns[FLOATS + 1];
  manta_error err = MANTA_ERROR_INIT;
  char line[LINE];
  long wrong = 0;
  for (int c = 0; c <= FLOATS; c++)
    bench_check(manta_batch_column(b, c, &columns[c], &err), "column", &err);
  for (int64_t row = 0; row < manta_batch_rows(b); row++) {
    if (!fgets(line, sizeof line, f))
      bench_die("a batch has more rows than the file");
    wrong += wrong_in(line, columns, row);
  }
  return wrong;
}

static void verify(int argc, char **argv)
{
  const char *dir = bench_arg_text(argc, argv, "dir", ".");
  manta_error err = MANTA_ERROR_INIT;
  manta_dataset *d;
  char line[LINE];
  long wrong = 0;
  bench_check(manta_dataset_open(&d, &dir, 1, NULL, &err), "open", &err);
  for (int64_t i = 0; i < manta_dataset_blocks(d); i++) { // files are smaller than a block
    FILE *f = fopen(manta_dataset_block_file(d, i), "r");
    manta_reader *r;
    manta_batch *b;
    if (!f || !fgets(line, sizeof line, f))
      bench_die("a file cannot be read");
    bench_check(manta_reader_open(&r, d, i, 1, &err), "open a block", &err);
    while (manta_reader_next(r, &b, &err) == 1) {
      wrong += verify_batch(f, b);
      manta_batch_destroy(b);
    }
    if (fgets(line, sizeof line, f))
      bench_die("a file has more rows than its batches");
    manta_reader_close(r);
    fclose(f);
  }
  bench_sample("wrong", (double)wrong);
  manta_dataset_close(d);
}

// --- get ----------------------------------------------------------------------------------------

// Records of bytes: nothing is parsed.
static void get(int argc, char **argv)
{
  const char *uri = bench_arg_text(argc, argv, "dir", "");
  double mb = (double)bench_arg(argc, argv, "mb", 1024);
  manta_value types = MANTA_MAP(MANTA_KV_STR("bytes", "u8[62500]"));
  manta_data_config cfg = MANTA_DATA_CONFIG_INIT;
  cfg.format = "fixed";
  cfg.types = &types;
  cfg.block_bytes = (size_t)1 << 28;
  for (long i = bench_arg(argc, argv, "reps", 5); i > 0; i--) {
    int64_t from = bench_now();
    int64_t rows = read_once(uri, 1, &cfg);
    if ((double)rows * 62500 != mb * 1e6)
      bench_die("%s: has %lld records only", uri, (long long)rows);
    bench_sample("get_mb_s", mb / ((double)(bench_now() - from) / 1e9));
  }
}

int main(int argc, char **argv)
{
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "make"))
    make(argc, argv);
  else if (!strcmp(what, "read"))
    measure(argc, argv);
  else if (!strcmp(what, "verify"))
    verify(argc, argv);
  else if (!strcmp(what, "get"))
    get(argc, argv);
  else
    bench_die("data make, read, verify or get");
  return 0;
}
