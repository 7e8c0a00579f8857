/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/index.h - all that the page shows of one run, out of its log, record by record.
 *
 * (1) Memory is bounded whatever the log holds: series by MANTA__INDEX_BYTES together (with more of
 *     them each has fewer buckets), lists by their newest entries.
 * (2) A row counts once: per rank, attempts do not fall and seq rises within one.
 * (3) A rewind takes rows back. Where that cannot be done exactly (buckets wider than a point) it
 *     is noted, and `dirty` asks for the log to be read again from its beginning; the rewinds that
 *     are known then leave out what they void.
 * (4) What the log says is believed only as numbers and text of bounded length.
 */
#ifndef MANTA_DASH_INDEX_H
#define MANTA_DASH_INDEX_H

#include <manta/value.h>

#include "dash/curve.h"
#include "event/log.h"

#define MANTA__INDEX_SERIES  4096
#define MANTA__INDEX_BYTES   (12u << 20) /* of buckets */
#define MANTA__INDEX_MARKS   512
#define MANTA__INDEX_CKPTS   256
#define MANTA__INDEX_RANKS   4096
#define MANTA__INDEX_TEXT    1024 /* bytes of a mark's text */
#define MANTA__INDEX_MESSAGE 8192 /* … and of why a run failed */

#define MANTA__STEP_NAME "_time_this_iter_s" /* the series of step times; x: the iteration */
#define MANTA__CPU_NAME  "_cpu"              /* x: seconds since the run began */
#define MANTA__RSS_NAME  "_rss"
#define MANTA__GPU_NAME  "_gpu_memory"

/* Something at a point of the time axis. */
struct manta__mark {
  enum manta__mark_kind {
    MANTA__MARK_ATTEMPT, /* workers began or began again */
    MANTA__MARK_LOST,
    MANTA__MARK_NOTE,
    MANTA__MARK_FINISH
  } kind;
  int64_t wall_ns, iteration;
  int rank; /* -1: none */
  char *text;
};

struct manta__ckpt_mark {
  int64_t wall_ns, iteration, bytes;
  double score; /* NaN: none */
  char dir[64];
};

#define MANTA__STEPS 32 /* whose median is a rank's step time */

struct manta__rank_state {
  bool any; /* a row was seen */
  bool lost;
  uint32_t attempt;
  uint64_t seq;
  int64_t iteration, row_ns;
  double step[MANTA__STEPS];
  uint32_t steps; /* seen; the newest is step[(steps - 1) % MANTA__STEPS] */
  char *host;
  int pid;
  int64_t sample_ns; /* 0: none; then what follows means nothing */
  double cpu;        /* CPUs in use */
  int64_t rss;
  double gpu_memory, gpu_use; /* bytes; a share of 1. NaN: unknown */
  uint32_t *column;           /* series of the n-th number of its newest row */
  uint32_t columns;
};

struct manta__void_rows { /* rows after `to` of attempts before `attempt` are void */
  uint32_t attempt;
  int64_t to;
};

struct manta__index {
  uint64_t id;
  int64_t records, begin_ns, end_ns;
  manta_value start; /* payload of the first record, or nil */
  bool ended, failed, dirty;
  char *message; /* of a run that failed; NULL: none */
  int attempts, world, lost;
  uint32_t attempt; /* the newest */
  int64_t rows;     /* of all ranks, void ones included */
  struct manta__curve *series;
  uint32_t series_count, series_cap;
  bool series_left_out; /* there were more than MANTA__INDEX_SERIES */
  uint32_t *slot;       /* hash table over them: index + 1 */
  uint32_t slots;
  uint32_t limit; /* buckets of each series */
  struct manta__rank_state *rank;
  int ranks;
  struct manta__mark *mark;      /* a ring, as soon as there are MANTA__INDEX_MARKS */
  uint64_t marks;                /* seen; the newest is mark[(marks - 1) % MANTA__INDEX_MARKS] */
  struct manta__ckpt_mark *ckpt; /* likewise, of MANTA__INDEX_CKPTS */
  uint64_t ckpts;
  struct manta__void_rows *cut;
  size_t cuts;
  bool shed; /* the series have no buckets any more */
};

/* {0} is an empty one; fini it. */
void manta__index_fini(struct manta__index *x);
/* Takes the next record. MANTA_ENOMEM leaves out what there is no memory for. */
manta_status manta__index_take(struct manta__index *x, const struct manta__record *h,
                               const uint8_t *payload);
/* For the log to be read again: forgets all but the rewinds. anew: these, too. */
void manta__index_restart(struct manta__index *x, bool anew);
/* Frees the buckets; what lists need stays. */
void manta__index_shed(struct manta__index *x);
/* Bytes that its series take. */
size_t manta__index_bytes(const struct manta__index *x);

/* The series of this name and rank, or NULL. */
const struct manta__curve *manta__index_find(const struct manta__index *x, const char *name,
                                             int rank);
/* Median of a rank's newest step times in seconds; NaN: none. */
double manta__rank_step(const struct manta__rank_state *r);
/* Marks ranks whose step takes more than half as long again as the median of all: `slow` has
 * x->ranks entries. */
void manta__index_stragglers(const struct manta__index *x, bool *slow);

#endif
