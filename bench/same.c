/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/same.c - the bits that data-parallel training ends with.
 *
 *   same --dir D [--workers 4] [--mb 26] [--steps 5] [--bucket-kb 1024] [--overlap 0]
 *
 * Gradients are numbers of very different sizes that depend on rank, step and weight, so that
 * another order of addition gives other bits. Printed is a digest of all weights, once per rank.
 */
#include <math.h>

#include "bench.h"

#define LAYERS 13

// Between 2^-8 and 2^8, of either sign.
static float noise(uint32_t a, uint32_t b)
{
  uint32_t bits = bench_mix(a * 0x9e3779b1u + bench_mix(b + 1));
  float part = (float)(bits >> 8) / (float)(1 << 24) + 1;
  return ldexpf(bits & 1 ? part : -part, (int)(bits >> 1 & 15) - 8);
}

static void backward(manta_ddp *d, size_t layer, size_t floats, uint32_t seed)
{
  const float *w = manta_ddp_param(d, layer)->data;
  float *g = manta_ddp_grad(d, layer)->data;
  for (size_t k = 0; k < floats; k++)
    g[k] = noise(seed, (uint32_t)(layer * floats + k)) + 0.01f * w[k];
}

static manta_status step(manta_ddp *d, size_t floats, uint32_t seed, manta_error *err)
{
  for (size_t i = LAYERS; i-- > 0;) {
    backward(d, i, floats, seed);
    MANTA_TRY(manta_ddp_ready(d, i, err));
  }
  MANTA_TRY(manta_ddp_sync(d, NULL, err));
  for (size_t i = 0; i < LAYERS; i++) {
    float *w = manta_ddp_param(d, i)->data;
    const float *g = manta_ddp_grad(d, i)->data;
    for (size_t k = 0; k < floats; k++)
      w[k] -= 0.1f * g[k];
  }
  return MANTA_OK;
}

// As many bits as the nine digits of a sample show.
static int64_t digest(manta_ddp *d, size_t floats)
{
  uint64_t h = 1;
  for (size_t i = 0; i < LAYERS; i++) {
    const uint32_t *bits = manta_ddp_param(d, i)->data;
    for (size_t k = 0; k < floats; k++)
      h = (h ^ bits[k]) * 0x9e3779b97f4a7c15u;
  }
  return (int64_t)(h >> 35);
}

static manta_status prepare(manta_ddp *d, manta_session *s, size_t floats, manta_error *err)
{
  char name[32];
  for (size_t i = 0; i < LAYERS; i++) {
    snprintf(name, sizeof name, "layer %zu", i);
    MANTA_TRY(manta_ddp_add(d, name, floats, MANTA_F32, NULL, NULL, err));
    float *w = manta_ddp_param(d, i)->data;
    for (size_t k = 0; k < floats && manta_session_rank(s) == 0; k++)
      w[k] = noise(7, (uint32_t)(i * floats + k));
  }
  return manta_ddp_begin(d, err);
}

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  manta_ddp *d;
  manta_ddp_config cfg = MANTA_DDP_CONFIG_INIT;
  size_t floats = ((size_t)manta_session_config_int(s, "mb", 26) << 18) / LAYERS;
  uint32_t rank = (uint32_t)manta_session_rank(s);
  cfg.bucket_bytes = (size_t)manta_session_config_int(s, "bucket_kb", 1024) << 10;
  cfg.overlap =
      manta_session_config_bool(s, "overlap", false) ? MANTA_DDP_OVERLAP_ON : MANTA_DDP_OVERLAP_OFF;
  MANTA_TRY(manta_ddp_create(&d, manta_session_comm(s), &cfg, err));
  manta_status st = prepare(d, s, floats, err);
  for (int64_t i = 0; st == MANTA_OK && i < manta_session_config_int(s, "steps", 5); i++)
    st = step(d, floats, (uint32_t)i * 64 + rank, err);
  if (st == MANTA_OK)
    *result = manta_value_int(digest(d, floats));
  manta_ddp_destroy(d);
  return st;
}
MANTA_TRAIN("bench-same", train)

int main(int argc, char **argv)
{
  manta_init(&argc, &argv);
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_trainer *t = bench_trainer(argc, argv, (int)bench_arg(argc, argv, "workers", 4), -2);
  manta_value config =
      MANTA_MAP(MANTA_KV_INT("mb", bench_arg(argc, argv, "mb", 26)),
                MANTA_KV_INT("steps", bench_arg(argc, argv, "steps", 5)),
                MANTA_KV_INT("bucket_kb", bench_arg(argc, argv, "bucket-kb", 1024)),
                MANTA_KV_BOOL("overlap", bench_arg(argc, argv, "overlap", 0) != 0));
  rc.config = &config;
  bench_check(manta_trainer_run(t, train, &rc, &results, &err), "run", &err);
  for (uint32_t r = 0; r < results.count; r++)
    bench_sample("digest", (double)manta_value_as_int(manta_value_at(&results, r), 0));
  manta_value_fini(&results);
  manta_trainer_destroy(t);
  return 0;
}
