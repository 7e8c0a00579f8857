/* SPDX-License-Identifier: Apache-2.0
 *
 * data/share/share.h - batches from the reader process of a host to its workers.
 *
 *     worker                                  reader
 *     loader ── taker ◄── socket, slots ──► giver ── loader ── feed, cache
 *
 * Each loader of a worker has a connection of its own for each time that it begins somewhere. The
 * worker says what it wants; from then on the reader fills slots (memfds that both map) and says
 * which, and the worker says which it is done with.
 *
 * (1) A slot is written while the worker has not got it, and read until it has given it back. A
 *     worker that is slow, or dies, holds its own slots and nobody else's.
 * (2) A worker that keeps more batches than it has slots for gets copies: it never stops itself.
 * (3) The position comes with each batch. A worker whose reader dies asks for another one, which
 *     goes on behind the batch that came last.
 * (4) Data sets of equal plans are one in the reader, so that their blocks are parsed once, and
 *     their functions called once. The reader's directory and environment are those of the first
 *     worker that it serves.
 */
#ifndef MANTA_DATA_SHARE_SHARE_H
#define MANTA_DATA_SHARE_SHARE_H

#include "data/loader/loader.h"

#define MANTA__SHARE_SLOTS 64   /* of one connection, at most */
#define MANTA__SHARE_TEXT  4096 /* of one message */

/* What a worker says first. fd: a memfd with the map {"plan", "cwd", "env"}, packed. */
struct manta__share_open {
  uint64_t magic;
  int64_t batch_rows, epoch;
  int32_t rank, ranks, tail, threads, slots;
  int32_t speaks; /* 1: what functions print comes out of this worker */
  uint64_t memory_limit;
  uint64_t plan; /* hash of the packed plan */
  struct manta__position from;
};
#define MANTA__SHARE_MAGIC 0x31726853ull

/* What the reader says. fd: the memfd of the slot, if it is another than before; with a failure,
 * what a function gave beside it. */
struct manta__share_said {
  int32_t status; /* 1: a batch; 0: the end; negative: a failure */
  int32_t slot;
  uint64_t bytes;
  struct manta__position at; /* behind it */
  struct manta__feed_times times;
  int64_t make, step, read;     /* nanoseconds; step, read: of all workers of the host */
  int64_t file_bytes, skipped;  /* that were read, and rows of them */
  char text[MANTA__SHARE_TEXT]; /* why it failed; else what functions have printed */
};

/* Directory and environment of a process, with which paths and credentials mean the same in
 * another one. */
manta_status manta__home_put(manta_value *map);
void manta__home_take(const manta_value *map);

/* --- the worker's side --- */

struct manta__share_source {
  void *ctx;
  /* A socket to the reader; MANTA_EUNSUPPORTED: there is none to be had. */
  manta_status (*connect)(void *ctx, int *sock, manta_error *err);
  /* Asked again and again in a wait, which a failure ends. */
  manta_status (*check)(void *ctx, manta_error *err);
  bool speaks; /* for the reader's functions: of the workers of a host, one */
};

/* What a loader of these options takes its batches from; finished by the loader. The source is
 * copied. MANTA_EUNSUPPORTED: the plan cannot be sent. */
manta_status manta__taker_create(struct manta__supply *out, manta_dataset *d,
                                 const manta_loader_config *c,
                                 const struct manta__share_source *source, manta_error *err);

/* --- the reader's side --- */

/* Serves one worker until it is gone, and closes the socket. On a thread of its own. */
void manta__giver_serve(int sock);
/* The number of the last worker that was served, and whether one of those up to a number is still
 * there, or there were none. */
uint64_t manta__giver_served(void);
bool manta__giver_waits(uint64_t served);

#endif
