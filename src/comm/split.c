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

struct offer { // of a rank: memory for the team of its host, and a number that no group of its has
  uint64_t place, group;
};

// The first member of a new group on our host; how many are there in *n.
static int first_here(const manta_comm *c, const struct member *m, int size, int *n)
{
  int first = -1;
  *n = 0;
  for (int i = 0; i < size; i++)
    if (manta__comm_is_here(c->fabric, c->run[m[i].rank])) {
      first = first < 0 ? m[i].rank : first;
      ++*n;
    }
  return first;
}

// Whether member i is the first of its host.
static bool starts_host(const manta_comm *c, const struct member *m, int i)
{
  const struct manta__span *s = c->fabric->host.span;
  for (int k = 0; k < i; k++)
    if (!s || s->host[c->run[m[k].rank]] == s->host[c->run[m[i].rank]])
      return false;
  return true;
}

// Everybody's offer, by rank; those of who does not take part are zeros.
typedef manta_status (*gather_fn)(manta_comm *c, const struct member *m, int size,
                                  struct offer *mine, struct offer *all, manta_error *err);

static manta_status gather_from_all(manta_comm *c, const struct member *m, int size,
                                    struct offer *mine, struct offer *all, manta_error *err)
{
  (void)m, (void)size;
  return manta_comm_allgather(c, mine, all, 2, MANTA_U64, err);
}

// The first of a group on its host finds memory there; all take the same number for all groups.
static manta_status agree(manta_comm *c, const struct member *m, int size, gather_fn gather,
                          struct offer *all, struct offer *out, manta_error *err)
{
  struct manta__fabric *f = c->fabric;
  int n, first = first_here(c, m, size, &n);
  *out = (struct offer){.place = MANTA__NOWHERE, .group = f->next_group};
  if (first == c->rank && n > 0)
    manta__heap_take(f, manta__team_bytes(n), &out->place, NULL);
  MANTA_TRY(gather(c, m, size, out, all, err));
  for (int r = 0; r < c->size; r++)
    out->group = all[r].group > out->group ? all[r].group : out->group;
  f->next_group = (uint32_t)out->group + 1;
  if (size == 0)
    return MANTA_OK;
  if (out->group > UINT16_MAX)
    return manta_error_set(err, MANTA_ENOROOM, "more than %d groups", UINT16_MAX);
  for (int i = 0; i < size; i++) // on any host: all of the group return alike
    if (all[m[i].rank].place == MANTA__NOWHERE && starts_host(c, m, i))
      return manta_error_set(err, MANTA_ENOMEM, "no shared memory for a group of %d ranks", size);
  out->place = all[first].place;
  return MANTA_OK;
}

// The others have the group, or will: to those of our host we left it.
static void stay_out(manta_comm *c, const struct member *m, uint64_t at)
{
  struct manta__line *line = (struct manta__line *)(c->fabric->base + at);
  for (int i = 0; m[i].rank != c->rank; i++)
    line += manta__comm_is_here(c->fabric, c->run[m[i].rank]);
  atomic_store(&line->left, 1);
  for (int r = 0; r < c->team.size; r++)
    manta__team_ring(&c->team, r);
}

static manta_status make_group(manta_comm *c, const struct member *m, int n, const struct offer *at,
                               manta_comm **out, manta_error *err)
{
  int *run = manta__calloc((size_t)n, sizeof *run);
  int rank = 0;
  for (int i = 0; i < n; i++) {
    if (run)
      run[i] = c->run[m[i].rank];
    rank = m[i].rank == c->rank ? i : rank;
  }
  manta_status st =
      run ? manta__comm_make(out, c->fabric, at->place, rank, n, run, (uint32_t)at->group, err)
          : manta_error_set(err, MANTA_ENOMEM, "no memory for a communicator");
  manta__free(run);
  if (st == MANTA_OK)
    (*out)->team.timeout_ns = (int64_t)c->team.timeout_ns;
  else
    stay_out(c, m, at->place);
  return st;
}

static manta_status split(manta_comm *c, struct wish mine, struct wish *wish, struct member *m,
                          struct offer *offers, manta_comm **out, manta_error *err)
{
  struct offer at;
  MANTA_TRY(manta_comm_allgather(c, &mine, wish, 2, MANTA_I32, err));
  int n = mine.color < 0 ? 0 : find_members(m, wish, c->size, mine.color);
  MANTA_TRY(agree(c, m, n, gather_from_all, offers, &at, err));
  return n == 0 ? MANTA_OK : make_group(c, m, n, &at, out, err);
}

