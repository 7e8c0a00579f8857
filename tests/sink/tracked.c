/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/sink/tracked.c - a program whose run has a sink.
 *
 *   tracked KIND OPTIONS N MICROSECONDS [kill]
 *
 * Reports N times on 2 workers and saves every 10 reports; OPTIONS are the sink's, as JSON. With
 * "kill" rank 1 of the first attempt kills itself after report N / 2.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/manta.h>
#include <manta/sink.h>

static manta_status report(manta_session *s, int64_t i, manta_error *err)
{
  manta_value inner = MANTA_MAP(MANTA_KV_INT("deep", -i));
  manta_value row =
      MANTA_MAP(MANTA_KV_REAL("loss", 1.0 / (double)i + manta_session_rank(s)),
                MANTA_KV_REAL("odd<name>", i == 3 ? NAN : 1), MANTA_KV_INT("verlust_ä 损失", i),
                MANTA_KV_INT("精度🚀\xff", i), MANTA_KV("inner", inner), MANTA_KV_STR("text", "t"));
  return manta_session_report(s, &row, err);
}

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t n = manta_session_config_int(s, "n", 0), i = manta_session_iteration(s);
  manta_tensor t[] = {MANTA_VECTOR("i", MANTA_I64, &i, 1)};
  const manta_state state = {t, 1, NULL};
  bool kills = manta_session_config_int(s, "kill", 0) && manta_session_attempt(s) == 0;
  while (i < n) {
    usleep((useconds_t)manta_session_config_int(s, "us", 0));
    i++;
    MANTA_TRY(report(s, i, err));
    if (i % 10 == 0)
      MANTA_TRY(manta_session_save(s, &state, err));
    if (kills && 2 * i == n && manta_session_rank(s) == 1)
      raise(SIGKILL);
  }
  return MANTA_OK;
}
MANTA_TRAIN("tracked", train)

static int fail(const manta_error *err)
{
  fprintf(stderr, "tracked: %s\n", err->message);
  return 1;
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_init(&argc, &argv);
  if (argc < 5)
    return 2;
  manta_value options = {0};
  if (manta_value_from_json(&options, argv[2], strlen(argv[2]), &err) < 0)
    return fail(&err);
  const manta_value deep = MANTA_MAP(MANTA_KV_REAL("lr", 0.5));
  const manta_value config = MANTA_MAP(
      MANTA_KV_INT("n", strtol(argv[3], NULL, 10)), MANTA_KV_INT("us", strtol(argv[4], NULL, 10)),
      MANTA_KV_INT("kill", argc > 5), MANTA_KV("deep", deep), MANTA_KV_STR("text", "a b"));
  const manta_sink sink = {argv[1], &options};
  manta_trainer *t;
  manta_trainer_config tc = MANTA_TRAINER_CONFIG_INIT;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  tc.workers = 2;
  rc.config = &config;
  rc.sinks = &sink;
  rc.sink_count = 1;
  if (manta_trainer_create(&t, &tc, &err) < 0)
    return fail(&err);
  manta_status st = manta_trainer_run(t, train, &rc, NULL, &err);
  manta_trainer_destroy(t);
  manta_value_fini(&options);
  return st < 0 ? fail(&err) : 0;
}
