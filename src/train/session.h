/* SPDX-License-Identifier: Apache-2.0
 *
 * train/session.h - the worker's side of a run: the one place that joins report count, checkpoint
 * and (later) data position.
 */
#ifndef MANTA_TRAIN_SESSION_H
#define MANTA_TRAIN_SESSION_H

#include <manta/session.h>

#include "group/worker.h"

/* What a worker does with a job: find the function, make a session, call it. */
extern const struct manta__job_ops manta__session_ops;
/* What the session stands on; borrowed, for as long as the function runs. */
struct manta__job *manta__session_job(const manta_session *s);

#endif
