/* SPDX-License-Identifier: Apache-2.0
 *
 * 02_report_and_checkpoint - rows of metrics on the way, the state on disk at the end.
 *
 * Gradient descent with a noisy gradient looks for the minimum of (w - TARGET)^2. Every rank
 * reports its loss; rank 0's w is the checkpoint. The two newest checkpoints are kept, and the one
 * with the smallest loss. A second run then begins from that best one.
 */
#define _GNU_SOURCE 1 // nftw
#include <ftw.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <manta/manta.h>

enum { STEPS = 12, N = 8 };
#define TARGET 3.0f

// --- in the workers -----------------------------------------------------------------------------

// w (N) is what was saved last, or 0 in a fresh run; *step is how far that was.
static manta_status restore(manta_session *s, float *w, int64_t *step, manta_error *err)
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

static manta_status save(manta_session *s, float *w, int64_t step, manta_error *err)
{
  manta_tensor tensor = MANTA_VECTOR("w", MANTA_F32, w, N);
  manta_value value = MANTA_MAP(MANTA_KV_INT("step", step));
  manta_state state = {&tensor, 1, &value};
  return manta_session_save(s, &state, err);
}

// One step of descent with a noise that shrinks; the loss after it.
static double descend(float *w, int64_t step, int rank)
{
  double loss = 0;
  for (int i = 0; i < N; i++) {
    float noise = sinf((float)(step * 131 + rank * 17 + i * 7)) * 2;
    w[i] -= 0.2f * (2 * (w[i] - TARGET) + noise);
    loss += (w[i] - TARGET) * (w[i] - TARGET) / N;
  }
  return loss;
}

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  float w[N] = {0};
  int64_t step = 0;
  double loss = 0;
  MANTA_TRY(restore(s, w, &step, err));
  if (step > 0 && manta_session_rank(s) == 0)
    printf("continuing from step %lld\n", (long long)step);
  for (int64_t last = step + STEPS; step < last;) {
    loss = descend(w, step++, manta_session_rank(s));
    manta_value row = MANTA_MAP(MANTA_KV_INT("step", step), MANTA_KV_REAL("loss", loss));
    MANTA_TRY(manta_session_report(s, &row, err)); // first the row, then what belongs to it
    MANTA_TRY(save(s, w, step, err));
  }
  return manta_value_set_real(result, loss);
}

// --- in the driver ------------------------------------------------------------------------------

// The rows of one iteration, one per rank.
static manta_status show_rows(void *ctx, const manta_rows *rows, manta_error *err)
{
  printf("iteration %2lld  loss", (long long)rows->iteration);
  for (int rank = 0; rank < rows->count; rank++)
    printf("  %.4f", manta_value_as_real(manta_value_get(&rows->rows[rank], "loss"), NAN));
  printf("\n");
  return MANTA_OK;
}

static size_t prefix; // of the paths shown

static int show_file(const char *path, const struct stat *st, int type, struct FTW *at)
{
  if (type == FTW_F)
    printf("  %8lld  %s\n", (long long)st->st_size, path + prefix);
  return 0;
}

static manta_status show_checkpoint(const char *dir, manta_error *err)
{
  manta_checkpoint *c;
  MANTA_TRY(manta_checkpoint_open(&c, dir, true, err)); // true: compare the checksums
  const manta_tensor *w = manta_checkpoint_tensor(c, "w");
  printf("best: %s, iteration %lld, w[0] = %.3f\n", strrchr(dir, '/') + 1,
         (long long)manta_checkpoint_iteration(c), w ? ((const float *)w->data)[0] : NAN);
  manta_checkpoint_close(c);
  return MANTA_OK;
}

static manta_status run(manta_trainer *t, manta_error *err)
{
  manta_callbacks show = {.result = show_rows};
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  char best[PATH_MAX];
  rc.callbacks = &show;
  rc.callback_count = 1;
  rc.keep_last = 2;
  rc.keep_best = 1;
  rc.score = "loss";
  rc.score_min = true;
  MANTA_TRY(manta_trainer_run(t, train, &rc, NULL, err));
  printf("files in %s:\n", manta_trainer_run_dir(t));
  prefix = strlen(manta_trainer_run_dir(t)) + 1;
  nftw(manta_trainer_run_dir(t), show_file, 16, FTW_PHYS);
  MANTA_TRY(manta_trainer_best_checkpoint(t, best, sizeof best, err));
  MANTA_TRY(show_checkpoint(best, err));
  rc.checkpoint = best;
  return manta_trainer_run(t, train, &rc, NULL, err);
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_trainer *t = NULL;
  if (manta_init(&argc, &argv) < 0)
    return 1;
  cfg.workers = 2;
  manta_status st = manta_trainer_create(&t, &cfg, &err);
  if (st == MANTA_OK)
    st = run(t, &err);
  manta_trainer_destroy(t);
  if (st < 0)
    fprintf(stderr, "02_report_and_checkpoint: %s\n", err.message);
  return st == MANTA_EPREEMPTED ? 75 : st < 0;
}
