/* SPDX-License-Identifier: Apache-2.0
 *
 * wire/stream.h - messages with descriptors over a plain stream of bytes: what lies behind the
 * descriptors travels by value.
 *
 * (1) Content goes in small pieces, each of them only when nothing else waits to be sent: it never
 *     delays a message by more than one piece.
 * (2) A message is delivered after its content, with memfds in place of the descriptors. Those
 *     without content overtake it, unless they are of the same lane.
 * (3) Not thread-safe, as the connection below it.
 */
#ifndef MANTA_WIRE_STREAM_H
#define MANTA_WIRE_STREAM_H

#include "wire/conn.h"

#define MANTA__STREAM_PIECE   (64u << 10)
#define MANTA__STREAM_MAX     (1ull << 40) /* bytes behind one descriptor */
#define MANTA__STREAM_BACKLOG (64u << 20)  /* messages that wait to be sent */
#define MANTA__STREAM_WAITING 256          /* messages that wait for content */

typedef struct manta__stream manta__stream;

/* Takes both descriptors (they may be one), also on failure. check: as of a connection. */
manta_status manta__stream_create(manta__stream **out, int in, int out_fd,
                                  const struct manta__conn_check *check, manta_error *err);
void manta__stream_destroy(manta__stream *s); /* NULL is fine */
int manta__stream_in(const manta__stream *s);
int manta__stream_out(const manta__stream *s);

/* Queues the message; descriptors (of memfds or files, read from their beginning) are dup'ed. lane
 * 0: in no order with others. */
manta_status manta__stream_send(manta__stream *s, const struct manta__msg *m, uint64_t lane,
                                manta_error *err);
/* The same with a packed value as payload. */
manta_status manta__stream_send_value(manta__stream *s, const struct manta__msg *m, uint64_t lane,
                                      const manta_value *v, manta_error *err);
/* Sends as far as the other end takes it. */
manta_status manta__stream_flush(manta__stream *s, manta_error *err);
bool manta__stream_pending(const manta__stream *s);  /* poll for writing */
size_t manta__stream_queued(const manta__stream *s); /* bytes of messages that wait */

/* As manta__conn_recv. *heard (may be NULL) becomes true if anything came at all. */
int manta__stream_recv(manta__stream *s, struct manta__msg *m, bool *heard, manta_error *err);
/* The last receive stopped so that others have their turn: call it again without polling. */
bool manta__stream_more(const manta__stream *s);

#endif
