/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/comm.c - what is measured of collectives besides their speed (that is `manta bench comm`).
 *
 *   comm bounce                      a cache line between two cores, there and back, ns
 *   comm limit --dir D [--mb 100] [--calls 20]
 *       all-reduce of shared buffers by 2 ranks against what memory allows: each rank adds and
 *       copies one half, in the very buffers, at the same time as the other
 *   comm wait --dir D [--workers 2] [--ms 1000] [--calls 3]
 *       CPU time of ranks that wait in a barrier while rank 0 sleeps
 *   comm death --dir D [--workers 2] [--mb 1024] [--kills 20] [--private 1]
 *       SIGKILL of a rank inside of an all-reduce -> it has returned on all others
 *   comm storm --dir D [--workers 3] [--kills 1000]
 *       all-reduces of random sizes, each checked, while ranks are killed at random
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench.h"

#define MAX_KILLS 1000
#define MAX_RANKS 64
#define LIMIT_S   300

// --- bounce -------------------------------------------------------------------------------------

#define BOUNCES 2000
#define BATCHES 15

static _Alignas(128) _Atomic uint32_t ball;

static void stay_on(int which)
{
  cpu_set_t set, one;
  sched_getaffinity(0, sizeof set, &set);
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &set) && seen++ == which)
      CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

static void *play_back(void *ctx)
{
  stay_on(1);
  for (uint32_t i = 0; i < BOUNCES * BATCHES; i++) {
    while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * i + 1)
      ;
    atomic_store_explicit(&ball, 2 * i + 2, memory_order_release);
  }
  return NULL;
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

// The median of some batches: a batch during which a core was taken away does not count.
static void measure_bounce(void)
{
  pthread_t other;
  double ns[BATCHES];
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
    bench_die("two cores are needed");
  if (pthread_create(&other, NULL, play_back, NULL) != 0)
    bench_die("no thread");
  stay_on(0);
  for (uint32_t b = 0, i = 0; b < BATCHES; b++) {
    int64_t from = bench_now();
    for (uint32_t end = i + BOUNCES; i < end; i++) {
      atomic_store_explicit(&ball, 2 * i + 1, memory_order_release);
      while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * i + 2)
        ;
    }
    ns[b] = (double)(bench_now() - from) / BOUNCES;
  }
  pthread_join(other, NULL);
  qsort(ns, BATCHES, sizeof *ns, by_value);
  bench_sample("bounce_ns", ns[BATCHES / 2]);
}

// --- what memory allows -------------------------------------------------------------------------

// Where a pointer lies in the object that is mapped there.
static uint64_t place_of(const void *p)
{
  char line[512];
  unsigned long from, to, offset;
  FILE *f = fopen("/proc/self/maps", "re");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "%lx-%lx %*s %lx", &from, &to, &offset) == 3 && (uintptr_t)p >= from &&
        (uintptr_t)p < to) {
      fclose(f);
      return (uintptr_t)p - from + offset;
    }
  bench_die("a shared buffer is not mapped");
}

struct limit {
  manta_comm *c;
  float *own, *other; /* the whole buffers of this rank and its peer */
  size_t floats;
  float *own_half, *other_half; /* where this rank works: the first or the second half of both */
};

static manta_status share_buffers(struct limit *l, manta_session *s, manta_error *err)
{
  uint64_t place[2], mine;
  int rank = manta_session_rank(s);
  void *p;
  l->c = manta_session_comm(s);
  l->floats = (size_t)manta_session_config_int(s, "mb", 100) * BENCH_MB / sizeof(float);
  MANTA_TRY(manta_shm_alloc(l->c, l->floats * sizeof(float), &p, err));
  mine = place_of(p);
  MANTA_TRY(manta_comm_allgather(l->c, &mine, place, 1, MANTA_U64, err));
  l->own = p;
  l->other = (float *)((char *)p + (int64_t)(place[!rank] - mine));
  l->own_half = l->own + (rank ? l->floats / 2 : 0);
  l->other_half = l->other + (rank ? l->floats / 2 : 0);
  return MANTA_OK;
}

static manta_status rewrite(struct limit *l, manta_error *err)
{
  for (size_t i = 0; i < l->floats; i++)
    l->own[i] = (float)(i & 7);
  return manta_comm_barrier(l->c, err);
}

