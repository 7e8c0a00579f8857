/* SPDX-License-Identifier: Apache-2.0
 *
 * view/progress.h - a run's statistics as people read them while it goes on, and when it is over.
 *
 * What is written has no control characters but "\n" and, with `colours`, the escapes of colours;
 * names that a program gave are made safe. Without memory the text is cut.
 */
#ifndef MANTA_VIEW_PROGRESS_H
#define MANTA_VIEW_PROGRESS_H

#include "base/buf.h"
#include "view/stats.h"

struct manta__look {
  const char *name; /* of the run */
  int verbose; /* 1: metrics of rank 0 and over all workers; 2: of each worker, and the start */
  bool colours;
  int rows;       /* at most; 0: any number */
  int columns;    /* the same */
  int64_t now_ns; /* wall clock */
};

/* The block of a terminal: its rows, separated by "\n". */
void manta__progress_block(manta__buf *out, const struct manta__stats *s,
                           const struct manta__look *look);
/* One line, without its "\n". */
void manta__progress_line(manta__buf *out, const struct manta__stats *s,
                          const struct manta__look *look);
/* The block of a notebook: an element of HTML. */
void manta__progress_html(manta__buf *out, const struct manta__stats *s,
                          const struct manta__look *look);
/* After the end: whole lines. */
void manta__progress_summary(manta__buf *out, const struct manta__stats *s,
                             const struct manta__look *look);

#endif
