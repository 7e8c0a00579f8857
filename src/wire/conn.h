/* SPDX-License-Identifier: Apache-2.0
 *
 * wire/conn.h - framed messages over a socket, with descriptors.
 *
 * (1) A frame is a fixed header and at most MANTA__FRAME_MAX bytes. A larger payload travels as a
 *     memfd (flag BLOB) of at most MANTA__BLOB_MAX bytes; whoever only forwards never maps it.
 * (2) Header and payload are covered by one XXH3; a frame that does not agree breaks the
 *     connection.
 * (3) Sending queues what the socket does not take at once, up to MANTA__CONN_BACKLOG bytes: a
 *     peer that does not read is an error, not a growing heap.
 * (4) Not thread-safe: a connection belongs to one thread.
 */
#ifndef MANTA_WIRE_CONN_H
#define MANTA_WIRE_CONN_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/value.h>

#include "base/ident.h"

#define MANTA__FRAME_MAGIC 0x6d72466du /* "mFrm" */
#define MANTA__FRAME_MAX   (1u << 20)
#define MANTA__FRAME_INLINE                                                                        \
  (64u << 10) /* payloads above this go as a memfd where descriptors can */
#define MANTA__BLOB_MAX     (1ull << 30)
#define MANTA__CONN_BACKLOG (16u << 20)
#define MANTA__MSG_FDS      8

enum { MANTA__FRAME_BLOB = 1, MANTA__FRAME_REPLY = 2 };

struct manta__frame {
  uint32_t magic;
  uint16_t kind;
  uint8_t fds; /* descriptors that ride along, the blob's last */
  uint8_t flags;
  uint32_t len;
  uint32_t group; /* the trainer within its driver */
  struct manta__ident id;
  uint64_t call; /* number of a request, and of its reply; 0: neither */
  uint64_t hash; /* XXH3 of the payload, seeded with XXH3 of the header before this field */
};
static_assert(sizeof(struct manta__frame) == 56, "wire format");

/* A message. Received: data is borrowed until the next receive, fd[] belongs to the receiver, who
 * sets those it takes to -1 and closes the rest with manta__msg_close. To send: data and fd[] are
 * borrowed. */
struct manta__msg {
  uint16_t kind;
  uint8_t flags;
  uint32_t group;
  struct manta__ident id;
  uint64_t call;
  const void *data;
  size_t len;
  int fd[MANTA__MSG_FDS];
  int fds;
};

typedef struct manta__conn manta__conn;

/* Who knows what messages may say looks at each that is sent (`out`) or received; a failure becomes
 * that of the call. Builds for users (without MANTA_CHECKED) do not ask. */
struct manta__conn_check {
  manta_status (*look)(const struct manta__conn_check *k, const struct manta__msg *m, bool out,
                       manta_error *err);
};
#ifdef MANTA_CHECKED
#define MANTA__CHECKED 1
#else
#define MANTA__CHECKED 0
#endif

/* Takes the socket and makes it non-blocking. check: may be NULL; it outlives the connection. */
manta_status manta__conn_create(manta__conn **out, int sock, const struct manta__conn_check *check,
                                manta_error *err);
/* The same over two descriptors that carry bytes only, pipes for example (they may be one): frames
 * of up to MANTA__FRAME_MAX, no descriptors, no blobs. `backlog` takes the place of
 * MANTA__CONN_BACKLOG. The process must ignore SIGPIPE. */
manta_status manta__conn_create_pipes(manta__conn **out, int in, int out_fd, size_t backlog,
                                      manta_error *err);
/* Closes and frees; queued bytes are lost. NULL is fine. */
void manta__conn_destroy(manta__conn *c);
int manta__conn_fd(const manta__conn *c);
int manta__conn_out_fd(const manta__conn *c);    /* the same, but for pipes */
size_t manta__conn_queued(const manta__conn *c); /* bytes that wait to be sent */

/* Queues the message and tries to send it. MANTA_ECLOSED if the peer is gone, MANTA_ETOOBIG past a
 * limit (which is named). */
manta_status manta__conn_send(manta__conn *c, const struct manta__msg *m, manta_error *err);
/* The same with a packed value as payload. */
manta_status manta__conn_send_value(manta__conn *c, const struct manta__msg *m,
                                    const manta_value *v, manta_error *err);
/* Sends what is queued, as far as the socket takes it. */
manta_status manta__conn_flush(manta__conn *c, manta_error *err);
bool manta__conn_pending(const manta__conn *c); /* something is queued: poll for writing */
/* Sends all that is queued, waiting until `by`. */
manta_status manta__conn_drain(manta__conn *c, int64_t by, manta_error *err);

/* 1: a message in *m. 0: nothing now. MANTA_ECLOSED at the end, MANTA_EPROTO for garbage. A blob is
 * left as the last descriptor. */
int manta__conn_recv(manta__conn *c, struct manta__msg *m, manta_error *err);
/* Waits for a message until `by`: 1, or MANTA_ETIMEDOUT. */
int manta__conn_wait(manta__conn *c, int64_t by, struct manta__msg *m, manta_error *err);

/* The payload of a received message as a value (a blob is mapped for the while). */
manta_status manta__msg_value(const struct manta__msg *m, manta_value *out, manta_error *err);
/* The payload as a C type of that size; false if it has another one. */
bool manta__msg_copy(const struct manta__msg *m, void *out, size_t size);
/* Takes descriptor i out of a received message; -1 if there is none. */
int manta__msg_take_fd(struct manta__msg *m, int i);
/* Closes the descriptors of a received message that were not taken. */
void manta__msg_close(struct manta__msg *m);

#endif
