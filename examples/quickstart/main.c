/* SPDX-License-Identifier: Apache-2.0
 *
 * quickstart - four workers train one network to read hand-drawn digits, data-parallel.
 *
 * Every worker holds the whole network and takes its quarter of each batch; the gradients of all
 * become one, so that all take the same step (manta/ddp.h). With KILL=1 in the environment a
 * worker is killed by SIGKILL on the way: the run goes on from its checkpoint, and ends with the
 * same weights to the last bit. EPOCHS and DIGITS change how long it trains, and on how many.
 *
 * digits.c draws the digits: by 500 hands for the training, and by 400 others for the test. Of
 * those a linear model reads 82.5 % (measured by tests/examples/digits_test.c), this network 98 %.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <manta/manta.h>

#include "digits.h"
#include "net.h"
#include "random.h"
#include "sheet.h"
#include "show.h"

enum { WORKERS = 4, BATCH = 128, MAX_DIGITS = 100000, TEST = 4000 };
#define RATE 0.1 /* of learning; falls to 0 in a straight line */
enum { TRAIN_SEED = 1, TEST_SEED = 2, NET_SEED = 3, ORDER_SEED = 4 };

static struct digit digits[MAX_DIGITS], test[TEST];
static int digit_count;

static double now(void) // one clock for all processes of this host
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// --- in the workers -----------------------------------------------------------------------------

struct trainee {
  manta_comm *comm;
  manta_ddp *ddp; // holds parameters and gradients, and makes the gradients of all ranks one
  int rank, workers;
  int64_t epoch, epochs;                         // finished, wanted
  double began, loss;                            // when; mean of this rank in the last epoch
  float *params[NET_LAYERS], *grads[NET_LAYERS]; // in memory that all ranks can read
  float momentum[NET_PARAMS];
  int order[MAX_DIGITS]; // of the digits in this epoch
  struct net_pass pass;
};

static manta_status save(manta_session *s, struct trainee *t, manta_error *err)
{
  manta_tensor momentum = MANTA_VECTOR("momentum", MANTA_F32, t->momentum, NET_PARAMS);
  manta_value value = MANTA_MAP(MANTA_KV_INT("epoch", t->epoch));
  return manta_ddp_save(t->ddp, s, &momentum, 1, &value, err);
}

static manta_status load(const manta_checkpoint *c, struct trainee *t, manta_error *err)
{
  t->epoch = manta_value_as_int(manta_value_get(manta_checkpoint_value(c), "epoch"), 0);
  MANTA_TRY(manta_ddp_load(t->ddp, c, err));
  return manta_checkpoint_copy(c, "momentum", t->momentum, sizeof t->momentum, err);
}

/* Fresh parameters of rank 0 for all; or, after a death, those of the newest checkpoint. */
static manta_status begin(manta_session *s, struct trainee *t, manta_error *err)
{
  manta_checkpoint *c;
  t->comm = manta_session_comm(s);
  t->rank = manta_session_rank(s);
  t->workers = manta_session_world_size(s);
  t->epochs = manta_session_config_int(s, "epochs", 1);
  MANTA_TRY(manta_ddp_create(&t->ddp, t->comm, NULL, err));
  for (int l = 0; l < NET_LAYERS; l++)
    MANTA_TRY(manta_ddp_add(t->ddp, net_layers[l].name, (size_t)net_layers[l].count, MANTA_F32,
                            (void **)&t->params[l], (void **)&t->grads[l], err));
  MANTA_TRY(manta_session_load(s, &c, err));
  manta_status st = MANTA_OK;
  if (c)
    st = load(c, t, err);
  else if (t->rank == 0)
    net_init(t->params, NET_SEED);
  manta_checkpoint_close(c);
  MANTA_TRY(st);
  return manta_ddp_begin(t->ddp, err);
}

/* The order depends on the epoch alone: a worker that takes over finds the same one. */
static void shuffle(struct trainee *t)
{
  struct random r = random_of(ORDER_SEED, 0, (uint64_t)t->epoch);
  for (int i = 0; i < digit_count; i++) {
    int j = random_below(&r, i + 1);
    t->order[i] = t->order[j];
    t->order[j] = i;
  }
}

/* Forward, backward, one step: the same on all ranks, since their gradients become one. */
static manta_status train_batch(struct trainee *t, const struct digit *const *batch, int n,
                                float rate, manta_error *err)
{
  float *momentum = t->momentum;
  net_forward(&t->pass, t->params, batch, n);
  t->loss += net_loss(&t->pass, batch);
  for (int l = NET_LAYERS - 1; l >= 0; l--) {
    net_backward(&t->pass, t->grads, t->params, l);
    MANTA_TRY(manta_ddp_ready(t->ddp, (size_t)l, err)); // travels while the next one is made
  }
  MANTA_TRY(manta_ddp_sync(t->ddp, NULL, err)); // fails within milliseconds if a rank is lost
  for (int l = 0; l < NET_LAYERS; momentum += net_layers[l++].count)
    net_step(t->params[l], momentum, t->grads[l], net_layers[l].count, rate);
  return MANTA_OK;
}

