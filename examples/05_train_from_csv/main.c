/* SPDX-License-Identifier: Apache-2.0
 *
 * 05_train_from_csv - a folder of CSV files, two workers, each row once in every epoch.
 *
 * A linear model learns price = 3 size - 2 age + 5 from rows that are shuffled anew in each epoch.
 * Rows without a price are filtered out where they are parsed. The position in the data is a part
 * of each checkpoint: with KILL=1 in the environment rank 1 kills itself in the middle of the
 * second epoch, and the result is the same, to the last bit.
 */
#define _GNU_SOURCE 1
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/manta.h>

enum { RANKS = 2, FILES = 4, ROWS = 1000, EPOCHS = 3, BATCH = 64, EVERY = 10 };
enum { SIZE, AGE, ONE, WEIGHTS };

struct model {
  double w[WEIGHTS];
  int64_t step, rows; // rows: of this epoch, over all ranks
};

// --- in the workers -----------------------------------------------------------------------------

// A plan: nothing is read here but the header.
static manta_status open_data(manta_session *s, manta_dataset **out, manta_error *err)
{
  static const char has_price[] = "[\"not\", [\"is_null\", [\"col\", \"price\"]]]";
  const char *folder = manta_session_config_string(s, "data", "");
  manta_dataset *files, *known = NULL;
  manta_value filter = {0};
  MANTA_TRY(manta_dataset_open(&files, &folder, 1, NULL, err));
  manta_status st = manta_value_from_json(&filter, has_price, strlen(has_price), err);
  if (st == MANTA_OK)
    st = manta_dataset_filter(&known, files, &filter, err);
  if (st == MANTA_OK)
    st = manta_dataset_shuffle(out, known, 42, 0, err);
  manta_value_fini(&filter);
  manta_dataset_close(known);
  manta_dataset_close(files);
  return st;
}

static manta_status restore(manta_session *s, struct model *m, manta_error *err)
{
  manta_checkpoint *c;
  MANTA_TRY(manta_session_load(s, &c, err));
  if (!c)
    return MANTA_OK;
  m->step = manta_value_as_int(manta_value_get(manta_checkpoint_value(c), "step"), 0);
  m->rows = manta_value_as_int(manta_value_get(manta_checkpoint_value(c), "rows"), 0);
  manta_status st = manta_checkpoint_copy(c, "w", m->w, sizeof m->w, err);
  manta_checkpoint_close(c);
  if (manta_session_rank(s) == 0)
    printf("continuing from step %lld\n", (long long)m->step);
  return st;
}

// The position of the loader goes with it.
static manta_status save(manta_session *s, struct model *m, manta_error *err)
{
  manta_tensor w = MANTA_VECTOR("w", MANTA_F64, m->w, WEIGHTS);
  manta_value value = MANTA_MAP(MANTA_KV_INT("step", m->step), MANTA_KV_INT("rows", m->rows));
  manta_state state = {&w, 1, &value};
  return manta_session_save(s, &state, err);
}

// One step over the parts of all ranks: sums, so that it does not matter how a batch is divided.
static manta_status learn(manta_session *s, struct model *m, const manta_batch *b, manta_error *err)
{
  double sum[WEIGHTS + 1] = {0}; // gradients, and how many rows
  manta_column size, age, price;
  MANTA_TRY(manta_batch_column_named(b, "size", &size, err));
  MANTA_TRY(manta_batch_column_named(b, "age", &age, err));
  MANTA_TRY(manta_batch_column_named(b, "price", &price, err));
  for (int64_t i = 0; i < price.rows; i++) {
    double x[WEIGHTS] = {((const double *)size.data)[size.offset + i],
                         ((const double *)age.data)[age.offset + i], 1};
    double off = -((const double *)price.data)[price.offset + i];
    for (int k = 0; k < WEIGHTS; k++)
      off += m->w[k] * x[k];
    for (int k = 0; k < WEIGHTS; k++)
      sum[k] += 2 * off * x[k];
    sum[WEIGHTS]++;
  }
  manta_comm *comm = manta_session_comm(s);
  MANTA_TRY(manta_comm_allreduce(comm, sum, sum, WEIGHTS + 1, MANTA_F64, MANTA_SUM, err));
  for (int k = 0; k < WEIGHTS; k++)
    m->w[k] -= 0.3 * sum[k] / sum[WEIGHTS];
  m->rows += (int64_t)sum[WEIGHTS];
  m->step++;
  return MANTA_OK;
}

static manta_status epoch(manta_session *s, manta_loader *l, struct model *m, manta_error *err)
{
  manta_batch *b;
  manta_status st;
  while ((st = manta_loader_next(l, &b, err)) == 1) {
    st = learn(s, m, b, err);
    manta_batch_destroy(b);
    MANTA_TRY(st);
    if (m->step % EVERY == 0)
      MANTA_TRY(save(s, m, err));
    if (m->step == 85 && manta_session_rank(s) == 1 && manta_session_attempt(s) == 0 &&
        getenv("KILL"))
      raise(SIGKILL);
  }
  return st;
}

