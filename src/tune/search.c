/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/search.c - searchers by themselves: the choosers of an experiment that nobody runs.
 */
#include "base/alloc.h"
#include "tune/choice.h"

struct manta_search {
  struct manta__choosers choosers;
};

manta_status manta_search_open(manta_search **out, const char *name, const manta_value *space,
                               const manta_value *options, uint64_t seed, manta_error *err)
{
  manta_tune_config c = MANTA_TUNE_CONFIG_INIT;
  manta_search *s = manta__calloc(1, sizeof *s);
  if (!s)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a searcher");
  c.space = space;
  c.searcher = name;
  c.searcher_options = options;
  c.seed = seed;
  c.metric = "value"; // by whatever name its trials know it
  manta_status st = manta__choice_init(&s->choosers, &c, err);
  if (st < 0) {
    manta_search_close(s);
    return st;
  }
  *out = s;
  return MANTA_OK;
}

void manta_search_close(manta_search *s)
{
  if (s)
    manta__choice_fini(&s->choosers);
  manta__free(s);
}

uint64_t manta_search_grid(const manta_search *s)
{
  return s->choosers.space.grid;
}

manta_status manta_search_propose(manta_search *s, uint64_t number, manta_value *config,
                                  manta_error *err)
{
  manta_value made = {0};
  int rc = manta__choice_suggest(&s->choosers, number, false, &made, err);
  if (rc < 0)
    return (manta_status)rc;
  manta_value_move(config, &made);
  return MANTA_OK;
}

void manta_search_observe(manta_search *s, uint64_t number, double value)
{
  manta__searcher_observe(s->choosers.searcher, number, value);
}
