/* SPDX-License-Identifier: Apache-2.0
 *
 * sink/helper.h - a package of the user's Python, in a process of its own.
 *
 * `python -m manta._trackers WHAT` answers one line of JSON by another one, over a socket that is
 * its descriptor 3; it ends when that is closed. What it may do wrong (import for a minute, hang,
 * crash) happens there: here it is a reply that does not come in time, and the helper is ended.
 */
#ifndef MANTA_SINK_HELPER_H
#define MANTA_SINK_HELPER_H

#include <stdatomic.h>
#include <stdbool.h>

#include <manta/value.h>

#include "base/buf.h"

typedef struct manta__helper manta__helper;

/* python: its interpreter, NULL: MANTA_PYTHON. quit: waiting ends when it is set; borrowed. */
manta_status manta__helper_start(manta__helper **out, const char *python, const char *what,
                                 const atomic_bool *quit, manta_error *err);
/* Sends a question and waits for its answer, a map, at most so long. {"error": TEXT} in it is
 * MANTA_EIO with that text; MANTA_EUNSUPPORTED: it cannot work here, its package is missing. */
manta_status manta__helper_ask(manta__helper *h, const manta_value *question, manta_value *answer,
                               double limit_s, manta_error *err);
/* After a failure other than {"error"} there is no more use in asking. */
bool manta__helper_gone(const manta__helper *h);
/* Closes its socket, waits up to limit_s for its end, kills it. NULL is fine. */
void manta__helper_end(manta__helper *h, double limit_s);

#endif
