/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/searcher.c - what all searchers share: the samples, and who is called by which name.
 */
#include "tune/searcher.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/typo.h"

static const struct manta__searcher_ops *const all[] = {&manta__random_search, &manta__tpe_search,
                                                        &manta__cmaes_search, &manta__gp_search};
#define ALL (sizeof all / sizeof *all)

static const struct manta__searcher_ops *find(const char *name, manta_error *err)
{
  const struct manta__searcher_ops *near = all[0];
  for (size_t i = 0; i < ALL; i++) {
    if (strcmp(all[i]->name, name) == 0)
      return all[i];
    if (manta__typo_distance(name, all[i]->name) < manta__typo_distance(name, near->name))
      near = all[i];
  }
  manta_error_set(err, MANTA_EINVAL,
                  "no searcher is called \"%s\"\nhint: %s; there are random, tpe, cmaes, gp", name,
                  near->name);
  return NULL;
}

static const char *grid_in(const struct manta__space *sp)
{
  for (int i = 0; i < sp->count; i++)
    if (sp->dims[i].kind == MANTA__DIM_GRID)
      return sp->dims[i].path;
  return NULL;
}

manta_status manta__searcher_create(struct manta__searcher **out, const char *name,
                                    const struct manta__space *space,
                                    const struct manta__search_config *config, manta_error *err)
{
  const struct manta__searcher_ops *ops = find(name, err);
  if (!ops)
    return MANTA_EINVAL;
  const char *grid = grid_in(space);
  if (grid && !ops->takes_grids)
    return manta_error_set(err, MANTA_EINVAL,
                           "%s is a grid, which the searcher \"%s\" can't search\nhint: a choice, "
                           "or the searcher \"random\"",
                           grid, name);
  struct manta__searcher *s = manta__calloc(1, ops->size);
  if (!s)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a searcher");
  *manta__search_of(s) = (struct manta__search){.ops = ops, .space = space, .config = *config};
  manta_status st = ops->init ? ops->init(s, err) : MANTA_OK;
  if (st < 0) {
    manta__searcher_destroy(s);
    return st;
  }
  *out = s;
  return MANTA_OK;
}

void manta__searcher_destroy(struct manta__searcher *s)
{
  if (!s)
    return;
  struct manta__search *h = manta__search_of(s);
  if (h->ops->fini)
    h->ops->fini(s);
  for (int i = 0; i < h->count; i++)
    manta__free(h->samples[i].point);
  manta__free(h->samples);
  manta__free(s);
}

/* --- samples ---------------------------------------------------------------------------------- */

static manta_status keep(struct manta__search *h, uint64_t number, const double *point,
                         manta_error *err)
{
  if (h->count == h->cap) {
    int cap = h->cap ? 2 * h->cap : 64;
    struct manta__sample *samples = manta__realloc(h->samples, sizeof *samples * (size_t)cap);
    if (!samples)
      return manta_error_set(err, MANTA_ENOMEM, "no memory for a trial");
    h->samples = samples;
    h->cap = cap;
  }
  size_t n = sizeof *point * (size_t)h->space->count;
  double *copy = manta__malloc(n ? n : 1);
  if (!copy)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a trial");
  memcpy(copy, point, n);
  h->samples[h->count++] = (struct manta__sample){number, NAN, copy};
  return MANTA_OK;
}

manta_status manta__searcher_propose(struct manta__searcher *s, uint64_t number, double *point,
                                     manta_error *err)
{
  struct manta__search *h = manta__search_of(s);
  manta__space_draw_grid(h->space, number, point);
  MANTA_TRY(h->ops->propose(s, number, point, err));
  return keep(h, number, point, err);
}

/* Numbers rise, and the ones that end are most often among the last. */
static struct manta__sample *sample_of(struct manta__search *h, uint64_t number)
{
  int from = 0, to = h->count;
  while (from < to) {
    int mid = from + (to - from) / 2;
    if (h->samples[mid].number < number)
      from = mid + 1;
    else
      to = mid;
  }
  return from < h->count && h->samples[from].number == number ? &h->samples[from] : NULL;
}

void manta__searcher_observe(struct manta__searcher *s, uint64_t number, double value)
{
  struct manta__search *h = manta__search_of(s);
  struct manta__sample *found = sample_of(h, number);
  if (!found || !isnan(found->value))
    return;
  found->value = isfinite(value) ? value : INFINITY;
  h->ended++;
  if (h->ops->learn)
    h->ops->learn(s, found);
}

manta_status manta__searcher_add(struct manta__searcher *s, uint64_t number, const double *point,
                                 double value, manta_error *err)
{
  MANTA_TRY(keep(manta__search_of(s), number, point, err));
  manta__searcher_observe(s, number, value);
  return MANTA_OK;
}

void manta__search_draw(const struct manta__search *h, uint64_t number, double *point)
{
  manta__space_draw(h->space, h->config.seed, number, point);
}

static int better(const void *a, const void *b)
{
  const struct manta__sample *x = *(const struct manta__sample *const *)a;
  const struct manta__sample *y = *(const struct manta__sample *const *)b;
  if (x->value != y->value)
    return x->value < y->value ? -1 : 1;
  return x->number < y->number ? -1 : x->number > y->number;
}

int manta__search_rank(const struct manta__search *h, const struct manta__sample **order)
{
  int n = 0;
  for (int i = 0; i < h->count; i++)
    if (!isnan(h->samples[i].value))
      order[n++] = &h->samples[i];
  if (n)
    qsort(order, (size_t)n, sizeof *order, better);
  return n;
}

/* --- at random -------------------------------------------------------------------------------- */

static manta_status propose_random(struct manta__searcher *s, uint64_t number, double *point,
                                   manta_error *err)
{
  (void)err;
  manta__search_draw(manta__search_of(s), number, point);
  return MANTA_OK;
}

const struct manta__searcher_ops manta__random_search = {
    .name = "random",
    .size = sizeof(struct manta__search),
    .takes_grids = true,
    .propose = propose_random,
};
