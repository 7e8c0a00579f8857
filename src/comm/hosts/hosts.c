/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/hosts/hosts.c - a group that spans hosts: its layout, messages, and how a call begins.
 */
#include "comm/hosts/hosts.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

#define ROOT_CAUSE_NS 200000000 /* for the abort word, which knows why a peer was lost */

// --- layout -------------------------------------------------------------------------------------

// Hosts get numbers in the order of their first ranks; ranks get a place on their host.
static void number_hosts(struct manta__hosts *h, const int *host)
{
  for (int r = 0; r < h->size; r++) {
    int same = 0;
    while (host[same] != host[r])
      same++;
    h->host[r] = same == r ? h->hosts++ : h->host[same];
    for (int i = 0; i < r; i++)
      h->local[r] += h->host[i] == h->host[r];
  }
  h->me = h->host[h->rank];
}

static void list_members(struct manta__hosts *h)
{
  int n = 0;
  h->lanes = h->size;
  for (int g = 0; g < h->hosts; g++) {
    h->first[g] = n;
    for (int r = 0; r < h->size; r++)
      if (h->host[r] == g)
        h->member[n++] = r;
    h->first[g + 1] = n;
    h->lanes = n - h->first[g] < h->lanes ? n - h->first[g] : h->lanes;
  }
}

// A host's ranks may lie in several runs: each gives nodes of its own. In order of rank.
static void list_nodes(struct manta__hosts *h)
{
  for (int from = 0, to; from < h->size; from = to) {
    int g = h->host[from];
    for (to = from + 1; to < h->size && h->host[to] == g; to++)
      ;
    int k = manta__reduce_nodes(from, to, h->size, h->node + h->nodes);
    for (int i = 0; i < k; i++)
      h->node_host[h->nodes + i] = g;
    h->nodes += k;
    h->nodes_of[g] += k;
  }
}

static int most_ranks(const struct manta__hosts *h)
{
  int most = 0;
  for (int g = 0; g < h->hosts; g++) {
    int n = h->first[g + 1] - h->first[g];
    most = n > most ? n : most;
  }
  return most;
}

manta_status manta__hosts_init(struct manta__hosts *h, const struct manta__hosts_config *cfg,
                               manta_error *err)
{
  size_t n = (size_t)cfg->size;
  int *ints = manta__calloc(7 * n + 1, sizeof *ints);
  *h = (struct manta__hosts){.wire = cfg->wire,
                             .team = cfg->team,
                             .rank = cfg->rank,
                             .size = cfg->size,
                             .group = cfg->group,
                             .by = MANTA__NEVER,
                             .wire_rank = ints};
  h->node = manta__calloc(n + MANTA__NODES_MAX, sizeof *h->node);
  h->in = manta__calloc(n, sizeof *h->in);
  if (!ints || !h->node || !h->in) {
    manta__hosts_fini(h);
    return manta_error_set(err, MANTA_ENOMEM, "no memory for a group of %d ranks", cfg->size);
  }
  h->host = ints + n;
  h->local = ints + 2 * n;
  h->member = ints + 3 * n;
  h->node_host = ints + 4 * n;
  h->nodes_of = ints + 5 * n;
  h->first = ints + 6 * n;
  memcpy(h->wire_rank, cfg->wire_rank, n * sizeof *h->wire_rank);
  number_hosts(h, cfg->host);
  list_members(h);
  list_nodes(h);
  h->piece = manta__team_ring_size(most_ranks(h)) / 2;
  if (h->team)
    h->team->label = h->member + h->first[h->me];
  return MANTA_OK;
}

void manta__hosts_fini(struct manta__hosts *h)
{
  if (h->team)
    h->team->label = NULL;
  manta__free(h->wire_rank);
  manta__free(h->node);
  manta__free(h->in);
  manta__free(h->room);
  manta__free(h->req);
  manta__free(h->with);
}

manta_status manta__hosts_room(struct manta__hosts *h, size_t reqs, size_t bytes, manta_error *err)
{
  if (reqs > h->reqs) {
    struct manta__net_req **req = manta__calloc(reqs, sizeof *req);
    struct manta__with *with = manta__calloc(reqs, sizeof *with);
    if (!req || !with) {
      manta__free(req);
      manta__free(with);
      return manta_error_set(err, MANTA_ENOMEM, "no memory for %zu messages", reqs);
    }
    manta__free(h->req);
    manta__free(h->with);
    h->req = req;
    h->with = with;
    h->reqs = reqs;
  }
  if (bytes > h->room_bytes) {
    manta__free(h->room);
    h->room = manta__malloc(bytes);
    h->room_bytes = h->room ? bytes : 0;
  }
  return bytes <= h->room_bytes
             ? MANTA_OK
             : manta_error_set(err, MANTA_ENOMEM, "no memory for %zu bytes in flight", bytes);
}

