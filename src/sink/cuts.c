/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/cuts.h"

#include <string.h>

#include "base/alloc.h"
#include "event/record.h"
#include "event/row.h"

void manta__cuts_fini(struct manta__cuts *c)
{
  manta__free(c->cut);
  *c = (struct manta__cuts){0};
}

// The first of this attempt or a later one: of those, it goes back farthest.
static size_t find(const struct manta__cuts *c, uint32_t attempt)
{
  size_t lo = 0, hi = c->count;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (c->cut[mid].attempt >= attempt)
      hi = mid;
    else
      lo = mid + 1;
  }
  return lo;
}

bool manta__cuts_has(const struct manta__cuts *c, uint32_t attempt, int64_t to)
{
  size_t at = find(c, attempt);
  return at < c->count && c->cut[at].to <= to;
}

manta_status manta__cuts_add(struct manta__cuts *c, uint32_t attempt, int64_t to, manta_error *err)
{
  size_t hi = find(c, attempt), lo = hi;
  while (lo > 0 && c->cut[lo - 1].to >= to)
    lo--;
  hi += hi < c->count && c->cut[hi].attempt == attempt;
  if (c->count >= MANTA__CUTS_MAX)
    return manta_error_set(err, MANTA_ETOOBIG, "run.log has more than %d rewinds", MANTA__CUTS_MAX);
  struct manta__rewind *p = manta__realloc(c->cut, (c->count + 1) * sizeof *p);
  if (!p)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for the rewinds of a log");
  c->cut = p;
  memmove(p + lo + 1, p + hi, (c->count - hi) * sizeof *p);
  p[lo] = (struct manta__rewind){attempt, to};
  c->count += 1 + lo - hi;
  return MANTA_OK;
}

bool manta__cuts_void(const struct manta__cuts *c, const struct manta__record *h,
                      const uint8_t *payload)
{
  if (c->count == 0 || c->cut[c->count - 1].attempt <= h->id.attempt)
    return false;
  size_t at = find(c, h->id.attempt + 1);
  return manta__row_iteration(payload, h->len) > c->cut[at].to;
}
