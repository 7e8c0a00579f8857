/* SPDX-License-Identifier: Apache-2.0
 *
 * quickstart - four workers each train a small network (model.h) by SGD. With KILL=1 in the
 * environment one of them is killed on the way.
 *
 * This is an ensemble, not data-parallel training: the workers share no gradients. Each trains its
 * own replica on its own quarter of the data, and rank 0's is the checkpoint; after a kill every
 * rank goes on from it. At the end the driver averages what the replicas predict.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <manta/manta.h>

#include "model.h" /* struct replica, make_rows, model_init, train_epoch, held_out */

enum { WORKERS = 4, EPOCHS = 100 };

// --- in the workers -----------------------------------------------------------------------------

static manta_status save(manta_session *s, struct replica *r, manta_error *err)
{
  manta_tensor t[] = {MANTA_VECTOR("params", MANTA_F32, &r->m, PARAMS),
                      MANTA_VECTOR("momentum", MANTA_F32, &r->v, PARAMS)};
  manta_value value = MANTA_MAP(MANTA_KV_INT("epoch", r->epoch));
  manta_state state = {t, 2, &value};
  return manta_session_save(s, &state, err);
}

static manta_status restore(manta_session *s, struct replica *r, manta_error *err)
{
  manta_checkpoint *c;
  MANTA_TRY(manta_session_load(s, &c, err));
  if (!c)
    return MANTA_OK; // nothing was saved yet
  r->epoch = manta_value_as_int(manta_value_get(manta_checkpoint_value(c), "epoch"), 0);
  manta_status st = manta_checkpoint_copy(c, "params", &r->m, sizeof r->m, err);
  if (st == MANTA_OK)
    st = manta_checkpoint_copy(c, "momentum", &r->v, sizeof r->v, err);
  manta_checkpoint_close(c);
  return st;
}

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  static float x[SHARD * D], t[SHARD]; // (SHARD,D), (SHARD)
  int rank = manta_session_rank(s);
  int64_t kill_at = manta_session_config_int(s, "kill_at", -1);
  struct replica r = {0};
  make_rows(x, t, (int64_t)rank * SHARD, SHARD);
  model_init(&r.m, (uint64_t)rank + 1);
  MANTA_TRY(restore(s, &r, err));
  while (r.epoch < EPOCHS) {
    if (r.epoch == kill_at && rank == 1 && manta_session_attempt(s) == 0)
      raise(SIGKILL);
    double loss = train_epoch(&r, x, t, 0.02f * (1 - (float)r.epoch / EPOCHS));
    double error = held_out(&r.m, 1);
    manta_value row = MANTA_MAP(MANTA_KV_REAL("train", loss), MANTA_KV_REAL("held_out", error));
    MANTA_TRY(manta_session_report(s, &row, err));
    MANTA_TRY(save(s, &r, err));
  }
  return manta_value_set_bytes(result, &r.m, sizeof r.m);
}
MANTA_TRAIN("quickstart", train) // a name, so that another build can resume the run

// --- in the driver ------------------------------------------------------------------------------

static manta_trainer *trainer;
static double last[WORKERS][3]; // of each rank's newest row: train, held_out, rows/s

static void stop(int sig) // SIGTERM: save, end, exit with 75
{
  manta_trainer_notice(trainer);
}

// One line that is written over and over on a terminal, and now and then a new one elsewhere.
static manta_status progress(void *ctx, const manta_rows *rows, manta_error *err)
{
  double mean[3] = {0};
  bool tty = isatty(1), end = rows->iteration == EPOCHS;
  for (int i = 0; i < rows->count; i++) {
    const manta_value *row = &rows->rows[i]; // nil if the rank died before it made this one
    double time = manta_value_as_real(manta_value_get(row, "_time_this_iter_s"), NAN);
    last[i][0] = manta_value_as_real(manta_value_get(row, "train"), last[i][0]);
    last[i][1] = manta_value_as_real(manta_value_get(row, "held_out"), last[i][1]);
    last[i][2] = time > 0 ? SHARD / time : last[i][2];
    for (int k = 0; k < 3; k++)
      mean[k] += last[i][k] / rows->count;
  }
  if (rows->rewound_to >= 0)
    printf("%sall go on from epoch %lld\n", tty ? "\033[K" : "", (long long)rows->rewound_to);
  if (tty || end || rows->iteration == 1 || rows->iteration % 20 == 0)
    printf("epoch %3d/%d  train %.5f  held-out %.5f  %.0f rows/s%s", (int)rows->iteration, EPOCHS,
           mean[0], mean[1], mean[2] * rows->count, tty && !end ? "\033[K\r" : "\n");
  fflush(stdout);
  return MANTA_OK;
}

static void show_results(const manta_value *results)
{
  struct model m[WORKERS];
  int n = (int)results->count;
  printf("\n  rank     train  held-out    rows/s\n");
  for (int i = 0; i < n; i++) {
    memcpy(&m[i], manta_value_at(results, (size_t)i)->u.s, sizeof m[i]); // what train returned
    printf("  %4d   %.5f   %.5f   %7.0f\n", i, last[i][0], last[i][1], last[i][2]);
  }
  printf("   all             %.5f   mean of the predictions; the noise alone is %.5f\n\n",
         held_out(m, n), NOISE * NOISE);
  printf("%s\n  has run.log, logs/ and checkpoints/ (the two newest and the best); to see them:\n"
         "  manta status\n  manta ckpt show\n",
         manta_trainer_run_dir(trainer));
}

static manta_status run(manta_value *results, manta_error *err)
{
  const char *kill = getenv("KILL");
  manta_value config = MANTA_MAP(MANTA_KV_INT("kill_at", kill && *kill == '1' ? EPOCHS / 3 : -1));
  manta_callbacks show = {.result = progress};
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  cfg.workers = WORKERS;
  cfg.config = &config;
  cfg.callbacks = &show;
  cfg.callback_count = 1;
  rc.keep_best = 1; // beside the two newest
  rc.score = "held_out";
  rc.score_min = true;
  MANTA_TRY(manta_trainer_create(&trainer, &cfg, err));
  signal(SIGTERM, stop);
  return manta_trainer_run(trainer, train, &rc, results, err);
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  if (manta_init(&argc, &argv) < 0)
    return 1;
  manta_status st = run(&results, &err);
  if (st == MANTA_OK)
    show_results(&results);
  else
    fprintf(stderr, "quickstart: %s\n", err.message);
  manta_trainer_destroy(trainer);
  manta_value_fini(&results);
  return st == MANTA_EPREEMPTED ? 75 : st < 0;
}
