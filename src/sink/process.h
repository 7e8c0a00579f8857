/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/process.h - the process of a run's sinks, a child of the driver.
 *
 * (1) It ends when the log has ended and every sink has all of it: after the driver's word
 *     (MANTA__SINK_FINISH), or, when the driver is gone, when nobody holds the log's lock. Slow
 *     sinks have linger_s for that.
 * (2) It writes nothing that the run needs. When it is killed another one goes on from the
 *     bookmarks (state.h).
 * (3) It speaks with the driver over a socket of packets: a letter, and text behind it.
 */
#ifndef MANTA_SINK_PROCESS_H
#define MANTA_SINK_PROCESS_H

#include <manta/status.h>

#define MANTA__SINK_FINISH 'F' /* driver: all that there will be is in the log */
#define MANTA__SINK_WARN   'W' /* sinks: a warning, its text */
#define MANTA__SINK_DONE   'D' /* sinks: nothing is left to do */
#define MANTA__SINK_PACKET 1200

#define MANTA__SINK_ORPHAN_S 60.0 /* an orphan waits so long for the end of the log */

/* conn: to the driver; rundir: the run directory. Its exit code. */
int manta__sink_main(int conn, int rundir);
/* Feeds all sinks of a run to the end of its log, in this process: `manta sink RUN`. kind: only
 * those, or NULL. MANTA_EIO: some sink did not get all, which was told on standard error. */
manta_status manta__sink_replay(int rundir, const char *kind, manta_error *err);

#endif
