/* SPDX-License-Identifier: Apache-2.0
 *
 * train/screen.h - what workers print, on the driver's standard output and standard error.
 *
 * Every line has its rank in front. On a terminal the rows that still change (progress bars) stand
 * below the last line, those of every rank and stream, and are drawn again in place.
 * (1) All of it belongs to the thread inside run or next.
 * (2) Whatever else writes to the terminal on that thread does so between lift and lay.
 * (3) Two terminal streams are one screen. A stream that is none gets whole lines and nothing else.
 */
#ifndef MANTA_TRAIN_SCREEN_H
#define MANTA_TRAIN_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

#include <manta/trainer.h>

#include "base/buf.h"

struct manta__strip { /* the changing rows of one stream of a rank */
  struct manta__strip *next;
  int rank, stream;
  bool newest; /* of its surface */
  size_t len;
  char rows[];
};

struct manta__screen {
  manta_display to;
  bool colour[2];
  struct manta__strip *strips; /* by rank and stream */
  struct manta__surface {
    int drawn;    /* rows on it now */
    bool stale;   /* they are not as they should be */
    size_t width; /* of the one row that MANTA_DISPLAY_LINE has */
  } surface[2];
  char *block; /* rows below everything else, on a terminal; NULL: none */
  size_t block_len;
  bool block_drawn;
  int open[2]; /* 1 + the rank whose line has begun and not ended; 0: none */
  manta__buf out;
};

/* display NULL: the standard streams of the process. */
void manta__screen_init(struct manta__screen *s, const manta_display *display);
/* Ends an open line, takes the changing rows away, frees. Twice is harmless. */
void manta__screen_fini(struct manta__screen *s);
/* Whether changing rows are shown on any of the two. */
bool manta__screen_moves(const struct manta__screen *s);
/* Final lines, or a piece of a long one. Changing rows come back with lay. */
void manta__screen_lines(struct manta__screen *s, int rank, int stream, const char *p, size_t n);
/* The changing rows of that stream, all of them; drawn by lay. */
void manta__screen_live(struct manta__screen *s, int rank, int stream, const char *p, size_t n);
/* Rows of the run's own, separated by "\n", that stand below the line of the cursor and below all
 * others; drawn by lay, if standard error is a terminal. NULL: none any more. */
void manta__screen_block(struct manta__screen *s, const char *p, size_t n);
/* Those of the terminal. */
int manta__screen_rows(void);
int manta__screen_columns(void);
/* A line of nobody's, on standard error. */
void manta__screen_say(struct manta__screen *s, const char *head, const char *text);
/* Takes the changing rows off; draws them. */
void manta__screen_lift(struct manta__screen *s);
void manta__screen_lay(struct manta__screen *s);

#endif