/* One pass over the digits. */
static manta_status train_epoch(struct trainee *t, manta_error *err)
{
  const struct digit *batch[BATCH];
  int part = BATCH / t->workers, steps = digit_count / BATCH; // mine of each batch; batches
  t->loss = 0;
  shuffle(t);
  for (int step = 0; step < steps; step++) {
    double done = ((double)t->epoch + (double)step / steps) / (double)t->epochs;
    for (int i = 0; i < part; i++)
      batch[i] = &digits[t->order[step * BATCH + t->rank * part + i]];
    MANTA_TRY(train_batch(t, batch, part, (float)(RATE * (1 - done)), err));
  }
  t->loss /= steps;
  t->epoch++;
  return MANTA_OK;
}

/* Each rank tests its part of the held-out digits; the row has the sum, the same on all. */
static manta_status report(manta_session *s, struct trainee *t, manta_error *err)
{
  static uint8_t guess[TEST];
  int first = TEST * t->rank / t->workers, end = TEST * (t->rank + 1) / t->workers;
  int right = net_test(&t->pass, t->params, &test[first], guess, end - first);
  double sum[2] = {t->loss / t->workers, right};
  MANTA_TRY(manta_comm_allreduce(t->comm, sum, sum, 2, MANTA_F64, MANTA_SUM, err));
  manta_value row =
      MANTA_MAP(MANTA_KV_REAL("loss", sum[0]), MANTA_KV_REAL("held_out", sum[1] / TEST),
                MANTA_KV_REAL("began", t->began));
  return manta_session_report(s, &row, err);
}

static uint64_t hash_of(float *const *params) // FNV-1a
{
  uint64_t hash = 0xcbf29ce484222325u;
  for (int l = 0; l < NET_LAYERS; l++) {
    const uint8_t *bytes = (const uint8_t *)params[l];
    for (size_t i = 0; i < (size_t)net_layers[l].count * sizeof(float); i++)
      hash = (hash ^ bytes[i]) * 0x100000001b3u;
  }
  return hash;
}

static manta_status train_all(manta_session *s, struct trainee *t, manta_error *err)
{
  MANTA_TRY(begin(s, t, err));
  t->began = now();
  while (t->epoch < t->epochs) {
    MANTA_TRY(train_epoch(t, err));
    MANTA_TRY(report(s, t, err));
    MANTA_TRY(save(s, t, err));
  }
  return MANTA_OK;
}

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  static struct trainee t;
  char text[17];
  memset(&t, 0, sizeof t); // this process may have been here before
  manta_status st = train_all(s, &t, err);
  if (st == MANTA_OK) {
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash_of(t.params));
    st = manta_value_set_string(result, text);
  }
  manta_ddp_destroy(t.ddp);
  return st;
}
MANTA_TRAIN("quickstart", train) // a name, so that another build can resume the run

// --- in the driver ------------------------------------------------------------------------------

static manta_trainer *trainer;
static int epochs, kill_in; // kill_in: the epoch in which a worker is killed; 0: none
static double killed_at, back_ms;

static void on_term(int sig) // SIGTERM: save, end, exit with 75
{
  manta_trainer_notice(trainer);
}

static void kill_rank_1(double epoch_s)
{
  usleep((useconds_t)(epoch_s * 0.5e6)); // into the middle of the epoch
  int pid = manta_trainer_pid(trainer, 1);
  killed_at = now();
  if (pid > 0 && kill(pid, SIGKILL) == 0)
    show_note("kill -9 %d: rank 1, in the middle of epoch %d", pid, kill_in);
}

static void note_revival(const manta_rows *rows)
{
  double back = 0; // when the last rank was in its loop again
  for (int i = 0; i < rows->count; i++)
    back = fmax(back, manta_value_as_real(manta_value_get(&rows->rows[i], "began"), 0));
  back_ms = (back - killed_at) * 1e3;
  show_note("all %d ranks train again %.1f ms after the kill, from the end of epoch %lld",
            rows->count, back_ms, (long long)rows->rewound_to);
}

/* Called after each epoch with the rows of all ranks. */
static manta_status progress(void *ctx, const manta_rows *rows, manta_error *err)
{
  const manta_value *row = &rows->rows[0];
  double seconds = manta_value_as_real(manta_value_get(row, "_time_this_iter_s"), 0);
  if (rows->rewound_to >= 0)
    note_revival(rows);
  if (seconds <= 0)
    return MANTA_OK; // rank 0 died before it made this row
  show_epoch((int)rows->iteration, epochs, manta_value_as_real(manta_value_get(row, "loss"), 0),
             manta_value_as_real(manta_value_get(row, "held_out"), 0), digit_count / seconds);
  if (killed_at == 0 && rows->iteration + 1 == kill_in)
    kill_rank_1(seconds);
  return MANTA_OK;
}

