/* SPDX-License-Identifier: Apache-2.0 */
#include "res/stock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "res/need.h"

// --- What the host has ---------------------------------------------------------------------------

static manta_status init_cpus(struct manta__stock *s, const struct manta__ledger_config *cfg,
                              manta_error *err)
{
  const struct manta__host *h = cfg->host;
  size_t n = (size_t)h->cpu_count;
  s->cores = manta__calloc(n, sizeof *s->cores);
  s->core_used = manta__calloc(n, sizeof *s->core_used);
  if (!s->cores || !s->core_used)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the ledger");
  memcpy(s->cores, h->cpu_ids, n * sizeof *s->cores);
  s->core_count = h->cpu_count;
  if (cfg->declares_cpus) {
    snprintf(s->cpu_note, sizeof s->cpu_note, "declared by MANTA_NUM_CPUS");
    manta__units(cfg->num_cpus, &s->cpus);
    return MANTA_OK;
  }
  char quota[32] = "none";
  if (h->quota > 0)
    snprintf(quota, sizeof quota, "%.4g", h->quota);
  snprintf(s->cpu_note, sizeof s->cpu_note, "affinity %d, cgroup quota %s", h->cpu_count, quota);
  manta__units(h->cpus, &s->cpus);
  return MANTA_OK;
}

// How many GPUs there are to be: those detected, or as many as were declared.
static void count_gpus(struct manta__stock *s, const struct manta__ledger_config *cfg)
{
  s->gpu_count = cfg->gpus ? cfg->gpus->count : 0;
  snprintf(s->gpu_note, sizeof s->gpu_note, "%s",
           cfg->gpus && cfg->gpus->why[0] ? cfg->gpus->why : "by NVML");
  if (!cfg->declares_gpus)
    return;
  s->gpu_count = (int)cfg->num_gpus;
  snprintf(s->gpu_note, sizeof s->gpu_note, "declared by MANTA_NUM_GPUS");
}

manta_status manta__stock_add_gpus(struct manta__stock *s, const struct manta__ledger_config *cfg,
                                   manta_error *err)
{
  count_gpus(s, cfg);
  if (s->gpu_count == 0)
    return MANTA_OK;
  s->gpus = manta__calloc((size_t)s->gpu_count, sizeof *s->gpus);
  if (!s->gpus)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the ledger");
  int next = 0; // declared GPUs that are not there count on behind the real ones
  for (int i = 0; i < s->gpu_count; i++) {
    struct manta__stock_gpu *g = &s->gpus[i];
    if (cfg->gpus && i < cfg->gpus->count) {
      g->index = cfg->gpus->gpu[i].index;
      snprintf(g->id, sizeof g->id, "%s", cfg->gpus->gpu[i].id);
    } else {
      g->index = next;
      snprintf(g->id, sizeof g->id, "%d", next);
    }
    next = g->index >= next ? g->index + 1 : next;
  }
  return MANTA_OK;
}

static manta_status add_named(struct manta__stock *s, const manta_pair *p, manta_error *err)
{
  struct manta__stock_named *r = &s->named[s->named_count];
  if (strcasecmp(p->key, "cpu") == 0 || strcasecmp(p->key, "gpu") == 0)
    return manta_error_set(err, MANTA_EINVAL,
                           "MANTA_RESOURCES names %s: use MANTA_NUM_CPUS and MANTA_NUM_GPUS",
                           p->key);
  if (!manta__units(manta_value_as_real(&p->value, NAN), &r->total))
    return manta_error_set(err, MANTA_EINVAL, "MANTA_RESOURCES: %s is not a number of at least 0",
                           p->key);
  r->name = manta__strdup(p->key);
  if (!r->name)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the ledger");
  s->named_count++;
  return MANTA_OK;
}