// --- messages -----------------------------------------------------------------------------------

static uint64_t wire_tag(const struct manta__hosts *h, int sender, uint32_t seq, uint32_t sub,
                         enum manta__hosts_kind kind)
{
  return (uint64_t)h->group << 48 | (uint64_t)(uint16_t)h->wire_rank[sender] << 32 |
         (uint64_t)(uint16_t)seq << 16 | (uint64_t)(uint8_t)sub << 8 | (uint64_t)kind;
}

uint64_t manta__hosts_tag(const struct manta__hosts *h, int sender, enum manta__hosts_kind kind,
                          size_t sub)
{
  return wire_tag(h, sender, h->seq, (uint32_t)sub, kind);
}

// Sends and receives have no number: they come in order.
_Static_assert(MANTA__TAG_GROUP >> 16 < 128, "a caller's tag fits 23 bits of the wire's");
uint64_t manta__hosts_move_tag(const struct manta__hosts *h, int sender, int tag, int part)
{
  uint32_t n = (uint32_t)tag;
  return wire_tag(h, sender, n, n >> 16 << 1 | (uint32_t)part, MANTA__KIND_MOVE);
}

manta_status manta__hosts_send(struct manta__hosts *h, int rank, const void *buf, size_t bytes,
                               enum manta__hosts_kind kind, size_t sub, struct manta__net_req **out,
                               manta_error *err)
{
  manta_status st = manta__wire_send(h->wire, h->wire_rank[rank], buf, bytes,
                                     manta__hosts_tag(h, h->rank, kind, sub), out, err);
  return st < 0 ? manta__hosts_failed(h, rank, st, h->call, err) : st;
}

manta_status manta__hosts_recv(struct manta__hosts *h, int rank, void *buf, size_t bytes,
                               enum manta__hosts_kind kind, size_t sub, struct manta__net_req **out,
                               manta_error *err)
{
  manta_status st = manta__wire_recv(h->wire, h->wire_rank[rank], buf, bytes,
                                     manta__hosts_tag(h, rank, kind, sub), out, err);
  return st < 0 ? manta__hosts_failed(h, rank, st, h->call, err) : st;
}

static manta_status abort_cause(const struct manta__hosts *h, manta_error *err)
{
  const struct manta__comm_host *host = &h->team->fabric->host;
  return atomic_load_explicit(host->abort, memory_order_relaxed) ? host->check(host->ctx, err)
                                                                 : MANTA_OK;
}

manta_status manta__hosts_failed(struct manta__hosts *h, int rank, manta_status st,
                                 const char *call, manta_error *err)
{
  if (st == MANTA_EPROTO)
    return manta_error_set(err, st, "%s: rank %d sent more than it should", call, rank);
  if (st != MANTA_EPEERLOST && st != MANTA_ECANCELED)
    return st;
  for (int64_t by = manta__now() + ROOT_CAUSE_NS; manta__now() < by;) {
    MANTA_TRY(abort_cause(h, err));
    if (atomic_load(&h->team->quit))
      break;
    usleep(500);
  }
  return manta_error_set(err, MANTA_EPEERLOST, "%s: rank %d has left, or can't be reached", call,
                         rank);
}

manta_status manta__hosts_test(struct manta__hosts *h, struct manta__net_req **req, int rank,
                               size_t bytes, manta_error *err)
{
  size_t came = 0;
  manta_status st = *req ? manta__wire_test(h->wire, req, &came) : MANTA_OK;
  if (st < 0)
    return manta__hosts_failed(h, rank, st, h->call, err);
  if (st == MANTA_OK && bytes != SIZE_MAX && came != bytes)
    return manta_error_set(err, MANTA_EPROTO, "%s: rank %d sent %zu bytes instead of %zu", h->call,
                           rank, came, bytes);
  return st;
}

