/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/hosts/reduction.c - reductions of a group that spans hosts.
 *
 * Small ones ride with the description of the call. Large ones go straight from the buffers of a
 * host where its ranks reach them (one rank, or all of them in the shared heap), and else piece by
 * piece through the staging buffers.
 */
#include <string.h>

#include "base/alloc.h"
#include "comm/hosts/hosts.h"

// Parts of a vector: i of n, in whole cache lines.
static size_t part_from(size_t count, size_t i, size_t n, size_t size)
{
  size_t line = 64 / size, per = ((count + n - 1) / n + line - 1) / line * line;
  return per * i < count ? per * i : count;
}

// --- reductions: the small ones -----------------------------------------------------------------

// The nodes of our host out of t->in, which has the team's `count` elements each.
static void make_nodes(struct manta__hosts *h, uint8_t *out, size_t stride, size_t count,
                       const struct manta__task *task)
{
  for (int i = 0; i < h->nodes; i++) {
    struct manta__tree_node n = h->node[i];
    if (h->node_host[i] != h->me)
      continue;
    manta__reduce_partial(out, h->team->in + h->local[n.from], n.to - n.from, count, task->type,
                          task->op);
    out += stride;
  }
}

static size_t load_nodes(struct manta__hosts *h, const struct manta__task *task, uint8_t *out)
{
  size_t bytes = task->count * manta_dtype_bytes(manta__reduce_wide(task->type));
  for (int r = 0; r < h->team->size; r++)
    h->team->in[r] = manta__team_staging(h->team, r);
  make_nodes(h, out, bytes, task->count, task);
  return bytes * (size_t)h->nodes_of[h->me];
}

static void take_nodes(struct manta__hosts *h, const struct manta__task *task)
{
  size_t bytes = task->count * manta_dtype_bytes(manta__reduce_wide(task->type));
  for (int g = 0; g < h->hosts; g++) {
    const uint8_t *ride = manta__hosts_ride(h, g);
    for (int i = 0; i < h->nodes; i++)
      if (h->node_host[i] == g) {
        h->in[i] = ride;
        ride += bytes;
      }
  }
  manta__reduce_combine(h->team->result, h->in, h->node, h->nodes, task->count, task->type,
                        task->op);
}

static manta_status reduce_small(struct manta__hosts *h, const struct manta__task *task,
                                 manta_error *err)
{
  struct manta__opening o = {.task = task, .load = load_nodes, .take = take_nodes};
  size_t bytes = manta__task_bytes(task);
  manta__team_slot(h->team, bytes);
  if (bytes)
    memcpy(manta__team_staging(h->team, h->team->rank), task->send, bytes);
  manta_status st = manta__hosts_open(h, &o, err);
  bool wanted = task->call == MANTA__CALL_ALLREDUCE || task->root == h->rank;
  if (st == MANTA_OK && wanted && bytes)
    memcpy(task->recv, h->team->result, bytes);
  h->team->turn++;
  return st;
}

// --- reductions: straight from the buffers of the host ------------------------------------------

struct reduction {
  struct manta__hosts *h;
  const struct manta__task *task;
  size_t size, wide; // bytes of an element, and of one in a node
};

// One rank per host: its buffer is the node.
static manta_status part_alone(void *ctx, size_t at, size_t count, void *room, const void **out,
                               manta_error *err)
{
  struct reduction *d = ctx;
  const void *own = (const uint8_t *)d->task->send + at * d->size;
  *out = own;
  if (d->wide == d->size)
    return MANTA_OK;
  manta__reduce_partial(room, &own, 1, count, d->task->type, d->task->op);
  *out = room;
  return MANTA_OK;
}

// Out of the buffers of all ranks of the host, which lie in its heap.
static manta_status part_direct(void *ctx, size_t at, size_t count, void *room, const void **out,
                                manta_error *err)
{
  struct reduction *d = ctx;
  struct manta__team *t = d->h->team;
  for (int r = 0; r < t->size; r++)
    t->in[r] = t->fabric->base + manta__team_desc(t, r)->send_at + at * d->size;
  make_nodes(d->h, room, count * d->wide, count, d->task);
  *out = room;
  return MANTA_OK;
}

static uint8_t *place_direct(void *ctx, size_t at, uint8_t *spare)
{
  struct reduction *d = ctx;
  bool wanted = d->task->call != MANTA__CALL_REDUCE || d->task->root == d->h->rank;
  if (d->task->call == MANTA__CALL_REDUCE_SCATTER) // we combine our own block only
    at -= (size_t)d->h->rank * d->task->count;
  return wanted ? (uint8_t *)d->task->recv + at * d->size : spare;
}

// The result goes to each of them.
static manta_status done_in_heap(void *ctx, size_t at, size_t count, manta_error *err)
{
  struct reduction *d = ctx;
  struct manta__team *t = d->h->team;
  const uint8_t *from = (const uint8_t *)d->task->recv + at * d->size;
  for (int r = 0; r < t->size; r++)
    if (r != t->rank)
      memcpy(t->fabric->base + manta__team_desc(t, r)->recv_at + at * d->size, from,
             count * d->size);
  return MANTA_OK;
}

// bound[g]: where the part of host g begins in [from, to).
static void share_out(struct manta__hosts *h, size_t *bound, size_t from, size_t to, size_t size)
{
  for (int g = 0; g <= h->hosts; g++)
    bound[g] = from + part_from(to - from, (size_t)g, (size_t)h->hosts, size);
}