static manta_status add_all_named(struct manta__stock *s, const manta_value *map, manta_error *err)
{
  if (map->type != MANTA_MAP || map->count > MANTA__LEDGER_MAX_NAMED)
    return manta_error_set(err, MANTA_EINVAL,
                           "MANTA_RESOURCES is not a map of at most %d names to numbers, "
                           "as in {\"disk\": 2}",
                           MANTA__LEDGER_MAX_NAMED);
  for (uint32_t i = 0; i < map->count; i++)
    MANTA_TRY(add_named(s, &map->u.pairs[i], err));
  return MANTA_OK;
}

static manta_status init_named(struct manta__stock *s, const char *json, manta_error *err)
{
  if (!json || !*json)
    return MANTA_OK;
  manta_value map = {0};
  manta_error why = MANTA_ERROR_INIT;
  manta_status st = manta_value_from_json(&map, json, strlen(json), &why);
  if (st == MANTA_ENOMEM)
    manta_error_set(err, st, "%s", why.message);
  else if (st < 0)
    st = manta_error_set(err, MANTA_EINVAL, "MANTA_RESOURCES is not JSON: %.800s", why.message);
  else
    st = add_all_named(s, &map, err);
  manta_value_fini(&map);
  return st;
}

manta_status manta__stock_init(struct manta__stock *s, const struct manta__ledger_config *cfg,
                               manta_error *err)
{
  *s = (struct manta__stock){0};
  manta_status st = init_cpus(s, cfg, err);
  if (st >= 0)
    st = manta__stock_add_gpus(s, cfg, err);
  if (st >= 0)
    st = init_named(s, cfg->resources, err);
  if (st >= 0 && cfg->lease_dirfd >= 0)
    st = manta__lease_open(&s->lease, cfg->lease_dirfd, err);
  if (st < 0)
    manta__stock_fini(s);
  return st;
}

void manta__stock_fini(struct manta__stock *s)
{
  manta__lease_close(s->lease);
  for (int i = 0; i < s->named_count; i++)
    manta__free(s->named[i].name);
  manta__free(s->gpus);
  manta__free(s->core_used);
  manta__free(s->cores);
  *s = (struct manta__stock){0};
}

// --- CPUs ----------------------------------------------------------------------------------------

static struct manta__lease_pool pool_of(const struct manta__stock *s)
{
  return (struct manta__lease_pool){s->cores, s->core_count, s->cpus};
}

manta_status manta__stock_take_cpus(struct manta__stock *s, int64_t n, bool strict)
{
  if (strict && n > s->cpus - s->cpus_used)
    return MANTA_ENOROOM;
  if (strict && s->lease) {
    struct manta__lease_pool pool = pool_of(s);
    MANTA_TRY(manta__lease_hold(s->lease, &pool, manta__lease_held(s->lease) + n, NULL));
  }
  s->cpus_used += n;
  return MANTA_OK;
}

void manta__stock_give_cpus(struct manta__stock *s, int64_t n, bool strict)
{
  s->cpus_used -= n;
  if (strict && s->lease) {
    struct manta__lease_pool pool = pool_of(s);
    manta__lease_hold(s->lease, &pool, manta__lease_held(s->lease) - n, NULL);
  }
}

// --- Cores ---------------------------------------------------------------------------------------

bool manta__stock_take_cores(struct manta__stock *s, int n, int *ids)
{
  int got = 0;
  for (int i = 0; i < s->core_count && got < n; i++) {
    if (s->core_used[i])
      continue;
    if (s->lease && manta__lease_take_cpus(s->lease, &s->cores[i], 1, 1, &ids[got]) != 1)
      continue;
    ids[got++] = s->cores[i];
    s->core_used[i] = true;
  }
  if (got < n)
    manta__stock_give_cores(s, ids, got);
  return got == n;
}

void manta__stock_give_cores(struct manta__stock *s, const int *ids, int n)
{
  for (int k = 0; k < n; k++)
    for (int i = 0; i < s->core_count; i++)
      if (s->cores[i] == ids[k])
        s->core_used[i] = false;
  if (s->lease)
    manta__lease_release_cpus(s->lease, ids, n);
}