manta_status manta__hosts_trouble(struct manta__hosts *h, int rank, int64_t by, const char *call,
                                  manta_error *err)
{
  struct manta__team *t = h->team;
  MANTA_TRY(abort_cause(h, err));
  if (atomic_load_explicit(&t->quit, memory_order_relaxed))
    return manta_error_set(err, MANTA_ECANCELED, "%s: the communicator is being freed", call);
  if (by != MANTA__NEVER && manta__now() > by)
    return manta_error_set(err, MANTA_ETIMEDOUT,
                           "%s: rank %d of %d is missing after the timeout of %.3g s", call, rank,
                           h->size, (double)t->timeout_ns / 1e9);
  return MANTA_OK;
}

manta_status manta__hosts_turn(struct manta__hosts *h, int rank, int *idle, manta_error *err)
{
  struct manta__team *t = h->team;
  MANTA_TRY(manta__hosts_trouble(h, rank, h->by, h->call, err));
  bool waits = *idle >= h->wire->spins;
  if (waits)
    manta__team_alive(t, true);
  manta__wire_turn(h->wire, idle);
  if (waits)
    manta__team_alive(t, false);
  return MANTA_OK;
}

manta_status manta__hosts_wait(struct manta__hosts *h, size_t n, manta_error *err)
{
  for (int idle = 0;;) {
    int missing = -1;
    for (size_t i = 0; i < n; i++) {
      const struct manta__with *w = &h->with[i];
      manta_status st =
          h->req[i] ? manta__hosts_test(h, &h->req[i], w->rank, w->bytes, err) : MANTA_OK;
      if (st < 0)
        return st;
      missing = st == MANTA__NET_PENDING ? w->rank : missing;
    }
    if (missing < 0)
      return MANTA_OK;
    MANTA_TRY(manta__hosts_turn(h, missing, &idle, err));
  }
}

// --- how a call begins --------------------------------------------------------------------------

struct card { // what the first rank of a host tells the others; its ride follows
  struct manta__desc desc, other;
  int32_t rank, other_rank; // other_rank < 0: all ranks of the host call the same
  int32_t direct;
};

struct verdict { // what it tells its team, in its post
  manta_status status;
  bool direct;
  struct card differs;
};

static int leader(const struct manta__hosts *h, int g)
{
  return manta__hosts_member(h, g, 0);
}

static size_t card_room(const struct manta__hosts *h, int g)
{
  return sizeof(struct card) + (size_t)h->nodes_of[g] * 2 * MANTA__HOSTS_RIDE;
}

static uint8_t *card_of(const struct manta__hosts *h, int g)
{
  uint8_t *p = h->room;
  for (int i = 0; i < g; i++)
    p += card_room(h, i);
  return p;
}

const uint8_t *manta__hosts_ride(const struct manta__hosts *h, int g)
{
  return card_of(h, g) + sizeof(struct card);
}

// Our own card, with what differs inside our host, if anything does.
static void fill_card(struct manta__hosts *h, struct card *c)
{
  struct manta__team *t = h->team;
  *c = (struct card){.rank = h->rank,
                     .other_rank = -1,
                     .desc = *manta__team_desc(t, t->rank),
                     .direct = h->direct};
  for (int r = 0; r < t->size && c->other_rank < 0; r++)
    if (!manta__desc_same(&c->desc, manta__team_desc(t, r))) {
      c->other = *manta__team_desc(t, r);
      c->other_rank = h->member[h->first[h->me] + r];
    }
}

static manta_status swap_cards(struct manta__hosts *h, size_t ride, manta_error *err)
{
  size_t n = 0, bytes = sizeof(struct card) + ride;
  for (int g = 0; g < h->hosts; g++) {
    if (g == h->me)
      continue;
    h->with[n] = (struct manta__with){leader(h, g), SIZE_MAX};
    MANTA_TRY(manta__hosts_recv(h, leader(h, g), card_of(h, g), card_room(h, g), MANTA__KIND_CARD,
                                0, &h->req[n++], err));
    h->with[n] = (struct manta__with){leader(h, g), SIZE_MAX};
    MANTA_TRY(manta__hosts_send(h, leader(h, g), card_of(h, h->me), bytes, MANTA__KIND_CARD, 0,
                                &h->req[n++], err));
  }
  return manta__hosts_wait(h, n, err);
}

