/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/ddp.c - a step of data-parallel training, with and without overlap.
 *
 *   ddp --dir D [--workers 2] [--mb 25] [--layers 32] [--compute-us 20000] [--steps 5] [--reps 20]
 *       [--bucket-kb 0] [--compress 0] [--clip 0]
 *
 * A backward pass is so much arithmetic per layer, then the layer's gradient is written. Printed
 * are ms per step, a figure per repetition, in turns: compute_ms (backward alone), comm_ms (the
 * reduction alone, of gradients just written), off_ms and on_ms (backward, ready, sync), auto_ms
 * (what a program gets that asks for nothing), and auto_overlaps.
 */
#include <stdbool.h>
#include <string.h>

#include "bench.h"

enum { OFF, ON, AUTO, COMPUTE, COMM, KINDS };
static const char *const names[KINDS] = {"off_ms", "on_ms", "auto_ms", "compute_ms", "comm_ms"};
static const manta_ddp_overlap overlaps[] = {MANTA_DDP_OVERLAP_OFF, MANTA_DDP_OVERLAP_ON,
                                             MANTA_DDP_OVERLAP_AUTO};

struct job {
  manta_comm *comm;
  manta_ddp *ddp[3];
  size_t layers, floats; // of one layer
  int multiplications;   // per layer
  int64_t steps;
};

static manta_status make(struct job *j, manta_session *s, int kind, manta_error *err)
{
  manta_ddp_config cfg = MANTA_DDP_CONFIG_INIT;
  char name[32];
  cfg.overlap = overlaps[kind];
  cfg.bucket_bytes = (size_t)manta_session_config_int(s, "bucket_kb", 0) << 10;
  cfg.compress = manta_session_config_bool(s, "compress", false);
  cfg.clip_norm = manta_session_config_real(s, "clip", 0);
  MANTA_TRY(manta_ddp_create(&j->ddp[kind], j->comm, &cfg, err));
  for (size_t i = 0; i < j->layers; i++) {
    snprintf(name, sizeof name, "layer %zu", i);
    MANTA_TRY(manta_ddp_add(j->ddp[kind], name, j->floats, MANTA_F32, NULL, NULL, err));
  }
  return manta_ddp_begin(j->ddp[kind], err);
}

// The same number on all ranks: what fills the time on the slowest.
static manta_status calibrate(struct job *j, int64_t us, manta_error *err)
{
  double best = 1e30;
  for (int i = 0; i < 20; i++) {
    int64_t t0 = bench_now();
    bench_multiply(20);
    double took = (double)(bench_now() - t0) / 20;
    best = took < best ? took : best;
  }
  MANTA_TRY(manta_comm_allreduce(j->comm, &best, &best, 1, MANTA_F64, MANTA_MAX, err));
  j->multiplications = (int)((double)us * 1000 / (double)j->layers / best);
  return MANTA_OK;
}

static void write_gradient(const struct job *j, manta_ddp *d, size_t i, int64_t step)
{
  float *g = manta_ddp_grad(d, i)->data;
  for (size_t k = 0; k < j->floats; k++)
    g[k] = (float)(k + (size_t)step);
}

static manta_status train_step(const struct job *j, int kind, int64_t step, manta_error *err)
{
  manta_ddp *d = j->ddp[kind == COMPUTE ? OFF : kind];
  for (size_t i = j->layers; i-- > 0;) {
    bench_multiply(j->multiplications);
    write_gradient(j, d, i, step);
    if (kind != COMPUTE)
      MANTA_TRY(manta_ddp_ready(d, i, err));
  }
  return kind == COMPUTE ? MANTA_OK : manta_ddp_sync(d, NULL, err);
}

