/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/hosts_calls.c - the collectives of a group that spans hosts, each in a few steps between
 * hosts (messages) and inside one (a call of its team).
 */
#include <string.h>

#include "base/alloc.h"
#include "comm/comm.h"
#include "comm/hosts.h"

#define BCAST_CHUNK  (512u << 10)
#define BCAST_WINDOW 4

static int team_size(const struct manta__hosts *h)
{
  return h->team->size;
}

static uint8_t *result_of(const struct manta__hosts *h)
{
  return h->team->result + (h->team->turn & 1) * MANTA__COMM_CHUNK;
}

static size_t bytes_of(const struct manta__task *task)
{
  return task->count * manta_dtype_bytes(task->type);
}

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
    struct manta__node n = h->node[i];
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
  for (int r = 0; r < team_size(h); r++)
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
  manta__reduce_combine(result_of(h), h->in, h->node, h->nodes, task->count, task->type, task->op);
}

static manta_status reduce_small(struct manta__hosts *h, const struct manta__task *task,
                                 manta_error *err)
{
  struct manta__opening o = {.task = task, .load = load_nodes, .take = take_nodes};
  size_t bytes = bytes_of(task);
  if (bytes)
    memcpy(manta__team_staging(h->team, h->team->rank), task->send, bytes);
  manta_status st = manta__hosts_open(h, &o, err);
  bool wanted = task->call == MANTA__CALL_ALLREDUCE || task->root == h->rank;
  if (st == MANTA_OK && wanted && bytes)
    memcpy(task->recv, result_of(h), bytes);
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

// t->in points to [at, at + bytes) of each buffer of the team.
static manta_status reach_all(struct manta__hosts *h, const uint8_t *own, size_t at, size_t bytes,
                              manta_error *err)
{
  struct manta__team *t = h->team;
  for (int r = 0; r < t->size; r++) {
    const struct manta__desc *d = manta__team_desc(t, r);
    uint8_t *block = t->scratch + (size_t)r * MANTA__COMM_PEEK;
    if (r == t->rank) {
      t->in[r] = own + at;
    } else if (d->send_at != MANTA__NOWHERE) {
      t->in[r] = t->fabric->base + d->send_at + at;
    } else {
      MANTA_TRY(manta__team_peek(t, r, block, d->send_at, d->send, at, bytes, err));
      t->in[r] = block;
    }
  }
  return MANTA_OK;
}

static manta_status part_direct(void *ctx, size_t at, size_t count, void *room, const void **out,
                                manta_error *err)
{
  struct reduction *d = ctx;
  size_t most = MANTA__COMM_PEEK / d->size;
  for (size_t i = 0; i < count; i += most) {
    size_t n = count - i < most ? count - i : most;
    MANTA_TRY(reach_all(d->h, d->task->send, (at + i) * d->size, n * d->size, err));
    make_nodes(d->h, (uint8_t *)room + i * d->wide, count * d->wide, n, d->task);
  }
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

// All buffers of the host lie in its heap: the result goes to each.
static bool all_in_heap(const struct manta__hosts *h)
{
  for (int r = 0; r < team_size(h); r++)
    if (manta__team_desc(h->team, r)->recv_at == MANTA__NOWHERE)
      return false;
  return true;
}

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

// What other lanes have brought to this host, out of the buffers of those who did.
static manta_status fetch_lanes(struct manta__hosts *h, const struct reduction *d, manta_error *err)
{
  struct manta__team *t = h->team;
  size_t lanes = (size_t)h->lanes;
  for (int i = 0; i < h->lanes; i++) {
    size_t from = part_from(d->task->count, (size_t)i, lanes, d->size) * d->size;
    size_t to = part_from(d->task->count, (size_t)i + 1, lanes, d->size) * d->size;
    const struct manta__desc *o = manta__team_desc(t, i);
    if (i != t->rank)
      MANTA_TRY(manta__team_peek(t, i, (uint8_t *)d->task->recv + from, o->recv_at, o->recv, from,
                                 to - from, err));
  }
  return manta__team_meet(t, err);
}

// bound[g]: where the part of host g begins in [from, to).
static void share_out(struct manta__hosts *h, size_t *bound, size_t from, size_t to, size_t size)
{
  for (int g = 0; g <= h->hosts; g++)
    bound[g] = from + part_from(to - from, (size_t)g, (size_t)h->hosts, size);
}

static manta_status exchange_lane(struct manta__hosts *h, struct manta__exchange *x, size_t count,
                                  size_t size, manta_error *err)
{
  size_t lane = (size_t)h->team->rank, lanes = (size_t)h->lanes;
  size_t *bound = manta__calloc((size_t)h->hosts + 1, sizeof *bound);
  if (!bound)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a reduction");
  share_out(h, bound, part_from(count, lane, lanes, size), part_from(count, lane + 1, lanes, size),
            size);
  x->lane = h->team->rank;
  x->bound = bound;
  manta_status st = manta__hosts_exchange(h, x, err);
  manta__free(bound);
  return st;
}

static manta_status reduce_direct(struct manta__hosts *h, struct reduction *d, manta_error *err)
{
  bool heap = all_in_heap(h), alone = team_size(h) == 1;
  struct manta__exchange x = {.type = d->task->type,
                              .op = d->task->op,
                              .to = d->task->call == MANTA__CALL_REDUCE ? h->host[d->task->root]
                                                                        : MANTA__TO_ALL,
                              .ctx = d,
                              .part = alone ? part_alone : part_direct,
                              .place = place_direct,
                              .done = alone || !heap ? NULL : done_in_heap};
  if (h->team->rank < h->lanes)
    MANTA_TRY(exchange_lane(h, &x, d->task->count, d->size, err));
  if (alone)
    return MANTA_OK;
  MANTA_TRY(manta__team_meet(h->team, err));
  return heap ? MANTA_OK : fetch_lanes(h, d, err);
}

// --- reductions: through the staging buffers ----------------------------------------------------

struct piece {
  struct manta__hosts *h;
  const struct manta__task *task;
  size_t size, wide;
};

static manta_status part_staged(void *ctx, size_t at, size_t count, void *room, const void **out,
                                manta_error *err)
{
  struct piece *p = ctx;
  struct manta__team *t = p->h->team;
  for (int r = 0; r < t->size; r++)
    t->in[r] = manta__team_staging(t, r) + at * p->size;
  make_nodes(p->h, room, count * p->wide, count, p->task);
  *out = room;
  return MANTA_OK;
}

static uint8_t *place_staged(void *ctx, size_t at, uint8_t *spare)
{
  struct piece *p = ctx;
  return result_of(p->h) + at * p->size;
}

// Piece by piece: staged, reduced by lanes, and taken from the common result. root < 0: by all.
static manta_status reduce_staged(struct manta__hosts *h, const struct manta__task *task,
                                  const uint8_t *send, int root, manta_error *err)
{
  struct manta__team *t = h->team;
  struct piece p = {h, task, manta_dtype_bytes(task->type),
                    manta_dtype_bytes(manta__reduce_wide(task->type))};
  size_t most = MANTA__COMM_CHUNK / p.size;
  struct manta__exchange x = {.type = task->type,
                              .op = task->op,
                              .to = root < 0 ? MANTA__TO_ALL : h->host[root],
                              .ctx = &p,
                              .part = part_staged,
                              .place = place_staged};
  for (size_t at = 0; at < task->count; at += most) {
    size_t n = task->count - at < most ? task->count - at : most;
    memcpy(manta__team_staging(t, t->rank), send + at * p.size, n * p.size);
    MANTA_TRY(manta__team_meet(t, err));
    if (t->rank < h->lanes)
      MANTA_TRY(exchange_lane(h, &x, n, p.size, err));
    MANTA_TRY(manta__team_meet(t, err));
    if (root < 0 || root == h->rank)
      memcpy((uint8_t *)task->recv + at * p.size, result_of(h), n * p.size);
    t->turn++;
    h->seq++; // the next piece's messages are others
  }
  return MANTA_OK;
}

static manta_status reduce(struct manta__hosts *h, const struct manta__task *task, manta_error *err)
{
  bool all = task->call == MANTA__CALL_ALLREDUCE;
  if (bytes_of(task) <= MANTA__HOSTS_RIDE)
    return reduce_small(h, task, err);
  struct reduction d = {h, task, manta_dtype_bytes(task->type),
                        manta_dtype_bytes(manta__reduce_wide(task->type))};
  // A reduce goes direct where no team has to bring the result to its root.
  struct manta__opening o = {
      .task = task, .bytes = bytes_of(task), .direct = all || h->hosts == h->size};
  manta_status st = manta__hosts_open(h, &o, err);
  bool direct = h->direct;
  if (st == MANTA_OK && direct)
    st = reduce_direct(h, &d, err);
  h->team->turn++;
  return st < 0 || direct ? st : reduce_staged(h, task, task->send, all ? -1 : task->root, err);
}

static manta_status agree_only(struct manta__hosts *h, const struct manta__task *task,
                               manta_error *err)
{
  struct manta__opening o = {.task = task};
  manta_status st = manta__hosts_open(h, &o, err);
  h->team->turn++;
  return st;
}

static manta_status reduce_blocks(struct manta__hosts *h, const struct manta__task *task,
                                  manta_error *err)
{
  for (int r = 0; r < h->size; r++)
    MANTA_TRY(
        reduce_staged(h, task, (const uint8_t *)task->send + (size_t)r * bytes_of(task), r, err));
  return MANTA_OK;
}

static manta_status reduce_scatter(struct manta__hosts *h, const struct manta__task *task,
                                   manta_error *err)
{
  MANTA_TRY(agree_only(h, task, err));
  if (h->hosts < h->size)
    return reduce_blocks(h, task, err);
  struct reduction d = {h, task, manta_dtype_bytes(task->type),
                        manta_dtype_bytes(manta__reduce_wide(task->type))};
  size_t *bound = manta__calloc((size_t)h->hosts + 1, sizeof *bound);
  if (!bound)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a reduction");
  for (int g = 0; g <= h->hosts; g++)
    bound[g] = (size_t)g * task->count;
  struct manta__exchange x = {.bound = bound,
                              .type = task->type,
                              .op = task->op,
                              .to = MANTA__TO_SELF,
                              .ctx = &d,
                              .part = part_alone,
                              .place = place_direct};
  manta_status st = manta__hosts_exchange(h, &x, err);
  manta__free(bound);
  return st;
}

// --- data that moves ----------------------------------------------------------------------------

struct moves {
  struct manta__hosts *h;
  size_t n;
};

static manta_status to_rank(struct moves *m, int rank, const uint8_t *buf, size_t bytes,
                            manta_error *err)
{
  struct manta__hosts *h = m->h;
  if (bytes == 0)
    return MANTA_OK;
  h->with[m->n] = (struct manta__with){rank, SIZE_MAX};
  return manta__hosts_send(h, rank, buf, bytes, MANTA__KIND_DATA, 0, &h->req[m->n++], err);
}

static manta_status from_rank(struct moves *m, int rank, uint8_t *buf, size_t bytes,
                              manta_error *err)
{
  struct manta__hosts *h = m->h;
  if (bytes == 0)
    return MANTA_OK;
  h->with[m->n] = (struct manta__with){rank, bytes};
  return manta__hosts_recv(h, rank, buf, bytes, MANTA__KIND_DATA, 0, &h->req[m->n++], err);
}

static bool is_here(const struct manta__hosts *h, int rank)
{
  return h->host[rank] == h->me;
}

// A call of our team on ranks of this host; `task` gives type and the like.
static manta_status in_team(struct manta__hosts *h, const struct manta__task *task,
                            enum manta__call call, const void *send, void *recv, size_t count,
                            int local_root, manta_error *err)
{
  struct manta__task t = {call, send, recv, count, NULL, task->type, task->op, local_root};
  return manta__team_run(h->team, &t, err);
}

// --- broadcast ----------------------------------------------------------------------------------

static size_t load_root(struct manta__hosts *h, const struct manta__task *task, uint8_t *out)
{
  if (!is_here(h, task->root))
    return 0;
  memcpy(out, manta__team_staging(h->team, h->local[task->root]), bytes_of(task));
  return bytes_of(task);
}

static void take_root(struct manta__hosts *h, const struct manta__task *task)
{
  memcpy(result_of(h), manta__hosts_ride(h, h->host[task->root]), bytes_of(task));
}

static manta_status broadcast_small(struct manta__hosts *h, const struct manta__task *task,
                                    manta_error *err)
{
  struct manta__opening o = {.task = task, .load = load_root, .take = take_root};
  size_t bytes = bytes_of(task);
  if (h->rank == task->root && bytes)
    memcpy(manta__team_staging(h->team, h->team->rank), task->send, bytes);
  manta_status st = manta__hosts_open(h, &o, err);
  if (st == MANTA_OK && h->rank != task->root && bytes)
    memcpy(task->recv, result_of(h), bytes);
  h->team->turn++;
  return st;
}

struct chain { // from host to host, chunk by chunk, each passing on what it gets
  struct manta__hosts *h;
  int before, behind; // ranks, or -1
  uint8_t *buf;
  size_t bytes, chunks;
  size_t asked, came, sent, gone; // chunks, each ahead of the next
};

static size_t chain_len(const struct chain *c, size_t i)
{
  size_t at = i * BCAST_CHUNK;
  return c->bytes - at < BCAST_CHUNK ? c->bytes - at : BCAST_CHUNK;
}

static manta_status chain_receive(struct chain *c, manta_error *err)
{
  struct manta__hosts *h = c->h;
  for (; c->asked < c->chunks && c->asked < c->came + BCAST_WINDOW; c->asked++)
    MANTA_TRY(manta__hosts_recv(h, c->before, c->buf + c->asked * BCAST_CHUNK,
                                chain_len(c, c->asked), MANTA__KIND_DATA, c->asked,
                                &h->req[c->asked % BCAST_WINDOW], err));
  while (c->came < c->asked) {
    manta_status st = manta__hosts_test(h, &h->req[c->came % BCAST_WINDOW], c->before,
                                        chain_len(c, c->came), err);
    if (st != MANTA_OK)
      return st < 0 ? st : MANTA_OK;
    c->came++;
  }
  return MANTA_OK;
}

static manta_status chain_send(struct chain *c, manta_error *err)
{
  struct manta__hosts *h = c->h;
  struct manta__net_req **req = h->req + BCAST_WINDOW;
  for (; c->sent < c->came && c->sent < c->gone + BCAST_WINDOW; c->sent++)
    MANTA_TRY(manta__hosts_send(h, c->behind, c->buf + c->sent * BCAST_CHUNK, chain_len(c, c->sent),
                                MANTA__KIND_DATA, c->sent, &req[c->sent % BCAST_WINDOW], err));
  while (c->gone < c->sent) {
    manta_status st = manta__hosts_test(h, &req[c->gone % BCAST_WINDOW], c->behind, SIZE_MAX, err);
    if (st != MANTA_OK)
      return st < 0 ? st : MANTA_OK;
    c->gone++;
  }
  return MANTA_OK;
}

static manta_status run_chain(struct chain *c, manta_error *err)
{
  MANTA_TRY(manta__hosts_room(c->h, 2 * BCAST_WINDOW, 0, err));
  for (int idle = 0; c->came < c->chunks || c->gone < c->chunks;) {
    if (c->before >= 0)
      MANTA_TRY(chain_receive(c, err));
    if (c->behind >= 0)
      MANTA_TRY(chain_send(c, err));
    else
      c->gone = c->came;
    if (c->gone < c->chunks)
      MANTA_TRY(manta__hosts_turn(c->h, c->came < c->chunks ? c->before : c->behind, &idle, err));
  }
  return MANTA_OK;
}

// The rank of a host that takes part in the chain.
static int in_chain(const struct manta__hosts *h, int g, int root)
{
  return g == h->host[root] ? root : manta__hosts_member(h, g, 0);
}

static manta_status broadcast(struct manta__hosts *h, const struct manta__task *task,
                              manta_error *err)
{
  size_t bytes = bytes_of(task);
  if (bytes <= MANTA__HOSTS_RIDE)
    return broadcast_small(h, task, err);
  MANTA_TRY(agree_only(h, task, err));
  int n = h->hosts, first = h->host[task->root], at = (h->me - first + n) % n;
  int own = in_chain(h, h->me, task->root);
  struct chain c = {.h = h,
                    .before = at == 0 ? -1 : in_chain(h, (h->me + n - 1) % n, task->root),
                    .behind = at == n - 1 ? -1 : in_chain(h, (h->me + 1) % n, task->root),
                    .buf = task->recv,
                    .bytes = bytes,
                    .chunks = (bytes + BCAST_CHUNK - 1) / BCAST_CHUNK};
  c.came = c.asked = at == 0 ? c.chunks : 0;
  if (h->rank == own)
    MANTA_TRY(run_chain(&c, err));
  if (team_size(h) == 1)
    return MANTA_OK;
  return in_team(h, task, MANTA__CALL_BROADCAST, task->recv, task->recv, task->count, h->local[own],
                 err);
}

// --- all-gather ---------------------------------------------------------------------------------

static size_t block_count(const struct manta__task *task, int rank)
{
  return task->counts ? task->counts[rank] : task->count;
}

static size_t block_at(const struct manta__task *task, int rank)
{
  size_t at = 0;
  if (!task->counts)
    return (size_t)rank * task->count;
  for (int r = 0; r < rank; r++)
    at += task->counts[r];
  return at;
}

// Who of host g receives the block of a rank that is elsewhere.
static int receiver(const struct manta__hosts *h, int g, int rank)
{
  int n = h->first[g + 1] - h->first[g];
  return h->member[h->first[g] + h->local[rank] % n];
}

static manta_status gather_remote(struct manta__hosts *h, const struct manta__task *task,
                                  manta_error *err)
{
  struct moves m = {h, 0};
  size_t size = manta_dtype_bytes(task->type);
  uint8_t *recv = task->recv, *own = recv + block_at(task, h->rank) * size;
  MANTA_TRY(manta__hosts_room(h, 2 * (size_t)h->size, 0, err));
  for (int i = 1; i < h->size; i++) {
    int r = (h->rank + i) % h->size;
    if (!is_here(h, r) && receiver(h, h->me, r) == h->rank)
      MANTA_TRY(
          from_rank(&m, r, recv + block_at(task, r) * size, block_count(task, r) * size, err));
  }
  for (int i = 1; i < h->hosts; i++) {
    int g = (h->me + i) % h->hosts;
    MANTA_TRY(to_rank(&m, receiver(h, g, h->rank), own, block_count(task, h->rank) * size, err));
  }
  return manta__hosts_wait(h, m.n, err);
}

static manta_status allgather(struct manta__hosts *h, const struct manta__task *task,
                              manta_error *err)
{
  size_t size = manta_dtype_bytes(task->type);
  uint8_t *own = (uint8_t *)task->recv + block_at(task, h->rank) * size;
  MANTA_TRY(agree_only(h, task, err));
  if (own != task->send && block_count(task, h->rank))
    memmove(own, task->send, block_count(task, h->rank) * size);
  MANTA_TRY(gather_remote(h, task, err));
  for (int r = 0; r < h->size && team_size(h) > 1; r++) {
    uint8_t *block = (uint8_t *)task->recv + block_at(task, r) * size;
    int from = is_here(h, r) ? r : receiver(h, h->me, r);
    MANTA_TRY(in_team(h, task, MANTA__CALL_BROADCAST, block, block, block_count(task, r),
                      h->local[from], err));
  }
  return MANTA_OK;
}

// --- blocks between pairs -----------------------------------------------------------------------

// The blocks of this host's ranks in a buffer of all ranks' blocks: a copy of them, where they do
// not follow each other.
struct view {
  uint8_t *base, *copy;
};

static bool in_a_row(const struct manta__hosts *h)
{
  return manta__hosts_member(h, h->me, team_size(h) - 1) - manta__hosts_member(h, h->me, 0) ==
         team_size(h) - 1;
}

static manta_status view_of(struct manta__hosts *h, struct view *v, const void *buf, size_t bytes,
                            bool fill, manta_error *err)
{
  uint8_t *all = (uint8_t *)(uintptr_t)buf;
  v->copy = NULL;
  v->base = all ? all + (size_t)manta__hosts_member(h, h->me, 0) * bytes : NULL;
  if (!all || in_a_row(h))
    return MANTA_OK;
  v->base = v->copy = manta__malloc((size_t)team_size(h) * bytes + 1);
  if (!v->copy)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d blocks of %zu bytes", team_size(h),
                           bytes);
  for (int i = 0; i < team_size(h) && fill && bytes; i++)
    memcpy(v->copy + (size_t)i * bytes, all + (size_t)manta__hosts_member(h, h->me, i) * bytes,
           bytes);
  return MANTA_OK;
}

static void view_back(struct manta__hosts *h, struct view *v, void *buf, size_t bytes)
{
  for (int i = 0; i < team_size(h) && v->copy && bytes; i++)
    memcpy((uint8_t *)buf + (size_t)manta__hosts_member(h, h->me, i) * bytes,
           v->copy + (size_t)i * bytes, bytes);
}

// At the root's host. Its own block goes first: it may lie where another is received.
static manta_status gather_here(struct manta__hosts *h, const struct manta__task *task,
                                struct view *v, struct moves *m, manta_error *err)
{
  size_t bytes = bytes_of(task);
  bool root = h->rank == task->root;
  uint8_t *all = root ? task->recv : NULL;
  MANTA_TRY(view_of(h, v, all, bytes, false, err));
  uint8_t *own = root ? v->base + (size_t)h->team->rank * bytes : NULL;
  if (own && bytes)
    memmove(own, task->send, bytes);
  for (int r = 0; r < h->size && root; r++)
    if (!is_here(h, r))
      MANTA_TRY(from_rank(m, r, all + (size_t)r * bytes, bytes, err));
  MANTA_TRY(in_team(h, task, MANTA__CALL_GATHER, root ? own : task->send, v->base, task->count,
                    h->local[task->root], err));
  view_back(h, v, all, bytes);
  return manta__hosts_wait(h, m->n, err);
}

static manta_status gather(struct manta__hosts *h, const struct manta__task *task, manta_error *err)
{
  struct moves m = {h, 0};
  struct view v = {0};
  MANTA_TRY(agree_only(h, task, err));
  MANTA_TRY(manta__hosts_room(h, (size_t)h->size, 0, err));
  if (!is_here(h, task->root)) {
    MANTA_TRY(to_rank(&m, task->root, task->send, bytes_of(task), err));
    return manta__hosts_wait(h, m.n, err);
  }
  manta_status st = gather_here(h, task, &v, &m, err);
  manta__free(v.copy);
  return st;
}

static manta_status scatter(struct manta__hosts *h, const struct manta__task *task,
                            manta_error *err)
{
  struct moves m = {h, 0};
  size_t bytes = bytes_of(task);
  struct view v = {0};
  MANTA_TRY(agree_only(h, task, err));
  MANTA_TRY(manta__hosts_room(h, (size_t)h->size, 0, err));
  if (!is_here(h, task->root)) {
    MANTA_TRY(from_rank(&m, task->root, task->recv, bytes, err));
    return manta__hosts_wait(h, m.n, err);
  }
  const void *all = h->rank == task->root ? task->send : NULL;
  for (int r = 0; r < h->size && all; r++)
    if (!is_here(h, r))
      MANTA_TRY(to_rank(&m, r, (const uint8_t *)all + (size_t)r * bytes, bytes, err));
  MANTA_TRY(view_of(h, &v, all, bytes, true, err));
  manta_status st = in_team(h, task, MANTA__CALL_SCATTER, v.base, task->recv, task->count,
                            h->local[task->root], err);
  manta__free(v.copy);
  return st < 0 ? st : manta__hosts_wait(h, m.n, err);
}

static manta_status alltoall_here(struct manta__hosts *h, const struct manta__task *task,
                                  const uint8_t *send, manta_error *err)
{
  size_t bytes = bytes_of(task);
  struct view in = {0}, out = {0};
  manta_status st = view_of(h, &in, send, bytes, true, err);
  if (st == MANTA_OK)
    st = view_of(h, &out, task->recv, bytes, false, err);
  if (st == MANTA_OK)
    st = in_team(h, task, MANTA__CALL_ALLTOALL, in.base, out.base, task->count, 0, err);
  if (st == MANTA_OK)
    view_back(h, &out, task->recv, bytes);
  manta__free(in.copy);
  manta__free(out.copy);
  return st;
}

static manta_status alltoall_from(struct manta__hosts *h, const struct manta__task *task,
                                  const uint8_t *send, manta_error *err)
{
  struct moves m = {h, 0};
  size_t bytes = bytes_of(task);
  MANTA_TRY(manta__hosts_room(h, 2 * (size_t)h->size, 0, err));
  for (int i = 1; i < h->size; i++) {
    int r = (h->rank + h->size - i) % h->size;
    if (!is_here(h, r))
      MANTA_TRY(from_rank(&m, r, (uint8_t *)task->recv + (size_t)r * bytes, bytes, err));
  }
  for (int i = 1; i < h->size; i++) {
    int r = (h->rank + i) % h->size;
    if (!is_here(h, r))
      MANTA_TRY(to_rank(&m, r, send + (size_t)r * bytes, bytes, err));
  }
  MANTA_TRY(alltoall_here(h, task, send, err));
  return manta__hosts_wait(h, m.n, err);
}

static manta_status alltoall(struct manta__hosts *h, const struct manta__task *task,
                             manta_error *err)
{
  MANTA_TRY(agree_only(h, task, err));
  return alltoall_from(h, task, task->send, err);
}

// --- all of them --------------------------------------------------------------------------------

static manta_status dispatch(struct manta__hosts *h, const struct manta__task *task,
                             manta_error *err)
{
  switch (task->call) {
  case MANTA__CALL_ALLREDUCE:
  case MANTA__CALL_REDUCE:
    return reduce(h, task, err);
  case MANTA__CALL_REDUCE_SCATTER:
    return reduce_scatter(h, task, err);
  case MANTA__CALL_BROADCAST:
    return broadcast(h, task, err);
  case MANTA__CALL_ALLGATHER:
  case MANTA__CALL_ALLGATHERV:
    return allgather(h, task, err);
  case MANTA__CALL_ALLTOALL:
    return alltoall(h, task, err);
  case MANTA__CALL_GATHER:
    return gather(h, task, err);
  case MANTA__CALL_SCATTER:
    return scatter(h, task, err);
  default:
    return agree_only(h, task, err);
  }
}

// Whether what we receive lies where something is still to be sent from: of the calls whose send
// buffer has a block for each rank.
static bool is_tangled(const struct manta__hosts *h, const struct manta__task *task)
{
  size_t n = (size_t)h->size, bytes = bytes_of(task), got = bytes;
  const uint8_t *send = task->send, *recv = task->recv;
  bool blocks = task->call == MANTA__CALL_REDUCE_SCATTER ||
                (task->call == MANTA__CALL_SCATTER && task->root == h->rank);
  if (task->call == MANTA__CALL_ALLTOALL)
    got = bytes * n;
  else if (!blocks || recv == send + (size_t)h->rank * bytes)
    return false;
  return bytes && send < recv + got && recv < send + bytes * n;
}

static manta_status run(struct manta__hosts *h, const struct manta__task *task, manta_error *err)
{
  manta_status st = dispatch(h, task, err);
  if (st < 0 && st != MANTA_EINVAL) {
    manta__wire_drop(h->wire, h->req, h->reqs);
    h->broken = true;
  }
  return st;
}

static manta_status run_with_copy(struct manta__hosts *h, const struct manta__task *task,
                                  manta_error *err)
{
  size_t bytes = bytes_of(task) * (size_t)h->size;
  void *copy = manta__malloc(bytes);
  struct manta__task t = *task;
  if (!copy)
    return manta_error_set(err, MANTA_ENOMEM, "%s: no memory for a copy of %zu bytes", h->call,
                           bytes);
  t.send = memcpy(copy, task->send, bytes);
  manta_status st = run(h, &t, err);
  manta__free(copy);
  return st;
}

manta_status manta__hosts_run(struct manta__hosts *h, const struct manta__task *task,
                              manta_error *err)
{
  h->call = manta__call_name(task->call);
  if (h->broken)
    return manta_error_set(err, MANTA_ESTATE,
                           "%s: an earlier call failed, the ranks are out of step", h->call);
  h->seq++;
  return is_tangled(h, task) ? run_with_copy(h, task, err) : run(h, task, err);
}
