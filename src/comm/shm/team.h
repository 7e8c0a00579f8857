/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/shm/team.h - the ranks of a communicator that share memory.
 *
 * (1) All ranks make the same calls in the same order; each call is a number of phases that all
 *     ranks agree on. A rank publishes a phase by storing its number; the others wait for that
 *     store.
 * (2) A call is a turn. Its first phase carries its description: a call that differs is found
 *     there, on every rank, and named.
 * (3) What a rank puts into its staging buffer in one phase is read by others until they publish
 *     the next. The buffer is a ring that everybody goes through in the same steps, larger than the
 *     second cache: to write lines that both sides still have in theirs takes three times as long.
 * (4) A wait ends with the phase, with the abort word, with the deadline, or when a rank that is
 *     waited for has left its function.
 */
#ifndef MANTA_COMM_SHM_TEAM_H
#define MANTA_COMM_SHM_TEAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <manta/comm.h>

#include "base/prefetch.h"
#include "comm/shm/chooser.h"
#include "comm/shm/remote.h"
#include "comm/shm/task.h"
#include "sys/bell.h"

#define MANTA__COMM_TINY  (1u << 10)  /* up to here the data lie behind the description */
#define MANTA__COMM_PIECE (64u << 10) /* goes through a staging buffer at once */

struct manta__wire;

/* A run on several hosts. */
struct manta__span {
  int rank, size;           /* of all */
  const int *host;          /* [size]: any number that tells hosts apart */
  struct manta__wire *wire; /* comm/hosts/net.h; its peers are the ranks of the run */
};

/* The host: who we are, the shared segment, the abort word, the bells. Borrowed. */
struct manta__comm_host {
  int rank, size;                 /* of those of this host, in the order of their ranks */
  const struct manta__span *span; /* NULL: these are all */
  int heap_fd;
  void *ctx;
  const _Atomic uint32_t *abort; /* not 0: check says why */
  manta_status (*check)(void *ctx, manta_error *err);
  struct manta__bell *(*bell)(void *ctx, int rank);
  /* A sign of life; waits = true: the clock that looks for hangs stands still until the next
   * one. Only called on the user's own thread. */
  void (*alive)(void *ctx, bool waits);
  /* For manta_comm_agree and manta_comm_rebuild; NULL: there is nobody to ask. The latter destroys
   * the communicator. */
  manta_status (*agree)(void *ctx, int64_t *value, int64_t by, manta_error *err);
  manta_status (*rebuild)(void *ctx, manta_comm **out, manta_error *err);
};

struct manta__heap_block {
  uint64_t at, bytes;
  bool used;
};

/* What the communicators of a process have in common. */
struct manta__fabric {
  struct manta__comm_host host;
  uint8_t *base; /* of the segment */
  size_t bytes;
  pthread_mutex_t lock;     /* for what follows */
  uint64_t heap_at, region; /* rank r deals out [heap_at + r * region, … + region) */
  struct manta__heap_block *block;
  size_t blocks, block_cap;
  int *here;                  /* [host.size]: rank in the run of each rank of this host */
  uint32_t next_group;        /* above every group that we were in */
  manta_comm *comms;          /* the world's last */
  struct manta__grave *grave; /* memory of teams that some rank has not left yet */
};

#define MANTA__TINY_SLOT SIZE_MAX

/* What a rank publishes in one turn. Who waits looks at the first line all the time and thereby
 * takes it from us: it is written at once, at the end, and the data have lines of their own, which
 * stay ours until then (4 B between far processors: 0.64 -> 0.32 us). */
struct manta__post {
  _Alignas(64) _Atomic uint32_t phase;
  struct manta__desc desc;
  _Alignas(64) uint8_t tiny[MANTA__COMM_TINY];
};

struct manta__line {                   /* of one rank, in the segment */
  _Alignas(128) _Atomic uint32_t left; /* its function has returned */
  _Atomic uint32_t gave_up;            /* a call of its failed: its memory is its own again */
  _Alignas(64) _Atomic uint32_t cpu;   /* where it last began a call, from 1 on: often written */
  struct manta__hand hand;             /* what it writes into the memory of others */
  struct manta__post post[2];          /* of this turn and the one before */
};

