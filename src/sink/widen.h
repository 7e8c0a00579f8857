/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/widen.h - a CSV file gets more columns.
 */
#ifndef MANTA_SINK_WIDEN_H
#define MANTA_SINK_WIDEN_H

#include "sink/outfile.h"

/* Copies the file, which is flushed, with `names` (and their comma in front) behind its header and
 * `count` empty cells behind each row, and puts the copy in its place. On failure it is as it was.
 */
manta_status manta__widen(struct manta__outfile *o, int dirfd, const char *names, size_t len,
                          size_t count, manta_error *err);

#endif