static manta_status run(manta_value *results, manta_error *err)
{
  manta_value config = MANTA_MAP(MANTA_KV_INT("epochs", epochs));
  manta_callbacks callbacks = {.result = progress};
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  cfg.workers = WORKERS;
  cfg.min_workers = WORKERS; // with fewer the sums of the gradients would have other last bits
  cfg.config = &config;
  cfg.callbacks = &callbacks;
  cfg.callback_count = 1;
  MANTA_TRY(manta_trainer_create(&trainer, &cfg, err));
  signal(SIGTERM, on_term);
  show_note("%d workers train on %d digits; %d digits of other writers are held out", WORKERS,
            digit_count, TEST);
  return manta_trainer_run(trainer, train, NULL, results, err);
}

static manta_status load_params(const manta_checkpoint *c, float *const *params, manta_error *err)
{
  for (int l = 0; l < NET_LAYERS; l++)
    MANTA_TRY(manta_checkpoint_copy(c, net_layers[l].name, params[l],
                                    (size_t)net_layers[l].count * sizeof(float), err));
  return MANTA_OK;
}

/* Reads the held-out digits with the last checkpoint, as any program could; gives the guesses. */
static manta_status read_digits(uint8_t *guess, int *right, manta_error *err)
{
  static float layer1[(NET_IN + 1) * NET_H1], layer2[(NET_H1 + 1) * NET_H2];
  static float layer3[(NET_H2 + 1) * NET_OUT];
  static struct net_pass pass;
  float *params[NET_LAYERS] = {layer1, layer2, layer3};
  manta_checkpoint *c;
  MANTA_TRY(manta_trainer_checkpoint(trainer, &c, err));
  if (!c)
    return manta_error_set(err, MANTA_ENOENT, "the run has left no checkpoint");
  manta_status st = load_params(c, params, err);
  manta_checkpoint_close(c);
  if (st == MANTA_OK)
    *right = net_test(&pass, params, test, guess, TEST);
  return st;
}

/* What the ranks returned: the hash of their weights, which must be one. */
static manta_status one_hash(const manta_value *results, const char **hash, manta_error *err)
{
  *hash = manta_value_as_string(manta_value_at(results, 0), "?");
  for (uint32_t rank = 1; rank < results->count; rank++) {
    const char *other = manta_value_as_string(manta_value_at(results, rank), "?");
    if (strcmp(*hash, other) != 0)
      return manta_error_set(err, MANTA_ECORRUPT, "weights %s on rank 0, %s on rank %u", *hash,
                             other, rank);
  }
  return MANTA_OK;
}

static manta_status show_results(const manta_value *results, double seconds, manta_error *err)
{
  static uint8_t guess[TEST];
  int right = 0;
  char mistakes[128], sheet[4096];
  const char *hash, *dir = manta_trainer_run_dir(trainer);
  MANTA_TRY(one_hash(results, &hash, err));
  MANTA_TRY(read_digits(guess, &right, err));
  describe_mistakes(mistakes, sizeof mistakes, test, guess, TEST);
  snprintf(sheet, sizeof sheet, "%s/digits.png", dir);
  if (sheet_write(sheet, test, guess, TEST) < 0)
    return manta_error_set(err, MANTA_EIO, "%s: %s", sheet, strerror(errno));
  printf("\n");
  show_row("held-out", "%.2f %%, %d of %d digits of other writers", 100 * ((double)right / TEST),
           right, TEST);
  show_row("mistakes", "%s", mistakes);
  if (killed_at > 0)
    show_row("revival", "%.1f ms from the kill until all ranks trained again", back_ms);
  show_row("time", "%.1f s, including the drawing of the digits", seconds);
  show_row("weights", "%s on all ranks, the same in every run, also with KILL=1", hash);
  printf("\n%s contains\n", dir);
  show_row("digits.png", "  held-out digits, the mistakes in red");
  show_row("run.log", "  logs/, checkpoints/: see manta status, manta ckpt show");
  return MANTA_OK;
}

static int number_from_env(const char *name, int dflt, int low, int high)
{
  const char *text = getenv(name);
  long n = text && *text ? strtol(text, NULL, 10) : dflt;
  return n < low ? low : n > high ? high : (int)n;
}

int main(int argc, char **argv)
{
  double started = now();
  manta_error err = MANTA_ERROR_INIT;
  manta_value results = {0};
  // Workers are forked from a copy of this program that has come to manta_init: what was made
  // before, all of them share. One that takes the place of a dead rank finds the digits drawn.
  digit_count = number_from_env("DIGITS", 40000, BATCH, MAX_DIGITS);
  digits_fill(digits, digit_count, TRAIN_SEED);
  digits_fill(test, TEST, TEST_SEED);
  if (manta_init(&argc, &argv) < 0)
    return 1;
  epochs = number_from_env("EPOCHS", 12, 2, 1000);
  kill_in = number_from_env("KILL", 0, 0, 1) ? epochs / 2 + 1 : 0;
  manta_status st = run(&results, &err);
  if (st == MANTA_OK)
    st = show_results(&results, now() - started, &err);
  if (st < 0)
    fprintf(stderr, "quickstart: %s\n", err.message);
  manta_trainer_destroy(trainer);
  manta_value_fini(&results);
  return st == MANTA_EPREEMPTED ? 75 : st < 0;
}