struct manta__pair { /* bytes on their way from one rank to another, in the segment */
  _Alignas(128) _Atomic uint64_t put;
  _Alignas(128) _Atomic uint64_t taken;
};

struct manta__net_req;

/* A send or a receive on its way. */
struct manta__move {
  bool sends, headed, wrong;
  bool held; /* its channel is in the middle of another's message */
  int peer, tag;
  uint8_t *buf;
  size_t bytes, done;
  uint64_t count, place;
  uint32_t type;
  int64_t by;
  uint64_t their_count; /* of a send that differs */
  uint32_t their_type;
  struct manta__net_req *req[2]; /* with another host: head and data, */
  uint8_t *box;                  /* and what is under way besides the buffer */
};

struct manta__team {
  struct manta__fabric *fabric;
  int rank, size;
  int *host_rank;   /* number of each among the ranks of the host */
  const int *label; /* rank of each in a group that spans hosts, for messages; NULL: as here */
  struct manta__line *line;
  struct manta__pair *pair; /* [to][from] */
  uint8_t *staging;         /* [rank][ring] */
  uint8_t *result;          /* [ring / 2] */
  uint8_t *rings;           /* [to][from][ring_bytes] */
  size_t ring_bytes;
  uint32_t phase;      /* published by us */
  uint32_t turn;       /* which description is next */
  size_t ring, cursor; /* bytes of a staging buffer, and how far we are in it */
  size_t slot;         /* where in it the current piece lies */
  size_t few[2];       /* bytes behind the descriptions of this turn and the one before */
  struct manta__chooser chooser;
  bool past; /* this call is staged past the caches */
  struct manta__remote remote;
  bool warm;
  _Atomic int64_t timeout_ns; /* < 0: none; set while calls are in flight */
  int64_t by;                 /* deadline of the current call */
  _Atomic bool broken;        /* a call ran out of time: the ranks are out of step */
  _Atomic bool quit;          /* we are leaving: waits end */
  int gone;                   /* a rank that left in the middle of a call, or -1 */
  int spins;                  /* before yielding and sleeping */
  int shun;                   /* waits that do not yield */
  bool crowded;               /* more ranks than processors */
  uint32_t looks;             /* long waits since we last looked how many ranks each has */
  const void **in;            /* n pointers, for reductions */
};

/* --- team.c --- */

/* Bytes that a team of n needs in the segment, all zeros. */
size_t manta__team_bytes(int n);
manta_status manta__team_init(struct manta__team *t, struct manta__fabric *f, uint64_t at, int rank,
                              int size, const int *host_rank, manta_error *err);
/* Tells the others that we left, and frees. */
void manta__team_fini(struct manta__team *t);
/* Tells the others that this rank has left. From any thread. */
void manta__team_depart(struct manta__team *t);
/* Every waiting and later call of ours ends with MANTA_ECANCELED. */
void manta__team_quit(struct manta__team *t);
/* Faults our staging buffer in, before its first use. */
void manta__team_warm(struct manta__team *t);
/* Whether a call may begin; gone: a rank without which it can't, or -1. After one that failed
 * nothing of ours may be written or published any more: a slower peer, whose own call can still end
 * well, would take it for our part of that. */
manta_status manta__team_ready(struct manta__team *t, uint32_t call, int gone, manta_error *err);
/* Publishes our next phase. */
void manta__team_publish(struct manta__team *t);
/* Our next phase comes soon: gets the line of our post back from those who have read it. */
static inline void manta__team_claim(const struct manta__team *t)
{
  manta__prefetch_to_write(&t->line[t->rank].post[t->turn & 1]);
}
/* Waits until every rank has published this phase, which we have. */
manta_status manta__team_wait(struct manta__team *t, uint32_t phase, manta_error *err);
/* Publishes, and waits for the same of all others. */
manta_status manta__team_meet(struct manta__team *t, manta_error *err);
/* A rank without which this call cannot end can't be reached: waits until it is known why. */
manta_status manta__team_await_loss(struct manta__team *t, int rank, manta_error *err);
/* What else than its progress ends a wait for `rank`: MANTA_OK if nothing does. */
manta_status manta__team_trouble(struct manta__team *t, int rank, bool left, int64_t by,
                                 const char *call, manta_error *err);
