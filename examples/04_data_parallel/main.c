/* SPDX-License-Identifier: Apache-2.0
 *
 * 04_data_parallel - one model, four workers, each with its part of the data.
 *
 * A network of one hidden layer learns sin(x). Every rank computes the gradients of its own
 * samples; manta makes the mean of them while the backward pass goes on, so all ranks take the same
 * step. With KILL=1 in the environment rank 2 kills itself at step 150: the result is the same, to
 * the last bit.
 */
#define _GNU_SOURCE 1
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <manta/manta.h>

enum { RANKS = 4, HIDDEN = 16, SAMPLES = 64, STEPS = 500 };

struct net {
  float *w1, *b1, *w2, *b2;     // (HIDDEN) (HIDDEN) (HIDDEN) (1)
  float *dw1, *db1, *dw2, *db2; // their gradients
};
enum { W1, B1, W2, B2 }; // in the order in which the forward pass uses them

static manta_status add(manta_ddp *d, struct net *n, manta_error *err)
{
  MANTA_TRY(manta_ddp_add(d, "w1", HIDDEN, MANTA_F32, (void **)&n->w1, (void **)&n->dw1, err));
  MANTA_TRY(manta_ddp_add(d, "b1", HIDDEN, MANTA_F32, (void **)&n->b1, (void **)&n->db1, err));
  MANTA_TRY(manta_ddp_add(d, "w2", HIDDEN, MANTA_F32, (void **)&n->w2, (void **)&n->dw2, err));
  return manta_ddp_add(d, "b2", 1, MANTA_F32, (void **)&n->b2, (void **)&n->db2, err);
}

static void fill(struct net *n)
{
  for (int i = 0; i < HIDDEN; i++) {
    n->w1[i] = sinf((float)i * 12.9898f) * 2;
    n->b1[i] = sinf((float)i * 78.233f) * 2;
    n->w2[i] = sinf((float)i * 39.425f) * 0.3f;
  }
}

// Gives the loss, the hidden layer h (SAMPLES, HIDDEN) and by how much each y is off.
static double forward(const struct net *n, const float *x, float *h, float *dy)
{
  double loss = 0;
  for (int s = 0; s < SAMPLES; s++) {
    float y = n->b2[0];
    for (int i = 0; i < HIDDEN; i++) {
      h[s * HIDDEN + i] = tanhf(n->w1[i] * x[s] + n->b1[i]);
      y += n->w2[i] * h[s * HIDDEN + i];
    }
    float off = y - sinf(x[s]);
    dy[s] = 2 * off / SAMPLES;
    loss += (double)(off * off) / SAMPLES;
  }
  return loss;
}

// From the last layer to the first: what is complete is ready, and on its way.
static manta_status backward(manta_ddp *d, struct net *n, const float *x, const float *h,
                             const float *dy, manta_error *err)
{
  MANTA_TRY(manta_ddp_zero_grad(d, err));
  for (int s = 0; s < SAMPLES; s++) {
    n->db2[0] += dy[s];
    for (int i = 0; i < HIDDEN; i++)
      n->dw2[i] += dy[s] * h[s * HIDDEN + i];
  }
  MANTA_TRY(manta_ddp_ready(d, B2, err));
  MANTA_TRY(manta_ddp_ready(d, W2, err));
  for (int s = 0; s < SAMPLES; s++)
    for (int i = 0; i < HIDDEN; i++) {
      float a = h[s * HIDDEN + i], back = dy[s] * n->w2[i] * (1 - a * a);
      n->db1[i] += back;
      n->dw1[i] += back * x[s];
    }
  MANTA_TRY(manta_ddp_ready(d, B1, err));
  return manta_ddp_ready(d, W1, err);
}

