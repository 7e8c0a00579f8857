/* SPDX-License-Identifier: Apache-2.0
 *
 * dash/show.h - what the browser gets: runs as JSON, whole or as what is new since the last time.
 *
 *   {"dir", "runs": [{name, state, iteration, best, last, begin, end, bytes, …}]}
 *   {"run", state, …, "workers": […], "marks": […], "checkpoints": […],
 *    "series": [{id, name, rank, x0, w, from, mean, min, max, t, last, …}]}
 *
 * Of a series come the buckets from `from` on: those before it are as they were sent. `min` and
 * `max` are left out where each bucket is one point. Times are seconds since 1970, t since the
 * run's beginning.
 */
#ifndef MANTA_DASH_SHOW_H
#define MANTA_DASH_SHOW_H

#include "dash/catalog.h"
#include "dash/json.h"

/* What one reader has of one run. {0}: nothing; fini it. */
struct manta__sent {
  uint64_t version;
  bool head;      /* the description of the run */
  uint64_t begun; /* of which index: one that begins anew is sent anew */
  uint64_t marks, ckpts, trials;
  struct manta__sent_series {
    uint32_t generation, count;
    uint64_t points;
  } * series;
  uint32_t series_count;
};
void manta__sent_fini(struct manta__sent *s);

/* Under the catalog's lock, all of them. */
void manta__show_runs(struct manta__dash_json *j, const struct manta__catalog *c);
/* What is new of a run, and notes it as sent. */
void manta__show_run(struct manta__dash_json *j, const struct manta__entry *e,
                     struct manta__sent *s);

/* Of an experiment, in show_trials.c: what a list says, and the entries of an event. */
void manta__show_experiment_standing(struct manta__dash_json *j, const struct manta__entry *e);
void manta__show_experiment(struct manta__dash_json *j, const struct manta__entry *e,
                            struct manta__sent *s);

/* The runs that are going on or ended lately, for Prometheus; in prom.c. */
manta_status manta__show_prometheus(const struct manta__catalog *c, manta__buf *out);

#endif
