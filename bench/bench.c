/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int64_t bench_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void bench_nap(int64_t ns)
{
  struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  nanosleep(&t, NULL);
}

void bench_sample(const char *name, double value)
{
  printf("%s %.9g\n", name, value);
}

void bench_die(const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fputc('\n', stderr);
  exit(1);
}

void bench_check(manta_status st, const char *what, const manta_error *err)
{
  if (st < 0)
    bench_die("%s: %s", what, err->message);
}

const char *bench_arg_text(int argc, char **argv, const char *name, const char *dflt)
{
  for (int i = 1; i + 1 < argc; i++)
    if (!strncmp(argv[i], "--", 2) && !strcmp(argv[i] + 2, name))
      return argv[i + 1];
  return dflt;
}

long bench_arg(int argc, char **argv, const char *name, long dflt)
{
  const char *s = bench_arg_text(argc, argv, name, NULL);
  char *end;
  long v = s ? strtol(s, &end, 10) : dflt;
  if (s && *end)
    bench_die("--%s takes a number, not %s", name, s);
  return v;
}

manta_trainer *bench_trainer(int argc, char **argv, int workers, int max_retries)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer *t;
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  cfg.workers = cfg.min_workers = workers;
  cfg.max_retries = max_retries;
  cfg.quiet = true;
  cfg.name = "bench";
  if (!(cfg.logdir = bench_arg_text(argc, argv, "dir", NULL)))
    bench_die("--dir DIR is needed: where the runs are kept");
  bench_check(manta_trainer_create(&t, &cfg, &err), "create", &err);
  return t;
}

static void *map_board(int fd, size_t bytes)
{
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED)
    bench_die("map the board: %s", strerror(errno));
  return p;
}

void *bench_board_make(size_t bytes, char *path, size_t path_size)
{
  int fd = memfd_create("bench-board", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
    bench_die("make the board: %s", strerror(errno));
  snprintf(path, path_size, "/proc/%d/fd/%d", (int)getpid(), fd);
  return map_board(fd, bytes);
}

void *bench_board(const manta_session *s, size_t bytes)
{
  static void *board;
  if (board)
    return board;
  int fd = open(manta_session_config_string(s, "board", ""), O_RDWR | O_CLOEXEC);
  if (fd < 0)
    bench_die("open the board: %s", strerror(errno));
  board = map_board(fd, bytes);
  close(fd);
  return board;
}

void *bench_resident(size_t bytes)
{
  char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    bench_die("no memory for %zu bytes", bytes);
  memset(p, 1, bytes);
  return p;
}

uint32_t bench_mix(uint32_t x)
{
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}

#define SIDE 48

// One product of two small matrices: some 20 µs of arithmetic.
static void multiply(float *y, const float *a, const float *b)
{
  for (int i = 0; i < SIDE; i++)
    for (int k = 0; k < SIDE; k++)
      for (int j = 0; j < SIDE; j++)
        y[i * SIDE + j] += a[i * SIDE + k] * b[k * SIDE + j];
}

void bench_multiply(int times)
{
  static float y[SIDE * SIDE], a[SIDE * SIDE], b[SIDE * SIDE];
  for (int i = 0; i < times; i++) {
    multiply(y, a, b);
    __asm__ volatile("" ::: "memory");
  }
}

void bench_spin(int64_t us)
{
  for (int64_t until = bench_now() + us * 1000; bench_now() < until;)
    bench_multiply(1);
}