static manta_status only_sync(const struct job *j, int64_t step, int64_t *ns, manta_error *err)
{
  for (size_t i = 0; i < j->layers; i++)
    write_gradient(j, j->ddp[OFF], i, step);
  MANTA_TRY(manta_comm_barrier(j->comm, err));
  int64_t t0 = bench_now();
  MANTA_TRY(manta_ddp_sync(j->ddp[OFF], NULL, err));
  *ns += bench_now() - t0;
  return MANTA_OK;
}

static manta_status measure(const struct job *j, int kind, double *ms, manta_error *err)
{
  int64_t ns = 0, t0;
  MANTA_TRY(manta_comm_barrier(j->comm, err));
  t0 = bench_now();
  for (int64_t i = 0; i < j->steps; i++)
    MANTA_TRY(kind == COMM ? only_sync(j, i, &ns, err) : train_step(j, kind, i, err));
  if (kind != COMM)
    ns = bench_now() - t0;
  *ms = (double)ns / 1e6 / (double)j->steps;
  return MANTA_OK;
}

static manta_status repeat(const struct job *j, int64_t reps, manta_value *result, manta_error *err)
{
  double ms;
  for (int kind = 0; kind < KINDS; kind++)
    MANTA_TRY(measure(j, kind, &ms, err)); // pages and caches
  for (int64_t i = 0; i < reps * KINDS; i++) {
    MANTA_TRY(measure(j, (int)(i % KINDS), &ms, err));
    manta_value v = manta_value_real(ms);
    MANTA_TRY(manta_value_append(result, &v));
  }
  manta_value v = manta_value_bool(manta_ddp_overlaps(j->ddp[AUTO]));
  return manta_value_append(result, &v);
}

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  struct job j = {.comm = manta_session_comm(s),
                  .layers = (size_t)manta_session_config_int(s, "layers", 32),
                  .steps = manta_session_config_int(s, "steps", 5)};
  j.floats = ((size_t)manta_session_config_int(s, "mb", 25) << 18) / j.layers;
  manta_status st = calibrate(&j, manta_session_config_int(s, "compute_us", 0), err);
  for (int kind = OFF; st == MANTA_OK && kind <= AUTO; kind++)
    st = make(&j, s, kind, err);
  if (st == MANTA_OK)
    st = manta_value_set_list(result);
  if (st == MANTA_OK)
    st = repeat(&j, manta_session_config_int(s, "reps", 1), result, err);
  for (int kind = OFF; kind <= AUTO; kind++)
    manta_ddp_destroy(j.ddp[kind]);
  return st;
}
MANTA_TRAIN("bench-ddp", train)

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_trainer *t = bench_trainer(argc, argv, (int)bench_arg(argc, argv, "workers", 2), -2);
  manta_value config =
      MANTA_MAP(MANTA_KV_INT("mb", bench_arg(argc, argv, "mb", 25)),
                MANTA_KV_INT("layers", bench_arg(argc, argv, "layers", 32)),
                MANTA_KV_INT("compute_us", bench_arg(argc, argv, "compute-us", 20000)),
                MANTA_KV_INT("steps", bench_arg(argc, argv, "steps", 5)),
                MANTA_KV_INT("reps", bench_arg(argc, argv, "reps", 20)),
                MANTA_KV_INT("bucket_kb", bench_arg(argc, argv, "bucket-kb", 0)),
                MANTA_KV_BOOL("compress", bench_arg(argc, argv, "compress", 0) != 0),
                MANTA_KV_REAL("clip", (double)bench_arg(argc, argv, "clip", 0)));
  rc.config = &config;
  bench_check(manta_trainer_run(t, train, &rc, &results, &err), "run", &err);
  const manta_value *list = manta_value_at(&results, 0);
  for (uint32_t i = 0; list && i + 1 < list->count; i++)
    bench_sample(names[i % KINDS], manta_value_as_real(manta_value_at(list, i), 0));
  if (list && list->count > 0)
    bench_sample("auto_overlaps",
                 manta_value_as_bool(manta_value_at(list, list->count - 1), false));
  manta_value_fini(&results);
  manta_trainer_destroy(t);
  return 0;
}