static manta_status slowest(struct limit *l, int64_t from, double *us, manta_error *err)
{
  *us = (double)(bench_now() - from) / 1e3;
  return manta_comm_allreduce(l->c, us, us, 1, MANTA_F64, MANTA_MAX, err);
}

// µs of add, copy, and the all-reduce.
static manta_status limit_once(struct limit *l, double us[3], manta_error *err)
{
  MANTA_TRY(rewrite(l, err));
  int64_t from = bench_now();
  for (size_t i = 0; i < l->floats / 2; i++)
    l->own_half[i] += l->other_half[i];
  MANTA_TRY(slowest(l, from, &us[0], err));
  from = bench_now();
  memcpy(l->other_half, l->own_half, l->floats / 2 * sizeof(float));
  MANTA_TRY(slowest(l, from, &us[1], err));
  MANTA_TRY(rewrite(l, err));
  from = bench_now();
  MANTA_TRY(manta_comm_allreduce(l->c, l->own, l->own, l->floats, MANTA_F32, MANTA_SUM, err));
  return slowest(l, from, &us[2], err);
}

static manta_status limit(manta_session *s, manta_value *result, manta_error *err)
{
  struct limit l;
  double us[3];
  MANTA_TRY(share_buffers(&l, s, err));
  MANTA_TRY(limit_once(&l, us, err)); // touches the pages
  MANTA_TRY(manta_value_set_list(result));
  for (int64_t i = manta_session_config_int(s, "calls", 20); i > 0; i--) {
    MANTA_TRY(limit_once(&l, us, err));
    for (int k = 0; k < 3; k++) {
      manta_value v = manta_value_real(us[k]);
      MANTA_TRY(manta_value_append(result, &v));
    }
  }
  return MANTA_OK;
}
MANTA_TRAIN("bench-comm-limit", limit)

static void print_limit(const manta_value *results)
{
  static const char *const names[] = {"add_us", "copy_us", "allreduce_us"};
  const manta_value *us = manta_value_at(results, 0);
  for (uint32_t i = 0; us && i < us->count; i++)
    bench_sample(names[i % 3], manta_value_as_real(manta_value_at(us, i), 0));
}

// --- waiting ------------------------------------------------------------------------------------

