/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/hosts/lanes.c - a reduction between the ranks of one lane, one per host.
 *
 * Round k deals with chunk k of every host's part of the vector. In it a rank sends its nodes of
 * each chunk to the host that combines it, receives those of its own, combines, sends the result,
 * and receives the others'. ROUNDS rounds are under way at once.
 *
 * In place is fine: the result of a chunk is received only after our nodes of it were sent.
 */
#include "comm/hosts/hosts.h"

#include <string.h>

#define ROUNDS      3
#define CHUNK       (1u << 20)
#define CHUNK_LEAST (32u << 10)
#define ROOM_MOST   (64u << 20) /* of all rounds; more hosts make smaller chunks */

struct round {
  size_t k;
  bool active, combined;
  struct manta__net_req **part_out, **part_in, **result_out, **result_in; /* [hosts] */
  uint8_t *room; /* our nodes for each host, theirs for us, and a result that nobody needs */
  const void *own;
};

struct exchange {
  struct manta__hosts *h;
  const struct manta__lane_reduction *x;
  size_t chunk, wide, size; /* elements; bytes of an element, of a node and of the result */
  size_t rounds, next, over;
  int missing; /* a rank that is waited for */
  struct round round[ROUNDS];
};

// --- chunks -------------------------------------------------------------------------------------

static int rank_of(const struct exchange *e, int g)
{
  return manta__hosts_member(e->h, g, e->x->lane);
}

// Chunk k of the part of host g. How many elements: 0 if there are none.
static size_t chunk_of(const struct exchange *e, int g, size_t k, size_t *at)
{
  size_t from = e->x->bound[g], to = e->x->bound[g + 1];
  *at = from + k * e->chunk;
  if (*at >= to)
    return 0;
  return to - *at < e->chunk ? to - *at : e->chunk;
}

static bool wants_result(const struct exchange *e, int g)
{
  return e->x->to == MANTA__TO_ALL || e->x->to == g;
}

static size_t room_for(const struct exchange *e, int g)
{
  return (size_t)e->h->nodes_of[g] * e->chunk * e->wide;
}

// What we send to g, and what g sends us.
static uint8_t *room_out(const struct exchange *e, const struct round *r, int g)
{
  return r->room + (size_t)g * room_for(e, e->h->me);
}

static uint8_t *room_in(const struct exchange *e, const struct round *r, int g)
{
  uint8_t *p = r->room + (size_t)e->h->hosts * room_for(e, e->h->me);
  for (int i = 0; i < g; i++)
    p += room_for(e, i);
  return p;
}

static uint8_t *place_of(const struct exchange *e, const struct round *r, size_t at)
{
  return e->x->place(e->x->ctx, at, room_in(e, r, e->h->hosts));
}

static size_t room_bytes(const struct exchange *e)
{
  size_t n = (size_t)e->h->hosts * room_for(e, e->h->me) + e->chunk * e->size;
  for (int g = 0; g < e->h->hosts; g++)
    n += room_for(e, g);
  return n;
}

// --- a round ------------------------------------------------------------------------------------

// Our nodes of the chunk that host g combines.
static manta_status send_part(struct exchange *e, struct round *r, int g, manta_error *err)
{
  struct manta__hosts *h = e->h;
  size_t at, count = chunk_of(e, g, r->k, &at);
  const void *nodes;
  if (count == 0)
    return MANTA_OK;
  MANTA_TRY(e->x->part(e->x->ctx, at, count, room_out(e, r, g), &nodes, err));
  if (g == h->me) {
    r->own = nodes;
    return MANTA_OK;
  }
  size_t bytes = (size_t)h->nodes_of[h->me] * count * e->wide;
  return manta__hosts_send(h, rank_of(e, g), nodes, bytes, MANTA__KIND_PART, r->k, &r->part_out[g],
                           err);
}

static manta_status begin_round(struct exchange *e, struct round *r, size_t k, manta_error *err)
{
  struct manta__hosts *h = e->h;
  size_t at, count;
  r->k = k;
  r->active = true;
  r->combined = false;
  count = chunk_of(e, h->me, k, &at);
  for (int g = 0; g < h->hosts && count; g++)
    if (g != h->me)
      MANTA_TRY(manta__hosts_recv(h, rank_of(e, g), room_in(e, r, g), room_for(e, g),
                                  MANTA__KIND_PART, r->k, &r->part_in[g], err));
  for (int i = 1; i <= h->hosts; i++) // each begins with its neighbour, and ends with itself
    MANTA_TRY(send_part(e, r, (h->me + i) % h->hosts, err));
  return MANTA_OK;
}

static manta_status combine(struct exchange *e, struct round *r, manta_error *err)
{
  struct manta__hosts *h = e->h;
  size_t at, count = chunk_of(e, h->me, r->k, &at);
  r->combined = true;
  if (count == 0)
    return MANTA_OK;
  uint8_t *out = place_of(e, r, at);
  for (int g = 0; g < h->hosts; g++) {
    const uint8_t *from = g == h->me ? r->own : room_in(e, r, g);
    for (int i = 0; i < h->nodes; i++)
      if (h->node_host[i] == g) {
        h->in[i] = from;
        from += count * e->wide;
      }
  }
  manta__reduce_combine(out, h->in, h->node, h->nodes, count, e->x->type, e->x->op);
  for (int i = 1; i < h->hosts; i++) {
    int g = (h->me + i) % h->hosts;
    if (wants_result(e, g))
      MANTA_TRY(manta__hosts_send(h, rank_of(e, g), out, count * e->size, MANTA__KIND_RESULT, r->k,
                                  &r->result_out[g], err));
  }
  bool ours = e->x->to == MANTA__TO_SELF || wants_result(e, h->me);
  return ours && e->x->done ? e->x->done(e->x->ctx, at, count, err) : MANTA_OK;
}

