/* SPDX-License-Identifier: Apache-2.0
 *
 * 10_tune - which step size finds the minimum soonest?
 *
 * Gradient descent with momentum on a narrow valley. A trial is one step size and one momentum; it
 * reports its loss after every ten steps and saves its position. TPE proposes the configs, and ASHA
 * stops trials that are behind the others, so that most of the time goes to the good ones.
 *
 *   ./10_tune                 runs the experiment and prints the best config
 *   manta tune status         shows it, also while it runs
 *   manta tune resume         continues it after it was interrupted
 */
#include <math.h>
#include <stdio.h>

#include <manta/manta.h>

enum { ROUNDS = 16, STEPS = 10, TRIALS = 40 };

// --- in a trial ---------------------------------------------------------------------------------

struct place {
  double x[2], v[2]; /* position and velocity */
};

// The valley: f(x) = x0^2 + 50 x1^2.
static double descend(struct place *p, double rate, double momentum)
{
  static const double steep[2] = {1, 50};
  double loss = 0;
  for (int i = 0; i < 2; i++) {
    p->v[i] = momentum * p->v[i] - rate * 2 * steep[i] * p->x[i];
    p->x[i] += p->v[i];
    loss += steep[i] * p->x[i] * p->x[i];
  }
  return isfinite(loss) ? loss : 1e30;
}

// Where an earlier attempt of this trial came to, if there was one.
static manta_status restore(manta_session *s, struct place *p, manta_error *err)
{
  manta_checkpoint *c;
  MANTA_TRY(manta_session_load(s, &c, err));
  manta_status st = c ? manta_checkpoint_copy(c, "place", p, sizeof *p, err) : MANTA_OK;
  manta_checkpoint_close(c);
  return st;
}

static manta_status train(manta_session *s, manta_value *result, manta_error *err)
{
  double rate = manta_session_config_real(s, "rate", 0);
  double momentum = manta_session_config_real(s, "momentum", 0);
  struct place p = {.x = {10, 1}};
  double loss = 0;
  MANTA_TRY(restore(s, &p, err));
  for (int64_t round = manta_session_iteration(s); round < ROUNDS; round++) {
    for (int i = 0; i < STEPS; i++)
      loss = descend(&p, rate, momentum);
    manta_value row = MANTA_MAP(MANTA_KV_REAL("loss", loss));
    manta_tensor tensor = MANTA_VECTOR("place", MANTA_F64, &p, 4);
    manta_state state = {&tensor, 1, NULL};
    MANTA_TRY(manta_session_report(s, &row, err)); // comes back when ASHA has decided
    MANTA_TRY(manta_session_save(s, &state, err));
  }
  return manta_value_set_real(result, loss);
}

// --- in the driver ------------------------------------------------------------------------------

static manta_status make_space(manta_value *space)
{
  manta_value rate = {0}, momentum = {0};
  MANTA_TRY(manta_space_uniform(&rate, 1e-5, 1, 0, true));
  MANTA_TRY(manta_space_uniform(&momentum, 0, 0.99, 0, false));
  MANTA_TRY(manta_value_set_map(space));
  MANTA_TRY(manta_value_put(space, "rate", &rate));
  return manta_value_put(space, "momentum", &momentum);
}

static manta_status print_best(manta_tune *t, manta_error *err)
{
  uint64_t best;
  manta_trial trial;
  char *config;
  MANTA_TRY(manta_tune_best(t, NULL, false, true, &best, err));
  MANTA_TRY(manta_tune_trial(t, best, &trial, err));
  MANTA_TRY(manta_value_to_json(trial.config, -1, &config, err));
  printf("%llu trials, %llu stopped early\n", (unsigned long long)manta_tune_count(t),
         (unsigned long long)manta_tune_count_state(t, MANTA_TRIAL_STOPPED));
  printf("best: trial %llu, loss %.3g with %s\n", (unsigned long long)best,
         manta_value_as_real(manta_value_get(trial.best, "loss"), NAN), config);
  manta_free(config);
  return MANTA_OK;
}

static manta_status tune(manta_error *err)
{
  manta_tune *t;
  manta_value space = {0};
  manta_value options = MANTA_MAP(MANTA_KV_INT("max_time", ROUNDS), MANTA_KV_INT("grace", 2),
                                  MANTA_KV_INT("factor", 2));
  manta_tune_config cfg = MANTA_TUNE_CONFIG_INIT;
  MANTA_TRY(make_space(&space));
  cfg.space = &space;
  cfg.samples = TRIALS;
  cfg.metric = "loss";
  cfg.searcher = "tpe";
  cfg.scheduler = "asha";
  cfg.scheduler_options = &options;
  cfg.seed = 1;
  manta_status st = manta_tune_run(&t, train, &cfg, err);
  manta_value_fini(&space);
  MANTA_TRY(st);
  st = print_best(t, err);
  manta_tune_close(t);
  return st;
}

int main(int argc, char **argv)
{
  manta_error err = MANTA_ERROR_INIT;
  manta_init(&argc, &argv); // the first line of main: a trial enters here and does not come back
  if (tune(&err) == MANTA_OK)
    return 0;
  fprintf(stderr, "%s\n", err.message);
  return 1;
}
