/* SPDX-License-Identifier: Apache-2.0
 *
 * train/align.h - rows of all ranks become iterations.
 *
 * Rows arrive rank by rank, each rank's in order; iteration i goes out when every rank that has not
 * ended has a row for it, in order of i, each iteration once.
 * (1) Nothing waits for a rank: a row more than MANTA__ALIGN_WINDOW behind the newest goes out
 *     with gaps, with one warning; so does one that waits only for ranks that have ended.
 * (2) A rewind to c voids what lies beyond c, aligned or not; what lies before and is incomplete
 *     goes out with gaps.
 * (3) Memory: at most the window times the ranks, and MANTA__ALIGN_BYTES of rows that wait.
 */
#ifndef MANTA_TRAIN_ALIGN_H
#define MANTA_TRAIN_ALIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#define MANTA__ALIGN_WINDOW 1024
#define MANTA__ALIGN_BYTES  (64u << 20)

/* One packed row. Owned by who holds it: manta__free. */
struct manta__row {
  uint32_t len;
  uint8_t data[];
};

/* One iteration on its way to the callbacks. Free with manta__rowset_free. */
struct manta__rowset {
  struct manta__rowset *next;
  int64_t iteration, rewound_to; /* -1: no rewind before it */
  size_t bytes;
  int world, have;
  struct manta__row *row[]; /* by rank; NULL: none */
};
void manta__rowset_free(struct manta__rowset *s);

struct manta__align {
  int world;
  int64_t base;   /* iteration the attempt began after */
  int64_t next;   /* lowest iteration that has not gone out */
  int64_t newest; /* highest iteration any rank has */
  int64_t *count; /* rows of each rank in this attempt */
  bool *ended;
  int64_t rewound_to;
  size_t bytes;
  struct manta__rowset **window; /* iteration i at i % MANTA__ALIGN_WINDOW */
  bool drop;                     /* nobody listens: count, keep nothing */
  bool warned;
  char warning[256]; /* to be shown and cleared by the caller; "" if none */
  struct manta__rowset *out_first, *out_last; /* ready, in order; taken by the caller */
};

manta_status manta__align_init(struct manta__align *a, bool drop, manta_error *err);
void manta__align_fini(struct manta__align *a);
/* A new attempt of `world` ranks that go on from iteration `base`; `rewind`: there was one before.
 */
manta_status manta__align_begin(struct manta__align *a, int world, int64_t base, bool rewind,
                                manta_error *err);
/* A row; data is copied. Iterations of a rank rise by one. MANTA_ENOMEM: it is counted, and missing
 * in its iteration. */
manta_status manta__align_push(struct manta__align *a, int rank, int64_t iteration,
                               const void *data, size_t len, manta_error *err);
/* Whether a row of this iteration fits without pushing older ones out with gaps. */
static inline bool manta__align_fits(const struct manta__align *a, int64_t iteration)
{
  return iteration - a->next < MANTA__ALIGN_WINDOW;
}
/* The rank's function has returned: nobody waits for its rows any more. */
void manta__align_end(struct manta__align *a, int rank);
/* After all ranks have ended: MANTA_EUNEVEN naming ranks and counts if they differ. A rank without
 * any row is only warned about, unless strict. */
manta_status manta__align_check(struct manta__align *a, bool strict, manta_error *err);
/* Takes all iterations that are ready. */
struct manta__rowset *manta__align_take(struct manta__align *a, struct manta__rowset **last_out);

#endif