/* A call of ours failed: says so before anything of our memory can change. */
static inline void manta__team_give_up(const struct manta__team *t)
{
  atomic_store(&t->line[t->rank].gave_up, 1);
  // The store keeps back nothing that comes after it: who reads what the caller writes next could
  // miss it (on x86-64 it does, and this is no instruction).
  atomic_thread_fence(memory_order_release);
}
/* Whether what we read from the memory of `rank` was still whole. To be called after we published
 * that we have read it: who waits for that says first that it gives up, then returns, and then its
 * memory may change. */
manta_status manta__team_verify(struct manta__team *t, int rank, const char *call,
                                manta_error *err);
/* The last phase of a call that read the memory of all: meets, and settles with each. */
manta_status manta__team_meet_verified(struct manta__team *t, manta_error *err);
/* What messages call a rank: its rank in the group. */
static inline int manta__team_label(const struct manta__team *t, int rank)
{
  return t->label ? t->label[rank] : rank;
}
void manta__team_ring(const struct manta__team *t, int rank);
struct manta__bell *manta__team_bell(const struct manta__team *t);
/* On the user's thread: a sign of life (see manta__comm_host). */
void manta__team_alive(const struct manta__team *t, bool waits);
/* This thread is manta's own: it gives no signs of life. */
void manta__team_background(void);
/* The next place of this size in everybody's staging buffer: now the current piece. */
void manta__team_slot(struct manta__team *t, size_t bytes);
/* Bytes of a staging buffer in a team of n. */
size_t manta__team_ring_size(int n);
/* The description of a rank in this turn, and its staging buffer for the current piece. */
static inline const struct manta__desc *manta__team_desc(const struct manta__team *t, int rank)
{
  return &t->line[rank].post[t->turn & 1].desc;
}
static inline uint8_t *manta__team_staging(const struct manta__team *t, int rank)
{
  if (t->slot == MANTA__TINY_SLOT)
    return t->line[rank].post[t->turn & 1].tiny;
  return t->staging + (size_t)rank * t->ring + t->slot;
}

/* Publishes the description of our post (and what lies in the staging buffer), waits for those of
 * the others, and compares. */
manta_status manta__team_exchange(struct manta__team *t, manta_error *err);
/* The same with this description. Here, so that what the caller has in registers goes straight
 * into the post. */
static inline manta_status manta__team_begin(struct manta__team *t, const struct manta__desc *d,
                                             manta_error *err)
{
  t->line[t->rank].post[t->turn & 1].desc = *d;
  return manta__team_exchange(t, err);
}

/* --- crowd.c --- */

/* Moves this thread to a CPU with fewer ranks, if there is one. */
void manta__team_even_out(struct manta__team *t);

/* --- shared.c --- */
manta_status manta__team_run(struct manta__team *t, const struct manta__task *task,
                             manta_error *err);

/* --- pair.c --- */

/* Moves what can be moved; true when it is over, with its status in *st. */
bool manta__pair_step(struct manta__team *t, struct manta__move *m, manta_status *st,
                      manta_error *err);

/* Whether the head of a message from `from` is there, not taken yet, and what it says. */
bool manta__pair_peek(const struct manta__team *t, int from, struct manta__move *out);
/* A receive gets what another has received: its status. */
manta_status manta__pair_take(struct manta__team *t, struct manta__move *m,
                              const struct manta__move *from, manta_error *err);

/* --- heap.c --- */

/* Bytes of the segment for `size` ranks with a heap of `region` bytes each. */
size_t manta__comm_segment(int size, uint64_t region);
manta_status manta__fabric_create(struct manta__fabric **out, const struct manta__comm_host *host,
                                  manta_error *err);
void manta__fabric_destroy(struct manta__fabric *f);
/* Zeroed memory of the segment; its place in *at. */
manta_status manta__heap_take(struct manta__fabric *f, size_t bytes, uint64_t *at,
                              manta_error *err);
void manta__heap_give(struct manta__fabric *f, uint64_t at);
/* Gives the memory of a team back when the last of its n ranks has left it. */
void manta__heap_bury(struct manta__fabric *f, uint64_t at, int n);
/* Place of p in the segment if all of it lies in our part of the heap, or MANTA__NOWHERE. */
uint64_t manta__heap_offset(const struct manta__fabric *f, const void *p, size_t bytes);

#endif
