/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/cmd/counter.c - the program that the tests of the command run: it counts.
 *
 *   counter N K MICROSECONDS [NOTE]
 *
 * Counts to N on every worker, with a report and a line of output per step and a checkpoint every K
 * steps; each step takes so long. The result of a rank is its count. NOTE "fail" ends rank 0 with
 * an error half way, "deaf" ignores a notice, "twice" counts in two runs, "stay" keeps the workers
 * after the run until it is killed. Exit code 75 after a notice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/manta.h>

static const char *arg(const manta_session *s, const char *key)
{
  return manta_session_config_string(s, key, "");
}

// The count in the checkpoint, which must agree with the number of reports that it belongs to.
static manta_status restore(manta_session *s, int64_t *count, manta_error *err)
{
  manta_checkpoint *c;
  MANTA_TRY(manta_session_load(s, &c, err));
  if (!c)
    return MANTA_OK;
  manta_status st = manta_checkpoint_copy(c, "count", count, sizeof *count, err);
  if (st == MANTA_OK && *count != manta_session_iteration(s))
    st = manta_error_set(err, MANTA_ECORRUPT, "the count is %lld after %lld reports",
                         (long long)*count, (long long)manta_session_iteration(s));
  manta_checkpoint_close(c);
  return st;
}

static manta_status save(manta_session *s, int64_t count, manta_error *err)
{
  static float ballast[4096];
  manta_tensor t[] = {MANTA_VECTOR("count", MANTA_I64, &count, 1),
                      {"ballast", MANTA_F32, 2, {64, 64}, ballast}};
  manta_value v = MANTA_MAP(MANTA_KV_INT("count", count), MANTA_KV_STR("kind", "counter"));
  manta_state state = {t, 2, &v};
  return manta_session_save(s, &state, err);
}

static manta_status step(manta_session *s, int64_t *count, manta_error *err)
{
  manta_value row = MANTA_MAP(MANTA_KV_INT("count", *count + 1),
                              MANTA_KV_REAL("off", 1.0 / (double)(*count + 1)));
  usleep((useconds_t)manta_session_config_int(s, "us", 0));
  ++*count;
  printf("count %lld\n", (long long)*count);
  fflush(stdout);
  if (!strcmp(arg(s, "note"), "fail") && 2 * *count > manta_session_config_int(s, "n", 0))
    return manta_error_set(err, MANTA_EUSER, "it was told to fail");
  MANTA_TRY(manta_session_report(s, &row, err));
  if (*count % manta_session_config_int(s, "k", 1) == 0)
    MANTA_TRY(save(s, *count, err));
  return MANTA_OK;
}

static manta_status count_up(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t count = 0, n = manta_session_config_int(s, "n", 0);
  bool deaf = !strcmp(arg(s, "note"), "deaf");
  MANTA_TRY(restore(s, &count, err));
  while (count < n) {
    manta_status st = step(s, &count, err);
    if (st < 0 && !(deaf && st == MANTA_EPREEMPTED))
      return st;
  }
  return manta_value_set_int(result, count);
}
MANTA_TRAIN("count", count_up)

static int explain(const manta_error *err)
{
  fprintf(stderr, "counter: %s: %s\n", manta_status_name(err->status), err->message);
  return err->status == MANTA_EPREEMPTED ? 75 : 1;
}

static int run_once(manta_trainer *t, const manta_run_config *rc)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  char *text = NULL;
  if (manta_trainer_run(t, count_up, rc, &results, &err) < 0)
    return explain(&err);
  if (manta_value_to_json(&results, -1, &text, &err) == MANTA_OK)
    printf("counted %s\n", text);
  fflush(stdout);
  manta_free(text);
  manta_value_fini(&results);
  return 0;
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_trainer *t;
  manta_init(&argc, &argv);
  if (argc < 4) {
    fprintf(stderr, "usage: counter N K MICROSECONDS [NOTE]\n");
    return 2;
  }
  const char *note = argc > 4 ? argv[4] : "";
  manta_value config = MANTA_MAP(
      MANTA_KV_INT("n", strtoll(argv[1], NULL, 10)), MANTA_KV_INT("k", strtoll(argv[2], NULL, 10)),
      MANTA_KV_INT("us", strtoll(argv[3], NULL, 10)), MANTA_KV_STR("note", note));
  cfg.name = "counter";
  rc.config = &config;
  rc.score = "off";
  rc.score_min = true;
  rc.keep_best = 2; // of one alone, those that a better one overtakes are not written
  if (manta_trainer_create(&t, &cfg, &err) < 0)
    return explain(&err);
  int code = run_once(t, &rc);
  if (code == 0 && !strcmp(note, "twice"))
    code = run_once(t, &rc);
  if (!strcmp(note, "stay"))
    pause();
  manta_trainer_destroy(t);
  return code;
}