manta_status manta_comm_split(manta_comm *c, int color, int key, manta_comm **out, manta_error *err)
{
  *out = NULL;
  MANTA_TRY(manta__comm_usable(c, err));
  size_t n = (size_t)c->size;
  struct wish *wish = manta__calloc(n, sizeof *wish);
  struct member *m = manta__calloc(n, sizeof *m);
  struct offer *offers = manta__calloc(n, sizeof *offers);
  // A rank without memory would leave the others waiting: it takes part in nothing, and returns.
  manta_status st = wish && m && offers
                        ? split(c, (struct wish){color, key}, wish, m, offers, out, err)
                        : manta_error_set(err, MANTA_ENOMEM, "no memory to split a communicator");
  manta__free(wish);
  manta__free(m);
  manta__free(offers);
  return st;
}

// --- of a list ----------------------------------------------------------------------------------

static manta_status move(manta_comm *c, enum manta__call call, void *buf, size_t n, int peer,
                         manta_error *err)
{
  struct manta__task t = {.call = call,
                          .send = buf,
                          .recv = buf,
                          .count = n * 2,
                          .type = MANTA_U64,
                          .root = peer,
                          .tag = MANTA__TAG_GROUP};
  return manta__mover_run(c, &t, err);
}

// Only the members speak, by messages of their own: to the first of them, and back.
static manta_status gather_from_members(manta_comm *c, const struct member *m, int size,
                                        struct offer *mine, struct offer *all, manta_error *err)
{
  size_t n = (size_t)c->size;
  if (m[0].rank != c->rank) {
    MANTA_TRY(move(c, MANTA__CALL_SEND, mine, 1, m[0].rank, err));
    return move(c, MANTA__CALL_RECV, all, n, m[0].rank, err);
  }
  all[c->rank] = *mine;
  for (int i = 1; i < size; i++)
    MANTA_TRY(move(c, MANTA__CALL_RECV, &all[m[i].rank], 1, m[i].rank, err));
  for (int i = 1; i < size; i++)
    MANTA_TRY(move(c, MANTA__CALL_SEND, all, n, m[i].rank, err));
  return MANTA_OK;
}

static manta_status check_list(const manta_comm *c, const int *ranks, int n, manta_error *err)
{
  bool ours = false;
  for (int i = 0; i < n; i++) {
    ours = ours || ranks[i] == c->rank;
    if (ranks[i] < 0 || ranks[i] >= c->size)
      return manta_error_set(err, MANTA_EINVAL, "a group names rank %d, and there are %d ranks",
                             ranks[i], c->size);
    for (int k = 0; k < i; k++)
      if (ranks[k] == ranks[i])
        return manta_error_set(err, MANTA_EINVAL, "a group names rank %d twice", ranks[i]);
  }
  return ours ? MANTA_OK
              : manta_error_set(err, MANTA_EINVAL, "rank %d is not in its group", c->rank);
}

manta_status manta_comm_group(manta_comm *c, const int *ranks, int n, manta_comm **out,
                              manta_error *err)
{
  *out = NULL;
  MANTA_TRY(manta__comm_usable(c, err));
  MANTA_TRY(check_list(c, ranks, n, err));
  struct offer at, *offers = manta__calloc((size_t)c->size, sizeof *offers);
  struct member *m = manta__calloc((size_t)n, sizeof *m);
  for (int i = 0; m && i < n; i++)
    m[i] = (struct member){i, ranks[i]};
  manta_status st = m && offers ? agree(c, m, n, gather_from_members, offers, &at, err)
                                : manta_error_set(err, MANTA_ENOMEM, "no memory for a group");
  if (st == MANTA_OK)
    st = make_group(c, m, n, &at, out, err);
  manta__free(m);
  manta__free(offers);
  return st;
}

void manta_comm_free(manta_comm *c)
{
  if (!c || c->is_world)
    return;
  struct manta__fabric *f = c->fabric;
  uint64_t at = (uint64_t)((uint8_t *)c->team.line - f->base);
  bool first = c->team.rank == 0;
  int n = c->team.size;
  manta__comm_end(c);
  if (first)
    manta__heap_bury(f, at, n);
}
