/* SPDX-License-Identifier: Apache-2.0
 *
 * tune/experiment.h - the engine: which trial runs next, what becomes of one that reports, and the
 * log out of which all of it can be made again.
 *
 * An experiment is a state (trials, searcher, scheduler, choices) that events move. Each event is
 * written to the log before anybody acts upon it, and costs the same whatever the number of trials.
 *
 * (1) State changes by manta__experiment_apply alone, from an event that was logged: who reads the
 *     log again makes the same calls of searcher and scheduler, in the same order, and has the same
 *     state. What running a trial needs (seats, captures) is no part of it.
 * (2) A trial whose END is in the log does not run again.
 * (3) Whoever is paused goes on only by a decision; if all are paused, none can begin and the
 *     scheduler decides nothing, that is an error and no deadlock.
 * (4) A trial is copied only from one that has saved, and never from itself.
 * (5) Trials wait in order: those that go on before those that begin; of equals the lowest number.
 *
 *   experiment.c  what is due: begin, wait, act       apply.c   events and what they change
 *   choice.c      searcher and scheduler, native or the caller's
 *   journal.c     the log: records, reading           seats.c   trials as light runs
 *   trial.c       states                              tune.c    the public calls
 */
#ifndef MANTA_TUNE_EXPERIMENT_H
#define MANTA_TUNE_EXPERIMENT_H

#include "tune/runner.h"
#include "tune/trial.h"

#endif
