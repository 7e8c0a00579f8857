/* SPDX-License-Identifier: Apache-2.0 */
#include "res/need.h"

#include <math.h>
#include <stdio.h>

#define MAX_FIGURE 1e15 // in thousandths still far from overflow: bytes are a fair named resource
#define MAX_CPUS   1e6

bool manta__units(double figure, int64_t *out)
{
  if (!(figure >= 0 && figure <= MAX_FIGURE)) // NaN is refused too
    return false;
  *out = llround(figure * MANTA__UNIT);
  if (*out == 0 && figure > 0)
    *out = 1;
  return true;
}

char *manta__units_text(int64_t units, char buf[32])
{
  snprintf(buf, 32, "%.15g", (double)units / MANTA__UNIT);
  return buf;
}

static manta_status read_cpus(struct manta__need *n, const struct manta__request *rq,
                              manta_error *err)
{
  double cpus = rq->strict || rq->cpus != 0 ? rq->cpus : 1;
  if (!manta__units(cpus, &n->cpus) || cpus > MAX_CPUS)
    return manta_error_set(err, MANTA_EINVAL, "a worker cannot have %g CPUs", cpus);
  n->strict = rq->strict || rq->pin;
  if (!rq->pin)
    return MANTA_OK;
  int64_t cores = n->cpus / MANTA__UNIT;
  if (cores < 1 || cores > MANTA__HOST_MAX_CPUS || n->cpus % MANTA__UNIT)
    return manta_error_set(err, MANTA_EINVAL,
                           "pinning needs a whole number of CPUs per worker, not %g", cpus);
  n->cores = (int)cores;
  return MANTA_OK;
}

static manta_status read_gpus(struct manta__need *n, const struct manta__request *rq,
                              manta_error *err)
{
  if (!manta__units(rq->gpus, &n->gpus))
    return manta_error_set(err, MANTA_EINVAL, "a worker cannot have %g GPUs", rq->gpus);
  if (n->gpus > MANTA__UNIT && n->gpus % MANTA__UNIT)
    return manta_error_set(err, MANTA_EINVAL,
                           "GPUs per worker must be a fraction below 1 or a whole number, not %g",
                           rq->gpus);
  return MANTA_OK;
}

static manta_status read_named(struct manta__need *n, const manta_value *map, manta_error *err)
{
  if (!map || map->type == MANTA_NIL)
    return MANTA_OK;
  if (map->type != MANTA_MAP || map->count > MANTA__LEDGER_MAX_NAMED)
    return manta_error_set(err, MANTA_EINVAL,
                           "resources per worker are a map of at most %d names to numbers",
                           MANTA__LEDGER_MAX_NAMED);
  for (uint32_t i = 0; i < map->count; i++) {
    const manta_pair *p = &map->u.pairs[i];
    int64_t units;
    if (!manta__units(manta_value_as_real(&p->value, NAN), &units))
      return manta_error_set(err, MANTA_EINVAL, "resource %s per worker is not a usable number",
                             p->key);
    if (units == 0)
      continue;
    n->named[n->named_count].name = p->key;
    n->named[n->named_count++].n = units;
  }
  return MANTA_OK;
}

manta_status manta__need_read(struct manta__need *out, const struct manta__request *rq,
                              manta_error *err)
{
  *out = (struct manta__need){0};
  MANTA_TRY(read_cpus(out, rq, err));
  MANTA_TRY(read_gpus(out, rq, err));
  return read_named(out, rq->custom, err);
}