int manta__stock_free_cores(const struct manta__stock *s)
{
  int n = 0;
  for (int i = 0; i < s->core_count; i++)
    if (!s->core_used[i] &&
        (!s->lease || manta__lease_count_free_cpus(s->lease, &s->cores[i], 1) == 1))
      n++;
  return n;
}

// --- GPUs ----------------------------------------------------------------------------------------

int manta__stock_gpus_of(int64_t units)
{
  return (int)((units + MANTA__UNIT - 1) / MANTA__UNIT);
}

static bool put_on(struct manta__stock *s, int i, int64_t units)
{
  struct manta__stock_gpu *g = &s->gpus[i];
  int unused;
  if (units > MANTA__UNIT - g->used)
    return false;
  if (g->used == 0 && s->lease && manta__lease_take_gpus(s->lease, &g->index, 1, 1, &unused) != 1)
    return false;
  g->used += units;
  return true;
}

static void take_off(struct manta__stock *s, int i, int64_t units)
{
  struct manta__stock_gpu *g = &s->gpus[i];
  g->used -= units;
  if (g->used == 0 && s->lease)
    manta__lease_release_gpus(s->lease, &g->index, 1);
}

static bool take_part(struct manta__stock *s, int64_t units, int *at)
{
  for (int fresh = 0; fresh < 2; fresh++)
    for (int i = 0; i < s->gpu_count; i++)
      if ((s->gpus[i].used == 0) == (fresh == 1) && put_on(s, i, units)) {
        *at = i;
        return true;
      }
  return false;
}

bool manta__stock_take_gpus(struct manta__stock *s, int64_t units, int *at)
{
  if (units < MANTA__UNIT)
    return units == 0 || take_part(s, units, at);
  int want = manta__stock_gpus_of(units), got = 0;
  for (int i = 0; i < s->gpu_count && got < want; i++)
    if (put_on(s, i, MANTA__UNIT))
      at[got++] = i;
  if (got == want)
    return true;
  while (got > 0)
    take_off(s, at[--got], MANTA__UNIT);
  return false;
}

void manta__stock_give_gpus(struct manta__stock *s, int64_t units, const int *at)
{
  int n = manta__stock_gpus_of(units);
  for (int i = 0; i < n; i++)
    take_off(s, at[i], units < MANTA__UNIT ? units : MANTA__UNIT);
}

int64_t manta__stock_free_gpus(const struct manta__stock *s)
{
  int64_t units = 0;
  for (int i = 0; i < s->gpu_count; i++) {
    const struct manta__stock_gpu *g = &s->gpus[i];
    if (g->used > 0 || !s->lease || manta__lease_count_free_gpus(s->lease, &g->index, 1) == 1)
      units += MANTA__UNIT - g->used;
  }
  return units;
}

// --- The rest ------------------------------------------------------------------------------------

int manta__stock_find(const struct manta__stock *s, const char *name)
{
  for (int i = 0; i < s->named_count; i++)
    if (strcmp(s->named[i].name, name) == 0)
      return i;
  return -1;
}

int64_t manta__stock_others_cpus(const struct manta__stock *s)
{
  if (!s->lease)
    return 0;
  struct manta__lease_pool pool = pool_of(s);
  return s->cpus - manta__lease_count_free(s->lease, &pool) - manta__lease_held(s->lease);
}

int64_t manta__stock_free_cpus(const struct manta__stock *s)
{
  int64_t mine = s->cpus - s->cpus_used;
  if (s->lease) {
    struct manta__lease_pool pool = pool_of(s);
    int64_t leasable = manta__lease_count_free(s->lease, &pool);
    mine = leasable < mine ? leasable : mine;
  }
  return mine > 0 ? mine : 0;
}
