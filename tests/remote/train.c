/* SPDX-License-Identifier: Apache-2.0
 *
 * train LOGDIR STEPS [resume URI | from URI] - a run of 2 workers that saves after each step and
 * prints, at its end, the step and a sum over the state. Each rank has a random state, which must
 * be that of its step when the run goes on. STEP_MS: how long a step takes. STOP_AT: the driver is
 * killed when this iteration has come. WORKERS: another number of them. `train complete DIR` stores
 * what is missing of a run. A failure is an error on stderr, and exit code 1.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/manta.h>

#define N 300000 /* floats: more than a small object, less than a part */

static int from_environment(const char *name)
{
  const char *text = getenv(name);
  return text ? (int)strtol(text, NULL, 10) : 0;
}

static manta_status load(manta_session *s, float *w, int64_t *step, manta_error *err)
{
  manta_checkpoint *c;
  MANTA_TRY(manta_session_load(s, &c, err));
  if (!c)
    return MANTA_OK;
  *step = manta_value_as_int(manta_value_get(manta_checkpoint_value(c), "step"), 0);
  manta_status st = manta_checkpoint_copy(c, "w", w, N * sizeof *w, err);
  manta_checkpoint_close(c);
  return st;
}

static int put_state(char text[64], int rank, int64_t step)
{
  return snprintf(text, 64, "rank %d step %lld", rank, (long long)step);
}

// A rank that was not there has what rank 0 had.
static manta_status check_random(manta_session *s, int64_t step, manta_error *err)
{
  char want[64];
  void *got;
  size_t len;
  int owner, rank = manta_session_rank(s) < 2 ? manta_session_rank(s) : 0;
  int n = put_state(want, rank, step);
  MANTA_TRY(manta_session_load_random(s, &got, &len, &owner, err));
  bool same = owner == rank && len == (size_t)n && !memcmp(got, want, len);
  manta_status st =
      same ? MANTA_OK
           : manta_error_set(err, MANTA_EUSER, "rank %d has \"%.*s\", not \"%s\"",
                             manta_session_rank(s), (int)len, got ? (const char *)got : "", want);
  manta_free(got);
  return st;
}

static manta_status save_random(manta_session *s, int64_t step, manta_error *err)
{
  char text[64];
  int n = put_state(text, manta_session_rank(s), step);
  MANTA_TRY(manta_session_save_random(s, text, (size_t)n, err));
  return manta_comm_barrier(manta_session_comm(s), err); // all have, when rank 0 saves
}

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  static float w[N];
  int64_t step = 0, last = manta_value_as_int(manta_value_get(manta_session_config(s), "steps"), 1);
  MANTA_TRY(load(s, w, &step, err));
  if (step && manta_session_attempt(s) > 0)
    MANTA_TRY(check_random(s, step, err));
  if (step && manta_session_rank(s) == 0)
    printf("from step %lld\n", (long long)step);
  while (step < last) {
    step++;
    for (int i = 0; i < N; i++)
      w[i] = w[i] * 0.5f + (float)((i * 7 + step * 13) % 101);
    usleep((useconds_t)from_environment("STEP_MS") * 1000);
    manta_tensor tensor = MANTA_VECTOR("w", MANTA_F32, w, N);
    manta_value value = MANTA_MAP(MANTA_KV_INT("step", step)), row = value;
    manta_state state = {&tensor, 1, &value};
    MANTA_TRY(manta_session_report(s, &row, err));
    MANTA_TRY(save_random(s, step, err));
    MANTA_TRY(manta_session_save(s, &state, err));
  }
  double sum = 0;
  for (int i = 0; i < N; i++)
    sum += (double)w[i] * (i % 17);
  return manta_value_set_real(result, sum);
}

MANTA_TRAIN("stored", train)

static manta_status on_rows(void *ctx, const manta_rows *rows, manta_error *err)
{
  if (rows->iteration == from_environment("STOP_AT"))
    raise(SIGKILL);
  return MANTA_OK;
}

static manta_status run(int argc, char **argv, manta_error *err)
{
  manta_trainer_config tc = MANTA_TRAINER_CONFIG_INIT;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_callbacks callbacks = {.result = on_rows};
  manta_trainer *t;
  manta_value results = {0};
  manta_value config = MANTA_MAP(MANTA_KV_INT("steps", strtol(argv[2], NULL, 10)));
  tc.workers = getenv("WORKERS") ? from_environment("WORKERS") : 2;
  tc.name = "stored";
  tc.logdir = argv[1];
  rc.config = &config;
  rc.callbacks = &callbacks;
  rc.callback_count = 1;
  if (argc > 4 && !strcmp(argv[3], "resume"))
    rc.resume = argv[4];
  if (argc > 4 && !strcmp(argv[3], "from"))
    rc.checkpoint = argv[4];
  MANTA_TRY(manta_trainer_create(&t, &tc, err));
  manta_status st = manta_trainer_run(t, train, &rc, &results, err);
  if (st == MANTA_OK)
    printf("%s %.6f\n", manta_trainer_run_dir(t),
           manta_value_as_real(manta_value_at(&results, 0), 0));
  manta_value_fini(&results);
  manta_trainer_destroy(t);
  return st;
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  if (manta_init(&argc, &argv) < 0 || argc < 3)
    return 2;
  manta_status st =
      !strcmp(argv[1], "complete") ? manta_storage_complete(argv[2], &err) : run(argc, argv, &err);
  if (st < 0)
    fprintf(stderr, "%s: %s\n", manta_status_name(st), err.message);
  return st < 0;
}
