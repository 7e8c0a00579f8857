/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/lines.h - one stream of a worker's output, as a terminal would show it: lines that are
 * final, and rows below them that still change.
 *
 * A carriage return, "\r", takes the cursor back to the start of its row, and what comes next
 * replaces the row: a progress bar is one row, whose last state becomes a line when it ends. Nested
 * bars move the cursor up again (ESC [ n A), so the rows of bars that have ended stay in the window
 * until it is known that the cursor does not come back:
 * (1) What ends without a "\r" in it is final at once, with all rows above it.
 * (2) A row that was replaced is held when it ends. It is final when the row below it is replaced
 *     without a visit above, when plain text ends below it, or when the window is full.
 * (3) Bytes are final in order. A row is at most MANTA__LINE_MAX bytes: a longer plain line is
 *     handed on in pieces, the excess of a moving one is dropped.
 */
#ifndef MANTA_AGENT_LINES_H
#define MANTA_AGENT_LINES_H

#include <stdbool.h>
#include <stddef.h>

#define MANTA__LINE_MAX  8192
#define MANTA__LINES_MAX 8

/* Called with final text: whole lines, or a piece of a long one. */
typedef void (*manta__lines_fn)(void *ctx, const char *text, size_t len);

struct manta__line_row {
  char *text; /* MANTA__LINE_MAX + 1 bytes, or NULL */
  size_t len;
  bool back;    /* the cursor is at its start: the next text replaces it */
  bool moved;   /* it was replaced, or drawn after a "\r" */
  bool spilled; /* its beginning was handed on */
};

struct manta__lines {
  manta__lines_fn final;
  void *ctx;
  struct manta__line_row row[MANTA__LINES_MAX];
  int rows, at; /* in the window; the cursor's */
  bool drawn;   /* text came since the cursor came to this row */
  bool changed; /* since manta__lines_live was last asked */
  char escape[16];
  size_t escape_len; /* of an escape sequence that is not whole yet */
};

void manta__lines_init(struct manta__lines *l, manta__lines_fn final, void *ctx);
void manta__lines_fini(struct manta__lines *l);
/* Takes what the stream says. */
void manta__lines_put(struct manta__lines *l, const char *p, size_t n);
/* Makes the held rows above an empty one final: the other stream says something that comes after
 * them. */
void manta__lines_settle(struct manta__lines *l);
/* Makes all of it final: the last line needs no newline. */
void manta__lines_finish(struct manta__lines *l);
/* The rows that are not final, a line each without the last newline; at most `size` bytes. */
size_t manta__lines_live(struct manta__lines *l, char *buf, size_t size);

#endif
