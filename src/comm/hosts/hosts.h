/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/hosts/hosts.h - the collectives of a group whose ranks are on several hosts.
 *
 * (1) The ranks of one host are a team (comm/shm/team.h) and share memory; between hosts there is
 *     a wire (comm/hosts/net.h). Local rank j of each host makes up lane j; there are as many
 *     lanes as the smallest host has ranks.
 * (2) A call begins with an agreement: the team compares descriptions, then the first rank of each
 *     host compares with all others, then it tells its team. What is small rides along.
 * (3) A large reduction: each lane has a slice of the vector, and of that each host has a part. A
 *     rank reduces its slice over its host, sends the nodes of the tree (comm/reduce/reduce.h) to
 *     the host whose part it is, which combines them and sends the result to all. In chunks,
 *     several under way: sending, receiving and adding overlap.
 * (4) What is added to what depends on ranks alone: the bits are those of manta__reduce over all.
 * (5) A wait ends as in a team: abort word, deadline, somebody who left.
 */
#ifndef MANTA_COMM_HOSTS_HOSTS_H
#define MANTA_COMM_HOSTS_HOSTS_H

#include "comm/hosts/net.h"
#include "comm/reduce/reduce.h"
#include "comm/shm/team.h"

#define MANTA__HOSTS_RIDE (8u << 10) /* bytes that ride with the description, at most */

struct manta__hosts_config {
  struct manta__wire *wire;
  struct manta__team *team; /* the ranks of this host, in the order of their ranks */
  int rank, size;
  const int *wire_rank; /* [size]: their ranks in the wire */
  const int *host;      /* [size]: any number that tells hosts apart */
  uint32_t group;       /* tells groups apart: the same on all ranks, < 65536 */
};

struct manta__hosts {
  struct manta__wire *wire;
  struct manta__team *team;
  int rank, size;
  int *wire_rank;
  int *host;                     /* of each rank: 0, 1, … in the order of their first ranks */
  int *local;                    /* of each rank: its place on its host */
  int *member;                   /* rank of local j of host g: member[first[g] + j] */
  int *first;                    /* [hosts + 1] */
  int hosts, me, lanes;          /* me: our host */
  struct manta__tree_node *node; /* all, in order */
  int *node_host;                /* of each */
  int *nodes_of;                 /* [hosts]: how many a host has */
  int nodes;
  uint32_t group, seq;
  int64_t by;   /* deadline of the current call */
  bool direct;  /* on every host the ranks reach each other's buffers */
  size_t piece; /* that fits half a staging buffer of every host */
  const char *call;
  _Atomic bool broken; /* a call failed half-way: the ranks are out of step */
  uint8_t *room;       /* for chunks under way */
  size_t room_bytes;
  struct manta__net_req **req; /* [reqs] */
  struct manta__with {
    int rank;     /* whom it is with */
    size_t bytes; /* that must come, SIZE_MAX: it is a send */
  } * with;       /* [reqs] */
  size_t reqs;
  const void **in; /* [size] */
};

manta_status manta__hosts_init(struct manta__hosts *h, const struct manta__hosts_config *cfg,
                               manta_error *err);
void manta__hosts_fini(struct manta__hosts *h);
/* Runs a collective on this thread. */
manta_status manta__hosts_run(struct manta__hosts *h, const struct manta__task *task,
                              manta_error *err);
/* Moves what can be moved of a send or a receive with another host's rank (m->peer is its rank in
 * the group); true when it is over, with its status in *st. */
bool manta__hosts_step(struct manta__hosts *h, struct manta__move *m, manta_status *st,
                       manta_error *err);
/* Gives up what is under way of it. */
void manta__hosts_drop(struct manta__hosts *h, struct manta__move *m);

/* --- for the files of hosts --- */

/* Kinds of messages: the lowest byte of a tag. */
enum manta__hosts_kind {
  MANTA__KIND_CARD = 1,
  MANTA__KIND_PART,
  MANTA__KIND_RESULT,
  MANTA__KIND_DATA,
  MANTA__KIND_MOVE
};

/* Start a message of this call with a rank of the group; `sub` tells those of one kind apart. */
manta_status manta__hosts_send(struct manta__hosts *h, int rank, const void *buf, size_t bytes,
                               enum manta__hosts_kind kind, size_t sub, struct manta__net_req **out,
                               manta_error *err);
