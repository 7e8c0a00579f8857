/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/checkpoint.c - what a checkpoint costs the step, and what its writing costs the loop.
 *
 *   checkpoint stall --dir D [--mb 100] [--saves 20] [--step-ms 300]   save against memcpy, in
 * turns checkpoint write --dir D [--mb 256]                                one save; prints its run
 *   checkpoint slow  --dir D [--mb 256] [--saves 20]                   % of steps/s lost while
 * writing
 */
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define TENSORS       16
#define STEP_FLOATS   (1 << 16) /* of the weights, moved by one step */
#define QUIET_NS      300000000
#define WRITE_LIMIT_S 120

struct model {
  float *weights; /* all of the state, in TENSORS parts */
  size_t floats;
  char names[TENSORS][16];
  manta_tensor tensors[TENSORS];
};

static void model_make(struct model *m, size_t bytes)
{
  size_t part = bytes / TENSORS / sizeof(float);
  m->floats = part * TENSORS;
  m->weights = bench_resident(m->floats * sizeof(float));
  for (int i = 0; i < TENSORS; i++) {
    snprintf(m->names[i], sizeof m->names[i], "layer%d", i);
    m->tensors[i] = MANTA_VECTOR(m->names[i], MANTA_F32, m->weights + part * (size_t)i, part);
  }
}

// A training-like step: arithmetic in the caches, then a walk over a part of the weights.
static void step(struct model *m, int64_t n)
{
  float *w = m->weights + (size_t)n * STEP_FLOATS % (m->floats - STEP_FLOATS);
  bench_spin(200);
  for (size_t i = 0; i < STEP_FLOATS; i++)
    w[i] += 0.5f;
}

// The same amount of work each time, where step() takes the same time.
static void fixed_step(struct model *m, int64_t n)
{
  float *w = m->weights + (size_t)n * STEP_FLOATS % (m->floats - STEP_FLOATS);
  bench_multiply(10);
  for (size_t i = 0; i < STEP_FLOATS; i++)
    w[i] += 0.5f;
}

static void train_for(struct model *m, int64_t ns)
{
  static int64_t n;
  for (int64_t until = bench_now() + ns; bench_now() < until;)
    step(m, n++);
}

static manta_status save(manta_session *s, struct model *m, manta_error *err)
{
  manta_state state = {.tensors = m->tensors, .count = TENSORS};
  return manta_session_save(s, &state, err);
}

static manta_status put(manta_value *map, const char *key, int64_t from, int64_t to)
{
  manta_value *list = (manta_value *)manta_value_get(map, key);
  manta_value ms = manta_value_real((double)(to - from) / 1e6);
  if (list)
    return manta_value_append(list, &ms);
  manta_value fresh = {0};
  MANTA_TRY(manta_value_set_list(&fresh));
  MANTA_TRY(manta_value_append(&fresh, &ms));
  return manta_value_put(map, key, &fresh);
}

// --- the stall ----------------------------------------------------------------------------------

struct pair {
  manta_session *s;
  struct model m;
  void *copy;
  int64_t step_ns;
};

static manta_status timed_save(struct pair *p, const char *key, manta_value *out, manta_error *err)
{
  train_for(&p->m, p->step_ns);
  int64_t t0 = bench_now();
  MANTA_TRY(save(p->s, &p->m, err));
  return put(out, key, t0, bench_now());
}

static manta_status timed_copy(struct pair *p, manta_value *out)
{
  train_for(&p->m, p->step_ns);
  int64_t t0 = bench_now();
  memcpy(p->copy, p->m.weights, p->m.floats * sizeof(float));
  __asm__ volatile("" ::"r"(p->copy) : "memory");
  return put(out, "memcpy_ms", t0, bench_now());
}

static manta_status stall(manta_session *s, manta_value *result, manta_error *err)
{
  struct pair p = {.s = s, .step_ns = manta_session_config_int(s, "step_ms", 300) * 1000000};
  model_make(&p.m, (size_t)manta_session_config_int(s, "mb", 100) * 1000000);
  p.copy = bench_resident(p.m.floats * sizeof(float));
  MANTA_TRY(manta_value_set_map(result));
  MANTA_TRY(timed_save(&p, "first_ms", result, err));
  for (int64_t i = 0; i < manta_session_config_int(s, "saves", 20); i++) {
    if (i % 2)
      MANTA_TRY(timed_copy(&p, result));
    MANTA_TRY(timed_save(&p, "save_ms", result, err));
    if (i % 2 == 0)
      MANTA_TRY(timed_copy(&p, result));
  }
  return MANTA_OK;
}
MANTA_TRAIN("bench-stall", stall)

// --- the write ----------------------------------------------------------------------------------

static manta_status save_once(manta_session *s, manta_value *result, manta_error *err)
{
  struct model m;
  model_make(&m, (size_t)manta_session_config_int(s, "mb", 256) << 20);
  return save(s, &m, err);
}
MANTA_TRAIN("bench-save-once", save_once)

// The path of the newest manifest below `dir`; false if there is none. Numbers only rise.
static bool newest_manifest(const char *dir, char *path, size_t size)
{
  char pattern[4200];
  glob_t g;
  snprintf(pattern, sizeof pattern, "%s/*/checkpoints/[0-9]*/manifest.json", dir);
  bool found = glob(pattern, 0, NULL, &g) == 0;
  if (found)
    snprintf(path, size, "%s", g.gl_pathv[g.gl_pathc - 1]);
  globfree(&g);
  return found;
}

