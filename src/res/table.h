/* SPDX-License-Identifier: Apache-2.0
 *
 * res/table.h - the table of workers that print(trainer) and `manta status` show.
 */
#ifndef MANTA_RES_TABLE_H
#define MANTA_RES_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Strings are borrowed; NULL shows as "-". */
struct manta__table_row {
  int rank;
  const char *host;
  int pid; /* <= 0: none */
  double cpus;
  const char *cores; /* the cores it is pinned to, as text ("0-3"), or NULL */
  double gpus;
  const char *gpu_ids; /* its CUDA_VISIBLE_DEVICES, or NULL */
  const char *state;
};

struct manta__table {
  const struct manta__table_row *rows;
  size_t count;
  const char *totals; /* the line below, "CPUs 3/8, GPUs 0/1", or NULL */
};

/* Appends the table, every line ending in a newline, or nothing (MANTA_ENOMEM, MANTA_ETOOBIG). A
 * long cell is cut, control characters show as "?". utf8: with box-drawing characters. */
manta_status manta__table_draw(manta__buf *out, const struct manta__table *t, bool utf8);
/* Whether LC_ALL, LC_CTYPE or LANG (the first that is set) names UTF-8. */
bool manta__table_utf8(void);

#endif
