/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/gather.h - rows of the ranks that a sink wants become iterations, once each and in order.
 *
 * (1) An iteration goes out when all wanted ranks of the attempt have a row for it.
 * (2) Nothing waits for ever: an iteration goes out with gaps when it is MANTA__GATHER_WINDOW
 *     behind the newest, when rows that wait take MANTA__GATHER_BYTES, when the attempt ends, or
 *     when all that is missing is ranks that never spoke in it, MANTA__GATHER_SILENT_S after the
 *     first did.
 * (3) A row that comes twice (it was salvaged), or after its iteration, is dropped.
 * (4) The place to read on from later is before the first row of the oldest iteration that waits:
 *     rows of iterations that have gone out are then dropped by (3).
 */
#ifndef MANTA_SINK_GATHER_H
#define MANTA_SINK_GATHER_H

#include "event/log_follow.h"
#include "sink/pick.h"

#define MANTA__GATHER_WINDOW   1024
#define MANTA__GATHER_BYTES    (32u << 20)
#define MANTA__GATHER_SILENT_S 5.0

/* Gets each iteration; a failure is passed on. */
typedef manta_status (*manta__gather_emit)(void *ctx, const struct manta__sink_rows *rows,
                                           manta_error *err);

struct manta__gather {
  const struct manta__pick *pick;
  manta__gather_emit emit;
  void *ctx;
  int world, need;
  uint32_t attempt;
  int64_t next;   /* lowest iteration that has not gone out */
  int64_t newest; /* that any wanted rank has */
  int64_t first_ns;
  bool *spoke; /* by rank */
  size_t bytes;
  struct manta__gather_slot **window; /* iteration i at i % MANTA__GATHER_WINDOW */
};

manta_status manta__gather_init(struct manta__gather *g, const struct manta__pick *pick,
                                manta__gather_emit emit, void *ctx, manta_error *err);
void manta__gather_fini(struct manta__gather *g);
/* An attempt of `world` ranks goes on after iteration `base`: what waits goes out with gaps up to
 * there, and the rest is void. */
manta_status manta__gather_begin(struct manta__gather *g, uint32_t attempt, int world, int64_t base,
                                 manta_error *err);
/* Takes it to a bookmark: nothing waits. */
manta_status manta__gather_reset(struct manta__gather *g, uint32_t attempt, int world, int64_t last,
                                 manta_error *err);
/* A row of the log; before: the place before it. */
manta_status manta__gather_row(struct manta__gather *g, const struct manta__record *head,
                               const uint8_t *payload, const struct manta__log_place *before,
                               manta_error *err);
/* Nothing more to read so far: (2), the last part. */
manta_status manta__gather_idle(struct manta__gather *g, int64_t wall_ns, manta_error *err);
/* All that waits goes out: the run is over. */
manta_status manta__gather_end(struct manta__gather *g, manta_error *err);
/* (4), where `now` is the place behind the last record. */
struct manta__log_place manta__gather_place(const struct manta__gather *g,
                                            struct manta__log_place now);

#endif
