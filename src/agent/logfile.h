/* SPDX-License-Identifier: Apache-2.0
 *
 * agent/logfile.h - what one rank prints: logs/rank-N.log.
 *
 * A log is at most `limit` bytes: the file being written and the one before it (.1), half each.
 */
#ifndef MANTA_AGENT_LOGFILE_H
#define MANTA_AGENT_LOGFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* {-1, -1, 0}: none is open. */
struct manta__logfile {
  int fd, rank;
  int64_t size;
};

/* Appends to the log of `rank` in the directory, opening it if need be. False with errno. */
bool manta__logfile_write(struct manta__logfile *f, int dir, int rank, int64_t limit, const void *p,
                          size_t n);
void manta__logfile_close(struct manta__logfile *f);

#endif
