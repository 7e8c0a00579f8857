/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/hosts/calls.c - the collectives of a group that spans hosts, each in a few steps between
 * hosts (messages) and inside one (a call of its team).
 */
#include <string.h>

#include "base/alloc.h"
#include "comm/hosts/hosts.h"

#define CHUNK  (512u << 10) /* of a broadcast */
#define WINDOW 4

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
  memcpy(out, manta__team_staging(h->team, h->local[task->root]), manta__task_bytes(task));
  return manta__task_bytes(task);
}

static void take_root(struct manta__hosts *h, const struct manta__task *task)
{
  memcpy(h->team->result, manta__hosts_ride(h, h->host[task->root]), manta__task_bytes(task));
}

static manta_status broadcast_small(struct manta__hosts *h, const struct manta__task *task,
                                    manta_error *err)
{
  struct manta__opening o = {.task = task, .load = load_root, .take = take_root};
  size_t bytes = manta__task_bytes(task);
  manta__team_slot(h->team, bytes);
  if (h->rank == task->root && bytes)
    memcpy(manta__team_staging(h->team, h->team->rank), task->send, bytes);
  manta_status st = manta__hosts_open(h, &o, err);
  if (st == MANTA_OK && h->rank != task->root && bytes)
    memcpy(task->recv, h->team->result, bytes);
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
  size_t at = i * CHUNK;
  return c->bytes - at < CHUNK ? c->bytes - at : CHUNK;
}

static manta_status chain_receive(struct chain *c, manta_error *err)
{
  struct manta__hosts *h = c->h;
  for (; c->asked < c->chunks && c->asked < c->came + WINDOW; c->asked++)
    MANTA_TRY(manta__hosts_recv(h, c->before, c->buf + c->asked * CHUNK, chain_len(c, c->asked),
                                MANTA__KIND_DATA, c->asked, &h->req[c->asked % WINDOW], err));
  while (c->came < c->asked) {
    manta_status st =
        manta__hosts_test(h, &h->req[c->came % WINDOW], c->before, chain_len(c, c->came), err);
    if (st != MANTA_OK)
      return st < 0 ? st : MANTA_OK;
    c->came++;
  }
  return MANTA_OK;
}

static manta_status chain_send(struct chain *c, manta_error *err)
{
  struct manta__hosts *h = c->h;
  struct manta__net_req **req = h->req + WINDOW;
  for (; c->sent < c->came && c->sent < c->gone + WINDOW; c->sent++)
    MANTA_TRY(manta__hosts_send(h, c->behind, c->buf + c->sent * CHUNK, chain_len(c, c->sent),
                                MANTA__KIND_DATA, c->sent, &req[c->sent % WINDOW], err));
  while (c->gone < c->sent) {
    manta_status st = manta__hosts_test(h, &req[c->gone % WINDOW], c->behind, SIZE_MAX, err);
    if (st != MANTA_OK)
      return st < 0 ? st : MANTA_OK;
    c->gone++;
  }
  return MANTA_OK;
}