// The first two ranks that call different things, ours before others.
static struct verdict compare(const struct manta__hosts *h)
{
  struct card own, c;
  memcpy(&own, card_of(h, h->me), sizeof own);
  if (own.other_rank >= 0)
    return (struct verdict){MANTA_EINVAL, false, own};
  bool direct = true;
  for (int g = 0; g < h->hosts; g++) {
    memcpy(&c, card_of(h, g), sizeof c);
    direct = direct && c.direct;
    if (manta__desc_same(&own.desc, &c.desc) && c.other_rank < 0)
      continue;
    bool inside = manta__desc_same(&own.desc, &c.desc);
    own.other = inside ? c.other : c.desc;
    own.other_rank = inside ? c.other_rank : c.rank;
    return (struct verdict){MANTA_EINVAL, false, own};
  }
  return (struct verdict){.status = MANTA_OK, .direct = direct};
}

static size_t cards_bytes(const struct manta__hosts *h)
{
  size_t n = 0;
  for (int g = 0; g < h->hosts; g++)
    n += card_room(h, g);
  return n;
}

_Static_assert(sizeof(struct verdict) <= MANTA__COMM_TINY, "a verdict fits a post");

// The first rank of a host, after its team has met.
static manta_status agree(struct manta__hosts *h, const struct manta__opening *o, bool differs,
                          manta_error *err)
{
  struct manta__team *t = h->team;
  struct card c;
  size_t ride = 0;
  MANTA_TRY(manta__hosts_room(h, 2 * (size_t)h->hosts, cards_bytes(h), err));
  fill_card(h, &c);
  memcpy(card_of(h, h->me), &c, sizeof c);
  if (o->load && !differs)
    ride = o->load(h, o->task, card_of(h, h->me) + sizeof c);
  MANTA_TRY(swap_cards(h, ride, err));
  struct verdict v = compare(h);
  h->direct = v.direct;
  if (v.status == MANTA_OK && o->take)
    o->take(h, o->task);
  if (t->size > 1)
    memcpy(t->line[0].post[t->turn & 1].tiny, &v, sizeof v);
  else if (v.status < 0)
    return manta__desc_differ(h->rank, &v.differs.desc, v.differs.other_rank, &v.differs.other,
                              err);
  return MANTA_OK;
}

static manta_status hear_verdict(struct manta__hosts *h, manta_error *err)
{
  struct manta__team *t = h->team;
  struct verdict v;
  MANTA_TRY(manta__team_meet(t, err));
  memcpy(&v, t->line[0].post[t->turn & 1].tiny, sizeof v);
  h->direct = v.direct;
  if (v.status == MANTA_OK)
    return MANTA_OK;
  return manta__desc_differ(h->rank, manta__team_desc(t, t->rank), v.differs.other_rank,
                            &v.differs.other, err);
}

// Whether the ranks of this host can reach each other's buffers. The same answer on all of them.
static bool can_reach(const struct manta__team *t)
{
  for (int r = 0; r < t->size && t->size > 1; r++) {
    const struct manta__desc *d = manta__team_desc(t, r);
    if (d->send_at == MANTA__NOWHERE || d->recv_at == MANTA__NOWHERE)
      return false;
  }
  return true;
}

manta_status manta__hosts_open(struct manta__hosts *h, const struct manta__opening *o,
                               manta_error *err)
{
  struct manta__team *t = h->team;
  const struct manta__task *task = o->task;
  int16_t root = manta__task_root(task, h->size);
  struct manta__desc d = {.head = manta__desc_head(task->call, task->type, task->op, root),
                          .count = task->count,
                          .send_at = manta__heap_offset(t->fabric, task->send, o->bytes),
                          .recv_at = manta__heap_offset(t->fabric, task->recv, o->bytes)};
  manta_status st = manta__team_begin(t, &d, err);
  h->by = t->by;
  h->direct = o->direct && can_reach(t);
  if (t->rank == 0 && (st == MANTA_OK || st == MANTA_EINVAL)) { // the others must hear of it
    manta_status all = agree(h, o, st < 0, st < 0 ? NULL : err);
    st = st < 0 ? st : all;
  }
  return st == MANTA_OK && t->size > 1 ? hear_verdict(h, err) : st;
}

manta_status manta__hosts_agree(struct manta__hosts *h, const struct manta__task *task,
                                manta_error *err)
{
  struct manta__opening o = {.task = task};
  manta_status st = manta__hosts_open(h, &o, err);
  h->team->turn++;
  return st;
}
