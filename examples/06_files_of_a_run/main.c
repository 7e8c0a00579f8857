/* SPDX-License-Identifier: Apache-2.0
 *
 * 06_files_of_a_run - the rows of a run as JSON, as CSV, and in TensorBoard.
 *
 * Two workers report a loss that shrinks. Three sinks write it down, in a process of their own:
 * rank 0's rows as results.json, the mean over the workers as progress.csv, and event files for
 * TensorBoard. When manta_trainer_run returns, the files are complete.
 */
#include <math.h>
#include <stdio.h>

#include <manta/manta.h>

#define STEPS 20

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  double loss = 0;
  for (int step = 1; step <= STEPS; step++) {
    loss = exp(-step / 8.0) * (1 + 0.1 * manta_session_rank(s));
    manta_value error = MANTA_MAP(MANTA_KV_REAL("train", loss), MANTA_KV_REAL("test", loss * 1.2));
    manta_value row = MANTA_MAP(MANTA_KV_REAL("loss", loss), MANTA_KV("error", error));
    MANTA_TRY(manta_session_report(s, &row, err));
  }
  return manta_value_set_real(result, loss);
}

static manta_status run(manta_trainer *t, manta_error *err)
{
  manta_value mean = MANTA_MAP(MANTA_KV_STR("workers", "all"), MANTA_KV_STR("aggregate", "mean"));
  manta_value config = MANTA_MAP(MANTA_KV_REAL("lr", 0.125), MANTA_KV_INT("steps", STEPS));
  manta_sink sinks[] = {{"json", NULL}, {"csv", &mean}, {"tensorboard", NULL}};
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  rc.config = &config;
  rc.sinks = sinks;
  rc.sink_count = sizeof sinks / sizeof *sinks;
  return manta_trainer_run(t, train, &rc, NULL, err);
}

static void show_line(const char *dir, const char *name)
{
  char path[4096], line[400] = "";
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "r");
  int lines = 0;
  for (char text[400]; f && fgets(text, sizeof text, f); lines++)
    snprintf(line, sizeof line, "%s", text);
  if (f)
    fclose(f);
  printf("%s has %d lines, the last one is\n  %s", name, lines, line);
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_trainer *t = NULL;
  manta_init(&argc, &argv);
  cfg.workers = 2;
  manta_status st = manta_trainer_create(&t, &cfg, &err);
  if (st == MANTA_OK)
    st = run(t, &err);
  if (st == MANTA_OK) {
    show_line(manta_trainer_run_dir(t), "results.jsonl");
    show_line(manta_trainer_run_dir(t), "progress.csv");
    printf("tensorboard --logdir %s\n", manta_trainer_run_dir(t));
  } else {
    fprintf(stderr, "%s\n", err.message);
  }
  manta_trainer_destroy(t);
  return st < 0;
}
