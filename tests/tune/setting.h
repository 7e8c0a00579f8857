/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/tune/setting.h - experiments over simulated trials (sim.h), by seed and scheduler.
 */
#ifndef MANTA_TEST_SETTING_H
#define MANTA_TEST_SETTING_H

#include "tune/experiment.h"

#include "scratch.h"
#include "sim.h"

static const char *const schedulers[] = {"fifo", "asha", "median", "hyperband", "pbt", "pb2"};
#define SCHEDULERS (sizeof schedulers / sizeof *schedulers)
#define SPACE      "{\"x\": {\"$range\": {\"low\": 1, \"high\": 9}}}"

/* What is warned of is expected: torn tails, copies of what is not on disk. */
static inline void say_nothing(void *ctx, manta_log_level level, const char *text)
{
}

static inline struct sim make_sim(uint64_t seed)
{
  struct manta__rng rng = manta__rng_of(seed, 5);
  struct sim s = {.ops = &sim_ops, .rng = manta__rng_of(seed, 6)};
  s.seats = 1 + (int)manta__rng_below(&rng, SIM_SEATS);
  s.length = 1 + (int64_t)manta__rng_below(&rng, 20);
  s.fail = manta__rng_below(&rng, 2) ? 0.03 : 0;
  s.forgets = manta__rng_below(&rng, 2) ? 0.5 : 0;
  return s;
}

struct setting {
  manta_value space, options;
  manta_tune_config c;
};

static inline void make_setting(struct setting *s, const char *dir, const char *scheduler,
                                uint64_t seed)
{
  static const char *const searchers[] = {"random", "tpe", "cmaes"};
  manta_error err = MANTA_ERROR_INIT;
  bool fifo = !strcmp(scheduler, "fifo"), pbt = !strncmp(scheduler, "pb", 2);
  const char *options = fifo  ? "{}"
                        : pbt ? "{\"interval\": 2, \"quantile\": 0.4}"
                              : "{\"max_time\": 9, \"factor\": 3}";
  *s = (struct setting){.c = MANTA_TUNE_CONFIG_INIT};
  if (!strcmp(scheduler, "median"))
    options = "{\"grace\": 2}";
  assert_ok(manta_value_from_json(&s->space, SPACE, strlen(SPACE), &err), &err);
  assert_ok(manta_value_from_json(&s->options, options, strlen(options), &err), &err);
  s->c.space = &s->space;
  s->c.scheduler_options = &s->options;
  s->c.scheduler = scheduler;
  s->c.searcher = searchers[seed % 3];
  s->c.samples = 1 + (int64_t)(seed % 30);
  s->c.metric = "loss";
  s->c.seed = seed;
  s->c.max_failures = (int)(seed % 3) - 1;
  s->c.logdir = dir;
  s->c.name = "exp";
}

static inline void drop_setting(struct setting *s)
{
  manta_value_fini(&s->space);
  manta_value_fini(&s->options);
}

static inline manta_tune *open_experiment(struct sim *sim, const struct setting *s)
{
  manta_tune *t;
  manta_error err = MANTA_ERROR_INIT;
  memset(sim->seat, 0, sizeof sim->seat);
  assert_ok(manta__experiment_start(&t, NULL, &s->c, (struct manta__runner *)(void *)sim, &err),
            &err);
  return t;
}

/* At most `events` of them; true: it is over. */
static inline bool take(manta_tune *t, uint64_t events)
{
  manta_error err = MANTA_ERROR_INIT;
  int rc = 1;
  for (uint64_t i = 0; i < events && rc == 1; i++)
    rc = manta_tune_next(t, -1, NULL, &err);
  assert_ok(rc, &err);
  return rc == 0;
}

static inline void assert_all_ended(const manta_tune *t, int64_t samples)
{
  uint64_t ended = manta_tune_count_state(t, MANTA_TRIAL_FINISHED) +
                   manta_tune_count_state(t, MANTA_TRIAL_STOPPED) +
                   manta_tune_count_state(t, MANTA_TRIAL_FAILED);
  assert_int_equal(manta_tune_count(t), samples);
  assert_int_equal(ended, samples);
}

#endif