static manta_status train_step(manta_session *s, manta_ddp *d, struct net *n, int64_t step,
                               double *loss, manta_error *err)
{
  static float x[SAMPLES], h[SAMPLES * HIDDEN], dy[SAMPLES];
  for (int i = 0; i < SAMPLES; i++) // this rank's samples of this step, in -3 to 3
    x[i] = sinf((float)(step * 7919 + manta_session_rank(s) * 104729 + i * 31)) * 3;
  *loss = forward(n, x, h, dy);
  MANTA_TRY(backward(d, n, x, h, dy, err));
  if (getenv("KILL") && step == 150 && manta_session_rank(s) == 2 && manta_session_attempt(s) == 0)
    raise(SIGKILL);
  MANTA_TRY(manta_ddp_sync(d, NULL, err)); // now the gradients are the mean of all ranks
  for (size_t k = 0; k < manta_ddp_count(d); k++) {
    const manta_tensor *p = manta_ddp_param(d, k), *g = manta_ddp_grad(d, k);
    for (int64_t i = 0; i < p->shape[0]; i++)
      ((float *)p->data)[i] -= 0.04f * ((const float *)g->data)[i];
  }
  return MANTA_OK;
}

static manta_status train_net(manta_session *s, manta_ddp *d, manta_value *result, manta_error *err)
{
  struct net n;
  manta_checkpoint *c;
  double loss = 0;
  MANTA_TRY(add(d, &n, err));
  fill(&n);
  MANTA_TRY(manta_session_load(s, &c, err));
  manta_status st = c ? manta_ddp_load(d, c, err) : MANTA_OK;
  manta_checkpoint_close(c);
  MANTA_TRY(st);
  MANTA_TRY(manta_ddp_begin(d, err));
  for (int64_t step = manta_session_iteration(s) + 1; step <= STEPS; step++) {
    MANTA_TRY(train_step(s, d, &n, step, &loss, err));
    manta_value row = MANTA_MAP(MANTA_KV_INT("step", step), MANTA_KV_REAL("loss", loss));
    MANTA_TRY(manta_session_report(s, &row, err));
    if (step % 20 == 0) // all ranks save; rank 0's is kept
      MANTA_TRY(manta_ddp_save(d, s, NULL, 0, NULL, err));
  }
  return manta_value_set_real(result, (double)n.w2[1]);
}

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  manta_ddp *d;
  MANTA_TRY(manta_ddp_create(&d, manta_session_comm(s), NULL, err));
  manta_status st = train_net(s, d, result, err);
  manta_ddp_destroy(d);
  return st;
}
MANTA_TRAIN("data-parallel", train)

static manta_status show(void *ctx, const manta_rows *rows, manta_error *err)
{
  double sum = 0;
  for (int i = 0; i < rows->count; i++)
    sum += manta_value_as_real(manta_value_get(&rows->rows[i], "loss"), NAN) / rows->count;
  if (rows->rewound_to >= 0)
    printf("continuing from step %lld\n", (long long)rows->rewound_to);
  if (rows->iteration % 100 == 0)
    printf("step %3lld  loss %.6f\n", (long long)rows->iteration, sum);
  return MANTA_OK;
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_callbacks callbacks = {.result = show};
  manta_trainer_config cfg = MANTA_TRAINER_CONFIG_INIT;
  manta_value results = {0};
  manta_trainer *t = NULL;
  if (manta_init(&argc, &argv) < 0)
    return 1;
  cfg.workers = cfg.min_workers = RANKS;
  cfg.callbacks = &callbacks;
  cfg.callback_count = 1;
  manta_status st = manta_trainer_create(&t, &cfg, &err);
  if (st == MANTA_OK)
    st = manta_trainer_run(t, train, NULL, &results, &err);
  for (uint32_t i = 0; i < results.count; i++)
    printf("rank %u ends with w2[1] = %.9g\n", i,
           manta_value_as_real(manta_value_at(&results, i), NAN));
  manta_value_fini(&results);
  manta_trainer_destroy(t);
  if (st < 0)
    fprintf(stderr, "04_data_parallel: %s\n", err.message);
  return st == MANTA_EPREEMPTED ? 75 : st < 0;
}
