/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/trial.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

// --- packed values -------------------------------------------------------------------------------

manta_status manta__packed_set(struct manta__packed *p, const manta_value *v, manta_error *err)
{
  void *bytes = NULL;
  size_t len = 0;
  if (v && v->type != MANTA_NIL)
    MANTA_TRY(manta_value_pack(v, &bytes, &len, err));
  if (len > UINT32_MAX) {
    manta_free(bytes);
    return manta_error_set(err, MANTA_ETOOBIG, "a value of %zu bytes is too large for a trial",
                           len);
  }
  manta__packed_fini(p);
  *p = (struct manta__packed){bytes, (uint32_t)len};
  return MANTA_OK;
}

manta_status manta__packed_get(const struct manta__packed *p, manta_value *out, manta_error *err)
{
  if (p->bytes)
    return manta_value_unpack(out, p->bytes, p->len, err);
  manta_value_set_nil(out);
  return MANTA_OK;
}

void manta__packed_fini(struct manta__packed *p)
{
  manta_free(p->bytes);
  *p = (struct manta__packed){0};
}

// --- states --------------------------------------------------------------------------------------

static const char *const names[] = {
    [MANTA_TRIAL_PENDING] = "pending", [MANTA_TRIAL_RUNNING] = "running",
    [MANTA_TRIAL_PAUSED] = "paused",   [MANTA_TRIAL_FINISHED] = "finished",
    [MANTA_TRIAL_STOPPED] = "stopped", [MANTA_TRIAL_FAILED] = "failed"};

const char *manta_trial_state_name(manta_trial_state s)
{
  return s >= MANTA_TRIAL_PENDING && s <= MANTA_TRIAL_FAILED ? names[s] : "?";
}

bool manta__trial_ended(const struct manta__trial *t)
{
  return t->state >= MANTA_TRIAL_FINISHED;
}

bool manta__value_better(double value, double than, bool maximize)
{
  if (isnan(value) || isnan(than))
    return !isnan(value);
  if (isfinite(value) != isfinite(than))
    return isfinite(value);
  return maximize ? value > than : value < than;
}

#define TO(s) (1u << MANTA_TRIAL_##s)

manta_status manta__trial_move(struct manta__trial *t, manta_trial_state to, manta_error *err)
{
  static const unsigned ways[] = {
      [MANTA_TRIAL_PENDING] = TO(RUNNING) | TO(STOPPED),
      [MANTA_TRIAL_RUNNING] = TO(PENDING) | TO(PAUSED) | TO(FINISHED) | TO(STOPPED) | TO(FAILED),
      [MANTA_TRIAL_PAUSED] = TO(PENDING) | TO(STOPPED),
      [MANTA_TRIAL_FAILED] = TO(PENDING),
      [MANTA_TRIAL_FINISHED] = 0,
      [MANTA_TRIAL_STOPPED] = 0,
  };
  if (!(ways[t->state] & 1u << to))
    return manta_error_set(err, MANTA_ESTATE, "a trial that is %s cannot be %s",
                           manta_trial_state_name(t->state), manta_trial_state_name(to));
  t->state = (uint8_t)to;
  return MANTA_OK;
}

// --- all of them ---------------------------------------------------------------------------------

manta_status manta__trials_add(struct manta__trials *all, const manta_value *config,
                               manta_error *err)
{
  if (all->count == all->cap) {
    uint64_t cap = all->cap ? 2 * all->cap : 16;
    struct manta__trial *at = manta__realloc(all->at, cap * sizeof *at);
    if (!at)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for a trial");
    all->at = at;
    all->cap = cap;
  }
  struct manta__trial *t = &all->at[all->count];
  *t = (struct manta__trial){.value = NAN, .top = NAN, .time = NAN, .from = MANTA__NO_TRIAL};
  MANTA_TRY(manta__packed_set(&t->config, config, err));
  all->count++;
  all->in_state[MANTA_TRIAL_PENDING]++;
  return MANTA_OK;
}

manta_status manta__trials_move(struct manta__trials *all, uint64_t number, manta_trial_state to,
                                manta_error *err)
{
  manta_trial_state from = all->at[number].state;
  manta_error why = MANTA_ERROR_INIT;
  if (manta__trial_move(&all->at[number], to, &why) < 0)
    return manta_error_set(err, why.status, "trial %llu: %s", (unsigned long long)number,
                           why.message);
  all->in_state[from]--;
  all->in_state[to]++;
  return MANTA_OK;
}

void manta__trials_fini(struct manta__trials *all)
{
  for (uint64_t i = 0; i < all->count; i++) {
    struct manta__trial *t = &all->at[i];
    struct manta__packed *values[] = {&t->config, &t->last,      &t->best,
                                      &t->result, &t->resources, &t->wanted};
    for (size_t k = 0; k < sizeof values / sizeof *values; k++)
      manta__packed_fini(values[k]);
    manta__free(t->point);
    manta__free(t->message);
    manta__free(t->dir);
  }
  manta__free(all->at);
  *all = (struct manta__trials){0};
}
