/* SPDX-License-Identifier: Apache-2.0
 *
 * data/lines/lines.h - files whose rows are lines: text as it is, and JSON.
 *
 * A line ends in LF or CRLF, the last may end with the file. Nothing inside a line can look like
 * its end, so a file is cut at the first newline behind any byte, and nothing in front of it has to
 * be read.
 */
#ifndef MANTA_DATA_LINES_LINES_H
#define MANTA_DATA_LINES_LINES_H

#include "data/format/format.h"

#define MANTA__LINES_WINDOW (256u << 10)

/* {0} is closed; close twice is harmless. */
struct manta__line_scan {
  const struct manta__file *file; /* borrowed */
  struct manta__window window;
  int64_t from;  /* where the range begins in the decoded file */
  const char *p; /* the line that next has found, without its end */
  size_t n;
  int64_t offset; /* of the line in the decoded file */
};

manta_status manta__line_scan_open(struct manta__line_scan *l, const struct manta__file *file,
                                   int64_t from, int64_t to, manta_error *err);
void manta__line_scan_close(struct manta__line_scan *l);
/* 1 and a line, 0 at the end. 64 bytes behind the line may be read. */
manta_status manta__line_scan_next(struct manta__line_scan *l, manta_error *err);
/* "FILE:LINE: " of the line. */
void manta__line_scan_place(const struct manta__line_scan *l, char *out, size_t size);

/* As struct manta__format has it. */
manta_status manta__line_scan_cut(const struct manta__file *f, int32_t number,
                                  struct manta__blocks *out, manta_error *err);

#endif