static manta_status exchange_lane(struct manta__hosts *h, struct manta__lane_reduction *x,
                                  size_t count, size_t size, manta_error *err)
{
  size_t lane = (size_t)h->team->rank, lanes = (size_t)h->lanes;
  size_t *bound = manta__calloc((size_t)h->hosts + 1, sizeof *bound);
  if (!bound)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a reduction");
  share_out(h, bound, part_from(count, lane, lanes, size), part_from(count, lane + 1, lanes, size),
            size);
  x->lane = h->team->rank;
  x->bound = bound;
  manta_status st = manta__hosts_reduce_lane(h, x, err);
  manta__free(bound);
  return st;
}

static manta_status reduce_direct(struct manta__hosts *h, struct reduction *d, manta_error *err)
{
  bool alone = h->team->size == 1;
  struct manta__lane_reduction x = {
      .type = d->task->type,
      .op = d->task->op,
      .to = d->task->call == MANTA__CALL_REDUCE ? h->host[d->task->root] : MANTA__TO_ALL,
      .ctx = d,
      .part = alone ? part_alone : part_direct,
      .place = place_direct,
      .done = alone ? NULL : done_in_heap};
  if (h->team->rank < h->lanes)
    MANTA_TRY(exchange_lane(h, &x, d->task->count, d->size, err));
  return manta__team_meet_verified(h->team, err);
}

// --- reductions: through the staging buffers ----------------------------------------------------

struct staged_piece {
  struct manta__hosts *h;
  const struct manta__task *task;
  size_t size, wide;
};

static manta_status part_staged(void *ctx, size_t at, size_t count, void *room, const void **out,
                                manta_error *err)
{
  struct staged_piece *p = ctx;
  struct manta__team *t = p->h->team;
  for (int r = 0; r < t->size; r++)
    t->in[r] = manta__team_staging(t, r) + at * p->size;
  make_nodes(p->h, room, count * p->wide, count, p->task);
  *out = room;
  return MANTA_OK;
}

static uint8_t *place_staged(void *ctx, size_t at, uint8_t *spare)
{
  struct staged_piece *p = ctx;
  return p->h->team->result + at * p->size;
}

// Piece by piece: staged, reduced by lanes, and taken from the common result. root < 0: by all.
static manta_status reduce_staged(struct manta__hosts *h, const struct manta__task *task,
                                  const uint8_t *send, int root, manta_error *err)
{
  struct manta__team *t = h->team;
  struct staged_piece p = {h, task, manta_dtype_bytes(task->type),
                           manta_dtype_bytes(manta__reduce_wide(task->type))};
  size_t most = h->piece / p.size;
  struct manta__lane_reduction x = {.type = task->type,
                                    .op = task->op,
                                    .to = root < 0 ? MANTA__TO_ALL : h->host[root],
                                    .ctx = &p,
                                    .part = part_staged,
                                    .place = place_staged};
  for (size_t at = 0; at < task->count; at += most) {
    size_t n = task->count - at < most ? task->count - at : most;
    manta__team_slot(t, n * p.size);
    memcpy(manta__team_staging(t, t->rank), send + at * p.size, n * p.size);
    MANTA_TRY(manta__team_meet(t, err));
    if (t->rank < h->lanes)
      MANTA_TRY(exchange_lane(h, &x, n, p.size, err));
    MANTA_TRY(manta__team_meet(t, err));
    if (root < 0 || root == h->rank)
      memcpy((uint8_t *)task->recv + at * p.size, h->team->result, n * p.size);
    h->seq++; // the next piece's messages are others
  }
  return MANTA_OK;
}

manta_status manta__hosts_reduce(struct manta__hosts *h, const struct manta__task *task,
                                 manta_error *err)
{
  bool all = task->call == MANTA__CALL_ALLREDUCE;
  if (manta__task_bytes(task) <= MANTA__HOSTS_RIDE)
    return reduce_small(h, task, err);
  struct reduction d = {h, task, manta_dtype_bytes(task->type),
                        manta_dtype_bytes(manta__reduce_wide(task->type))};
  // A reduce goes direct where no team has to bring the result to its root.
  struct manta__opening o = {
      .task = task, .bytes = manta__task_bytes(task), .direct = all || h->hosts == h->size};
  manta_status st = manta__hosts_open(h, &o, err);
  if (st == MANTA_OK)
    st = h->direct ? reduce_direct(h, &d, err)
                   : reduce_staged(h, task, task->send, all ? -1 : task->root, err);
  h->team->turn++;
  return st;
}

static manta_status reduce_blocks(struct manta__hosts *h, const struct manta__task *task,
                                  manta_error *err)
{
  for (int r = 0; r < h->size; r++)
    MANTA_TRY(reduce_staged(
        h, task, (const uint8_t *)task->send + (size_t)r * manta__task_bytes(task), r, err));
  return MANTA_OK;
}

manta_status manta__hosts_reduce_scatter(struct manta__hosts *h, const struct manta__task *task,
                                         manta_error *err)
{
  MANTA_TRY(manta__hosts_agree(h, task, err));
  if (h->hosts < h->size)
    return reduce_blocks(h, task, err);
  struct reduction d = {h, task, manta_dtype_bytes(task->type),
                        manta_dtype_bytes(manta__reduce_wide(task->type))};
  size_t *bound = manta__calloc((size_t)h->hosts + 1, sizeof *bound);
  if (!bound)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a reduction");
  for (int g = 0; g <= h->hosts; g++)
    bound[g] = (size_t)g * task->count;
  struct manta__lane_reduction x = {.bound = bound,
                                    .type = task->type,
                                    .op = task->op,
                                    .to = MANTA__TO_SELF,
                                    .ctx = &d,
                                    .part = part_alone,
                                    .place = place_direct};
  manta_status st = manta__hosts_reduce_lane(h, &x, err);
  manta__free(bound);
  return st;
}
