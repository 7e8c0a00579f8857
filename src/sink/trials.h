/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/trials.h - a sink of an experiment: one of its kind for every trial, each in the directory
 * of its trial and with its config, out of the one log that they have together (tune/journal.h).
 *
 * (1) To a kind, a trial is a run: RUN with its config, an ATTEMPT each time that it begins, rows,
 *     FINISH. Its id follows from that of the experiment and its number.
 * (2) A row is in the log once, and rows of a trial rise: there are no rewinds.
 * (3) How far each trial is (the seq of its last record, mark and memo) is in the memo. A record
 *     that a trial has is not given to it again, from wherever the log is read.
 * (4) Memory and descriptors are those of trials that run or are paused, whatever their number was.
 */
#ifndef MANTA_SINK_TRIALS_H
#define MANTA_SINK_TRIALS_H

#include "sink/sink.h"

#define MANTA__TRIALS_FOLDER "experiment" /* of the log, in the directory of an experiment */

/* env->each is the kind of each trial, loaded. */
extern const struct manta__sink_kind manta__sink_trials;

#endif
