/* SPDX-License-Identifier: Apache-2.0
 *
 * data/format/assembly.h - a batch under construction: a builder per column, and which source rows
 * it stands for. What all readers share.
 *
 *     begin; { put a value into every builder; row } until full; end
 *
 * (1) Source rows are counted by the reader: row() says which number the row has that was just put,
 *     and pass() up to which number all were seen.
 * (2) Rows that turn out wrong half-way are taken back by undo().
 */
#ifndef MANTA_DATA_FORMAT_ASSEMBLY_H
#define MANTA_DATA_FORMAT_ASSEMBLY_H

#include "data/column/build.h"
#include "data/format/format.h"

/* {0} is closed; close twice is harmless. */
struct manta__assembly {
  const struct manta__read_job *job; /* borrowed */
  struct manta__build *build;        /* [job->out->count] */
  struct manta__memory *origin;
  int64_t cap, rows;
  int64_t first, end; /* source rows that the batch stands for */
};

manta_status manta__assembly_open(struct manta__assembly *a, const struct manta__read_job *job,
                                  manta_error *err);
void manta__assembly_close(struct manta__assembly *a);
/* An empty batch, from the source row on at which the last one ended. */
manta_status manta__assembly_begin(struct manta__assembly *a, manta_error *err);
/* There is no room for another row, or there should be no more of them in one batch. */
bool manta__assembly_full(const struct manta__assembly *a);
/* A value was put into every builder: they are source row `source`. */
void manta__assembly_row(struct manta__assembly *a, int64_t source);
/* All source rows below `end` were seen. */
static inline void manta__assembly_pass(struct manta__assembly *a, int64_t end)
{
  a->end = end;
}
/* Values that were put since the last row are forgotten. */
void manta__assembly_undo(struct manta__assembly *a);
/* 1 and the batch; 0 if it stands for no source row at all, and there is none. */
manta_status manta__assembly_end(struct manta__assembly *a, manta_batch **out, manta_error *err);

#endif