static double cpu_ms(void)
{
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
         (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static manta_status wait_for_sleeper(manta_session *s, manta_value *result, manta_error *err)
{
  manta_comm *c = manta_session_comm(s);
  MANTA_TRY(manta_value_set_list(result));
  for (int64_t i = manta_session_config_int(s, "calls", 3); i > 0; i--) {
    MANTA_TRY(manta_comm_barrier(c, err));
    double from = cpu_ms();
    if (manta_session_rank(s) == 0)
      bench_nap(manta_session_config_int(s, "ms", 1000) * 1000000);
    MANTA_TRY(manta_comm_barrier(c, err));
    manta_value v = manta_value_real(cpu_ms() - from);
    MANTA_TRY(manta_value_append(result, &v));
  }
  return MANTA_OK;
}
MANTA_TRAIN("bench-comm-wait", wait_for_sleeper)

static void print_waits(const manta_value *results)
{
  for (uint32_t r = 1; r < results->count; r++)
    for (uint32_t i = 0; i < manta_value_at(results, r)->count; i++)
      bench_sample("wait_cpu_ms",
                   manta_value_as_real(manta_value_at(manta_value_at(results, r), i), 0));
}

// --- deaths -------------------------------------------------------------------------------------

struct attempt {
  _Atomic int inside; /* ranks that have begun to call */
  _Atomic int pid[MAX_RANKS];
  _Atomic int64_t killed_ns;
  _Atomic int victim;
  _Atomic int64_t back_ns[MAX_RANKS]; /* a call has failed */
};

struct board {
  _Atomic int64_t checked,
      wrong; /* all-reduces that succeeded, and those whose sum was not right */
  struct attempt attempt[MAX_KILLS + 1];
};

struct killer {
  struct board *b;
  int world, kills;
  int64_t within_ns; /* after all ranks are inside */
};

static void await_inside(const struct killer *k, struct attempt *a, int number)
{
  for (int64_t by = bench_now() + LIMIT_S * 1000000000ll; atomic_load(&a->inside) < k->world;) {
    if (bench_now() > by)
      bench_die("attempt %d: %d of %d ranks are there after %d s: something hangs", number,
                atomic_load(&a->inside), k->world, LIMIT_S);
    bench_nap(200000);
  }
}

// In the driver, beside the thread that runs: one rank of each attempt.
static void *kill_them(void *ctx)
{
  struct killer *k = ctx;
  for (int i = 0; i < k->kills; i++) {
    struct attempt *a = &k->b->attempt[i];
    await_inside(k, a, i);
    bench_nap((int64_t)(bench_mix((uint32_t)bench_now()) % (uint32_t)k->within_ns));
    int victim = (int)(bench_mix((uint32_t)i + 77) % (uint32_t)k->world);
    atomic_store(&a->victim, victim);
    atomic_store(&a->killed_ns, bench_now());
    kill(atomic_load(&a->pid[victim]), SIGKILL);
  }
  return NULL;
}

static struct attempt *enter(manta_session *s, struct board *b)
{
  struct attempt *a = &b->attempt[manta_session_attempt(s)];
  atomic_store(&a->pid[manta_session_rank(s)], (int)getpid());
  atomic_fetch_add(&a->inside, 1);
  return a;
}

// Private memory stays with a process that survives; shared memory is that of an attempt.
static manta_status get_buffer(manta_session *s, size_t bytes, void **out, manta_error *err)
{
  static void *kept;
  if (manta_session_config_bool(s, "private", false)) {
    kept = kept ? kept : bench_resident(bytes);
    *out = kept;
    return MANTA_OK;
  }
  MANTA_TRY(manta_shm_alloc(manta_session_comm(s), bytes, out, err));
  memset(*out, 1, bytes);
  return MANTA_OK;
}

static manta_status death(manta_session *s, manta_value *result, manta_error *err)
{
  struct board *b = bench_board(s, sizeof *b);
  manta_comm *c = manta_session_comm(s);
  size_t bytes = (size_t)manta_session_config_int(s, "mb", 1024) * BENCH_MB;
  void *buf;
  if (manta_session_attempt(s) >= manta_session_config_int(s, "kills", 0))
    return MANTA_OK;
  MANTA_TRY(get_buffer(s, bytes, &buf, err));
  // Ranks on several hosts connect to each other in their first calls.
  MANTA_TRY(manta_comm_allreduce(c, buf, buf, bytes / 4, MANTA_F32, MANTA_SUM, err));
  struct attempt *a = enter(s, b);
  manta_status st;
  while ((st = manta_comm_allreduce(c, buf, buf, bytes / 4, MANTA_F32, MANTA_SUM, err)) == MANTA_OK)
    ;
  atomic_store(&a->back_ns[manta_session_rank(s)], bench_now());
  return st;
}
MANTA_TRAIN("bench-comm-death", death)

static void print_deaths(const struct board *b, int kills, int world)
{
  for (int k = 0; k < kills; k++) {
    const struct attempt *a = &b->attempt[k];
    int64_t last = 0;
    for (int r = 0; r < world; r++) {
      int64_t back = atomic_load(&a->back_ns[r]);
      if (r != atomic_load(&a->victim) && !back)
        bench_die("rank %d did not come back from death %d", r, k);
      last = back > last && r != atomic_load(&a->victim) ? back : last;
    }
    bench_sample("death_ms", (double)(last - atomic_load(&a->killed_ns)) / 1e6);
  }
}

// --- a storm ------------------------------------------------------------------------------------

#define STORM_FLOATS (256u << 10)

// Whole numbers, so that sums are exact.
static float number_at(int rank, uint32_t step, size_t i)
{
  return (float)(bench_mix((uint32_t)i + step * 7919u + (uint32_t)rank * 104729u) & 1023);
}

static bool right(const float *sum, size_t n, uint32_t step, int world)
{
  for (size_t i = 0; i < n; i++) {
    float want = 0;
    for (int r = 0; r < world; r++)
      want += number_at(r, step, i);
    if (sum[i] != want)
      return false;
  }
  return true;
}

// Sizes between one element and all of them, as many small as large.
static size_t storm_size(uint32_t step)
{
  return 1 + bench_mix(step) % (1u << bench_mix(step + 1) % 19) % STORM_FLOATS;
}

static manta_status storm(manta_session *s, manta_value *result, manta_error *err)
{
  struct board *b = bench_board(s, sizeof *b);
  manta_comm *c = manta_session_comm(s);
  int rank = manta_session_rank(s), world = manta_session_world_size(s);
  static float own[STORM_FLOATS];
  void *shared;
  if (manta_session_attempt(s) >= manta_session_config_int(s, "kills", 0))
    return MANTA_OK;
  MANTA_TRY(manta_shm_alloc(c, sizeof own, &shared, err));
  struct attempt *a = enter(s, b);
  for (uint32_t step = (uint32_t)manta_session_attempt(s) << 16;; step++) {
    float *buf = bench_mix(step + 2) & 1 ? shared : own;
    size_t n = storm_size(step);
    for (size_t i = 0; i < n; i++)
      buf[i] = number_at(rank, step, i);
    manta_status st = manta_comm_allreduce(c, buf, buf, n, MANTA_F32, MANTA_SUM, err);
    if (st < 0) {
      atomic_store(&a->back_ns[rank], bench_now());
      return st;
    }
    atomic_fetch_add(&b->checked, 1);
    atomic_fetch_add(&b->wrong, !right(buf, n, step, world));
  }
}
MANTA_TRAIN("bench-comm-storm", storm)

static void print_storm(const struct board *b, int kills, int world)
{
  print_deaths(b, kills, world);
  bench_sample("kills", kills);
  bench_sample("checked", (double)atomic_load(&b->checked));
  bench_sample("wrong", (double)atomic_load(&b->wrong));
}

// --- the driver ---------------------------------------------------------------------------------

static void measure_deaths(int argc, char **argv, bool stormy)
{
  manta_error err = MANTA_ERROR_INIT;
  int workers = (int)bench_arg(argc, argv, "workers", stormy ? 3 : 2);
  int kills = (int)bench_arg(argc, argv, "kills", stormy ? 1000 : 20);
  char path[64];
  pthread_t thread;
  if (workers < 2 || workers > MAX_RANKS || kills < 1 || kills > MAX_KILLS)
    bench_die("2 to %d workers and 1 to %d kills", MAX_RANKS, MAX_KILLS);
  struct killer k = {.world = workers, .kills = kills, .within_ns = stormy ? 10000000 : 100000000};
  k.b = bench_board_make(sizeof *k.b, path, sizeof path);
  manta_trainer *t = bench_trainer(argc, argv, workers, -1);
  manta_value config = MANTA_MAP(MANTA_KV_STR("board", path), MANTA_KV_INT("kills", kills),
                                 MANTA_KV_INT("mb", bench_arg(argc, argv, "mb", 1024)),
                                 MANTA_KV_BOOL("private", bench_arg(argc, argv, "private", 0)));
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  rc.config = &config;
  bench_check(manta_trainer_start(t, &err), "start", &err);
  if (pthread_create(&thread, NULL, kill_them, &k) != 0)
    bench_die("no thread");
  bench_check(manta_trainer_run(t, stormy ? storm : death, &rc, NULL, &err), "run", &err);
  pthread_join(thread, NULL);
  if (stormy)
    print_storm(k.b, kills, workers);
  else
    print_deaths(k.b, kills, workers);
  manta_trainer_destroy(t);
}

static void measure_quietly(int argc, char **argv, bool waiting)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  int workers = waiting ? (int)bench_arg(argc, argv, "workers", 2) : 2;
  manta_trainer *t = bench_trainer(argc, argv, workers, -2);
  manta_value arg = MANTA_MAP(MANTA_KV_INT("mb", bench_arg(argc, argv, "mb", 100)),
                              MANTA_KV_INT("ms", bench_arg(argc, argv, "ms", 1000)),
                              MANTA_KV_INT("calls", bench_arg(argc, argv, "calls", 3)));
  bench_check(manta_trainer_execute(t, waiting ? wait_for_sleeper : limit, &arg, &results, &err),
              "execute", &err);
  if (waiting)
    print_waits(&results);
  else
    print_limit(&results);
  manta_value_fini(&results);
  manta_trainer_destroy(t);
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  const char *what = argc > 1 ? argv[1] : "";
  bool waiting = !strcmp(what, "wait"), stormy = !strcmp(what, "storm");
  if (!strcmp(what, "bounce"))
    measure_bounce();
  else if (waiting || !strcmp(what, "limit"))
    measure_quietly(argc, argv, waiting);
  else if (stormy || !strcmp(what, "death"))
    measure_deaths(argc, argv, stormy);
  else
    bench_die("usage: comm bounce|limit|wait|death|storm");
  return 0;
}