static manta_status run_chain(struct chain *c, manta_error *err)
{
  MANTA_TRY(manta__hosts_room(c->h, 2 * WINDOW, 0, err));
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
  size_t bytes = manta__task_bytes(task);
  if (bytes <= MANTA__HOSTS_RIDE)
    return broadcast_small(h, task, err);
  MANTA_TRY(manta__hosts_agree(h, task, err));
  int n = h->hosts, first = h->host[task->root], at = (h->me - first + n) % n;
  int own = in_chain(h, h->me, task->root);
  struct chain c = {.h = h,
                    .before = at == 0 ? -1 : in_chain(h, (h->me + n - 1) % n, task->root),
                    .behind = at == n - 1 ? -1 : in_chain(h, (h->me + 1) % n, task->root),
                    .buf = task->recv,
                    .bytes = bytes,
                    .chunks = (bytes + CHUNK - 1) / CHUNK};
  c.came = c.asked = at == 0 ? c.chunks : 0;
  if (h->rank == own)
    MANTA_TRY(run_chain(&c, err));
  if (h->team->size == 1)
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
  MANTA_TRY(manta__hosts_agree(h, task, err));
  if (own != task->send && block_count(task, h->rank))
    memmove(own, task->send, block_count(task, h->rank) * size);
  MANTA_TRY(gather_remote(h, task, err));
  for (int r = 0; r < h->size && h->team->size > 1; r++) {
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
  return manta__hosts_member(h, h->me, h->team->size - 1) - manta__hosts_member(h, h->me, 0) ==
         h->team->size - 1;
}

static manta_status view_of(struct manta__hosts *h, struct view *v, const void *buf, size_t bytes,
                            bool fill, manta_error *err)
{
  uint8_t *all = (uint8_t *)(uintptr_t)buf;
  v->copy = NULL;
  v->base = all ? all + (size_t)manta__hosts_member(h, h->me, 0) * bytes : NULL;
  if (!all || in_a_row(h))
    return MANTA_OK;
  v->base = v->copy = manta__malloc((size_t)h->team->size * bytes + 1);
  if (!v->copy)
    return manta_error_set(err, MANTA_ENOMEM, "no memory for %d blocks of %zu bytes", h->team->size,
                           bytes);
  for (int i = 0; i < h->team->size && fill && bytes; i++)
    memcpy(v->copy + (size_t)i * bytes, all + (size_t)manta__hosts_member(h, h->me, i) * bytes,
           bytes);
  return MANTA_OK;
}

static void view_back(struct manta__hosts *h, struct view *v, void *buf, size_t bytes)
{
  for (int i = 0; i < h->team->size && v->copy && bytes; i++)
    memcpy((uint8_t *)buf + (size_t)manta__hosts_member(h, h->me, i) * bytes,
           v->copy + (size_t)i * bytes, bytes);
}

// At the root's host. Its own block goes first: it may lie where another is received.
static manta_status gather_here(struct manta__hosts *h, const struct manta__task *task,
                                struct view *v, struct moves *m, manta_error *err)
{
  size_t bytes = manta__task_bytes(task);
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
  MANTA_TRY(manta__hosts_agree(h, task, err));
  MANTA_TRY(manta__hosts_room(h, (size_t)h->size, 0, err));
  if (!is_here(h, task->root)) {
    MANTA_TRY(to_rank(&m, task->root, task->send, manta__task_bytes(task), err));
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
  size_t bytes = manta__task_bytes(task);
  struct view v = {0};
  MANTA_TRY(manta__hosts_agree(h, task, err));
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
  size_t bytes = manta__task_bytes(task);
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
  size_t bytes = manta__task_bytes(task);
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
  MANTA_TRY(manta__hosts_agree(h, task, err));
  return alltoall_from(h, task, task->send, err);
}

// --- all of them --------------------------------------------------------------------------------

static manta_status dispatch(struct manta__hosts *h, const struct manta__task *task,
                             manta_error *err)
{
  switch (task->call) {
  case MANTA__CALL_ALLREDUCE:
  case MANTA__CALL_REDUCE:
    return manta__hosts_reduce(h, task, err);
  case MANTA__CALL_REDUCE_SCATTER:
    return manta__hosts_reduce_scatter(h, task, err);
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
    return manta__hosts_agree(h, task, err);
  }
}

// Whether what we receive lies where something is still to be sent from: of the calls whose send
// buffer has a block for each rank.
static bool is_tangled(const struct manta__hosts *h, const struct manta__task *task)
{
  size_t n = (size_t)h->size, bytes = manta__task_bytes(task), got = bytes;
  const uint8_t *send = task->send, *recv = task->recv;
  if (!send || !recv)
    return false;
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
    manta__team_give_up(h->team);
  }
  return st;
}

static manta_status run_with_copy(struct manta__hosts *h, const struct manta__task *task,
                                  manta_error *err)
{
  size_t bytes = manta__task_bytes(task) * (size_t)h->size;
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