// Where the next one will be. To look for it costs no more than a name's lookup, whereas reading
// the directory would wait for the journal that the write is busy with.
static void next_manifest(const char *dir, char *path, size_t size)
{
  char newest[4200];
  if (!newest_manifest(dir, newest, sizeof newest))
    bench_die("there is no checkpoint in %s", dir);
  char *number = strstr(newest, "/checkpoints/") + strlen("/checkpoints/");
  long n = strtol(number, NULL, 10);
  snprintf(path, size, "%.*s%06ld/manifest.json", (int)(number - newest), newest, n + 1);
}

struct pace {
  double per_s, per_cpu_s; /* steps per second of the clock, and of the thread's own time */
};

static int64_t cpu_now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// The pace until this file is there, or for QUIET_NS if it is NULL.
static struct pace pace(struct model *m, const char *until)
{
  int64_t t0 = bench_now(), c0 = cpu_now(), n = 0;
  for (;; n++) {
    int64_t took = bench_now() - t0;
    if (until ? access(until, F_OK) == 0 : took > QUIET_NS)
      break;
    if (took > WRITE_LIMIT_S * 1000000000ll)
      bench_die("the checkpoint is not on disk after %d s", WRITE_LIMIT_S);
    fixed_step(m, n);
  }
  return (struct pace){(double)n * 1e9 / (double)(bench_now() - t0),
                       (double)n * 1e9 / (double)(cpu_now() - c0)};
}

// Slots are warmed behind the first save; it is not measured.
static manta_status first_write(manta_session *s, struct model *m, manta_error *err)
{
  char path[4200];
  MANTA_TRY(save(s, m, err));
  for (int64_t by = bench_now() + WRITE_LIMIT_S * 1000000000ll; bench_now() < by;) {
    if (newest_manifest(manta_session_config_string(s, "dir", ""), path, sizeof path)) {
      bench_nap(QUIET_NS);
      return MANTA_OK;
    }
    bench_nap(5000000);
  }
  return manta_error_set(err, MANTA_EUSER, "the checkpoint is not on disk after %d s",
                         WRITE_LIMIT_S);
}

// Quiet, writing, quiet: what else happens on the machine tends to cancel.
static manta_status one_write(manta_session *s, struct model *m, double loss[3], manta_error *err)
{
  char next[4300];
  next_manifest(manta_session_config_string(s, "dir", ""), next, sizeof next);
  struct pace first = pace(m, NULL);
  MANTA_TRY(save(s, m, err));
  struct pace busy = pace(m, next);
  bench_nap(50000000); // old checkpoints are removed
  struct pace last = pace(m, NULL);
  loss[0] = 100 * (1 - 2 * busy.per_s / (first.per_s + last.per_s));
  loss[1] = 100 * (1 - 2 * busy.per_cpu_s / (first.per_cpu_s + last.per_cpu_s));
  loss[2] = 100 * (first.per_s / last.per_s - 1);
  return MANTA_OK;
}

static manta_status slow(manta_session *s, manta_value *result, manta_error *err)
{
  struct model m;
  double loss[3];
  model_make(&m, (size_t)manta_session_config_int(s, "mb", 256) << 20);
  MANTA_TRY(first_write(s, &m, err));
  MANTA_TRY(manta_value_set_list(result));
  for (int64_t i = 0; i < manta_session_config_int(s, "saves", 20); i++) {
    MANTA_TRY(one_write(s, &m, loss, err));
    for (int k = 0; k < 3; k++) {
      manta_value v = manta_value_real(loss[k]);
      MANTA_TRY(manta_value_append(result, &v));
    }
  }
  return MANTA_OK;
}
MANTA_TRAIN("bench-slow", slow)

// --- the driver ---------------------------------------------------------------------------------

static void print_list(const manta_value *map, const char *key)
{
  const manta_value *list = manta_value_get(map, key);
  for (size_t i = 0; list && i < list->count; i++)
    bench_sample(key, manta_value_as_real(manta_value_at(list, i), 0));
}

static void print_losses(const manta_value *list)
{
  static const char *const name[] = {"loss_percent", "cpu_loss_percent", "noise_percent"};
  for (size_t i = 0; list && i < list->count; i++)
    bench_sample(name[i % 3], manta_value_as_real(manta_value_at(list, i), 0));
}

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  const char *what = argc > 1 ? argv[1] : "";
  bool is_stall = !strcmp(what, "stall"), is_write = !strcmp(what, "write");
  if (!is_stall && !is_write && strcmp(what, "slow") != 0)
    bench_die("usage: checkpoint stall|write|slow --dir D");
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  manta_trainer *t = bench_trainer(argc, argv, 1, -2);
  manta_value config =
      MANTA_MAP(MANTA_KV_INT("mb", bench_arg(argc, argv, "mb", is_stall ? 100 : 256)),
                MANTA_KV_INT("saves", bench_arg(argc, argv, "saves", 20)),
                MANTA_KV_INT("step_ms", bench_arg(argc, argv, "step-ms", 300)),
                MANTA_KV_STR("dir", bench_arg_text(argc, argv, "dir", "")));
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  rc.config = &config;
  rc.keep_last = is_write ? -1 : 0;
  manta_train_fn fn = is_stall ? stall : is_write ? save_once : slow;
  bench_check(manta_trainer_run(t, fn, &rc, &results, &err), "run", &err);
  const manta_value *mine = manta_value_at(&results, 0);
  if (is_write)
    printf("%s\n", manta_trainer_run_dir(t));
  else if (is_stall)
    for (int i = 0; i < 3; i++)
      print_list(mine, (const char *[]){"first_ms", "save_ms", "memcpy_ms"}[i]);
  else
    print_losses(mine);
  manta_value_fini(&results);
  manta_trainer_destroy(t);
  return 0;
}