manta_status manta__hosts_recv(struct manta__hosts *h, int rank, void *buf, size_t bytes,
                               enum manta__hosts_kind kind, size_t sub, struct manta__net_req **out,
                               manta_error *err);
/* MANTA_OK if it is over (or NULL), MANTA__NET_PENDING, or its failure with a message; `rank` is
 * whom it is with. A receive must bring exactly `bytes`; SIZE_MAX: whatever comes. */
manta_status manta__hosts_test(struct manta__hosts *h, struct manta__net_req **req, int rank,
                               size_t bytes, manta_error *err);
/* One round of waiting for `rank`: what ends it besides progress. */
manta_status manta__hosts_turn(struct manta__hosts *h, int rank, int *idle, manta_error *err);
/* Room for n requests and for `bytes` of data, in h->req (all NULL) and h->room. */
manta_status manta__hosts_room(struct manta__hosts *h, size_t reqs, size_t bytes, manta_error *err);
/* What ends a wait for `rank` besides progress: MANTA_OK if nothing does. */
manta_status manta__hosts_trouble(struct manta__hosts *h, int rank, int64_t by, const char *call,
                                  manta_error *err);
uint64_t manta__hosts_tag(const struct manta__hosts *h, int sender, enum manta__hosts_kind kind,
                          size_t sub);
/* That of a send: its head (0) or its data (1). */
uint64_t manta__hosts_move_tag(const struct manta__hosts *h, int sender, int tag, int part);
/* Waits for the first n of h->req; h->with says what they are. */
manta_status manta__hosts_wait(struct manta__hosts *h, size_t n, manta_error *err);
/* What a message with `rank` failed by, with the reason if somebody knows it. */
manta_status manta__hosts_failed(struct manta__hosts *h, int rank, manta_status st,
                                 const char *call, manta_error *err);

/* How a call begins. After it the team's staging and result buffers of this turn hold what was put
 * there: the caller ends the turn. */
struct manta__opening {
  const struct manta__task *task;
  size_t bytes; /* of each buffer */
  bool direct;  /* others of the host are to reach the buffers, if they can: see h->direct */
  /* The first rank of a host: puts what rides with the description (nodes * 2 * RIDE bytes at most)
   * to `out`, and says how much; and when all agree, takes what came. May be NULL. */
  size_t (*load)(struct manta__hosts *h, const struct manta__task *task, uint8_t *out);
  void (*take)(struct manta__hosts *h, const struct manta__task *task);
};
manta_status manta__hosts_open(struct manta__hosts *h, const struct manta__opening *o,
                               manta_error *err);
/* What rode with the description of host g. */
const uint8_t *manta__hosts_ride(const struct manta__hosts *h, int g);

/* Begins a call with which nothing rides, and ends its turn. */
manta_status manta__hosts_agree(struct manta__hosts *h, const struct manta__task *task,
                                manta_error *err);
/* --- reduction.c --- */
manta_status manta__hosts_reduce(struct manta__hosts *h, const struct manta__task *task,
                                 manta_error *err);
manta_status manta__hosts_reduce_scatter(struct manta__hosts *h, const struct manta__task *task,
                                         manta_error *err);

/* The rank of host g in a lane. */
static inline int manta__hosts_member(const struct manta__hosts *h, int g, int lane)
{
  return h->member[h->first[g] + lane];
}

/* --- lanes.c --- */

#define MANTA__TO_ALL  (-1)
#define MANTA__TO_SELF (-2)

/* A reduction between the ranks of one lane. */
struct manta__lane_reduction {
  int lane;
  const size_t *bound; /* [hosts + 1]: host g combines the elements [bound[g], bound[g + 1]) */
  manta_dtype type;
  manta_op op;
  int to; /* host that gets the result, MANTA__TO_ALL, or each its own part MANTA__TO_SELF */
  void *ctx;
  /* Gives the nodes of this host for [at, at + count), wide, one behind the other: in `room`, or
   * anywhere that stays as it is until the result is there. */
  manta_status (*part)(void *ctx, size_t at, size_t count, void *room, const void **out,
                       manta_error *err);
  /* Where the result for [at, at + count) goes; `spare` if nobody here needs it. */
  uint8_t *(*place)(void *ctx, size_t at, uint8_t *spare);
  /* It is there. May be NULL. */
  manta_status (*done)(void *ctx, size_t at, size_t count, manta_error *err);
};

manta_status manta__hosts_reduce_lane(struct manta__hosts *h, const struct manta__lane_reduction *x,
                                      manta_error *err);

#endif
