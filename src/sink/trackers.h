/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/trackers.h - the kinds that send rows to experiment trackers; and one call of MLflow's REST
 * interface, of a server or of a store that the user's `mlflow` package opens.
 */
#ifndef MANTA_SINK_TRACKERS_H
#define MANTA_SINK_TRACKERS_H

#include "sink/sink.h"

extern const struct manta__sink_kind manta__sink_mlflow, manta__sink_wandb;

typedef struct manta__mlflow manta__mlflow;

/* uri: http:// or https://, or what mlflow takes as a tracking URI. The server's name and token are
 * those of MLFLOW_TRACKING_USERNAME, MLFLOW_TRACKING_PASSWORD and MLFLOW_TRACKING_TOKEN. */
manta_status manta__mlflow_open(manta__mlflow **out, const char *uri, const char *python,
                                const atomic_bool *quit, manta_error *err);
void manta__mlflow_close(manta__mlflow *m);
/* call: "runs/create". get: the parameters go into the URL, of which there is at most one. The
 * answer is a map, also of a failure: MANTA_ENOENT where what was asked for is not there,
 * MANTA_EINVAL where the server does not take it, however often it is sent; else it may be tried
 * again. */
manta_status manta__mlflow_call(manta__mlflow *m, const char *call, bool get,
                                const manta_value *body, manta_value *answer, manta_error *err);
/* Puts a file of the run (a path below its directory) where `root`, the run's artifact_uri, is.
 * MANTA_EUNSUPPORTED: this process cannot write there. */
manta_status manta__mlflow_upload(manta__mlflow *m, const char *run_id, const char *root,
                                  int rundir, const char *rundir_path, const char *path,
                                  manta_error *err);

#endif
