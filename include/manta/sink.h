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
 * "mlflow"       a run of MLflow: params, metrics, tags, status. A server is spoken to over HTTP,
 *                any other store is opened by the Python package mlflow
 * "wandb"        a run of Weights & Biases, by the Python package wandb
 *
 * options, of every kind
 * "logdir"       directory of the files, made if it is not there; the run's own
 * "filename"     of json and csv; without a slash
 * "workers"      a rank, a list of ranks, or "all"; 0
 * "aggregate"    "mean", "min", "max" or "last": one row per iteration instead of one per worker
 *
 * of "mlflow"    tracking_uri (MLFLOW_TRACKING_URI), experiment_name or experiment_id, run_name,
 *                run_id, tags: a map, save_artifact: true: the files of the run's directory, too;
 *                python (MANTA_PYTHON)
 * of "wandb"     project, entity, group, name, tags: a list, mode, python, excludes: a list of
 *                names that are not sent, api_key_file, upload_checkpoints: true: those on disk at
 *                the end, init: a map of further arguments of wandb.init
 *
 * Those of an experiment (manta_tune_config.sinks) have what each trial reports, in its directory
 * or as a run of its own.
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

/* --- A sink without a run -------------------------------------------------------------------- */

/* For rows that a program has itself: written on its own thread, which waits for the disk. One
 * thread at a time. */
typedef struct manta_sink_writer manta_sink_writer;

/* Opens the sink and gives it in *out (close it). dir: where its files go unless the option logdir
 * says otherwise; files of the same names are replaced. config: for params.json and its like, or
 * NULL. What is given is copied. */
MANTA_API manta_status manta_sink_open(manta_sink_writer **out, const manta_sink *sink,
                                       const char *dir, const manta_value *config,
                                       manta_error *err);
/* Writes the rows of one iteration: a list of maps, by rank; nil where a rank has none. MANTA_EIO:
 * they were not, or not all, written. */
MANTA_API manta_status manta_sink_put(manta_sink_writer *w, int64_t iteration,
                                      const manta_value *rows, manta_error *err);
/* Iterations after `to` are void, and will be put again. MANTA_ETOOBIG: it is farther back than
 * 4096 calls of put. */
MANTA_API manta_status manta_sink_rewind(manta_sink_writer *w, int64_t to, manta_error *err);
/* Ends and frees it. NULL is fine. */
MANTA_API void manta_sink_close(manta_sink_writer *w);

/* --- Event files for TensorBoard, by hand --------------------------------------------------- */

/* For what is no row of a run: a program's own curves, the hyperparameters of an experiment. One
 * thread at a time. What is added is in memory until 1 MiB of it are there, or flush or close. */
typedef struct manta_events manta_events;

/* Makes a new event file in the directory, which is made if it is not there, and gives it in *out
 * (close it). MANTA_ENOENT: this manta was built without protobuf-c. */
MANTA_API manta_status manta_events_open(manta_events **out, const char *dir, manta_error *err);
/* Adds a map at this step: a number or bool is a scalar; a list of numbers is a histogram; bytes
 * that are a PNG, JPEG or GIF are an image; keys of maps inside are joined with '/'. Text and keys
 * that begin with '_' are left out, but for _time_this_iter_s and _time_total_s. */
MANTA_API manta_status manta_events_add(manta_events *e, int64_t step, const manta_value *row,
                                        manta_error *err);
/* Adds text, which TensorBoard shows as Markdown. */
MANTA_API manta_status manta_events_text(manta_events *e, int64_t step, const char *tag,
                                         const char *text, manta_error *err);
/* For the HPARAMS page: the parameters (a map; numbers, bools and text of it) of what this file is
 * about, of which there is one event file each. metrics: a list of the tags to compare by, or
 * NULL: all scalars. group: one name for runs that belong together, or NULL. */
MANTA_API manta_status manta_events_hparams(manta_events *e, const manta_value *hparams,
                                            const manta_value *metrics, const char *group,
                                            manta_error *err);
/* … and how it ended. */
MANTA_API manta_status manta_events_end(manta_events *e, bool ok, manta_error *err);
/* What was added at this step or a later one is void: it will come again. */
MANTA_API manta_status manta_events_restart(manta_events *e, int64_t step, manta_error *err);
/* Hands what was added to the kernel. MANTA_EIO: nothing is lost, and it may be called again. */
MANTA_API manta_status manta_events_flush(manta_events *e, manta_error *err);
/* Flushes and frees; what cannot be written then is warned of. NULL is fine. */
MANTA_API void manta_events_close(manta_events *e);

#ifdef __cplusplus
}
#endif
#endif
