/* SPDX-License-Identifier: Apache-2.0
 *
 * manta/sink.h - where the rows of a run go besides run.log: files, and other programs.
 *
 * A run is given sinks by manta_run_config.sinks, or its trainer by manta_trainer_config.sinks.
 * They work in a process of their own that reads run.log, so they can neither stop nor slow the
 * run, and nothing is missing in them. After a revival void rows are taken out again. When run or
 * next tell the end of the run, the files are complete.
 *
 *   manta_sink sinks[] = {{"json", NULL}, {"csv", NULL}, {"tensorboard", NULL}};
 *   rc.sinks = sinks;
 *   rc.sink_count = 3;
 *
 * kind           writes
 * "json"         results.json: a JSON array with one array per iteration, that has one map per
 *                worker; results.jsonl: the same, an iteration per line; params.json: the config
 * "csv"          progress.csv: a line per row; keys of nested maps are joined with '/'
 * "tensorboard"  event files for TensorBoard
 *
 * options, of every kind
 * "logdir"       directory of the files, made if it is not there; the run's own
 * "filename"     of json and csv; without a slash
 * "workers"      a rank, a list of ranks, or "all"; 0
 * "aggregate"    "mean", "min", "max" or "last": one row per iteration instead of one per worker
 */
#ifndef MANTA_SINK_H
#define MANTA_SINK_H

#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_sink {
  const char *kind;
  const manta_value *options; /* a map, or NULL: every default */
} manta_sink;

/* Whether there is such a sink and its options make sense. MANTA_EINVAL and MANTA_ETYPE say what
 * is wrong. A run does the same when it begins. */
MANTA_API manta_status manta_sink_check(const manta_sink *sink, manta_error *err);

#ifdef __cplusplus
}
#endif
#endif
