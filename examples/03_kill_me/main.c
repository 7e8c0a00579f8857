/* SPDX-License-Identifier: Apache-2.0
 *
 * 03_kill_me - a worker dies in the middle of a run, and the run goes on.
 *
 * Four ranks count to GOAL, one step every two milliseconds; rank 0's count is the checkpoint. In
 * the first attempt rank 1 kills itself at step KILL_AT. Nothing below asks for a revival: the run
 * brings the rank back by itself, and calls the function again with the newest checkpoint.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <manta/manta.h>

enum { GOAL = 200, KILL_AT = 100, WORKERS = 4 };

static double now(void) // one clock for all processes of this host
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// --- in the workers -----------------------------------------------------------------------------

static manta_status restore(manta_session *s, int64_t *count, manta_error *err)
{
  manta_checkpoint *c;
  MANTA_TRY(manta_session_load(s, &c, err));
  if (c)
    *count = manta_value_as_int(manta_checkpoint_value(c), 0);
  manta_checkpoint_close(c);
  return MANTA_OK;
}

static manta_status save(manta_session *s, int64_t count, manta_error *err)
{
  manta_value value = manta_value_int(count);
  manta_state state = {NULL, 0, &value}; // no tensors, only a small value
  return manta_session_save(s, &state, err);
}

static manta_status count_up(manta_session *s, manta_value *result, manta_error *err)
{
  int64_t count = 0;
  MANTA_TRY(restore(s, &count, err));
  double entered = now();
  while (count < GOAL) {
    if (manta_session_rank(s) == 1 && manta_session_attempt(s) == 0 && count == KILL_AT) {
      printf("killed at %.6f\n", now()); // for the driver's output callback below
      raise(SIGKILL);
    }
    usleep(2000);
    count++;
    manta_value row = MANTA_MAP(MANTA_KV_INT("count", count), MANTA_KV_REAL("entered", entered));
    // Fails with MANTA_EPEERLOST in the ranks that survive: they leave, and are called again.
    MANTA_TRY(manta_session_report(s, &row, err));
    MANTA_TRY(save(s, count, err));
  }
  return manta_value_set_int(result, count);
}

// --- in the driver ------------------------------------------------------------------------------

struct watch {
  double killed, back; // when; 0: not yet
  int64_t iterations;  // different ones seen
  int64_t newest;      // of them
};

static void hear(void *ctx, int rank, const char *text, size_t len)
{
  struct watch *w = ctx;
  char line[64];
  snprintf(line, sizeof line, "%.*s", (int)len, text);
  if (sscanf(line, "killed at %lf", &w->killed) == 1)
    printf("rank %d killed itself at count %d\n", rank, KILL_AT);
}

static manta_status see_rows(void *ctx, const manta_rows *rows, manta_error *err)
{
  struct watch *w = ctx;
  if (rows->rewound_to >= 0) { // the first rows after a revival
    for (int rank = 0; rank < rows->count; rank++) {
      const manta_value *at = manta_value_get(&rows->rows[rank], "entered");
      w->back = fmax(w->back, manta_value_as_real(at, 0));
    }
    printf("continuing from count %lld with %d ranks\n", (long long)rows->rewound_to, rows->count);
  }
  if (rows->iteration > w->newest) { // else it is one that was seen before the rewind
    w->iterations++;
    w->newest = rows->iteration;
  }
  return MANTA_OK;
}

static int judge(const struct watch *w, const manta_value *results)
{
  int wrong = results->count != WORKERS;
  for (uint32_t rank = 0; rank < results->count; rank++)
    wrong += manta_value_as_int(manta_value_at(results, rank), -1) != GOAL;
  if (w->killed == 0 || w->back == 0) {
    fprintf(stderr, "03_kill_me: the kill did not happen\n");
    return 1;
  }
  printf("all %d ranks were back in the loop %.1f ms after the kill\n", WORKERS,
         (w->back - w->killed) * 1e3);
  printf("final count %d on every rank: %s; %lld of %d iterations seen\n", GOAL,
         wrong ? "NO" : "yes", (long long)w->iterations, GOAL);
  return wrong || w->iterations != GOAL;
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  struct watch watch = {0};
  manta_callbacks eyes = {.ctx = &watch, .result = see_rows, .output = hear};
  manta_trainer *t = NULL;
  manta_value results = {0};
  if (manta_init(&argc, &argv) < 0)
    return 1;
  cfg.workers = WORKERS;
  cfg.show_all_output = true;
  cfg.callbacks = &eyes;
  cfg.callback_count = 1;
  manta_status st = manta_trainer_create(&t, &cfg, &err);
  if (st == MANTA_OK)
    st = manta_trainer_run(t, count_up, NULL, &results, &err);
  manta_trainer_destroy(t);
  if (st < 0)
    fprintf(stderr, "03_kill_me: %s\n", err.message);
  int verdict = st < 0 ? (st == MANTA_EPREEMPTED ? 75 : 1) : judge(&watch, &results);
  manta_value_fini(&results);
  return verdict;
}
