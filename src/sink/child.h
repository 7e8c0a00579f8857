/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/child.h - the process of a run's sinks, as its driver sees it.
 *
 * (1) It is started with the run, and again when it dies before its time: after a pause, and at
 *     most MANTA__SINK_RESTARTS times.
 * (2) The driver waits for it nowhere but at the end of the run, and there at most so long.
 * (3) One that is left behind works on by itself, and is reaped when it has ended.
 * (4) Children that the user forks do not hold its socket.
 */
#ifndef MANTA_SINK_CHILD_H
#define MANTA_SINK_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <manta/status.h>

#define MANTA__SINK_RESTARTS 5

/* {0} with sock -1: there are no sinks. */
struct manta__sink_child {
  pid_t pid; /* 0: it does not run */
  int sock;
  int restarts;
  int64_t start_ns; /* not started again before; 0: it is not to be */
  bool wanted, finishing;
  int64_t by; /* when the end does not wait any longer */
};

/* Starts it; sinks.json is there. A failure is for the caller to show; the run goes on. */
manta_status manta__sink_child_start(struct manta__sink_child *c, int rundir, manta_error *err);
/* Reads what it says; `warn` shows it. Returns when to look again (or its socket is readable). */
int64_t manta__sink_child_step(struct manta__sink_child *c, int rundir, int64_t now,
                               void (*warn)(void *ctx, const char *text), void *ctx);
/* The log is complete: it is to drain, at most for `limit_s`. */
void manta__sink_child_finish(struct manta__sink_child *c, double limit_s);
/* Nothing is to be waited for. */
bool manta__sink_child_over(const struct manta__sink_child *c);
/* Lets it go; (3). */
void manta__sink_child_leave(struct manta__sink_child *c);

#endif