// Whether request `req` with host g is over; notes who is missing if not.
static manta_status is_over(struct exchange *e, struct manta__net_req **req, int g, size_t bytes,
                            bool *over, manta_error *err)
{
  manta_status st = manta__hosts_test(e->h, req, rank_of(e, g), bytes, err);
  if (st == MANTA__NET_PENDING) {
    e->missing = rank_of(e, g);
    *over = false;
    return MANTA_OK;
  }
  return st;
}

static manta_status receive_parts(struct exchange *e, struct round *r, manta_error *err)
{
  bool over = true;
  size_t at, count = chunk_of(e, e->h->me, r->k, &at);
  for (int g = 0; g < e->h->hosts; g++)
    if (r->part_in[g])
      MANTA_TRY(
          is_over(e, &r->part_in[g], g, (size_t)e->h->nodes_of[g] * count * e->wide, &over, err));
  return over && !r->combined ? combine(e, r, err) : MANTA_OK;
}

// The result of host g's chunk: awaited once our part of it is gone, for it may go to its place.
static manta_status await_result(struct exchange *e, struct round *r, int g, bool *over,
                                 manta_error *err)
{
  size_t at, count = chunk_of(e, g, r->k, &at), bytes = count * e->size;
  bool was = r->part_out[g] != NULL, sent = true, came = true;
  if (was) {
    MANTA_TRY(is_over(e, &r->part_out[g], g, SIZE_MAX, &sent, err));
    if (sent && wants_result(e, e->h->me))
      MANTA_TRY(manta__hosts_recv(e->h, rank_of(e, g), place_of(e, r, at), bytes,
                                  MANTA__KIND_RESULT, r->k, &r->result_in[g], err));
  }
  if (r->result_in[g]) {
    MANTA_TRY(is_over(e, &r->result_in[g], g, bytes, &came, err));
    if (came && e->x->done)
      MANTA_TRY(e->x->done(e->x->ctx, at, count, err));
  }
  *over = *over && sent && came;
  return MANTA_OK;
}

static manta_status advance(struct exchange *e, struct round *r, manta_error *err)
{
  bool over = true;
  MANTA_TRY(receive_parts(e, r, err));
  for (int g = 0; g < e->h->hosts; g++) {
    if (g == e->h->me)
      continue;
    MANTA_TRY(await_result(e, r, g, &over, err));
    if (r->result_out[g])
      MANTA_TRY(is_over(e, &r->result_out[g], g, SIZE_MAX, &over, err));
  }
  if (over && r->combined) {
    r->active = false;
    e->over++;
  }
  return MANTA_OK;
}

// --- all of it ----------------------------------------------------------------------------------

static size_t choose_chunk(const struct exchange *e, size_t longest)
{
  struct exchange one = *e;
  one.chunk = 1;
  size_t per = room_bytes(&one) * ROUNDS, bytes = CHUNK;
  while (bytes > CHUNK_LEAST && bytes / e->wide * per > ROOM_MOST)
    bytes /= 2;
  size_t chunk = bytes / e->wide;
  return longest < chunk ? longest : chunk;
}

static manta_status prepare(struct exchange *e, manta_error *err)
{
  struct manta__hosts *h = e->h;
  size_t longest = 0, n = (size_t)h->hosts;
  for (int g = 0; g < h->hosts; g++) {
    size_t part = e->x->bound[g + 1] - e->x->bound[g];
    longest = part > longest ? part : longest;
  }
  if (longest == 0)
    return MANTA_OK;
  e->size = manta_dtype_bytes(e->x->type);
  e->wide = manta_dtype_bytes(manta__reduce_wide(e->x->type));
  e->chunk = choose_chunk(e, longest);
  e->rounds = (longest + e->chunk - 1) / e->chunk;
  MANTA_TRY(manta__hosts_room(h, ROUNDS * 4 * n, ROUNDS * room_bytes(e), err));
  for (size_t i = 0; i < ROUNDS; i++) {
    struct manta__net_req **req = h->req + i * 4 * n;
    e->round[i] = (struct round){.part_out = req,
                                 .part_in = req + n,
                                 .result_out = req + 2 * n,
                                 .result_in = req + 3 * n,
                                 .room = h->room + i * room_bytes(e)};
  }
  return MANTA_OK;
}

static manta_status step(struct exchange *e, manta_error *err)
{
  for (int i = 0; i < ROUNDS; i++) {
    struct round *r = &e->round[i];
    if (r->active)
      MANTA_TRY(advance(e, r, err));
    if (!r->active && e->next < e->rounds && e->next % ROUNDS == (size_t)i)
      MANTA_TRY(begin_round(e, r, e->next++, err));
  }
  return MANTA_OK;
}

manta_status manta__hosts_reduce_lane(struct manta__hosts *h, const struct manta__lane_reduction *x,
                                      manta_error *err)
{
  struct exchange e = {.h = h, .x = x, .missing = h->rank};
  int idle = 0;
  MANTA_TRY(prepare(&e, err));
  while (e.over < e.rounds) {
    MANTA_TRY(step(&e, err));
    if (e.over < e.rounds)
      MANTA_TRY(manta__hosts_turn(h, e.missing, &idle, err));
  }
  return MANTA_OK;
}
