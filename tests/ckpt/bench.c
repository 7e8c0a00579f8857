/* SPDX-License-Identifier: Apache-2.0
 *
 * What a save costs the step, and how fast a snapshot reaches the disk:
 *   bench [MB of state] [tensors] [directory]
 * Each is measured beside its measure, turn by turn: memcpy between warm private buffers, and what
 * `dd bs=1M conv=fsync` does. Exit status 1 if a save costs more than 1.2 memcpy or the store
 * writes at less than 70 % of dd.
 */
#include "ckpt/store.h"
#include "sample.h"

#define TURNS 15

static int rising(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *ms)
{
  qsort(ms, TURNS, sizeof *ms, rising);
  return ms[TURNS / 2];
}

static double ms_since(int64_t begin)
{
  return (double)(manta__now() - begin) / 1e6;
}

static void touch(char *p, size_t n)
{
  for (size_t i = 0; i < n; i += 64)
    p[i]++;
}

static void die(const char *what)
{
  fprintf(stderr, "%s\n", what);
  exit(2);
}

static void save_once(struct manta__slots *slots, const manta_state *state, uint64_t seq, int *slot)
{
  manta_error err = MANTA_ERROR_INIT;
  struct manta__snapshot snap = {.id = {1, 0, 0, seq}, .iteration = (int64_t)seq, .world = 1};
  if (manta__slots_save(slots, state, &snap, manta__deadline(60), NULL, NULL, slot, &err) < 0)
    die(err.message);
}

static double bench_save(struct manta__slots *slots, const manta_state *state, char *src, char *dst,
                         size_t bytes, int *slot)
{
  double save[TURNS], copy[TURNS];
  for (int i = -4; i < TURNS; i++) {
    touch(src, bytes);
    int64_t begin = manta__now();
    save_once(slots, state, (uint64_t)(i + 5), slot);
    double t = ms_since(begin);
    if (i < 0)
      printf("save %d: %.1f ms\n", i + 5, t);
    else
      save[i] = t;
    sample_free_others(slots, *slot);
    touch(src, bytes);
    begin = manta__now();
    memcpy(dst, src, bytes);
    if (i >= 0)
      copy[i] = ms_since(begin);
  }
  double s = median(save), c = median(copy);
  printf("warm save %.2f ms, memcpy %.2f ms: %.2f\n", s, c, s / c);
  return s / c;
}

static double dd(int dir, const char *src, size_t bytes)
{
  int64_t begin = manta__now();
  int fd = openat(dir, "dd", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (size_t at = 0; at < bytes; at += 1 << 20)
    if (write(fd, src + at, bytes - at < 1 << 20 ? bytes - at : 1 << 20) < 0)
      die("write");
  fsync(fd);
  double t = ms_since(begin);
  close(fd);
  unlinkat(dir, "dd", 0);
  return t;
}

static double bench_store(int run, int slot_fd, const char *src, size_t bytes)
{
  manta_error err = MANTA_ERROR_INIT;
  manta__store *s = NULL;
  double store[TURNS], plain[TURNS];
  if (manta__store_open(&s, run, &(struct manta__retention){1, 0, false}, &err) < 0)
    die(err.message);
  for (int i = 0; i < TURNS; i++) {
    struct manta__manifest m;
    int64_t begin = manta__now();
    if (manta__store_write(s, slot_fd, &m, &err) < 0)
      die(err.message);
    store[i] = ms_since(begin);
    if (manta__store_commit(s, &m, &err) < 0)
      die(err.message);
    plain[i] = dd(run, src, bytes);
  }
  manta__store_close(s);
  double a = median(store), b = median(plain);
  printf("store %.1f ms (%.0f MB/s), dd conv=fsync %.1f ms (%.0f MB/s): %.2f\n", a,
         (double)bytes / a / 1e3, b, (double)bytes / b / 1e3, b / a);
  return b / a;
}

int main(int argc, char **argv)
{
  size_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 100) << 20;
  size_t count = argc > 2 ? strtoul(argv[2], NULL, 10) : 100;
  char path[64] = "", *src = malloc(bytes), *dst = malloc(bytes);
  char(*names)[32] = calloc(count, sizeof *names);
  manta_tensor *t = calloc(count, sizeof *t);
  if (!src || !dst || !names || !t || !count || !bytes)
    die("no memory");
  memset(src, 1, bytes);
  memset(dst, 2, bytes);
  for (size_t i = 0; i < count; i++) {
    snprintf(names[i], sizeof *names, "layer.%zu.w", i);
    t[i] = MANTA_VECTOR(names[i], MANTA_F32, src + i * (bytes / count / 4 * 4), bytes / count / 4);
  }
  manta_state state = {t, count, NULL};
  struct manta__slots slots;
  int slot = 0;
  manta__slots_init(&slots);
  double ratio = bench_save(&slots, &state, src, dst, bytes, &slot);
  int run = argc > 3 ? open(argv[3], O_RDONLY | O_DIRECTORY) : temp_dir(path);
  double speed = bench_store(run, slots.slot[slot].fd, src, bytes);
  if (path[0])
    temp_dir_drop(path);
  manta__slots_fini(&slots);
  free(src);
  free(dst);
  free(names);
  free(t);
  return ratio > 1.2 || speed < 0.7;
}
