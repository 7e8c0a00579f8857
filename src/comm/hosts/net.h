/* SPDX-License-Identifier: Apache-2.0
 *
 * comm/hosts/net.h - messages between hosts: the table that a transport fills in, one per process.
 *
 * (1) A message has a receiver, a tag and a length; it meets the receive with the same sender and
 *     tag. Two with the same sender and tag arrive in the order in which they were sent.
 * (2) Nothing moves but inside a call. A call never waits, except create, stop and destroy, which
 *     have deadlines of their own.
 * (3) A buffer belongs to the request until `test` has said that it is over, or `stop` returned.
 * (4) A peer that dies, or leaves, is lost for good: what was started with it fails, what is
 *     started later fails at once, with MANTA_EPEERLOST. A link that is silent is not noticed here:
 *     whoever hears heartbeats raises the abort word.
 * (5) The user's process is left as it was: no signal handler, no environment, nothing printed; a
 *     thread of the transport has all signals blocked.
 * (6) One thread at a time.
 */
#ifndef MANTA_COMM_HOSTS_NET_H
#define MANTA_COMM_HOSTS_NET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#define MANTA__NET_VERSION  2
#define MANTA__NET_BLOB_MAX (64u << 10)
#define MANTA__NET_PENDING  1 /* what `test` says of a request that goes on */

struct manta__net;
struct manta__net_req;

struct manta__net_config {
  int rank, size;
  const bool *remote; /* [size]: who is reached by this net; the others are never named */
  const char *local;  /* address or name of the interface that peers see; NULL: whatever there is */
  void *ctx;
  /* Gives a blob of ours to all ranks, and gets one of each: all[r], bytes[r], valid until the next
   * call. A collective: every rank of the group makes it once, inside create. */
  manta_status (*exchange)(void *ctx, const void *blob, size_t size, const void **all,
                           size_t *bytes, manta_error *err);
};

struct manta__net_ops {
  uint32_t version; /* MANTA__NET_VERSION */
  const char *name;
  manta_status (*create)(struct manta__net **out, const struct manta__net_config *cfg,
                         manta_error *err);
  /* What was sent and is over still arrives (within a second). NULL is fine. */
  void (*destroy)(struct manta__net *net);
  /* Start a message. 0 bytes are fine. On failure there is no request. */
  manta_status (*send)(struct manta__net *net, int peer, const void *buf, size_t bytes,
                       uint64_t tag, struct manta__net_req **out, manta_error *err);
  /* `bytes` is the room: a longer message is MANTA_EPROTO. */
  manta_status (*recv)(struct manta__net *net, int peer, void *buf, size_t bytes, uint64_t tag,
                       struct manta__net_req **out, manta_error *err);
  /* MANTA_OK: over, and `bytes` (may be NULL) is what came. MANTA__NET_PENDING, or how it failed;
   * MANTA_ECANCELED after cancel or stop. */
  manta_status (*test)(struct manta__net *net, const struct manta__net_req *req, size_t *bytes);
  /* A receive that nothing has met yet is over at once. Of others no promise: see stop. */
  void (*cancel)(struct manta__net *net, struct manta__net_req *req);
  /* Gives the request back; it must be over. */
  void (*release)(struct manta__net *net, struct manta__net_req *req);
  /* Moves what can be moved. Whether something was. */
  bool (*progress)(struct manta__net *net);
  /* A descriptor that becomes readable when progress has something to do; -1: it has already. */
  int (*arm)(struct manta__net *net);
  /* The end, in a hurry: every request is over, every peer lost, and no buffer is touched again. */
  void (*stop)(struct manta__net *net);
};

struct manta__net {
  const struct manta__net_ops *ops; /* a transport's own fields follow */
};

/* The one symbol that a module shows: const struct manta__net_ops * by this name. */
#define MANTA__NET_ENTRY "manta_net_entry"

/* The transport of that name ("ucx"), out of its module: loaded once per process, and kept. */
manta_status manta__net_load(const char *name, const struct manta__net_ops **out, manta_error *err);

/* --- wire: a net that the threads of a process share --- */

struct manta__wire {
  struct manta__net *net;
  pthread_mutex_t lock; /* for the net */
  _Atomic int sleepers; /* threads that wait for something to come in */
  int kick;             /* eventfd: somebody else's progress may have ended what they wait for */
  int spins;            /* rounds without progress before sleeping */
};

/* Takes the net over, and destroys it in fini. */
manta_status manta__wire_init(struct manta__wire *w, struct manta__net *net, manta_error *err);
void manta__wire_fini(struct manta__wire *w);
/* As those of the net. */
manta_status manta__wire_send(struct manta__wire *w, int peer, const void *buf, size_t bytes,
                              uint64_t tag, struct manta__net_req **out, manta_error *err);
manta_status manta__wire_recv(struct manta__wire *w, int peer, void *buf, size_t bytes,
                              uint64_t tag, struct manta__net_req **out, manta_error *err);
/* Releases a request that is over and makes *req NULL; MANTA__NET_PENDING if it is not. */
manta_status manta__wire_test(struct manta__wire *w, struct manta__net_req **req, size_t *bytes);
/* One round: makes progress, or waits for it, a few milliseconds at most. Look then at what you
 * wait for, at the abort word and at the clock, and call again with the same `idle` (0 at first),
 * which counts the rounds in which nothing moved. */
void manta__wire_turn(struct manta__wire *w, int *idle);
/* Gives up n requests (NULL is fine): none of their buffers is touched again. If one can't be
 * cancelled the whole net is stopped. */
void manta__wire_drop(struct manta__wire *w, struct manta__net_req **req, size_t n);

#endif
