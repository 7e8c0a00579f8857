/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/split.c - groups: everybody tells colour and key, the first rank of each new group finds
 * memory for it in its part of the heap, and tells where.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "comm/comm.h"

struct wish {
  int32_t color, key;
};

struct member {
  int32_t key, rank;
};

static int by_key(const void *a, const void *b)
{
  const struct member *x = a, *y = b;
  if (x->key != y->key)
    return x->key < y->key ? -1 : 1;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

// The ranks of our colour in their new order; how many there are.
static int find_members(struct member *out, const struct wish *wish, int n, int32_t color)
{
  int count = 0;
  for (int r = 0; r < n; r++)
    if (wish[r].color == color)
      out[count++] = (struct member){wish[r].key, r};
  qsort(out, (size_t)count, sizeof *out, by_key);
  return count;
}

// Everybody tells a place; those of a group take the one of its first.
static manta_status agree_on_place(manta_comm *c, const struct member *m, int n, uint64_t *all,
                                   manta_error *err)
{
  uint64_t at = MANTA__NOWHERE;
  if (n > 0 && m[0].rank == c->rank)
    manta__heap_take(c->fabric, manta__team_bytes(n), &at, NULL);
  MANTA_TRY(manta_comm_allgather(c, &at, all, 1, MANTA_U64, err));
  if (n > 0 && all[m[0].rank] == MANTA__NOWHERE)
    return manta_error_set(err, MANTA_ENOMEM, "no shared memory for a group of %d ranks", n);
  return MANTA_OK;
}

// The others have the group, or will: to them we left it.
static void stay_out(manta_comm *c, const struct member *m, int n, uint64_t at, int rank)
{
  struct manta__line *line = (struct manta__line *)(c->fabric->base + at);
  atomic_store(&line[rank].left, 1);
  for (int i = 0; i < n; i++)
    manta__team_ring(&c->team, m[i].rank);
}

static manta_status make_group(manta_comm *c, const struct member *m, int n, uint64_t at,
                               manta_comm **out, manta_error *err)
{
  int *world = manta__calloc((size_t)n, sizeof *world);
  int rank = 0;
  for (int i = 0; i < n; i++) {
    if (world)
      world[i] = c->team.world[m[i].rank];
    rank = m[i].rank == c->rank ? i : rank;
  }
  manta_status st = world ? manta__comm_make(out, c->fabric, at, rank, n, world, err)
                          : manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator");
  manta__free(world);
  if (st == MANTA_OK)
    (*out)->team.timeout_ns = (int64_t)c->team.timeout_ns;
  else
    stay_out(c, m, n, at, rank);
  return st;
}

static manta_status split(manta_comm *c, struct wish mine, struct wish *wish, struct member *m,
                          uint64_t *place, manta_comm **out, manta_error *err)
{
  MANTA_TRY(manta_comm_allgather(c, &mine, wish, 2, MANTA_I32, err));
  int n = mine.color < 0 ? 0 : find_members(m, wish, c->size, mine.color);
  MANTA_TRY(agree_on_place(c, m, n, place, err));
  return n == 0 ? MANTA_OK : make_group(c, m, n, place[m[0].rank], out, err);
}

manta_status manta_comm_split(manta_comm *c, int color, int key, manta_comm **out, manta_error *err)
{
  size_t n = (size_t)c->size;
  struct wish *wish = manta__calloc(n, sizeof *wish);
  struct member *m = manta__calloc(n, sizeof *m);
  uint64_t *place = manta__calloc(n, sizeof *place);
  *out = NULL;
  // A rank without memory would leave the others waiting: it takes part in nothing, and returns.
  manta_status st = wish && m && place
                        ? split(c, (struct wish){color, key}, wish, m, place, out, err)
                        : manta_error_set(err, MANTA_ENOMEM, "no memory to split a communicator");
  manta__free(wish);
  manta__free(m);
  manta__free(place);
  return st;
}

void manta_comm_free(manta_comm *c)
{
  if (!c || c->world)
    return;
  struct manta__fabric *f = c->fabric;
  uint64_t at = (uint64_t)((uint8_t *)c->team.line - f->base);
  bool first = c->rank == 0;
  int n = c->size;
  manta__comm_end(c);
  if (first)
    manta__heap_bury(f, at, n);
}