static manta_status train_all(manta_session *s, manta_loader *l, struct model *m, manta_error *err)
{
  while (manta_loader_epoch(l) < EPOCHS) {
    MANTA_TRY(epoch(s, l, m, err));
    manta_value row = MANTA_MAP(MANTA_KV_INT("epoch", manta_loader_epoch(l)),
                                MANTA_KV_INT("rows", m->rows), MANTA_KV_REAL("size", m->w[SIZE]),
                                MANTA_KV_REAL("age", m->w[AGE]), MANTA_KV_REAL("one", m->w[ONE]));
    MANTA_TRY(manta_session_report(s, &row, err));
    m->rows = 0;
    MANTA_TRY(save(s, m, err)); // the epoch is over: the next one begins after it
    MANTA_TRY(manta_loader_begin(l, manta_loader_epoch(l) + 1, err));
  }
  return MANTA_OK;
}

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  struct model m = {0};
  manta_loader_config c = MANTA_LOADER_CONFIG_INIT;
  manta_dataset *d;
  manta_loader *l = NULL;
  MANTA_TRY(restore(s, &m, err));
  MANTA_TRY(open_data(s, &d, err));
  c.batch_rows = BATCH; // of all ranks
  manta_status st = manta_session_loader(&l, s, "train", d, &c, err);
  if (st == MANTA_OK)
    st = train_all(s, l, &m, err);
  manta_loader_close(l);
  manta_dataset_close(d);
  MANTA_TRY(st);
  return manta_value_set_real(result, m.w[ONE]);
}

// --- in the driver ------------------------------------------------------------------------------

static manta_status show_rows(void *ctx, const manta_rows *rows, manta_error *err)
{
  const manta_value *r = &rows->rows[0];
  printf("epoch %lld  %lld rows  price = %.3f size %+.3f age %+.3f\n",
         (long long)manta_value_as_int(manta_value_get(r, "epoch"), -1),
         (long long)manta_value_as_int(manta_value_get(r, "rows"), -1),
         manta_value_as_real(manta_value_get(r, "size"), 0),
         manta_value_as_real(manta_value_get(r, "age"), 0),
         manta_value_as_real(manta_value_get(r, "one"), 0));
  return MANTA_OK;
}

// Every tenth row has no price.
static int write_file(const char *folder, int number)
{
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/part-%d.csv", folder, number);
  FILE *f = fopen(path, "w"); // style: a user's program
  if (!f)
    return -1;
  fprintf(f, "size,age,price\n");
  for (int i = 0; i < ROWS; i++) {
    double size = (number * ROWS + i) * 7919 % 1000 / 1000.0, age = i * 104729 % 1000 / 1000.0;
    if (i % 10 == 9)
      fprintf(f, "%.3f,%.3f,\n", size, age);
    else
      fprintf(f, "%.3f,%.3f,%.3f\n", size, age, 3 * size - 2 * age + 5);
  }
  return fclose(f);
}

static manta_status run(const char *folder, manta_error *err)
{
  manta_callbacks show = {.result = show_rows};
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_run_config rc = MANTA_RUN_CONFIG_INIT;
  manta_value config = MANTA_MAP(MANTA_KV_STR("data", folder)), results = {0};
  manta_trainer *t;
  cfg.workers = RANKS;
  cfg.callbacks = &show;
  cfg.callback_count = 1;
  rc.config = &config;
  MANTA_TRY(manta_trainer_create(&t, &cfg, err));
  manta_status st = manta_trainer_run(t, train, &rc, &results, err);
  for (size_t rank = 0; st == MANTA_OK && rank < results.count; rank++)
    printf("rank %zu ends with %.17g\n", rank, manta_value_as_real(&results.u.items[rank], 0));
  manta_value_fini(&results);
  manta_trainer_destroy(t);
  return st;
}

int main(int argc, char **argv)
{
  char folder[] = "/tmp/manta-csv-XXXXXX", path[PATH_MAX];
  manta_error err = MANTA_ERROR_INIT;
  int bad = 0;
  if (manta_init(&argc, &argv) < 0)
    return 1;
  if (!mkdtemp(folder))
    return 1;
  for (int i = 0; i < FILES; i++)
    bad |= write_file(folder, i);
  manta_status st =
      bad ? manta_error_set(&err, MANTA_EIO, "cannot write to %s", folder) : run(folder, &err);
  for (int i = 0; i < FILES; i++) {
    snprintf(path, sizeof path, "%s/part-%d.csv", folder, i);
    unlink(path);
  }
  rmdir(folder);
  if (st < 0)
    fprintf(stderr, "05_train_from_csv: %s\n", err.message);
  return st == MANTA_EPREEMPTED ? 75 : st < 0;
}
