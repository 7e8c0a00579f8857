/* SPDX-License-Identifier: Apache-2.0
 *
 * data/share/callers.h - processes that call functions over rows for the reader of a host.
 *
 *     reader                                         caller
 *     scan of a block ── callers ── socket ──► the program's load and call
 *                          ▲  memfd: rows  ◄── memfd: what the function gave
 *
 * (1) A caller has one call at a time. There are at most as many as the host has CPUs, and no more
 *     than threads that wait for one.
 * (2) A caller that dies is replaced, and its call is made again; the third death over the same
 *     rows is the failure of the step. Nothing but the answer of a call that ended well counts.
 * (3) A caller dies with the reader, by its lifeline. Its output is a file of the reader's, which
 *     the workers get with their batches: also its last words.
 * (4) A call has no deadline. It ends when all workers that were served when it began are gone:
 *     then its caller is killed.
 */
#ifndef MANTA_DATA_SHARE_CALLERS_H
#define MANTA_DATA_SHARE_CALLERS_H

#include <manta/embed.h>

#include "data/plan/apply.h"

/* The descriptors that a caller is born with. */
enum { MANTA__C_CONN, MANTA__C_LIFELINE, MANTA__C_OUTPUT, MANTA__C_FDS };

#define MANTA__CALLERS_DEATHS 3

/* How a caller comes to be; any thread. The descriptors stay the reader's. One that does not begin
 * closes them, or its copies of them. */
typedef manta_status (*manta__caller_start)(void *ctx, const int fds[MANTA__C_FDS],
                                            manta_error *err);

/* Makes the callers the host of functions in plans, started by `start`. */
void manta__callers_set_up(manta__caller_start start, void *ctx);
/* Ends all that are idle. */
void manta__callers_end(void);
/* Takes up to `size` - 1 bytes of what functions have printed, as a string. */
void manta__callers_take_output(char *to, size_t size);
/* What a function gave beside the failure of this message, once: a memfd, or -1. */
int manta__callers_take_raised(const char *message);

/* --- in the caller's process --- */

/* Serves the reader until it is gone. Takes the descriptors. */
void manta__caller_main(const int fds[MANTA__C_FDS], const manta_callers *functions);

/* --- between them: messages that arrive whole --- */

struct manta__caller_hello {
  uint64_t magic;
  int64_t pid;
};
#define MANTA__CALLER_MAGIC 0x316c6c6143ull

/* A call. fds: the rows as an image; and the function, a packed map, if it is a new one. */
struct manta__caller_ask {
  uint64_t function; /* its number */
  uint64_t bytes;    /* of the image */
  uint64_t seed;
};

/* fd: what the function gave, as a packed map of `head` bytes, an image of `image` bytes and
 * `count` numbers of rows, each part at a multiple of 64 bytes. With a failure: the map alone. */
struct manta__caller_said {
  int32_t status;
  int32_t batch; /* 1: there is an image, of the schema that the map has */
  uint64_t head, image;
  int64_t count; /* -1: no numbers of rows */
  char message[MANTA_ERROR_MESSAGE_MAX];
};

#endif
